"""Replaying a trace that has only digests of contents (``zluda trace --redact``, ``zluda strip``).

What the record holds cannot be put into the replay. But where the replay's own bytes have the digest that the
record has, they are the record's. So launches run whose memory the replay can have made by itself (by fills,
and by launches before), and are compared page by page; the rest is a ``gap``. Zeros are on record as such.
"""

from __future__ import annotations

from collections.abc import Iterable

from zluda.diff.results import LaunchResult, Verdict
from zluda.replay.handles import Unavailable
from zluda.replay.intervals import IntervalSet
from zluda.replay.judge import UNCHANGED
from zluda.replay.memory import LiveAllocation, Ranges, ReplayMemory
from zluda.tracefile import Call, Page, Trace
from zluda.tracefile.blobs import ZEROS, blob_key
from zluda.tracefile.stripping import STRIPPED, Part

SEALED = Unavailable(Verdict.GAP, "redacted: of what it reads the record has digests only")


def is_redacted(trace: Trace) -> bool:
    """Whether a trace has digests in place of contents."""
    return Part.CONTENTS.value in trace.meta.get(STRIPPED, ())


class RedactedMemory(ReplayMemory):
    """Memory of which the record has digests; what of it the replay does not have is *sealed*."""

    def __init__(self, trace: Trace, access: object) -> None:
        super().__init__(trace, access)  # type: ignore[arg-type]
        self._sealed: dict[int, IntervalSet] = {}

    def sealed(self, reach: Iterable[LiveAllocation]) -> Unavailable | None:
        """Why a launch cannot run that reaches these; None where the replay has all of them."""
        return SEALED if any(self._sealed.get(one.id) for one in reach) else None

    def is_sealed(self, one: LiveAllocation, start: int, stop: int) -> bool:
        """Whether the replay lacks some of these bytes."""
        return one.id in self._sealed and bool(self._sealed[one.id].within(start, stop))

    def seal(self, one: LiveAllocation, start: int, stop: int) -> None:
        """The record's bytes here are not the replay's, and cannot be had."""
        self._sealed.setdefault(one.id, IntervalSet()).add(start, stop)
        one.known.remove(start, stop)

    def adopted(self, one: LiveAllocation, start: int, stop: int) -> None:
        super().adopted(one, start, stop)
        if one.id in self._sealed:
            self._sealed[one.id].remove(start, stop)

    def adopt_page(self, page: Page) -> bool:
        """Take one row's contents to be the replay's, if they are; false where they are not."""
        one = self.live[page.allocation]
        start, stop = page.offset, page.offset + page.length
        if page.blob == ZEROS:
            self.write(one, start, bytes(page.length))
            return True
        ours = blob_key(bytes(self.read(one, start, page.length))) if stop <= one.size else b""
        if ours == self._trace.digest_of(page):
            self.adopted(one, start, stop)
            return True
        self.seal(one, start, stop)
        return False

    def adopt_pages(self, ranges: Ranges, call: int, *, unknown_only: bool) -> None:
        for page in self.pages_in(ranges, call):
            self.adopt_page(page)

    def adopt_found(self, call: int) -> Ranges:
        found: Ranges = {}
        for page in self._trace.found_pages(call) if call in self._trace.calls_with_pages else ():
            if page.allocation in self.live:
                self.adopt_page(page)
                found.setdefault(page.allocation, IntervalSet()).add(page.offset, page.offset + page.length)
        return found

    def restore(self, call: int, only: Iterable[LiveAllocation] | None = None) -> None:
        for one in self.live.values() if only is None else only:
            self.seal(one, 0, one.size)
            one.taint = None

    def _believe_record(self, one: LiveAllocation, call: int, start: int, stop: int) -> None:
        self.seal(one, start, stop)

    def pages_in(self, ranges: Ranges, call: int) -> list[Page]:
        """The rows of ``call`` in these ranges."""
        if call not in self._trace.calls_with_pages:
            return []
        return [
            page
            for page in self._trace.pages(call)
            if page.allocation in self.live
            and page.allocation in ranges
            and ranges[page.allocation].within(page.offset, page.offset + page.length)
        ]

    def judge(self, call: int, recorded: Ranges, replayed: Ranges) -> tuple[Verdict, str]:
        """The verdict of a launch that ran, by digests of what record and replay have changed."""
        parted = []
        for page in self.pages_in(recorded, call):
            if not self.adopt_page(page):
                parted.append((page.allocation, page.offset))
        for key, spans in replayed.items():
            for span in spans:
                for start, stop in recorded.get(key, IntervalSet()).missing(*span):
                    self.seal(self.live[key], start, stop)
                    parted.append((key, start))
        if parted:
            key, offset = min(parted)
            place = f"the first at {self.live[key].record.base + offset:#x}"
            return Verdict.DIFFERS, f"{len(parted)} of its pages by digest, {place}; contents are redacted"
        if recorded:
            return Verdict.IDENTICAL, ""
        return Verdict.NOT_COMPARED, UNCHANGED

    def judge_copy(
        self,
        call: Call,
        parameter: str,
        sources: Iterable[tuple[LiveAllocation, list[tuple[int, int]]]],
        data: bytes,
    ) -> LaunchResult:
        """The verdict of a copy to the host that delivered ``data`` here."""

        def result(verdict: Verdict, reason: str) -> LaunchResult:
            return LaunchResult(call.sequence, "copy", call.function, verdict, reason)

        if any(self.is_sealed(one, *span) for one, spans in sources for span in spans):
            return result(SEALED.verdict, SEALED.reason)
        pieces = self._trace.payload_digests(call.sequence, parameter)
        if sum(length for _, length, _ in pieces) < len(data):
            return result(Verdict.NOT_COMPARED, "the bytes it delivered were not captured")
        if all(blob_key(data[offset : offset + length]) == digest for offset, length, digest in pieces):
            return result(Verdict.IDENTICAL, "")
        return result(Verdict.DIFFERS, "by its digest; contents are redacted")
