"""What a read-modify-write computes, on any target: operations, floating-point results, swap loops."""

from __future__ import annotations

from zluda.compiler.ir import FLOAT_BITS, Builder, Value
from zluda.compiler.lower.lanewise import LANEWISE, as_bits, as_float, canonical_nan
from zluda.errors import UnsupportedError
from zluda.ptx.module import Instruction, Location
from zluda.ptx.types import ScalarType

_READ_MODIFY_WRITE = {
    "add": "add",
    "and": "and",
    "or": "or",
    "xor": "xor",
    "exch": "xchg",
    "inc": "uinc_wrap",
    "dec": "udec_wrap",
}
_MIN_MAX = {("min", "s"): "min", ("max", "s"): "max", ("min", "u"): "umin", ("max", "u"): "umax"}


def instruction_name(op: str, type: ScalarType) -> str:
    """LLVM's ``atomicrmw`` operation."""
    found = _READ_MODIFY_WRITE.get(op) or _MIN_MAX.get((op, type.kind))
    if found is None:
        raise UnsupportedError(f"atom.{op}.{type.spelling}")
    return found


def is_computed(op: str, type: ScalarType) -> bool:
    """Whether no machine instruction does it: the new value is computed, and swapped in."""
    return op == "mbarrier" or (type.kind == "f" and op != "exch")


def new_value(b: Builder, op: str, type: ScalarType, old: Value, value: Value, *, cached: bool) -> Value:
    """What is to stand in memory instead of ``old``; ``cached``: it is the L2 cache that computes."""
    return (
        _phase(b, old, value) if op == "mbarrier" else _float_result(b, op, type, old, value, cached=cached)
    )


def _phase(b: Builder, old: Value, change: Value) -> Value:
    """An ``mbarrier`` object after arrivals and transactions; the fields are ``lower/mbarrier.py``'s."""
    count, tx = (1 << 20) - 1, (1 << 22) - 1

    def fields(word: Value) -> tuple[Value, Value, Value]:
        return b.and_(word, count), b.and_(b.lshr(word, 20), count), b.and_(b.lshr(word, 40), tx)

    (pending, expected, bytes_left), (arrivals, drops, more) = fields(old), fields(change)
    pending = b.and_(b.sub(pending, arrivals), count)
    expected = b.and_(b.sub(expected, drops), count)
    bytes_left = b.and_(b.add(bytes_left, more), tx)
    phase = b.and_(old, 1 << 63)
    over = b.icmp("eq", b.or_(pending, bytes_left), 0)
    going_on = b.or_(b.or_(phase, b.shl(bytes_left, 40)), b.or_(b.shl(expected, 20), pending))
    next_phase = b.or_(b.xor(phase, 1 << 63), b.or_(b.shl(expected, 20), expected))
    return b.select(over, next_phase, going_on)


def _float_result(b: Builder, op: str, type: ScalarType, old: Value, value: Value, *, cached: bool) -> Value:
    """The new bits of a floating-point atomic.

    Measured on an H200: in shared memory (not ``cached``) it is the plain instruction with the memory's
    value as second operand. The L2 cache's own adder, which serves global memory, flushes subnormals of f32
    and passes an f64 NaN on as it is, the operand's before the memory's.
    """
    if op == "exch":
        return value
    if op == "add.noftz":  # what a bulk reduction of f32 asks of the cache
        op, cached = "add", False
    if op not in ("add", "min", "max") or (op != "add" and type.bits != 16 and "x2" not in type.spelling):
        raise UnsupportedError(f"atom.{op}.{type.spelling}")
    slots = {"rnd": "rn"} if op == "add" else {}
    if cached and type is ScalarType.F32:
        slots["ftz"] = "ftz"
    instruction = Instruction(op, slots, (type,), (), None, Location(0, 0), 0, destinations=1)
    result = LANEWISE[op](b, instruction, [value, old])
    assert isinstance(result, Value)
    bits = canonical_nan(b, result) if result.type in FLOAT_BITS else as_bits(b, result, type.bits)
    if cached and type is ScalarType.F64:
        for operand in (old, value):
            real = as_float(b, operand, type)
            bits = b.select(b.fcmp("uno", real, real), as_bits(b, operand, 64), bits)
    return bits


def swap_loop(
    b: Builder, pointer: Value, value: Value, op: str, type: ScalarType, order: str, *, cached: bool = True
) -> Value:
    """Compare-and-swap until nobody interfered; ``order`` is LLVM's scope and ordering, of exchanges too."""
    element, align = value.type, type.bits // 8
    if op == "exch":
        return b.define(element, 1, f"atomicrmw xchg {pointer.typed}, {value.typed} {order}")
    seen = b.alloca(element, align=align)
    b.store(b.load(element, pointer, align=align), seen, align=align)
    again, done = b.fresh("swap"), b.fresh("swapped")
    b.branch(again)
    b.label(again)
    expected = b.load(element, seen, align=align)
    new = new_value(b, op, type, expected, value, cached=cached)
    pair = b.define(
        "pair", 1, f"cmpxchg {pointer.typed}, {expected.typed}, {new.typed} {order} {failure(order)}"
    )
    found = b.define(element, 1, f"extractvalue {{ {element}, i1 }} {pair.ref}, 0")
    success = b.define("i1", 1, f"extractvalue {{ {element}, i1 }} {pair.ref}, 1")
    b.store(found, seen, align=align)
    b.cond_branch(success, done, again)
    b.label(done)
    return expected


def failure(order: str) -> str:
    """The ordering of a ``cmpxchg`` that fails: a load's."""
    return {"release": "monotonic", "acq_rel": "acquire"}.get(order.split()[-1], order.split()[-1])
