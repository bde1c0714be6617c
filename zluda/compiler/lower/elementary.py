"""Elementary functions in double precision as LLVM IR over any number of lanes, to about 2**-50.

Far more than any f32 instruction needs: rounding these once gives the correctly rounded f32 result but for
cases nearer to a tie than that. The envelope of an approximate instruction is drawn around them, and the
emulator of AMD's units rounds them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from zluda.compiler.ir import Builder, Value

_EXP2_TERMS = 14
_SIN_TERMS = 12
_LOG_TERMS = 12
_TANH_TERMS = (1.0, -1 / 3, 2 / 15, -17 / 315, 62 / 2835, -1382 / 155925)
_TANH_SERIES_END = 0.08


def polynomial(b: Builder, x: Value, coefficients: Sequence[float]) -> Value:
    """Horner's scheme with fused steps, in ``x``'s own type, the constant term first in ``coefficients``."""
    result = b.splat(b.const(x.type, coefficients[-1]), x.lanes)
    for c in reversed(coefficients[:-1]):
        result = b.intrinsic("fma", result, x, c)
    return result


def exp2(b: Builder, x: Value) -> Value:
    """2**x for results that fit f32 generously; NaN for NaN."""
    bounded = b.intrinsic("minimumnum", b.intrinsic("maximumnum", x, -400.0), 400.0)
    whole = b.intrinsic("roundeven", bounded)
    series = [math.log(2) ** n / math.factorial(n) for n in range(_EXP2_TERMS)]
    power = polynomial(b, b.fsub(bounded, whole), series)
    exponent = b.cast("fptosi", whole, "i64")
    scaled = b.bitcast(b.add(b.bitcast(power, "i64"), b.shl(exponent, 52)), "double")
    return b.select(b.fcmp("uno", x, x), x, scaled)


def log2(b: Builder, x: Value) -> Value:
    """log2 of a positive finite number: exponent plus 2 atanh((m-1)/(m+1)), m in [sqrt(1/2), sqrt(2))."""
    bits = b.bitcast(x, "i64")
    offset = b.sub(bits, 0x3FE6A09E667F3BCD)  # sqrt(1/2)
    exponent = b.ashr(offset, 52)
    mantissa = b.bitcast(b.sub(bits, b.shl(exponent, 52)), "double")
    s = b.fdiv(b.fsub(mantissa, 1.0), b.fadd(mantissa, 1.0))
    series = [2 / math.log(2) / (2 * n + 1) for n in range(_LOG_TERMS)]
    return b.fadd(b.cast("sitofp", exponent, "double"), b.fmul(s, polynomial(b, b.fmul(s, s), series)))


def log2_of_any(b: Builder, x: Value) -> Value:
    """:func:`log2` with its special values: -infinity at zero, NaN below, infinity at infinity."""
    infinity = float("inf")
    result = b.select(b.fcmp("oeq", x, 0.0), -infinity, log2(b, x))
    result = b.select(b.fcmp("oeq", x, infinity), infinity, result)
    return b.select(b.fcmp("ult", x, 0.0), float("nan"), result)


def _sine(b: Builder, turns: Value) -> Value:
    """sin(2 pi x) for x in [-1/4, 1/4]."""
    square = b.fmul(turns, turns)
    series = [(-1) ** n * (2 * math.pi) ** (2 * n + 1) / math.factorial(2 * n + 1) for n in range(_SIN_TERMS)]
    return b.fmul(turns, polynomial(b, square, series))


def nearest_turn(b: Builder, x: Value) -> Value:
    """``x`` minus its nearest integer, in [-1/2, 1/2]; NaN where ``x`` is not finite."""
    return b.fsub(x, b.intrinsic("roundeven", x))


def sin_turns(b: Builder, x: Value) -> Value:
    """sin(2 pi x)."""
    turn = nearest_turn(b, x)
    size = b.intrinsic("fabs", turn)
    folded = b.intrinsic("copysign", b.fsub(0.5, size), turn)
    return _sine(b, b.select(b.fcmp("ogt", size, 0.25), folded, turn))


def cos_turns(b: Builder, x: Value) -> Value:
    """cos(2 pi x)."""
    return _sine(b, b.fsub(0.25, b.intrinsic("fabs", nearest_turn(b, x))))


def sin(b: Builder, x: Value) -> Value:
    """The sine of radians; a zero keeps its sign."""
    return b.select(b.fcmp("oeq", x, 0.0), x, sin_turns(b, b.fmul(x, 1 / (2 * math.pi))))


def cos(b: Builder, x: Value) -> Value:
    """The cosine of radians."""
    return cos_turns(b, b.fmul(x, 1 / (2 * math.pi)))


def tanh(b: Builder, x: Value) -> Value:
    """1 - 2/(e**2x + 1), and the series near zero, where that cancels."""
    size = b.intrinsic("fabs", x)
    power = exp2(b, b.fmul(size, 2 / math.log(2)))
    large = b.intrinsic("copysign", b.fsub(1.0, b.fdiv(2.0, b.fadd(power, 1.0))), x)
    series = b.fmul(x, polynomial(b, b.fmul(x, x), _TANH_TERMS))
    return b.select(b.fcmp("olt", size, _TANH_SERIES_END), series, large)
