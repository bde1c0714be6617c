"""Approximate instructions by the host's vector units (``--numerics native`` on the CPU): one row for each.

Division and square root are IEEE's. Where the host has AVX-512, reciprocals start from its estimates
(VRCP14PS, VRSQRT14PS: within 2^-14, Intel SDM volume 2) and take one Newton step, which is several times
quicker. The rest are polynomials near the minimax ones, fitted on Chebyshev nodes. Subnormals are what the
host makes of them, so only ``.ftz`` needs anything around. Accuracies other than IEEE's are the largest
errors met among 2^20 arguments at random.
"""

from __future__ import annotations

import functools

from zluda.compiler.ir import Builder, Value
from zluda.compiler.lower import rounding
from zluda.compiler.lower.elementary import nearest_turn, polynomial
from zluda.compiler.lower.native import (
    Emit,
    Row,
    as_bfloat,
    as_half,
    computed_by,
    flushed,
    high_word,
    scaled,
    split_turn,
    tanh_by,
    unary,
)

_EXP2 = (
    *(1.0, 0.6931471824645996, 0.24022650718688965, 0.05550327152013779),
    *(0.00961802527308464, 0.0013400432653725147, 0.00015469732170458883),
)
"""2^x on [-1/2, 1/2], within 2^-25.7."""
_LOG2 = (2.885390043258667, 0.9617988467216492, 0.5767129063606262, 0.43177610635757446)
"""log2((1+s)/(1-s))/s in s^2, for s up to 0.172, within 2^-30."""
_SINE = (6.2831854820251465, -41.34168243408203, 81.60247802734375, -76.58128356933594, 39.76072311401367)
"""sin(2 pi x)/x in x^2 on [-1/4, 1/4], within 2^-25."""

_LANES = 16  # of a 512-bit vector


@functools.cache
def _has_estimates() -> bool:
    import llvmlite.binding as llvm

    return bool(llvm.get_host_cpu_features().get("avx512f", False))


def _estimate(b: Builder, name: str, x: Value) -> Value:
    """An AVX-512 estimate; a scalar's is a vector's, so that a value's bits do not depend on its shape."""
    wide = b.splat(x, _LANES)
    zero, all_lanes = b.splat(b.const("float", 0.0), _LANES), b.const("i16", -1)
    result = b.call(f"llvm.x86.avx512.{name}14.ps.512", [wide, zero, all_lanes], "float", _LANES)
    return b.extract(result, 0) if x.lanes == 1 else result


def _step_or(b: Builder, refined: Value, estimate: Value) -> Value:
    """The Newton step's result; the estimate where that is NaN: at zeros and infinities."""
    return b.select(b.fcmp("ord", refined, refined), refined, estimate)


def _rcp(b: Builder, x: Value) -> Value:
    """For arguments and results that are not subnormal."""
    if not _has_estimates() or x.lanes not in (1, _LANES):
        return b.fdiv(1.0, x)
    estimate = _estimate(b, "rcp", x)
    error = b.intrinsic("fma", b.fneg(x), estimate, 1.0)
    return _step_or(b, b.intrinsic("fma", error, estimate, estimate), estimate)


def _rsqrt(b: Builder, x: Value) -> Value:
    """For arguments that are not subnormal."""
    if not _has_estimates() or x.lanes not in (1, _LANES):
        return b.fdiv(1.0, b.intrinsic("sqrt", x))
    estimate = _estimate(b, "rsqrt", x)
    error = b.intrinsic("fma", b.fmul(b.fneg(x), estimate), estimate, 1.0)
    return _step_or(b, b.intrinsic("fma", b.fmul(estimate, 0.5), error, estimate), estimate)


def _sqrt(b: Builder, x: Value) -> Value:
    return b.intrinsic("sqrt", x)


def _exp2(b: Builder, x: Value) -> Value:
    """A polynomial of the fraction; the exponent is put on in two halves, for results that are subnormal."""
    bounded = b.intrinsic("minimumnum", b.intrinsic("maximumnum", x, -160.0), 130.0)
    whole = b.intrinsic("roundeven", bounded)
    power = polynomial(b, b.fsub(bounded, whole), _EXP2)
    exponent = b.cast("fptosi", whole, "i32")
    half = b.ashr(exponent, 1)
    for part in (half, b.sub(exponent, half)):
        power = b.fmul(power, b.bitcast(b.shl(b.add(part, 127), 23), "float"))
    return b.select(b.fcmp("uno", x, x), x, power)


def _log2(b: Builder, x: Value) -> Value:
    """log2 of what is not subnormal: exponent plus 2 atanh((m-1)/(m+1)), m in [sqrt(1/2), sqrt(2))."""
    bits = b.bitcast(x, "i32")
    exponent = b.ashr(b.sub(bits, 0x3F3504F3), 23)  # sqrt(1/2)
    mantissa = b.bitcast(b.sub(bits, b.shl(exponent, 23)), "float")
    s = b.fdiv(b.fsub(mantissa, 1.0), b.fadd(mantissa, 1.0))
    series = polynomial(b, b.fmul(s, s), _LOG2)
    result = b.intrinsic("fma", s, series, b.cast("sitofp", exponent, "float"))
    infinity = float("inf")
    result = b.select(b.fcmp("oeq", x, infinity), infinity, result)
    result = b.select(b.fcmp("oeq", x, 0.0), -infinity, result)
    return b.select(b.fcmp("ult", x, 0.0), float("nan"), result)


_TURN_HIGH, _TURN_LOW = split_turn()


def _turns(b: Builder, x: Value) -> Value:
    return b.intrinsic("fma", x, _TURN_HIGH, b.fmul(x, _TURN_LOW))


def _sine(b: Builder, turns: Value) -> Value:
    return b.fmul(turns, polynomial(b, b.fmul(turns, turns), _SINE))


def _sin(b: Builder, x: Value) -> Value:
    turn = nearest_turn(b, _turns(b, x))
    size = rounding.magnitude(b, turn)
    folded = b.intrinsic("copysign", b.fsub(0.5, size), turn)
    result = _sine(b, b.select(b.fcmp("ogt", size, 0.25), folded, turn))
    return b.select(b.fcmp("oeq", x, 0.0), x, result)


def _cos(b: Builder, x: Value) -> Value:
    return _sine(b, b.fsub(0.25, rounding.magnitude(b, nearest_turn(b, _turns(b, x)))))


def _rcp_of_any(b: Builder, x: Value) -> Value:
    return b.fdiv(1.0, x)


def _divide_approx(b: Builder, xs: list[Value]) -> Value:
    """IEEE's quotient; by zero for divisors above 2^126, as PTX has it: 0, or NaN of an infinity."""
    large = b.fcmp("ogt", rounding.magnitude(b, xs[1]), 2.0**126)
    nothing = b.fmul(xs[0], b.intrinsic("copysign", b.splat(b.const("float", 0.0), xs[1].lanes), xs[1]))
    return b.select(large, nothing, b.fdiv(xs[0], xs[1]))


def _divide_full(b: Builder, xs: list[Value]) -> Value:
    return b.fdiv(xs[0], xs[1])


def _both_flushed(divide: Emit) -> Emit:
    return lambda b, xs: rounding.flush(b, divide(b, [rounding.flush(b, x) for x in xs]))


def _rsqrt_double(b: Builder, xs: list[Value]) -> Value:
    return b.bitcast(b.fdiv(1.0, b.intrinsic("sqrt", b.bitcast(xs[0], "double"))), "i64")


_tanh = tanh_by(_exp2, _rcp)
_NEWTON = "0.53 ULP, 0.5 without AVX-512"
_FLUSHED = "flushed"
_LOGARITHM = "1.05 ULP; 9.7e-8 absolute from 1/2 to 2"

# fmt: off
NATIVE: dict[str, Row] = {
    "rcp.approx.ftz.f32":   Row("vrcp14ps, vfmadd", _FLUSHED, _NEWTON, unary(flushed(_rcp))),
    "rcp.approx.f32":       Row("vdivps", "", "0.5 ULP", unary(_rcp_of_any)),
    "rsqrt.approx.ftz.f32": Row("vrsqrt14ps, vfmadd", _FLUSHED, "1.03 ULP", unary(flushed(_rsqrt))),
    "rsqrt.approx.f32":     Row("vrsqrt14ps, vfmadd", "subnormal arguments times 2^24, results times 2^12",
                                "1.03 ULP",
                                unary(scaled(_rsqrt, 2.0**24, lambda b, r: b.fmul(r, 2.0**12)))),
    "sqrt.approx.ftz.f32":  Row("vsqrtps", _FLUSHED, "0.5 ULP", unary(flushed(_sqrt))),
    "sqrt.approx.f32":      Row("vsqrtps", "", "0.5 ULP", unary(_sqrt)),
    "ex2.approx.ftz.f32":   Row("polynomial", _FLUSHED, "0.96 ULP", unary(flushed(_exp2))),
    "ex2.approx.f32":       Row("polynomial", "", "0.96 ULP", unary(_exp2)),
    "lg2.approx.ftz.f32":   Row("vdivps, polynomial", _FLUSHED, _LOGARITHM, unary(flushed(_log2))),
    "lg2.approx.f32":       Row("vdivps, polynomial", "subnormal arguments times 2^32, results minus 32",
                                _LOGARITHM,
                                unary(scaled(_log2, 2.0**32, lambda b, r: b.fadd(r, -32.0)))),
    "sin.approx.ftz.f32":   Row("polynomial", _FLUSHED, "2.3e-7 absolute up to 2 pi", unary(flushed(_sin))),
    "sin.approx.f32":       Row("polynomial", "", "2.3e-7 absolute up to 2 pi", unary(_sin)),
    "cos.approx.ftz.f32":   Row("polynomial", _FLUSHED, "2.3e-7 absolute up to 2 pi", unary(flushed(_cos))),
    "cos.approx.f32":       Row("polynomial", "", "2.3e-7 absolute up to 2 pi", unary(_cos)),
    "tanh.approx.f32":      Row("polynomial, vrcp14ps", "", "2^-16.2 relative (series), 5.9 ULP else",
                                unary(_tanh)),
    "div.approx.ftz.f32":   Row("vdivps", _FLUSHED, "0.5 ULP", _both_flushed(_divide_approx)),
    "div.approx.f32":       Row("vdivps", "", "0.5 ULP", _divide_approx),
    "div.full.ftz.f32":     Row("vdivps", _FLUSHED, "0.5 ULP", _both_flushed(_divide_full)),
    "div.full.f32":         Row("vdivps", "", "0.5 ULP", _divide_full),
    "ex2.approx.f16":       Row("polynomial", "as f32, rounded to f16", "0.51 ULP", as_half(_exp2)),
    "ex2.approx.ftz.bf16":  Row("polynomial", "as f32, rounded to bf16; flushed", "0.51 ULP",
                                as_bfloat(flushed(_exp2))),
    "tanh.approx.f16":      Row("polynomial, vrcp14ps", "as f32, rounded to f16", "0.51 ULP", as_half(_tanh)),
    "tanh.approx.bf16":     Row("polynomial, vrcp14ps", "as f32, rounded to bf16", "0.51 ULP",
                                as_bfloat(_tanh)),
    "rcp.approx.ftz.f64":   Row("vdivpd", "high words only, rounded; flushed", "2^-21 relative",
                                high_word(lambda b, x: b.fdiv(1.0, x))),
    "rsqrt.approx.ftz.f64": Row("vsqrtpd, vdivpd", "high words only, rounded; flushed", "2^-21 relative",
                                high_word(lambda b, x: b.fdiv(1.0, _sqrt(b, x)))),
    "rsqrt.approx.f64":     Row("vsqrtpd, vdivpd", "", "1 ULP", _rsqrt_double),
}
# fmt: on

compute = computed_by(NATIVE)
"""See :data:`zluda.compiler.ir.Approximate`."""
