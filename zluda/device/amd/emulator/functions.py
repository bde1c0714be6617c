"""The functions that rows of the semantic table call, on :class:`Typed` values.

Each is one idea of AMD's pseudo-code (``fma``, ``ldexp``, ``sad_u8`` …). ``FUNCTIONS`` is their scope.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zluda.compiler.ir import mangle
from zluda.compiler.lower import rounding
from zluda.device.amd.emulator.values import Typed, float_operation

Number = Typed | int | float
_FORMATS = {16: (5, 10), 32: (8, 23), 64: (11, 52)}  # exponent and mantissa bits


def _call(name: str, x: Typed, *rest: Number) -> Typed:
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
    return _call({"f": "minimumnum", "i": "smin", "u": "umin"}[x.kind], x, y)


def larger(x: Typed, y: Number) -> Typed:
    """The larger; of a NaN and a number the number."""
    return _call({"f": "maximumnum", "i": "smax", "u": "umax"}[x.kind], x, y)


def minimum(x: Typed, y: Typed) -> Typed:
    """IEEE minimum: a NaN wins."""
    return _call("minimum", x, y)


def maximum(x: Typed, y: Typed) -> Typed:
    """IEEE maximum: a NaN wins."""
    return _call("maximum", x, y)


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
    return _call("floor", x)


def ceil(x: Typed) -> Typed:
    return _call("ceil", x)


def trunc(x: Typed) -> Typed:
    return _call("trunc", x)


def rndne(x: Typed) -> Typed:
    """Round to an integer, halves to even."""
    return _call("roundeven", x)


def fract(x: Typed) -> Typed:
    """``x - floor(x)``, at most the largest number below one (RDNA2 ISA, V_FRACT_F32)."""
    one_less = {16: 0x3BFF, 32: 0x3F7FFFFF, 64: 0x3FEFFFFFFFFFFFFF}[x.width]
    below = x.like(x.context.builder.const(x.value.type, one_less))
    difference = x.like(x.context.builder.fsub(x.value, floor(x).value))
    return select(difference > below, below, difference)


def absolute(x: Typed) -> Typed:
    if x.kind == "f":
        return _call("fabs", x)
    return x.like(x.context.builder.intrinsic("abs", x.value, False))


def is_nan(x: Typed) -> Typed:
    return x.compare("uno", x)


def _bits(x: Typed) -> Typed:
    return x.bits(f"u{x.width}")


def exponent(x: Typed) -> Typed:
    """The biased exponent field, as i32."""
    exponent_bits, mantissa = _FORMATS[x.width]
    field = _bits(x) >> mantissa & ((1 << exponent_bits) - 1)
    return field.convert("u32").bits("i32")


def ldexp(x: Typed, n: Typed) -> Typed:
    """``x * 2**n``, rounded once."""
    b = x.context.builder
    amount = n.convert("i32").value
    lanes = max(x.value.lanes, amount.lanes)
    value, amount = b.splat(x.value, lanes), b.splat(amount, lanes)
    name = f"llvm.ldexp.{mangle(value.type, lanes)}.{mangle('i32', lanes)}"
    return x.like(b.call(name, [value, amount], value.type, lanes))


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
    fraction = (_bits(scaled) & ~field | half).bits(x.type_name)
    return select(_is_zero_or_special(x), x, fraction)


def to_int(x: Typed, name: str) -> Typed:
    """Truncated towards zero and clamped to the type's range; NaN gives 0 (RDNA2 ISA, V_CVT_I32_F32)."""
    intrinsic = "fptosi.sat" if name[0] == "i" else "fptoui.sat"
    b = x.context.builder
    value = b.cast("fpext", x.value, "float") if x.width == 16 else x.value  # x86's own f16 form maps NaN to -2**15
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


# --- division (RDNA2 ISA, V_DIV_SCALE, V_DIV_FMAS, V_DIV_FIXUP) ---------------------------------------


def _with_sign(magnitude: Number, x: Typed, y: Typed) -> Typed:
    """A magnitude with the sign of a quotient x/y."""
    sign = (_bits(x) ^ _bits(y)) & 1 << x.width - 1
    lifted = x.like(x.lift(magnitude)) if not isinstance(magnitude, Typed) else magnitude
    return (_bits(absolute(lifted)) | sign).bits(x.type_name)


def div_fixup(quotient: Typed, denominator: Typed, numerator: Typed) -> Typed:
    """The quotient with division's special cases put right."""
    infinity = float("inf")
    d, n = absolute(denominator), absolute(numerator)
    # Newton's iteration ends in inf - inf where the quotient is out of range: the printed OVERFLOW.
    result = _with_sign(select(is_nan(quotient), constant(quotient, infinity), quotient), denominator, numerator)
    result = select((d == infinity) | (n == 0.0), _with_sign(0.0, denominator, numerator), result)
    result = select((d == 0.0) | (n == infinity), _with_sign(infinity, denominator, numerator), result)
    invalid = ((d == 0.0) & (n == 0.0)) | ((d == infinity) & (n == infinity))
    default_nan = {16: 0xFE00, 32: 0xFFC00000, 64: 0xFFF8 << 48}[quotient.width]
    result = select(invalid, result.like(result.context.builder.const(result.value.type, default_nan)), result)
    result = select(is_nan(denominator), _quiet(denominator), result)
    return select(is_nan(numerator), _quiet(numerator), result)


def _quiet(x: Typed) -> Typed:
    return (_bits(x) | 1 << _FORMATS[x.width][1] - 1).bits(x.type_name)


_SCALE = {32: (64, 96, 23), 64: (128, 768, 53)}  # scale, exponent distance, tiny numerator


def div_scale(x: Typed, denominator: Typed, numerator: Typed, *, is_denominator: bool) -> tuple[Typed, Typed]:
    """V_DIV_SCALE: the operand ``x`` scaled for Newton's iteration, and whether V_DIV_FMAS scales back.

    Follows the printed pseudo-code but where a huge denominator gives a subnormal quotient: there it is
    scaled down, since scaling it up as printed overflows and no right quotient can come of it.
    """
    scale, distance, tiny = _SCALE[x.width]
    b = x.context.builder
    amount = x.like(b.const("i32", scale), "i")
    up, down = ldexp(x, amount), ldexp(x, -amount)

    def subnormal(value: Typed) -> Typed:
        return (exponent(value) == 0) & (value != 0.0)

    zero = (denominator == 0.0) | (numerator == 0.0)
    far = exponent(numerator) - exponent(denominator) >= distance
    quotient = subnormal(numerator / denominator)
    reciprocal = subnormal(constant(x, 1.0) / denominator)
    nan = x.like(b.const(x.value.type, {32: 0x7FC00000, 64: 0x7FF8 << 48}[x.width]))
    # from the last rule of the pseudo-code to the first, each overriding those before
    result = select(exponent(numerator) <= tiny, up, x)
    result = select(quotient, x if is_denominator else up, result)
    result = select(reciprocal, down, result)
    result = select(reciprocal & quotient, down if is_denominator else x, result)
    result = select(subnormal(denominator), up, result)
    result = select(far, up if is_denominator else x, result)
    result = select(zero, nan, result)
    scaled = (far | (quotient & ~subnormal(denominator))) & ~zero
    return result, scaled


def div_fmas(x: Typed, y: Typed, z: Typed, scaled: Typed) -> Typed:
    """``fma(x, y, z)``, scaled back: up where the quotient is large, else down.

    The printed factor (2**32 and 2**64) undoes neither of V_DIV_SCALE's; these do.
    """
    scale = {32: 64, 64: 128}[x.width]
    bias = {32: 127, 64: 1023}[x.width]
    result = fma(x, y, z)
    b = x.context.builder
    power = select(exponent(z) > bias, x.like(b.const("i32", scale), "i"), -scale)
    return select(scaled, ldexp(result, power), result)


# --- integers -----------------------------------------------------------------------------------------


def mul_hi(x: Typed, y: Typed) -> Typed:
    """The high half of the double-width product."""
    return x.like(x.context.builder.mul_high(x.value, y.value, signed=x.kind == "i"))


def concat(high: Typed, low: Typed) -> Typed:
    """``{high, low}`` as an unsigned number of twice the width."""
    wide = f"u{2 * low.width}"
    return high.bits(f"u{high.width}").convert(wide) << low.width | low.bits(f"u{low.width}").convert(wide)


def pack(low: Typed, high: Typed) -> Typed:
    """Two 16-bit values as u32, the first in the low half."""
    return concat(high.bits("u16"), low.bits("u16"))


def popcount(x: Typed) -> Typed:
    return _call("ctpop", x)


def reverse(x: Typed) -> Typed:
    """The bits in opposite order."""
    return _call("bitreverse", x)


def find_first(x: Typed) -> Typed:
    """The lowest set bit's number as i32; -1 for none."""
    return _count_zeros("cttz", x)


def leading_zeros(x: Typed) -> Typed:
    """Zeros above the highest set bit, as i32; -1 for none set."""
    return _count_zeros("ctlz", x)


def _count_zeros(name: str, x: Typed) -> Typed:
    b = x.context.builder
    count = x.like(b.intrinsic(name, x.value, False), "u").convert("u32").bits("i32")
    return select(x == 0, constant(count, -1), count)


def sign_run(x: Typed) -> Typed:
    """Bits below the sign bit that equal it, plus one; -1 where all do (V_CLS_I32)."""
    return leading_zeros((x ^ (x >> x.width - 1)).bits(f"u{x.width}"))


def bit_field(x: Typed, offset: Typed | int, width: Typed) -> Typed:
    """V_BFE: ``width`` bits (modulo 32) from ``offset``; an i32 is sign-extended from the field's top bit."""
    size = width & x.width - 1
    shift = constant(size, x.width) - size
    empty = size == 0
    moved = (x >> offset).bits(f"u{x.width}") << shift
    return select(empty, constant(x, 0), moved.bits(x.type_name) >> shift)


def wide_bit_field(x: Typed, control: Typed) -> Typed:
    """S_BFE: offset in bits 4:0 (5:0) and width in bits 22:16 of ``control``; widths past the end reach it."""
    offset = control & x.width - 1
    size = smaller(control >> 16 & 127, x.width)
    shift = constant(size, x.width) - size
    moved = (x >> offset).bits(f"u{x.width}") << shift
    return select(size == 0, constant(x, 0), moved.bits(x.type_name) >> shift)


def mask_of(width: Typed, offset: Typed) -> Typed:
    """BFM: ``width`` ones from ``offset``."""
    return ((constant(width, 1) << width) - 1) << offset


def byte(x: Typed, index: int) -> Typed:
    """Byte ``index`` of u32 or u64, as u32."""
    return (x >> 8 * index & 0xFF).convert("u32")


def signed_byte(x: Typed, index: int) -> Typed:
    """Byte ``index`` sign-extended to i32."""
    return byte(x, index).bits("i32") << 24 >> 24


def perm(high: Typed, low: Typed, selector: Typed) -> Typed:
    """V_PERM_B32: four bytes of ``{high, low}``, sign bytes, 0x00 or 0xff."""
    data = concat(high, low)
    result = constant(selector, 0)
    for i in range(4):
        chosen = byte(selector, i)
        picked = (data >> (chosen & 7).convert("u64") * 8).convert("u32") & 0xFF
        source = ((chosen - 8 & 3) * 16 + 15).convert("u64")  # selectors 8..11: top bits of bytes 1, 3, 5, 7
        sign = constant(chosen, 0) - ((data >> source).convert("u32") & 1) & 0xFF
        value = select(chosen >= 8, sign, picked)
        value = select(chosen == 12, constant(value, 0), value)
        value = select(chosen > 12, constant(value, 0xFF), value)
        result = result | value << 8 * i
    return result


def sad_u8(x: Typed, y: Typed, accumulator: Typed, *, masked: bool = False) -> Typed:
    """The sum of four absolute byte differences; ``masked`` leaves out those where y's byte is 0."""
    total = accumulator
    for i in range(4):
        p, q = byte(x, i), byte(y, i)
        difference = larger(p, q) - smaller(p, q)
        total = total + (select(q == 0, constant(difference, 0), difference) if masked else difference)
    return total


def quad_sad(x: Typed, y: Typed, accumulators: list[Typed], *, masked: bool) -> list[Typed]:
    """V_QSAD and V_MQSAD: sad_u8 of four byte offsets of the 64-bit ``x``."""
    windows = [(x >> 8 * i).convert("u32") for i in range(4)]
    return [sad_u8(w, y, a, masked=masked) for w, a in zip(windows, accumulators, strict=True)]


def quad_sad_u16(x: Typed, y: Typed, accumulator: Typed, *, masked: bool) -> Typed:
    """Four 16-bit results in a u64."""
    fields = [(accumulator >> 16 * i & 0xFFFF).convert("u32") for i in range(4)]
    sums = [s & 0xFFFF for s in quad_sad(x, y, fields, masked=masked)]
    return concat(sums[3] << 16 | sums[2], sums[1] << 16 | sums[0])


def lerp_u8(x: Typed, y: Typed, carry: Typed) -> Typed:
    """Four byte averages, rounded up where the byte of ``carry`` is odd."""
    result = constant(x, 0)
    for i in range(4):
        result = result | (byte(x, i) + byte(y, i) + (byte(carry, i) & 1)) >> 1 << 8 * i
    return result


def quad_mask(x: Typed) -> Typed:
    """S_QUADMASK: one bit for each four, set where any is."""
    result = constant(x, 0)
    for i in range(x.width // 4):
        some = ((x >> 4 * i & 15) != 0).convert(x.type_name)
        result = result | some << i
    return result


def whole_quads(x: Typed) -> Typed:
    """S_WQM: every bit of a group of four where any is set."""
    some = x | x >> 1 | x >> 2 | x >> 3
    ones = int("1" * (x.width // 4), 16)
    return (some & ones) * 15


def replicate(x: Typed) -> Typed:
    """S_BITREPLICATE_B64_B32: every bit twice."""
    wide = x.convert("u64")
    for shift, mask in ((16, 0x0000FFFF0000FFFF), (8, 0x00FF00FF00FF00FF), (4, 0x0F0F0F0F0F0F0F0F),
                        (2, 0x3333333333333333), (1, 0x5555555555555555)):  # fmt: skip
        wide = (wide | wide << shift) & mask
    return wide | wide << 1


def bit_op3(x: Typed, y: Typed, z: Typed, table: int) -> Typed:
    """V_BITOP3: bit ``4x + 2y + z`` of ``table``."""
    result = constant(x, 0)
    for i in range(8):
        if table >> i & 1:
            terms = [v if i >> s & 1 else ~v for v, s in ((x, 2), (y, 1), (z, 0))]
            result = result | (terms[0] & terms[1] & terms[2])
    return result


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


def _conversion(name: str) -> Callable[[Typed], Typed]:
    return lambda x: x.convert(name)


_TYPES = ("u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "f16", "f32", "f64")
FUNCTIONS: dict[str, Any] = {
    name: function
    for name, function in globals().items()
    if callable(function) and not name.startswith("_") and name not in ("Typed", "mangle", "Any", "Callable", "float_operation")
} | {name: _conversion(name) for name in _TYPES}
"""What a row of the table can call: the functions above, and conversions by the name of a type."""
