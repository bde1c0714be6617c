"""A trace as a timeline that Perfetto and chrome://tracing show (the Trace Event Format's JSON array form).

One track for each thread of the program, with its driver calls, and one for each stream, with its launches
and launches of graphs, where the GPU's clock says that they were. What was not timed by events, and has a GPU
time all the same, stands where its call was made, or after what was before it in the stream.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TextIO

from zluda.report.names import readable
from zluda.tracefile import Call, Launch, Trace
from zluda.tracefile.libraries import library_of

_HOST, _GPU = 1, 2
_LEGACY_STREAM = 0
_STREAMS = {
    0: "default stream",
    1: "default stream",
    2: "per-thread default stream",
}  # CU_STREAM_LEGACY, _PER_THREAD


def write_timeline(trace: Trace, stream: TextIO) -> int:
    """Write the events of ``trace``; returns how many there are."""
    count = 0
    stream.write("[\n")
    for event in _events(trace):
        stream.write((",\n" if count else "") + json.dumps(event))
        count += 1
    stream.write("\n]\n")
    return count


def _events(trace: Trace) -> Iterator[dict[str, Any]]:
    first = next(trace.iter_calls(), None)
    zero = 0 if first is None else first.start_ns
    command = trace.meta.get("command", [])
    yield _name(_HOST, " ".join(map(str, command)) if isinstance(command, list) else str(command))
    yield _name(_GPU, str(trace.meta.get("gpu", "GPU")))
    launches = {launch.call: launch for launch in trace.iter_launches()}
    times = {time.call: time for time in trace.gpu_times()}
    threads: set[int] = set()
    tracks: dict[tuple[int, int], int] = {}  # clock, stream →
    free: dict[int, float] = {}  # track → when its last launch ends
    for call in trace.iter_calls():
        if call.thread not in threads:
            threads.add(call.thread)
            yield _track(_HOST, call.thread, f"thread {call.thread}")
        yield _nvtx_event(trace, call, zero) if call.function in _NVTX else _call_event(call, zero)
        launch, time = launches.get(call.sequence), times.get(call.sequence)
        took = time.duration_ns if time is not None else launch.gpu_time_ns if launch is not None else None
        if took is None:
            continue
        stream = launch.stream if launch is not None else int(call.arguments.get("hStream", _LEGACY_STREAM))
        place = (0 if time is None else time.clock, stream)
        if place not in tracks:
            tracks[place] = len(tracks)
            yield _track(_GPU, tracks[place], _stream_name(*place))
        track = tracks[place]
        if time is not None and time.start_ns is not None:
            start = _us(time.start_ns, zero)
        else:
            start = max(_us(call.start_ns, zero), free.get(track, 0.0))
        free[track] = start + took / 1000
        yield _gpu_event(call, launch, track, start, took)


def _stream_name(clock: int, stream: int) -> str:
    name = _STREAMS.get(stream, f"stream {stream:#x}")
    return f"{name}, context {clock + 1}" if clock else name


def _call_event(call: Call, zero: int) -> dict[str, Any]:
    end = call.start_ns if call.end_ns is None else call.end_ns
    return {
        "ph": "X",
        "name": call.function,
        "cat": library_of(call.function) or "driver",
        "pid": _HOST,
        "tid": call.thread,
        "ts": _us(call.start_ns, zero),
        "dur": (end - call.start_ns) / 1000,
        "args": {"call": call.sequence, "result": call.result},
    }


# Trace Event Format: duration events of a thread; asynchronous ones, matched by id; an instant.
_NVTX = {
    "nvtxRangePush": "B",
    "nvtxRangePop": "E",
    "nvtxRangeStart": "b",
    "nvtxRangeEnd": "e",
    "nvtxMark": "i",
}


def _nvtx_event(trace: Trace, call: Call, zero: int) -> dict[str, Any]:
    """What the program told by NVTX."""
    phase = _NVTX[call.function]
    event = {"ph": phase, "cat": "nvtx", "pid": _HOST, "tid": call.thread, "ts": _us(call.start_ns, zero)}
    number = call.arguments.get("id", 0)
    if phase in "be":
        event["id"] = number
    if phase == "i":
        event["s"] = "t"
    if phase not in "Ee":
        message = trace.payload(call.sequence, "message") or b""
        event["name"] = message.split(b"\0")[0].decode("utf-8", "replace")
    elif phase == "e":
        event["name"] = ""
    return event


def _gpu_event(call: Call, launch: Launch | None, track: int, start: float, took_ns: int) -> dict[str, Any]:
    """A launch's event, or, where ``launch`` is None, that of a graph's launch."""
    arguments: dict[str, Any] = {"call": call.sequence}
    if launch is not None:
        arguments |= {
            "grid": list(launch.grid),
            "block": list(launch.block),
            "shared_bytes": launch.shared_bytes,
        }
    return {
        "ph": "X",
        "name": readable(launch.kernel) if launch is not None else call.function,
        "cat": "kernel" if launch is not None else "graph",
        "pid": _GPU,
        "tid": track,
        "ts": start,
        "dur": took_ns / 1000,
        "args": arguments,
    }


def _us(time_ns: int, zero: int) -> float:
    """Microseconds since the first call."""
    return (time_ns - zero) / 1000


def _name(process: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": name}}


def _track(process: int, track: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "thread_name", "pid": process, "tid": track, "args": {"name": name}}
