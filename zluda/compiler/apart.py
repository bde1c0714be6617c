"""Compiling in processes forked for it: several at once, and none that LLVM ends takes the caller along.

LLVM's back ends abort on what they cannot do. A fork costs milliseconds, since everything is imported and set
up before it. The caller must have no other threads.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import select
import signal
import struct
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import field
from typing import Generic, NoReturn, TypeVar

from zluda.errors import Error, PtxError, UnsupportedError
from zluda.records import dataclass

T = TypeVar("T")

_ERRORS: tuple[tuple[type[Error], str], ...] = (
    (UnsupportedError, "unsupported"),
    (PtxError, "ptx"),
    (Error, "error"),
)
"""Errors and how they are called, the first that fits."""

_DONE = "done"
_KINDS = (_DONE, *(name for _, name in _ERRORS), "internal")
_FRAME = struct.Struct("<BQ")  # index into _KINDS, bytes that follow
_CHUNK = 1 << 16
_MOST, _ROUNDS = 16, 4  # a process's tasks at most; how often each of the processes is to be forked at least


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
class _Child(Generic[T]):
    """A process and the tasks it was given; what it sent of the first of them is ``received``."""

    tasks: deque[T]
    pid: int
    output: int
    errors: int
    received: bytearray = field(default_factory=bytearray)

    def finished(self) -> Iterator[tuple[T, Outcome]]:
        """Tasks of which all has come."""
        while len(self.received) >= _FRAME.size:
            kind, size = _FRAME.unpack_from(self.received)
            end = _FRAME.size + size
            if len(self.received) < end:
                return
            data = bytes(self.received[_FRAME.size : end])
            del self.received[:end]
            yield self.tasks.popleft(), _told(kind, data)


def processors() -> int:
    """How many processes can run at once."""
    return len(os.sched_getaffinity(0))


def each_apart(
    tasks: Sequence[T], work: Callable[[T], bytes], *, jobs: int = 0
) -> Iterator[tuple[T, Outcome]]:
    """``work(task)`` in forked processes, ``jobs`` at once (0: one a processor).

    Gives (task, outcome) as they end. A process takes a few tasks, one after the other; those left of one
    that ended early go to another. What is still running is killed when the caller stops listening.
    """
    jobs = jobs or processors()
    pending = deque(tasks)
    most = max(1, min(_MOST, len(pending) // (_ROUNDS * jobs)))
    running: dict[int, _Child[T]] = {}
    poll = select.poll()
    try:
        while pending or running:
            while pending and len(running) < jobs:
                batch = deque(pending.popleft() for _ in range(min(most, len(pending))))
                child = _fork(batch, work)
                running[child.output] = child
                poll.register(child.output, select.POLLIN)
            for fd, _ in poll.poll():
                child = running[fd]
                data = os.read(fd, _CHUNK)
                child.received += data
                yield from child.finished()
                if not data:
                    poll.unregister(fd)
                    del running[fd]
                    reason = _ended(child)
                    if child.tasks:
                        yield child.tasks.popleft(), Outcome(failure=Failure("crash", reason))
                        pending.extendleft(reversed(child.tasks))
    finally:
        for child in running.values():
            with suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
            _ended(child)


def _fork(tasks: deque[T], work: Callable[[T], bytes]) -> _Child[T]:
    output, write = os.pipe()
    errors = os.memfd_create("zluda-compile")
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.close(output)
        os.dup2(errors, 2)
        _serve(tasks, work, write)
    os.close(write)
    return _Child(tasks, pid, output, errors)


def _serve(tasks: deque[T], work: Callable[[T], bytes], output: int) -> NoReturn:
    """The child: for each task a frame that says how it ended, with the bytes or the reason."""
    faulthandler.disable()  # what LLVM says as it ends is to be the last that is said
    gc.disable()  # it will not live long
    try:
        with open(output, "wb") as file:
            for task in tasks:
                kind, data = _attempt(task, work)
                file.write(_FRAME.pack(_KINDS.index(kind), len(data)) + data)
                file.flush()
    finally:
        os._exit(0)


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


def _ended(child: _Child[T]) -> str:
    """Reap a process; what it said and how it ended, for where that was too early."""
    words = os.pread(child.errors, _CHUNK, 0).decode(errors="replace").strip().splitlines()
    os.close(child.output)
    os.close(child.errors)
    status = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
    how = signal.Signals(-status).name if status < 0 else f"status {status}"
    said = next((w for w in words if w.startswith("LLVM ERROR") or "Assertion" in w), "")
    return f"LLVM failed ({how}): {said or (words[-1] if words else 'no message')}"
