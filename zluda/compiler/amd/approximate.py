"""Approximate instructions by AMD's own (``--numerics native``): one row for each.

Bounds of AMD's instructions are those of its manuals (RDNA3.5 ISA 16.8, VOP1: "1ULP accuracy, denormals are
flushed" for V_RCP_F32, V_RSQ_F32, V_SQRT_F32, V_EXP_F32 and V_LOG_F32; 2^29 ULP for the f64 ones; at most
1 ULP for V_EXP_F16). For V_SIN_F32 and V_COS_F32 the manuals state none.

The f32 instructions flush subnormal arguments and results whatever MODE says, which is what ``.ftz`` asks
for; the other forms scale around them. A product with a 1 ULP reciprocal may be off by 2.5 ULP where PTX
promises 2, so a quotient is corrected once. ``div.full`` is for all operands and is the IEEE quotient.
"""

from __future__ import annotations

from zluda.compiler.ir import Builder, Value
from zluda.compiler.lower import rounding
from zluda.compiler.lower.native import (
    Emit,
    Row,
    Unit,
    as_bfloat,
    as_half,
    computed_by,
    high_word,
    is_subnormal,
    refined_rsqrt,
    scaled,
    split_turn,
    tanh_by,
    unary,
)

TURN_HIGH, TURN_LOW = split_turn()
_TURNS_HANDLED = 256.0
"""V_SIN_F32 and V_COS_F32 take turns, up to this many where the manual does not say that all are handled."""


def _instruction(name: str) -> Unit:
    """An instruction by its LLVM intrinsic (``rcp`` for ``llvm.amdgcn.rcp``)."""
    return lambda b, x: b.intrinsic(f"amdgcn.{name}", x)


_rcp, _rsq, _sqrt, _exp, _log = (_instruction(name) for name in ("rcp", "rsq", "sqrt", "exp2", "log"))
_sin, _cos = _instruction("sin"), _instruction("cos")


def _rcp_of_any(b: Builder, x: Value) -> Value:
    """The reciprocal of the mantissa, with the exponent put back: no subnormal comes near V_RCP_F32."""
    mantissa = b.intrinsic("amdgcn.frexp.mant", x)
    exponent = b.intrinsic("amdgcn.frexp.exp", x, result="i32", overloads=["i32", "f32"])
    return b.intrinsic("ldexp", _rcp(b, mantissa), b.neg(exponent), overloads=["f32", "i32"])


def _exp_of_any(b: Builder, x: Value) -> Value:
    """Below -126 the power of an argument 64 larger, scaled back: its result may be subnormal."""
    small = b.fcmp("olt", x, -126.0)
    power = _exp(b, b.fadd(x, b.select(small, b.const("float", 64.0), 0.0)))
    return b.fmul(power, b.select(small, b.const("float", 2.0**-64), 1.0))


def _of_radians(unit: Unit) -> Unit:
    """Turns from radians; beyond the range that is handled, less their nearest integer.

    1/(2 pi) in two parts: as one f32 it would take a third of the bound that PTX gives the whole.
    """

    def emit(b: Builder, x: Value) -> Value:
        turns = b.intrinsic("fma", x, TURN_HIGH, b.fmul(x, TURN_LOW))
        reduced = b.fsub(turns, b.intrinsic("roundeven", turns))
        inside = b.fcmp("olt", rounding.magnitude(b, turns), _TURNS_HANDLED)
        return unit(b, b.select(inside, turns, reduced))

    return emit


def _corrected_quotient(b: Builder, x: Value, y: Value) -> Value:
    """``x * rcp(y)`` and one correction; where that is NaN (an infinity or zero took part) the product stays.

    V_RCP_F32 gives zero for divisors above 2^126, and so PTX has it for ``div.approx``.
    """
    reciprocal = _rcp(b, y)
    product = b.fmul(x, reciprocal)
    error = b.intrinsic("fma", b.fneg(y), product, x)
    corrected = b.intrinsic("fma", error, reciprocal, product)
    return b.select(b.fcmp("ord", corrected, corrected), corrected, product)


def _divide_flushed(b: Builder, xs: list[Value]) -> Value:
    return rounding.flush(b, _corrected_quotient(b, rounding.flush(b, xs[0]), xs[1]))


def _divide(b: Builder, xs: list[Value]) -> Value:
    small = is_subnormal(b, xs[1])
    x, y = (b.select(small, b.fmul(v, 2.0**24), v) for v in xs)
    return _corrected_quotient(b, x, y)


def _ieee_quotient(*, ftz: bool) -> Emit:
    def emit(b: Builder, xs: list[Value]) -> Value:
        if not ftz:
            return b.fdiv(xs[0], xs[1])
        x, y = (rounding.flush(b, v) for v in xs)
        return rounding.flush(b, b.fdiv(x, y))

    return emit


def _exp_half(b: Builder, xs: list[Value]) -> Value:
    return _exp(b, b.cast("fptrunc", xs[0], "half"))


_tanh = tanh_by(_exp, _rcp)
_ONE = "1 ULP (manual)"
_UNSTATED = "not stated by the manual; the argument's rounding adds 2^-22.3 absolute up to 2 pi"

# fmt: off
NATIVE: dict[str, Row] = {
    "rcp.approx.ftz.f32":   Row("v_rcp_f32", "", _ONE, unary(_rcp)),
    "rcp.approx.f32":       Row("v_frexp_mant_f32, v_frexp_exp_i32_f32, v_rcp_f32, v_ldexp_f32",
                                "mantissa and exponent apart", _ONE, unary(_rcp_of_any)),
    "rsqrt.approx.ftz.f32": Row("v_rsq_f32", "", _ONE, unary(_rsq)),
    "rsqrt.approx.f32":     Row("v_rsq_f32", "subnormal arguments times 2^24, results times 2^12", _ONE,
                                unary(scaled(_rsq, 2.0**24, lambda b, r: b.fmul(r, 2.0**12)))),
    "sqrt.approx.ftz.f32":  Row("v_sqrt_f32", "", _ONE, unary(_sqrt)),
    "sqrt.approx.f32":      Row("v_sqrt_f32", "subnormal arguments times 2^24, results times 2^-12", _ONE,
                                unary(scaled(_sqrt, 2.0**24, lambda b, r: b.fmul(r, 2.0**-12)))),
    "ex2.approx.ftz.f32":   Row("v_exp_f32", "", _ONE, unary(_exp)),
    "ex2.approx.f32":       Row("v_exp_f32", "arguments below -126 plus 64, results times 2^-64", _ONE,
                                unary(_exp_of_any)),
    "lg2.approx.ftz.f32":   Row("v_log_f32", "", _ONE, unary(_log)),
    "lg2.approx.f32":       Row("v_log_f32", "subnormal arguments times 2^32, results minus 32",
                                "1 ULP (manual), 1.5 of subnormals",
                                unary(scaled(_log, 2.0**32, lambda b, r: b.fadd(r, -32.0)))),
    **{f"{name}.approx{ftz}.f32":
                            Row(f"v_{name}_f32", "times 1/(2 pi); from 256 turns on less the nearest integer",
                                _UNSTATED, unary(_of_radians(unit)))
       for name, unit in (("sin", _sin), ("cos", _cos)) for ftz in (".ftz", "")},
    "tanh.approx.f32":      Row("v_exp_f32, v_rcp_f32", "1 - 2/(e^2x + 1); below 1/4 a series",
                                "2^-16 relative (series), 2^-20 else", unary(_tanh)),
    "div.approx.ftz.f32":   Row("v_rcp_f32, v_fma_f32", "flushed; one correction", "0.51 ULP",
                                _divide_flushed),
    "div.approx.f32":       Row("v_rcp_f32, v_fma_f32", "subnormal divisors: both times 2^24; one correction",
                                "0.51 ULP", _divide),
    "div.full.ftz.f32":     Row("v_div_scale_f32 … v_div_fixup_f32", "flushed", "0.5 ULP (IEEE)",
                                _ieee_quotient(ftz=True)),
    "div.full.f32":         Row("v_div_scale_f32 … v_div_fixup_f32", "", "0.5 ULP (IEEE)",
                                _ieee_quotient(ftz=False)),
    "ex2.approx.f16":       Row("v_exp_f16", "", _ONE, _exp_half),
    "ex2.approx.ftz.bf16":  Row("v_exp_f32", "rounded to bf16", "0.51 ULP", as_bfloat(_exp)),
    "tanh.approx.f16":      Row("v_exp_f32, v_rcp_f32", "as f32, rounded to f16", "0.6 ULP", as_half(_tanh)),
    "tanh.approx.bf16":     Row("v_exp_f32, v_rcp_f32", "as f32, rounded to bf16", "0.6 ULP",
                                as_bfloat(_tanh)),
    "rcp.approx.ftz.f64":   Row("v_rcp_f64", "high words only, rounded; flushed", "2^-20.7 relative",
                                high_word(_rcp)),
    "rsqrt.approx.ftz.f64": Row("v_rsq_f64", "high words only, rounded; flushed", "2^-20.7 relative",
                                high_word(_rsq)),
    "rsqrt.approx.f64":     Row("v_rsq_f64, v_fma_f64", "one Newton step; subnormal arguments times 2^54",
                                "2^-51 relative", refined_rsqrt(_rsq)),
}
# fmt: on

compute = computed_by(NATIVE)
"""See :data:`zluda.compiler.ir.Approximate`."""
