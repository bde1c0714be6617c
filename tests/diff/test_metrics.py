"""Metrics of two buffers against a slow, exact reference, in fractions."""

from __future__ import annotations

import math
import struct
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zluda.diff import metrics
from zluda.diff.kinds import ELEMENT_TYPES, ElementType, element_type
from zluda.diff.metrics import EDGES, KINDS, Metrics, Scaled, merged, metrics_of
from zluda.diff.types.override import parse_layout
from zluda.diff.values import compare

FLOATS = sorted({kind.name for kind in ELEMENT_TYPES.values() if kind.kind == "float"})
INTEGERS = ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"]

# (exponent bits, mantissa bits, what the largest exponent holds): IEEE 754 and PTX ISA 5.2.3.
FORMATS = {
    "f64": (11, 52, "ieee"),
    "f32": (8, 23, "ieee"),
    "tf32": (8, 23, "ieee"),
    "f16": (5, 10, "ieee"),
    "bf16": (8, 7, "ieee"),
    "e5m2": (5, 2, "ieee"),
    "e4m3": (4, 3, "nan"),
    "e3m2": (3, 2, "none"),
    "e2m3": (2, 3, "none"),
    "e2m1": (2, 1, "none"),
}

few = settings(max_examples=25, deadline=None)

Number = Fraction | str
"""A finite number, or ``inf``, ``-inf``, ``nan``."""


def decoded(bits: int, name: str) -> tuple[Number, str]:
    """A bit pattern's value and kind, by the format alone."""
    if name == "ue8m0":
        return ("nan", "nan") if bits == 0xFF else (Fraction(2) ** (bits - 127), "normal")
    width, stored, specials = FORMATS[name]
    sign = -1 if bits >> (width + stored) & 1 else 1
    exponent, fraction = bits >> stored & ((1 << width) - 1), bits & ((1 << stored) - 1)
    top, bias = (1 << width) - 1, (1 << (width - 1)) - 1
    if specials == "ieee" and exponent == top:
        return ("nan", "nan") if fraction else ("inf" if sign > 0 else "-inf", "infinity")
    if specials == "nan" and exponent == top and fraction == (1 << stored) - 1:
        return "nan", "nan"
    if exponent == 0:
        kind = "subnormal" if fraction else ("+0" if sign > 0 else "-0")
        return sign * Fraction(fraction, 1 << stored) * Fraction(2) ** (1 - bias), kind
    return sign * (1 + Fraction(fraction, 1 << stored)) * Fraction(2) ** (exponent - bias), "normal"


def unit(value: Fraction, name: str) -> Fraction:
    """One in the last place of ``value``, whose exponent is clamped at the smallest normal."""
    kind = element_type(name)
    exponent = kind.min_exponent
    if value:
        guess = abs(value).numerator.bit_length() - value.denominator.bit_length()  # or one less
        exponent = max(exponent, guess if abs(value) >= Fraction(2) ** guess else guess - 1)
    return Fraction(2) ** (exponent - kind.mantissa)


def reference(left: list[int], right: list[int], name: str) -> dict[str, object]:
    """What Metrics should say of floats."""
    classes: Counter[str] = Counter()
    steps: Counter[float] = Counter()
    kinds: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    ulps, absolutes, relatives = [], [], []
    error = energy = Fraction(0)
    for one, other in zip(left, right, strict=True):
        (a, kind), (b, other_kind) = decoded(one, name), decoded(other, name)
        kinds[0][kind] += 1
        kinds[1][other_kind] += 1
        if isinstance(a, Fraction):
            energy += a * a
        if one == other:
            continue
        seen = {kind, other_kind}
        if isinstance(a, Fraction) and isinstance(b, Fraction):
            error += (a - b) ** 2
        if seen == {"nan"}:
            classes["nan-payload"] += 1
        elif "nan" in seen or "infinity" in seen:
            classes["nan" if "nan" in seen else "infinity"] += 1
        elif "subnormal" in seen and seen & {"+0", "-0"}:
            classes["flushed"] += 1
        else:
            assert isinstance(a, Fraction)
            assert isinstance(b, Fraction)
            zeros = seen <= {"+0", "-0"}
            classes["zero-sign" if zeros else "subnormal" if "subnormal" in seen else "value"] += 1
            distance = abs(a - b) / unit(a, name)
            ulps.append(distance)
            absolutes.append(abs(a - b))
            relatives.append(abs(a - b) / abs(a) if a else Fraction(0))
            steps[next(edge for edge in EDGES if edge == math.inf or distance <= Fraction(edge))] += 1
    return {
        "classes": dict(classes),
        "steps": sorted(steps.items()),
        "kinds": tuple(dict(one) for one in kinds),
        "largest": [max(found, default=None) for found in (ulps, absolutes, relatives)],
        "nmse": (error, energy),
    }


def near(found: float | None, exact: Fraction | None) -> bool:
    """Whether a float64 is an exact number, but for a rounding or two; its largest stands for all beyond."""
    if found is None or exact is None:
        return found is None and exact is None
    if exact > Fraction(np.finfo(np.float64).max):
        return found == np.finfo(np.float64).max
    # A quotient below the normals is rounded to a multiple of 2**-1074.
    return abs(Fraction(found) - exact) <= exact * Fraction(1, 1 << 50) + Fraction(1, 1 << 1073)


def patterns(kind: ElementType) -> st.SearchStrategy[int]:
    """Any, and those at the seams: zeros, subnormals, the largest numbers, infinities, NaNs."""
    top = 1 << (kind.bits - 1)
    stored = FORMATS.get(kind.name, (0, 0, ""))[1]
    seams = [at + step for at in (0, 1 << stored, top - (1 << stored), top - 1) for step in (-1, 0, 1)]
    both = [sign + at for at in seams for sign in (0, top) if 0 <= sign + at < 2 * top]
    return st.integers(0, 2 * top - 1) | st.sampled_from(both)


def array(values: list[int], kind: ElementType) -> np.ndarray:
    return np.array(values, f"<u{kind.size}")


@pytest.mark.parametrize("name", FLOATS)
@few
@given(data=st.data())
def test_floats_against_fractions(name: str, data: st.DataObject) -> None:
    kind = element_type(name)
    left = data.draw(st.lists(patterns(kind), min_size=1, max_size=12))
    same_or_near = [
        st.just(bits) | patterns(kind) | st.integers(max(bits - 3, 0), min(bits + 3, (1 << kind.bits) - 1))
        for bits in left
    ]
    right = [data.draw(one) for one in same_or_near]
    found = metrics_of(array(left, kind), array(right, kind), kind)
    expected = reference(left, right, name)
    assert found.elements == len(left)
    assert found.equal == sum(a == b for a, b in zip(left, right, strict=True))
    assert dict(found.classes) == expected["classes"]
    assert found.steps == expected["steps"]
    assert (dict(found.recorded), dict(found.replayed)) == expected["kinds"]
    largest = (found.max_ulp, found.max_absolute, found.max_relative)
    assert [near(a, b) for a, b in zip(largest, expected["largest"], strict=True)] == [True] * 3  # type: ignore[call-overload]
    error, energy = expected["nmse"]  # type: ignore[misc]
    if energy and error / energy < Fraction(2) ** 1000:
        assert found.nmse == pytest.approx(float(error / energy), rel=1e-12)


@pytest.mark.parametrize("name", INTEGERS)
@few
@given(data=st.data())
def test_integers_against_python(name: str, data: st.DataObject) -> None:
    kind = element_type(name)
    low = -(1 << (8 * kind.size - 1)) if kind.kind == "signed" else 0
    high = low + (1 << 8 * kind.size) - 1
    pairs = data.draw(st.lists(st.tuples(*(st.integers(low, high),) * 2), min_size=1, max_size=12))
    left, right = ([value % (1 << 8 * kind.size) for value in side] for side in zip(*pairs, strict=True))
    found = metrics_of(array(left, kind), array(right, kind), kind)
    apart = [abs(a - b) for a, b in pairs if a != b]
    assert found.differing == len(apart)
    assert found.max_absolute == max(apart, default=None)
    assert (found.max_ulp, dict(found.recorded)) == (None, {})
    assert sum(count for _, count in found.steps) == len(apart)


@few
@given(st.sampled_from(FLOATS), st.data(), st.integers(0, 20))
def test_metrics_of_parts_are_merged_to_those_of_the_whole(name: str, data: st.DataObject, cut: int) -> None:
    kind = element_type(name)
    sides = [data.draw(st.lists(patterns(kind), min_size=20, max_size=20)) for _ in range(2)]
    left, right = (array(side, kind) for side in sides)
    whole = metrics_of(left, right, kind)
    parts = merged(metrics_of(left[:cut], right[:cut], kind), metrics_of(left[cut:], right[cut:], kind))
    for field in ("elements", "differing", "histogram", "max_ulp", "max_absolute", "max_relative"):
        assert getattr(parts, field) == getattr(whole, field)
    assert (parts.classes, parts.recorded, parts.replayed) == (whole.classes, whole.recorded, whole.replayed)
    assert parts.nmse == pytest.approx(whole.nmse, rel=1e-12)


def test_a_long_buffer_is_measured_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = element_type("f32")
    left = np.random.default_rng(1).standard_normal(1000).astype("<f4").view("<u4")
    right = left + (np.arange(1000) % 7 == 0)
    whole = metrics_of(left, right.astype("<u4"), kind)
    monkeypatch.setattr(metrics, "_CHUNK", 64)
    pieces = metrics_of(left, right.astype("<u4"), kind)
    assert pieces.histogram == whole.histogram
    assert pieces.nmse == pytest.approx(whole.nmse)


def only(found: Metrics, *names: str) -> list[object]:
    return [getattr(found, name) for name in names]


def test_the_largest_number_is_nowhere_near_infinity() -> None:
    left, right = struct.pack("<f", 3.4028234663852886e38), struct.pack("<f", math.inf)
    (found,) = compare(left, right, "f32").metrics
    assert only(found, "max_ulp", "max_absolute", "steps") == [None, None, []]
    assert found.classes == {"infinity": 1}


def test_a_flushed_subnormal_is_no_distance() -> None:
    """1e-40 is 71,362 units in the last place from zero."""
    (found,) = compare(struct.pack("<f", 1e-40), bytes(4), "f32").metrics
    assert only(found, "max_ulp", "steps") == [None, []]
    assert found.classes == {"flushed": 1}
    assert (found.recorded, found.replayed) == ({"subnormal": 1}, {"+0": 1})


def test_sums_of_squares_beyond_a_float64() -> None:
    kind = element_type("f64")
    left = np.array([1.5e308, -1.5e308, 1e-320], "<f8")
    right = np.array([-1.5e308, -1.5e308, 0.0], "<f8")
    found = metrics_of(left.view("<u8"), right.view("<u8"), kind)
    assert found.nmse == pytest.approx(2.0)
    assert Scaled(0.5, -3000).over(Scaled(0.5, -3001)) == 2.0
    assert Scaled(0.5, 3000).over(Scaled(0.5, -3000)) == math.inf


def test_structures_are_measured_field_by_field() -> None:
    layout = parse_layout("{f64, f32, u32}")
    rows = [(1.0, 2.0, 3), (4.0, 5.0, 6), (7.0, 8.0, 9)]
    left = b"".join(struct.pack("<dfI", *row) for row in rows)
    right = bytearray(left)
    right[16 + 8 : 16 + 12] = struct.pack("<f", 5.0000005)
    right[32 + 12] += 2
    found = compare(left, bytes(right), layout, base=4096)
    assert [(one.element_type, one.offset, one.differing) for one in found.metrics] == [
        ("f64", 0, 0),
        ("f32", 8, 1),
        ("u32", 12, 1),
    ]
    assert [(e.type, e.index, e.address - 4096, e.recorded, e.replayed) for e in found.first] == [
        ("f32", 1, 24, 5.0, pytest.approx(5.0000005)),
        ("u32", 2, 44, 9, 11),
    ]
    assert (found.element_type, found.differing, found.max_ulp) == ("{f64, f32, u32}", 2, 1.0)


def test_bytes_between_fields_are_compared_too() -> None:
    layout = parse_layout("{u32, f64}")  # 4 bytes of padding after the first
    changed = bytes([0, 0, 0, 0, 0, 9, *range(8)])
    found = compare(bytes([0] * 6 + [0, 0, *range(8)]), changed[:6] + bytes(2) + changed[6:], layout)
    assert found.differing == 1
    assert (found.first[0].type, found.first[0].address) == ("bytes", 5)


def test_a_structure_that_a_range_cuts_counts_what_was_compared_only() -> None:
    layout = parse_layout("{f32, f32}")
    left = struct.pack("<3f", 1, 2, 3)
    right = struct.pack("<3f", 1, 2, 4)
    found = compare(left, right, layout, offset=4)
    assert [one.elements for one in found.metrics] == [1, 2]
    assert found.first[0].address == 12


def test_numbers_of_four_bits_are_two_a_byte() -> None:
    found = compare(bytes([0x21, 0x43]), bytes([0x21, 0x53]), "e2m1")
    (element,) = found.first
    assert (element.index, element.address, element.recorded, element.replayed) == (3, 1, 2.0, 3.0)
    assert found.metrics[0].elements == 4


def test_every_kind_of_number_is_counted_on_both_sides() -> None:
    values = [1.0, 1e-40, 0.0, -0.0, math.inf, math.nan]
    left = struct.pack("<6f", *values)
    (found,) = compare(left, struct.pack("<6f", *values[::-1]), "f32").metrics
    assert found.recorded == found.replayed == dict.fromkeys(KINDS, 1)


@pytest.mark.parametrize("name", ["e4m3", "e5m2", "e3m2", "e2m1", "ue8m0"])
def test_many_small_floats_have_the_metrics_of_their_parts(name: str) -> None:
    """From 65,536 elements on pairs of bytes are counted, not elements."""
    kind = element_type(name)
    random = np.random.default_rng(7)
    count = metrics._PAIRS + 5000
    left, right = (random.integers(0, 1 << kind.bits, count, dtype=np.uint8) for _ in range(2))
    parts = [
        metrics_of(left[at : at + 9000], right[at : at + 9000], kind, offset=3)
        for at in range(0, count, 9000)
    ]
    whole, summed = metrics_of(left, right, kind, offset=3), Metrics(kind.name, 3)
    for part in parts:
        summed = merged(summed, part)
    assert whole.nmse == pytest.approx(summed.nmse)
    for field in ("elements", "differing", "histogram", "classes", "recorded", "replayed"):
        assert getattr(whole, field) == getattr(summed, field), field
    for field in ("max_ulp", "max_absolute", "max_relative"):
        assert getattr(whole, field) == getattr(summed, field), field


@pytest.mark.parametrize(
    ("left", "right"),
    [(1e-300, 1e300), (1e300, 1e-300), (-1e308, 1e308), (2.3e-308, 2.2250738585072014e-308)],
)
def test_normal_numbers_far_apart_have_distances_as_single_elements_do(left: float, right: float) -> None:
    """Exponents whose difference a float64 does not hold are not taken from their bits."""
    kind = element_type("f64")
    a, b = (np.full(10, one).view("<u8") for one in (left, right))
    found = metrics_of(a, b, kind)
    assert found.max_ulp == metrics.ulp(np.array([left]), np.array([right]), kind)[0]
    assert found.max_ulp is not None and math.isfinite(found.max_ulp) and sum(found.histogram) == 10


@pytest.mark.parametrize("name", ["f64", "f32", "tf32", "f16", "bf16"])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_few_special_numbers_among_normal_ones_against_fractions(name: str, data: st.DataObject) -> None:
    """The special ones are measured apart from the others; together they are what single elements give."""
    kind = element_type(name)
    stored = FORMATS[name][1]
    top = (1 << (kind.bits - 1)) - (1 << stored)
    count = data.draw(st.integers(20, 40))
    normal = st.integers(1 << stored, top - 1)
    left = data.draw(st.lists(normal, min_size=count, max_size=count))
    right = [
        data.draw(normal if data.draw(st.booleans()) else st.integers(max(b - 2, 1 << stored), b))
        for b in left
    ]
    for side in (left, right):
        for place in data.draw(st.lists(st.integers(0, count - 1), max_size=2)):
            side[place] = data.draw(patterns(kind))
    cut = data.draw(st.integers(1, count))
    found = Metrics(kind.name)
    for part in (slice(0, cut), slice(cut, count)):
        if left[part]:
            found = merged(found, metrics_of(array(left[part], kind), array(right[part], kind), kind))
    expected = reference(left, right, name)
    assert dict(found.classes) == expected["classes"]
    assert found.differing == sum(a != b for a, b in zip(left, right, strict=True))
    assert found.steps == expected["steps"]
    assert (dict(found.recorded), dict(found.replayed)) == expected["kinds"]
    largest = (found.max_ulp, found.max_absolute, found.max_relative)
    assert [near(a, b) for a, b in zip(largest, expected["largest"], strict=True)] == [True] * 3  # type: ignore[call-overload]
    error, energy = expected["nmse"]  # type: ignore[misc]
    if energy and error / energy < Fraction(2) ** 1000:
        assert found.nmse == pytest.approx(float(error / energy), rel=1e-12)
