"""Floating-point numbers, exactly (PTX ISA 5.2, 9.7.3; IEEE 754-2019, 4.3 and 7).

Formats of up to 32 bits are computed in f64: a product of two is exact there, and a sum or quotient is
*rounded to odd*: where it is inexact, its last bit is set. Such a value lies on the same side of every
number and of every middle between two numbers of the narrower format as the exact one does, so
:func:`narrow` rounds it as if it were exact (Boldo and Melquiond, "Emulation of FMA and correctly rounded
sums", 2008). f64 itself is computed with integers (:mod:`.doubles`).
"""

from __future__ import annotations

import numpy as np

from zluda.device.interpreter.values import UNSIGNED, Bits
from zluda.records import dataclass


@dataclass(frozen=True, slots=True)
class Format:
    """A binary format: bits of the whole and of its fraction; ``nan`` are the bits of NVIDIA's one NaN."""

    bits: int
    fraction: int
    nan: int

    @property
    def bias(self) -> int:
        return (1 << (self.bits - self.fraction - 2)) - 1

    @property
    def lowest(self) -> int:
        """The exponent of the smallest normal number."""
        return 1 - self.bias

    @property
    def infinity(self) -> int:
        return ((1 << (self.bits - self.fraction - 1)) - 1) << self.fraction


F16, BF16 = Format(16, 10, 0x7FFF), Format(16, 7, 0x7FFF)
F32, F64 = Format(32, 23, 0x7FFFFFFF), Format(64, 52, 0xFFF8 << 48)
FORMATS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}
ELEMENTS = {"f16x2": "f16", "bf16x2": "bf16", "f32x2": "f32"}
"""Packed type → what it is two of."""

_SIGN, _FRACTION = np.uint64(1 << 63), np.uint64((1 << 52) - 1)


def is_nan(bits: Bits, of: Format) -> Bits:
    """Whether each is a NaN of its format."""
    return np.asarray((bits & bits.dtype.type((1 << (of.bits - 1)) - 1)) > of.infinity)


def widen(bits: Bits, of: Format) -> Bits:
    """The numbers as f64, which holds all of them."""
    if of is BF16:
        bits = bits.astype(np.uint32) << np.uint32(16)
        of = F32
    kind = {16: np.float16, 32: np.float32, 64: np.float64}[of.bits]
    return np.ascontiguousarray(bits).view(kind).astype(np.float64)


def flush(bits: Bits, of: Format) -> Bits:
    """``.ftz`` of an operand: subnormal numbers become zeros of their sign (PTX ISA 9.7.3)."""
    kind = bits.dtype.type
    small = (bits & kind(of.infinity)) == 0
    return np.where(small, bits & kind(1 << (of.bits - 1)), bits)


def odd(nearest: Bits, error: Bits) -> Bits:
    """``nearest + error``, of which ``nearest`` is the sum to nearest, rounded to odd."""
    even = (nearest.view(np.uint64) & np.uint64(1)) == 0
    toward = np.nextafter(nearest, np.where(error > 0, np.inf, -np.inf))
    return np.where(np.isfinite(nearest) & (error != 0) & even, toward, nearest)


def two_sum(x: Bits, y: Bits) -> tuple[Bits, Bits]:
    """The sum to nearest and its error, exactly (Knuth, TAOCP 4.2.2, theorem C)."""
    total = x + y
    part = total - x
    error = (x - (total - part)) + (y - part)
    return total, np.where(np.isfinite(total), error, 0.0)


def add(x: Bits, y: Bits, mode: str = "rn") -> Bits:
    """A sum, rounded to odd; nothing is -0 where it is rounded down (IEEE 754-2019, 6.3)."""
    total = odd(*two_sum(x, y))
    if mode == "rm":
        total = np.where((total == 0) & (np.signbit(x) | np.signbit(y)), -0.0, total)
    return total


def fma(x: Bits, y: Bits, z: Bits, mode: str = "rn") -> Bits:
    """``x * y + z``, rounded to odd, of numbers of at most 24 bits."""
    return add(x * y, z, mode)


def divide(x: Bits, y: Bits) -> Bits:
    """A quotient of numbers of at most 24 bits, rounded to odd at 41 bits: enough for f32."""
    special = x / y  # of zeros, infinities, NaN
    usual = np.isfinite(x) & np.isfinite(y) & (x != 0) & (y != 0)
    (m, e), (n, d) = np.frexp(np.where(usual, np.abs(x), 1.0)), np.frexp(np.where(usual, np.abs(y), 1.0))
    m, n = (np.ldexp(part, 24).astype(np.uint64) for part in (m, n))
    quotient, rest = np.divmod(m << np.uint64(39), n)
    value = np.ldexp((quotient << np.uint64(1) | (rest != 0)).astype(np.float64), e - d - 40)
    return np.where(usual, np.copysign(value, special), special)


def root(x: Bits) -> Bits:
    """A square root of a number of at most 24 bits, rounded to odd at 27 bits: enough for f32."""
    usual = np.isfinite(x) & (x > 0)
    m, e = np.frexp(np.where(usual, x, 1.0))
    m, e = np.where(e & 1, 2 * m, m), e - (e & 1)
    square = np.ldexp(m, 52).astype(np.int64)
    found = np.sqrt(square.astype(np.float64)).astype(np.int64)
    found -= found * found > square
    found += (found + 1) * (found + 1) <= square
    value = np.ldexp((2 * found + (found * found != square)).astype(np.float64), e // 2 - 27)
    return np.where(usual, value, np.sqrt(x))


def narrow(x: Bits, of: Format, mode: str = "rn", *, ftz: bool = False) -> Bits:
    """f64 values, exact or rounded to odd, rounded to a format; bits. NaN is the format's own.

    ``mode`` is ``rn rz rm rp``, or ``rna`` (to nearest, halves away from zero). With ``ftz`` a result that is
    below the normal range after it is rounded to the format's precision becomes a zero.
    """
    word = np.ascontiguousarray(x).view(np.uint64)
    negative, field = (word & _SIGN) != 0, ((word >> np.uint64(52)) & np.uint64(0x7FF)).astype(np.int64)
    significand = ((word & _FRACTION) | np.where(field > 0, np.uint64(1 << 52), np.uint64(0))).astype(
        np.int64
    )
    exponent = np.maximum(field, 1) - 1023
    below = np.clip(of.lowest - exponent, 0, 60 - (52 - of.fraction))
    kept = _rounded(significand, 52 - of.fraction + below, negative, mode)
    normal = ((exponent - of.lowest) << of.fraction) + kept
    code = np.where(exponent >= of.lowest, normal, kept)
    if ftz:
        unbounded = _rounded(significand, np.full_like(below, 52 - of.fraction), negative, mode)
        reaches = (exponent == of.lowest - 1) & (unbounded >= 2 << of.fraction)
        code = np.where((exponent < of.lowest) & ~reaches, 0, code)
    away = {"rz": np.zeros_like(negative), "rp": ~negative, "rm": negative}.get(mode, np.ones_like(negative))
    code = np.where(code >= of.infinity, np.where(away, of.infinity, of.infinity - 1), code)
    code = np.where(np.isinf(x), of.infinity, code) | np.where(negative, 1 << (of.bits - 1), 0)
    return np.where(np.isnan(x), of.nan, code).astype(UNSIGNED[of.bits])


def _rounded(significand: Bits, shift: Bits, negative: Bits, mode: str) -> Bits:
    """``significand / 2^shift`` as an integer; ``shift`` is from 1 to 60."""
    kept, rest, half = significand >> shift, significand & ((1 << shift) - 1), np.int64(1) << (shift - 1)
    up = {
        "rn": (rest > half) | ((rest == half) & (kept & 1 == 1)),
        "rna": rest >= half,
        "rz": np.zeros_like(negative),
        "rp": (rest != 0) & ~negative,
        "rm": (rest != 0) & negative,
    }[mode]
    return np.asarray(kept + up)


def saturate(x: Bits) -> Bits:
    """``.sat``: into [0, 1]; NaN and -0 become +0 (PTX ISA 9.7.3)."""
    return np.where(x > 0, np.minimum(x, 1.0), 0.0)


def rectify(x: Bits) -> Bits:
    """``.relu``: negative numbers and -0 become +0, NaN stays (PTX ISA 9.7.4)."""
    return np.where(x <= 0, 0.0, x)
