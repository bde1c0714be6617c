"""Copies of rectangles and boxes, those whose end is an array, and fills of rectangles.

What such a copy touches is rows of an allocation, be that memory or a linearised array.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from zluda.driver import descriptors
from zluda.driver.descriptors import Copy, CopyEnd, MemoryType
from zluda.replay.handlers.memory import Source, on_record, target
from zluda.replay.handlers.table import Handler, Phase, Run, gap, handles
from zluda.replay.intervals import IntervalSet
from zluda.replay.memory import LiveAllocation
from zluda.replay.names import entry_name
from zluda.replay.playback import Playback
from zluda.tracefile import Call
from zluda.tracefile.arrays import rows as row_starts

BOX_COPIES = frozenset(
    (
        *("cuMemcpy2D", "cuMemcpy2DUnaligned", "cuMemcpy2DAsync", "cuMemcpy3D", "cuMemcpy3DAsync"),
        *("cuMemcpy3DPeer", "cuMemcpy3DPeerAsync"),
    )
)


class Rows(NamedTuple):
    """Rows of ``width`` bytes of an allocation, each at its offset."""

    one: LiveAllocation
    starts: Sequence[int]
    width: int

    def read_record(self, state: Playback, call: int) -> bytes | None:
        """What the record has of them after ``call``, without gaps; None where it does not know all."""
        if not self.starts:
            return b""
        first, stop = min(self.starts), max(self.starts) + self.width
        data, mask = state.record.trace.read_allocation(self.one.id, call, first, stop - first)
        at = [start - first for start in self.starts]
        if mask is not None and any(0 in mask[a : a + self.width] for a in at):
            return None
        return b"".join(data[a : a + self.width] for a in at)

    def missing(self) -> list[int]:
        """Which of them are not wholly known."""
        known = self.one.known
        return [i for i, at in enumerate(self.starts) if known.missing(at, at + self.width)]


def _wrote(state: Playback, call: Call, rows: Rows) -> None:
    """A copy or fill wrote what the record has pages of, or else what the record cannot tell."""
    pages = state.memory.record_pages(call.sequence).get(rows.one.id)
    for start in rows.starts:
        stop = start + rows.width
        covered = pages is not None and not pages.missing(start, stop)
        note = state.memory.adopted if covered else state.memory.wrote_unrecorded
        note(rows.one, start, stop)


def _pass_on(state: Playback, source: Rows, destination: Rows, differing: Sequence[tuple[int, int]]) -> None:
    """What differed in the source differs in the destination from now on."""
    since = source.one.differing_since
    for start, stop in differing:
        for at, to in zip(source.starts, destination.starts, strict=True):
            low, high = max(start, at), min(stop, at + source.width)
            if low < high:
                state.memory.mark_differing(destination.one, low + to - at, high + to - at, since)
    destination.one.taint = destination.one.taint or source.one.taint


# --- boxes -------------------------------------------------------------------------------------------


def _recorded(state: Playback, call: Call) -> Copy:
    """A call's copy; ends of unified memory are told by their address."""
    data = call.pointees.get("pCopy")
    try:
        copy = descriptors.decode_copy(data if isinstance(data, bytes) else b"")
    except ValueError as error:
        raise gap(f"{call.function}: {error}") from error
    source, destination = (_told(state, end) for end in (copy.source, copy.destination))
    return copy._replace(source=source, destination=destination)


def _told(state: Playback, end: CopyEnd) -> CopyEnd:
    if end.type != MemoryType.UNIFIED:
        return end
    return end._replace(
        type=MemoryType.DEVICE if state.memory.is_device(end.device) else MemoryType.HOST, host=end.device
    )


def _rows(state: Playback, copy: Copy, end: CopyEnd) -> Rows:
    """The rows that an end of a copy names."""
    size = (copy.width, copy.height, copy.depth)
    if end.type == MemoryType.ARRAY:
        one, start, row, height = _array_level(state, end.array)
        slice_bytes = row * height
        start += end.z * slice_bytes + end.y * row + end.x
        return Rows(one, list(row_starts(start, row, slice_bytes, *size)), copy.width)
    pitch, slice_bytes = end.step(copy.width, copy.height)
    first = end.device + end.z * slice_bytes + end.y * pitch + end.x
    span = (copy.depth - 1) * slice_bytes + (copy.height - 1) * pitch + copy.width
    one, offset = target(state, first, span)
    return Rows(one, list(row_starts(offset, pitch, slice_bytes, *size)), copy.width)


def _array_level(state: Playback, handle: int) -> tuple[LiveAllocation, int, int, int]:
    """An array's allocation; where its level begins, bytes of a row and rows of that."""
    key, level = state.memory.arrays.place(handle)
    one = state.memory.live[key]
    assert one.array is not None
    row, height, _ = one.array.shape.extent(level)
    return one, one.array.shape.level_at(level), row, height


def _live(state: Playback, end: CopyEnd, rows: Rows | None) -> CopyEnd:
    """An end with the replay's handle or address."""
    if rows is None:
        return CopyEnd()
    if end.type == MemoryType.ARRAY:
        return end._replace(array=state.handles.live("array", end.array))
    return end._replace(device=end.device + rows.one.base - rows.one.record.base)


def _issue(
    state: Playback, call: Call, copy: Copy, ends: tuple[Rows | None, Rows | None], data: bytes
) -> bytes:
    """Have the driver do it: (rows of the source, of the destination), None being the host's."""
    live = copy._replace(
        source=_live(state, copy.source, ends[0]), destination=_live(state, copy.destination, ends[1])
    )
    entry = entry_name(call.function).base.replace("Peer", "")
    stream = [state.stream(call)] if "hStream" in call.arguments else []
    delivered: bytes = getattr(state.driver, entry)(live, *stream, data)
    return delivered


def _copy_in(state: Playback, call: Call) -> None:
    copy = _recorded(state, call)
    if not copy.size:
        return
    destination = _rows(state, copy, copy.destination)
    data, node = state.record.trace.payload(call.sequence, "pCopy"), state.record.trace.graphs.is_node(call)
    if data is None and not node:
        data = destination.read_record(state, call.sequence)
    if data is None or len(data) != copy.size:
        raise gap(f"{call.function}: the bytes it copied were not captured")
    if copy.destination.type != MemoryType.ARRAY:
        data = state.memory.translate_words(data)
    _issue(state, call, copy, (None, destination), data)
    if node:  # the pages that tell so come with the graph's end
        for start in destination.starts:
            state.memory.adopted(destination.one, start, start + destination.width)
    else:
        _wrote(state, call, destination)


def _copy_within(state: Playback, call: Call) -> None:
    copy = _recorded(state, call)
    if not copy.size:
        return
    source, destination = _rows(state, copy, copy.source), _rows(state, copy, copy.destination)
    _issue(state, call, copy, (source, destination), b"")
    _copied(state, call, source, destination)


def _copied(state: Playback, call: Call, source: Rows, destination: Rows) -> None:
    """What nobody is known to have written holds on each machine what it holds: the record's is taken."""
    first, stop = min(source.starts), max(source.starts) + source.width
    differing = source.one.differing.within(first, stop)
    unknown = source.missing()
    _wrote(state, call, destination)
    _pass_on(state, source, destination, differing)
    pages = state.memory.record_pages(call.sequence).get(destination.one.id)
    if pages is None:
        return
    for at in unknown:
        to = destination.starts[at]
        taken = IntervalSet(pages.within(to, to + destination.width))
        state.memory.adopt_pages({destination.one.id: taken}, call.sequence, unknown_only=False)


def _deliver(state: Playback, call: Call) -> bytes:
    copy = _recorded(state, call)
    if not copy.size:
        return b""
    return _issue(state, call, copy, (_rows(state, copy, copy.source), None), b"")


_BOXES: dict[tuple[bool, bool], Handler] = {
    (True, True): Handler(Phase.SETUP, on_record),
    (True, False): Handler(Phase.COPY, _deliver),
    (False, True): Handler(Phase.WRITE, _copy_in),
    (False, False): Handler(Phase.WRITE, _copy_within),
}
"""(destination is host memory, source is) → handler"""


def box_copy(state: Playback, call: Call) -> Handler:
    """The handler of a copy of rows, by its ends; one whose structure is not known fails as a write."""
    data = call.pointees.get("pCopy")
    try:
        copy = descriptors.decode_copy(data if isinstance(data, bytes) else b"")
    except ValueError:
        return _BOXES[False, False]
    ends = (_told(state, copy.destination), _told(state, copy.source))
    return _BOXES[ends[0].type == MemoryType.HOST, ends[1].type == MemoryType.HOST]


def box_source(state: Playback, call: Call) -> Source:
    """What a copy of rows to the host reads."""
    copy = _recorded(state, call)
    rows = _rows(state, copy, copy.source)
    return Source(rows.one, [(start, start + rows.width) for start in rows.starts])


# --- one row of an array -----------------------------------------------------------------------------


def _array_row(state: Playback, call: Call, array: str, offset: str) -> Rows:
    """``ByteCount`` bytes of an array from an offset."""
    one, start, _, _ = _array_level(state, call.arguments[array])
    size = call.arguments["ByteCount"]
    if start + call.arguments[offset] + size > one.size:
        raise gap(f"{call.function}: {size} bytes leave their array")
    return Rows(one, [start + call.arguments[offset]], size)


def _memory_row(state: Playback, call: Call, parameter: str) -> Rows:
    size = call.arguments["ByteCount"]
    one, offset = target(state, call.arguments[parameter], size)
    return Rows(one, [offset], size)


def _live_array(state: Playback, call: Call, parameter: str) -> int:
    return state.handles.live("array", call.arguments[parameter])


def _host_to_array(entry: str) -> Run:
    def run(state: Playback, call: Call) -> None:
        rows = _array_row(state, call, "dstArray", "dstOffset")
        data = state.record.trace.payload(call.sequence, "srcHost")
        if data is None:
            data = rows.read_record(state, call.sequence)
        if data is None or len(data) != rows.width:
            raise gap(f"{call.function}: the bytes it copied were not captured")
        stream = [state.stream(call)] if "hStream" in call.arguments else []
        place = (_live_array(state, call, "dstArray"), call.arguments["dstOffset"])
        getattr(state.driver, entry)(*place, data, *stream)
        _wrote(state, call, rows)

    return run


for _entry in ("cuMemcpyHtoA", "cuMemcpyHtoAAsync"):
    handles(_entry, phase=Phase.WRITE)(_host_to_array(_entry))


@handles("cuMemcpyDtoA", phase=Phase.WRITE)
def device_to_array(state: Playback, call: Call) -> None:
    source, rows = _memory_row(state, call, "srcDevice"), _array_row(state, call, "dstArray", "dstOffset")
    address = source.one.base + source.starts[0]
    place = (_live_array(state, call, "dstArray"), call.arguments["dstOffset"])
    state.driver.cuMemcpyDtoA(*place, address, rows.width)
    _copied(state, call, source, rows)


@handles("cuMemcpyAtoD", phase=Phase.WRITE)
def array_to_device(state: Playback, call: Call) -> None:
    source, rows = _array_row(state, call, "srcArray", "srcOffset"), _memory_row(state, call, "dstDevice")
    place = (_live_array(state, call, "srcArray"), call.arguments["srcOffset"])
    state.driver.cuMemcpyAtoD(rows.one.base + rows.starts[0], *place, rows.width)
    _copied(state, call, source, rows)


@handles("cuMemcpyAtoA", phase=Phase.WRITE)
def array_to_array(state: Playback, call: Call) -> None:
    source = _array_row(state, call, "srcArray", "srcOffset")
    rows = _array_row(state, call, "dstArray", "dstOffset")
    to = (_live_array(state, call, "dstArray"), call.arguments["dstOffset"])
    state.driver.cuMemcpyAtoA(
        *to, _live_array(state, call, "srcArray"), call.arguments["srcOffset"], rows.width
    )
    _copied(state, call, source, rows)


@handles("cuMemcpyAtoH", "cuMemcpyAtoHAsync", phase=Phase.COPY)
def array_to_host(state: Playback, call: Call) -> bytes:
    rows = _array_row(state, call, "srcArray", "srcOffset")
    place = (_live_array(state, call, "srcArray"), call.arguments["srcOffset"], rows.width)
    if "hStream" in call.arguments:
        return state.driver.cuMemcpyAtoHAsync(*place, state.stream(call))
    return state.driver.cuMemcpyAtoH(*place)


def array_source(state: Playback, call: Call) -> Source:
    """What a copy of an array to the host reads."""
    rows = _array_row(state, call, "srcArray", "srcOffset")
    return Source(rows.one, [(rows.starts[0], rows.starts[0] + rows.width)])


# --- fills -------------------------------------------------------------------------------------------


def _fill(entry: str, value: str, unit: int) -> Run:
    def run(state: Playback, call: Call) -> None:
        address, pitch = call.arguments["dstDevice"], call.arguments["dstPitch"]
        width, height = call.arguments["Width"], call.arguments["Height"]
        if not width or not height:
            return
        one, offset = target(state, address, (height - 1) * pitch + width * unit)
        pattern = call.arguments[value] & ((1 << 8 * unit) - 1)
        stream = [state.stream(call)] if "hStream" in call.arguments else []
        getattr(state.driver, entry)(one.base + offset, pitch, pattern, width, height, *stream)
        starts = list(row_starts(offset, pitch, 0, width * unit, height, 1))
        _wrote(state, call, Rows(one, starts, width * unit))

    return run


for _bits, _value in ((8, "uc"), (16, "us"), (32, "ui")):
    for _suffix in ("", "Async"):
        _entry = f"cuMemsetD2D{_bits}{_suffix}"
        handles(_entry, phase=Phase.WRITE)(_fill(_entry, _value, _bits // 8))
