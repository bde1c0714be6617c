"""Sets of byte offsets, against sets of integers."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from zluda.replay.intervals import IntervalSet

EDGES = st.tuples(st.integers(0, 30), st.integers(0, 30)).map(lambda pair: (min(pair), max(pair)))
STEPS = st.lists(st.tuples(st.sampled_from(["add", "remove"]), EDGES), max_size=12)


def build(steps: list[tuple[str, tuple[int, int]]]) -> tuple[IntervalSet, set[int]]:
    intervals, offsets = IntervalSet(), set[int]()
    for step, (start, stop) in steps:
        getattr(intervals, step)(start, stop)
        (offsets.update if step == "add" else offsets.difference_update)(range(start, stop))
    return intervals, offsets


@given(STEPS)
def test_holds_what_was_added_and_not_removed(steps: list[tuple[str, tuple[int, int]]]) -> None:
    intervals, offsets = build(steps)
    assert {offset for start, stop in intervals for offset in range(start, stop)} == offsets
    assert intervals.size == len(offsets)


@given(STEPS)
def test_is_sorted_and_has_no_touching_parts(steps: list[tuple[str, tuple[int, int]]]) -> None:
    parts = list(build(steps)[0])
    assert all(start < stop for start, stop in parts)
    assert all(left[1] < right[0] for left, right in pairwise(parts))


@given(STEPS, EDGES)
def test_within_and_missing_part_a_range(
    steps: list[tuple[str, tuple[int, int]]], edges: tuple[int, int]
) -> None:
    intervals, offsets = build(steps)
    inside = {o for start, stop in intervals.within(*edges) for o in range(start, stop)}
    outside = {o for start, stop in intervals.missing(*edges) for o in range(start, stop)}
    assert inside == offsets & set(range(*edges))
    assert outside == set(range(*edges)) - offsets
