"""Conversions to and from 8-, 6- and 4-bit floats, against tables of what each code is worth."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy
import pytest
from lane_harness import run


@dataclass(frozen=True)
class Kind:
    exponent: int
    mantissa: int
    bias: int
    special: str  # which codes are no numbers
    nan: int
    apart: int  # bits between the two of a pair

    @property
    def sign(self) -> int:
        return 1 << (self.exponent + self.mantissa)

    def value(self, code: int) -> float:
        """What a code without sign is worth; infinity and NaN as such."""
        e, m = code >> self.mantissa, code & ((1 << self.mantissa) - 1)
        if self.special == "ieee" and e == (1 << self.exponent) - 1:
            return math.nan if m else math.inf
        if self.special == "last" and code == self.sign - 1:
            return math.nan
        step = 2.0 ** (max(e, 1) - self.bias - self.mantissa)
        return (m + ((1 << self.mantissa) if e else 0)) * step

    def finite(self) -> list[float]:
        return [v for c in range(self.sign) if math.isfinite(v := self.value(c))]

    def code(self, x: float, *, relu: bool = False) -> int:
        """The nearest code, even where two are as near; saturated."""
        if math.isnan(x):
            return self.nan
        if relu and not x > 0:
            return 0
        numbers = self.finite()
        size = abs(x)
        best = min(range(len(numbers)), key=lambda c: (abs(numbers[c] - min(size, numbers[-1])), c & 1))
        return best | (self.sign if math.copysign(1, x) < 0 else 0)


KINDS = {
    "e4m3x2": Kind(4, 3, 7, "last", 0x7F, 8),
    "e5m2x2": Kind(5, 2, 15, "ieee", 0x7F, 8),
    "e2m3x2": Kind(2, 3, 1, "", 0x1F, 8),
    "e3m2x2": Kind(3, 2, 3, "", 0x1F, 8),
    "e2m1x2": Kind(2, 1, 1, "", 0x7, 4),
}


def _interesting(kind: Kind) -> numpy.ndarray:
    """Every number, the middles between, their neighbours, and what lies outside."""
    numbers = numpy.array(kind.finite(), dtype=numpy.float32)
    middles = (numbers[1:] + numbers[:-1]) / 2
    both = numpy.concatenate([numbers, middles, [numbers[-1] * 1.1, numbers[-1] * 3, 1e30, numpy.inf, 1e-40]])
    both = both.astype(numpy.float32)
    near = [numpy.nextafter(both, numpy.float32(d)) for d in (-numpy.inf, numpy.inf)]
    both = numpy.concatenate([both, *near])
    both = numpy.concatenate([both, -both, [numpy.nan, -numpy.nan]]).astype(numpy.float32)
    return both


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("name", list(KINDS))
def test_from_f32(name: str, relu: bool) -> None:
    kind = KINDS[name]
    x = _interesting(kind)
    y = x[::-1].copy()
    form = f"cvt.rn.satfinite{'.relu' if relu else ''}.{name}.f32"
    result = "b8" if kind.apart == 4 else "b16"
    text = f"{form} {{d}}, {{a}}, {{b}};"
    if result == "b8":
        text = f".reg .b8 %n; {form} %n, {{a}}, {{b}}; cvt.u16.u8 {{d}}, %n;"
    got = run(text, "u16", [x.view(numpy.uint32), y.view(numpy.uint32)], "f32 f32")
    expected = [
        kind.code(float(a), relu=relu) << kind.apart | kind.code(float(b), relu=relu)
        for a, b in zip(x, y, strict=True)
    ]
    assert got.tolist() == expected


@pytest.mark.parametrize("name", list(KINDS))
def test_from_f16_pairs(name: str) -> None:
    kind = KINDS[name]
    halves = numpy.arange(0, 65536, 7, dtype=numpy.uint16)
    pairs = halves.astype(numpy.uint32) << 16 | halves[::-1]
    form = f"cvt.rn.satfinite.{name}.f16x2"
    text = f"{form} {{d}}, {{a}};"
    if kind.apart == 4:
        text = f".reg .b8 %n; {form} %n, {{a}}; cvt.u16.u8 {{d}}, %n;"
    got = run(text, "u16", [pairs], "b32")
    high, low = (h.view(numpy.float16).astype(float) for h in (halves, halves[::-1].copy()))
    expected = [kind.code(a) << kind.apart | kind.code(b) for a, b in zip(high, low, strict=True)]
    assert got.tolist() == expected


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("name", list(KINDS))
def test_to_f16_pairs(name: str, relu: bool) -> None:
    kind = KINDS[name]
    count = 1 << 2 * kind.apart
    codes = numpy.arange(count, dtype=numpy.uint16)
    form = f"cvt.rn{'.relu' if relu else ''}.f16x2.{name}"
    text = f"{form} {{d}}, {{a}};"
    if kind.apart == 4:
        text = f".reg .b8 %n; cvt.u8.u16 %n, {{a}}; {form} {{d}}, %n;"
    got = run(text, "u32", [codes], "b16")

    def widened(code: int) -> int:
        value = kind.value(code & (kind.sign - 1))
        if math.isnan(value):
            return 0x7FFF
        if code & kind.sign:
            value = 0.0 if relu else -value
        return int(numpy.float16(value).view(numpy.uint16))

    mask = 2 * kind.sign - 1
    expected = [widened(int(c) >> kind.apart & mask) << 16 | widened(int(c) & mask) for c in codes.tolist()]
    assert got.tolist() == expected


@pytest.mark.parametrize("mode", ["rz", "rp"])
@pytest.mark.parametrize("satfinite", ["", ".satfinite"])
def test_powers_of_two(mode: str, satfinite: str) -> None:
    exponents = numpy.arange(-149, 128)
    x = numpy.concatenate([numpy.ldexp(f, exponents) for f in (1.0, 1.25, 1.9999999)]).astype(numpy.float32)
    x = numpy.concatenate([x, [0, numpy.inf, numpy.nan]]).astype(numpy.float32)
    y = numpy.zeros_like(x)
    text = f"cvt.{mode}{satfinite}.ue8m0x2.f32 {{d}}, {{a}}, {{b}};"
    got = run(text, "u16", [x.view(numpy.uint32), y.view(numpy.uint32)], "f32 f32") >> 8

    def code(value: float) -> int:
        if math.isnan(value):
            return 0xFF
        if math.isinf(value):
            return 0xFE if satfinite else 0xFF
        if value <= 2.0**-127:
            return 0
        exponent = math.floor(math.log2(value))
        if mode == "rp" and value > 2.0**exponent:
            exponent += 1
        found = min(exponent + 127, 255)
        return min(found, 0xFE) if satfinite else found

    assert got.tolist() == [code(float(v)) for v in x]


def test_powers_of_two_as_bf16() -> None:
    codes = numpy.arange(65536, dtype=numpy.uint16)
    got = run("cvt.rn.bf16x2.ue8m0x2 {d}, {a};", "u32", [codes], "b16")

    def bits(code: int) -> int:
        return {0: 0x0040, 255: 0x7FFF}.get(code, code << 7)

    assert got.tolist() == [bits(c >> 8) << 16 | bits(c & 255) for c in range(65536)]
