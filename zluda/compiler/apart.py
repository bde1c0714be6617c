"""Compiling in processes forked for it: several at once, and none that LLVM ends takes the caller along.

LLVM's back ends abort on what they cannot do. A fork costs milliseconds, since everything is imported and set
up before it. The caller must have no other threads.
"""

from __future__ import annotations

import faulthandler
import os
import select
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, NoReturn, TypeVar

from zluda.errors import Error, PtxError, UnsupportedError

T = TypeVar("T")

_KINDS: tuple[tuple[type[Error], str], ...] = (
    (UnsupportedError, "unsupported"),
    (PtxError, "ptx"),
    (Error, "error"),
)
"""Errors and how they are called, the first that fits; besides there are ``crash`` and ``internal``."""

_DONE = "done"
_CHUNK = 1 << 16


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
    task: T
    pid: int
    output: int
    errors: int
    received: bytearray = field(default_factory=bytearray)


def processors() -> int:
    """How many processes can run at once."""
    return len(os.sched_getaffinity(0))


def each_apart(
    tasks: Iterable[T], work: Callable[[T], bytes], *, jobs: int = 0
) -> Iterator[tuple[T, Outcome]]:
    """``work(task)`` in a process of its own for each task, ``jobs`` at once (0: one a processor).

    Gives (task, outcome) as they end. What is still running is killed when the caller stops listening.
    """
    pending = iter(tasks)
    running: dict[int, _Child[T]] = {}
    poll = select.poll()
    try:
        while True:
            while len(running) < (jobs or processors()):
                task = next(pending, None)
                if task is None:
                    break
                child = _fork(task, work)
                running[child.output] = child
                poll.register(child.output, select.POLLIN)
            if not running:
                return
            for fd, _ in poll.poll():
                child = running[fd]
                data = os.read(fd, _CHUNK)
                child.received += data
                if not data:
                    poll.unregister(fd)
                    del running[fd]
                    yield child.task, _outcome(child)
    finally:
        for child in running.values():
            with suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
            _close(child)


def _fork(task: T, work: Callable[[T], bytes]) -> _Child[T]:
    output, write = os.pipe()
    errors = os.memfd_create("zluda-compile")
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.close(output)
        os.dup2(errors, 2)
        _serve(task, work, write)
    os.close(write)
    return _Child(task, pid, output, errors)


def _serve(task: T, work: Callable[[T], bytes], output: int) -> NoReturn:
    """The child: one line that says how it ended, then the bytes or the reason."""
    faulthandler.disable()  # what LLVM says as it ends is to be the last that is said
    try:
        try:
            status, data = _DONE, work(task)
        except Error as error:
            status = next(name for kind, name in _KINDS if isinstance(error, kind))
            data = str(error).encode(errors="surrogateescape")
        except BaseException as error:  # a fault of ours, told with the rest
            status, data = "internal", f"{type(error).__name__}: {error}".encode(errors="surrogateescape")
        with open(output, "wb") as file:
            file.write(status.encode() + b"\n" + data)
    finally:
        os._exit(0)


def _outcome(child: _Child[T]) -> Outcome:
    status, _, data = bytes(child.received).partition(b"\n")
    words = os.pread(child.errors, _CHUNK, 0).decode(errors="replace").strip().splitlines()
    ended = _close(child)
    if ended or not status:
        how = signal.Signals(-ended).name if ended < 0 else f"status {ended}"
        said = next((w for w in words if w.startswith("LLVM ERROR") or "Assertion" in w), "")
        said = said or (words[-1] if words else "no message")
        return Outcome(failure=Failure("crash", f"LLVM failed ({how}): {said}"))
    if status.decode() == _DONE:
        return Outcome(data)
    return Outcome(failure=Failure(status.decode(), data.decode(errors="surrogateescape")))


def _close(child: _Child[T]) -> int:
    """Reap it; its status, negative for the signal that ended it."""
    os.close(child.output)
    os.close(child.errors)
    return os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
