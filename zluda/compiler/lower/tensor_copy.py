"""Copies of tensors by a tensor map, and changes of maps (PTX ISA 9.7.9.27, .28), made at once.

Each lane that issues a copy calls the function of its kind (``tensor_box.py``) by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zluda.compiler import tensor_map
from zluda.compiler.ir import Builder, Value, constant
from zluda.compiler.lanes import uniform, vector
from zluda.compiler.lower.cluster import blocks_of, of_block
from zluda.compiler.lower.lane_loops import if_lanes
from zluda.compiler.lower.mbarrier import change
from zluda.compiler.lower.memory import address_of, map_lanes, space_of, taken
from zluda.compiler.lower.table import lowers
from zluda.compiler.lower.tensor_box import Kind, box_function
from zluda.compiler.target import VARYING, Lanes
from zluda.ptx.instructions import spell
from zluda.ptx.module import Address, Immediate, Indexed, Instruction, Operand, Symbol, Vector
from zluda.ptx.types import ScalarType

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen
    from zluda.compiler.tensor_map import Field

_MODES = {"": "tile", "tile": "tile", "im2col": "im2col", "im2col_no_offs": "im2col_no_offs"}
_MODES |= {"tile::gather4": "gather4", "tile::scatter4": "scatter4"}


def copy_tensor(f: FunctionCodegen, instruction: Instruction) -> None:
    """``cp.async.bulk.tensor`` and ``cp.reduce.async.bulk.tensor``."""
    mode = _MODES.get(instruction.slots.get("load_mode", ""))
    if mode is None:
        raise f.unsupported(instruction)
    store = instruction.slots["dst"] == "global"
    kind = Kind(int(instruction.slots["dim"][0]), mode, store, instruction.slots.get("op", ""))
    tensor, box = instruction.operands[:2] if store else reversed(instruction.operands[:2])
    if not isinstance(tensor, Indexed) or not kind.exists:
        raise f.unsupported(instruction)
    places = _elements(tensor.coordinates)
    rest = list(instruction.operands[2:])
    arguments = [_map_address(f, tensor), _generic(f, box)]
    if len(places) != kind.coordinates:
        raise f.unsupported(instruction, f"{spell(instruction)} with {len(places)} coordinates")
    arguments += [f.read_bits(e, 32) for e in places]
    if store:
        _moved(f, kind, arguments)
        return
    barrier = taken(f, instruction, rest)
    place = address_of(f, barrier)
    if kind.offsets:
        offsets = _elements(taken(f, instruction, rest))
        if len(offsets) != kind.offsets:
            raise f.unsupported(instruction, f"{spell(instruction)} with {len(offsets)} offsets")
        arguments += [_halfword(f, e) for e in offsets]
    mask = f.read_bits(taken(f, instruction, rest), 16) if instruction.has("multicast") else None
    for rank, lanes in blocks_of(f, mask):

        def deliver(rank: Value | None = rank) -> None:
            target = (
                arguments
                if rank is None
                else [arguments[0], _in_block(f, arguments[1], rank), *arguments[2:]]
            )
            size = _moved(f, kind, target)
            change(f, instruction, barrier, transactions=size, completes=True, place=place, rank=rank)

        if lanes is None:
            deliver()
        else:
            if_lanes(f, lanes, deliver)


def _elements(operand: Operand) -> tuple[Operand, ...]:
    return operand.elements if isinstance(operand, Vector) else (operand,)


def _halfword(f: FunctionCodegen, operand: Operand) -> Lanes:
    return map_lanes(f, [f.read_bits(operand, 16)], lambda v: f.b.zext(v[0], "i32"))


def _map_address(f: FunctionCodegen, tensor: Indexed) -> Lanes:
    """The generic address of a tensor map: in global or constant memory, or a kernel's parameter."""
    (named,) = tensor.objects
    if isinstance(named, Symbol):
        return f.resize(f.ops.symbol(f, named.name), 64)
    return f.read_bits(named, 64)


def _generic(f: FunctionCodegen, operand: Operand) -> Lanes:
    """The generic address of an operand in shared memory."""
    address, offset = address_of(f, operand)
    start = f.b.add(f.ops.window(f, "shared"), offset)

    def widen(values: list[Value]) -> Value:
        inside = f.b.zext(f.b.resize(values[0], "i32"), "i64")
        return f.b.add(inside, f.b.splat(start, inside.lanes))

    return map_lanes(f, [address], widen)


def _in_block(f: FunctionCodegen, generic: Lanes, rank: Value) -> Lanes:
    """The same place in the shared memory of a block of the cluster."""
    start = f.ops.window(f, "shared")

    def place(values: list[Value]) -> Value:
        lanes = values[0].lanes
        inside = f.b.sub(values[0], f.b.splat(start, lanes))
        return f.b.add(of_block(f, inside, rank), f.b.splat(start, lanes))

    return map_lanes(f, [generic], place)


def _moved(f: FunctionCodegen, kind: Kind, arguments: list[Lanes]) -> Lanes:
    """Move a box; its bytes. What cannot be stops the launch."""
    size = _each_lane(f, kind, arguments)
    illegal = [f.b.icmp("slt", p, 0) for p in f.vectors(size)]
    if_lanes(f, illegal, lambda: f.ops.trap(f, "instruction"))
    return size


def _each_lane(f: FunctionCodegen, kind: Kind, arguments: list[Lanes]) -> Lanes:
    """Call the function of a kind for every executing lane, one after the other."""
    function, width = box_function(f.unit.ir, kind), f.geometry.width
    if f.geometry.lanes == 1:
        return Lanes(arguments[0].shape, (f.b.call(function, [a.parts[0] for a in arguments], "i32"),))
    parameters = [("i32", 1), *((a.type, width) for a in arguments)]
    name = f.unit.ir.function(f"{kind.name}.lanes", parameters, lambda b, a: _loop(b, a, function))
    results = []
    for g in range(f.geometry.groups):
        mask = f.mask[g] if f.mask is not None else f.b.splat(constant("i1", 1), width)
        bits = f.b.zext(f.b.reshape(mask, f"i{width}", 1), "i32")
        values = [vector(a, g, f.b, f.geometry) for a in arguments]
        results.append(f.b.call(name, [bits, *values], "i32", width))
    return Lanes(VARYING, tuple(results))


def _loop(b: Builder, arguments: list[Value], function: str) -> Value:
    bits, *vectors = arguments
    width = vectors[0].lanes
    tables = [b.alloca(v.type, width) for v in vectors]
    for table, v in zip(tables, vectors, strict=True):
        b.store(v, table, align=64)
    results = b.alloca("i32", width)
    b.store(b.splat(constant("i32", 0), width), results, align=64)
    remaining = b.alloca("i32", align=4)
    b.store(bits, remaining, align=4)
    b.branch("next")
    b.label("next")
    left = b.load("i32", remaining, align=4)
    b.cond_branch(b.icmp("eq", left, 0), "out", "lane")
    b.label("lane")
    lane = b.zext(b.intrinsic("cttz", left, False), "i64")
    b.store(b.and_(left, b.sub(left, 1)), remaining, align=4)
    scalars = [b.load(v.type, b.gep(t, lane, v.type), align=1) for t, v in zip(tables, vectors, strict=True)]
    b.store(b.call(function, scalars, "i32"), b.gep(results, lane, "i32"), align=4)
    b.branch("next")
    b.label("out")
    return b.load("i32", results, width, align=64)


# --- changes of a map --------------------------------------------------------------------------------


@lowers("tensormap")
def tensormap(f: FunctionCodegen, instruction: Instruction) -> None:
    """``tensormap.replace``, and ``tensormap.cp_fenceproxy``, a copy that others then see."""
    if instruction.has("replace"):
        _replace(f, instruction)
        return
    target, source, size = instruction.operands
    if not isinstance(size, Immediate) or size.value != tensor_map.MAP_BYTES:
        raise f.unsupported(instruction)
    into, out_of = address_of(f, target), address_of(f, source)
    for at in range(0, tensor_map.MAP_BYTES, 16):
        values = f.ops.load(f, "shared", out_of[0], out_of[1] + at, ScalarType.B64, 2, volatile=False)
        f.ops.store(f, "global", into[0], into[1] + at, ScalarType.B64, values, volatile=False)
    f.ops.fence(f, instruction.slots["scope"])


def _replace(f: FunctionCodegen, instruction: Instruction) -> None:
    """One field of the map, or one of a dimension, by its value."""
    target, *ordinal, value = instruction.operands
    fields = tensor_map.FIELDS.get(instruction.slots["field"])
    number = ordinal[0].value if ordinal and isinstance(ordinal[0], Immediate) else 0
    if fields is None or not 0 <= number < len(fields):
        raise f.unsupported(instruction)
    assert isinstance(target, Address)
    space = space_of(f, instruction, target)
    base, offset = address_of(f, target)
    wanted = map_lanes(f, [f.read_bits(value, instruction.type.bits)], lambda v: f.b.zext(v[0], "i64"))
    if instruction.slots["field"] == "elemtype":
        if not isinstance(value, Immediate) or not 0 <= value.value < len(tensor_map.REPLACED_TYPES):
            raise f.unsupported(instruction)
        wanted = uniform(constant("i64", tensor_map.REPLACED_TYPES[value.value]))
    field = fields[number]
    parts = [(field.at, field.bits, field.dropped)]
    if field.more:
        parts.append((field.more_at, field.more, field.dropped + field.bits))
    for at, bits, shift in parts:
        _insert(f, (space, base, offset), wanted, field, at, bits, shift)


def _insert(
    f: FunctionCodegen,
    place: tuple[str, Lanes, int],
    wanted: Lanes,
    field: Field,
    at: int,
    bits: int,
    shift: int,
) -> None:
    """``bits`` bits of the value, less the bias, from ``shift`` on, to bit ``at`` of the map."""
    space, base, offset = place
    word, b = at // 64 * 64, f.b
    (old,) = f.ops.load(f, space, base, offset + word // 8, ScalarType.B64, 1, volatile=False)
    mask = (1 << bits) - 1 << at - word

    def merged(values: list[Value]) -> Value:
        kept = b.and_(values[0], ~mask & 0xFFFFFFFFFFFFFFFF)
        moved = b.shl(b.lshr(b.sub(values[1], field.bias), shift), at - word)
        return b.or_(kept, b.and_(moved, mask))

    f.ops.store(
        f,
        space,
        base,
        offset + word // 8,
        ScalarType.B64,
        [map_lanes(f, [old, wanted], merged)],
        volatile=False,
    )
