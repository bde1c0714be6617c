"""What one allocation holds in one launch: a layout, or several side by side.

A framework's allocation may hold many tensors, so each pointer into it speaks for what lies from there to the
next one, unless all pointers agree, or are so near to each other that they are one structure's.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from zluda.diff.types.layout import BYTES, UNKNOWN, Layout, Vote, layout_of
from zluda.diff.types.signature import weighed

_NEAR = 256  # bytes: what allocators align to


class Pointer(NamedTuple):
    """What is known of the memory from ``offset`` of an allocation on.

    ``signature`` is the element type that the kernel's name has; ``given`` what the user said; ``pitches``
    are distances in bytes that its index is multiplied with.
    """

    offset: int
    votes: tuple[Vote, ...]
    signature: str = ""
    given: Layout | None = None
    pitches: tuple[int, ...] = ()
    label: str = ""


class Region(NamedTuple):
    """A part of an allocation from ``start`` on, called what points to it (``parameter 2``); the layout's
    phase is counted from the allocation's start.
    """

    start: int
    layout: Layout
    pitches: tuple[int, ...] = ()
    label: str = ""

    @property
    def rows(self) -> tuple[int, int] | None:
        """(the byte of the allocation at which the first row begins, bytes of each), where there are any."""
        return (self.start, self.pitches[-1]) if self.pitches else None

    def place(self, offset: int) -> tuple[int, ...]:
        """Coordinates of the element at a byte of the allocation, slowest first; empty without a pitch."""
        if not self.pitches:
            return ()
        at, found = offset - self.start, []
        for pitch in self.pitches:
            found.append(at // pitch)
            at %= pitch
        return (*found, at // max(self.layout.period, 1))


class BufferTypes:
    """The regions of one allocation, in order; the first reaches to its start too."""

    def __init__(self, regions: Sequence[Region]) -> None:
        self.regions = tuple(regions)
        self._starts = [region.start for region in self.regions[1:]]

    @classmethod
    def of(cls, pointers: Sequence[Pointer]) -> BufferTypes:
        """From what is known of each pointer into the allocation."""
        ordered = sorted(pointers, key=lambda one: one.offset)
        groups: list[list[Pointer]] = []
        for pointer in ordered:
            near = groups and pointer.offset - groups[-1][-1].offset < _NEAR
            if near:
                groups[-1].append(pointer)
            else:
                groups.append([pointer])
        regions = [_region(group) for group in groups]
        known = {(str(one.layout), one.pitches) for one in regions if one.layout != UNKNOWN}
        if len(known) == 1 and all(one.layout.homogeneous for one in regions):
            return cls([max(regions, key=lambda one: one.layout.confidence)._replace(start=regions[0].start)])
        return cls(regions)

    @classmethod
    def uniform(cls, layout: Layout) -> BufferTypes:
        return cls([Region(0, layout)])

    @property
    def single(self) -> str:
        """The element type of all of it; ``bytes`` where there are several, or fields."""
        found = {region.layout.single for region in self.regions}
        return found.pop() if len(found) == 1 else BYTES

    def at(self, offset: int) -> Region:
        """The region that a byte is in."""
        return self.regions[bisect_right(self._starts, offset)]

    def pieces(self, start: int, stop: int) -> Iterator[tuple[int, int, Region]]:
        """A range, cut where regions part."""
        while start < stop:
            index = bisect_right(self._starts, start)
            end = min(stop, self._starts[index]) if index < len(self._starts) else stop
            yield start, end, self.regions[index]
            start = end


EVERYTHING_UNKNOWN = BufferTypes.uniform(UNKNOWN)


def _region(group: Sequence[Pointer]) -> Region:
    """Pointers near to each other are one structure's."""
    start, label = group[0].offset, group[0].label
    given = next((one.given for one in group if one.given is not None), None)
    pitches = max((one.pitches for one in group), key=len)
    if given is not None:
        layout = given._replace(phase=start % given.period)
        return Region(start, layout, _fitting(pitches, layout), label)
    found = layout_of(_moved(vote, one.offset) for one in group for vote in one.votes)
    for one in group:
        found = weighed(found, one.signature)
    if found is None:
        return Region(start, UNKNOWN, (), label)
    layout = _counted_from(found, start, group)
    return Region(start, layout, _fitting(pitches, layout), label)


def _counted_from(layout: Layout, start: int, group: Sequence[Pointer]) -> Layout:
    """Votes are moved to the allocation's start, so a layout's phase is counted from there already; but for
    one that is the signature's alone.
    """
    if any(one.votes for one in group):
        return layout
    return layout._replace(phase=start % layout.period)


def _moved(vote: Vote, by: int) -> Vote:
    rest = vote.rest + by
    return vote._replace(rest=rest % vote.step if vote.step else rest)


def _fitting(pitches: Sequence[int], layout: Layout) -> tuple[int, ...]:
    """The pitches that hold whole elements and divide each other, the longest first."""
    found: list[int] = []
    for pitch in sorted(set(pitches), reverse=True):
        fits = pitch > layout.period and pitch % layout.period == 0
        if fits and (not found or (found[-1] % pitch == 0 and found[-1] > pitch)):
            found.append(pitch)
    return tuple(found)
