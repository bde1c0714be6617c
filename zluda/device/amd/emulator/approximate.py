"""AMD's approximate units: rcp, rsq, sqrt, exp, log, sin, cos.

AMD publishes their error bounds, not their bits. Here each is computed in double precision, to about 2**-50,
and rounded once: the best result any unit within the bound could give. f32 units flush subnormal inputs and
results to zero, as the manual says of each ("denormals are flushed", RDNA2 ISA 12.9).
"""

from __future__ import annotations

from collections.abc import Callable

from zluda.compiler.ir import FLOAT_OF_BITS, Builder, Value
from zluda.compiler.lower import elementary, rounding
from zluda.device.amd.emulator.values import Typed


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
    "exp2": elementary.exp2,
    "log2": elementary.log2,
    "sin": elementary.sin_turns,
    "cos": elementary.cos_turns,
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
