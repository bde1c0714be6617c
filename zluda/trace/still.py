"""Holding the threads of a running process while its code is patched.

The hooks of a process that runs already go into functions that its threads may be executing: one that was
about to go on inside the first instructions of such a function would find half of a jump there. So whoever
puts hooks in has every thread of the program stopped meanwhile, outside of such places.

Done by a process of its own, for in the session's process Frida takes what ``waitpid`` gives. It reads JSON
lines: ``{"threads", "unsafe": [[first, behind], …]}`` stops threads, answered by ``{"held": count}`` or
``{"error"}``. When its standard input ends, or after :data:`LIMIT_SECONDS`, it ends, and the hold with it
(`ptrace(2)`).
"""

from __future__ import annotations

import bisect
import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from zluda.errors import Error
from zluda.trace.own_process import command_line

LIMIT_SECONDS = 30
"""On a busy machine hundreds of functions are not hooked at once."""
PROLOGUE_BYTES = 16
"""The most that a hook's jump takes the place of."""
_TRIES, _TRIES_SECONDS = 2000, 5.0
_PAUSE_SECONDS = 0.0005

_PTRACE_PEEKUSER, _PTRACE_CONT, _PTRACE_DETACH, _PTRACE_SEIZE, _PTRACE_INTERRUPT = 3, 7, 17, 0x4206, 0x4207
_PTRACE_EVENT_STOP = 128
_WALL = 0x40000000
_RIP = 16 * 8  # offset of the instruction pointer in `struct user`

Ranges = Sequence[tuple[int, int]]


def prologues(addresses: Iterable[int]) -> list[tuple[int, int]]:
    """Where no thread may stand while functions at ``addresses`` are hooked: behind their first byte."""
    return [(address + 1, address + PROLOGUE_BYTES) for address in addresses]


def agents_code(pid: int) -> dict[str, list[tuple[int, int]]]:
    """Executable mappings of Frida's agents in the process, by agent: an earlier recording left its own."""
    found: dict[str, list[tuple[int, int]]] = {}
    for line in Path(f"/proc/{pid}/maps").read_text("utf-8", "replace").splitlines():
        span, access, _, _, inode, *name = line.split(maxsplit=5)
        if name and "frida-agent" in name[0] and "x" in access:
            first, behind = span.split("-")
            found.setdefault(inode, []).append((int(first, 16), int(behind, 16)))
    return found


def threads_of(pid: int) -> list[int]:
    """Its threads' ids; none where it has ended."""
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except FileNotFoundError:
        return []


class Stillness:
    """The session's side. Threads stay held until :meth:`release`."""

    def __init__(self, unsafe: Ranges) -> None:
        """``unsafe``: where no thread may be held."""
        self._unsafe = unsafe
        self._held: set[int] = set()
        self._process = subprocess.Popen(
            command_line("zluda.trace.still"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def hold(self, threads: Iterable[int]) -> bool:
        """Stop these threads; whether one of them was not held yet. Raises :class:`zluda.Error` where that
        fails.
        """
        new = set(threads) - self._held
        if not new:
            return False
        self._held |= new
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"threads": sorted(new), "unsafe": self._unsafe}) + "\n")
            self._process.stdin.flush()
            answer = json.loads(self._process.stdout.readline() or '{"error": "their holder has ended"}')
        except BrokenPipeError:
            answer = {"error": "their holder has ended"}
        if "error" in answer:
            raise Error(f"threads could not be held while they were hooked: {answer['error']}")
        return True

    def release(self) -> None:
        """Let them go on."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


# --- the process that holds them ----------------------------------------------------------------------------

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


class _Ended(Exception):
    """The thread is no more."""


def _ptrace(request: int, thread: int, data: int = 0, address: int = 0) -> int:
    ctypes.set_errno(0)
    result = int(_libc.ptrace(request, thread, address, data))
    number = ctypes.get_errno()
    if result == -1 and number == 3:  # ESRCH
        raise _Ended
    if result == -1 and number:
        raise Error(f"ptrace: {os.strerror(number)}")
    return result


class _Thread:
    """One that is held, or about to be."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._signal = 0  # was about to be delivered; it is when the thread goes on
        _ptrace(_PTRACE_SEIZE, number)

    def interrupt(self) -> None:
        _ptrace(_PTRACE_INTERRUPT, self.number)

    def wait(self) -> int:
        """Until it has stopped; where it stands."""
        try:
            _, status = os.waitpid(self.number, _WALL)
        except ChildProcessError:
            raise _Ended from None
        if not os.WIFSTOPPED(status):
            raise _Ended
        if status >> 16 != _PTRACE_EVENT_STOP:
            self._signal = os.WSTOPSIG(status)
        return _ptrace(_PTRACE_PEEKUSER, self.number, address=_RIP)

    def go_on(self) -> None:
        number, self._signal = self._signal, 0
        _ptrace(_PTRACE_CONT, self.number, number)

    def detach(self) -> None:
        _ptrace(_PTRACE_DETACH, self.number, self._signal)


class _Holder:
    def __init__(self) -> None:
        self._threads: dict[int, _Thread] = {}

    def hold(self, numbers: Iterable[int], unsafe: Ranges) -> int:
        """Stop the threads outside of ``unsafe``; how many are held by now."""
        spans = sorted((int(first), int(behind)) for first, behind in unsafe)
        moving = []
        for number in numbers:
            with contextlib.suppress(_Ended):
                thread = _Thread(number)
                self._threads[number] = thread
                thread.interrupt()
                moving.append(thread)
        end = time.monotonic() + _TRIES_SECONDS
        for _ in range(_TRIES):
            moving = [thread for thread in moving if self._is_inside(thread, spans)]
            if not moving:
                return len(self._threads)
            if time.monotonic() > end:
                break
            for thread in moving:
                with contextlib.suppress(_Ended):
                    thread.go_on()
            time.sleep(_PAUSE_SECONDS)
            for thread in moving:
                with contextlib.suppress(_Ended):
                    thread.interrupt()
        raise Error(f"thread {moving[0].number} does not leave a function that is to be hooked")

    def _is_inside(self, thread: _Thread, spans: Ranges) -> bool:
        try:
            place = thread.wait()
        except _Ended:
            del self._threads[thread.number]
            return False
        index = bisect.bisect_right(spans, (place, 1 << 64)) - 1
        return index >= 0 and spans[index][0] <= place < spans[index][1]

    def release(self) -> None:
        for thread in self._threads.values():
            with contextlib.suppress(_Ended):
                thread.detach()


def main() -> None:
    signal.alarm(LIMIT_SECONDS)  # its death lets everybody go on
    holder = _Holder()
    for line in sys.stdin:
        wanted = json.loads(line)
        try:
            answer: dict[str, object] = {"held": holder.hold(wanted["threads"], wanted["unsafe"])}
        except Error as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)
    holder.release()
