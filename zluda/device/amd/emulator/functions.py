"""The functions that rows of the semantic table call, on :class:`Typed` values.

Each is one idea of AMD's pseudo-code (``fma``, ``ldexp``, ``frexp_exp`` …); ``scope.py`` collects them.
"""

from __future__ import annotations

from collections.abc import Callable

from zluda.compiler.ir import mangle
from zluda.compiler.lower import rounding
from zluda.device.amd.emulator.values import Typed, float_operation

Number = Typed | int | float
_FORMATS = {16: (5, 10), 32: (8, 23), 64: (11, 52)}  # exponent and mantissa bits


def call(name: str, x: Typed, *rest: Number) -> Typed:
    """An LLVM intrinsic on values of one type."""
    b = x.context.builder
    return x.like(b.intrinsic(name, *b.unify(x.value, *(x.lift(r) for r in rest))))


def constant(like: Typed, number: int | float) -> Typed:
    """A number as a Typed of another's type."""
    return like.like(like.lift(number))


# --- choice, order ------------------------------------------------------------------------------------


def select(condition: Typed, x: Typed, y: Number) -> Typed:
    """``condition ? x : y``."""
    b = x.context.builder
    return x.like(b.select(condition.value, x.value, x.lift(y)))


def smaller(x: Typed, y: Number) -> Typed:
    """The smaller; of a NaN and a number the number, -0 below +0 (RDNA2 ISA 6.2.4, IEEE minimumNumber)."""
    return call({"f": "minimumnum", "i": "smin", "u": "umin"}[x.kind], x, y)


def larger(x: Typed, y: Number) -> Typed:
    """The larger; of a NaN and a number the number."""
    return call({"f": "maximumnum", "i": "smax", "u": "umax"}[x.kind], x, y)


def minimum(x: Typed, y: Typed) -> Typed:
    """IEEE minimum: a NaN wins."""
    return call("minimum", x, y)


def maximum(x: Typed, y: Typed) -> Typed:
    """IEEE maximum: a NaN wins."""
    return call("maximum", x, y)


def med3(x: Typed, y: Typed, z: Typed) -> Typed:
    """The middle of three; with a NaN among them the smallest."""
    if x.kind != "f":
        return larger(smaller(x, y), smaller(larger(x, y), z))
    b = x.context.builder
    most = larger(larger(x, y), z)  # equal zeros count as the most, whatever their signs
    middle = select(most == x, larger(y, z), select(most == y, larger(x, z), larger(x, y)))
    some_nan = b.or_(b.fcmp("uno", x.value, y.value), b.fcmp("uno", z.value, z.value))
    return select(x.like(some_nan, "b"), smaller(smaller(x, y), z), middle)


# --- floating point -----------------------------------------------------------------------------------


def fma(x: Typed, y: Typed, z: Number) -> Typed:
    return x.like(float_operation(x.context, "fma", x.value, y.value, x.lift(z)))


def floor(x: Typed) -> Typed:
    return call("floor", x)


def ceil(x: Typed) -> Typed:
    return call("ceil", x)


def trunc(x: Typed) -> Typed:
    return call("trunc", x)


def rndne(x: Typed) -> Typed:
    """Round to an integer, halves to even."""
    return call("roundeven", x)


def fract(x: Typed) -> Typed:
    """``x - floor(x)``, at most the largest number below one (RDNA2 ISA, V_FRACT_F32)."""
    one_less = {16: 0x3BFF, 32: 0x3F7FFFFF, 64: 0x3FEFFFFFFFFFFFFF}[x.width]
    below = x.like(x.context.builder.const(x.value.type, one_less))
    difference = x.like(x.context.builder.fsub(x.value, floor(x).value))
    return select(difference > below, below, difference)


def absolute(x: Typed) -> Typed:
    if x.kind == "f":
        return call("fabs", x)
    return x.like(x.context.builder.intrinsic("abs", x.value, False))


def is_nan(x: Typed) -> Typed:
    return x.compare("uno", x)


def raw_bits(x: Typed) -> Typed:
    return x.bits(f"u{x.width}")


def exponent(x: Typed) -> Typed:
    """The biased exponent field, as i32."""
    exponent_bits, mantissa = _FORMATS[x.width]
    field = raw_bits(x) >> mantissa & ((1 << exponent_bits) - 1)
    return field.convert("u32").bits("i32")


def ldexp(x: Typed, n: Typed) -> Typed:
    """``x * 2**n``, rounded once."""
    b = x.context.builder
    amount = n.convert("i32").value
    lanes = max(x.value.lanes, amount.lanes)
    value, amount = b.splat(x.value, lanes), b.splat(amount, lanes)
    half = value.type == "half"  # LLVM expands it wrongly where the host has none: as f32, which is exact
    value = b.cast("fpext", value, "float") if half else value
    name = f"llvm.ldexp.{mangle(value.type, lanes)}.{mangle('i32', lanes)}"
    result = b.call(name, [value, amount], value.type, lanes)
    return x.like(b.cast("fptrunc", result, "half") if half else result)


def _is_zero_or_special(x: Typed) -> Typed:
    magnitude = absolute(x)
    return (magnitude == 0.0) | ~magnitude.compare("olt", float("inf"))


def _normalised(x: Typed) -> tuple[Typed, Typed]:
    """A number with subnormals scaled up, and the unbiased exponent of ``x = m * 2**e``, m in [0.5, 1)."""
    exponent_bits, mantissa = _FORMATS[x.width]
    subnormal = exponent(x) == 0
    scaled = select(subnormal, x.like(x.context.builder.fmul(x.value, 2.0 ** (mantissa + 1))), x)
    unbiased = exponent(scaled) - ((1 << exponent_bits - 1) - 2)
    return scaled, select(subnormal, unbiased - (mantissa + 1), unbiased)


def frexp_exp(x: Typed) -> Typed:
    """The exponent of ``x = m * 2**e`` with m in [0.5, 1), as i32; 0 for zero, infinity and NaN."""
    _, unbiased = _normalised(x)
    return select(_is_zero_or_special(x), constant(unbiased, 0), unbiased)


def frexp_mant(x: Typed) -> Typed:
    """The mantissa in [0.5, 1) with x's sign; zero, infinity and NaN as they are."""
    exponent_bits, mantissa = _FORMATS[x.width]
    scaled, _ = _normalised(x)
    field = ((1 << exponent_bits) - 1) << mantissa
    half = ((1 << exponent_bits - 1) - 2) << mantissa
    fraction = (raw_bits(scaled) & ~field | half).bits(x.type_name)
    return select(_is_zero_or_special(x), x, fraction)


def to_int(x: Typed, name: str) -> Typed:
    """Truncated towards zero and clamped to the type's range; NaN gives 0 (RDNA2 ISA, V_CVT_I32_F32)."""
    intrinsic = "fptosi.sat" if name[0] == "i" else "fptoui.sat"
    b = x.context.builder
    value = (
        b.cast("fpext", x.value, "float") if x.width == 16 else x.value
    )  # x86's own f16 form maps NaN to -2**15
    return x.like(b.convert_saturating(intrinsic, value, f"i{name[1:]}"), name[0])


def snorm16(x: Typed) -> Typed:
    """[-1, 1] to a signed 16-bit integer, as unsigned bits."""
    scaled = x.like(x.context.builder.fmul(clamp_to(x, -1.0, 1.0).value, 32767.0))
    return to_int(rndne(scaled), "i16").bits("u16")


def unorm16(x: Typed) -> Typed:
    """[0, 1] to an unsigned 16-bit integer."""
    scaled = x.like(x.context.builder.fmul(clamp_to(x, 0.0, 1.0).value, 65535.0))
    return to_int(rndne(scaled), "u16")


def clamp_to(x: Typed, low: float, high: float) -> Typed:
    """Into [low, high]; NaN to low."""
    return smaller(larger(x, low), high)


def saturate_int(x: Typed, name: str) -> Typed:
    """An integer clamped into a narrower type."""
    width = int(name[1:])
    if name[0] == "u" and x.kind == "u":
        return smaller(x, (1 << width) - 1).convert(name)
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if name[0] == "i" else (0, (1 << width) - 1)
    return smaller(larger(x, low), high).convert(name)


def truncated_half(x: Typed) -> Typed:
    """f32 to f16, towards zero (V_CVT_PKRTZ_F16_F32)."""
    return x.like(rounding.narrow(x.context.builder, x.value, "half", "rz"))


def flush(x: Typed) -> Typed:
    """Subnormal numbers to zeros of their sign."""
    return x.like(rounding.flush(x.context.builder, x.value))


def classify(x: Typed, mask: Typed) -> Typed:
    """V_CMP_CLASS: whether the class of ``x`` is among the mask's ten bits (RDNA2 ISA, V_CMP_CLASS_F32).

    The bits' order is LLVM's: signalling NaN, quiet NaN, then from negative infinity to positive infinity.
    """
    b = x.context.builder
    result = b.splat(b.const("i1", 0), x.value.lanes)
    known = mask.value.bits
    for bit in range(10):
        if known is not None and not known >> bit & 1:
            continue
        name = f"llvm.is.fpclass.{mangle(x.value.type, x.value.lanes)}"
        member = b.call(name, [x.value, b.const("i32", 1 << bit)], "i1", x.value.lanes)
        wanted = (mask & (1 << bit)) != 0
        result = b.or_(result, b.and_(member, wanted.value))
    return x.like(result, "b")


def _conversion(name: str) -> Callable[[Typed], Typed]:
    return lambda x: x.convert(name)


_TYPES = ("u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "f16", "f32", "f64")
CONVERSIONS: dict[str, Callable[[Typed], Typed]] = {name: _conversion(name) for name in _TYPES}
"""Conversions by the name of the type: ``u64(x)``."""
