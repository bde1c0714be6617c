"""Asynchronous copies and stores (PTX ISA 9.7.9.12, 9.7.9.25), made at once: an order that PTX allows.

So groups are complete as soon as they are committed, and a barrier that a copy completes is told right
behind it. A copy in bulk is made by each lane that issues it, sixteen bytes a round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zluda.compiler.ir import Value
from zluda.compiler.lanes import uniform
from zluda.compiler.lower import memory
from zluda.compiler.lower.cluster import blocks_of, of_block
from zluda.compiler.lower.lane_loops import if_lanes, while_lanes
from zluda.compiler.lower.mbarrier import change
from zluda.compiler.lower.memory import address_of, map_lanes, taken
from zluda.compiler.lower.table import base_space, lowers, named_space
from zluda.compiler.target import Lanes
from zluda.ptx.instructions import spell
from zluda.ptx.module import Immediate, Instruction, Operand, Register
from zluda.ptx.types import ScalarType

if TYPE_CHECKING:
    from collections.abc import Callable

    from zluda.compiler.codegen import FunctionCodegen

_CHUNK = 16  # bytes: what sizes and addresses of bulk copies are multiples of
_ENDS = {"cp_mask": 1, "ignore_oob": 2}  # operands that say which bytes are left out
_Place = tuple[str, Lanes, int]  # space, address, offset


@lowers("cp")
def copy(f: FunctionCodegen, instruction: Instruction) -> None:
    """``cp.async`` and ``cp.reduce.async``."""
    if _only_waits(instruction):
        return
    if instruction.has("tensor"):
        from zluda.compiler.lower.tensor_copy import copy_tensor  # few kernels have any

        copy_tensor(f, instruction)
    elif instruction.has("mbarrier"):
        _arrive(f, instruction)
    elif instruction.has("reduce"):
        _reduce_bulk(f, instruction)
    elif instruction.has("bulk"):
        _copy_bulk(f, instruction)
    else:
        _copy_some(f, instruction)


def _only_waits(instruction: Instruction) -> bool:
    """Groups are complete already; a prefetch has no effect on results."""
    groups = ("commit_group", "wait_group", "wait_all")
    return any(instruction.has(word) for word in groups) or instruction.has("action")


def _place(f: FunctionCodegen, space: str, operand: Operand) -> _Place:
    return named_space(f, space), *address_of(f, operand)


def _moved(f: FunctionCodegen, place: _Place, by: Value) -> _Place:
    """The place ``by`` (a scalar ``i32``) bytes further."""
    space, address, offset = place
    parts = tuple(f.b.add(p, f.b.splat(f.b.resize(by, p.type), p.lanes)) for p in address.parts)
    return space, Lanes(address.shape.loose, parts), offset


def _transfer(f: FunctionCodegen, target: _Place, source: _Place, type: ScalarType, count: int) -> None:
    values = f.ops.load(f, *source, type, count, volatile=False)
    f.ops.store(f, *target, type, values, volatile=False)


def store(f: FunctionCodegen, instruction: Instruction) -> None:
    """``st.async``, which tells a barrier of the bytes; ``st.bulk``, which clears memory."""
    if instruction.has("bulk"):
        _clear(f, instruction)
        return
    memory.store(f, instruction)
    if instruction.has("completion"):
        count = len(memory.elements_of(instruction.operands[1]))
        size = uniform(f.b.const("i32", count * instruction.type.bits // 8))
        change(f, instruction, instruction.operands[2], transactions=size, completes=True)


def _clear(f: FunctionCodegen, instruction: Instruction) -> None:
    """``st.bulk``: zeros, eight bytes a round, of which its size is a multiple."""
    target, size = instruction.operands[:2]
    place = _place(f, base_space(instruction), target)
    sizes = f.vectors(f.read_bits(size, 32))
    zero = [uniform(f.b.const("i64", 0))]
    _each(f, sizes, 8, lambda at: f.ops.store(f, *_moved(f, place, at), ScalarType.B64, zero, volatile=False))


# --- up to sixteen bytes a thread --------------------------------------------------------------------


def _copy_some(f: FunctionCodegen, instruction: Instruction) -> None:
    """``cp.async.ca`` and ``.cg``: with a source size, the bytes behind it are zero in the destination."""
    into, out_of, size, *rest = instruction.operands
    if not isinstance(size, Immediate) or size.value not in (4, 8, 16):
        raise f.unsupported(instruction)
    if instruction.has("cache_hint"):
        rest = rest[:-1]
    words = size.value // 4
    target = _place(f, instruction.slots["dst"], into)
    source = _place(f, instruction.slots["src"], out_of)
    if not rest:
        _transfer(f, target, source, ScalarType.B32, words)
        return
    given = _source_size(f, rest[0], size.value)
    sizes = f.vectors(given)
    whole = [f.b.icmp("uge", s, size.value) for s in sizes]
    if_lanes(f, whole, lambda: _transfer(f, target, source, ScalarType.B32, words))
    zeros = [uniform(f.b.const("i32", 0))] * words

    def fill() -> None:
        f.ops.store(f, *target, ScalarType.B32, zeros, volatile=False)
        _each(
            f,
            sizes,
            1,
            lambda at: _transfer(f, _moved(f, target, at), _moved(f, source, at), ScalarType.B8, 1),
        )

    if_lanes(f, [f.b.not_(w) for w in whole], fill)


def _source_size(f: FunctionCodegen, operand: Operand, size: int) -> Lanes:
    """The bytes to read: as the operand says, or all or none by an ``ignore-src`` predicate."""
    if isinstance(operand, Register) and operand.type is ScalarType.PRED:
        ignore = f.read_bits(operand, 1)
        zero, all_of_it = f.b.const("i32", 0), f.b.const("i32", size)
        return map_lanes(f, [ignore], lambda v: f.b.select(v[0], zero, all_of_it))
    return f.read_bits(operand, 32)


def _each(f: FunctionCodegen, sizes: list[Value], step: int, body: Callable[[Value], None]) -> None:
    """``body(at)`` for 0, ``step``, … below each lane's size."""
    b = f.b
    place = b.alloca("i32", align=4)
    b.store(b.const("i32", 0), place, align=4)
    width = f.geometry.width

    def below() -> list[Value]:
        at = b.splat(b.load("i32", place, align=4), width)
        return [b.icmp("ult", at, s) for s in sizes]

    def once() -> None:
        at = b.load("i32", place, align=4)
        body(at)
        b.store(b.add(at, step), place, align=4)

    while_lanes(f, below, once)


# --- in bulk -----------------------------------------------------------------------------------------


def _copy_bulk(f: FunctionCodegen, instruction: Instruction) -> None:
    """To one place, or to the same place in several blocks of the cluster, each with its own barrier."""
    into, out_of, size, *rest = instruction.operands
    target = _place(f, instruction.slots["dst"], into)
    source = _place(f, instruction.slots["src"], out_of)
    bytes_each = f.read_bits(size, 32)
    told = None
    if instruction.slots.get("completion", "").startswith("mbarrier"):
        told = taken(f, instruction, rest)
    place = address_of(f, told) if told is not None else None
    mask = f.read_bits(taken(f, instruction, rest), 16) if instruction.has("multicast") else None
    if instruction.has("cache_hint"):
        taken(f, instruction, rest)
    if len(rest) != _ENDS.get(instruction.slots.get("ignore_oob", ""), 0):
        raise f.unsupported(instruction, f"{spell(instruction)} with {len(instruction.operands)} operands")
    extra = [f.read_bits(o, 32) for o in rest]
    for rank, lanes in blocks_of(f, mask):

        def deliver(rank: Value | None = rank) -> None:
            _copy_chunks(f, instruction, _at_block(f, target, rank), source, bytes_each, extra)
            if told is not None:
                change(f, instruction, told, transactions=bytes_each, completes=True, place=place, rank=rank)

        if lanes is None:
            deliver()
        else:
            if_lanes(f, lanes, deliver)


def _at_block(f: FunctionCodegen, place: _Place, rank: Value | None) -> _Place:
    if rank is None:
        return place
    space, address, offset = place
    return space, map_lanes(f, [address], lambda v: of_block(f, f.b.resize(v[0], "i32"), rank)), offset


def _copy_chunks(
    f: FunctionCodegen,
    instruction: Instruction,
    target: _Place,
    source: _Place,
    size: Lanes,
    extra: list[Lanes],
) -> None:
    """Sixteen bytes a round; byte by byte where a mask or the ends leave some out (PTX ISA 9.7.9.25.4.1)."""
    sizes = f.vectors(size)
    masked = instruction.slots.get("ignore_oob") == "cp_mask"

    def chunk(at: Value) -> None:
        _transfer(f, _moved(f, target, at), _moved(f, source, at), ScalarType.B64, 2)

    def byte(at: Value) -> None:
        _transfer(f, _moved(f, target, at), _moved(f, source, at), ScalarType.B8, 1)

    def chosen(at: Value) -> None:
        b = f.b
        if masked:
            keep = [
                b.icmp("ne", b.and_(b.lshr(m, b.splat(b.and_(at, 15), m.lanes)), 1), 0)
                for m in f.vectors(extra[0])
            ]
        else:
            left, right = (f.vectors(e) for e in extra)
            keep = [
                b.and_(
                    b.icmp("uge", b.splat(at, n.lanes), low),
                    b.icmp("ult", b.splat(at, n.lanes), b.sub(n, high)),
                )
                for n, low, high in zip(sizes, left, right, strict=True)
            ]
        if_lanes(f, keep, lambda: byte(at))

    if "ignore_oob" in instruction.slots:
        _each(f, sizes, 1, chosen)
    else:
        _each(f, sizes, _CHUNK, chunk)


def _reduce_bulk(f: FunctionCodegen, instruction: Instruction) -> None:
    """``cp.reduce.async.bulk``: one atomic operation an element."""
    into, out_of, size, *rest = instruction.operands
    target = _place(f, instruction.slots["dst"], into)
    source = _place(f, instruction.slots["src"], out_of)
    bytes_each = f.read_bits(size, 32)
    type, op = instruction.type, instruction.slots["op"]
    if op == "add" and type is ScalarType.F32:
        op = "add.noftz"  # unlike red's, measured on an H200

    def element(at: Value) -> None:
        (value,) = f.ops.load(f, *_moved(f, source, at), type, 1, volatile=False)
        f.ops.atomic(f, *_moved(f, target, at), op, type, [value], wanted=False)

    _each(f, f.vectors(bytes_each), type.bits // 8, element)
    _complete(f, instruction, rest, bytes_each)


def _complete(f: FunctionCodegen, instruction: Instruction, rest: list[Operand], size: Lanes) -> None:
    """Tell the barrier; a group of bulk copies is told by nobody."""
    if instruction.slots.get("completion", "").startswith("mbarrier"):
        change(f, instruction, rest[0], transactions=size, completes=True)


def _arrive(f: FunctionCodegen, instruction: Instruction) -> None:
    """``cp.async.mbarrier.arrive``: without ``.noinc`` one more arrival is awaited, and has come."""
    if instruction.has("noinc"):
        change(f, instruction, instruction.operands[0], arrivals=uniform(f.b.const("i32", 1)))
