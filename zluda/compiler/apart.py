"""Compiling in processes forked for it: several at once, and none that LLVM ends takes the caller along.

LLVM's back ends abort on what they cannot do. A fork costs milliseconds, since everything is imported and set
up before it. The caller must have no other threads.
"""

from __future__ import annotations

import faulthandler
import fcntl
import gc
import os
import select
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import field
from typing import NoReturn, TypeVar

from zluda.compiler import siblings
from zluda.errors import Error, PtxError, UnsupportedError
from zluda.records import dataclass

T = TypeVar("T")

_ERRORS: tuple[tuple[type[Error], str], ...] = (
    (UnsupportedError, "unsupported"),
    (PtxError, "ptx"),
    (Error, "error"),
)
"""Errors and how they are called, the first that fits."""

_BEGUN, _DONE = "begun", "done"
_KINDS = (_BEGUN, _DONE, *(name for _, name in _ERRORS), "internal")
_FRAME = struct.Struct("<BIQ")  # index into _KINDS, the task's number, bytes that follow
_NUMBER = struct.Struct("<I")
_CHUNK = 1 << 16
_MOST = 64  # tasks of a process: what LLVM keeps of each adds up
_KEPT = ((-1, 1 << 30), (-3, 1 << 30), (-2, 32 << 20))  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_TOP_PAD


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no result: ``kind`` is ``unsupported``, ``ptx``, ``error``, ``crash`` or ``internal``."""

    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a task: bytes, or a failure."""

    value: bytes = b""
    failure: Failure | None = None

    def get(self) -> bytes:
        """The bytes. Raises Error for a failure."""
        if self.failure is not None:
            raise Error(self.failure.reason)
        return self.value


@dataclass(slots=True)
class _Child:
    """A process: what it sent that is not yet understood, and which task it is at."""

    pid: int
    output: int
    errors: int
    received: bytearray = field(default_factory=bytearray)
    task: int | None = None

    def finished(self) -> Iterator[tuple[int, Outcome]]:
        """Tasks of which all has come."""
        while len(self.received) >= _FRAME.size:
            kind, task, size = _FRAME.unpack_from(self.received)
            end = _FRAME.size + size
            if len(self.received) < end:
                return
            data = bytes(self.received[_FRAME.size : end])
            del self.received[:end]
            self.task = task if _KINDS[kind] == _BEGUN else None
            if self.task is None:
                yield task, _told(kind, data)


def processors() -> int:
    """How many processes can run at once."""
    return len(os.sched_getaffinity(0))


def each_apart(
    tasks: Sequence[T], work: Callable[[T], bytes], *, jobs: int = 0
) -> Iterator[tuple[T, Outcome]]:
    """``work(task)`` in forked processes, ``jobs`` at once (0: one a processor).

    Gives (task, outcome) as they end. A process takes one task after the other from those that are left; they
    make for each other what several need (:mod:`zluda.compiler.siblings`). What is still running is killed
    when the caller stops listening.
    """
    with siblings.shared():
        yield from _each(tasks, work, jobs or processors())


def _each(tasks: Sequence[T], work: Callable[[T], bytes], jobs: int) -> Iterator[tuple[T, Outcome]]:
    queue, untold = _Queue(len(tasks)), set(range(len(tasks)))
    running: dict[int, _Child] = {}
    poll = select.poll()
    try:
        while running or queue.left():
            for _ in range(min(jobs - len(running), queue.left())):
                child = _fork(tasks, work, queue)
                running[child.output] = child
                poll.register(child.output, select.POLLIN)
            for fd, _ in poll.poll():
                child = running[fd]
                data = os.read(fd, _CHUNK)
                child.received += data
                for task, outcome in child.finished():
                    untold.discard(task)
                    yield tasks[task], outcome
                if not data:
                    poll.unregister(fd)
                    del running[fd]
                    reason = _ended(child)
                    if child.task is not None:
                        untold.discard(child.task)
                        yield tasks[child.task], Outcome(failure=Failure("crash", reason))
        for task in untold:  # taken, and not begun
            yield tasks[task], Outcome(failure=Failure("crash", "the process was ended"))
    finally:
        for child in running.values():
            _kill(child.pid)
            _ended(child)
        queue.close()


class _Queue:
    """The numbers of tasks that nobody has begun: a file whose offset all processes share.

    Linux moves the offset of a file in memory without a lock, unlike that of one on a disk (read(2), "BUGS";
    `FMODE_ATOMIC_POS`): two that read at once may get the same number. So whoever takes one locks the file.
    """

    def __init__(self, count: int) -> None:
        self._size = count * _NUMBER.size
        self._file = os.memfd_create("zluda-tasks")
        os.pwrite(self._file, b"".join(map(_NUMBER.pack, range(count))), 0)

    def take(self) -> int | None:
        """The next number; None when there is none."""
        fcntl.lockf(self._file, fcntl.LOCK_EX)
        data = os.read(self._file, _NUMBER.size)
        fcntl.lockf(self._file, fcntl.LOCK_UN)
        return _NUMBER.unpack(data)[0] if data else None

    def left(self) -> int:
        """How many there are."""
        return (self._size - os.lseek(self._file, 0, os.SEEK_CUR)) // _NUMBER.size

    def close(self) -> None:
        """Give the file up."""
        os.close(self._file)


def _fork(tasks: Sequence[T], work: Callable[[T], bytes], queue: _Queue) -> _Child:
    output, write = os.pipe()
    errors = os.memfd_create("zluda-compile")
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.close(output)
        os.dup2(errors, 2)
        _serve(tasks, work, queue, write)
    os.close(write)
    return _Child(pid, output, errors)


def _serve(tasks: Sequence[T], work: Callable[[T], bytes], queue: _Queue, output: int) -> NoReturn:
    """The child: for each task a frame that it has begun, and one with the bytes or the reason."""
    faulthandler.disable()  # what LLVM says as it ends is to be the last that is said
    gc.disable()  # it will not live long
    _keep_memory()
    try:
        with open(output, "wb") as file:
            for _ in range(_MOST):
                task = queue.take()
                if task is None:
                    break
                file.write(_FRAME.pack(_KINDS.index(_BEGUN), task, 0))
                file.flush()
                os.ftruncate(2, os.lseek(2, 0, os.SEEK_SET))  # what is said is of this task
                kind, data = _attempt(tasks[task], work)
                file.write(_FRAME.pack(_KINDS.index(kind), task, len(data)) + data)
                file.flush()
    finally:
        os._exit(0)


def _keep_memory() -> None:
    """Have freed memory kept for the next use (mallopt(3)): LLVM gives back and takes again what a kernel
    takes some twenty times over, which is a tenth of the time.
    """
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc's
    if mallopt is not None:
        for option, value in _KEPT:
            mallopt(option, value)


def _attempt(task: T, work: Callable[[T], bytes]) -> tuple[str, bytes]:
    try:
        return _DONE, work(task)
    except Error as error:
        kind = next(name for type, name in _ERRORS if isinstance(error, type))
        return kind, str(error).encode(errors="surrogateescape")
    except BaseException as error:  # a fault of ours, told with the rest
        return "internal", f"{type(error).__name__}: {error}".encode(errors="surrogateescape")


def _told(kind: int, data: bytes) -> Outcome:
    name = _KINDS[kind]
    if name == _DONE:
        return Outcome(data)
    return Outcome(failure=Failure(name, data.decode(errors="surrogateescape")))


def _kill(pid: int) -> None:
    import signal  # not needed where all goes well

    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _ended(child: _Child) -> str:
    """Reap a process; what it said and how it ended, for where that was too early."""
    words = os.pread(child.errors, _CHUNK, 0).decode(errors="replace").strip().splitlines()
    os.close(child.output)
    os.close(child.errors)
    status = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
    how = f"status {status}"
    if status < 0:
        import signal

        how = signal.Signals(-status).name
    said = next((w for w in words if w.startswith("LLVM ERROR") or "Assertion" in w), "")
    return f"LLVM failed ({how}): {said or (words[-1] if words else 'no message')}"
