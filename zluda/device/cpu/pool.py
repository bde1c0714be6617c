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

from zluda.compiler.cpu.context import (
    MAX_WARPS,
    SHARED_STRIDE,
    STACK_BYTES,
    STACK_REGION,
    Cluster,
    Context,
    Job,
)
from zluda.device.cpu.link import runtime
from zluda.device.limits import MAX_SHARED_BYTES
from zluda.errors import DeviceError

_SMALL = 20_000  # instructions of warps, about ten microseconds
_CHUNKS_PER_WORKER = 16

_NORESERVE = 0x4000


def _protect(address: int, size: int) -> None:
    """Make pages unusable."""
    mprotect = ctypes.CDLL(None, use_errno=True).mprotect
    if mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), 0) != 0:
        raise DeviceError("cpu", f"cannot guard a stack: {os.strerror(ctypes.get_errno())}")


def _reserve(size: int) -> mmap.mmap:
    """Memory that is backed where it is touched.

    Shared, like device memory: a runner's limit on private memory must not count address space.
    """
    return mmap.mmap(-1, size, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | _NORESERVE)


def _address(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def _stacks(count: int) -> mmap.mmap:
    """Stacks of warps side by side, of which none can overflow into the next."""
    memory = _reserve(count * STACK_BYTES)
    for warp in range(count):
        _protect(_address(memory) + warp * STACK_BYTES, mmap.PAGESIZE)
    return memory


class Slots:
    """What a thread needs to run ``count`` blocks by turns, of ``stacks`` warps together."""

    def __init__(self, count: int, stacks: int, worker: int) -> None:
        self.count, self.stacks = count, stacks
        self.contexts = (Context * count)()
        self.clusters = (Cluster * count)()
        self._shared, self._stacks = _reserve(count * SHARED_STRIDE), _stacks(stacks)
        self.stacks_address, shared = _address(self._stacks), _address(self._shared)
        for n, context in enumerate(self.contexts):
            context.gang, context.worker = 1, worker
            context.own_shared = context.shared = shared + n * SHARED_STRIDE


class Worker:
    """A thread's context, its stacks and its block's shared memory. Nothing is backed until touched."""

    def __init__(self, index: int) -> None:
        self.context = Context()
        self._stacks, self._shared = _stacks(MAX_WARPS), mmap.mmap(-1, (MAX_SHARED_BYTES + 0xFFFF) & ~0xFFFF)
        self.context.stack_low = _address(self._stacks)
        self.context.stack_high = self.context.stack_low + STACK_REGION
        self.context.shared = self.context.own_shared = _address(self._shared)
        self.context.worker = index
        self._slots: Slots | None = None

    def provide(self, blocks: int, warps: int) -> None:
        """Have slots for so many blocks of so many warps."""
        have, stacks = self._slots, blocks * warps
        if have is not None and have.count >= blocks and have.stacks >= stacks:
            return
        if have is not None:
            blocks, stacks = max(blocks, have.count), max(stacks, have.stacks)
        self._slots = made = Slots(blocks, stacks, self.context.worker)
        self.context.slots = ctypes.addressof(made.contexts)
        self.context.clusters = ctypes.addressof(made.clusters)
        self.context.slot_stacks = made.stacks_address

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
        self._workers: list[Worker] = []
        self._helpers: list[threading.Thread] = []
        self.job = Job()
        self._sequence = 0
        self._close = weakref.finalize(self, _dismiss, self.job, self._helpers)

    def launch(self, job: dict[str, Any], *, work: int, resident: int = 0) -> Job:
        """Run a job to its end; returns it as it then stands.

        ``job`` gives fields of :class:`Job`; ``work`` estimates the instructions that all warps execute. So
        many blocks as ``resident`` says may wait for each other: they are all begun before one has to end.
        """
        with self._lock:
            if not self._workers:
                self._workers.append(Worker(0))
            for name, value in job.items():
                setattr(self.job, name, value)
            self.job.next = self.job.fault = self.job.fault_address = 0
            alone = self.threads == 1 or self.job.blocks == 1 or work < _SMALL
            if not alone:
                self._start()
            others = 0 if alone else len(self._helpers)
            self.job.chunk = max(1, min(256, self.job.blocks // (_CHUNKS_PER_WORKER * (others + 1))))
            self.job.slots = self._share(resident, others + 1)
            if others:
                self._sequence = self._sequence % 0x7FFFFFFF + 1
            runtime().launch(ctypes.addressof(self.job), self._workers[0].address, others, self._sequence)
            return Job.from_buffer_copy(self.job)

    def _share(self, resident: int, workers: int) -> int:
        """The slots of each worker, whole clusters of them."""
        if not resident:
            return 0
        size: int = self.job.cluster_size
        share = -(-resident // (workers * size)) * size
        for worker in self._workers[:workers]:
            worker.provide(share, self.job.warps)
        return share

    def _start(self) -> None:
        """Start the other workers, once."""
        while len(self._helpers) < self.threads - 1:
            worker = Worker(len(self._helpers) + 1)
            arguments = (self.job, worker, self._sequence)
            helper = threading.Thread(target=_serve, args=arguments, daemon=True, name="zluda-cpu")
            helper.start()
            self._workers.append(worker)
            self._helpers.append(helper)

    def close(self) -> None:
        """Send the helpers home. The pool cannot launch afterwards."""
        with self._lock:
            self._close()
