"""Allocations, and what the host and copies write into device memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from zluda.replay.handlers.table import Handler, Phase, Run, created, gap, handles
from zluda.replay.memory import LiveAllocation
from zluda.replay.playback import Playback
from zluda.tracefile import AllocationKind, Call

_MAKE_DEVICE = ("cuMemAlloc", "cuMemAllocPitch", "cuMemAllocManaged")
_MAKE_POOL = ("cuMemAllocAsync", "cuMemAllocFromPoolAsync")
_MAKE_HOST = ("cuMemAllocHost", "cuMemHostAlloc", "cuMemHostRegister")
_OPEN = (
    *("cuIpcOpenMemHandle", "cuMemPoolImportPointer", "cuExternalMemoryGetMappedBuffer"),
    "cuGraphicsResourceGetMappedPointer",
)


@handles(*_MAKE_DEVICE, *_MAKE_POOL, *_OPEN)
def allocate(state: Playback, call: Call) -> None:
    """A pitched allocation is one of its whole size: its pitch shows in what the program does next.

    All are device memory here. What the host or another process put there without a call is found in the
    record before each launch that can read it.
    """
    state.allocate(call)


@handles("cuMemMap")
def map_memory(state: Playback, call: Call) -> None:
    """Physical memory has one place in a replay; what it held elsewhere before is found in the record."""
    handle = call.arguments["handle"]
    elsewhere = [key for key, one in state.mapped.items() if one == handle and key in state.memory.live]
    if elsewhere:
        base = state.memory.live[elsewhere[0]].record.base
        raise gap(f"{call.function}: the memory is mapped at {base:#x} too; a replay has one place for it")
    state.allocate(call)
    state.mapped.update((one.id, handle) for one in state.record.born[call.sequence])


@handles("cuMemCreate")
def create_physical(state: Playback, call: Call) -> None:
    """The handle may be that of memory which is mapped still, and was released."""
    handle = created(call, "handle")
    state.mapped = {key: one for key, one in state.mapped.items() if one != handle}


@handles(*_MAKE_HOST)
def allocate_host(state: Playback, call: Call) -> None:
    """Host memory is made, as device memory, where a launch on record reached it."""
    state.allocate_host(call)


@handles("cuMemFree", "cuMemFreeAsync", "cuMemFreeHost", "cuMemHostUnregister", "cuMemUnmap")
@handles("cuIpcCloseMemHandle")
def on_record(state: Playback, call: Call) -> None:
    """Nothing to issue.

    Memory ends where the record's allocation does (:meth:`Playback.bury_allocations`); what host
    memory held is in the payloads of the copies that used it.
    """


@handles("cuMemPoolCreate", "cuMemPoolDestroy", "cuMemPoolSetAccess", "cuDeviceSetMemPool", "cuMemSetMemPool")
@handles("cuMemAddressReserve", "cuMemAddressFree", "cuMemRelease", "cuMemSetAccess")
@handles("cuMemRetainAllocationHandle", "cuMemHostGetDevicePointer", "cuLibraryGetManaged")
def of_no_consequence(state: Playback, call: Call) -> None:
    """Where memory comes from, and what it is called: a replay makes it when it is mapped or allocated."""


def pieces(state: Playback, address: int, size: int) -> list[tuple[LiveAllocation, int, int]]:
    """A recorded device range as (live allocation, offset, bytes): one, or pieces of mapped memory that lie
    side by side.
    """
    found: list[tuple[LiveAllocation, int, int]] = []
    while size > 0:
        one = state.memory.find(address)
        if one is None:
            raise (
                state.memory.not_there(address)
                if not found
                else gap(f"{size} bytes at {address:#x} leave their allocation")
            )
        offset = address - one.record.base
        piece = min(size, one.size - offset)
        if found and AllocationKind.VIRTUAL not in (one.record.kind, found[-1][0].record.kind):
            raise gap(f"{size} bytes at {address:#x} leave their allocation")
        found.append((one, offset, piece))
        address, size = address + piece, size - piece
    return found


def target(state: Playback, address: int, size: int) -> tuple[LiveAllocation, int]:
    """The live allocation that holds a recorded device range, and the range's offset in it."""
    one = state.memory.find(address)
    if one is None:
        raise state.memory.not_there(address)
    offset = address - one.record.base
    if offset + size > one.size:
        raise gap(f"{size} bytes at {address:#x} leave their allocation")
    return one, offset


def _host_data(state: Playback, call: Call, name: str, address: int, size: int) -> bytes:
    """What a copy took from the host: its payload, else what the record has at the destination after it."""
    trace = state.record.trace
    data = trace.payload(call.sequence, name)
    if data is not None and len(data) >= size:
        return data[:size]
    data, mask = trace.read_memory(call.sequence, address, size)
    pages = state.memory.record_pages(call.sequence)
    if mask is not None or not pages:
        raise gap(f"{call.function}: the bytes it copied were not captured")
    return data


def wrote(state: Playback, call: Call, one: LiveAllocation, offset: int, size: int) -> None:
    """A copy or fill wrote what the record has pages of, or else what the record cannot tell."""
    pages = state.memory.record_pages(call.sequence).get(one.id)
    covered = pages is not None and not pages.missing(offset, offset + size)
    note = state.memory.adopted if covered else state.memory.wrote_unrecorded
    note(one, offset, offset + size)


def _copy_in(destination: str, source: str, *, asynchronous: bool) -> Run:
    def run(state: Playback, call: Call) -> None:
        address, size = call.arguments[destination], call.arguments["ByteCount"]
        if not size:
            return
        places = pieces(state, address, size)
        data = state.memory.translate_words(_host_data(state, call, source, address, size))
        at = 0
        for one, offset, length in places:
            if asynchronous:
                state.driver.cuMemcpyHtoDAsync(one.base + offset, data[at : at + length], state.stream(call))
            else:
                state.driver.cuMemcpyHtoD(one.base + offset, data[at : at + length])
            wrote(state, call, one, offset, length)
            at += length

    return run


def _copy_within(destination: str, source: str, *, asynchronous: bool) -> Run:
    def run(state: Playback, call: Call) -> None:
        size = call.arguments["ByteCount"]
        if not size:
            return
        stream = state.stream(call) if asynchronous else None
        to = pieces(state, call.arguments[destination], size)
        origin = pieces(state, call.arguments[source], size)
        for (one, offset, length), (other, start, _) in _side_by_side(to, origin):
            _copy_piece(state, call, (one, offset), (other, start), length, stream)

    return run


def _side_by_side(
    left: list[tuple[LiveAllocation, int, int]], right: list[tuple[LiveAllocation, int, int]]
) -> Iterator[tuple[tuple[LiveAllocation, int, int], tuple[LiveAllocation, int, int]]]:
    """Two divisions of one number of bytes, cut where either is."""
    left, right = list(reversed(left)), list(reversed(right))
    while left:
        (one, at, size), (other, start, room) = left.pop(), right.pop()
        both = min(size, room)
        yield (one, at, both), (other, start, both)
        if size > both:
            left.append((one, at + both, size - both))
        if room > both:
            right.append((other, start + both, room - both))


def _copy_piece(
    state: Playback,
    call: Call,
    destination: tuple[LiveAllocation, int],
    source: tuple[LiveAllocation, int],
    size: int,
    stream: int | None,
) -> None:
    """Copy within two allocations; what differs in the source differs in the copy."""
    (to, to_offset), (origin, from_offset) = destination, source
    ends = (to.base + to_offset, origin.base + from_offset, size)
    if stream is not None:
        state.driver.cuMemcpyDtoDAsync(*ends, stream)
    else:
        state.driver.cuMemcpyDtoD(*ends)
    differing = origin.differing.within(from_offset, from_offset + size)
    since = origin.differing_since
    wrote(state, call, to, to_offset, size)
    shift = to_offset - from_offset
    for start, stop in differing:
        state.memory.mark_differing(to, start + shift, stop + shift, since)
    to.taint = to.taint or origin.taint


def _fill(entry: str, value: str, width: int, *, asynchronous: bool) -> Run:
    def run(state: Playback, call: Call) -> None:
        count = call.arguments["N"]
        if not count:
            return
        pattern = call.arguments[value] & ((1 << 8 * width) - 1)
        stream = (state.stream(call),) if asynchronous else ()
        for one, offset, length in pieces(state, call.arguments["dstDevice"], count * width):
            getattr(state.driver, entry)(one.base + offset, pattern, length // width, *stream)
            wrote(state, call, one, offset, length)

    return run


for _asynchronous, _suffix in ((False, ""), (True, "Async")):
    handles(f"cuMemcpyPeer{_suffix}", phase=Phase.WRITE)(
        _copy_within("dstDevice", "srcDevice", asynchronous=_asynchronous)
    )
    handles(f"cuMemcpyHtoD{_suffix}", phase=Phase.WRITE)(
        _copy_in("dstDevice", "srcHost", asynchronous=_asynchronous)
    )
    handles(f"cuMemcpyDtoD{_suffix}", phase=Phase.WRITE)(
        _copy_within("dstDevice", "srcDevice", asynchronous=_asynchronous)
    )
    for _bits, _value in ((8, "uc"), (16, "us"), (32, "ui")):
        _entry = f"cuMemsetD{_bits}{_suffix}"
        handles(_entry, phase=Phase.WRITE)(_fill(_entry, _value, _bits // 8, asynchronous=_asynchronous))


# --- copies to the host ------------------------------------------------------------------------------


class Source(NamedTuple):
    """What a copy to the host reads: ranges of an allocation, in the order in which it delivers them."""

    one: LiveAllocation
    spans: list[tuple[int, int]]


def sources_of(state: Playback, call: Call) -> list[Source]:
    """What a copy of one range to the host reads: several pieces where it is mapped memory."""
    arguments = call.arguments
    source = arguments["srcDevice"] if "srcDevice" in arguments else arguments["src"]
    parts = pieces(state, source, arguments["ByteCount"])
    return [Source(one, [(offset, offset + size)]) for one, offset, size in parts]


@handles("cuMemcpyDtoH", "cuMemcpyDtoHAsync", phase=Phase.COPY)
def deliver(state: Playback, call: Call) -> bytes:
    """Issue a copy to the host; returns the bytes it delivers."""
    parts = []
    for one, ((offset, stop),) in sources_of(state, call):
        if "hStream" in call.arguments:
            parts.append(state.driver.cuMemcpyDtoHAsync(one.base + offset, stop - offset, state.stream(call)))
        else:
            parts.append(state.driver.cuMemcpyDtoH(one.base + offset, stop - offset))
    return b"".join(parts)


# --- copies that infer their direction -----------------------------------------------------------------

_UNIFIED: dict[tuple[bool, bool], dict[bool, Handler]] = {
    (True, True): {
        a: Handler(Phase.WRITE, _copy_within("dst", "src", asynchronous=a)) for a in (False, True)
    },
    (True, False): {a: Handler(Phase.WRITE, _copy_in("dst", "src", asynchronous=a)) for a in (False, True)},
    (False, True): {a: Handler(Phase.COPY, deliver) for a in (False, True)},
    (False, False): {a: Handler(Phase.SETUP, on_record) for a in (False, True)},
}
"""(destination is device memory, source is) → asynchronous → handler"""


def unified_copy(state: Playback, call: Call) -> Handler:
    """``cuMemcpy`` infers its direction from the addresses (unified addressing), and so does its replay."""
    destination, source = call.arguments.get("dst", 0), call.arguments.get("src", 0)
    ends = (state.memory.is_device(destination), state.memory.is_device(source))
    return _UNIFIED[ends]["hStream" in call.arguments]
