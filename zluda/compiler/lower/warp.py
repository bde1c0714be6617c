"""Instructions across the lanes of a warp (PTX ISA 9.7.9.6, 9.7.13.8 to .12)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from zluda.compiler.ir import Builder, Value
from zluda.compiler.lanes import uniform
from zluda.compiler.lower.memory import map_lanes
from zluda.compiler.lower.table import lowers
from zluda.compiler.target import Lanes
from zluda.ptx.module import Instruction, Operand, Pair
from zluda.ptx.types import ScalarType

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen


# The source lane before clamping, from (lane, b, lowest lane of the segment); and whether it is in range,
# from (source, limit) (PTX ISA 9.7.9.6).
_SOURCE: dict[str, Callable[[Builder, Value, Value, Value, Value], Value]] = {
    "up": lambda b, lane, by, low, segment: b.sub(lane, by),
    "down": lambda b, lane, by, low, segment: b.add(lane, by),
    "bfly": lambda b, lane, by, low, segment: b.xor(lane, by),
    "idx": lambda b, lane, by, low, segment: b.or_(low, b.and_(by, b.not_(segment))),
}


def source_lane(b: Builder, mode: str, own: Value, by: Value, clamp: Value) -> tuple[Value, Value]:
    """The lane that lane ``own`` reads from in a shuffle, and whether it was in range (``i1``)."""
    by, limit, segment = b.and_(by, 31), b.and_(clamp, 31), b.and_(b.lshr(clamp, 8), 31)
    low = b.and_(own, segment)
    highest = b.or_(low, b.and_(limit, b.not_(segment)))
    source = _SOURCE[mode](b, own, by, low, segment)
    in_range = b.icmp("sge" if mode == "up" else "sle", source, highest)
    return b.and_(b.select(in_range, source, own), 31), in_range


def _write_pair(f: FunctionCodegen, destination: Operand, value: Lanes, predicate: Lanes) -> None:
    if isinstance(destination, Pair):
        f.write(destination.first, value)
        f.write(destination.second, predicate)
    else:
        f.write(destination, value)


@lowers("shfl")
def shuffle(f: FunctionCodegen, instruction: Instruction) -> None:
    """``shfl`` and ``shfl.sync``. The member mask orders lanes that run in step here anyway."""
    destination, value, lane, clamp = instruction.operands[:4]
    result, in_range = f.ops.shuffle(
        f, instruction.slots["mode"], f.read_bits(value, 32), f.read_bits(lane, 32), f.read_bits(clamp, 32)
    )
    _write_pair(f, destination, result, in_range)


def _members(f: FunctionCodegen, instruction: Instruction, index: int) -> Lanes | None:
    return f.read_bits(instruction.operands[index], 32) if instruction.has("sync") else None


@lowers("vote")
def vote(f: FunctionCodegen, instruction: Instruction) -> None:
    """``vote`` over the active lanes among the members."""
    destination, source = instruction.operands[:2]
    op = instruction.slots["op"]
    members = _members(f, instruction, 2)
    yes = f.ops.ballot(f, f.read_bits(source, 1), members)
    active = f.ops.ballot(f, uniform(f.b.const("i1", 1)), members)
    b = f.b

    def decide(values: list[Value]) -> Value:
        ayes, voters = values
        results: dict[str, Callable[[], Value]] = {
            "ballot": lambda: ayes,
            "all": lambda: b.icmp("eq", ayes, voters),
            "any": lambda: b.icmp("ne", ayes, 0),
            "uni": lambda: b.or_(b.icmp("eq", ayes, voters), b.icmp("eq", ayes, 0)),
        }
        return results[op]()

    f.write(destination, map_lanes(f, [yes, active], decide))


@lowers("activemask")
def active_mask(f: FunctionCodegen, instruction: Instruction) -> None:
    """The lanes that execute this instruction."""
    f.write(instruction.operands[0], f.ops.ballot(f, uniform(f.b.const("i1", 1)), None))


@lowers("match")
def match(f: FunctionCodegen, instruction: Instruction) -> None:
    """``match.any`` and ``match.all``: who holds the same value."""
    destination, value, members = instruction.operands
    bits = instruction.type.bits
    result, same = f.ops.match(f, instruction.slots["op"], f.read_bits(value, bits), f.read_bits(members, 32))
    _write_pair(f, destination, result, same)


@lowers("redux")
def redux(f: FunctionCodegen, instruction: Instruction) -> None:
    """``redux.sync`` on 32-bit integers and f32."""
    destination, value, members = instruction.operands
    if instruction.type is ScalarType.F32:
        _redux_float(f, instruction)
        return
    if instruction.type.bits != 32:
        raise f.unsupported(instruction)
    result = f.ops.reduce(
        f, instruction.slots["op"], instruction.type, f.read_bits(value, 32), f.read_bits(members, 32)
    )
    f.write(destination, result)


_NAN_BITS, _INFINITY = 0x7FFFFFFF, 0x7F800000


def _redux_float(f: FunctionCodegen, instruction: Instruction) -> None:
    """``redux.sync.min/max{.abs}{.NaN}.f32`` (PTX ISA 9.7.13.5), as integers in the order of the floats.

    NaN is the integer at the one end or the other: it wins with ``.NaN``, else it loses to everything. So the
    result is NaN where all members are, or one is.
    """
    destination, value, members = instruction.operands
    b, op = f.b, instruction.slots["op"]
    highest = (op == "max") == instruction.has("NaN")
    nan = _NAN_BITS if highest else -0x80000000

    def key(values: list[Value]) -> Value:
        bits = b.and_(values[0], _NAN_BITS) if instruction.has("abs") else values[0]
        ordered = b.xor(bits, b.and_(b.ashr(bits, 31), _NAN_BITS))
        is_nan = b.icmp("ugt", b.and_(bits, _NAN_BITS), _INFINITY)
        return b.select(is_nan, nan, ordered)

    def back(values: list[Value]) -> Value:
        bits = b.xor(values[0], b.and_(b.ashr(values[0], 31), _NAN_BITS))
        return b.select(b.icmp("eq", values[0], nan), _NAN_BITS, bits)

    keys = map_lanes(f, [f.read_bits(value, 32)], key)
    found = f.ops.reduce(f, op, ScalarType.S32, keys, f.read_bits(members, 32))
    f.write(destination, map_lanes(f, [found], back))


@lowers("elect")
def elect(f: FunctionCodegen, instruction: Instruction) -> None:
    """``elect.sync``: the lowest active member leads."""
    destination, members = instruction.operands
    b = f.b
    active = f.ops.ballot(f, uniform(b.const("i1", 1)), f.read_bits(members, 32))
    leader = map_lanes(f, [active], lambda v: b.intrinsic("cttz", v[0], False))
    lane = f.ops.special(f, "%laneid")
    chosen = map_lanes(f, [lane, leader], lambda v: b.icmp("eq", v[0], v[1]))
    _write_pair(f, destination, leader, chosen)
