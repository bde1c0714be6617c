"""Accesses out of range on the CPU: of shared and local memory always, else where ``Unit.check`` asks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from zluda.compiler.clusters import CLUSTER
from zluda.compiler.cpu.context import RANGES, SHARED_STRIDE, Context, Ranges
from zluda.compiler.cpu.special import context_field, context_pointer
from zluda.compiler.ir import Builder, Value, constant
from zluda.compiler.lanes import vector
from zluda.compiler.ranges import in_ranges
from zluda.compiler.target import WARP, Lanes
from zluda.ptx.module import Variable

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen
    from zluda.compiler.cpu.addresses import AddressOps

_STACK_OPERATIONS = frozenset({"alloca", "stackrestore"})
_FEW = 4  # variables that a local address is tested against


def check_bounds(
    ops: AddressOps, f: FunctionCodegen, space: str, address: Lanes, offset: int, size: int
) -> None:
    """Stop the launch when an active lane accesses bytes that are not there."""
    if space in ("shared", CLUSTER):
        _check_shared(ops, f, space, address, offset, size)
    elif space == "local":
        _check_local(ops, f, address, offset, size)
    elif f.unit.check != "memory":
        return
    elif space in ("", "global", "const"):
        _fault_where(
            ops, f, "global", address, offset, size, lambda g, at: _unallocated(f, space, g, at, size)
        )


Outside = Callable[[int, Value], Value]
"""(group, a lane's address each) → ``i1`` a lane: whether it is out of range, if it is active."""


def _fault_where(
    ops: AddressOps,
    f: FunctionCodegen,
    kind: str,
    address: Lanes,
    offset: int,
    size: int,
    outside: Outside,
) -> None:
    b, width = f.b, ops.geometry.width
    if address.shape.uniform:
        parts = [address.parts[0]]
    else:
        parts = [vector(address, g, b, ops.geometry) for g in range(ops.geometry.groups)]
    bad = [outside(g, b.add(b.resize(p, "i64"), offset)) for g, p in enumerate(parts)]
    if len(parts) > 1:
        bad = [b.splat(x, width) for x in bad]
        if f.mask is not None:
            bad = [b.and_(x, m) for x, m in zip(bad, f.mask, strict=True)]
    wrong = b.any(bad[0])
    for x in bad[1:]:
        wrong = b.or_(wrong, b.any(x))
    fault, fine = b.fresh("outside"), b.fresh("inside")
    b.cond_branch(wrong, fault, fine)
    b.label(fault)
    ops.report(f, kind, bad, parts, offset, size)
    b.label(fine)


# --- shared memory -------------------------------------------------------------------------------------


def _check_shared(
    ops: AddressOps, f: FunctionCodegen, space: str, address: Lanes, offset: int, size: int
) -> None:
    if _surely_inside(f, address, offset, size):
        return
    checked = ("shared", space, *(p.ref for p in address.parts), address.shape.pattern, offset, size)
    if checked in f.checked:
        return
    f.checked.add(checked)
    b = f.b
    limit = context_field(f, "shared_bytes", "i32")
    pattern, done = address.shape.pattern, ""
    if pattern is not None and address.shape.bases == 1 and not f.unit.clustered:
        # One test for the whole warp; lanes are looked at one by one only where it fails.
        first, span = offset + min(pattern), max(pattern) - min(pattern) + size
        start = b.add(b.resize(address.parts[0], "i32"), first & 0xFFFFFFFF)
        fine = b.and_(b.icmp("ule", start, b.sub(limit, span)), b.icmp("uge", limit, span))
        look, done = b.fresh("look"), b.fresh("within")
        b.cond_branch(fine, done, look)
        b.label(look)
    _fault_where(
        ops, f, "shared", address, offset, size, lambda g, at: _not_shared(f, space, at, limit, size)
    )
    if done:
        b.branch(done)
        b.label(done)


def _surely_inside(f: FunctionCodegen, address: Lanes, offset: int, size: int) -> bool:
    """Whether the address is a constant within the kernel's own variables."""
    known = address.shape.constant
    return known is not None and 0 <= known + offset <= f.unit.shared.static_bytes - size


def _not_shared(f: FunctionCodegen, space: str, at: Value, limit: Value, size: int) -> Value:
    b = f.b
    place = b.resize(at, "i32")
    inside = b.and_(place, SHARED_STRIDE - 1) if f.unit.clustered else place
    bad = b.or_(b.icmp("ugt", inside, b.sub(limit, size)), b.icmp("ult", limit, size))
    if space == CLUSTER and f.unit.clustered:
        bad = b.or_(b.icmp("uge", place, f.unit.together.blocks * SHARED_STRIDE), bad)
    return bad


# --- local memory --------------------------------------------------------------------------------------


def _check_local(ops: AddressOps, f: FunctionCodegen, address: Lanes, offset: int, size: int) -> None:
    checked = ("local", *(p.ref for p in address.parts), address.shape.pattern, offset, size)
    if checked in f.checked:
        return
    f.checked.add(checked)
    b, done = f.b, ""
    fine = _within_one(ops, f, address, offset, size)
    if fine is not None:
        look, done = b.fresh("look"), b.fresh("within")
        b.cond_branch(fine, done, look)
        b.label(look)
    _fault_where(ops, f, "local", address, offset, size, lambda g, at: _not_local(ops, f, g, at, size))
    if done:
        b.branch(done)
        b.label(done)


def _within_one(ops: AddressOps, f: FunctionCodegen, address: Lanes, offset: int, size: int) -> Value | None:
    """Whether lanes are side by side in their copies of one variable, each at the same place: one test for
    the whole warp. None where their addresses are not so."""
    b = f.b
    if address.shape.pattern is None or address.shape.bases != 1:
        return None
    start = b.add(b.resize(address.parts[0], "i64"), offset)
    tests = [
        b.icmp("ule", b.sub(start, ops.symbol(f, variable.name).parts[0]), variable.size - size)
        for variable in _own_variables(f) or ()
        if ops.symbol_shape(f, variable.name).pattern == address.shape.pattern and variable.size >= size
    ]
    return functools.reduce(b.or_, tests) if tests else None


def _own_variables(f: FunctionCodegen) -> list[Variable] | None:
    """What a local address can be in: the kernel's variables, the parameters of calls among them. None where
    it can be in other functions' too, or where they are too many to be tested one by one without being asked.
    """
    variables = [v for v in f.function.variables.values() if v.space in ("local", "param")]
    if not f.function.is_entry or any(i.opcode in _STACK_OPERATIONS for i in f.function.instructions):
        return None
    return variables if len(variables) <= _FEW or f.unit.check == "memory" else None


def _not_local(ops: AddressOps, f: FunctionCodegen, group: int, at: Value, size: int) -> Value:
    """Outside the thread's own variables; outside all that is on stacks, where those are not known."""
    b = f.b
    variables = _own_variables(f)
    if variables is None:
        region = b.sub(context_field(f, "stack_high", "i64"), context_field(f, "stack_low", "i64"))
        return b.icmp("ugt", at, b.sub(region, size))
    outside: Value = constant("i1", 1)
    for variable in variables:
        if variable.size >= size:
            place = b.sub(at, _own_slots(ops, f, variable, group, at.lanes))
            outside = b.and_(b.icmp("ugt", place, variable.size - size), outside)
    return outside


def _own_slots(ops: AddressOps, f: FunctionCodegen, variable: Variable, group: int, lanes: int) -> Value:
    """Where each lane's copy of a variable is."""
    b, width = f.b, ops.geometry.width
    start = ops.symbol(f, variable.name).parts[0]
    stride = (ops.symbol_shape(f, variable.name).pattern or (0,) * WARP)[1]
    if lanes == 1:
        return start
    first = group * width
    return b.add(b.splat(start, lanes), b.vector("i64", [(first + i) * stride for i in range(lanes)]))


# --- memory --------------------------------------------------------------------------------------------


def _unallocated(f: FunctionCodegen, space: str, group: int, at: Value, size: int) -> Value:
    """Outside every live allocation, and by a generic address outside the windows too."""
    b, lanes = f.b, at.lanes
    table = b.load("ptr", b.gep(context_pointer(), Context.symbols.offset), align=8)
    cell = b.load("ptr", b.gep(table, 8 * f.unit.symbol_index(RANGES)), align=8)
    active: Value = constant("i32", -1)
    if f.mask is not None and lanes > 1:
        active = b.zext(b.reshape(f.mask[group], f"i{lanes}", 1), "i32")
    blocks = f.unit.together.blocks if space == "" else 0
    kind = f"generic.{blocks}" if blocks else "global"
    parameters = [("ptr", 1), ("ptr", 1), ("i64", lanes), ("i32", 1)]
    name = b.module.function(
        f"zluda.unallocated.{kind}.{size}.v{lanes}",
        parameters,
        lambda inner, a: _emit_lanes(inner, a, size, blocks),
    )
    bits = b.call(name, [context_pointer(), cell, at, active], "i32")
    if lanes == 1:
        return b.icmp("ne", bits, 0)
    return b.reshape(b.trunc(bits, f"i{lanes}"), "i1", lanes)


def _emit_lanes(b: Builder, arguments: list[Value], size: int, blocks: int) -> Value:
    """(context, ranges, addresses, active lanes) → lanes outside.

    ``blocks`` is how many have shared memory that generic addresses reach; 0 for addresses of global memory.
    """
    context, cell, addresses, active = arguments
    ranges = b.load("ptr", b.gep(cell, Ranges.pairs.offset), align=8)
    count = b.load("i64", b.gep(cell, Ranges.count.offset), align=8)
    if addresses.lanes == 1:
        return b.zext(b.not_(_allocated(b, context, ranges, count, addresses, size, blocks)), "i32")
    lanes = (1 << addresses.lanes) - 1
    todo = b.and_(active, lanes)
    b.branch("start")
    b.label("start")
    b.emit("br label %each")
    b.label("each")
    rest, bad = Value("i32", 1, "%rest"), Value("i32", 1, "%bad")
    b.emit(f"%rest = phi i32 [ {todo.ref}, %start ], [ %rest2, %one ]")
    b.emit("%bad = phi i32 [ 0, %start ], [ %bad2, %one ]")
    b.cond_branch(b.icmp("eq", rest, 0), "end", "one")
    b.label("one")
    lane = b.intrinsic("cttz", rest, True)
    address = b.extract(addresses, lane)
    fine = _allocated(b, context, ranges, count, address, size, blocks)
    bit = b.shl(constant("i32", 1), lane)
    b.emit(f"%rest2 = xor i32 {rest.ref}, {bit.ref}")
    with_lane = b.select(fine, bad, b.or_(bad, bit))
    b.emit(f"%bad2 = or i32 {with_lane.ref}, 0")
    b.branch("each")
    b.label("end")
    return bad


def _allocated(
    b: Builder, context: Value, ranges: Value, count: Value, address: Value, size: int, blocks: int
) -> Value:
    found = in_ranges(b, ranges, count, address, constant("i64", size))
    if not blocks:
        return found

    def inside(place: Value, bytes_: Value) -> Value:
        return b.and_(b.icmp("ule", place, b.sub(bytes_, size)), b.icmp("uge", bytes_, size))

    def field(name: str, element: str = "i64") -> Value:
        value = b.load(element, b.gep(context, getattr(Context, name).offset), align=4)
        return b.zext(value, "i64")

    windows = (
        (field("params"), field("param_bytes", "i32")),
        (field("stack_low"), b.sub(field("stack_high"), field("stack_low"))),
    )
    for start, bytes_ in windows:
        found = b.or_(found, inside(b.sub(address, start), bytes_))
    place = b.sub(address, field("shared"))
    within = inside(b.and_(place, SHARED_STRIDE - 1), field("shared_bytes", "i32"))
    return b.or_(found, b.and_(within, b.icmp("ult", place, blocks * SHARED_STRIDE)))
