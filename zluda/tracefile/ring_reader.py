"""The consumer's side of a ring; ``ring.py`` describes the layout and the order that holds."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Container, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from zluda.errors import TraceError
from zluda.tracefile.ring import (
    ENTER,
    MAX_RECORD_SLOTS,
    PAD,
    RECORD_HEADER_BYTES,
    RING,
    RING_HEADER_BYTES,
    RING_MAGIC,
    SLOT_BYTES,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


_WARM_FROM, _WARM_AHEAD, _WARM_AT_MOST = 1 << 20, 32 << 20, 256 << 20
_MADV_POPULATE_READ = 22


class Record(NamedTuple):
    """One record taken out of a ring."""

    time_ns: int
    kind: int
    sequence: int
    function: int
    extra: int
    thread: int
    body: bytes


class Ring:
    """The consumer's side of one ring."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with open(path, "r+b") as file:
            size = os.fstat(file.fileno()).st_size
            if size <= RING_HEADER_BYTES:
                raise TraceError("truncated", file=str(path), offset=size)
            self._map = mmap.mmap(file.fileno(), size)
        capacity = (size - RING_HEADER_BYTES) // SLOT_BYTES
        if self._word("MAGIC") != RING_MAGIC or self._word("CAPACITY") != capacity:
            self._map.close()
            raise TraceError("not a ring of this version", file=str(path), offset=0)
        self.capacity = capacity
        self.thread = self._word("THREAD")
        self.tail = self._word("TAIL")
        self.read_before = 0  # up to this slot an earlier drain has read the records
        self._held: tuple[int, int] | None = None  # (slot, number) of the last outermost call
        self._warm = 0  # bytes of slots that the kernel has pages for

    def _word(self, name: str) -> int:
        return int(struct.unpack_from("<Q", self._map, RING[name])[0])

    @property
    def head(self) -> int:
        """Slots ever written; everything before it is complete."""
        return self._word("HEAD")

    @property
    def closed(self) -> bool:
        """The thread has ended."""
        return bool(self._word("CLOSED"))

    def batch(self, limit: int) -> Batch | None:
        """The records that are waiting, at most ``limit`` slots of them; None where there are none.

        Nothing is consumed before :meth:`consume`. Raises TraceError where a record's commit word or length
        is not what the producer writes.
        """
        index = self.tail % self.capacity
        waiting = self.head - self.tail
        again = self.tail < self.read_before
        slots = min(waiting, self.capacity - index, self.read_before - self.tail if again else limit)
        if slots <= 0:
            return None
        start = RING_HEADER_BYTES + index * SLOT_BYTES
        data = self._map[start : start + slots * SLOT_BYTES]
        fields = _header_fields(data, slots)
        lengths = fields["slots"].tolist()
        at, starts = 0, []
        while at < slots:
            starts.append(at)
            at += lengths[at] or slots
        if at > slots:  # the last one is cut off by the limit, or its length is wrong
            last = starts.pop()
            if not starts:
                return self._long(limit, lengths[last])
            at = last
        batch = Batch(self, data, starts, fields[starts], at, waiting > at, again=again)
        expected = (np_array(starts) + (self.tail + 1)).astype("<u4")
        wrong = batch.rows["commit"] != expected
        if wrong.any():
            place = start + starts[int(wrong.argmax())] * SLOT_BYTES
            raise TraceError("record without its commit word", file=str(self.path), offset=place)
        return batch

    def _long(self, limit: int, slots: int) -> Batch | None:
        """A first record longer than ``limit``, or a damaged one."""
        if limit >= MAX_RECORD_SLOTS or not slots:
            place = RING_HEADER_BYTES + self.tail % self.capacity * SLOT_BYTES
            raise TraceError("damaged record", file=str(self.path), offset=place)
        return self.batch(MAX_RECORD_SLOTS)

    def consume(self, slots: int, outermost: tuple[int, int] | None) -> None:
        """Move ``tail`` (not the shared one: see :meth:`release`). ``outermost``: slot and number of the last
        outermost call entered in what was consumed, if there is one.
        """
        first = RING_HEADER_BYTES + self.tail % self.capacity * SLOT_BYTES
        self._forget(first, first + slots * SLOT_BYTES)
        self.tail += slots
        if outermost is not None:
            self._held = outermost

    def kept_from(self, open_calls: Container[int]) -> int:
        """Where this ring must be kept from: the outermost open call's records, else ``tail``.

        What an open call carries is not in the trace before it returns, so its records stay, unless they take
        half the ring: then they go, rather than that the application waits for ever.
        """
        if self._held is not None:
            slot, sequence = self._held
            if sequence in open_calls and self.tail - slot <= self.capacity // 2:
                return slot
            self._held = None
        return self.tail

    def release(self, tail: int) -> None:
        """Give the slots before ``tail`` back to the producer."""
        struct.pack_into("<Q", self._map, RING["TAIL"], tail)

    def warm(self) -> None:
        """Have the kernel make the pages that the producer is about to write for the first time: its stores
        then take half the time. Called often; does nothing from the second lap on, and for rings hardly used.
        """
        written, whole = self.head * SLOT_BYTES, self.capacity * SLOT_BYTES
        end = min(written + min(max(_WARM_AHEAD, written), _WARM_AT_MOST), whole)
        if not _WARM_FROM <= written < whole or end - self._warm < mmap.PAGESIZE or self._warm == whole:
            return
        start = max(self._warm, written) // mmap.PAGESIZE * mmap.PAGESIZE
        try:
            self._map.madvise(_MADV_POPULATE_READ, RING_HEADER_BYTES + start, end - start)
        except OSError:  # a kernel before 5.14, or a full disk: the producer goes on as it would have
            end = whole
        self._forget(RING_HEADER_BYTES + start, RING_HEADER_BYTES + end)
        self._warm = end

    def _forget(self, start: int, end: int) -> None:
        """Have bytes of the file not count as this process's memory any more; in the file they stay."""
        start = start // mmap.PAGESIZE * mmap.PAGESIZE
        self._map.madvise(mmap.MADV_DONTNEED, start, end - start)

    def close(self) -> None:
        self._map.close()


class Batch:
    """Records of one ring, not yet consumed: ``rows`` are their headers, ``starts`` their slots in
    ``data``; ``again`` where an earlier drain has read them.
    """

    def __init__(
        self,
        ring: Ring,
        data: bytes,
        starts: list[int],
        rows: NDArray[np.void],
        slots: int,
        more: bool,
        *,
        again: bool,
    ) -> None:
        self.ring, self.data, self.starts, self.rows, self.again = ring, data, starts, rows, again
        self._slots = slots
        self.last_ns = int(rows["time"][-1]) if more else None
        """Where records are left behind it: the last stamp that is in it. Nothing left is older."""

    def cut(self, horizon_ns: int) -> None:
        """Keep the records stamped up to ``horizon_ns``, and consume them in the ring."""
        count = int(np_searchsorted(self.rows["time"], horizon_ns))
        if count < len(self.starts):
            self._slots = self.starts[count]
            self.starts, self.rows = self.starts[:count], self.rows[:count]
        self.ring.consume(self._slots, self._outermost())

    def _outermost(self) -> tuple[int, int] | None:
        found = ((self.rows["kind"] == ENTER) & (self.rows["extra"] == 0)).nonzero()[0]
        if not len(found):
            return None
        last = int(found[-1])
        return self.ring.tail + self.starts[last], int(self.rows["sequence"][last])

    def records(self, chosen: NDArray[np.int64] | None = None) -> list[Record]:
        """The records, or those of the given indices; without padding."""
        import numpy as np

        if chosen is None:
            chosen = np.arange(len(self.starts))
        rows, starts, thread = self.rows[chosen], self.starts, self.ring.thread
        names = ("time", "kind", "sequence", "function", "extra", "length")
        records = []
        for index, time_ns, kind, sequence, function, extra, length in zip(
            chosen.tolist(), *(rows[name].tolist() for name in names), strict=True
        ):
            if kind != PAD:
                body = starts[index] * SLOT_BYTES + RECORD_HEADER_BYTES
                content = self.data[body : body + length]
                records.append(Record(time_ns, kind, sequence, function, extra, thread, content))
        return records


def np_array(values: list[int]) -> NDArray[np.int64]:
    import numpy as np

    return np.array(values, np.int64)


def np_searchsorted(times: NDArray[np.uint64], horizon_ns: int) -> int:
    """How many of the ascending stamps are at most ``horizon_ns``."""
    import numpy as np

    return int(np.searchsorted(times, np.uint64(horizon_ns), side="right"))


def _header_fields(data: bytes, slots: int) -> NDArray[np.void]:
    """The header fields of every slot, as if each began a record."""
    import numpy as np

    names = ["commit", "kind", "slots", "sequence", "time", "function", "length", "extra"]
    formats = ["<u4", "<u2", "<u2", "<u8", "<u8", "<u4", "<u4", "<u8"]
    offsets = [0, 4, 6, 8, 16, 24, 28, 32]
    layout = np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": SLOT_BYTES})
    return np.frombuffer(data, layout, slots)


def open_rings(directory: Path, known: dict[Path, Ring]) -> Iterator[Ring]:
    """Rings in the directory that are not in ``known`` yet and whose header is complete; adds them there."""
    for path in sorted(directory.glob("ring-*"), key=lambda p: int(p.name[5:])):
        if path in known:
            continue
        try:
            known[path] = Ring(path)
        except (TraceError, ValueError):
            continue  # the thread is still setting it up; a later pass will find it
        yield known[path]
