"""Streams and events.

On a GPU they are its own. On other devices work is done when it is issued, so a stream is idle and a recorded
event complete whenever a caller can look; order between streams is the order of issue, which every program
must accept. Events keep real times.
"""

from __future__ import annotations

import time

from zluda.driver.errors import CudaError
from zluda.driver.translated.contexts import GREATEST_PRIORITY, LEAST_PRIORITY
from zluda.driver.translated.services import check_output
from zluda.driver.translated.state import PREDEFINED_STREAMS, Event, State, Stream, entry

_NON_BLOCKING = 0x1  # CU_STREAM_NON_BLOCKING
_DISABLE_TIMING = 0x2  # CU_EVENT_DISABLE_TIMING
_INTERPROCESS = 0x4  # CU_EVENT_INTERPROCESS, which wants DISABLE_TIMING too
_EVENT_FLAGS = 0x7
_RECORD_FLAGS = _WAIT_FLAGS = (
    0x1  # CU_EVENT_RECORD_EXTERNAL, CU_EVENT_WAIT_EXTERNAL: no effect outside a capture
)


def _check(flags: int, allowed: int) -> None:
    if flags & ~allowed:
        raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=f"flags {flags:#x}; expected bits of {allowed:#x}")


class StreamEntries:
    """``cuStream*``, ``cuEvent*``."""

    _state: State

    @entry()
    def cuStreamCreate(self, flags: int = 0) -> int:
        return self._create(flags, LEAST_PRIORITY)

    @entry()
    def cuStreamCreateWithPriority(self, flags: int, priority: int) -> int:
        return self._create(flags, min(max(priority, GREATEST_PRIORITY), LEAST_PRIORITY))

    @entry()
    def cuStreamDestroy(self, stream: int) -> None:
        if stream in PREDEFINED_STREAMS:
            raise CudaError(
                "CUDA_ERROR_INVALID_HANDLE", detail=f"stream {stream} is not the program's to destroy"
            )
        gone = self._state.streams.remove(stream)
        if self._state.gpu is not None:
            self._state.gpu.streams.destroy(gone.native)

    @entry()
    def cuStreamSynchronize(self, stream: int) -> None:
        self._state.await_stream(stream)
        check_output(self._state)

    @entry()
    def cuStreamQuery(self, stream: int) -> bool:
        state = self._state
        state.check_stream(stream)
        return state.gpu is None or state.gpu.streams.done(state.native_stream(stream))

    @entry()
    def cuStreamGetFlags(self, stream: int) -> int:
        return 0 if stream in PREDEFINED_STREAMS else self._state.streams[stream].flags

    @entry()
    def cuStreamGetPriority(self, stream: int) -> int:
        return LEAST_PRIORITY if stream in PREDEFINED_STREAMS else self._state.streams[stream].priority

    @entry()
    def cuStreamWaitEvent(self, stream: int, event: int, flags: int = 0) -> None:
        _check(flags, _WAIT_FLAGS)
        state = self._state
        state.check_stream(stream)
        waited = state.events[event]
        if state.gpu is not None:
            state.gpu.streams.wait(state.native_stream(stream), waited.native)

    def _create(self, flags: int, priority: int) -> int:
        _check(flags, _NON_BLOCKING)
        gpu = self._state.gpu
        native = gpu.streams.create(flags, priority) if gpu is not None else 0
        return self._state.streams.add(Stream(self._state.current(), flags, priority, native))

    @entry()
    def cuEventCreate(self, flags: int = 0) -> int:
        _check(flags, _EVENT_FLAGS)
        if flags & _INTERPROCESS and not flags & _DISABLE_TIMING:
            raise CudaError("CUDA_ERROR_INVALID_VALUE", detail="an interprocess event cannot keep times")
        gpu = self._state.gpu
        native = gpu.streams.create_event(flags) if gpu is not None else 0
        return self._state.events.add(Event(self._state.current(), flags, native=native))

    @entry()
    def cuEventDestroy(self, event: int) -> None:
        gone = self._state.events.remove(event)
        if self._state.gpu is not None:
            self._state.gpu.streams.destroy_event(gone.native)

    @entry()
    def cuEventRecord(self, event: int, stream: int) -> None:
        self._record(event, stream)

    @entry()
    def cuEventRecordWithFlags(self, event: int, stream: int, flags: int) -> None:
        _check(flags, _RECORD_FLAGS)
        self._record(event, stream)

    @entry()
    def cuEventSynchronize(self, event: int) -> None:
        waited = self._state.events[event]
        if self._state.gpu is not None:
            self._state.gpu.streams.synchronize_event(waited.native)
        check_output(self._state)

    @entry()
    def cuEventQuery(self, event: int) -> bool:
        asked = self._state.events[event]
        return self._state.gpu is None or self._state.gpu.streams.event_done(asked.native)

    @entry()
    def cuEventElapsedTime(self, start: int, end: int) -> float:
        times = []
        events = (self._state.events[start], self._state.events[end])
        for event in events:
            if event.flags & _DISABLE_TIMING or event.recorded_ns is None:
                raise CudaError(
                    "CUDA_ERROR_INVALID_HANDLE", detail="the event keeps no time or was never recorded"
                )
            times.append(event.recorded_ns)
        if self._state.gpu is not None:
            return self._state.gpu.streams.elapsed(events[0].native, events[1].native)
        return (times[1] - times[0]) / 1e6

    def _record(self, event: int, stream: int) -> None:
        state = self._state
        state.check_stream(stream)
        recorded = state.events[event]
        if state.gpu is not None:
            state.gpu.streams.record(recorded.native, state.native_stream(stream))
        recorded.recorded_ns = time.perf_counter_ns()
