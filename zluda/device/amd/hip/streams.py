"""Streams and events of a HIP device. Handles are HIP's own, as integers."""

from __future__ import annotations

from typing import Any

from zluda.device.amd.hip.runtime import Runtime
from zluda.device.results import KERNEL_FAILURES, CudaError
from zluda.errors import LaunchError

# CUDA's default stream and CU_STREAM_LEGACY are HIP's null stream.
_NULL_STREAMS, _PER_THREAD = (0, 1), 2
_INTERPROCESS = 0x4  # CU_EVENT_INTERPROCESS: this process is the only one
_NO_FLAGS = 0  # of a wait or a record: CUDA's only one speaks of capture


class HipStreams:
    """Implements :class:`zluda.device.base.Streams`. Entries raise CudaError.

    The failure of a kernel shows at whatever waits for it next; ``running`` is the kernel launched last,
    which such a CudaError names.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.running = ""
        self._per_thread = 0

    def handle(self, stream: int) -> int:
        """HIP's handle of a stream that CUDA predefines, or of one made here."""
        if stream in _NULL_STREAMS:
            return 0
        return self._thread_stream() if stream == _PER_THREAD else stream

    def _thread_stream(self) -> int:
        """An ordinary stream for CU_STREAM_PER_THREAD: one thread calls.

        ``hipModuleLaunchKernel`` of HIP 5.2 takes hipStreamPerThread for a pointer.
        """
        if not self._per_thread:
            self._per_thread = self.create(0, 0)
        return self._per_thread

    def create(self, flags: int, priority: int) -> int:
        return int(self._call("hipStreamCreateWithPriority", flags, priority))

    def destroy(self, stream: int) -> None:
        self._call("hipStreamDestroy", stream)

    def synchronize(self, stream: int) -> None:
        self._call("hipStreamSynchronize", self.handle(stream))

    def done(self, stream: int) -> bool:
        return self._done("hipStreamQuery", self.handle(stream))

    def wait(self, stream: int, event: int) -> None:
        self._call("hipStreamWaitEvent", self.handle(stream), event, _NO_FLAGS)

    def create_event(self, flags: int) -> int:
        return int(self._call("hipEventCreateWithFlags", flags & ~_INTERPROCESS))

    def destroy_event(self, event: int) -> None:
        self._call("hipEventDestroy", event)

    def record(self, event: int, stream: int) -> None:
        self._call("hipEventRecord", event, self.handle(stream))

    def synchronize_event(self, event: int) -> None:
        self._call("hipEventSynchronize", event)

    def event_done(self, event: int) -> bool:
        return self._done("hipEventQuery", event)

    def elapsed(self, start: int, end: int) -> float:
        """Milliseconds."""
        return float(self._call("hipEventElapsedTime", start, end))

    def synchronize_all(self) -> None:
        """Wait for everything on the device."""
        self._call("hipDeviceSynchronize")

    def _call(self, entry: str, *arguments: object) -> Any:
        try:
            return self._runtime.call(entry, *arguments)
        except CudaError as error:
            raise self.explained(error) from None

    def _done(self, entry: str, handle: int) -> bool:
        try:
            return self._runtime.done(entry, handle)
        except CudaError as error:
            raise self.explained(error) from None

    def explained(self, error: CudaError) -> CudaError:
        """A kernel's failure with the kernel's name; any other as it is."""
        if error.result not in KERNEL_FAILURES:
            return error
        failed = LaunchError(error.detail or error.name, kernel=self.running)
        return CudaError(error.result, error.call, error.detail, launch=failed)
