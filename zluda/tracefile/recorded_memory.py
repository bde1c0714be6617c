"""What completed calls mean for device memory: allocations born and freed, and pages written by the host."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from zluda.tracefile import ring
from zluda.tracefile.arrays import created_shape
from zluda.tracefile.completed_call import Completed
from zluda.tracefile.lifetimes import Life, Lifetimes
from zluda.tracefile.records import PAGE_BYTES, AllocationKind
from zluda.tracefile.writer import TraceWriter

_CREATE_ARRAY = ("create_array", "create_array_3d", "create_mipmapped")
ENDS = (
    *("allocate", "allocate_pitch", "allocate_managed", "allocate_host", "free"),
    *(*_CREATE_ARRAY, "free_array"),
    *("register_host", "open_memory", "map", "unmap"),
)
"""Special kinds of calls that begin and end the lives of allocations."""


_IOMEMORY = 4  # CU_MEMHOSTREGISTER_IOMEMORY
_OPENED = "made elsewhere"


class RecordedMemory:
    """Keeps the allocations that are alive, and writes `allocation` and `page` rows."""

    def __init__(self, writer: TraceWriter) -> None:
        self._writer = writer
        self._lives = Lifetimes(writer.close_allocation)
        self._spans = self._lives.spans
        self._arrays: dict[int, int] = {}  # handle → the number in place of an address
        self._sizes: dict[int, int] = {}  # that number → bytes, until the call that made the array returns
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
            "register_host": self._register_host,
            "open_memory": self._open_memory,
            "map": self._map,
            "host_pointer": self._host_pointer,
            **dict.fromkeys(_CREATE_ARRAY, self._create_array),
        }
        """By the special kind of ``driver_api.json``: what a call of that kind means."""

    def restore(
        self, allocation: int, base: int, size: int, born: int, module: int | None, array: int = 0
    ) -> None:
        """An allocation that is in the trace already and alive; ``array`` is the handle of one."""
        self._lives.begin(Life(allocation, base, size, born, module))
        if array:
            self._arrays[array] = base

    def entered(self, sequence: int, special: str, word: int, second: int) -> None:
        """A call of :data:`ENDS` was entered; ``word`` and ``second`` are its first arguments."""
        if special == "free":
            self._lives.free_entered(sequence, word)
        elif special == "free_array":
            self._lives.free_entered(sequence, self._arrays.get(word, 0))
        elif special == "unmap":
            self._lives.unmap_entered(sequence, word, second)
        else:
            self._lives.allocation_entered(sequence)

    def left(self, call: Completed, *, deferred: bool = False) -> None:
        """A call of :data:`ENDS` returned; what it allocated has been added. Nothing was where it was
        ``deferred``, being put into a graph.
        """
        self._lives.left(call.sequence, succeeded=call.result == 0 and not deferred)

    def page_changed(self, sequence: int, phase: int, base: int, offset: int, data: bytes) -> None:
        """A PAGE record: contents before (that is, after the call before) or after a call."""
        allocation = self._lives.at(base)
        if allocation is None:
            self._writer.add_gap(sequence, "memory", f"no allocation is known at {base:#x}")
            return
        found = phase != ring.PHASE_AFTER
        call = max(sequence - 1, 0) if found else sequence
        self._writer.add_page(call, allocation, offset, data, found=found)

    def array_placed(self, base: int, body: bytes) -> None:
        """An ARRAY record: the number of an array that a call makes."""
        self._sizes[base] = int.from_bytes(body[:8], "little")
        self._arrays[int.from_bytes(body[8:16], "little")] = base

    def range_opened(self, base: int, body: bytes) -> None:
        """A RANGE record: how large the memory is that a call opens."""
        self._sizes[base] = int.from_bytes(body[:8], "little")

    def module_unloaded(self, module: int, call: int) -> None:
        """Its variables are gone."""
        for key in self._lives.variables(module):
            self._lives.end(key, call)

    def _allocate(self, call: Completed) -> None:
        kind = AllocationKind.DEVICE if call.row["base"] == "cuMemAlloc" else AllocationKind.POOL
        self.add(call.sequence, call.output(0), call.words[1], kind)

    def _allocate_pitch(self, call: Completed) -> None:
        size = call.output(1) * call.words[3]
        self.add(call.sequence, call.output(0), size, AllocationKind.DEVICE)

    def _create_array(self, call: Completed) -> None:
        """Without an ARRAY record its contents cannot be linearised, and a gap says so."""
        base = self._arrays.get(call.output(0), 0)
        size = self._sizes.pop(base, 0)
        if size:
            shape = created_shape(call.row["base"], call.pointees[1] or b"", call.words[2:])
            self.add(call.sequence, base, size, AllocationKind.ARRAY, name=shape.text)

    def _register_host(self, call: Completed) -> None:
        if not call.words[2] & _IOMEMORY:
            self.add(call.sequence, call.words[0], call.words[1], AllocationKind.HOST)

    def _open_memory(self, call: Completed) -> None:
        """Without a RANGE record its size is not known, and a gap says so."""
        base = call.output(0)
        self.add(call.sequence, base, self._sizes.pop(base, 0), AllocationKind.DEVICE, name=_OPENED)

    def _host_pointer(self, call: Completed) -> None:
        if call.output(0) != call.words[1]:
            text = "host memory has another address on the device, through which it is not looked at"
            self._writer.add_gap(call.sequence, "memory", text)

    def _map(self, call: Completed) -> None:
        self.add(call.sequence, call.words[0], call.words[1], AllocationKind.VIRTUAL)

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
        born = self._lives.birth(base, size, call)
        key = self._writer.add_allocation(born, base, size, kind, name=name, module=module)
        self._lives.begin(Life(key, base, size, born, module))

    def _copy_from_host(self, call: Completed) -> None:
        """Host data becomes pages of its destination; where that is not known it stays the call's payload."""
        address, _, size = call.words[:3]
        if size > sum(length for _, _, length in self._pieces(address, size)):
            return
        for data in [d for d in call.data if d.parameter == 1 and d.direction == ring.DIRECTIONS["in"]]:
            taken = 0
            for key, offset, length in self._pieces(address + data.offset, len(data.content)):
                self._writer.add_page(call.sequence, key, offset, data.content[taken : taken + length])
                taken += length
            call.data.remove(data)

    def _fill(self, call: Completed) -> None:
        unit = int(call.row["special"].split("_")[1])
        address, value, count = call.words[:3]
        if self._spans.find(address) is None:
            self._writer.add_gap(call.sequence, "memory", f"no allocation is known at {address:#x}")
            return
        pattern = (value & ((1 << 8 * unit) - 1)).to_bytes(unit, "little") * (PAGE_BYTES // unit)
        for key, start, length in self._pieces(address, count * unit):
            end = start + length
            while start < end:
                stop = min(end, (start // PAGE_BYTES + 1) * PAGE_BYTES)
                self._writer.add_page(call.sequence, key, start, pattern[: stop - start])
                start = stop

    def _pieces(self, address: int, size: int) -> Iterator[tuple[int, int, int]]:
        """(allocation, offset, bytes) of what a range covers, up to where there is none: pieces of mapped
        memory lie side by side.
        """
        while size > 0 and (key := self._spans.find(address)) is not None:
            base, length = self._spans.range_of(key)
            piece = min(size, base + length - address)
            yield key, address - base, piece
            address, size = address + piece, size - piece
