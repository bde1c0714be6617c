"""Streams and events."""

from __future__ import annotations

from zluda.replay.handlers.table import Phase, bind, handles, signed
from zluda.replay.playback import Playback
from zluda.tracefile import Call

_STREAM = ("stream", "phStream")
_EVENT = ("event", "phEvent")


@handles("cuStreamCreate", creates=_STREAM)
def stream_create(state: Playback, call: Call) -> None:
    bind(state, call, _STREAM, state.driver.cuStreamCreate(call.arguments["Flags"]))


@handles("cuStreamCreateWithPriority", creates=_STREAM)
def stream_create_with_priority(state: Playback, call: Call) -> None:
    flags, priority = call.arguments["flags"], signed(call.arguments["priority"])
    bind(state, call, _STREAM, state.driver.cuStreamCreateWithPriority(flags, priority))


@handles("cuStreamDestroy")
def stream_destroy(state: Playback, call: Call) -> None:
    state.driver.cuStreamDestroy(state.stream(call))
    state.handles.release("stream", call.arguments["hStream"])


@handles("cuStreamSynchronize", "cuStreamQuery", phase=Phase.SYNC)
def stream_synchronize(state: Playback, call: Call) -> None:
    """A stream that a query found done is waited for: what the program did next relies on it."""
    state.driver.cuStreamSynchronize(state.stream(call))


@handles("cuStreamWaitEvent", phase=Phase.SYNC, spoils=("stream", "hStream"))
def stream_wait_event(state: Playback, call: Call) -> None:
    event = state.handles.live("event", call.arguments["hEvent"])
    state.driver.cuStreamWaitEvent(state.stream(call), event, call.arguments["Flags"])


@handles("cuEventCreate", creates=_EVENT)
def event_create(state: Playback, call: Call) -> None:
    bind(state, call, _EVENT, state.driver.cuEventCreate(call.arguments["Flags"]))


@handles("cuEventDestroy")
def event_destroy(state: Playback, call: Call) -> None:
    state.driver.cuEventDestroy(state.handles.live("event", call.arguments["hEvent"]))
    state.handles.release("event", call.arguments["hEvent"])


@handles("cuEventRecord", phase=Phase.SYNC, spoils=("event", "hEvent"))
def event_record(state: Playback, call: Call) -> None:
    event = state.handles.live("event", call.arguments["hEvent"])
    state.driver.cuEventRecord(event, state.stream(call))


@handles("cuEventRecordWithFlags", phase=Phase.SYNC, spoils=("event", "hEvent"))
def event_record_with_flags(state: Playback, call: Call) -> None:
    event = state.handles.live("event", call.arguments["hEvent"])
    state.driver.cuEventRecordWithFlags(event, state.stream(call), call.arguments["flags"])


@handles("cuEventSynchronize", "cuEventQuery", phase=Phase.SYNC)
def event_synchronize(state: Playback, call: Call) -> None:
    """As with a stream, an event that a query found done is waited for."""
    state.driver.cuEventSynchronize(state.handles.live("event", call.arguments["hEvent"]))
