"""Where in a buffer elements differ: counts in a coarse grid of cells, which can be merged.

A buffer of a gigabyte has as many cells as one of a kilobyte: where more are needed, neighbours become one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zluda.records import dataclass

if TYPE_CHECKING:
    import numpy
    import numpy.typing

    Array = numpy.typing.NDArray[Any]

MOST_CELLS = 512
"""Of a buffer without rows."""

MOST_ACROSS = 32
"""Rows of cells, and cells in each, of a buffer with rows."""

_ACROSS_BITS = 6
"""Of a cell's number, those that hold its column where there are rows."""


@dataclass(frozen=True, slots=True)
class Spots:
    """Differing elements of one allocation, by cell.

    Cells begin at byte ``origin`` of the allocation. ``pitch`` are the bytes of a row; 0 where rows are not
    known, and all cells lie one behind the other. A cell spans ``rows`` rows and ``step`` bytes of each.
    ``numbers`` and ``counts`` hold the cells in which something differs, as little-endian words of 8 bytes
    (:attr:`cells` gives them).
    """

    origin: int
    pitch: int
    rows: int
    step: int
    numbers: bytes
    counts: bytes

    @property
    def cells(self) -> dict[tuple[int, int], int]:
        """(row, column) of a cell → how many elements differ there, at least 1."""
        numbers, counts = (memoryview(side).cast("Q").tolist() for side in (self.numbers, self.counts))
        if not self.pitch:
            return {(0, number): count for number, count in zip(numbers, counts, strict=True)}
        column = (1 << _ACROSS_BITS) - 1
        return {
            (number >> _ACROSS_BITS, number & column): count
            for number, count in zip(numbers, counts, strict=True)
        }

    @property
    def columns(self) -> int:
        """Cells in a row; 0 where rows are not known."""
        return -(-self.pitch // self.step)


def spots_of(
    differs: Array, first: int, period: int, each: int, *, origin: int, pitch: int = 0
) -> Spots | None:
    """Of a mask of elements, ``each`` of them in every ``period`` bytes from byte ``first`` on.

    ``pitch`` is a multiple of ``period``, and ``first`` lies whole periods from ``origin``. None where
    nothing differs.
    """
    import numpy as np

    if not differs.any():
        return None
    end = first + len(differs) // each * period
    step = period
    while (pitch or end - first) > step * (MOST_ACROSS if pitch else MOST_CELLS):
        step *= 2
    starts = _starts(max(first - origin, 0), end - origin, pitch, step)
    # Elements before the origin, of a pointer into the middle of an allocation, count to the first cell.
    index = np.maximum(-((first - origin - starts) // period), 0) * each
    index = index[index < len(differs)]
    index = index[np.diff(index, prepend=-1) > 0]
    index[0] = 0
    counts = np.add.reduceat(differs, index, dtype=np.int64)
    at = np.maximum(first + index // each * period - origin, 0)
    numbers = (at // pitch << _ACROSS_BITS) + at % pitch // step if pitch else at // step
    some = counts > 0
    return _fitted(origin, pitch, 1, step, numbers[some], counts[some])


def _starts(first: int, end: int, pitch: int, step: int) -> Array:
    """Bytes behind the origin, between ``first`` and ``end``, at which cells of one row begin."""
    import numpy as np

    if not pitch:
        return np.arange(first // step * step, end, step)
    rows = np.arange(first // pitch * pitch, end, pitch)
    found: Array = (rows[:, None] + np.arange(0, pitch, step)).reshape(-1)
    return found


def merged(one: Spots | None, other: Spots | None) -> Spots | None:
    """Of two parts of an allocation; ValueError where their cells are not of one grid."""
    if one is None or other is None:
        return one or other
    if (one.origin, one.pitch) != (other.origin, other.pitch):
        raise ValueError("cells from different origins, or of different rows, cannot be merged")
    import numpy as np

    rows, step = max(one.rows, other.rows), max(one.step, other.step)
    parts = [(_coarser(part, rows, step), np.frombuffer(part.counts, "<i8")) for part in (one, other)]
    numbers, counts = (np.concatenate(side) for side in zip(*parts, strict=True))
    return _fitted(one.origin, one.pitch, rows, step, numbers, counts)


def _coarser(part: Spots, rows: int, step: int) -> Array:
    """Numbers of a part's cells in a grid of cells that span so many rows and bytes."""
    import numpy as np

    numbers = np.frombuffer(part.numbers, "<i8")
    if not part.pitch:
        return numbers // (step // part.step)
    found: Array = _by_rows(numbers, rows // part.rows)
    return found


def _by_rows(numbers: Array, rows: int) -> Array:
    """Numbers of cells, so many rows of which are taken together."""
    column: Array = numbers & ((1 << _ACROSS_BITS) - 1)
    return (((numbers >> _ACROSS_BITS) // rows) << _ACROSS_BITS) + column


def _fitted(origin: int, pitch: int, rows: int, step: int, numbers: Array, counts: Array) -> Spots:
    """Cells, each once, with neighbours taken together until those from the first that differs to the last
    are not too many.
    """
    import numpy as np

    most, shift = (MOST_ACROSS, _ACROSS_BITS) if pitch else (MOST_CELLS, 0)
    while (int(numbers.max()) >> shift) - (int(numbers.min()) >> shift) >= most:
        numbers = _by_rows(numbers, 2) if pitch else numbers // 2
        rows, step = (rows * 2, step) if pitch else (rows, step * 2)
    if (numbers[1:] <= numbers[:-1]).any():
        numbers, where = np.unique(numbers, return_inverse=True)
        counts = np.bincount(where, counts).astype(np.int64)
    return Spots(origin, pitch, rows, step, numbers.astype("<i8").tobytes(), counts.astype("<i8").tobytes())
