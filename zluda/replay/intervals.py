"""A set of byte offsets as sorted, disjoint half-open intervals."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

Interval = tuple[int, int]


class IntervalSet:
    """Offsets [start, stop); touching intervals are one."""

    __slots__ = ("_starts", "_stops")

    def __init__(self, intervals: Iterable[Interval] = ()) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        for start, stop in intervals:
            self.add(start, stop)

    def __iter__(self) -> Iterator[Interval]:
        return zip(self._starts, self._stops, strict=True)

    def __bool__(self) -> bool:
        return bool(self._starts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IntervalSet) and list(self) == list(other)

    def __repr__(self) -> str:
        return f"IntervalSet({list(self)})"

    __hash__ = None  # type: ignore[assignment]  # mutable

    @property
    def size(self) -> int:
        """How many offsets are in the set."""
        return sum(self._stops) - sum(self._starts)

    def add(self, start: int, stop: int) -> None:
        """Put [start, stop) in."""
        if start >= stop:
            return
        first = bisect_left(self._stops, start)
        last = bisect_right(self._starts, stop)
        if first < last:
            start = min(start, self._starts[first])
            stop = max(stop, self._stops[last - 1])
        self._starts[first:last] = [start]
        self._stops[first:last] = [stop]

    def remove(self, start: int, stop: int) -> None:
        """Take [start, stop) out."""
        if start >= stop:
            return
        first = bisect_right(self._stops, start)
        last = bisect_left(self._starts, stop)
        kept: list[Interval] = []
        for left, right in zip(self._starts[first:last], self._stops[first:last], strict=True):
            if left < start:
                kept.append((left, start))
            if right > stop:
                kept.append((stop, right))
        self._starts[first:last] = [left for left, _ in kept]
        self._stops[first:last] = [right for _, right in kept]

    def within(self, start: int, stop: int) -> list[Interval]:
        """The parts of [start, stop) that are in the set."""
        first = bisect_right(self._stops, start)
        last = bisect_left(self._starts, stop)
        pairs = zip(self._starts[first:last], self._stops[first:last], strict=True)
        return [(max(left, start), min(right, stop)) for left, right in pairs]

    def missing(self, start: int, stop: int) -> list[Interval]:
        """The parts of [start, stop) that are not in the set."""
        holes: list[Interval] = []
        for left, right in self.within(start, stop):
            if start < left:
                holes.append((start, left))
            start = right
        if start < stop:
            holes.append((start, stop))
        return holes
