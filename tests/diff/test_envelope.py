"""Which elements lie inside an envelope of results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from zluda.diff.envelope import _COMPUTED_NAN, Envelope, Placed, same_nan, same_number
from zluda.diff.kinds import ELEMENT_TYPES

F32, ULP = ELEMENT_TYPES["f32"], 2.0**-23


def bits(*values: float) -> Any:
    return np.array(values, "<f4").view("<u4")


def place(recorded: float, runs: list[float], replayed: float) -> Placed:
    """One element: the exact result first."""
    envelope = Envelope(F32, bits(recorded))
    for run in runs:
        envelope.add(bits(run))
    return envelope.place(bits(replayed))


def inside(recorded: float, runs: list[float], replayed: float) -> bool:
    return bool(place(recorded, runs, replayed).inside[0])


def test_interval_of_one_instruction_is_its_bound_and_one_ulp() -> None:
    """All results are equally far, so nothing scatters."""
    runs = [1.5, 1.5 + 8 * ULP, 1.5 - 8 * ULP]
    for steps in range(-9, 10):
        assert inside(1.5 + 8 * ULP, runs, 1.5 + steps * ULP)
    assert not inside(1.5 + 8 * ULP, runs, 1.5 + 10 * ULP)
    assert not inside(1.5 + 8 * ULP, runs, 1.5 - 10 * ULP)


def test_interval_is_as_wide_on_the_side_that_no_run_went_to() -> None:
    assert inside(1.5, [1.5, 1.5 + 8 * ULP], 1.5 - 8 * ULP)


def test_results_that_scatter_widen_it() -> None:
    runs = [1.5, *(1.5 + n * ULP for n in (1, -1, 2, -2, 3, -3, 100))]
    assert inside(1.5, runs, 1.5 + 150 * ULP)
    assert not inside(1.5, runs, 1.5 + 170 * ULP)


def test_an_element_that_nothing_moves_has_no_tolerance() -> None:
    assert not inside(1.5, [1.5, 1.5, 1.5], 1.5 + ULP)


def test_a_recorded_element_outside_puts_the_replayed_one_outside() -> None:
    """The kernel that was repeated does not compute what NVIDIA did: a fault that both replays share."""
    runs = [1.5, 1.5 + 8 * ULP, 1.5 - 8 * ULP]
    assert inside(1.5 + 9 * ULP, runs, 1.5)
    assert not inside(1.5 + 10 * ULP, runs, 1.5)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_no_finite_number_is_inside_only_where_a_result_is_so(value: float) -> None:
    assert inside(1.5, [1.5, value], value)
    assert not inside(1.5, [1.5, 1.75], value)


def test_an_infinite_result_does_not_admit_every_number() -> None:
    assert not inside(1.5, [1.5, np.inf], 1e30)


def test_position_is_zero_at_the_exact_result_and_one_at_the_edge() -> None:
    runs = [1.5, 1.5 + 9 * ULP, 1.5 - 9 * ULP]
    assert place(1.5 + ULP, runs, 1.5).position[0] == 0
    assert place(1.5 + 9 * ULP, runs, 1.5 + 10 * ULP).position[0] == pytest.approx(1)
    assert place(1.5 + 9 * ULP, runs, 1.5 - 5 * ULP).position[0] == pytest.approx(0.5)


def test_integers_lie_between_the_smallest_and_the_largest() -> None:
    envelope = Envelope(ELEMENT_TYPES["s32"], np.array([4, 4, 4], "<u4"))
    for run in (4, 2**32 - 3):  # -3
        envelope.add(np.array([run] * 3, "<u4"))
    assert envelope.place(np.array([2**32 - 3, 0, 6], "<u4")).inside.tolist() == [True, True, False]


def test_bytes_have_no_interval() -> None:
    envelope = Envelope(ELEMENT_TYPES["bytes"], np.array([5], "u1"))
    envelope.add(np.array([9], "u1"))
    assert not envelope.place(np.array([7], "u1")).inside[0]


numbers = st.floats(-(2.0**99), 2.0**99, width=32)


@given(arrays("<f4", (9, 5), elements=numbers))
def test_every_result_is_inside(results: Any) -> None:
    envelope = Envelope(F32, results[-1].copy().view("<u4"))
    for run in results:
        envelope.add(run.copy().view("<u4"))
    moved = (results != results[0]).any(axis=0)
    for result in results:
        placed = envelope.place(result.copy().view("<u4"))
        assert placed.inside[moved].all()
        assert (placed.position[moved] <= 1).all()


def test_records_hold_integers_among_numbers() -> None:
    runs = [[1.0, 3, 5, -3], [1.5, 3, 9, 2]]
    words = [[np.float32(run[0]).view("i4"), *run[1:]] for run in runs]
    envelope = Envelope(F32, np.array([*words[0][:1], 3, 7, 0], "<i4").view("<u4"), mixed=True)
    for run in words:
        envelope.add(np.array(run, "<i4").view("<u4"))
    inside = [np.float32(1.25).view("i4"), 3, 5, -1]
    outside = [np.float32(3.0).view("i4"), 4, 10, -4]
    for values, expected in ((inside, [True, False, True, True]), (outside, [False] * 4)):
        assert envelope.place(np.array(values, "<i4").view("<u4")).inside.tolist() == expected


def test_same_number_is_of_computed_nan_and_zero_only() -> None:
    left = np.array([0x7FFFFFFF, 0x80000000, 0x3F800000, 0x7FFFFFFF, 0, 0xFFFFFFFF, 0x7FC00001], "<u4")
    right = np.array([0x7FC00000, 0x00000000, 0x3F800001, 0x3F800000, 1, 0xFFFFFFF0, 0x7FFFFFFF], "<u4")
    assert same_number(left, right, F32).tolist() == [True, True, *[False] * 5]
    assert same_nan(left, right, F32).tolist() == [True, *[False] * 6]
    assert not same_number(left, right, ELEMENT_TYPES["u32"]).any()


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64"])
def test_the_nans_that_nvidia_computes_are_nans_and_not_minus_one(kind: str) -> None:
    type = ELEMENT_TYPES[kind]
    bits = np.array([*_COMPUTED_NAN[kind], (1 << 8 * type.size) - 1], f"<u{type.size}")
    assert same_nan(bits, bits, type).tolist() == [*[True] * (len(bits) - 1), False]
