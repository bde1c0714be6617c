"""NVIDIA's multifunction unit (MUFU) bit for bit, as LLVM IR over any number of lanes.

Each unit is a piecewise quadratic in fixed point (Oberman and Siu, ARITH-17, 2005). The top bits of the
reduced argument pick a row (C0, C1, C2); with the remaining bits ``d`` and a truncated square ``sq(d)``

    v = (C0 << s0) + C1*d + (C2*sq(d) << s2) + bias,    mantissa = v >> t

in exact integers. The algorithm is that of envytools' nvhw/sfu.c (see NOTICE); ``zluda.numerics.mufu`` is the
same in plain numpy, and says more about each unit. What differs here is only the width: since ``t`` is
``s0 + 2`` (or 5), ``v >> t`` is ``(C0 + (rest >> s0)) >> 2``, and ``rest >> s0`` is taken in two steps by
splitting ``d``, so that everything fits 32 bits. Units that normalise their result use f64, where every
step is exact.

A unit takes and returns a ``float`` (the f64 ones a high word). :mod:`units` has them as PTX does.
"""

from __future__ import annotations

from collections.abc import Sequence

from zluda.compiler.ir import Builder, Value
from zluda.numerics import tables
from zluda.records import dataclass

NAN, INFINITY, SIGN, MANTISSA = 0x7FFFFFFF, 0x7F800000, 0x80000000, 0x7FFFFF
SMALLEST_NORMAL = 0x00800000


@dataclass(frozen=True, slots=True)
class Quadratic:
    """One unit's datapath. ``split`` is how many low bits of ``d`` are multiplied apart."""

    name: str
    rows: Sequence[tuple[int, int, int]]
    s0: int
    s2: int
    bias: int
    split: int

    @property
    def signs(self) -> tuple[int, int]:
        """The signs of C1 and C2, the same in every row."""
        return (1 if self.rows[0][1] > 0 else -1), (1 if self.rows[0][2] > 0 else -1)


RCP = Quadratic("rcp", tables.RCP, 13, 0, 0x47E7, 1)
RSQRT = Quadratic("rsqrt", tables.RSQRT, 14, 2, 0x7FFF, 2)
SQRT = Quadratic("sqrt", tables.SQRT, 15, 1, 0xFFFF, 3)
EX2 = Quadratic("ex2", tables.EX2, 13, 0, 0x77E2, 2)
LG2 = Quadratic("lg2", tables.LG2, 12, 1, 0x3345, 0)
SIN = Quadratic("sin", tables.SIN, 11, 0, 0, 0)
TANH = Quadratic("tanh", tables.TANH, 16, 0, 0, 0)


# --- the datapath ------------------------------------------------------------------------------------


def _bits(b: Builder, x: Value) -> Value:
    return b.bitcast(x, "i32")


def _float(b: Builder, bits: Value) -> Value:
    return b.bitcast(bits, "float")


def _column(b: Builder, name: str, values: Sequence[int], index: Value) -> Value:
    table = b.module.table(f"zluda.mufu.{name}", "i32", values)
    return b.gather("i32", b.gep(table, index, "i32"), align=4)


def _coefficients(b: Builder, unit: Quadratic, index: Value) -> tuple[Value, Value, Value]:
    """C0 and the magnitudes of C1 and C2, from two words a row where they fit."""
    c0 = _column(b, f"{unit.name}.c0", [row[0] for row in unit.rows], index)
    if max(abs(row[1]) for row in unit.rows) < 1 << 16:
        packed = _column(b, f"{unit.name}.c12", [abs(r[1]) | abs(r[2]) << 16 for r in unit.rows], index)
        return c0, b.and_(packed, 0xFFFF), b.lshr(packed, 16)
    c1, c2 = (_column(b, f"{unit.name}.c{i}", [abs(row[i]) for row in unit.rows], index) for i in (1, 2))
    return c0, c1, c2


def square(b: Builder, x: Value) -> Value:
    """The truncated squarer: about ``x*x / 2^19`` of 17 bits, partial products below 2^18 dropped."""
    high, low = b.lshr(x, 9), b.and_(x, 511)
    total = b.lshr(b.mul(high, high), 1)
    for bit in range(1, 8):
        chosen = b.icmp("ne", b.and_(x, 512 << bit), 0)
        total = b.add(total, b.select(chosen, b.lshr(low, 9 - bit), 0))
    return total


def _signed(b: Builder, sign: int, total: Value, term: Value) -> Value:
    return b.add(total, term) if sign > 0 else b.sub(total, term)


def _polynomial(b: Builder, unit: Quadratic, index: Value, d: Value, squared: Value, factor: Value) -> Value:
    """``v >> s0`` in 32 bits; ``factor`` is what multiplies C1 (``d``, doubled in half of sqrt's rows)."""
    c0, c1, c2 = _coefficients(b, unit, index)
    sign1, sign2 = unit.signs
    bias = b.const("i32", unit.bias)
    low = _signed(b, sign2, bias, b.shl(b.mul(c2, squared), unit.s2))
    low = _signed(b, sign1, low, b.mul(c1, b.and_(factor, (1 << unit.split) - 1)))
    rest = _signed(b, sign1, b.ashr(low, unit.split), b.mul(c1, b.lshr(factor, unit.split)))
    return b.add(c0, b.ashr(rest, unit.s0 - unit.split))


def _polynomial_double(b: Builder, unit: Quadratic, index: Value, d: Value) -> Value:
    """``v`` as f64, exact."""
    c0, c1, c2 = (b.cast("sitofp", c, "double") for c in _coefficients(b, unit, index))
    sign1, sign2 = unit.signs
    scaled = b.fadd(b.fmul(c0, float(1 << unit.s0)), float(unit.bias))
    linear = b.fmul(b.fmul(c1, float(sign1)), b.cast("sitofp", d, "double"))
    squared = b.cast("sitofp", square(b, d), "double")
    return b.fadd(b.fadd(scaled, linear), b.fmul(b.fmul(c2, float(sign2 << unit.s2)), squared))


def _normalise(b: Builder, v: Value, scale: int) -> Value:
    """A non-negative integral f64 in units of ``2^-scale`` as float bits, truncated to 24 bits."""
    top = b.trunc(b.lshr(b.bitcast(v, "i64"), 29), "i32")
    return b.select(b.fcmp("oeq", v, 0.0), 0, b.sub(top, (1023 - 127 + scale) << 23))


def _exponent(b: Builder, x: Value) -> Value:
    return b.and_(b.lshr(x, 23), 255)


def with_cases(b: Builder, result: Value, cases: Sequence[tuple[Value, Value | int]]) -> Value:
    """``result`` with the special cases put over it, later ones winning."""
    for condition, value in cases:
        result = b.select(condition, value, result)
    return result


def _is_nan(b: Builder, x: Value) -> Value:
    return b.icmp("ugt", b.and_(x, NAN), INFINITY)


# --- the units ---------------------------------------------------------------------------------------


def rcp(b: Builder, operand: Value) -> Value:
    """MUFU.RCP; subnormals count as zero, small results are zero."""
    x = _bits(b, operand)
    sign, exponent, size = b.and_(x, SIGN), _exponent(b, x), b.and_(x, NAN)
    mantissa = b.lshr(_rcp_core(b, b.and_(x, MANTISSA)), 2)  # 2^23 … 2^24, both ends included
    result = b.add(b.shl(b.sub(252, exponent), 23), mantissa)
    cases: list[tuple[Value, Value | int]] = [
        (b.icmp("slt", result, SMALLEST_NORMAL), 0),
        (b.icmp("eq", exponent, 0), INFINITY),
        (b.icmp("eq", size, INFINITY), 0),
    ]
    result = b.or_(with_cases(b, result, cases), sign)
    return _float(b, b.select(b.icmp("ugt", size, INFINITY), NAN, result))


def _rcp_core(b: Builder, fraction: Value) -> Value:
    d = b.and_(fraction, 0xFFFF)
    return _polynomial(b, RCP, b.lshr(fraction, 16), d, square(b, b.shl(d, 1)), d)


def _root_argument(b: Builder, x: Value) -> tuple[Value, Value]:
    """The unbiased exponent, and the mantissa with the exponent's parity above it."""
    q = b.sub(_exponent(b, x), 127)
    return q, b.or_(b.and_(x, MANTISSA), b.shl(b.and_(q, 1), 23))


def _rsqrt_core(b: Builder, argument: Value) -> Value:
    d = b.and_(argument, 0x1FFFF)
    return _polynomial(b, RSQRT, b.lshr(argument, 17), d, square(b, d), d)


def rsqrt(b: Builder, operand: Value) -> Value:
    """MUFU.RSQ; even powers of two are exact."""
    x = _bits(b, operand)
    q, argument = _root_argument(b, x)
    half = b.ashr(q, 1)
    result = b.add(b.shl(b.sub(125, half), 23), b.lshr(_rsqrt_core(b, argument), 2))
    cases: list[tuple[Value, Value | int]] = [
        (b.icmp("eq", argument, 0), b.shl(b.sub(127, half), 23)),
        (b.icmp("eq", x, INFINITY), 0),
        (b.icmp("slt", x, 0), NAN),
        (b.icmp("eq", _exponent(b, x), 0), b.or_(b.and_(x, SIGN), INFINITY)),
        (_is_nan(b, x), NAN),
    ]
    return _float(b, with_cases(b, result, cases))


def sqrt(b: Builder, operand: Value) -> Value:
    """MUFU.SQRT."""
    x = _bits(b, operand)
    q, argument = _root_argument(b, x)
    d = b.and_(argument, 0x1FFFF)
    factor = b.shl(d, b.lshr(argument, 23))
    value = _polynomial(b, SQRT, b.lshr(argument, 17), d, square(b, d), factor)
    mantissa = b.and_(b.lshr(value, 2), MANTISSA)
    result = b.or_(b.shl(b.add(b.ashr(q, 1), 127), 23), mantissa)
    cases: list[tuple[Value, Value | int]] = [
        (b.icmp("eq", x, INFINITY), INFINITY),
        (b.icmp("slt", x, 0), NAN),
        (b.icmp("eq", _exponent(b, x), 0), b.and_(x, SIGN)),
        (_is_nan(b, x), NAN),
    ]
    return _float(b, with_cases(b, result, cases))


def ex2(b: Builder, operand: Value) -> Value:
    """MUFU.EX2; the fraction of a negative argument is a one's complement; no subnormal results."""
    x = _bits(b, operand)
    size, negative = b.intrinsic("fabs", operand), b.icmp("slt", x, 0)
    inside = b.fcmp("olt", size, 128.0)
    fixed = b.cast("fptosi", b.fmul(b.select(inside, size, 0.0), 2.0**23), "i32")
    inexact = b.zext(b.icmp("ne", b.and_(fixed, MANTISSA), 0), "i32")
    fixed = b.select(negative, b.sub(b.neg(fixed), inexact), fixed)
    integral, fraction = b.ashr(fixed, 23), b.and_(fixed, MANTISSA)
    d = b.and_(fraction, 0x1FFFF)
    value = _polynomial(b, EX2, b.lshr(fraction, 17), d, square(b, d), d)
    result = b.or_(b.shl(b.add(integral, 127), 23), b.and_(b.lshr(value, 2), MANTISSA))
    outside = b.or_(b.icmp("uge", b.add(integral, 126), 254), b.not_(inside))
    result = b.select(outside, b.select(negative, b.const("i32", 0), INFINITY), result)
    return _float(b, b.select(_is_nan(b, x), NAN, result))


def lg2(b: Builder, operand: Value) -> Value:
    """MUFU.LG2; negative results are a one's complement."""
    x = _bits(b, operand)
    fraction = b.and_(x, MANTISSA)
    value = _polynomial_double(b, LG2, b.lshr(fraction, 17), b.and_(fraction, 0x1FFFF))
    exponent = b.cast("sitofp", b.sub(_exponent(b, x), 127), "double")
    total = b.fadd(b.intrinsic("floor", b.fmul(value, 0.25)), b.fmul(exponent, 2.0**36))
    negative = b.fcmp("olt", total, 0.0)
    size = b.select(negative, b.fsub(-1.0, total), total)
    result = b.or_(_normalise(b, size, 36), b.select(negative, b.const("i32", SIGN), 0))
    cases: list[tuple[Value, Value | int]] = [
        (b.icmp("eq", x, 0x3F800000), 0),
        (b.icmp("eq", x, INFINITY), INFINITY),
        (b.icmp("slt", x, 0), NAN),
        (b.icmp("eq", _exponent(b, x), 0), 0xFF800000),
        (_is_nan(b, x), NAN),
    ]
    return _float(b, with_cases(b, result, cases))


def _turn_fraction(b: Builder, x: Value) -> Value:
    """``trunc(|y| * 2^25) mod 2^25``."""
    mantissa = b.or_(b.and_(x, MANTISSA), SMALLEST_NORMAL)
    shift = b.sub(_exponent(b, x), 125)
    left = b.shl(mantissa, b.intrinsic("smin", b.intrinsic("smax", shift, 0), 25))
    right = b.lshr(mantissa, b.intrinsic("smin", b.intrinsic("smax", b.neg(shift), 0), 24))
    return b.and_(b.select(b.icmp("sge", shift, 0), left, right), 0x1FFFFFF)


def _sine(b: Builder, operand: Value, *, cosine: bool) -> Value:
    x = _bits(b, operand)
    fixed = _turn_fraction(b, x)
    quadrant, fraction = b.lshr(fixed, 23), b.and_(fixed, MANTISSA)
    sign = b.and_(x, SIGN)
    if cosine:
        quadrant, sign = b.add(quadrant, 1), b.const("i32", 0)
    odd = b.icmp("ne", b.and_(quadrant, 1), 0)
    fraction = b.select(odd, b.xor(fraction, MANTISSA), fraction)
    sign = b.xor(b.and_(b.shl(quadrant, 30), SIGN), sign)
    value = _polynomial_double(b, SIN, b.lshr(fraction, 17), b.and_(fraction, 0x1FFFF))
    value = b.select(b.fcmp("ogt", value, 0.0), value, 0.0)
    result = b.or_(_normalise(b, value, 37), sign)
    return _float(b, b.select(b.icmp("eq", _exponent(b, x), 255), NAN, result))


def sin_turns(b: Builder, operand: Value) -> Value:
    """MUFU.SIN: the argument in turns."""
    return _sine(b, operand, cosine=False)


def cos_turns(b: Builder, operand: Value) -> Value:
    """MUFU.COS: the argument in turns."""
    return _sine(b, operand, cosine=True)


def tanh(b: Builder, operand: Value) -> Value:
    """MUFU.TANH: itself below 2^-8, 1 from 8 on."""
    x = _bits(b, operand)
    exponent, fraction, sign = _exponent(b, x), b.and_(x, MANTISSA), b.and_(x, SIGN)
    binade = b.intrinsic("smin", b.intrinsic("smax", b.sub(exponent, 119), 0), 10)
    segment = _column(b, "tanh.segments", [first | log << 8 for first, log in tables.TANH_SEGMENTS], binade)
    log = b.lshr(segment, 8)
    row = b.add(b.and_(segment, 255), b.lshr(fraction, b.sub(23, log)))
    d = b.and_(b.lshr(fraction, b.sub(6, log)), 0x1FFFF)
    value = _polynomial_double(b, TANH, row, d)
    cases: list[tuple[Value, Value | int]] = [
        (b.icmp("ult", exponent, 119), x),
        (b.icmp("uge", exponent, 130), b.or_(sign, 0x3F800000)),
        (_is_nan(b, x), NAN),
    ]
    return _float(b, with_cases(b, b.or_(_normalise(b, value, 42), sign), cases))


# --- f64 ---------------------------------------------------------------------------------------------

_F64_INFINITY, _F64_MANTISSA = 0x7FF00000, 0xFFFFF


def rcp64h(b: Builder, x: Value) -> Value:
    """MUFU.RCP64H: high word in, high word out."""
    sign, exponent = b.and_(x, SIGN), b.and_(b.lshr(x, 20), 2047)
    size = b.and_(x, NAN)
    mantissa = b.lshr(_rcp_core(b, b.shl(b.and_(x, _F64_MANTISSA), 3)), 5)
    result = b.add(b.shl(b.sub(2044, exponent), 20), mantissa)
    cases: list[tuple[Value, Value | int]] = [
        (b.icmp("slt", result, 1 << 20), 0),
        (b.icmp("eq", exponent, 0), _F64_INFINITY),
        (b.icmp("eq", size, _F64_INFINITY), 0),
    ]
    result = b.or_(with_cases(b, result, cases), sign)
    return b.select(b.icmp("ugt", size, _F64_INFINITY), NAN, result)


def rsqrt64h(b: Builder, x: Value) -> Value:
    """MUFU.RSQ64H: high word in, high word out."""
    exponent = b.and_(b.lshr(x, 20), 2047)
    q = b.sub(exponent, 1023)
    half = b.ashr(q, 1)
    argument = b.or_(b.shl(b.and_(x, _F64_MANTISSA), 3), b.shl(b.and_(q, 1), 23))
    result = b.add(b.shl(b.sub(1021, half), 20), b.lshr(_rsqrt_core(b, argument), 5))
    cases: list[tuple[Value, Value | int]] = [
        (b.icmp("eq", argument, 0), b.shl(b.sub(1023, half), 20)),
        (b.icmp("eq", x, _F64_INFINITY), 0),
        (b.icmp("slt", x, 0), NAN),
        (b.icmp("eq", exponent, 0), b.or_(b.and_(x, SIGN), _F64_INFINITY)),
        (b.icmp("ugt", b.and_(x, NAN), _F64_INFINITY), NAN),
    ]
    return with_cases(b, result, cases)
