"""Device memory of a replay, held beside the record's.

For each live allocation this keeps, in bytes of it:

* ``known``: what the record's timeline says truly. A write that the record has no pages for takes bytes out;
* ``differing``: where replay and record are known to part, and since which call;
* ``unrecorded``: what the replay wrote and the record cannot tell;
* ``doubted``: what was known until launches came that were not selected for the record, and may have
  written it;
* a digest of each 64 KiB page, so that what a launch changed is found without keeping a copy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from typing import Protocol

from zluda.diff.results import Verdict
from zluda.driver import Driver
from zluda.records import dataclass
from zluda.replay.arrays import Arrays, LiveArray, targets_to_keys
from zluda.replay.handles import Unavailable, Unplayable
from zluda.replay.intervals import IntervalSet
from zluda.tracefile import PAGE_BYTES, Allocation, AllocationKind, Page, Trace
from zluda.tracefile.memory import known_runs
from zluda.tracefile.reachability import LiveSpans, reachable

Ranges = dict[int, IntervalSet]
"""Allocation id → bytes of it."""


class MemoryAccess(Protocol):
    """Where live bytes are read and written; a runner's memory and driver together."""

    @property
    def driver(self) -> Driver: ...

    def read(self, address: int, size: int) -> bytes | memoryview: ...

    def write(self, address: int, data: bytes) -> None: ...


@dataclass(slots=True)
class LiveAllocation:
    """One allocation that record and replay both have; ``base`` is the replay's address of it."""

    record: Allocation
    base: int
    known: IntervalSet = field(default_factory=IntervalSet)
    differing: IntervalSet = field(default_factory=IntervalSet)
    differing_since: int | None = None
    unrecorded: IntervalSet = field(default_factory=IntervalSet)
    doubted: IntervalSet = field(default_factory=IntervalSet)
    reached: bool = False  # by a launch: its contents may be computed ones
    taint: Unavailable | None = None  # why its contents cannot be trusted until the record restores them
    digests: dict[int, bytes] = field(default_factory=dict)
    before: dict[int, bytes] = field(default_factory=dict)  # pages that differed before the launch
    array: LiveArray | None = None  # of a CUDA array, whose contents are linearised

    @property
    def id(self) -> int:
        return self.record.id

    @property
    def size(self) -> int:
        return self.record.size

    @property
    def relocated(self) -> bool:
        return self.base != self.record.base and self.array is None


class ReplayMemory:
    """All live allocations, and what is known of their bytes."""

    def __init__(self, trace: Trace, access: MemoryAccess) -> None:
        self._trace, self._access = trace, access
        self._selective = bool(trace.meta.get("selection"))
        self._believed = False  # something has become known since all was doubted
        self.live: dict[int, LiveAllocation] = {}
        self._spans = LiveSpans()
        self._absent_spans = LiveSpans()
        self._absent: dict[int, Unavailable] = {}
        self._host: set[int] = set()
        self._module_globals: dict[int, list[int]] = {}
        self.relocated: dict[int, tuple[Allocation, int]] = {}  # id → what is or was elsewhere, and where
        self._code: dict[bytes, bytes] = {}  # words: recorded addresses of functions → the replay's
        self.arrays = Arrays()
        self._array_keys: dict[int, int] = {}  # number in place of an address → allocation

    # --- allocations ----------------------------------------------------------------------------------

    def add(self, allocation: Allocation, base: int) -> None:
        """``allocation`` now lives at ``base``."""
        self.live[allocation.id] = LiveAllocation(allocation, base)
        if base != allocation.base:
            self.relocated[allocation.id] = (allocation, base)
        self._spans.add(allocation.id, allocation.base, allocation.size)
        if allocation.kind is AllocationKind.GLOBAL and allocation.module is not None:
            self._module_globals.setdefault(allocation.module, []).append(allocation.id)

    def add_array(self, allocation: Allocation, recorded: int, array: LiveArray) -> None:
        """A CUDA array, by its recorded handle."""
        self.live[allocation.id] = LiveAllocation(allocation, array.address, array=array)
        self.arrays.add(recorded, allocation.id, allocation.base)
        self._array_keys[allocation.base] = allocation.id

    def add_absent(self, allocation: Allocation, why: Unavailable) -> None:
        """The record has ``allocation`` and this replay does not."""
        self._absent[allocation.id] = why
        self._absent_spans.add(allocation.id, allocation.base, allocation.size)
        if allocation.kind is AllocationKind.HOST:
            self._host.add(allocation.id)

    def remove(self, allocation: int) -> LiveAllocation | None:
        """Forget an allocation; returns it if it was live."""
        self._spans.remove(allocation)
        self._absent_spans.remove(allocation)
        self._absent.pop(allocation, None)
        self._host.discard(allocation)
        gone = self.live.pop(allocation, None)
        if gone is not None and gone.array is not None:
            self._array_keys.pop(gone.record.base, None)
        if gone is not None and gone.record.module is not None:
            siblings = self._module_globals.get(gone.record.module, [])
            if allocation in siblings:
                siblings.remove(allocation)
        return gone

    def overlapping(self, allocation: Allocation) -> list[LiveAllocation]:
        """Live ones whose recorded range ``allocation`` overlaps: their free was not recorded."""
        return [
            one
            for one in self.live.values()
            if one.record.base < allocation.end and allocation.base < one.record.end
        ]

    def find(self, address: int) -> LiveAllocation | None:
        """The live allocation that a recorded address lies in."""
        key = self._spans.find(address)
        return None if key is None else self.live[key]

    def find_place(self, address: int) -> tuple[int, int] | None:
        """(id, offset) of a recorded address in its live allocation."""
        found = self.find(address)
        return None if found is None else (found.id, address - found.record.base)

    def pointed_to(self, data: bytes) -> list[int]:
        """Ids of the live allocations that the words of ``data`` point into."""
        return self._spans.pointed_to(data)

    def why_absent(self, data: bytes) -> Unavailable | None:
        """Why an allocation that ``data`` points into is not there, if one is not."""
        keys = self._absent_spans.pointed_to(data)
        keys += [k for t in self.arrays.reached_by(data) if (k := self._absent_spans.find(t)) is not None]
        return self._absent[keys[0]] if keys else None

    def is_device(self, address: int) -> bool:
        """Whether a recorded address lies in device memory, live here or not."""
        key = self._spans.find(address)
        if key is not None:
            return self.live[key].record.kind is not AllocationKind.HOST
        key = self._absent_spans.find(address)
        return key is not None and key not in self._host

    def not_there(self, address: int) -> Unplayable:
        """The error of a call that needs memory at an address where nothing is live."""
        key = self._absent_spans.find(address)
        if key is not None:
            return Unplayable(self._absent[key])
        return Unplayable(Unavailable(Verdict.GAP, f"{address:#x} is in no allocation on record"))

    def variables(self, module: int | None) -> dict[str, int]:
        """Names of a module's live globals → allocation ids."""
        ids = self._module_globals.get(module, []) if module is not None else []
        return {self.live[key].record.name: key for key in ids}

    def reach(self, parameters: bytes, module: int | None) -> list[LiveAllocation]:
        """The allocations that a launch with these recorded parameters reaches."""
        roots = [*self.variables(module).values(), *self._keys(self.arrays.referenced())]
        keys = reachable(parameters, self._spans, self._contents, roots, self._named)
        return [self.live[key] for key in self._with_mapped(keys)]

    def _with_mapped(self, keys: Iterable[int]) -> list[int]:
        """These, and the memory that is mapped beside mapped memory among them, without a gap."""
        found = dict.fromkeys(keys)
        for key in list(found):
            if self.live[key].record.kind is AllocationKind.VIRTUAL:
                found.update(dict.fromkeys(self._beside(key, lambda record: record.end)))
                found.update(dict.fromkeys(self._beside(key, lambda record: record.base - 1)))
        return list(found)

    def _beside(self, key: int, neighbour: Callable[[Allocation], int]) -> Iterator[int]:
        while True:
            beside = self._spans.find(neighbour(self.live[key].record))
            if beside is None or self.live[beside].record.kind is not AllocationKind.VIRTUAL:
                return
            key = beside
            yield key

    def _named(self, data: bytes | memoryview) -> list[int]:
        """What the texture and surface objects reach whose handles are words of ``data``."""
        return self._keys(self.arrays.reached_by(data))

    def _keys(self, targets: Iterable[int]) -> list[int]:
        return targets_to_keys(targets, self._array_keys, self._spans.find)

    def _contents(self, key: int) -> bytes | memoryview:
        one = self.live[key]
        return self.read(one, 0, one.size)

    # --- addresses ------------------------------------------------------------------------------------

    def translate(self, address: int) -> int:
        """The replay's address of a recorded one; addresses outside of all allocations stay as they are."""
        one = self.find(address)
        return address if one is None else one.base + (address - one.record.base)

    def learn_code(self, one: LiveAllocation, offset: int, recorded: int) -> None:
        """The function at ``recorded`` is the one that the replay now has at ``offset`` of ``one``."""
        self._code[recorded.to_bytes(8, "little")] = bytes(self.read(one, offset, 8))

    def translate_words(self, data: bytes) -> bytes:
        """``data`` with recorded addresses exchanged for the replay's.

        Those are 8-byte aligned words that point into relocated allocations, or are addresses of functions.
        """
        moved = [one.record for one in self.live.values() if one.relocated]
        low, high = min((one.base for one in moved), default=0), max((one.end for one in moved), default=0)
        codes = [int.from_bytes(word, "little") for word in self._code if word in data]
        if not high and not codes:
            return data
        exchanged = bytearray(data)
        words = memoryview(exchanged)[: len(data) // 8 * 8].cast("Q")
        # Most words are neither: this comparison is what a large buffer costs.
        found = [at for at, word in enumerate(words) if low <= word < high or word in codes]
        for at in found:
            code = self._code.get(words[at].to_bytes(8, "little"))
            words[at] = self.translate(words[at]) if code is None else int.from_bytes(code, "little")
        return bytes(exchanged)

    # --- contents -------------------------------------------------------------------------------------

    def read(self, one: LiveAllocation, offset: int, size: int) -> bytes | memoryview:
        """The replay's bytes."""
        if one.array is not None and not one.array.address:
            return self._access.driver.read_array(one.array.handle, offset, size)
        return self._access.read(one.base + offset, size)

    def write(self, one: LiveAllocation, offset: int, data: bytes) -> None:
        """Put the record's bytes into the replay, its addresses exchanged for the replay's."""
        if one.array is None:
            self._access.write(one.base + offset, self.translate_words(data))
        else:
            self._access.driver.write_array(one.array.handle, offset, data)
        self.adopted(one, offset, offset + len(data))

    def recorded(
        self, one: LiveAllocation, call: int, offset: int, size: int, *, as_left: bool = False
    ) -> bytes:
        """The record's bytes after ``call``, in the replay's addresses; 0 where it knows none. ``as_left``:
        without what was found before the next call.
        """
        data, _ = self._trace.read_allocation(one.id, call, offset, size, as_left=as_left)
        return data if one.array is not None else self.translate_words(data)

    def adopted(self, one: LiveAllocation, start: int, stop: int) -> None:
        """Replay and record now hold the same bytes in [start, stop), and the record has them."""
        self._believed = True
        one.known.add(start, stop)
        one.doubted.remove(start, stop)
        one.unrecorded.remove(start, stop)
        one.differing.remove(start, stop)
        if not one.differing:
            one.differing_since = None
        self.touched(one, start, stop)

    def wrote_unrecorded(self, one: LiveAllocation, start: int, stop: int) -> None:
        """The replay wrote [start, stop) and the record has no pages of that."""
        one.known.remove(start, stop)
        one.differing.remove(start, stop)
        one.unrecorded.add(start, stop)
        self.touched(one, start, stop)

    def mark_differing(self, one: LiveAllocation, start: int, stop: int, call: int | None) -> None:
        """Replay and record part in [start, stop), since ``call``."""
        one.differing.add(start, stop)
        if one.differing_since is None:
            one.differing_since = call

    def restore(self, call: int, only: Iterable[LiveAllocation] | None = None) -> None:
        """Give live allocations the contents that the record knows after ``call``.

        Bytes the replay wrote and the record cannot tell stay as they are. ``known`` must speak of ``call``
        already.
        """
        for one in self.live.values() if only is None else only:
            for start, stop in list(one.known):
                for piece, end in _pieces(start, stop):
                    self.write(one, piece, self._trace.read_allocation(one.id, call, piece, end - piece)[0])
            one.taint = None

    # --- launches that were not selected for the record --------------------------------------------------

    def doubt(self) -> None:
        """A launch whose effect is neither on record nor replayed may have written anything."""
        if not self._believed:
            return
        for one in self.live.values():
            for start, stop in one.known:
                one.doubted.add(start, stop)
            one.known = IntervalSet()
        self._believed = False

    def believe(self, reach: Iterable[LiveAllocation], call: int) -> None:
        """After ``call`` comes a launch that was selected: before it the record looked at all it reaches.

        So what is doubted holds still, but for what was found changed and has been taken in; what the replay
        wrote by itself since is the record's again.
        """
        for one in reach if self._selective else ():
            if one.doubted:
                self._believed = True
            for start, stop in one.doubted:
                one.known.add(start, stop)
            rewritten = [(0, one.size)] if one.taint is not None else list(one.unrecorded)
            one.doubted, one.taint = IntervalSet(), None
            for start, stop in rewritten:
                for piece, end in _pieces(start, stop):
                    self._believe_record(one, call, piece, end)

    def _believe_record(self, one: LiveAllocation, call: int, start: int, stop: int) -> None:
        data, mask = self._trace.read_allocation(one.id, call, start, stop - start)
        if mask is None:
            self.write(one, start, data)
            return
        for left, right in known_runs(mask):
            self.write(one, start + left, data[left:right])

    # --- what changed ---------------------------------------------------------------------------------

    def touched(self, one: LiveAllocation, start: int, stop: int) -> None:
        """[start, stop) was written by other means than a launch: its digests are stale."""
        for page in range(start // PAGE_BYTES, -(-stop // PAGE_BYTES)):
            one.digests.pop(page, None)

    def snapshot(self, reach: Iterable[LiveAllocation]) -> None:
        """Digest what a launch is about to have the chance to change; keep the pages that differ already."""
        for one in reach:
            one.before.clear()
            for page, start, stop in _pages_of(one):
                if page not in one.digests:
                    one.digests[page] = _digest(self.read(one, start, stop - start))
                if one.differing and one.differing.within(start, stop):
                    one.before[page] = bytes(self.read(one, start, stop - start))

    def changed(self, reach: Iterable[LiveAllocation]) -> Ranges:
        """Allocation id → pages that changed since :meth:`snapshot`; the new digests replace the old."""
        changes: Ranges = {}
        for one in reach:
            for page, start, stop in _pages_of(one):
                digest = _digest(self.read(one, start, stop - start))
                if digest != one.digests.get(page):
                    one.digests[page] = digest
                    changes.setdefault(one.id, IntervalSet()).add(start, stop)
        return changes

    def record_pages(self, call: int) -> Ranges:
        """Live allocation id → ranges that the record holds contents of after ``call``."""
        found: Ranges = {}
        if call not in self._trace.calls_with_pages:
            return found
        for page in self._trace.pages(call):
            if page.allocation in self.live:
                start, stop = _clipped(page, self.live[page.allocation])
                found.setdefault(page.allocation, IntervalSet()).add(start, stop)
        return found

    def adopt_pages(self, ranges: Ranges, call: int, *, unknown_only: bool) -> None:
        """Take the record's contents after ``call`` into the replay.

        All of ``ranges``, or what of them was not known before.
        """
        for key, intervals in ranges.items():
            one = self.live[key]
            for start, stop in intervals:
                for left, right in one.known.missing(start, stop) if unknown_only else [(start, stop)]:
                    data, _ = self._trace.read_allocation(key, call, left, right - left, as_left=True)
                    self.write(one, left, data)

    def adopt_found(self, call: int) -> Ranges:
        """Take in what the record found between ``call`` and the next, which no call made; what it was of."""
        found: Ranges = {}
        if call not in self._trace.calls_with_pages:
            return found
        for page in self._trace.found_pages(call):
            one = self.live.get(page.allocation)
            if one is not None:
                start, stop = _clipped(page, one)
                self.write(one, start, self._trace.page_data(page)[: stop - start])
                found.setdefault(page.allocation, IntervalSet()).add(start, stop)
        return found


def _clipped(page: Page, one: LiveAllocation) -> tuple[int, int]:
    return page.offset, min(page.offset + page.length, one.size)


def _pages_of(one: LiveAllocation) -> Iterator[tuple[int, int, int]]:
    for page, start in enumerate(range(0, one.size, PAGE_BYTES)):
        yield page, start, min(start + PAGE_BYTES, one.size)


def _pieces(start: int, stop: int, size: int = 16 << 20) -> Iterator[tuple[int, int]]:
    for piece in range(start, stop, size):
        yield piece, min(piece + size, stop)


def _digest(data: bytes | memoryview) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
