"""``cvt`` between every pair of types, against exact rational arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import exact_floats as exact
import numpy as np
import pytest
from exact_floats import BF16, F32, F64, FORMATS, MODES, Format
from lane_harness import run, run_many
from test_integer import check, clamp, to_int, values

INTEGERS = [f"{sign}{width}" for width in (8, 16, 32, 64) for sign in "us"]
TO_INTEGRAL: dict[str, Callable[[Fraction], int]] = {
    "rni": round,  # Python rounds halves to even
    "rzi": math.trunc,
    "rmi": math.floor,
    "rpi": math.ceil,
}


def integers(kind: str) -> list[np.ndarray]:
    if kind[1:] == "8":
        return [np.arange(256, dtype=np.uint64)]
    return values(kind, 1, 1)


def reals(format: Format, seed: int = 2) -> np.ndarray:
    """Edges, numbers around every power of two up to 2^65 with halves, and uniform bits."""
    random = np.random.default_rng(seed)
    uniform = (
        random.integers(0, 1 << format.width, 300, dtype=np.uint64, endpoint=False)
        if format.width < 64
        else (random.integers(0, (1 << 64) - 1, 300, dtype=np.uint64))
    )
    near: list[int] = []
    for power in range(-3, 66):
        if power <= format.bias:
            bits = (format.bias + power) << format.mantissa_bits
            step = 1 << max(format.mantissa_bits - power - 1, 0)
            near += [bits, bits + 1, bits - 1, bits + step, bits + step + 1, bits + 3 * step]
    near = [x for x in near if x <= format.infinity]
    near += [x | 1 << (format.width - 1) for x in near]
    (edges,) = exact.operands(format, seed, 60, 1)
    return np.concatenate([edges, np.array(near, dtype=np.uint64), uniform])


@pytest.mark.parametrize("source", INTEGERS)
def test_integers_to_integers(source: str) -> None:
    inputs = integers(source)
    for target in INTEGERS:
        plain = run(f"cvt.{target}.{source} {{d}}, {{a}};", target, inputs, source)
        check(plain, inputs, [source], lambda x: x, f"cvt.{target}.{source}")
        if not (target[0] == source[0] and int(target[1:]) >= int(source[1:])) and not (
            source[0] == "u" and int(target[1:]) > int(source[1:])
        ):  # ptxas refuses .sat where nothing can saturate
            saturated = run(f"cvt.sat.{target}.{source} {{d}}, {{a}};", target, inputs, source)
            check(saturated, inputs, [source], lambda x, t=target: clamp(x, t), f"cvt.sat.{target}.{source}")


def test_narrow_results_extend_by_the_sign_of_their_type() -> None:
    x = np.array([0x80, 0x7F, 0x1FF, 0xFFFFFF80], dtype=np.uint64)
    signed, unsigned = run_many([(f"cvt.{t}.u32 {{d}}, {{a}};", "b32", "b32") for t in ("s8", "u8")], [x])
    assert signed.tolist() == [0xFFFFFF80, 0x7F, 0xFFFFFFFF, 0xFFFFFF80]
    assert unsigned.tolist() == [0x80, 0x7F, 0xFF, 0x80]


def to_integer(bits: int, format: Format, mode: str, kind: str, *, ftz: bool) -> int:
    width = int(kind[1:])
    bits = format.flush(bits) if ftz else bits
    if format.is_nan(bits):  # PTX ISA 9.7.9.21
        return 1 << (width - 1) if format is F64 or width == 64 else 0
    if not format.is_finite(bits):
        return clamp(-(1 << 99) if format.sign(bits) else 1 << 99, kind)
    return clamp(TO_INTEGRAL[mode](format.value(bits)), kind)


@pytest.mark.parametrize("name", FORMATS)
def test_reals_to_integers(name: str) -> None:
    format = FORMATS[name]
    x = reals(format)
    targets = [k for k in INTEGERS if name != "bf16" or k[1:] in ("32", "64")]
    variants = [
        (m, k, f)
        for m in TO_INTEGRAL
        for k in targets
        for f in ((False, True) if name == "f32" else (False,))
    ]
    forms = [(f"cvt.{m}{'.ftz' if f else ''}.{k}.{name} {{d}}, {{a}};", k, name) for m, k, f in variants]
    for (body, _, _), (mode, kind, ftz), got in zip(forms, variants, run_many(forms, [x]), strict=True):
        check(
            got,
            [x],
            [f"u{format.width}"],
            lambda v, m=mode, k=kind, f=ftz: to_integer(v, format, m, k, ftz=f),
            body,
        )


@pytest.mark.parametrize(
    "source,name",
    [(k, f) for k in INTEGERS for f in FORMATS if (f, k[1:]) != ("bf16", "8")],  # PTX lacks that
)
def test_integers_to_reals(source: str, name: str) -> None:
    format, inputs = FORMATS[name], integers(source)
    forms = [(f"cvt.{mode}.{name}.{source} {{d}}, {{a}};", name, source) for mode in MODES]
    for mode, (body, _, _), got in zip(MODES, forms, run_many(forms, inputs), strict=True):
        check(got, inputs, [source], lambda x, m=mode: format.round(Fraction(x), m), body)


def shorten(bits: int, source: Format, target: Format, mode: str, *, ftz: bool = False) -> int:
    """One floating format rounded to another; NaN by its own rule."""
    if source.is_nan(bits):
        if source is not F64:
            return target.nan
        payload = (bits >> (52 - target.mantissa_bits)) & ((1 << target.mantissa_bits) - 1)
        quiet = target.infinity | 1 << (target.mantissa_bits - 1)
        return source.sign(bits) << (target.width - 1) | quiet | payload
    sign = source.sign(bits) << (target.width - 1)
    if not source.is_finite(bits):
        return sign | target.infinity
    return target.round(source.value(bits), mode, negative_zero=bool(sign), ftz=ftz)


@pytest.mark.parametrize(
    "source,target", [("f64", "f32"), ("f64", "f16"), ("f64", "bf16"), ("f32", "f16"), ("f32", "bf16")]
)
def test_reals_to_shorter_reals(source: str, target: str) -> None:
    wide, narrow = FORMATS[source], FORMATS[target]
    (x,) = exact.operands(wide, 3, 600, 1)
    bias = wide.bias - narrow.bias
    field = np.uint64(wide.mantissa_bits)
    scaled = (x >> field & np.uint64(narrow.infinity >> narrow.mantissa_bits)) + np.uint64(max(bias - 2, 0))
    inside = (
        x & np.uint64(~(((1 << wide.exponent_bits) - 1) << wide.mantissa_bits) & ((1 << wide.width) - 1))
        | scaled << field
    )
    inputs = [np.concatenate([x, inside, reals(wide)])]
    variants = [
        (m, ftz) for m in MODES for ftz in ((False, True) if (source, target) == ("f64", "f32") else (False,))
    ]
    forms = [
        (f"cvt.{m}{'.ftz' if f else ''}.{target}.{source} {{d}}, {{a}};", target, source) for m, f in variants
    ]
    for (mode, ftz), (body, _, _), got in zip(variants, forms, run_many(forms, inputs), strict=True):
        check(
            got, inputs, [f"u{wide.width}"], lambda v, m=mode, f=ftz: shorten(v, wide, narrow, m, ftz=f), body
        )


def test_reals_to_longer_reals_are_exact() -> None:
    for source, target in (("f16", "f32"), ("f16", "f64"), ("f32", "f64")):
        short, long = FORMATS[source], FORMATS[target]
        x = reals(short)
        x = x[[not short.is_nan(int(v)) for v in x]]
        got = run(f"cvt.{target}.{source} {{d}}, {{a}};", target, [x], source)
        check(
            got,
            [x],
            [f"u{short.width}"],
            lambda v, s=short, t=long: shorten(v, s, t, "rn"),
            f"cvt.{target}.{source}",
        )


@pytest.mark.parametrize("name", ["f16", "f32", "f64"])
def test_rounding_to_integral_values(name: str) -> None:
    format = FORMATS[name]
    x = reals(format)
    x = x[[format.is_finite(int(v)) for v in x]]
    forms = [(f"cvt.{mode}.{name}.{name} {{d}}, {{a}};", name, name) for mode in TO_INTEGRAL]
    for (mode, rounding), (body, _, _), got in zip(
        TO_INTEGRAL.items(), forms, run_many(forms, [x]), strict=True
    ):
        assert mode in body

        def reference(v: int, f: Callable[[Fraction], int] = rounding) -> int:
            return format.round(Fraction(f(format.value(v))), "rn", negative_zero=bool(format.sign(v)))

        check(got, [x], [f"u{format.width}"], reference, body)


def test_saturation_clamps_to_the_unit_interval_and_clears_nan() -> None:
    x = np.array([-1.0, -0.0, 0.25, 1.5, np.inf, -np.inf, np.nan], dtype=np.float32).view(np.uint32)
    got = run("cvt.sat.f32.f32 {d}, {a};", "f32", [x], "f32").view(np.float32)
    assert got.tolist() == [0, 0, 0.25, 1, 1, 0, 0]
    assert not np.signbit(got).any()


def test_a_move_keeps_the_nan_it_moves() -> None:
    x = np.array([0xFFC00003, 0x7F800001], dtype=np.uint64)
    assert run("cvt.f32.f32 {d}, {a};", "f32", [x], "f32").tolist() == x.tolist()


def test_packing_two_reals_puts_the_first_on_top() -> None:
    a, b = (np.array([v], dtype=np.float32).view(np.uint32) for v in (1.0, -2.0))
    half, bfloat = run_many(
        [(f"cvt.rn.{t}.f32 {{d}}, {{a}}, {{b}};", t, "f32 f32") for t in ("f16x2", "bf16x2")], [a, b]
    )
    assert hex(half[0]) == "0x3c00c000" and hex(bfloat[0]) == "0x3f80c000"
    (relu,) = run_many([("cvt.rn.relu.f16x2.f32 {d}, {a}, {b};", "f16x2", "f32 f32")], [a, b])
    assert hex(relu[0]) == "0x3c000000"


def test_satfinite_stops_at_the_largest_number() -> None:
    x = np.array([1e30, -1e30, np.inf, 2.0], dtype=np.float32).view(np.uint32)
    got = run("cvt.rn.satfinite.f16.f32 {d}, {a};", "b16", [x], "f32").view(np.float16)
    assert got.tolist() == [65504.0, -65504.0, 65504.0, 2.0]


def test_tf32_has_ten_mantissa_bits() -> None:
    x = np.array([0x3F801000, 0x3F800FFF, 0x3F803000, 0xBF801001, 0x7F7FFFFF, 0x7F800000], dtype=np.uint64)
    away, even, zero = run_many(
        [(f"cvt.{m}.tf32.f32 {{d}}, {{a}};", "b32", "f32") for m in ("rna", "rn", "rz")], [x]
    )
    assert [hex(v) for v in away] == [
        "0x3f802000",
        "0x3f800000",
        "0x3f804000",
        "0xbf802000",
        "0x7f800000",
        "0x7f800000",
    ]
    assert [hex(v) for v in even] == [
        "0x3f800000",
        "0x3f800000",
        "0x3f804000",
        "0xbf802000",
        "0x7f800000",
        "0x7f800000",
    ]
    assert [hex(v) for v in zero] == [
        "0x3f800000",
        "0x3f800000",
        "0x3f802000",
        "0xbf800000",
        "0x7f7fe000",
        "0x7f800000",
    ]


def test_packing_integers_saturates_and_shifts() -> None:
    a, b = (np.array([v], dtype=np.int64).astype(np.uint32) for v in (300, -5))
    c = np.array([0xABCD], dtype=np.uint32)
    forms = {"u8": 0xABCDFF00, "s8": 0xABCD7FFB, "u4": 0xABCDF0, "s4": 0xABCD7B, "u2": 0xABCDC, "s2": 0xABCD6}
    for kind, expected in forms.items():
        got = run(f"cvt.pack.sat.{kind}.s32.b32 {{d}}, {{a}}, {{b}}, {{c}};", "b32", [a, b, c], "s32 s32 b32")
        assert int(got[0]) == expected, kind
    assert int(run("cvt.pack.sat.s16.s32 {d}, {a}, {b};", "b32", [a, b], "s32 s32")[0]) == 0x012CFFFB


def test_bfloat_rounding_carries_into_the_exponent() -> None:
    assert BF16.round(F32.value(0x3FFFFFFF), "rn") == 0x4000
    assert int(run("cvt.rn.bf16.f32 {d}, {a};", "bf16", [np.array([0x3FFFFFFF])], "f32")[0]) == 0x4000
    assert to_int(0xFF, "s8") == -1
