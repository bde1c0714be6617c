"""A trace as a timeline that Perfetto and chrome://tracing show (the Trace Event Format's JSON array form).

One track for each thread of the program, with its driver calls, and one for each stream, with its launches.
A launch stands where its call was made, since the record has how long it took on the GPU but not when it
began; launches of a stream do not overlap, so one that would is put after the one before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TextIO

from zluda.report.names import readable
from zluda.tracefile import Call, Launch, Trace

_HOST, _GPU = 1, 2
_LEGACY_STREAM = 0


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
    threads: set[int] = set()
    free: dict[int, float] = {}  # stream → when its last launch ends
    for call in trace.iter_calls():
        if call.thread not in threads:
            threads.add(call.thread)
            yield _track(_HOST, call.thread, f"thread {call.thread}")
        yield _call_event(call, zero)
        launch = launches.get(call.sequence)
        if launch is not None and launch.gpu_time_ns is not None:
            if launch.stream not in free:
                name = "default stream" if launch.stream == _LEGACY_STREAM else f"stream {launch.stream:#x}"
                yield _track(_GPU, launch.stream, name)
            event = _launch_event(launch, max(_us(call.start_ns, zero), free.get(launch.stream, 0.0)))
            free[launch.stream] = event["ts"] + event["dur"]
            yield event


def _call_event(call: Call, zero: int) -> dict[str, Any]:
    end = call.start_ns if call.end_ns is None else call.end_ns
    return {
        "ph": "X",
        "name": call.function,
        "cat": "driver",
        "pid": _HOST,
        "tid": call.thread,
        "ts": _us(call.start_ns, zero),
        "dur": (end - call.start_ns) / 1000,
        "args": {"call": call.sequence, "result": call.result},
    }


def _launch_event(launch: Launch, start: float) -> dict[str, Any]:
    assert launch.gpu_time_ns is not None
    return {
        "ph": "X",
        "name": readable(launch.kernel),
        "cat": "kernel",
        "pid": _GPU,
        "tid": launch.stream,
        "ts": start,
        "dur": launch.gpu_time_ns / 1000,
        "args": {
            "call": launch.call,
            "grid": list(launch.grid),
            "block": list(launch.block),
            "shared_bytes": launch.shared_bytes,
        },
    }


def _us(time_ns: int, zero: int) -> float:
    """Microseconds since the first call."""
    return (time_ns - zero) / 1000


def _name(process: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": name}}


def _track(process: int, track: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "thread_name", "pid": process, "tid": track, "args": {"name": name}}
