"""The reference of tensor-core arithmetic against an H200's results, and what it does at the edges."""

from __future__ import annotations

import numpy as np
import pytest
from tensor_vectors import Bits, Vector, vectors

from zluda.numerics.tensor_cores import double, fragments, operations, reference
from zluda.numerics.tensor_cores.formats import FLOATS
from zluda.numerics.tensor_cores.fragments import Fragment

F16, F32 = np.uint16, np.uint32


def with_sign_turned(bits: Bits) -> Bits:
    return bits ^ bits.dtype.type(1 << (bits.dtype.itemsize * 8 - 1))


def computed(v: Vector) -> Bits:
    """D by the reference."""
    a = with_sign_turned(v.a) if "a" in v.negated else v.a
    b = with_sign_turned(v.b) if "b" in v.negated else v.b
    if v.operation.rule == "fma":
        return double.dot(a, b, v.c, v.mode)
    if v.metadata is not None:
        return reference.sparse_dot(v.operation, a, b, v.c, v.metadata)
    d = v.c if v.scale_d else np.zeros_like(v.c)
    for _ in range(v.repeated):
        d = reference.dot(v.operation, a, b, d)
    return d


@pytest.mark.parametrize("name", vectors())
def test_reference_gives_the_bits_of_an_h200(name: str) -> None:
    v = vectors()[name]
    assert (computed(v) == v.d).all()


def test_every_form_was_recorded_but_those_that_are_others_code() -> None:
    recorded = {v.ptx.replace(".satfinite", "").replace(".xor.popc", ".and.popc") for v in vectors().values()}
    missing = []
    for shape, a, b, c in operations.mma_forms():
        popcount = ".and.popc" if a == "b1" else ""
        if f"mma.sync.aligned.{shape}.row.col.{c}.{a}.{b}.{c}{popcount}" not in recorded:
            missing.append(f"{shape} {a} {b} {c}")
    assert missing == UNRECORDED


# A mix of types of which each was recorded, in this shape or another.
UNRECORDED = [
    "m16n8k16 e4m3 e5m2 f32",
    "m16n8k16 e4m3 e5m2 f16",
    "m16n8k16 e5m2 e4m3 f32",
    "m16n8k16 e5m2 e4m3 f16",
    "m16n8k16 e5m2 e5m2 f16",
    "m16n8k32 e5m2 e4m3 f16",
    "m8n8k16 s8 u8 s32",
    "m8n8k16 u8 u8 s32",
    "m16n8k16 s8 u8 s32",
    "m16n8k16 u8 s8 s32",
    "m8n8k32 s4 u4 s32",
    "m8n8k32 u4 s4 s32",
    "m8n8k32 u4 u4 s32",
    "m16n8k32 s4 u4 s32",
    "m16n8k32 u4 s4 s32",
    "m16n8k64 u4 s4 s32",
    "m16n8k64 u4 u4 s32",
]


def one(rule_d: str, a: list[int], b: list[int], c: int) -> int:
    """One element of an f16 step over 16 products, the rest zeros."""
    form = operations.mma("m16n8k16", "f16", "f16", rule_d, rule_d)
    assert form is not None
    x, y = (np.zeros((1, 16), F16) for _ in "ab")
    x[0, : len(a)], y[0, : len(b)] = a, b
    return int(reference.dot(form.operation, x, y, np.array([[c]], F32 if rule_d == "f32" else F16))[0, 0])


ONE, TWO, MINUS_ONE, TINY, INFINITY, NAN = 0x3C00, 0x4000, 0xBC00, 0x0001, 0x7C00, 0x7E00


def test_zero_is_positive_whatever_the_signs() -> None:
    assert one("f32", [MINUS_ONE], [0], 0x80000000) == 0
    assert one("f32", [ONE, MINUS_ONE], [ONE, ONE], 0x80000000) == 0


def test_nan_is_one_pattern_and_infinities_meet_in_it() -> None:
    assert one("f32", [NAN], [ONE], 0) == 0x7FFFFFFF
    assert one("f32", [INFINITY], [0], 0) == 0x7FFFFFFF
    assert one("f32", [INFINITY], [ONE], 0xFF800000) == 0x7FFFFFFF
    assert one("f32", [INFINITY], [MINUS_ONE], 0) == 0xFF800000
    assert one("f16", [NAN], [ONE], 0) == 0x7FFF


def test_terms_far_below_the_largest_are_cut_off_not_rounded() -> None:
    largest = 0x4B800000  # 2^24
    almost = 0x3BFF  # just below 1
    assert one("f32", [almost], [ONE], largest) == largest
    # Two of 2^-1 make one unit only if neither is cut: 2^24 has a grid of 2^-1.
    assert one("f32", [0x3800, 0x3800, ONE], [ONE, ONE, ONE], largest) == largest + 1


def test_f32_is_rounded_toward_zero_and_f16_to_nearest_even() -> None:
    assert one("f32", [ONE], [ONE], 0x4B800001) == 0x4B800001  # 2^24 + 2 + 1
    assert one("f16", [0x6800], [ONE], ONE) == 0x6800  # 2048 + 1: a tie
    assert one("f16", [0x6800, ONE], [ONE, ONE], TWO) == 0x6802  # 2048 + 3: a tie, upward to even


def test_overflow_is_infinite_although_rounding_is_toward_zero() -> None:
    largest = 0x7F7FFFFF
    assert one("f32", [0], [0], largest) == largest
    form = operations.mma("m16n8k16", "bf16", "bf16", "f32", "f32")
    assert form is not None
    x, y = np.zeros((1, 16), F16), np.zeros((1, 16), F16)
    x[0, 0], y[0, 0] = 0x7F00, 0x3F80  # 2^127 * 1
    d = reference.dot(form.operation, x, y, np.array([[largest]], F32))
    assert d[0, 0] == 0x7F800000


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("rn", 0), ("rz", 0), ("rm", 0), ("rp", 1)],
)
def test_f64_rounds_each_product_and_sum_once_in_its_mode(mode: str, expected: int) -> None:
    tiny, unit = 0x3C00000000000000, 0x3FF0000000000000  # 2^-63, 1
    assert double.fma(tiny, unit, unit, mode) == unit + expected


def test_f64_nan_is_b_before_the_sum_before_a() -> None:
    a, b, c = 0x7FF0000000000001, 0xFFF8000000000002, 0x7FF8000000000003
    unit = 0x3FF0000000000000
    assert double.fma(a, b, c) == b
    assert double.fma(a, unit, c) == c
    assert double.fma(a, unit, unit) == a | 1 << 51
    assert double.fma(0x7FF0000000000000, 0, unit) == 0xFFF8000000000000


def all_fragments() -> dict[str, tuple[Fragment, int]]:
    """Every operand's fragment, and how many elements its matrix has."""
    found = {}
    for shape, a, b, c in operations.mma_forms():
        form = operations.mma(shape, a, b, c, c, popcount="and")
        assert form is not None
        op = form.operation
        found[f"mma {shape} {a} {c} a"] = form.fragment_a, op.m * op.k
        found[f"mma {shape} {a} {c} b"] = form.fragment_b, op.n * op.k
        found[f"mma {shape} {a} {c} d"] = form.fragment_d, op.m * op.n
    for shape, a, b, c in operations.wmma_forms():
        form = operations.wmma(shape, a, b, c, c, popcount="and")
        assert form is not None
        op = form.operation
        found[f"wmma {shape} {a} {c} a"] = form.fragment_a, op.m * op.k
        found[f"wmma {shape} {a} {c} b"] = form.fragment_b, op.n * op.k
        found[f"wmma {shape} {a} {c} d"] = form.fragment_d, op.m * op.n
    for layout in ("row", "col"):
        found[f"quad a {layout}"] = fragments.quad_a(layout), 32 * 4
        found[f"quad b {layout}"] = fragments.quad_b(layout), 32 * 4
    return found


@pytest.mark.parametrize("name", all_fragments())
def test_a_fragment_holds_every_element_once_or_as_often_as_any_other(name: str) -> None:
    fragment, size = all_fragments()[name]
    places = [place for lane in fragment for place in lane]
    assert len(set(places)) == size
    assert len(places) % size == 0
    assert all(places.count(place) == len(places) // size for place in set(places))


def test_tf32_does_not_read_its_low_bits() -> None:
    x = np.array([0x3F801FFF, 0x7F800001], np.uint32)
    clean = reference.decode("tf32", x)
    assert clean.kind.tolist() == [0, 1]  # a NaN with a payload in the low bits alone is an infinity
    assert clean.significand[0] == 1 << FLOATS["tf32"].mantissa
