"""Approximate instructions as NVIDIA's GPUs compute them, to the bit: the units, and what ptxas puts around
them for instructions that have no unit of their own.

The default of :func:`zluda.compiler.lower.approximate.approximate`.
"""

from __future__ import annotations

from collections.abc import Callable

from zluda.compiler.ir import Builder, Value
from zluda.compiler.lower import floating, rounding
from zluda.compiler.lower.units import UNITS, UNITS_F64, call_unit, call_unit_f64

Emit = Callable[[Builder, list[Value]], Value]


def _single(name: str) -> Emit:
    return lambda b, xs: call_unit(b, name, xs[0])


def _double(name: str) -> Emit:
    return lambda b, xs: call_unit_f64(b, name, xs[0])


def _half(unit: str) -> Emit:
    """f16: the f32 unit, its result truncated toward zero."""
    return lambda b, xs: rounding.truncate_to_half(b, call_unit(b, unit, xs[0]))


def _bfloat(unit: str) -> Emit:
    """bf16: likewise."""
    return lambda b, xs: rounding.to_bfloat(b, call_unit(b, unit, xs[0]), "rz")


def _multiply(b: Builder, x: Value, y: Value, *, ftz: bool) -> Value:
    return floating.single(b, "mul", "rn", [x, y], ftz=ftz)


def _scale_both(b: Builder, condition: Value, xs: list[Value], factor: float, *, ftz: bool) -> list[Value]:
    scale = b.const("float", factor)
    return [b.select(condition, _multiply(b, x, scale, ftz=ftz), x) for x in xs]


def _divide(*, full: bool, ftz: bool) -> Emit:
    """By reciprocal, with operands scaled as ptxas does."""

    def emit(b: Builder, xs: list[Value]) -> Value:
        size = rounding.magnitude(b, xs[1])
        large, small = b.fcmp("ogt", size, 2.0**126), b.fcmp("olt", size, 2.0**-126)
        if full:
            finite = b.and_(large, b.fcmp("ole", size, float("inf")))
            xs = _scale_both(b, finite, xs, 0.25, ftz=ftz)
        if not ftz:
            xs = _scale_both(b, small, xs, 2.0**24, ftz=False)
        return _multiply(b, call_unit(b, "rcp.approx.ftz.f32", xs[1]), xs[0], ftz=ftz)

    return emit


NVIDIA: dict[str, Emit] = {
    **{name: _single(name) for name in UNITS if not name.startswith("raw.")},
    **{name: _double(name) for name in UNITS_F64},
    "ex2.approx.f16": _half("ex2.approx.ftz.f32"),
    "ex2.approx.ftz.bf16": _bfloat("ex2.approx.ftz.f32"),
    "tanh.approx.f16": _half("tanh.approx.f32"),
    "tanh.approx.bf16": _bfloat("tanh.approx.f32"),
    "div.approx.ftz.f32": _divide(full=False, ftz=True),
    "div.approx.f32": _divide(full=False, ftz=False),
    "div.full.ftz.f32": _divide(full=True, ftz=True),
    "div.full.f32": _divide(full=True, ftz=False),
}
"""By the names of :data:`zluda.numerics.bounds.BOUNDS`."""


def compute(b: Builder, name: str, xs: list[Value]) -> Value:
    """See :data:`zluda.compiler.ir.Approximate`."""
    return NVIDIA[name](b, xs)
