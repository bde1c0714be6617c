"""Two traces (records, or replays kept with ``-o``) call by call: does the second hold what the first holds?

Launches and copies to the host are paired in order, and must be of the same kernel; of a part and the trace
that it was cut from, those of one number are. A launch of another shape or with other parameters differs.
After each launch the memory that either trace says it changed is compared; a copy's delivered bytes are.
Allocations are paired by birth: the n-th of a size, kind and name in one with the n-th in the other, so that
two recordings at different addresses can be compared: a word that points into memory on both sides is
compared by what it points to.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import zip_longest

from zluda.diff.addresses import same_places
from zluda.diff.launch_shape import asked_otherwise
from zluda.diff.pairing import (
    Event,
    Span,
    both_known,
    call_of,
    events,
    is_part,
    name_of,
    pair_allocations,
    pairs_of_parts,
    union,
)
from zluda.diff.results import BufferComparison, LaunchResult, ReplayResult, Verdict
from zluda.diff.types.launches import LaunchTypes
from zluda.diff.types.layout import BYTES
from zluda.diff.types.override import Override
from zluda.diff.types.regions import EVERYTHING_UNKNOWN, BufferTypes, Region
from zluda.diff.values import combine, compare
from zluda.tracefile import NOT_REPLAYED, PAGE_BYTES, Allocation, Call, Direction, Launch, Payload, Trace
from zluda.tracefile.reachability import LiveSpans, reachable


def compare_traces(
    left: Trace,
    right: Trace,
    *,
    progress: Callable[[int], None] | None = None,
    overrides: Sequence[Override] = (),
) -> ReplayResult:
    """Compare ``right`` (as the replay) with ``left`` (as the record).

    ``progress`` is told the call number after each launch or copy; ``overrides`` say what buffers hold.
    Raises :class:`TraceError` on damaged contents.
    """
    started = time.monotonic()
    comparison = _Comparison(left, right, overrides)
    results: list[LaunchResult] = []
    part = is_part(left, right)
    pairs = pairs_of_parts(left, right) if part else zip_longest(events(left), events(right))
    for first, second in pairs:
        result = (
            comparison.event(first, second) if not part or (first and second) else _left_out(first, second)
        )
        results.append(result)
        if progress is not None:
            progress(result.call)
        if not part and not _same(first, second):
            results += [_unpaired(event) for event in events(left, result.call + 1)]
            break
    return ReplayResult(
        trace=str(left.path),
        device=f"{right.meta['device']} ({right.path})" if "device" in right.meta else str(right.path),
        emulated=bool(right.meta.get("emulated", False)),
        numerics=str(right.meta.get("numerics", "recorded")),
        results=results,
        seconds=time.monotonic() - started,
        meta=dict(left.meta),
        other=str(right.path),
    )


def _result(event: Event, verdict: Verdict, reason: str = "", **values: object) -> LaunchResult:
    if isinstance(event, Launch):
        time_ns = event.gpu_time_ns
        values |= {
            "grid": event.grid,
            "block": event.block,
            "fidelity": event.fidelity,
            "recorded_seconds": None if time_ns is None else time_ns / 1e9,
        }
    kind = "launch" if isinstance(event, Launch) else "copy"
    return LaunchResult(call_of(event), kind, name_of(event), verdict, reason, **values)  # type: ignore[arg-type]


def _same(first: Event | None, second: Event | None) -> bool:
    """Two launches of one kernel, or two copies by one function."""
    return (
        first is not None
        and second is not None
        and type(first) is type(second)
        and name_of(first) == name_of(second)
    )


def _left_out(first: Event | None, second: Event | None) -> LaunchResult:
    event = first or second
    assert event is not None
    return _result(event, Verdict.NOT_COMPARED, "it is not in both parts of the recording")


def _unpaired(event: Event) -> LaunchResult:
    return _result(event, Verdict.GAP, "the traces part before this call")


class _Comparison:
    """What is known of the two traces while their events are walked together."""

    def __init__(self, left: Trace, right: Trace, overrides: Sequence[Override] = ()) -> None:
        self.left, self.right = left, right
        self.partner = pair_allocations(left, right)
        self.types = LaunchTypes(left, overrides)
        self.left_out = [
            {gap.call: gap.text for gap in trace.gaps if gap.kind == NOT_REPLAYED} for trace in (left, right)
        ]
        self.allocations = {allocation.id: allocation for allocation in left.allocations}
        self.reverse = {theirs: ours for ours, theirs in self.partner.items()}
        self._last_spans: dict[bool, tuple[int, LiveSpans]] = {}  # of the left trace or the right
        self.seen_types: dict[int, BufferTypes] = {}  # of allocations, by the launches so far

    def event(self, first: Event | None, second: Event | None) -> LaunchResult:
        if first is None or second is None:
            event = first or second
            assert event is not None
            missing = self.right if second is None else self.left
            return _result(event, Verdict.GAP, f"{missing.path} has no {name_of(event)} to pair with it")
        if not _same(first, second):
            reason = f"{self.right.path} has {name_of(second)} here (call {call_of(second)})"
            return _result(first, Verdict.GAP, reason)
        if isinstance(first, Launch) and isinstance(second, Launch):
            return self._launch(first, second)
        assert isinstance(first, Call)
        assert isinstance(second, Call)
        return self._copy(first, second)

    def _launch(self, first: Launch, second: Launch) -> LaunchResult:
        for left_out, launch in zip(self.left_out, (first, second), strict=True):
            if launch.call in left_out:
                return _result(first, Verdict.GAP, left_out[launch.call])
        ours, theirs = self._changes(first, second)
        missing = [
            trace.path
            for trace, launch, changed in ((self.left, first, ours), (self.right, second, theirs))
            if not launch.captured and not changed
        ]
        if missing:
            verdict = Verdict.NOT_COMPARED if len(missing) == 2 else Verdict.GAP
            return _result(first, verdict, f"{missing[-1]} holds no memory after this launch")
        self.seen_types |= self._types_of(first)
        buffers = tuple(
            buffer
            for key, spans in sorted(union(ours, theirs).items())
            for buffer in self._buffers(key, spans, first.call, second.call)
        )
        unpaired = self._unpaired_changes(first, second)
        if unpaired:
            return _result(first, Verdict.GAP, unpaired, buffers=buffers)
        verdict, reason = self._verdict(first, second, buffers)
        return _result(first, verdict, reason, buffers=buffers, written_share=_share(buffers))

    def _types_of(self, launch: Launch) -> dict[int, BufferTypes]:
        """Allocation → what it holds."""
        spans = LiveSpans()
        live = self.left.live_allocations(launch.call)
        for allocation in live:
            spans.add(allocation.id, allocation.base, allocation.size)
        variables = {a.name: a.id for a in live if a.module is not None and a.module == launch.module}

        def find(address: int) -> tuple[int, int] | None:
            key = spans.find(address)
            return None if key is None else (key, address - self.allocations[key].base)

        return self.types.of(launch, find, variables)

    def _verdict(
        self, first: Launch, second: Launch, buffers: tuple[BufferComparison, ...]
    ) -> tuple[Verdict, str]:
        otherwise = self._asked_otherwise(first, second)
        if otherwise:
            return Verdict.DIFFERS, otherwise
        if not buffers:
            return Verdict.NOT_COMPARED, "neither launch changed a byte"
        if _share(buffers) == 0:
            return Verdict.NOT_COMPARED, "nothing that was written is known in both"
        if all(buffer.identical for buffer in buffers):
            return Verdict.IDENTICAL, ""
        source = self._differing_input(first, second)
        if source is not None:
            return Verdict.INHERITED, f"its input {source} already differed"
        return Verdict.DIFFERS, ""

    def _asked_otherwise(self, first: Launch, second: Launch) -> str:
        def lives() -> tuple[list[Allocation], list[Allocation]]:
            return self.left.live_allocations(first.call), self.right.live_allocations(second.call)

        return asked_otherwise(first, second, lives, self.partner)

    def _changes(self, first: Launch, second: Launch) -> tuple[dict[int, list[Span]], dict[int, list[Span]]]:
        """What each trace says its launch changed, by the left trace's allocation."""
        ours: dict[int, list[Span]] = defaultdict(list)
        theirs: dict[int, list[Span]] = defaultdict(list)
        for page in self.left.pages(first.call):
            ours[page.allocation].append((page.offset, page.offset + page.length))
        for page in self.right.pages(second.call):
            key = self.reverse.get(page.allocation)
            if key is not None:
                theirs[key].append((page.offset, page.offset + page.length))
        return ours, theirs

    def _unpaired_changes(self, first: Launch, second: Launch) -> str:
        """Why the launches cannot be compared as a whole: one changed memory that the other trace does not
        have.
        """
        sides = ((self.left, first, self.partner, self.right), (self.right, second, self.reverse, self.left))
        for trace, launch, paired, other in sides:
            for page in trace.pages(launch.call):
                if page.allocation not in paired:
                    return (
                        f"{trace.path} changed allocation {page.allocation}, which {other.path} does not have"
                    )
        return ""

    def _buffers(self, key: int, spans: list[Span], first: int, second: int) -> list[BufferComparison]:
        """What two launches left in an allocation: a comparison of each part that holds something else."""
        types = self.seen_types.get(key, EVERYTHING_UNKNOWN)
        parts: dict[Region, list[BufferComparison]] = {}
        for span in spans:
            for start, stop, region in types.pieces(*span):
                part = self._buffer(key, (start, stop), first, second, region, as_left=True)
                parts.setdefault(region, []).append(part)
        return [combine(found) for found in parts.values()]

    def _buffer(
        self,
        key: int,
        span: Span,
        first: int,
        second: int,
        region: Region | None = None,
        *,
        as_left: bool = False,
    ) -> BufferComparison:
        """One range after call ``first`` of the left trace and call ``second`` of the right, as bytes where
        no region is given; ``as_left``: as those calls left it.
        """
        start, end = span
        data, known = self.left.read_allocation(key, first, start, end - start, as_left=as_left)
        partner = self.partner.get(key)
        other, other_known = (
            (bytes(end - start), bytes(end - start))
            if partner is None
            else self.right.read_allocation(partner, second, start, end - start, as_left=as_left)
        )
        allocation = self.allocations[key]
        if data != other:
            other = self._as_ours(data, other, start, first, second)
        return compare(
            data,
            other,
            BYTES if region is None else region.layout,
            base=allocation.base,
            offset=start,
            allocation=key,
            name=allocation.name or ("" if region is None else region.label),
            known=both_known(known, other_known),
            coordinates=None if region is None else region.place,
        )

    def _as_ours(self, data: bytes, other: bytes, start: int, first: int, second: int) -> bytes:
        """The right side's bytes with addresses as the left side's, where both point to the same place of
        paired allocations.
        """
        return same_places(
            data, other, start, self._spans(self.left, first), self._spans(self.right, second), self.partner
        )

    def _spans(self, trace: Trace, call: int) -> LiveSpans:
        """The allocations alive after a call."""
        key = (trace is self.left, call)
        if self._last_spans.get(key[0], (None,))[0] != call:
            spans = LiveSpans()
            for allocation in trace.live_allocations(call):
                spans.add(allocation.id, allocation.base, allocation.size)
            self._last_spans[key[0]] = (call, spans)
        return self._last_spans[key[0]][1]

    def _differing_input(self, first: Launch, second: Launch) -> str | None:
        """What a person calls the first reachable allocation whose contents differed before the launch."""
        spans = LiveSpans()
        live = self.left.live_allocations(first.call - 1)
        for allocation in live:
            spans.add(allocation.id, allocation.base, allocation.size)

        def read(key: int) -> bytes:
            return self.left.read_allocation(key, first.call - 1, 0, self.allocations[key].size)[0]

        roots = [a.id for a in live if a.module is not None and a.module == first.module]
        for key in reachable(first.parameters, spans, read, roots):
            if self._differed(key, first.call - 1, second.call - 1):
                return self.allocations[key].name or f"{self.allocations[key].base:#x}"
        return None

    def _differed(self, key: int, first: int, second: int) -> bool:
        """Whether an allocation is known to differ after these calls; a pool of gigabytes is looked at where
        there is anything on record.
        """
        size = self.allocations[key].size
        for number in self.left.pages_on_record(key, first):
            span = (number * PAGE_BYTES, min((number + 1) * PAGE_BYTES, size))
            if span[0] < span[1] and not self._buffer(key, span, first, second).identical:
                return True
        return False

    def _copy(self, first: Call, second: Call) -> LaunchResult:
        ours, theirs = _delivered(self.left, first), _delivered(self.right, second)
        if [_extent(payload) for payload in ours] != [_extent(payload) for payload in theirs]:
            return _result(first, Verdict.GAP, "the two copies are not of the same size")
        source = _source(first)
        buffers = tuple(
            self._delivery(mine, other, first, source) for mine, other in zip(ours, theirs, strict=True)
        )
        if all(buffer.identical for buffer in buffers):
            return _result(first, Verdict.IDENTICAL, buffers=buffers)
        if self._source_differs(first, second, sum(len(payload.data) for payload in ours)):
            return _result(first, Verdict.INHERITED, "its source already differed", buffers=buffers)
        return _result(first, Verdict.DIFFERS, buffers=buffers)

    def _delivery(self, mine: Payload, other: Payload, call: Call, source: int | None) -> BufferComparison:
        """Bytes that a copy delivered, as elements of the allocation that they came from where that is
        known.
        """
        holder = None if source is None else self.left.memory_at(call.sequence).allocation(source)
        if holder is None or source is None:
            return compare(mine.data, other.data, BYTES, offset=mine.offset, name="copied bytes")
        offset = source - holder.base + mine.offset
        region = self.seen_types.get(holder.id, EVERYTHING_UNKNOWN).at(offset)
        return compare(
            mine.data,
            other.data,
            region.layout,
            coordinates=region.place,
            base=holder.base,
            offset=offset,
            allocation=holder.id,
            name=holder.name,
        )

    def _source_differs(self, first: Call, second: Call, size: int) -> bool:
        ours, theirs = _source(first), _source(second)
        if ours is None or theirs is None:
            return False
        data, known = self.left.read_memory(first.sequence, ours, size)
        other, other_known = self.right.read_memory(second.sequence, theirs, size)
        return not compare(data, other, BYTES, known=both_known(known, other_known)).identical


def _share(buffers: tuple[BufferComparison, ...]) -> float | None:
    """The share of what was written that was compared; None where nothing was written."""
    size = sum(buffer.size for buffer in buffers)
    return sum(buffer.bytes_compared for buffer in buffers) / size if size else None


def _delivered(trace: Trace, call: Call) -> list[Payload]:
    return [payload for payload in trace.payloads(call.sequence) if payload.direction is Direction.OUT]


def _source(call: Call) -> int | None:
    """The device address that a copy to the host read, where one of its arguments says so."""
    return next((call.arguments[name] for name in ("srcDevice", "src") if name in call.arguments), None)


def _extent(payload: Payload) -> tuple[int, int]:
    return payload.offset, len(payload.data)
