"""Directed rounding and flush-to-zero by arithmetic alone.

The host's rounding mode and flush bits (MXCSR) are never touched: the optimizer assumes their defaults, and
other targets have no such register. Everything here is built from round-to-nearest operations.

*f32* goes by way of f64, where products of two f32 are exact and sums are made exact enough by *round to
odd*: a sum's error, found by two-sum, sets the last bit of the f64 when it is not zero. A value so rounded
compares with every shorter number as the exact value does, so any second rounding to f32 is right
(Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).

*f64* takes the nearest result ``r`` and the sign of ``exact - r``, and steps to the neighbour where needed.

Only ``rz`` and ``rp`` are implemented: ``rm(f(x)) = -rp(-f(x))``, which gives exact zeros their sign too.

*FTZ*: inputs and results below the smallest normal become zeros of their sign. A result counts as small
when it is so after rounding to 24 bits with unbounded exponent, which is NVIDIA's rule.
"""

from __future__ import annotations

from zluda.compiler.ir import FLOAT_BITS, Builder, Value

MANTISSA_BITS = {"half": 11, "float": 24, "double": 53}
MIN_EXPONENT = {"half": -14, "float": -126, "double": -1022}
MODES = ("rn", "rz", "rm", "rp")


def integer_type(element: str) -> str:
    """The integer type of a floating type's width."""
    return f"i{FLOAT_BITS[element]}"


def bits_of(b: Builder, x: Value) -> Value:
    """A floating value's bits."""
    return b.bitcast(x, integer_type(x.type))


def sign_mask(element: str) -> int:
    """The sign bit of a floating type."""
    return 1 << (FLOAT_BITS[element] - 1)


def magnitude(b: Builder, x: Value) -> Value:
    """``|x|``, by its bits."""
    return b.intrinsic("fabs", x)


def is_finite(b: Builder, x: Value) -> Value:
    """Neither infinite nor NaN."""
    return b.fcmp("olt", magnitude(b, x), float("inf"))


def signed_zero(b: Builder, x: Value) -> Value:
    """A zero of ``x``'s sign."""
    return b.intrinsic("copysign", b.splat(b.const(x.type, 0.0), x.lanes), x)


def is_normal(b: Builder, x: Value) -> bool:
    """Whether a value is known to be no subnormal number: by where it is from, or a constant f32."""
    if x.type == "float" and x.bits is not None:
        return bool(x.bits & 0x7F800000) or not x.bits & 0x7FFFFF
    return x.ref in b.normal


def flush(b: Builder, x: Value) -> Value:
    """Subnormal numbers to zeros of their sign."""
    if is_normal(b, x):
        return x
    small = b.fcmp("olt", magnitude(b, x), 2.0 ** MIN_EXPONENT[x.type])
    return flushed(b, b.select(small, signed_zero(b, x), x))


def flushed(b: Builder, x: Value) -> Value:
    """``x``, noted to be no subnormal number."""
    b.normal.add(x.ref)
    return x


def saturate(b: Builder, x: Value) -> Value:
    """Clamp to [0, 1]; NaN and -0 become +0 (PTX ISA 9.7.3)."""
    positive = b.select(b.fcmp("ogt", x, 0.0), x, 0.0)
    return b.select(b.fcmp("olt", positive, 1.0), positive, 1.0)


def step(b: Builder, x: Value, *, outward: Value) -> Value:
    """The neighbour of ``x`` one step away from zero where ``outward``, else one step toward zero."""
    bits = bits_of(b, x)
    return b.bitcast(b.add(bits, b.select(outward, b.const(bits.type, 1), -1)), x.type)


def adjust(b: Builder, nearest: Value, mode: str, *, greater: Value, less: Value) -> Value:
    """The result of ``mode`` (rz or rp) from the nearest one, told on which side the exact value lies."""
    negative = b.icmp("slt", bits_of(b, nearest), 0)
    if mode == "rz":
        inward = b.select(negative, greater, less)
        return b.select(inward, step(b, nearest, outward=b.const("i1", 0)), nearest)
    return b.select(greater, step(b, nearest, outward=b.not_(negative)), nearest)


# --- sums without error ------------------------------------------------------------------------------


def two_sum(b: Builder, x: Value, y: Value) -> tuple[Value, Value]:
    """The rounded sum and its exact error (Knuth), for values far from overflow."""
    total = b.fadd(x, y)
    from_y = b.fsub(total, x)
    from_x = b.fsub(total, from_y)
    return total, b.fadd(b.fsub(x, from_x), b.fsub(y, from_y))


def odd(b: Builder, value: Value, error: Value) -> Value:
    """``value + error`` rounded to odd, given a nearest value and its error (NaN where there is none)."""
    bits, error_bits = bits_of(b, value), bits_of(b, error)
    shift = value.width - 1
    toward = b.or_(b.ashr(b.xor(bits, error_bits), shift), 1)  # +1 away from zero, -1 toward it
    even = b.icmp("eq", b.and_(bits, 1), 0)
    moved = b.and_(even, b.fcmp("one", error, 0.0))
    return b.bitcast(b.select(moved, b.add(bits, toward), bits), value.type)


def exact_double(b: Builder, op: str, operands: list[Value]) -> Value:
    """``add``, ``mul`` or ``fma`` of f32 (or shorter, widened) values as an f64 that is exact or odd."""
    wide = [b.cast("fpext", x, "double") for x in operands]
    if op == "add":
        return odd(b, *two_sum(b, wide[0], wide[1]))
    product = b.fmul(wide[0], wide[1])
    return product if op == "mul" else odd(b, *two_sum(b, product, wide[2]))


# --- narrowing ---------------------------------------------------------------------------------------


def narrow(b: Builder, x: Value, element: str, mode: str) -> Value:
    """``x`` rounded to a shorter floating type (f64 to f32, f32 to f16)."""
    if mode == "rm":
        return b.fneg(narrow(b, b.fneg(x), element, "rp"))
    nearest = b.cast("fptrunc", x, element)
    if mode == "rn":
        return nearest
    back = b.cast("fpext", nearest, x.type)
    return adjust(b, nearest, mode, greater=b.fcmp("ogt", x, back), less=b.fcmp("olt", x, back))


def narrow_odd(b: Builder, x: Value) -> Value:
    """An f64 as f32, rounded to odd."""
    nearest = b.cast("fptrunc", x, "float")
    back = b.cast("fpext", nearest, "double")
    inexact = b.fcmp("one", x, back)
    truncated = adjust(b, nearest, "rz", greater=b.fcmp("ogt", x, back), less=b.fcmp("olt", x, back))
    return b.bitcast(b.or_(bits_of(b, truncated), b.zext(inexact, "i32")), "float")


def is_tiny(b: Builder, x: Value, element: str, mode: str) -> Value:
    """Whether ``x``, rounded to ``element``'s precision, exponent unbounded, is below its normal range."""
    smallest = 2.0 ** MIN_EXPONENT[element]
    spacing = smallest * 2.0 ** -MANTISSA_BITS[element]
    if mode == "rn":
        return b.fcmp("olt", magnitude(b, x), smallest - spacing / 2)
    if mode == "rz":
        return b.fcmp("olt", magnitude(b, x), smallest)
    upward, downward = (x, smallest - spacing), (x, -smallest)
    if mode == "rm":
        return b.and_(b.fcmp("oge", x, spacing - smallest), b.fcmp("olt", x, smallest))
    return b.and_(b.fcmp("ole", *upward), b.fcmp("ogt", *downward))


def narrow_flushed(b: Builder, x: Value, element: str, mode: str) -> Value:
    """As :func:`narrow`, small results flushed."""
    rounded = narrow(b, x, element, mode)
    return flushed(b, b.select(is_tiny(b, x, element, mode), signed_zero(b, rounded), rounded))


def to_bfloat(b: Builder, x: Value, mode: str) -> Value:
    """An f32 rounded to bf16, as ``i16``; NaN is 0x7fff."""
    bits = bits_of(b, x)
    if mode == "rn":
        increment = b.add(b.and_(b.lshr(bits, 16), 1), 0x7FFF)
    elif mode == "rz":
        increment = b.const("i32", 0)
    elif mode == "rna":
        increment = b.const("i32", 0x8000)
    else:
        negative = b.icmp("slt", bits, 0)
        away = (0xFFFF, 0) if mode == "rm" else (0, 0xFFFF)
        increment = b.select(negative, b.const("i32", away[0]), away[1])
    rounded = b.trunc(b.lshr(b.add(bits, increment), 16), "i16")
    return b.select(b.fcmp("uno", x, x), 0x7FFF, rounded)


def truncate_to_half(b: Builder, x: Value) -> Value:
    """An f32 truncated to f16, values of 2^16 and more to infinity (unlike ``cvt.rz``)."""
    truncated = narrow(b, x, "half", "rz")
    overflow = b.fcmp("oge", magnitude(b, x), 2.0**16)
    infinity = b.or_(b.and_(bits_of(b, truncated), 0x8000), 0x7C00)
    return b.select(overflow, b.bitcast(infinity, "half"), truncated)


# --- f64 ---------------------------------------------------------------------------------------------


def _split_exponent(b: Builder, x: Value) -> tuple[Value, Value]:
    """A finite f64 as (m, e) with ``x = m * 2^e`` and ``1 <= |m| < 2``; zero keeps a very small exponent."""
    subnormal = b.fcmp("olt", magnitude(b, x), 2.0**-1022)
    bits = bits_of(b, b.select(subnormal, b.fmul(x, 2.0**54), x))
    field = b.and_(b.lshr(bits, 52), 0x7FF)
    exponent = b.sub(field, b.select(subnormal, b.const("i64", 1023 + 54), 1023))
    fraction = b.or_(b.and_(bits, 0x800FFFFFFFFFFFFF), 0x3FF << 52)
    zero = b.fcmp("oeq", x, 0.0)
    return b.select(zero, x, b.bitcast(fraction, "double")), b.select(zero, -5000, exponent)


def _power_of_two(b: Builder, exponent: Value) -> Value:
    return b.bitcast(b.shl(b.add(exponent, 1023), 52), "double")


def _emit_residual(b: Builder, arguments: list[Value]) -> Value:
    """A number with the sign of ``x*y + z - r``, where ``r`` is that value rounded to nearest (or near it).

    Product and addend are brought to a common scale near 1; whichever is more than 2^200 times smaller than
    the other is moved up to that distance, where it still only decides a tie. The four terms then sum
    exactly as an expansion (Shewchuk, "Adaptive Precision Floating-Point Arithmetic", 1997, Grow-Expansion).
    """
    (x, ex), (y, ey), (z, ez), (r, er) = (_split_exponent(b, v) for v in arguments)
    product_exponent = b.add(ex, ey)
    scale = b.intrinsic("smax", product_exponent, ez)

    def scaled(value: Value, exponent: Value) -> Value:
        distance = b.intrinsic("smax", b.sub(exponent, scale), -200)
        return b.fmul(value, _power_of_two(b, b.intrinsic("smin", distance, 8)))

    high = b.fmul(x, y)
    low = b.intrinsic("fma", x, y, b.fneg(high))
    expansion = [scaled(low, product_exponent), scaled(high, product_exponent)]
    for term in (scaled(z, ez), b.fneg(scaled(r, er))):
        grown = []
        for component in expansion:
            term, error = two_sum(b, term, component)
            grown.append(error)
        expansion = [*grown, term]
    total = expansion[0]
    for component in expansion[1:]:
        total = b.fadd(total, component)
    return total


def residual(b: Builder, x: Value, y: Value, z: Value, r: Value) -> Value:
    """A number with the sign of ``x*y + z - r`` for finite f64, exactly; out of line."""
    arguments = b.unify(x, y, z, r)
    lanes = arguments[0].lanes
    name = f"zluda.f64.residual.v{lanes}"
    b.module.function(name, [("double", lanes)] * 4, _emit_residual)
    return b.call(name, arguments, "double", lanes)


def directed_double(b: Builder, nearest: Value, error: Value, mode: str, inputs: list[Value]) -> Value:
    """The result of ``mode`` (rz or rp) from the nearest one and the sign of ``exact - nearest``.

    Where the inputs are finite an infinite result is an overflow: the exact value lies inside it.
    """
    finite = is_finite(b, inputs[0])
    for x in inputs[1:]:
        finite = b.and_(finite, is_finite(b, x))
    infinity = float("inf")
    inside = is_finite(b, nearest)
    greater = b.or_(b.and_(inside, b.fcmp("ogt", error, 0.0)), b.fcmp("oeq", nearest, -infinity))
    less = b.or_(b.and_(inside, b.fcmp("olt", error, 0.0)), b.fcmp("oeq", nearest, infinity))
    return adjust(b, nearest, mode, greater=b.and_(greater, finite), less=b.and_(less, finite))
