"""Memory at a call: which allocations live then, and the last known contents of a range of one.

The timeline of a byte is the `page` rows that cover it, in call order; its value after call N is that of
the last row with ``call <= N``. Rows stay inside 64 KiB pages, so the index over (allocation, page, call)
is walked backwards from N, page by page, only until every byte wanted has been found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from operator import attrgetter

from zluda.tracefile.records import PAGE_BYTES, Allocation, Page

Span = tuple[int, int]
"""[start, end)"""


class LiveAllocations:
    """Which allocations are alive after a call. Going forward through a trace costs only what changes."""

    def __init__(self, allocations: Sequence[Allocation]) -> None:
        self._births = sorted(allocations, key=attrgetter("born", "id"))
        self._deaths = sorted(
            (a for a in allocations if a.died is not None), key=lambda a: (a.died or 0, a.id)
        )
        self._alive: dict[int, Allocation] = {}
        self._sorted: list[Allocation] = []
        self._rewind()

    def after(self, call: int) -> list[Allocation]:
        """Alive after ``call``, by base address."""
        if call < self._call:
            self._rewind()
        if call > self._call:
            self._advance(call)
            self._sorted = sorted(self._alive.values(), key=attrgetter("base", "id"))
        return self._sorted

    def _rewind(self) -> None:
        self._call = -1  # before the first call nothing is alive
        self._born = self._dead = 0
        self._alive.clear()
        self._sorted = []

    def _advance(self, call: int) -> None:
        while self._born < len(self._births) and self._births[self._born].born <= call:
            allocation = self._births[self._born]
            self._born += 1
            if allocation.alive_after(call):
                self._alive[allocation.id] = allocation
        while self._dead < len(self._deaths) and (self._deaths[self._dead].died or 0) <= call:
            self._alive.pop(self._deaths[self._dead].id, None)
            self._dead += 1
        self._call = call


class Gathering:
    """A range of memory being put together from pieces, newest first."""

    def __init__(self, size: int) -> None:
        self.data = bytearray(size)
        self.unknown: list[Span] = [(0, size)] if size else []

    def add(self, offset: int, content: bytes | Callable[[], bytes], length: int) -> None:
        """Lay a piece under what is already there. ``content`` is only asked for if some of it is needed."""
        remaining: list[Span] = []
        for start, end in self.unknown:
            low, high = max(start, offset), min(end, offset + length)
            if low >= high:
                remaining.append((start, end))
                continue
            piece = content = content() if callable(content) else content
            self.data[low:high] = piece[low - offset : high - offset]
            remaining += [span for span in ((start, low), (high, end)) if span[0] < span[1]]
        self.unknown = remaining

    def result(self) -> tuple[bytes, bytes | None]:
        """(contents, mask): the mask is None when all is known, else 1 a known byte and 0 an unknown one."""
        if not self.unknown:
            return bytes(self.data), None
        mask = bytearray(b"\1" * len(self.data))
        for start, end in self.unknown:
            mask[start:end] = bytes(end - start)
        return bytes(self.data), bytes(mask)


def page_numbers(offset: int, size: int) -> range:
    """The 64 KiB pages of an allocation that a range of it touches."""
    return range(offset // PAGE_BYTES, (offset + size - 1) // PAGE_BYTES + 1) if size > 0 else range(0)


def gather(
    offset: int,
    size: int,
    history: Callable[[int], Iterator[Page]],
    content: Callable[[Page], bytes],
) -> tuple[bytes, bytes | None]:
    """``[offset, offset + size)`` of an allocation.

    ``history(number)`` gives the rows of one of its 64 KiB pages, newest first, and ``content`` a row's
    bytes.
    """
    parts: list[tuple[bytes, bytes | None]] = []
    for number in page_numbers(offset, size):
        start = max(offset, number * PAGE_BYTES)
        end = min(offset + size, (number + 1) * PAGE_BYTES)
        gathering = Gathering(end - start)
        for page in history(number):
            gathering.add(page.offset - start, lambda page=page: content(page), page.length)  # type: ignore[misc]
            if not gathering.unknown:
                break
        parts.append(gathering.result())
    return join(parts)


def known_runs(mask: bytes) -> Iterator[Span]:
    """The runs of 1 in a mask of 0 and 1."""
    start = mask.find(1)
    while start >= 0:
        stop = mask.find(0, start)
        stop = len(mask) if stop < 0 else stop
        yield start, stop
        start = mask.find(1, stop)


def join(parts: Sequence[tuple[bytes, bytes | None]]) -> tuple[bytes, bytes | None]:
    """Adjoining ranges as one."""
    data = b"".join(part for part, _ in parts)
    if all(mask is None for _, mask in parts):
        return data, None
    return data, b"".join(b"\1" * len(part) if mask is None else mask for part, mask in parts)


def covering(
    allocations: Sequence[Allocation], address: int, size: int
) -> Iterator[tuple[int, int, Allocation | None]]:
    """(address, size, allocation or None) pieces that make up ``[address, address + size)`` in order.

    ``allocations`` are sorted by base. Where two overlap (a pool and what was taken from it) the one that
    starts last holds.
    """
    end = address + size
    edges = {address, end}
    inside = [a for a in allocations if a.base < end and a.end > address]
    for allocation in inside:
        edges |= {max(address, allocation.base), min(end, allocation.end)}
    places = sorted(edges)
    for start, stop in pairwise(places):
        holder = next((a for a in reversed(inside) if a.base <= start < a.end), None)
        yield start, stop - start, holder
