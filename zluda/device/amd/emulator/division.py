"""Division: V_DIV_SCALE, V_DIV_FMAS, V_DIV_FIXUP, and V_TRIG_PREOP's digits of 2/pi (RDNA2 ISA 12.9)."""

from __future__ import annotations

from zluda.compiler.lower import rounding
from zluda.device.amd.emulator.functions import (
    Number,
    absolute,
    constant,
    exponent,
    fma,
    is_nan,
    larger,
    ldexp,
    raw_bits,
    select,
)
from zluda.device.amd.emulator.values import Typed

_QUIET_BIT = {16: 1 << 9, 32: 1 << 22, 64: 1 << 51}


def _with_sign(magnitude: Number, x: Typed, y: Typed) -> Typed:
    """A magnitude with the sign of a quotient x/y."""
    sign = (raw_bits(x) ^ raw_bits(y)) & 1 << x.width - 1
    lifted = x.like(x.lift(magnitude)) if not isinstance(magnitude, Typed) else magnitude
    return (raw_bits(absolute(lifted)) | sign).bits(x.type_name)


def div_fixup(quotient: Typed, denominator: Typed, numerator: Typed) -> Typed:
    """The quotient with division's special cases put right."""
    infinity = float("inf")
    d, n = absolute(denominator), absolute(numerator)
    # Newton's iteration ends in inf - inf where the quotient is out of range: the printed OVERFLOW.
    result = _with_sign(
        select(is_nan(quotient), constant(quotient, infinity), quotient), denominator, numerator
    )
    least = {16: -24, 32: -150, 64: -1075}[quotient.width]
    underflows = exponent(numerator) - exponent(denominator) < least
    result = select(underflows, _with_sign(0.0, denominator, numerator), result)
    result = select((d == infinity) | (n == 0.0), _with_sign(0.0, denominator, numerator), result)
    result = select((d == 0.0) | (n == infinity), _with_sign(infinity, denominator, numerator), result)
    invalid = ((d == 0.0) & (n == 0.0)) | ((d == infinity) & (n == infinity))
    default_nan = {16: 0xFE00, 32: 0xFFC00000, 64: 0xFFF8 << 48}[quotient.width]
    result = select(
        invalid, result.like(result.context.builder.const(result.value.type, default_nan)), result
    )
    result = select(is_nan(denominator), _quiet(denominator), result)
    return select(is_nan(numerator), _quiet(numerator), result)


def _quiet(x: Typed) -> Typed:
    return (raw_bits(x) | _QUIET_BIT[x.width]).bits(x.type_name)


_SCALE = {32: (64, 96, 23), 64: (128, 768, 53)}  # scale, exponent distance, tiny numerator


def div_scale(x: Typed, denominator: Typed, numerator: Typed, *, is_denominator: bool) -> Typed:
    """V_DIV_SCALE: the operand ``x`` scaled for Newton's iteration.

    Follows the printed pseudo-code but where a huge denominator gives a subnormal quotient: there it is
    scaled down, since scaling it up as printed overflows and no right quotient can come of it.
    """
    scale, _, tiny = _SCALE[x.width]
    b = x.context.builder
    amount = x.like(b.const("i32", scale), "i")
    up, down = ldexp(x, amount), ldexp(x, -amount)
    quotient = _subnormal_quotient(numerator, denominator)
    reciprocal = _subnormal_quotient(constant(x, 1.0), denominator)
    nan = x.like(b.const(x.value.type, {32: 0x7FC00000, 64: 0x7FF8 << 48}[x.width]))
    # from the last rule of the pseudo-code to the first, each overriding those before
    result = select(exponent(numerator) <= tiny, up, x)
    result = select(quotient, x if is_denominator else up, result)
    result = select(reciprocal, down, result)
    result = select(reciprocal & quotient, down if is_denominator else x, result)
    result = select(_subnormal(denominator), up, result)
    result = select(_far(numerator, denominator), up if is_denominator else x, result)
    return select(_either_zero(numerator, denominator), nan, result)


def div_scaled(denominator: Typed, numerator: Typed) -> Typed:
    """Whether V_DIV_FMAS scales back what V_DIV_SCALE scaled: its mask."""
    quotient = _subnormal_quotient(numerator, denominator)
    scaled = _far(numerator, denominator) | (quotient & ~_subnormal(denominator))
    return scaled & ~_either_zero(numerator, denominator)


def _subnormal(x: Typed) -> Typed:
    return (exponent(x) == 0) & (x != 0.0)


def _subnormal_quotient(numerator: Typed, denominator: Typed) -> Typed:
    """Whether a quotient is subnormal; divides only where some lane's exponents say that it may be."""
    b = denominator.context.builder
    least = {32: -125, 64: -1021}[denominator.width]
    near = exponent(numerator) - exponent(denominator) <= least
    divide, done = b.fresh("divide"), b.fresh("divided")
    before = b.fresh("before")
    b.branch(before)
    b.label(before)
    b.cond_branch(b.any(near.value), divide, done)
    b.label(divide)
    found = _subnormal(numerator / denominator)
    b.branch(done)
    b.label(done)
    lanes = found.value.lanes
    none = b.splat(b.const("i1", 0), lanes)
    return found.like(b.phi("i1", lanes, [(found.value, divide), (none, before)]))


def _far(numerator: Typed, denominator: Typed) -> Typed:
    return exponent(numerator) - exponent(denominator) >= _SCALE[numerator.width][1]


def _either_zero(numerator: Typed, denominator: Typed) -> Typed:
    return (denominator == 0.0) | (numerator == 0.0)


def div_fmas(x: Typed, y: Typed, z: Typed, scaled: Typed) -> Typed:
    """``fma(x, y, z)``, scaled back: up where the quotient is large, else down.

    The printed factor (2**32 and 2**64) undoes neither of V_DIV_SCALE's; these do.
    """
    scale = {32: 64, 64: 128}[x.width]
    bias = {32: 127, 64: 1023}[x.width]
    result = fma(x, y, z)
    b = x.context.builder
    power = select(exponent(z) > bias, x.like(b.const("i32", scale), "i"), -scale)
    shifted = ldexp(result, power)
    # A quotient that becomes subnormal is rounded there, once: what is scaled back has kept its sticky bit.
    tiny = (exponent(result) + power <= 0) & (exponent(result) != 0)
    one_bit = exponent(result) + power == 0
    return select(scaled, select(tiny, ldexp(_sticky_fma(x, y, z, result, one_bit), power), shifted), result)


def _sticky_fma(x: Typed, y: Typed, z: Typed, nearest: Typed, one_bit: Typed) -> Typed:
    """``fma(x, y, z)`` of finite operands such that rounding it once more rounds the exact value.

    Truncated, with the last bit set where anything was cut off. Where the second rounding cuts ``one_bit``
    alone, that bit decides: it is carried where it was set and more was cut off.
    """
    b = x.context.builder
    wide = [v.value if v.width == 64 else b.cast("fpext", v.value, "double") for v in (x, y, z, nearest)]
    error = rounding.residual(b, *wide)
    inexact = b.fcmp("one", error, 0.0)
    outside = b.xor(b.fcmp("ogt", error, 0.0), b.fcmp("ogt", wide[3], 0.0))
    bits = b.bitcast(nearest.value, f"i{nearest.width}")
    truncated = b.sub(bits, b.zext(b.and_(inexact, outside), bits.type))
    sticky = b.zext(inexact, bits.type)
    carried = b.add(truncated, b.and_(truncated, sticky))
    chosen = b.select(one_bit.value, carried, b.or_(truncated, sticky))
    return nearest.like(b.bitcast(chosen, nearest.value.type))


_TWO_OVER_PI_BITS = 1201


def _two_over_pi() -> int:
    """2/pi as a fraction of 1201 bits (Machin's formula, with guard bits)."""
    scale = 1 << _TWO_OVER_PI_BITS + 64

    def arctan_inverse(x: int) -> int:
        power, total, n, sign = scale // x, 0, 1, 1
        while power:
            total += sign * (power // n)
            power, n, sign = power // (x * x), n + 2, -sign
        return total

    pi = 4 * (4 * arctan_inverse(5) - arctan_inverse(239))
    return (2 * scale << _TWO_OVER_PI_BITS) // pi


def trig_preop(x: Typed, segment: Typed) -> Typed:
    """V_TRIG_PREOP_F64: 53 bits of 2/pi, chosen by ``segment`` and x's exponent, at their own scale."""
    b = x.context.builder
    digits = _two_over_pi()
    words = [digits << 64 * 24 >> _TWO_OVER_PI_BITS + 64 * (23 - i) & (1 << 64) - 1 for i in range(24)]
    table = b.module.table("amd.two_over_pi", "i64", [*words, *[0] * 24])
    e = exponent(x)
    shift = (segment & 31).bits("i32") * 53 + larger(e - 1077, 0)
    index, rest = b.zext((shift.bits("u32") >> 6).value, "i64"), (shift & 63).bits("u32").convert("u64")
    pointers = b.gep(table, index, "i64")
    first = x.like(b.gather("i64", pointers, align=8), "u")
    second = x.like(b.gather("i64", b.gep(pointers, 8), align=8), "u")
    window = first << rest | select(rest == 0, constant(first, 0), second >> constant(rest, 64) - rest)
    number = (window >> 11).convert("f64")
    scale = constant(shift, -53) - shift
    return ldexp(number, select(e >= 1968, scale + 128, scale))
