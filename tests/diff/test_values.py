"""Buffers compared as numbers: what differs, by how much, and of which kind the difference is."""

from __future__ import annotations

import math
import struct
import sys
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import zluda
from zluda.diff.kinds import ELEMENT_TYPES
from zluda.diff.metrics import CLASSES
from zluda.diff.values import combine, compare, with_equal

FLOATS = ["f16", "bf16", "f32", "f64"]
NAMES = [name for name in ELEMENT_TYPES if not name.startswith("b") or name in ("bf16", "bytes")]
types = st.sampled_from(NAMES)


def number(bits: int, name: str) -> float:
    """The float of a bit pattern, by struct alone."""
    if name == "bf16":
        bits, name = bits << 16, "f32"
    code, size = {"f16": ("e", 2), "f32": ("f", 4), "f64": ("d", 8)}[name]
    value: float = struct.unpack(f"<{code}", bits.to_bytes(size, "little"))[0]
    return value


def bits(value: float, name: str) -> bytes:
    code = {"f16": "e", "f32": "f", "f64": "d"}[name]
    return struct.pack(f"<{code}", value)


@given(types, st.binary(max_size=64), st.integers(0, 9))
def test_a_buffer_is_identical_to_itself(name: str, data: bytes, offset: int) -> None:
    """NaNs of any payload included: equality is by bits."""
    found = compare(data, bytes(data), name, offset=offset)
    assert found.identical
    assert found.bytes_compared == len(data)
    assert (found.first, found.max_ulp, found.classes) == ((), None, {})


@given(types, st.binary(min_size=1, max_size=64), st.integers(0, 15), st.data())
def test_a_single_flipped_bit_is_always_found(
    name: str, data: bytes, offset: int, draw: st.DataObject
) -> None:
    at = draw.draw(st.integers(0, 8 * len(data) - 1))
    flipped = bytearray(data)
    flipped[at // 8] ^= 1 << at % 8
    found = compare(data, bytes(flipped), name, base=4096, offset=offset)
    kind = ELEMENT_TYPES[name]
    half = at // 4 % 2 if kind.packed == 2 else 0
    assert found.differing == 1
    (element,) = found.first
    assert element.index == (offset + at // 8) // kind.size * kind.packed + half
    assert element.address == 4096 + element.index // kind.packed * kind.size
    assert (element.recorded_bits ^ element.replayed_bits).bit_count() == 1
    assert sum(found.classes.values()) == 1


@given(types, st.binary(min_size=8, max_size=64), st.data())
def test_comparison_is_symmetric(name: str, left: bytes, draw: st.DataObject) -> None:
    """In everything but the ULP, whose unit is the record's, and the relative error."""
    right = draw.draw(st.binary(min_size=len(left), max_size=len(left)))
    one, other = compare(left, right, name), compare(right, left, name)
    assert (one.differing, one.classes, one.max_absolute) == (
        other.differing,
        other.classes,
        other.max_absolute,
    )
    assert [e.recorded_bits for e in one.first] == [e.replayed_bits for e in other.first]


@given(st.sampled_from(FLOATS), st.data())
def test_ulp_against_exact_fractions(name: str, draw: st.DataObject) -> None:
    kind = ELEMENT_TYPES[name]
    pattern = st.integers(0, (1 << 8 * kind.size) - 1)
    left = draw.draw(pattern)
    near = draw.draw(st.integers(-40, 40))
    right = draw.draw(st.just((left + near) % (1 << 8 * kind.size)) | pattern)
    a, b = number(left, name), number(right, name)
    assume(left != right and math.isfinite(a) and math.isfinite(b))
    exponent = max(math.frexp(a)[1] - 1, kind.min_exponent) if a else kind.min_exponent
    exact = abs(Fraction(a) - Fraction(b)) / Fraction(2) ** (exponent - kind.mantissa)
    found = compare(left.to_bytes(kind.size, "little"), right.to_bytes(kind.size, "little"), name)
    ulp = found.first[0].ulp
    assert ulp is not None
    assert found.max_ulp == (None if "flushed" in found.classes else ulp)
    assert ulp == pytest.approx(float(min(exact, Fraction(sys.float_info.max))), rel=1e-15)


def test_neighbours_are_one_ulp_apart_at_the_bottom_of_each_range() -> None:
    for name in FLOATS:
        size = ELEMENT_TYPES[name].size
        smallest = compare(bytes(size), (1).to_bytes(size, "little"), name)
        assert smallest.first[0].ulp == 1.0  # zero and the smallest subnormal


def test_the_largest_number_is_never_infinity() -> None:
    infinity = bits(math.inf, "f32")
    largest = struct.pack("<I", 0x7F7FFFFF)
    found = compare(largest, infinity, "f32")
    assert found.differing == 1
    assert found.first[0].ulp is None
    assert (found.max_ulp, found.max_absolute) == (None, None)
    assert found.classes == {"infinity": 1}


@pytest.mark.parametrize(
    ("recorded", "replayed", "kind"),
    [
        (0x3F800000, 0x3F800001, "value"),
        (0x00000000, 0x80000000, "zero-sign"),
        (0x7FC00000, 0x7FFFFFFF, "nan-payload"),
        (0x7FC00000, 0x3F800000, "nan"),
        (0x7FC00000, 0x7F800000, "nan"),
        (0x7F800000, 0xFF800000, "infinity"),
        (0x00000001, 0x00000000, "flushed"),
        (0x80000000, 0x807FFFFF, "flushed"),
        (0x00000001, 0x00000002, "subnormal"),
        (0x00800000, 0x007FFFFF, "subnormal"),
    ],
)
def test_classes(recorded: int, replayed: int, kind: str) -> None:
    assert kind in CLASSES
    found = compare(struct.pack("<I", recorded), struct.pack("<I", replayed), "f32")
    assert found.classes == {kind: 1}


def test_distances_of_integers_are_exact() -> None:
    found = compare(struct.pack("<q", -(2**63)), struct.pack("<q", 2**63 - 1), "s64")
    assert found.max_absolute == 2**64 - 1
    assert found.max_ulp is None
    assert (found.first[0].recorded, found.first[0].replayed) == (-(2**63), 2**63 - 1)
    assert compare(b"\xff", b"\x01", "s8").max_absolute == 2
    assert compare(b"\xff", b"\x01", "u8").max_absolute == 254


def test_distances_of_f64_never_become_infinite() -> None:
    big = struct.unpack("<d", struct.pack("<Q", 0x7FEFFFFFFFFFFFFF))[0]
    found = compare(bits(-big, "f64"), bits(big, "f64"), "f64")
    assert found.max_absolute == big
    assert found.max_ulp == 2.0**54 - 2
    assert compare(bits(5e-324, "f64"), bits(big, "f64"), "f64").max_ulp == big


def test_unknown_bytes_are_not_compared() -> None:
    left, right = struct.pack("<4I", 1, 2, 3, 4), struct.pack("<4I", 1, 9, 9, 4)
    known = b"\1" * 4 + b"\0" * 4 + b"\1" * 8
    found = compare(left, right, "u32", known=known)
    assert (found.differing, found.bytes_compared, found.first[0].index) == (1, 12, 2)
    assert compare(left, right, "u32", known=bytes(16)).identical


def test_elements_lie_on_the_grid_of_the_allocation() -> None:
    """A range that starts inside an element compares the part of it that it has."""
    found = compare(b"\x00\x01" + bytes(4), b"\x00\x02" + bytes(4), "u32", base=0x1000, offset=6)
    (element,) = found.first
    assert (element.index, element.address) == (1, 0x1004)
    assert (element.recorded, element.replayed) == (0x0100_0000, 0x0200_0000)
    assert found.elements == 2


def test_only_the_first_elements_are_kept_and_all_are_counted() -> None:
    found = compare(bytes(400), b"\1" * 400, "u32", first=3)
    assert (found.differing, found.elements) == (100, 100)
    assert [element.index for element in found.first] == [0, 1, 2]


def test_lengths_must_agree() -> None:
    with pytest.raises(ValueError, match="same length"):
        compare(b"ab", b"a", "u8")
    with pytest.raises(ValueError, match="same length"):
        compare(b"ab", b"ab", "u8", known=b"\1")


def test_an_element_type_that_is_not_known_is_named() -> None:
    with pytest.raises(zluda.UnsupportedError, match="element type f6"):
        compare(b"a", b"b", "f6")


@given(st.sampled_from(FLOATS), st.integers(1, 12), st.data())
def test_parts_combine_to_the_whole(name: str, elements: int, draw: st.DataObject) -> None:
    size = ELEMENT_TYPES[name].size
    total = elements * size
    left = draw.draw(st.binary(min_size=total, max_size=total))
    right = draw.draw(st.binary(min_size=total, max_size=total))
    cut = draw.draw(st.integers(0, elements)) * size
    parts = [
        compare(left[:cut], right[:cut], name, base=64),
        compare(left[cut:], right[cut:], name, base=64, offset=cut),
    ]
    whole, combined = compare(left, right, name, base=64), combine(parts)
    for part, at in zip(parts, (0, cut), strict=True):
        if part.identical and not whole.identical:
            combined = with_equal(combined, [(at, left[at : at + part.size])])
    # NaN is not equal to itself
    assert repr(replace(combined, metrics=())) == repr(replace(whole, metrics=()))
    for one, other in zip(combined.metrics, whole.metrics, strict=True):
        assert one.nmse == pytest.approx(other.nmse)
        assert replace(one, error=other.error, energy=other.energy) == other
    with pytest.raises(ValueError, match="one allocation"):
        combine([whole, compare(b"", b"", name, base=65)])
