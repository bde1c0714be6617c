"""The approximate units as PTX has them: with ptxas's scaling around MUFU, out of line, by name.

A function is emitted once a module for each vector length: inlined it would cost 6 to 11 ms of code
generation at every use. What ptxas puts around a unit is the same for sm_75 to sm_120.
"""

from __future__ import annotations

from collections.abc import Callable

from zluda.compiler.ir import Builder, Value
from zluda.compiler.lower.mufu import (
    cos_turns,
    ex2,
    lg2,
    rcp,
    rcp64h,
    rsqrt,
    rsqrt64h,
    sin_turns,
    sqrt,
    tanh,
    with_cases,
)
from zluda.compiler.lower.rounding import narrow

Unit = Callable[[Builder, Value], Value]


def _turns(b: Builder, operand: Value) -> Value:
    """FMUL.RZ by 1/(2 pi), never flushed: what ptxas puts before MUFU.SIN and MUFU.COS."""
    factor = b.cast("fpext", operand, "double")
    return narrow(b, b.fmul(factor, b.cast("fpext", b.const("float", 0x3E22F983), "double")), "float", "rz")


def _is_subnormal(b: Builder, x: Value) -> Value:
    return b.fcmp("olt", b.intrinsic("fabs", x), 2.0**-126)


def _scaled(unit: Unit, after: Unit) -> Unit:
    """``unit`` with subnormal arguments brought up by 2^24, and ``after`` to undo that."""

    def emit(b: Builder, x: Value) -> Value:
        small = _is_subnormal(b, x)
        result = unit(b, b.select(small, b.fmul(x, 2.0**24), x))
        return b.select(small, after(b, result), result)

    return emit


def rcp_full(b: Builder, x: Value) -> Value:
    """``rcp.approx.f32``: arguments near either end of the range scaled, and the result likewise."""
    large = b.fcmp("ogt", b.intrinsic("fabs", x), 2.0**126)
    scale = b.select(
        _is_subnormal(b, x), b.const("float", 2.0**24), b.select(large, b.const("float", 0.25), 1.0)
    )
    return b.fmul(scale, rcp(b, b.fmul(x, scale)))


def ex2_full(b: Builder, x: Value) -> Value:
    """``ex2.approx.f32``: below -126 the square of half the argument's power, which may be subnormal."""
    small = b.fcmp("olt", x, -126.0)
    result = ex2(b, b.select(small, b.fmul(x, 0.5), x))
    return b.select(small, b.fmul(result, result), result)


UNITS: dict[str, Unit] = {
    "rcp.approx.ftz.f32": rcp,
    "rcp.approx.f32": rcp_full,
    "rsqrt.approx.ftz.f32": rsqrt,
    "rsqrt.approx.f32": _scaled(rsqrt, lambda b, r: b.fmul(r, 2.0**12)),
    "sqrt.approx.ftz.f32": sqrt,
    "sqrt.approx.f32": _scaled(sqrt, lambda b, r: b.fmul(r, 2.0**-12)),
    "ex2.approx.ftz.f32": ex2,
    "ex2.approx.f32": ex2_full,
    "lg2.approx.ftz.f32": lg2,
    "lg2.approx.f32": _scaled(lg2, lambda b, r: b.fadd(r, -24.0)),
    "sin.approx.ftz.f32": lambda b, x: sin_turns(b, _turns(b, x)),
    "sin.approx.f32": lambda b, x: sin_turns(b, _turns(b, x)),
    "cos.approx.ftz.f32": lambda b, x: cos_turns(b, _turns(b, x)),
    "cos.approx.f32": lambda b, x: cos_turns(b, _turns(b, x)),
    "tanh.approx.f32": tanh,
    "raw.sin": sin_turns,
    "raw.cos": cos_turns,
}


def call_unit(b: Builder, name: str, x: Value) -> Value:
    """``name`` of :data:`UNITS` on a ``float``, out of line: inlining costs 6 to 11 ms of code generation."""
    function = f"zluda.{name}.v{x.lanes}"
    b.module.function(
        function, [("float", x.lanes)], lambda inner, arguments: UNITS[name](inner, arguments[0])
    )
    return b.call(function, [x], "float", x.lanes)


# --- f64 ---------------------------------------------------------------------------------------------


def _high_word_only(core: Unit) -> Unit:
    """A unit on the high words of f64 bits; the low word is neither read nor written."""

    def emit(b: Builder, x: Value) -> Value:
        return b.shl(b.zext(core(b, b.trunc(b.lshr(x, 32), "i32")), "i64"), 32)

    return emit


def rsqrt_double_by(guess: Unit, b: Builder, x: Value) -> Value:
    """``rsqrt.approx.f64`` on f64 bits from a ``guess`` (of a ``double``) and one Newton step; subnormals
    scaled by 2^54.
    """
    small = b.icmp("ult", b.and_(x, (1 << 63) - 1), 1 << 52)
    value = b.bitcast(x, "double")
    value = b.select(small, b.fmul(value, 2.0**54), value)
    first = guess(b, value)
    error = b.intrinsic("fma", value, b.fneg(b.fmul(first, first)), 1.0)
    correction = b.intrinsic("fma", error, 0.375, 0.5)
    refined = b.intrinsic("fma", correction, b.fmul(first, error), first)
    result = b.bitcast(b.select(small, b.fmul(refined, 2.0**27), refined), "i64")
    sign, size = b.and_(x, 1 << 63), b.and_(x, (1 << 63) - 1)
    infinity = 0x7FF << 52
    cases: list[tuple[Value, Value | int]] = [
        (b.icmp("eq", x, infinity), 0),
        (b.icmp("slt", x, 0), 0xFFF8 << 48),
        (b.icmp("eq", size, 0), b.or_(sign, infinity)),
        (b.icmp("ugt", size, infinity), b.or_(x, 1 << 51)),
    ]
    return with_cases(b, result, cases)


def _rsqrt64h_guess(b: Builder, x: Value) -> Value:
    return b.bitcast(_high_word_only(rsqrt64h)(b, b.bitcast(x, "i64")), "double")


UNITS_F64: dict[str, Unit] = {
    "rcp.approx.ftz.f64": _high_word_only(rcp64h),
    "rsqrt.approx.ftz.f64": _high_word_only(rsqrt64h),
    "rsqrt.approx.f64": lambda b, x: rsqrt_double_by(_rsqrt64h_guess, b, x),
}


def call_unit_f64(b: Builder, name: str, bits: Value) -> Value:
    """``name`` of :data:`UNITS_F64` on f64 bits (``i64``), out of line; NaN has the bits NVIDIA gives it."""
    function = f"zluda.{name}.v{bits.lanes}"
    unit = UNITS_F64[name]
    b.module.function(function, [("i64", bits.lanes)], lambda inner, arguments: unit(inner, arguments[0]))
    return b.call(function, [bits], "i64", bits.lanes)
