"""AMD's approximate units: rcp, rsq, sqrt, exp, log, sin, cos.

AMD publishes their error bounds, not their bits. Here each is computed in double precision, to about 2**-50,
and rounded once: the best result any unit within the bound could give. f32 units flush subnormal inputs and
results to zero, as the manual says of each ("denormals are flushed", RDNA2 ISA 12.9).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from zluda.compiler.ir import FLOAT_OF_BITS, Builder, Value
from zluda.compiler.lower import rounding
from zluda.device.amd.emulator.values import Typed

_EXP2_TERMS = 14
_SIN_TERMS = 12
_LOG_TERMS = 12


def _polynomial(b: Builder, x: Value, coefficients: list[float]) -> Value:
    """Horner's scheme, the constant term first in ``coefficients``."""
    result = b.splat(b.const("double", coefficients[-1]), x.lanes)
    for c in reversed(coefficients[:-1]):
        result = b.intrinsic("fma", result, x, c)
    return result


def _exp2(b: Builder, x: Value) -> Value:
    """2**x for results that fit f32 generously."""
    x = b.intrinsic("minimumnum", b.intrinsic("maximumnum", x, -400.0), 400.0)
    whole = b.intrinsic("roundeven", x)
    series = [math.log(2) ** n / math.factorial(n) for n in range(_EXP2_TERMS)]
    power = _polynomial(b, b.fsub(x, whole), series)
    exponent = b.cast("fptosi", whole, "i64")
    return b.bitcast(b.add(b.bitcast(power, "i64"), b.shl(exponent, 52)), "double")


def _log2(b: Builder, x: Value) -> Value:
    """log2 of a positive finite number: exponent plus 2 atanh((m-1)/(m+1)), m in [sqrt(1/2), sqrt(2))."""
    bits = b.bitcast(x, "i64")
    offset = b.sub(bits, 0x3FE6A09E667F3BCD)  # sqrt(1/2)
    exponent = b.ashr(offset, 52)
    mantissa = b.bitcast(b.sub(bits, b.shl(exponent, 52)), "double")
    s = b.fdiv(b.fsub(mantissa, 1.0), b.fadd(mantissa, 1.0))
    series = [2 / math.log(2) / (2 * n + 1) for n in range(_LOG_TERMS)]
    return b.fadd(b.cast("sitofp", exponent, "double"), b.fmul(s, _polynomial(b, b.fmul(s, s), series)))


def _sine(b: Builder, turns: Value) -> Value:
    """sin(2 pi x) for x in [-1/4, 1/4]."""
    square = b.fmul(turns, turns)
    series = [(-1) ** n * (2 * math.pi) ** (2 * n + 1) / math.factorial(2 * n + 1) for n in range(_SIN_TERMS)]
    return b.fmul(turns, _polynomial(b, square, series))


def _nearest_turn(b: Builder, x: Value) -> Value:
    """``x`` minus its nearest integer, in [-1/2, 1/2]."""
    return b.fsub(x, b.intrinsic("roundeven", x))


def _sin(b: Builder, x: Value) -> Value:
    turn = _nearest_turn(b, x)
    size = b.intrinsic("fabs", turn)
    folded = b.intrinsic("copysign", b.fsub(0.5, size), turn)
    return _sine(b, b.select(b.fcmp("ogt", size, 0.25), folded, turn))


def _cos(b: Builder, x: Value) -> Value:
    return _sine(b, b.fsub(0.25, b.intrinsic("fabs", _nearest_turn(b, x))))


def _rcp(b: Builder, x: Value) -> Value:
    return b.fdiv(1.0, x)


def _sqrt(b: Builder, x: Value) -> Value:
    return b.intrinsic("sqrt", x)


def _rsq(b: Builder, x: Value) -> Value:
    return b.fdiv(1.0, _sqrt(b, x))


_UNITS: dict[str, Callable[[Builder, Value], Value]] = {
    "rcp": _rcp,
    "sqrt": _sqrt,
    "rsq": _rsq,
    "exp2": _exp2,
    "log2": _log2,
    "sin": _sin,
    "cos": _cos,
}


def _narrow(b: Builder, x: Value, element: str) -> Value:
    """A double rounded once to the unit's own type."""
    if element == "half":
        return b.cast("fptrunc", rounding.narrow_odd(b, x), element)
    return b.cast("fptrunc", x, element) if element != "double" else x


def _emit(unit: str, element: str, b: Builder, x: Value) -> Value:
    if element == "double":
        return _UNITS[unit](b, x)
    if element == "float":
        x = rounding.flush(b, x)
    result = _narrow(b, _UNITS[unit](b, b.cast("fpext", x, "double")), element)
    if unit == "log2":
        result = _log_specials(b, x, result)
    if unit == "exp2":
        result = b.select(b.fcmp("uno", x, x), x, result)
    if unit in ("sin", "cos"):
        finite = rounding.is_finite(b, x)
        nan = b.const(element, {"half": 0xFE00, "float": 0xFFC00000}[element])
        result = b.select(finite, result, nan)
    return rounding.flush(b, result) if element == "float" else result


def _log_specials(b: Builder, x: Value, result: Value) -> Value:
    """log2 of zero, infinity, negative numbers and NaN."""
    infinity = float("inf")
    nan = b.const(x.type, {"half": 0xFE00, "float": 0xFFC00000}[x.type])
    result = b.select(b.fcmp("oeq", x, 0.0), b.const(x.type, -infinity), result)
    result = b.select(b.fcmp("oeq", x, infinity), x, result)
    result = b.select(b.fcmp("olt", x, 0.0), nan, result)
    return b.select(b.fcmp("uno", x, x), x, result)


def _function(unit: str) -> Callable[[Typed], Typed]:
    """The unit as a function of a table row: one out-of-line function a type."""

    def apply(x: Typed) -> Typed:
        b = x.context.builder
        element, lanes = FLOAT_OF_BITS[x.width], x.value.lanes
        name = b.module.function(
            f"amd.{unit}.{element}.{lanes}",
            [(element, lanes)],
            lambda inner, arguments: _emit(unit, element, inner, arguments[0]),
            attributes="noinline nounwind #0",
        )
        return x.like(b.call(name, [x.value], element, lanes))

    return apply


UNITS: dict[str, Callable[[Typed], Typed]] = {unit: _function(unit) for unit in _UNITS}
"""The units by the names that table rows use."""
