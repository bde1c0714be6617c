"""Allocations, and what the host and copies write into device memory."""

from __future__ import annotations

from typing import NamedTuple

from zluda.replay.handlers.table import Handler, Phase, Run, gap, handles
from zluda.replay.memory import LiveAllocation
from zluda.replay.playback import Playback
from zluda.tracefile import Call


@handles("cuMemAlloc", "cuMemAllocPitch")
def allocate(state: Playback, call: Call) -> None:
    """A pitched allocation is one of its whole size: its pitch shows in what the program does next."""
    state.allocate(call)


@handles("cuMemFree", "cuMemAllocHost", "cuMemHostAlloc", "cuMemFreeHost")
def on_record(state: Playback, call: Call) -> None:
    """Nothing to issue.

    Device memory ends where the record's allocation does (:meth:`Playback.bury_allocations`); what host
    memory held is in the payloads of the copies that used it.
    """


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


def _wrote(state: Playback, call: Call, one: LiveAllocation, offset: int, size: int) -> None:
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
        one, offset = target(state, address, size)
        data = state.memory.translate_words(_host_data(state, call, source, address, size))
        if asynchronous:
            state.driver.cuMemcpyHtoDAsync(one.base + offset, data, state.stream(call))
        else:
            state.driver.cuMemcpyHtoD(one.base + offset, data)
        _wrote(state, call, one, offset, size)

    return run


def _copy_within(destination: str, source: str, *, asynchronous: bool) -> Run:
    def run(state: Playback, call: Call) -> None:
        size = call.arguments["ByteCount"]
        if not size:
            return
        to, to_offset = target(state, call.arguments[destination], size)
        origin, from_offset = target(state, call.arguments[source], size)
        ends = (to.base + to_offset, origin.base + from_offset, size)
        if asynchronous:
            state.driver.cuMemcpyDtoDAsync(*ends, state.stream(call))
        else:
            state.driver.cuMemcpyDtoD(*ends)
        differing = origin.differing.within(from_offset, from_offset + size)
        since = origin.differing_since
        _wrote(state, call, to, to_offset, size)
        shift = to_offset - from_offset
        for start, stop in differing:
            state.memory.mark_differing(to, start + shift, stop + shift, since)
        to.taint = to.taint or origin.taint

    return run


def _fill(entry: str, value: str, width: int, *, asynchronous: bool) -> Run:
    def run(state: Playback, call: Call) -> None:
        count = call.arguments["N"]
        if not count:
            return
        one, offset = target(state, call.arguments["dstDevice"], count * width)
        pattern = call.arguments[value] & ((1 << 8 * width) - 1)
        stream = (state.stream(call),) if asynchronous else ()
        getattr(state.driver, entry)(one.base + offset, pattern, count, *stream)
        _wrote(state, call, one, offset, count * width)

    return run


for _asynchronous, _suffix in ((False, ""), (True, "Async")):
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


def source_of(state: Playback, call: Call) -> Source:
    """What a copy of one range to the host reads."""
    arguments = call.arguments
    size = arguments["ByteCount"]
    source = arguments["srcDevice"] if "srcDevice" in arguments else arguments["src"]
    one, offset = target(state, source, size)
    return Source(one, [(offset, offset + size)])


@handles("cuMemcpyDtoH", "cuMemcpyDtoHAsync", phase=Phase.COPY)
def deliver(state: Playback, call: Call) -> bytes:
    """Issue a copy to the host; returns the bytes it delivers."""
    one, ((offset, stop),) = source_of(state, call)
    size = stop - offset
    if "hStream" in call.arguments:
        return state.driver.cuMemcpyDtoHAsync(one.base + offset, size, state.stream(call))
    return state.driver.cuMemcpyDtoH(one.base + offset, size)


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
