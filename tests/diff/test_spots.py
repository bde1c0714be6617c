"""Where elements differ, against counting them one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zluda.diff.spots import MOST_ACROSS, MOST_CELLS, Spots, merged, spots_of
from zluda.diff.types.override import parse_layout
from zluda.diff.values import combine, compare

few = settings(max_examples=60, deadline=None)


def counted(places: list[int], of: Spots) -> dict[tuple[int, int], int]:
    """Cells by the definition, from the bytes of elements that differ."""
    found: dict[tuple[int, int], int] = {}
    for place in places:
        at = place - of.origin
        row, byte = divmod(at, of.pitch) if of.pitch else (0, at)
        key = (row // of.rows, byte // of.step)
        found[key] = found.get(key, 0) + 1
    return found


@few
@given(st.data())
def test_cells_count_what_lies_in_them(data: st.DataObject) -> None:
    period = data.draw(st.sampled_from([1, 2, 4, 8, 12, 24]))
    origin = period * data.draw(st.integers(0, 5))
    pitch = data.draw(st.sampled_from([0, *(period * n for n in (2, 3, 7, 64, 100))]))
    first = origin + period * data.draw(st.integers(0, 300))
    size = data.draw(st.integers(1, 3000))
    differs = np.zeros(size, bool)
    differs[data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=50))] = True
    found = spots_of(differs, first, period, 1, origin=origin, pitch=pitch)
    assert found is not None
    assert found.cells == counted([first + period * int(n) for n in np.flatnonzero(differs)], found)


@few
@given(st.data())
def test_parts_are_merged_to_the_cells_of_the_whole(data: st.DataObject) -> None:
    pitch = data.draw(st.sampled_from([0, 8, 4096]))
    size = data.draw(st.integers(2, 5000))
    differs = np.zeros(size, bool)
    differs[data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=50))] = True
    cut = data.draw(st.integers(1, size - 1))
    parts = [
        spots_of(side, first, 4, 1, origin=0, pitch=pitch)
        for side, first in ((differs[:cut], 0), (differs[cut:], 4 * cut))
    ]
    found = merged(*parts)
    assert found is not None
    assert found.cells == counted([4 * int(n) for n in np.flatnonzero(differs)], found)
    assert merged(*reversed(parts)) == found


def test_any_buffer_has_few_cells() -> None:
    everything = np.ones(1 << 20, bool)
    line = spots_of(everything, 0, 4, 1, origin=0)
    rows = spots_of(everything, 0, 4, 1, origin=0, pitch=4 << 10)
    assert line is not None and len(line.cells) == MOST_CELLS and set(line.cells.values()) == {1 << 11}
    assert rows is not None and len(rows.cells) == MOST_ACROSS**2 and rows.columns == MOST_ACROSS
    assert (rows.rows, rows.step) == (32, 128)
    far = spots_of(everything[:10], 1 << 40, 1, 1, origin=0)
    assert far is not None and sum(far.cells.values()) == 10


def test_nothing_that_differs_has_no_place() -> None:
    assert spots_of(np.zeros(10, bool), 0, 4, 1, origin=0) is None
    assert merged(None, None) is None
    one = spots_of(np.ones(1, bool), 0, 4, 1, origin=0)
    other = spots_of(np.ones(1, bool), 0, 4, 1, origin=0, pitch=8)
    assert merged(one, None) == one
    with pytest.raises(ValueError, match="cannot be merged"):
        merged(one, other)


def test_a_comparison_says_where_it_differs() -> None:
    left = np.zeros((16, 64), "<f4")
    right = left.copy()
    right[4:8, 16:32] = 1  # a tile of a matrix
    found = compare(left.tobytes(), right.tobytes(), "f32", rows=(0, 256)).spots
    assert found is not None
    assert (found.pitch, found.rows, found.step) == (256, 1, 8)
    assert found.cells == {(row, column): 2 for row in range(4, 8) for column in range(8, 16)}
    unknown = compare(left.tobytes(), right.tobytes(), "f32").spots
    assert unknown is not None and unknown.pitch == 0 and sum(unknown.cells.values()) == 64


def test_what_was_not_compared_is_no_place() -> None:
    found = compare(bytes(16), b"\1" * 16, "u32", known=bytes(8) + b"\1" * 8).spots
    assert found is not None
    assert found.cells == {(0, 2): 1, (0, 3): 1}


def test_rows_that_cut_elements_are_no_rows() -> None:
    layout = parse_layout("{f64, f32}")
    found = compare(bytes(48), bytes(24) + b"\1" * 24, layout, rows=(0, 20)).spots
    assert found is not None and found.pitch == 0
    # Of the second structure its f32, of the third both fields, and of both the four bytes behind them.
    assert found.cells == {(0, 1): 1 + 4, (0, 2): 2 + 4}


def test_parts_of_an_allocation_are_combined() -> None:
    parts = [compare(bytes(8), b"\1" * 8, "u32", offset=offset, rows=(0, 16)) for offset in (0, 4096)]
    found = combine(parts).spots
    assert found is not None
    assert sum(found.cells.values()) == 4 and found.rows == 16
