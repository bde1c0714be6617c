"""The tensor cores' step, lane by lane: exact products, cut to one grid, summed exactly, rounded once.

The same rule as :func:`zluda.numerics.tensor_cores.reference.step`, which says why. Every function takes and
gives Values of any number of lanes.

*An encoded element* is an ``i32``: in its high bits an f32 with the significand and sign (``±sig / 2^M``, so
below 2 in size; ±0, ±inf and NaN are themselves), in its low 13 bits, which such an f32 leaves zero, the
exponent plus :data:`OFFSET`, or 0 where it does not count: for zeros, infinities and NaN. So operands travel
between lanes as one word, products of significands are exact in f32, and a plain sum of the products is
infinite or NaN exactly when the result is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

from zluda.compiler.ir import Builder, Value
from zluda.numerics.tensor_cores.formats import FLOATS, SCALES, FloatFormat
from zluda.records import dataclass

OFFSET = 300
"""Added to exponents: an exponent of 0 then means less than any that matters, also added to another."""

_SIGN, _ONE, _INFINITY = 0x80000000, 0x3F800000, 0x7F800000
_CODE = 0x1FFF
_SHIFT = 23  # bits of an f32's fraction


@dataclass(frozen=True, slots=True)
class Element:
    """``significand`` (f32, below 2 in size) times 2 to the power ``code - OFFSET`` (i32)."""

    significand: Value
    code: Value


# --- operands ----------------------------------------------------------------------------------------


def decode(b: Builder, name: str, bits: Value) -> Element:
    """An element, the low bits of an ``i32``, taken apart. Subnormals are not normalised."""
    return _decode(b, FLOATS[name], bits)


def _decode(b: Builder, f: FloatFormat, bits: Value) -> Element:
    x = b.lshr(bits, f.unread)
    width = f.exponent + f.mantissa
    field = b.and_(b.lshr(x, f.mantissa), (1 << f.exponent) - 1)
    fraction = b.shl(b.and_(x, (1 << f.mantissa) - 1), _SHIFT - f.mantissa)
    size = b.and_(x, (1 << width) - 1)
    special = _special(b, f, field, size)
    start = b.or_(b.select(special, b.const("i32", _INFINITY), _ONE), fraction)
    hidden = b.select(b.icmp("eq", field, 0), b.const("float", 1.0), 0.0)
    magnitude = b.bitcast(b.fsub(b.bitcast(start, "float"), hidden), "i32")
    sign = b.and_(b.shl(x, 31 - width), _SIGN)
    exponent = b.add(b.intrinsic("umax", field, 1), OFFSET - f.bias)
    counts = b.not_(b.or_(special, b.icmp("eq", size, 0)))
    return Element(b.bitcast(b.or_(magnitude, sign), "float"), b.select(counts, exponent, 0))


def _special(b: Builder, f: FloatFormat, field: Value, size: Value) -> Value:
    """Whether an element is infinite or NaN: by its exponent, or all ones where there is no infinity."""
    if f.infinity:
        return b.icmp("eq", field, (1 << f.exponent) - 1)
    if not f.nan:
        return b.const("i1", 0)
    return b.icmp("eq", size, (1 << (f.exponent + f.mantissa)) - 1)


def normalised(b: Builder, x: Element) -> Element:
    """A subnormal with its leading bit first, as in a wider format."""
    bits = b.bitcast(x.significand, "i32")
    counts = b.icmp("ne", x.code, 0)
    below = b.sub(b.and_(b.lshr(bits, _SHIFT), 0xFF), 127)
    significand = b.or_(b.and_(bits, _SIGN | ((1 << _SHIFT) - 1)), _ONE)
    return Element(
        b.bitcast(b.select(counts, significand, bits), "float"),
        b.select(counts, b.add(x.code, below), 0),
    )


def scaled(b: Builder, x: Element, scale: str, code: Value) -> Element:
    """An element times a scale, the low eight bits of ``code``. Its significand may be as large as four."""
    f = SCALES[scale]
    if f.mantissa:
        s = _decode(b, f, b.and_(code, 0x7F))
        counts = b.icmp("ne", s.code, 0)
    else:  # a power of two
        byte = b.and_(code, 0xFF)
        counts = b.icmp("ne", byte, 0xFF)
        s = Element(b.select(counts, b.const("float", 1.0), float("nan")), b.add(byte, OFFSET - f.bias))
    counts = b.and_(counts, b.icmp("ne", x.code, 0))
    exponent = b.sub(b.add(x.code, s.code), OFFSET)
    return Element(b.fmul(x.significand, s.significand), b.select(counts, exponent, 0))


def encode(b: Builder, x: Element) -> Value:
    """An element with at most ten bits after the leading one as one word."""
    return b.or_(b.bitcast(x.significand, "i32"), x.code)


def unencode(b: Builder, word: Value) -> Element:
    """The element of a word."""
    return Element(b.bitcast(b.and_(word, ~_CODE), "float"), b.and_(word, _CODE))


# --- the step ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rounding:
    """How a step ends: ``fraction`` bits of alignment, an ``f16`` or ``f32`` result from C of type ``c``;
    ``short``: an f32 of 13 fraction bits. Products of significands are below ``2^growth``."""

    fraction: int
    c: str
    d: str
    short: bool = False
    growth: int = 2


def step(b: Builder, pairs: Iterable[tuple[Element, Element]], c: Element, how: Rounding) -> Value:
    """``c`` plus the products of all pairs: the bits of an f16 or f32, in an ``i32``."""
    terms = [
        Element(b.fmul(x.significand, y.significand), b.add(x.code, y.code)) for x, y in pairs
    ]  # codes of products have the offset twice
    terms.append(Element(c.significand, b.select(b.icmp("eq", c.code, 0), 0, b.add(c.code, OFFSET))))
    floor = FLOATS[how.c].smallest_exponent - 7 + 2 * OFFSET
    top = functools.reduce(lambda x, y: b.intrinsic("smax", x, y), (t.code for t in terms))
    top = b.intrinsic("smax", top, floor)
    lift = b.sub(how.fraction + 127, top)
    total = _exact_sum(b, [_cut(b, t, lift) for t in terms], 1 << (31 - how.growth - how.fraction))
    plain = functools.reduce(b.fadd, (t.significand for t in terms))
    # The unit of the sum, 2^(top - fraction), as an f64.
    unit = b.shl(b.zext(b.add(top, 1023 - 2 * OFFSET - how.fraction), "i64"), 52)
    value = b.fmul(total, b.bitcast(unit, "double"))
    if how.d == "f16":
        return _with_special(b, _to_f16(b, value), plain, "f16")
    return _with_special(b, _to_f32(b, value, 13 if how.short else _SHIFT), plain, "f32")


def _cut(b: Builder, term: Element, lift: Value) -> Value:
    """A term in units of ``2^(top - fraction)``, its fraction dropped; poison for one that is not finite."""
    exponent = b.intrinsic("smax", b.add(term.code, lift), 1)  # 2^-126 makes nothing of any term
    scale = b.bitcast(b.shl(exponent, _SHIFT), "float")
    return b.cast("fptosi", b.fmul(term.significand, scale), "i32")


def _exact_sum(b: Builder, terms: list[Value], many: int) -> Value:
    """The sum as an f64, by i32 sums of so many terms as cannot overflow."""
    sums = [functools.reduce(b.add, terms[i : i + many]) for i in range(0, len(terms), many)]
    return functools.reduce(b.fadd, (b.cast("sitofp", s, "double") for s in sums))


_LOST = {23: 29, 13: 39}  # fraction bits of an f32 to the bits of an f64 beyond them


def _to_f32(b: Builder, value: Value, fraction_bits: int) -> Value:
    """Toward zero; from 2^128 on infinite; zero is +0."""
    bits = b.bitcast(value, "i64")
    kept = b.bitcast(b.and_(bits, -1 << _LOST[fraction_bits]), "double")
    size = b.intrinsic("fabs", value)
    small = b.fcmp("olt", size, 2.0**-126)
    normal = b.bitcast(b.cast("fptrunc", kept, "float"), "i32")
    units = b.cast("fptosi", b.select(small, b.fmul(size, 2.0**149), 0.0), "i32")
    units = b.and_(units, -1 << (_SHIFT - fraction_bits))
    sign = b.and_(b.trunc(b.lshr(bits, 32), "i32"), _SIGN)
    subnormal = b.select(b.icmp("eq", units, 0), 0, b.or_(units, sign))
    return b.select(small, subnormal, normal)


def _to_f16(b: Builder, value: Value) -> Value:
    """To nearest even, by way of an f32 rounded to odd; zero is +0."""
    bits = b.bitcast(value, "i64")
    lost = b.icmp("ne", b.and_(bits, (1 << _LOST[23]) - 1), 0)
    odd = b.or_(b.and_(bits, -1 << _LOST[23]), b.shl(b.zext(lost, "i64"), _LOST[23]))
    single = b.cast("fptrunc", b.bitcast(odd, "double"), "float")
    half = b.zext(b.bitcast(b.cast("fptrunc", single, "half"), "i16"), "i32")
    return b.select(b.icmp("eq", b.and_(half, 0x7FFF), 0), 0, half)


def _with_special(b: Builder, found: Value, plain: Value, d: str) -> Value:
    """What a NaN or an infinity among the terms makes of the result (``plain`` is their ordinary sum)."""
    nan, shift = (0x7FFF, 16) if d == "f16" else (0x7FFFFFFF, 0)
    infinity = b.lshr(b.bitcast(plain, "i32"), shift)
    if d == "f16":  # f32's exponent is three bits longer
        infinity = b.or_(b.and_(infinity, 0x8000), 0x7C00)
    size = b.intrinsic("fabs", plain)
    infinite = b.fcmp("oeq", size, float("inf"))
    return b.select(b.fcmp("uno", plain, plain), nan, b.select(infinite, infinity, found))


# --- IEEE arithmetic around steps --------------------------------------------------------------------


def as_half(b: Builder, bits: Value) -> Value:
    """The low 16 bits of an ``i32`` as a half."""
    return b.bitcast(b.trunc(bits, "i16"), "half")


def half_bits(b: Builder, x: Value) -> Value:
    """A half's bits, NaN canonical, in an ``i32``."""
    bits = b.zext(b.bitcast(x, "i16"), "i32")
    return b.select(b.fcmp("uno", x, x), 0x7FFF, bits)


def float_bits(b: Builder, x: Value) -> Value:
    """A float's bits, NaN canonical."""
    return b.select(b.fcmp("uno", x, x), 0x7FFFFFFF, b.bitcast(x, "i32"))


def widen(b: Builder, bits: Value) -> Value:
    """f16 to f32 bits."""
    return float_bits(b, b.cast("fpext", as_half(b, bits), "float"))


def narrow(b: Builder, bits: Value) -> Value:
    """f32 to f16 bits, to nearest even."""
    return half_bits(b, b.cast("fptrunc", b.bitcast(bits, "float"), "half"))


def add_half(b: Builder, x: Value, y: Value) -> Value:
    """f16 + f16, to nearest even: a sum in f32 is exact enough to be rounded twice."""
    total = b.fadd(*(b.cast("fpext", as_half(b, v), "float") for v in (x, y)))
    return half_bits(b, b.cast("fptrunc", total, "half"))


def add_float(b: Builder, x: Value, y: Value) -> Value:
    """f32 + f32, to nearest even."""
    return float_bits(b, b.fadd(b.bitcast(x, "float"), b.bitcast(y, "float")))


ADD: dict[str, Callable[[Builder, Value, Value], Value]] = {"f16": add_half, "f32": add_float}
"""IEEE addition by type."""


def quad_fma(b: Builder, pairs: list[tuple[Value, Value]], c: Value, d: str) -> Value:
    """m8n8k4 of f16: scalar arithmetic in f32. ``pairs`` are halves, ``c`` f32 bits; gives bits of ``d``."""
    wide = [tuple(b.cast("fpext", v, "float") for v in pair) for pair in pairs]
    start = b.bitcast(c, "float")
    if d == "f32":
        total = b.const("float", 0.0)
        for x, y in wide:
            total = b.intrinsic("fma", x, y, total)
        return float_bits(b, b.fadd(start, total))
    for i in (0, 2):
        product = b.fmul(*wide[i])
        start = b.fadd(start, b.intrinsic("fma", *wide[i + 1], product))
    return half_bits(b, b.cast("fptrunc", start, "half"))
