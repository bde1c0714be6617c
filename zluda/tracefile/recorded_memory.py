"""What completed calls mean for device memory: allocations born and freed, and pages written by the host."""

from __future__ import annotations

from collections.abc import Callable

from zluda.tracefile import ring
from zluda.tracefile.completed_call import Completed
from zluda.tracefile.reachability import LiveSpans
from zluda.tracefile.records import PAGE_BYTES, AllocationKind
from zluda.tracefile.writer import TraceWriter


class RecordedMemory:
    """Keeps the allocations that are alive, and writes `allocation` and `page` rows."""

    def __init__(self, writer: TraceWriter) -> None:
        self._writer = writer
        self.spans = LiveSpans()
        self._bases: dict[int, int] = {}  # base address → allocation id
        self._globals: dict[int, int] = {}  # allocation id of a module's variable → module id
        self.handlers: dict[str, Callable[[Completed], None]] = {
            "copy_h2d": self._copy_from_host,
            "copy_h2d_async": self._copy_from_host,
            "copy_unified": self._copy_from_host,
            "copy_unified_async": self._copy_from_host,
            **{f"set_{n}{form}": self._fill for n in (1, 2, 4) for form in ("", "_async")},
            "allocate": self._allocate,
            "allocate_pitch": self._allocate_pitch,
            "allocate_managed": self._allocate_managed,
            "allocate_host": self._allocate_host,
            "free": self._free,
        }
        """By the special kind of ``driver_api.json``: what a call of that kind means."""

    def restore(self, allocation: int, base: int, size: int, module: int | None) -> None:
        """An allocation that is in the trace already and alive."""
        self.spans.add(allocation, base, size)
        self._bases[base] = allocation
        if module is not None:
            self._globals[allocation] = module

    def page_changed(self, sequence: int, phase: int, base: int, body: bytes) -> None:
        """A PAGE record: contents before (that is, after the call before) or after a call."""
        allocation = self._bases.get(base)
        if allocation is None:
            self._writer.add_gap(sequence, "memory", f"no allocation is known at {base:#x}")
            return
        call = sequence if phase == ring.PHASE_AFTER else max(sequence - 1, 0)
        offset = int.from_bytes(body[:8], "little")
        self._writer.add_page(call, allocation, offset, body[8:])

    def module_unloaded(self, module: int, call: int) -> None:
        """Its variables are gone."""
        for key in [key for key, owner in self._globals.items() if owner == module]:
            self._end(key, call)

    def _allocate(self, call: Completed) -> None:
        kind = AllocationKind.DEVICE if call.row["base"] == "cuMemAlloc" else AllocationKind.POOL
        self.add(call.sequence, call.output(0), call.words[1], kind)

    def _allocate_pitch(self, call: Completed) -> None:
        size = call.output(1) * call.words[3]
        self.add(call.sequence, call.output(0), size, AllocationKind.DEVICE)

    def _allocate_managed(self, call: Completed) -> None:
        self.add(call.sequence, call.output(0), call.words[1], AllocationKind.MANAGED)

    def _allocate_host(self, call: Completed) -> None:
        self.add(call.sequence, call.output(0), call.words[1], AllocationKind.HOST)

    def add(
        self,
        call: int,
        base: int,
        size: int,
        kind: AllocationKind,
        *,
        name: str = "",
        module: int | None = None,
    ) -> None:
        """Memory that ``call`` made; what lay there before has ended."""
        if not base or not size:
            return
        self._end_overlapping(base, size, call)
        key = self._writer.add_allocation(call, base, size, kind, name=name, module=module)
        self.spans.add(key, base, size)
        self._bases[base] = key
        if module is not None:
            self._globals[key] = module

    def _end_overlapping(self, base: int, size: int, call: int) -> None:
        """What still lies there is gone without a call: with its context, or by one not understood."""
        spans = self.spans
        doomed = {key for key in (spans.find(base), spans.find(base + size - 1)) if key is not None}
        for key in doomed:
            self._end(key, call)

    def _end(self, key: int, call: int) -> None:
        base, _ = self.spans.range_of(key)
        self.spans.remove(key)
        self._bases.pop(base, None)
        self._globals.pop(key, None)
        self._writer.close_allocation(key, call)

    def _free(self, call: Completed) -> None:
        key = self._bases.get(call.words[0])
        if key is not None:
            self._end(key, call.sequence)

    def _copy_from_host(self, call: Completed) -> None:
        """Host data becomes pages of its destination; where that is not known it stays the call's payload."""
        address, _, size = call.words[:3]
        key = self.spans.find(address)
        if key is None:
            return
        base, length = self.spans.range_of(key)
        if address + size > base + length:
            return
        for data in [d for d in call.data if d.parameter == 1 and d.direction == ring.DIRECTIONS["in"]]:
            self._writer.add_page(call.sequence, key, address - base + data.offset, data.content)
            call.data.remove(data)

    def _fill(self, call: Completed) -> None:
        unit = int(call.row["special"].split("_")[1])
        address, value, count = call.words[:3]
        key = self.spans.find(address)
        if key is None:
            self._writer.add_gap(call.sequence, "memory", f"no allocation is known at {address:#x}")
            return
        base, length = self.spans.range_of(key)
        start, end = address - base, min(address - base + count * unit, length)
        pattern = (value & ((1 << 8 * unit) - 1)).to_bytes(unit, "little") * (PAGE_BYTES // unit)
        while start < end:
            stop = min(end, (start // PAGE_BYTES + 1) * PAGE_BYTES)
            self._writer.add_page(call.sequence, key, start, pattern[: stop - start])
            start = stop
