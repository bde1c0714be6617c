"""A launch: what the native scheduler (``schedule.ll``) needs in memory, and the threads that run it."""

from __future__ import annotations

import ctypes
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

from zluda.device.amd.emulator import state
from zluda.device.amd.emulator.compile import scheduler
from zluda.device.amd.emulator.instruction import EXEC
from zluda.device.amd.emulator.mapping import Mapping, map_aperture
from zluda.records import dataclass

SLOTS = 128  # blocks that one thread can have resident
LDS_WINDOW = 1 << 16
_BUDGET = 8192  # backward branches (with a seed, waits for memory, too) of a wave before others run
_SEEDED_RESIDENT = 4
_SHARE = 16  # blocks that a thread takes at a time
_PATIENCE_S = 1.0  # how long all threads must have been stuck
_LINE = 64  # bytes
_DEEP_HOST_BYTES = 1 << 20  # host code from which on a wave's frame may not fit a thread's usual stack
_DEEP_STACK_BYTES = 256 << 20  # reserved, not backed until touched
_SMALL = 64  # waves: below this the caller alone runs a launch


@dataclass(slots=True)
class Launch:
    """One launch, ready to run. Sizes in bytes; ``template`` holds each wave's first ``template_bytes``."""

    wave_function: int
    blocks: int
    waves: int
    grid: tuple[int, int, int]
    template: bytes
    template_bytes: int
    wave_bytes: int
    wave_private_bytes: int
    private_bytes: int
    lds_bytes: int
    code: int
    sgprs: dict[str, int]
    ids_in_ttmps: bool
    ranges: Sequence[tuple[int, int]] = ()
    in_order: bool = False  # blocks begin in order, even with a seed
    resident: int = 0  # so many blocks must find room at once
    host_bytes: int = 0  # of the wave function's object


@dataclass(frozen=True, slots=True)
class Counts:
    """What all waves of a launch executed: instructions, those of them for the vector unit, and the bytes of
    memory that their lanes asked for, by vector instructions."""

    instructions: int = 0
    vector: int = 0
    bytes: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.instructions + other.instructions, self.vector + other.vector, self.bytes + other.bytes
        )


NOTHING = Counts()


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a launch ended: a code of ``state.FAULTS`` (0: well) with its place, and what was counted.

    ``wave`` is the faulting one in its block, ``size`` the bytes of its access, 0 where it was none.
    ``exec_mask`` and ``full_mask`` are the lanes of a wave that hangs: those in its loop, all it began with.
    """

    fault: int
    block: int
    lane: int
    address: int
    offset: int
    instructions: int
    exec_mask: int = 0
    full_mask: int = 0
    wave: int = 0
    size: int = 0
    counts: Counts = NOTHING


class _Thread:
    """A worker's slots. LDS lies at multiples of 4 GiB; the rest is one mapping, as large as ever needed."""

    def __init__(self) -> None:
        self.slots = (state.Block * SLOTS)()
        self.record = state.Worker(ctypes.addressof(self.slots), SLOTS)
        self._lds: list[Mapping] = []
        self._waves: Mapping | None = None
        self._private: Mapping | None = None
        self._layout = (0, 0)

    def prepare(self, launch: Launch, *, fresh: bool, slots: int = SLOTS) -> None:
        """Lay out the slots for a launch, so many at least; ``fresh`` begins with zeroed records."""
        if slots > len(self.slots):
            self._grow(slots)
        while len(self._lds) < len(self.slots):
            mapping = map_aperture(LDS_WINDOW)
            self.slots[len(self._lds)].lds = mapping.address
            self._lds.append(mapping)
        layout = (launch.wave_bytes * launch.waves, max(launch.wave_private_bytes, 64) * launch.waves)
        if layout != self._layout or fresh:
            self._waves = self._fit(self._waves, layout[0] * len(self.slots), fresh)
            self._private = self._fit(self._private, layout[1] * len(self.slots), False)
            self._layout = layout
            for i, slot in enumerate(self.slots):
                slot.waves = self._waves.address + i * layout[0]
                slot.private_memory = self._private.address + i * layout[1]

    def _grow(self, count: int) -> None:
        """More slots, for a grid whose blocks wait for all others."""
        self.slots = (state.Block * count)()
        for slot, mapping in zip(self.slots, self._lds, strict=False):
            slot.lds = mapping.address
        self.record.slots, self.record.slot_count = ctypes.addressof(self.slots), count
        self._layout = (0, 0)

    @staticmethod
    def _fit(mapping: Mapping | None, size: int, fresh: bool) -> Mapping:
        if mapping is not None and mapping.size >= size and not fresh:
            return mapping
        if mapping is not None:
            mapping.close()
        return Mapping(size)

    def begin(self, seed: int) -> None:
        """Forget the last launch."""
        record = self.record
        if record.used:  # it failed
            for slot in self.slots:
                slot.busy = 0
        record.used, record.wanted = 0, _SEEDED_RESIDENT if seed else 1
        record.ticket = record.last_ticket = 0
        record.progress = record.quiet = record.stuck = record.kept_digest = 0
        record.random = (seed * 0x9E3779B97F4A7C15 | 1) & (1 << 64) - 1

    def counted(self, launch: Launch) -> Counts:
        """What all waves have executed."""
        total = NOTHING
        for slot in self.slots:
            for wave in range(launch.waves):
                record = slot.waves + wave * launch.wave_bytes
                places = (record + field for field in (state.COUNT, state.VECTOR, state.BYTES))
                total += Counts(*(ctypes.c_uint64.from_address(place).value for place in places))
        return total

    def resident(self, launch: Launch) -> Iterator[tuple[int, int, int, int]]:
        """(block, number in it, PC, EXEC) of waves that could go on; (block, -1, 0, 0) where all wait."""
        for slot in self.slots:
            if slot.busy and not slot.ready:
                yield slot.index, -1, 0, 0
            for wave in range(launch.waves):
                if slot.busy and slot.ready >> wave & 1:
                    record = slot.waves + wave * launch.wave_bytes
                    pc = ctypes.c_uint64.from_address(record + state.PC).value
                    yield slot.index, wave, pc, ctypes.c_uint64.from_address(record + 4 * EXEC).value


class Scheduler:
    """Runs launches, blocks spread over ``threads`` threads (the caller's among them).

    ``seed`` other than 0 varies the order of waves and blocks, on one thread, the same for the same seed.
    """

    def __init__(self, threads: int | None = None, *, seed: int = 0) -> None:
        available = min(len(os.sched_getaffinity(0)), 16)
        self.threads = 1 if seed else max(1, threads if threads is not None else available)
        self.seed = seed
        self._workers = [_Thread() for _ in range(self.threads)]
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    def run(self, launch: Launch, *, count: bool = False, timeout_s: float | None = None) -> Outcome:
        """Run a launch to its end or its first fault."""
        with self._lock:
            job, keep = self._job(launch)
            alone = launch.blocks * launch.waves < _SMALL
            workers = self._workers[: 1 if alone else min(self.threads, launch.blocks)]
            job.share = max(1, min(_SHARE, launch.blocks // (4 * len(workers))))
            for worker in workers:
                worker.prepare(launch, fresh=count, slots=-(-launch.resident // len(workers)))
                worker.begin(self.seed)
            self._execute(job, workers, timeout_s, deep=launch.host_bytes >= _DEEP_HOST_BYTES)
            del keep
            counted = sum((w.counted(launch) for w in workers), NOTHING) if count else NOTHING
            if job.fault in (state.TIMEOUT, state.HANG):
                return self._hang(job, launch, workers)
        code, size = state.fault_code(job.fault)
        wave, lane = state.fault_wave(job.fault_lane)
        return Outcome(
            code,
            job.fault_block,
            lane,
            job.fault_address,
            job.fault_offset,
            counted.instructions,
            wave=wave,
            size=size,
            counts=counted,
        )

    def _hang(self, job: state.Job, launch: Launch, workers: Sequence[_Thread]) -> Outcome:
        """Where a launch that does not end was found: a wave with lanes left out, if there is one."""
        best, most = Outcome(job.fault, 0, 0, 0, 0, 0), -1
        for worker in workers:
            for block, wave, pc, mask in worker.resident(launch):
                begin = wave * launch.template_bytes + 4 * EXEC
                full = int.from_bytes(launch.template[begin : begin + 8], "little") if wave >= 0 else 0
                rank = 0 if wave < 0 else 2 if mask & full != full else 1
                if rank > most:
                    best, most = Outcome(job.fault, block, 0, 0, pc, 0, mask & full, full), rank
        return best

    def _job(self, launch: Launch) -> tuple[state.Job, list[object]]:
        """The launch's record, and what must live as long."""
        template = ctypes.create_string_buffer(len(launch.template) + _LINE)
        aligned = -(-ctypes.addressof(template) // _LINE) * _LINE
        ctypes.memmove(aligned, launch.template, len(launch.template))
        pairs = [bound for r in sorted(launch.ranges) for bound in r]
        ranges = (ctypes.c_uint64 * max(len(pairs), 1))(*pairs)
        job = state.Job(
            wave_function=launch.wave_function,
            blocks=launch.blocks,
            multiplier=_coprime(launch.blocks, 0 if launch.in_order else self.seed),
            seed=self.seed,
            template=aligned,
            template_bytes=launch.template_bytes,
            wave_bytes=launch.wave_bytes,
            wave_private_bytes=launch.wave_private_bytes,
            code=launch.code,
            ranges=ctypes.addressof(ranges),
            range_count=len(pairs) // 2,
            waves=launch.waves,
            grid_x=launch.grid[0],
            grid_y=launch.grid[1],
            ids_in_ttmps=launch.ids_in_ttmps,
            lds_bytes=launch.lds_bytes,
            private_bytes=launch.private_bytes,
            budget=_BUDGET,
            **{f"{name}_sgpr": launch.sgprs.get(name, state.NO_SGPR) for name in _SGPRS},
        )
        return job, [template, ranges]

    def _execute(
        self, job: state.Job, workers: Sequence[_Thread], timeout_s: float | None, *, deep: bool
    ) -> None:
        run = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(scheduler().address)
        watch = _Watch(job, workers, timeout_s)

        def work(worker: _Thread) -> None:
            while run(ctypes.addressof(job), ctypes.addressof(worker.record)):
                watch.look()
            watch.left(worker)

        if deep:
            _run_deep(work, workers)
            return
        if len(workers) > 1 and self._pool is None:
            self._pool = ThreadPoolExecutor(self.threads - 1, thread_name_prefix="zluda-amd")
        others = [self._pool.submit(work, w) for w in workers[1:]] if self._pool is not None else []
        work(workers[0])
        wait(others)
        for other in others:
            other.result()

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


_starting = threading.Lock()  # the size of new threads' stacks is the process's


def _run_deep(work: Callable[[_Thread], None], workers: Sequence[_Thread]) -> None:
    """Run workers on threads of their own with large stacks.

    A wave function of tens of thousands of instructions is compiled without register allocation to speak of,
    so that each of its values, 256 bytes for 64 lanes, has a place of its own in one frame of tens of
    megabytes.
    """
    failures: list[BaseException] = []

    def guarded(worker: _Thread) -> None:
        try:
            work(worker)
        except BaseException as error:  # raised again by the caller
            failures.append(error)

    with _starting:
        usual = threading.stack_size(_DEEP_STACK_BYTES)
        try:
            threads = [threading.Thread(target=guarded, args=(w,), name="zluda-amd-deep") for w in workers]
            for thread in threads:
                thread.start()
        finally:
            threading.stack_size(usual)
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


class _Watch:
    """Ends a launch whose time is over, or whose workers have all been stuck for a while."""

    def __init__(self, job: state.Job, workers: Sequence[_Thread], timeout_s: float | None) -> None:
        self._job, self._running = job, list(workers)
        self._ends = math.inf if timeout_s is None else time.monotonic() + timeout_s
        self._lock = threading.Lock()
        self._progress: list[int] = []
        self._stuck_since = math.inf

    def look(self) -> None:
        """Called by each worker now and then."""
        with self._lock:
            now = time.monotonic()
            progress = [w.record.progress for w in self._running]
            if progress != self._progress or not all(w.record.stuck for w in self._running):
                self._progress, self._stuck_since = progress, math.inf
            else:
                self._stuck_since = min(self._stuck_since, now)
            if now >= self._ends:
                self._job.fault = self._job.fault or state.TIMEOUT
            elif now - self._stuck_since >= _PATIENCE_S:
                self._job.fault = self._job.fault or state.HANG

    def left(self, worker: _Thread) -> None:
        """A worker has nothing more to do."""
        with self._lock:
            self._running.remove(worker)


_SGPRS = ("id_x", "id_y", "id_z", "resource", "flat_scratch", "wave_offset")


def _coprime(blocks: int, seed: int) -> int:
    """A step through all blocks: 1, or with a seed another number that shares no factor with them."""
    if not seed:
        return 1
    step = seed * 2654435761 % min(blocks, 1 << 30) or 1  # so that products fit 64 bits
    while math.gcd(step, blocks) != 1:
        step += 1
    return step
