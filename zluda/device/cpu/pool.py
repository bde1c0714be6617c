"""Native threads that run a launch's blocks, outside Python's lock.

The caller takes part; other workers are parked in native code, on a futex. A small grid runs on the caller
alone: waking somebody costs more than it saves.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import weakref
from typing import Any

from zluda.compiler.cpu.context import MAX_WARPS, STACK_BYTES, STACK_REGION, Context, Job
from zluda.device.cpu.link import runtime
from zluda.errors import DeviceError

MAX_SHARED_BYTES = 227 << 10  # a block's most on sm_90
_SMALL = 20_000  # instructions of warps, about ten microseconds
_CHUNKS_PER_WORKER = 16

_NORESERVE = 0x4000


def _protect(address: int, size: int) -> None:
    """Make pages unusable."""
    mprotect = ctypes.CDLL(None, use_errno=True).mprotect
    if mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), 0) != 0:
        raise DeviceError("cpu", f"cannot guard a stack: {os.strerror(ctypes.get_errno())}")


class Worker:
    """A thread's context, its stacks and its block's shared memory. Nothing is backed until touched."""

    def __init__(self, index: int) -> None:
        self.context = Context()
        # Shared, like device memory: a runner's limit on private memory must not count address space.
        self._stacks = mmap.mmap(-1, STACK_REGION, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | _NORESERVE)
        self._shared = mmap.mmap(-1, (MAX_SHARED_BYTES + 0xFFFF) & ~0xFFFF)
        self.context.stack_low = ctypes.addressof(ctypes.c_char.from_buffer(self._stacks))
        for warp in range(MAX_WARPS):  # a stack that overflows must not run into the next
            _protect(self.context.stack_low + warp * STACK_BYTES, mmap.PAGESIZE)
        self.context.stack_high = self.context.stack_low + STACK_REGION
        self.context.shared = ctypes.addressof(ctypes.c_char.from_buffer(self._shared))
        self.context.worker = index

    @property
    def address(self) -> int:
        return ctypes.addressof(self.context)


def _serve(job: Job, worker: Worker, sequence: int) -> None:
    """A pool thread. Holds what the native code reads until that code returns."""
    runtime().worker(ctypes.addressof(job), worker.address, sequence)


def _dismiss(job: Job, threads: list[threading.Thread]) -> None:
    """End the threads that wait on a job."""
    if threads:
        runtime().stop(ctypes.addressof(job))
    while threads:
        threads.pop().join()


class Pool:
    """``threads`` workers, the calling thread among them; by default as many as this process may use."""

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads if threads is not None else min(len(os.sched_getaffinity(0)), 16)
        self._lock = threading.Lock()
        self._caller: Worker | None = None
        self._helpers: list[threading.Thread] = []
        self.job = Job()
        self._sequence = 0
        self._close = weakref.finalize(self, _dismiss, self.job, self._helpers)

    def launch(self, job: dict[str, Any], *, work: int) -> Job:
        """Run a job to its end; returns it as it then stands.

        ``job`` gives fields of :class:`Job`; ``work`` estimates the instructions that all warps execute.
        """
        with self._lock:
            if self._caller is None:
                self._caller = Worker(0)
            for name, value in job.items():
                setattr(self.job, name, value)
            self.job.next = self.job.fault = self.job.fault_address = 0
            alone = self.threads == 1 or self.job.blocks == 1 or work < _SMALL
            if not alone:
                self._start()
            others = 0 if alone else len(self._helpers)
            self.job.chunk = max(1, min(256, self.job.blocks // (_CHUNKS_PER_WORKER * (others + 1))))
            if others:
                self._sequence = self._sequence % 0x7FFFFFFF + 1
            runtime().launch(ctypes.addressof(self.job), self._caller.address, others, self._sequence)
            return Job.from_buffer_copy(self.job)

    def _start(self) -> None:
        """Start the other workers, once."""
        while len(self._helpers) < self.threads - 1:
            worker = Worker(len(self._helpers) + 1)
            arguments = (self.job, worker, self._sequence)
            helper = threading.Thread(target=_serve, args=arguments, daemon=True, name="zluda-cpu")
            helper.start()
            self._helpers.append(helper)

    def close(self) -> None:
        """Send the helpers home. The pool cannot launch afterwards."""
        with self._lock:
            self._close()
