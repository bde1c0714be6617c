"""Holding what a launch or copy did against the record (D3).

Compared is the union of what the record says a call changed and what the replay changed, byte for byte where
the record knows the byte. So a byte that only the replay wrote is a difference, and so is one that it failed
to write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace

from zluda.diff.results import BufferComparison, Element, LaunchResult, Verdict
from zluda.diff.types.layout import BYTES, UNKNOWN, Layout
from zluda.diff.types.regions import BufferTypes, Region
from zluda.diff.values import combine, compare, with_equal
from zluda.records import dataclass
from zluda.replay.intervals import IntervalSet
from zluda.replay.memory import LiveAllocation, ReplayMemory
from zluda.tracefile import PAGE_BYTES, Call

UNCHANGED = "neither NVIDIA nor this device changed a byte that it reaches"
"""Of a launch that left memory as it was."""

_PAGES_AT_ONCE = 4

WORD_BYTES = 8
"""What holds whole elements of every type."""

TypeOf = Callable[[LiveAllocation], BufferTypes]
"""What an allocation holds; only asked where bytes differ."""

NameOf = Callable[[LiveAllocation], str]
"""What a person calls an allocation: a variable's name, ``parameter 3``, or nothing."""


@dataclass(slots=True)
class Compared:
    """The comparison of one call's memory. ``changed`` and ``known`` are bytes."""

    buffers: list[BufferComparison] = field(default_factory=list)
    changed: int = 0
    known: int = 0
    only_replayed: bool = True  # every differing byte is one that the record left alone
    only_recorded: bool = True  # every differing byte is one that the replay left alone
    only_before: bool = True  # every differing byte differed before, and one side has left it so
    before_since: int | None = None  # the call since which

    @property
    def differs(self) -> bool:
        return any(not buffer.identical for buffer in self.buffers)

    @property
    def written_share(self) -> float | None:
        return self.known / self.changed if self.changed else None


def judge_launch(
    compared: Compared, reach: list[LiveAllocation], differing_before: int | None
) -> tuple[Verdict, str]:
    """The verdict of a launch that ran, and the reason.

    ``differing_before`` is the call since which the launch's inputs differ, None where they are equal.
    """
    if compared.differs:
        if differing_before is not None:
            return Verdict.INHERITED, f"its inputs already differed after call {differing_before}"
        if compared.only_before:
            return Verdict.INHERITED, f"bytes that already differed after call {compared.before_since}"
        return Verdict.DIFFERS, _kind_of_difference(compared)
    if compared.known:
        return Verdict.IDENTICAL, ""
    if compared.changed:
        return Verdict.NOT_COMPARED, "the record does not know what it wrote"
    if any(one.known for one in reach):
        # It wrote nothing, or what was there already: either way no byte of it was compared.
        return Verdict.NOT_COMPARED, UNCHANGED
    return Verdict.NOT_COMPARED, "it reaches no memory that the record knows"


def _kind_of_difference(compared: Compared) -> str:
    if compared.only_replayed:
        return "bytes that only the replay wrote"
    if compared.only_recorded:
        return "bytes that the replay did not write"
    return ""


def compare_memory(
    memory: ReplayMemory,
    call: int,
    recorded: Mapping[int, IntervalSet],
    replayed: Mapping[int, IntervalSet],
    type_of: TypeOf,
    name_of: NameOf,
) -> Compared:
    """Compare, after ``call``, the union of what record and replay say changed.

    Where they part is noted in ``memory``.
    """
    compared = Compared()
    for key in dict.fromkeys([*recorded, *replayed]):
        union = IntervalSet([*recorded.get(key, ()), *replayed.get(key, ())])
        one = memory.live[key]
        pieces = _Pieces(memory, one, call, compared, type_of)
        for start, stop in _page_pieces(union):
            pieces.add(start, stop)
        if union:
            compared.buffers += pieces.comparisons(union, name_of(one))
    return compared


def _page_pieces(union: IntervalSet) -> Iterator[tuple[int, int]]:
    """Pieces that stay inside one page: what :class:`ReplayMemory` notes as differing is a piece."""
    for start, stop in union:
        while start < stop:
            end = min(stop, (start // PAGE_BYTES + 1) * PAGE_BYTES)
            yield start, end
            start = end


class _Pieces:
    """One allocation, compared piece by piece. Only pieces that differ are kept and need a type."""

    def __init__(
        self, memory: ReplayMemory, one: LiveAllocation, call: int, compared: Compared, type_of: TypeOf
    ) -> None:
        self._memory, self._one, self._call, self._compared = memory, one, call, compared
        self._type_of = type_of
        self._known = 0
        self._different: list[tuple[int, bytes, bytes, bytes | None]] = []
        self._equal: list[tuple[int, int]] = []

    def add(self, start: int, stop: int) -> None:
        """Compare [start, stop), which lies in one page."""
        one, memory, size = self._one, self._memory, stop - start
        left = memory.recorded(one, self._call, start, size, as_left=True)
        right = bytes(memory.read(one, start, size))
        known = known_mask(one.known, start, stop)
        one.differing.remove(start, stop)
        if left != right:
            before = memory.recorded(one, self._call - 1, start, size)
            old = self._replayed_before(start, size)
            leftover, known = self._without_leftovers(start, before, old, left, right, known)
            self._compared.changed -= leftover
            differs = _note_writers(self._compared, before, old, left, right, known)
            if differs and self._compared.only_before:
                self._compared.before_since = one.differing_since
            elif not leftover and not one.differing:
                one.differing_since = None  # what differs from here on, this call made
            if leftover or differs:
                memory.mark_differing(one, start, stop, self._call)
            if differs:
                self._different.append((start, left, right, known))
        else:
            self._equal.append((start, stop))
        self._compared.changed += size
        self._known += size if known is None else known.count(1)
        if not one.differing:
            one.differing_since = None

    def _replayed_before(self, start: int, size: int) -> bytes | None:
        """What the replay held here before the call, where it differed then; None elsewhere."""
        page = start // PAGE_BYTES
        contents = self._one.before.get(page)
        offset = start - page * PAGE_BYTES
        return None if contents is None else contents[offset : offset + size]

    def _without_leftovers(
        self,
        start: int,
        before: bytes,
        old: bytes | None,
        recorded: bytes,
        replayed: bytes,
        known: bytes | None,
    ) -> tuple[int, bytes | None]:
        """As :func:`_without_leftovers`, by elements of the allocation."""
        if old is None:
            return 0, known
        region = self._type_of(self._one).at(start)
        size = region.layout.period if region.layout.single != BYTES else WORD_BYTES
        return _without_leftovers(before, old, recorded, replayed, known, size)

    def comparisons(self, union: IntervalSet, name: str) -> Iterator[BufferComparison]:
        """All pieces as one comparison of the range that they span; where some differ, one of each part of
        the allocation that holds something else.
        """
        self._compared.known += self._known
        if not self._different:
            yield self._whole(union, name)
            return
        types = self._type_of(self._one)
        for region, spans in _by_region(types, union):
            yield self._of_region(region, spans, name)

    def _whole(self, union: IntervalSet, name: str) -> BufferComparison:
        spans, one = list(union), self._one
        offset, end = spans[0][0], spans[-1][1]
        nothing = compare(b"", b"", BYTES, base=one.record.base, offset=offset, allocation=one.id, name=name)
        return replace(nothing, size=end - offset, bytes_compared=self._known, elements=union.size)

    def _of_region(self, region: Region, spans: list[tuple[int, int]], name: str) -> BufferComparison:
        """The part of the pieces that lies in ``spans``."""
        one, first, last = self._one, spans[0][0], spans[-1][1]
        name = one.record.name or region.label or name
        place = {"base": one.record.base, "allocation": one.id, "name": name}
        parts = [
            compare(
                left[low:high],
                right[low:high],
                region.layout,
                offset=start + low,
                known=None if known is None else known[low:high],
                coordinates=region.place,
                rows=region.rows,
                **place,  # type: ignore[arg-type]
            )
            for start, left, right, known in self._runs(region.layout)
            for low, high in [(max(first - start, 0), min(last - start, len(left)))]
            if low < high
        ] or [compare(b"", b"", region.layout, offset=first, **place)]  # type: ignore[arg-type]
        combined = combine(parts)
        if combined.differing:
            combined = with_equal(combined, self._equal_contents(first, last))
        known_bytes = sum(
            stop - start - sum(right - left for left, right in one.known.missing(start, stop))
            for start, stop in spans
        )
        return replace(
            combined,
            first=_with_places(one, combined),
            offset=first,
            size=last - first,
            bytes_compared=known_bytes,
            elements=_elements(region.layout, sum(stop - start for start, stop in spans)),
        )

    def _runs(self, layout: Layout) -> Iterator[tuple[int, bytes, bytes, bytes | None]]:
        """The pieces that differ. Where elements may lie across pages, pieces that meet are one, and reach to
        the ends of their first and last elements.
        """
        if PAGE_BYTES % layout.period == 0 and layout.phase % layout.period == 0:
            yield from _joined_runs(self._different)
            return
        one, memory = self._one, self._memory
        starts = IntervalSet((start, start + len(left)) for start, left, _, _ in self._different)
        for low, high in starts:
            first = max((low - layout.phase) // layout.period * layout.period + layout.phase, 0)
            last = min(-(-(high - layout.phase) // layout.period) * layout.period + layout.phase, one.size)
            left = memory.recorded(one, self._call, first, last - first, as_left=True)
            right = bytes(memory.read(one, first, last - first))
            mask = bytearray(known_mask(one.known, first, last) or b"\1" * (last - first))
            for start, piece, _, known in self._different:
                if low <= start < high and known is not None:
                    mask[start - first : start - first + len(piece)] = known
            yield first, left, right, bytes(mask)

    def _equal_contents(self, first: int, last: int) -> Iterator[tuple[int, bytes]]:
        """What the record holds where nothing differs: metrics are of all elements."""
        one, memory = self._one, self._memory
        for start, stop in self._equal:
            for low, high in one.known.within(max(start, first), min(stop, last)):
                yield low, memory.recorded(one, self._call, low, high - low, as_left=True)


def _joined_runs(
    pieces: list[tuple[int, bytes, bytes, bytes | None]],
) -> Iterator[tuple[int, bytes, bytes, bytes | None]]:
    """Pieces, as many as meet and are of few pages as one: a comparison costs what its elements do, then."""
    at = 0
    while at < len(pieces):
        run = [pieces[at]]
        at += 1
        while (
            at < len(pieces) and len(run) < _PAGES_AT_ONCE and pieces[at][0] == run[-1][0] + len(run[-1][1])
        ):
            run.append(pieces[at])
            at += 1
        known = _joined([(mask, (start, start + len(left))) for start, left, _, mask in run])
        yield run[0][0], b"".join(one[1] for one in run), b"".join(one[2] for one in run), known


def _by_region(types: BufferTypes, union: IntervalSet) -> Iterator[tuple[Region, list[tuple[int, int]]]]:
    """Each part of an allocation that a set of bytes touches, and where."""
    found: list[tuple[Region, list[tuple[int, int]]]] = []
    for span in union:
        for start, stop, region in types.pieces(*span):
            if found and found[-1][0] is region:
                found[-1][1].append((start, stop))
            else:
                found.append((region, [(start, stop)]))
    yield from found


def _elements(layout: Layout, size: int) -> int:
    """How many elements so many bytes are."""
    if layout == UNKNOWN:
        return size
    return size * len(layout.fields) // layout.period


def _with_places(one: LiveAllocation, part: BufferComparison) -> tuple[Element, ...]:
    """The first differing elements, in an array with their coordinates."""
    if one.array is None:
        return part.first
    shape, base = one.array.shape, part.base
    return tuple(replace(element, place=shape.place(element.address - base)) for element in part.first)


def _without_leftovers(
    before: bytes, old: bytes, recorded: bytes, replayed: bytes, known: bytes | None, size: int
) -> tuple[int, bytes | None]:
    """How many bytes lie in elements of ``size`` bytes that differ only since an earlier call, and the mask
    without them. Neither side changed those in this call, so it is not judged by them.
    """
    import numpy as np

    a, b, c, d = (np.frombuffer(side, np.uint8) for side in (before, old, recorded, replayed))
    counted = np.ones(len(a), bool) if known is None else np.frombuffer(known, np.uint8) != 0
    same = (a == c) & (b == d)
    padding = -len(a) % size
    words = [np.pad(side, (0, padding)).reshape(-1, size) for side in (counted & (a != b), counted & ~same)]
    leftover = np.repeat(words[0].any(axis=1) & ~words[1].any(axis=1), size)[: len(a)] & counted
    return int(leftover.sum()), (counted & ~leftover).astype(np.uint8).tobytes()


def _note_writers(
    compared: Compared,
    before: bytes,
    old: bytes | None,
    recorded: bytes,
    replayed: bytes,
    known: bytes | None,
) -> bool:
    """Whether known bytes differ, and whose writes they can be where only one side wrote them.

    ``before`` and ``old`` are what record and replay held before the call; no ``old`` where they agreed.
    """
    import numpy as np

    sides = (before, before if old is None else old, recorded, replayed)
    a, b, c, d = (np.frombuffer(side, np.uint8) for side in sides)
    differing = c != d
    if known is not None:
        differing &= np.frombuffer(known, np.uint8) != 0
    if not differing.any():
        return False
    a, b, c, d = (side[differing] for side in (a, b, c, d))
    agreed, record_kept, replay_kept = a == b, a == c, b == d
    compared.only_replayed &= bool((agreed & record_kept).all())
    compared.only_recorded &= bool((agreed & replay_kept).all())
    compared.only_before &= bool((~agreed & (record_kept | replay_kept)).all())
    return True


def known_mask(known: IntervalSet, start: int, stop: int) -> bytes | None:
    """A byte a byte of [start, stop): 1 where it is in the set; None where all are."""
    holes = known.missing(start, stop)
    if not holes:
        return None
    mask = bytearray(b"\1" * (stop - start))
    for left, right in holes:
        mask[left - start : right - start] = bytes(right - left)
    return bytes(mask)


def judge_copy(
    call: Call,
    one: LiveAllocation,
    spans: Sequence[tuple[int, int]],
    recorded: bytes | None,
    replayed: bytes,
    type_of: TypeOf,
) -> LaunchResult:
    """The verdict of a copy to the host: the bytes that NVIDIA delivered against those delivered here.

    ``spans`` are the ranges of the allocation that it delivers, one after the other.
    """

    def result(verdict: Verdict, reason: str = "", *buffers: BufferComparison) -> LaunchResult:
        share = buffers[0].bytes_compared / len(replayed) if buffers else None
        return LaunchResult(
            call.sequence, "copy", call.function, verdict, reason, buffers=buffers, written_share=share
        )

    if recorded is None or len(recorded) < len(replayed):
        return result(Verdict.NOT_COMPARED, "the bytes it delivered were not captured")
    recorded = recorded[: len(replayed)]
    known = _joined([(known_mask(_comparable(one, *span), *span), span) for span in spans])
    region = Region(0, UNKNOWN) if recorded == replayed else type_of(one).at(spans[0][0])
    part = compare(
        recorded,
        replayed,
        region.layout,
        base=one.record.base,
        offset=spans[0][0] if len(spans) == 1 else 0,
        allocation=one.id,
        name=one.record.name,
        known=known,
        coordinates=region.place if len(spans) == 1 else None,
        rows=region.rows if len(spans) == 1 else None,
    )
    if len(spans) > 1:
        part = _placed(one, part, spans)
    part = replace(part, first=_with_places(one, part))
    if part.differing:
        if any(one.differing.within(*span) for span in spans):
            reason = f"what it copies already differed after call {one.differing_since}"
            return result(Verdict.INHERITED, reason, part)
        return result(Verdict.DIFFERS, "", part)
    if not part.bytes_compared:
        return result(Verdict.NOT_COMPARED, "nothing of what it copies was ever written", part)
    return result(Verdict.IDENTICAL, "", part)


def _placed(
    one: LiveAllocation, part: BufferComparison, spans: Sequence[tuple[int, int]]
) -> BufferComparison:
    """A comparison of delivered rows, its elements told by where they are in the allocation."""
    elements = []
    for element in part.first:
        at = element.address - one.record.base
        for start, stop in spans:
            if at < stop - start:
                break
            at -= stop - start
        offset = start + at
        index = (offset - part.layout.phase) // part.layout.period
        elements.append(replace(element, index=index, address=one.record.base + offset))
    return replace(part, first=tuple(elements), offset=spans[0][0])


def _joined(masks: Sequence[tuple[bytes | None, tuple[int, int]]]) -> bytes | None:
    """One mask of several; None where all are."""
    if all(mask is None for mask, _ in masks):
        return None
    return b"".join(b"\1" * (stop - start) if mask is None else mask for mask, (start, stop) in masks)


def _comparable(one: LiveAllocation, start: int, stop: int) -> IntervalSet:
    """Bytes that record and replay can agree on.

    Memory that nobody wrote holds whatever it held. Once a launch has reached an allocation its contents may
    be computed ones, so all of it counts.
    """
    if one.reached:
        return IntervalSet([(start, stop)])
    return IntervalSet([*one.known, *one.unrecorded])
