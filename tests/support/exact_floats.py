"""Floating point by exact rational arithmetic: the independent reference for rounding and flushing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

MODES = ("rn", "rz", "rm", "rp")


@dataclass(frozen=True)
class Format:
    """A binary interchange format."""

    name: str
    exponent_bits: int
    mantissa_bits: int

    @property
    def width(self) -> int:
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def bias(self) -> int:
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent_bits) - 1) << self.mantissa_bits

    @property
    def nan(self) -> int:
        """NVIDIA's NaN; f64 arithmetic makes another."""
        return 0xFFF8 << 48 if self.width == 64 else (1 << (self.width - 1)) - 1

    def sign(self, bits: int) -> int:
        return bits >> (self.width - 1)

    def magnitude(self, bits: int) -> int:
        return bits & ((1 << (self.width - 1)) - 1)

    def is_finite(self, bits: int) -> bool:
        return self.magnitude(bits) < self.infinity

    def is_nan(self, bits: int) -> bool:
        return self.magnitude(bits) > self.infinity

    def flush(self, bits: int) -> int:
        """Subnormal to zero of its sign."""
        return bits if self.magnitude(bits) >> self.mantissa_bits else bits - self.magnitude(bits)

    def value(self, bits: int) -> Fraction:
        """The number that finite bits stand for."""
        field, fraction = self.magnitude(bits) >> self.mantissa_bits, bits & ((1 << self.mantissa_bits) - 1)
        significand = fraction + ((1 << self.mantissa_bits) if field else 0)
        size = Fraction(significand) * Fraction(2) ** (max(field, 1) - self.bias - self.mantissa_bits)
        return -size if self.sign(bits) else size

    def round(self, value: Fraction, mode: str, *, negative_zero: bool = False, ftz: bool = False) -> int:
        """Bits of ``value``; an exact zero takes the sign asked for."""
        if value == 0:
            return int(negative_zero) << (self.width - 1)
        negative = value < 0
        size, sign = abs(value), int(negative) << (self.width - 1)
        toward = {
            "rn": "even",
            "rz": "down",
            "rm": "up" if negative else "down",
            "rp": "down" if negative else "up",
        }
        if ftz and _quantise(size, _exponent(size) - self.mantissa_bits, toward[mode]) < Fraction(2) ** (
            1 - self.bias
        ):
            return sign
        exponent = max(_exponent(size), 1 - self.bias) - self.mantissa_bits
        rounded = _quantise(size, exponent, toward[mode])
        largest = self.value(self.infinity - 1)
        if rounded > largest:
            return sign | (self.infinity - 1 if toward[mode] == "down" else self.infinity)
        units = int(rounded / Fraction(2) ** (1 - self.bias - self.mantissa_bits))
        if units < 1 << (self.mantissa_bits + 1):
            return sign | units
        exponent = _exponent(rounded)
        significand = int(rounded / Fraction(2) ** (exponent - self.mantissa_bits))
        return sign | (
            ((exponent + self.bias) << self.mantissa_bits) + significand - (1 << self.mantissa_bits)
        )


def _exponent(size: Fraction) -> int:
    """``floor(log2(size))``."""
    guess = size.numerator.bit_length() - size.denominator.bit_length()
    return guess if Fraction(2) ** guess <= size else guess - 1


def _quantise(size: Fraction, exponent: int, toward: str) -> Fraction:
    unit = Fraction(2) ** exponent
    scaled = size / unit
    whole = math.floor(scaled)
    rest = scaled - whole
    up = (
        rest > 0
        if toward == "up"
        else toward == "even" and (rest > Fraction(1, 2) or (2 * rest == 1 and whole & 1))
    )
    return (whole + bool(up)) * unit


F16, BF16 = Format("f16", 5, 10), Format("bf16", 8, 7)
F32, F64 = Format("f32", 8, 23), Format("f64", 11, 52)
FORMATS = {f.name: f for f in (F16, BF16, F32, F64)}


def square_root(value: Fraction, format: Format, mode: str, *, ftz: bool = False) -> int:
    """The rounded root of a positive number: from 200 bits of it and a sticky bit below them."""
    shift = 400 + (value.denominator.bit_length() & ~1)
    scaled = value * 2**shift
    root = math.isqrt(math.floor(scaled))
    sticky = Fraction(1, 4) if root * root != scaled else Fraction(0)
    return format.round((root + sticky) / Fraction(2) ** (shift // 2), mode, ftz=ftz)


def operands(format: Format, seed: int, count: int, number: int) -> list[np.ndarray]:
    """``number`` arrays: every combination of edge values that fits, then related and uniform random ones."""
    random = np.random.default_rng(seed)
    one, top = format.bias << format.mantissa_bits, format.infinity
    hidden = 1 << format.mantissa_bits
    sizes = [0, 1, 2, hidden - 1, hidden, hidden + 1, one - 1, one, one + 1, one + hidden // 2, top - 1, top]
    sizes += [top | hidden // 2, top | 1, 3 * hidden, one + hidden * (format.mantissa_bits + 1)]
    edges = np.array([s | sign << (format.width - 1) for s in sizes for sign in (0, 1)], dtype=np.uint64)
    grid = np.array(np.meshgrid(*[edges] * number)).reshape(number, -1)
    chosen = grid[:, random.permutation(grid.shape[1])[: count // 2]]
    fields = random.integers(0, (1 << format.exponent_bits) - 1, count)
    arrays = []
    for position in range(number):
        near = fields if position == 0 else fields + random.integers(-4 - format.mantissa_bits, 5, count)
        if position == 1:  # products near both ends of the range
            near = np.where(
                random.random(count) < 0.5, format.bias - fields + random.integers(-3, 4, count), near
            )
            near = np.where(
                random.random(count) < 0.3, 3 * format.bias - fields + random.integers(-3, 4, count), near
            )
        field = np.clip(near, 0, (1 << format.exponent_bits) - 2).astype(np.uint64)
        mantissa = random.integers(0, hidden, count, dtype=np.uint64)
        mantissa = np.where(random.random(count) < 0.3, mantissa & np.uint64(hidden - hidden // 8), mantissa)
        signs = random.integers(0, 2, count, dtype=np.uint64) << np.uint64(format.width - 1)
        arrays.append(
            np.concatenate([chosen[position], signs | field << np.uint64(format.mantissa_bits) | mantissa])
        )
    return arrays
