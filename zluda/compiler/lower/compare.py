"""Comparison and selection (PTX ISA 9.7.6, 9.7.7) and ``testp`` (9.7.3.1)."""

from __future__ import annotations

from zluda.compiler.ir import Builder, Value
from zluda.compiler.lower import rounding
from zluda.compiler.lower.formats import ELEMENT_OF_PACKED, load_float
from zluda.compiler.lower.lanewise import Result, as_bits, lanewise, unsupported
from zluda.compiler.lower.packed import join_halves, split_halves
from zluda.ptx.module import Instruction, Pair
from zluda.ptx.types import ScalarType

# PTX ISA 9.3.1: comparison → LLVM's. lo, ls, hi, hs are unsigned whatever the type.
_INTEGER = {"eq": "eq", "ne": "ne", "lo": "ult", "ls": "ule", "hi": "ugt", "hs": "uge"}
_FLOAT = {
    **{name: f"o{name}" for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{f"{name}u": f"u{name}" for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "num": "ord",
    "nan": "uno",
}


def _compare(b: Builder, inst: Instruction, type: ScalarType, x: Value, y: Value) -> Value:
    comparison = inst.slots["cmp"]
    if type.kind == "f":
        xs = [load_float(b, v, type) for v in (x, y)]
        if inst.has("ftz"):
            xs = [_flush(b, v, type) for v in xs]
        return b.fcmp(_FLOAT[comparison], *xs)
    prefix = "s" if type.kind == "s" else "u"
    predicate = _INTEGER.get(comparison) or prefix + comparison
    return b.icmp(predicate, as_bits(b, x, type.bits), as_bits(b, y, type.bits))


def _flush(b: Builder, x: Value, type: ScalarType) -> Value:
    if type is ScalarType.F32:
        return rounding.flush(b, x)
    small = b.fcmp("olt", rounding.magnitude(b, x), 2.0**-14)
    return b.select(small, rounding.signed_zero(b, x), x)


def _combine(b: Builder, inst: Instruction, value: Value, operands: list[Value]) -> Value:
    """``value BoolOp c`` where the instruction has a third, predicate, operand."""
    boolop = inst.slots.get("boolop")
    return value if boolop is None else b.binary(boolop, value, operands[2])


def _both_halves(
    b: Builder, inst: Instruction, type: ScalarType, operands: list[Value]
) -> tuple[Value, Value]:
    (low_x, high_x), (low_y, high_y) = (split_halves(b, v) for v in operands[:2])
    element = ELEMENT_OF_PACKED[type]
    low = _combine(b, inst, _compare(b, inst, element, low_x, low_y), operands)
    return low, _combine(b, inst, _compare(b, inst, element, high_x, high_y), operands)


@lanewise("setp")
def setp(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """``p|q``: ``q`` is the same with the comparison's complement; for packed types the upper half's."""
    paired = isinstance(inst.operands[0], Pair)
    if inst.type in ELEMENT_OF_PACKED:
        both = _both_halves(b, inst, inst.type, operands)
        return both if paired else both[0]
    value = _compare(b, inst, inst.type, operands[0], operands[1])
    result = _combine(b, inst, value, operands)
    return (result, _combine(b, inst, b.not_(value), operands)) if paired else result


_TRUE = {ScalarType.F32: 0x3F800000, ScalarType.F16: 0x3C00, ScalarType.BF16: 0x3F80}


def _truth(b: Builder, condition: Value, type: ScalarType) -> Value:
    """All ones, or 1.0 of a floating type, where the condition holds; else zero."""
    return b.select(condition, b.const(f"i{type.bits}", _TRUE.get(type, -1)), 0)


@lanewise("set")
def set_(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """PTX ISA 9.7.6.1."""
    destination, source = inst.types[0], inst.types[1]
    if source in ELEMENT_OF_PACKED:
        element = ELEMENT_OF_PACKED.get(destination, ScalarType.U16)
        return join_halves(b, *(_truth(b, c, element) for c in _both_halves(b, inst, source, operands)))
    condition = _combine(b, inst, _compare(b, inst, source, operands[0], operands[1]), operands)
    return _truth(b, condition, destination)


@lanewise("selp")
def selp(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """PTX ISA 9.7.6.3: a move of bits, so NaN payloads stay."""
    x, y = (as_bits(b, v, inst.type.bits) for v in operands[:2])
    return b.select(operands[2], x, y)


@lanewise("slct")
def slct(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """``c >= 0 ? a : b``; -0 counts as 0, NaN takes ``b`` (PTX ISA 9.7.6.4)."""
    x, y = (as_bits(b, v, inst.type.bits) for v in operands[:2])
    selector = inst.types[1]
    if selector is ScalarType.F32:
        condition = b.fcmp("oge", load_float(b, operands[2], selector), 0.0)
        if inst.has("ftz"):
            condition = b.fcmp("oge", rounding.flush(b, load_float(b, operands[2], selector)), 0.0)
    else:
        condition = b.icmp("sge", as_bits(b, operands[2], 32), 0)
    return b.select(condition, x, y)


@lanewise("testp")
def testp(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """By the bits' magnitude: zero < subnormal < normal < infinite < NaN. Zero counts as normal."""
    type = inst.type
    mantissa = {32: 23, 64: 52}.get(type.bits)
    if mantissa is None:
        raise unsupported(inst)
    bits = b.and_(as_bits(b, operands[0], type.bits), (1 << (type.bits - 1)) - 1)
    normal, infinite = 1 << mantissa, ((1 << (type.bits - 1 - mantissa)) - 1) << mantissa
    tests = {
        "finite": lambda: b.icmp("ult", bits, infinite),
        "infinite": lambda: b.icmp("eq", bits, infinite),
        "number": lambda: b.icmp("ule", bits, infinite),
        "notanumber": lambda: b.icmp("ugt", bits, infinite),
        "normal": lambda: b.or_(b.icmp("eq", bits, 0), b.icmp("ult", b.sub(bits, normal), infinite - normal)),
        "subnormal": lambda: b.icmp("ult", b.sub(bits, 1), normal - 1),
    }
    return tests[inst.slots["test"]]()
