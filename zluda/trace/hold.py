"""Starting the application and holding it at its first instruction, so that the agent can get in.

Done by the process that is the application's parent (parent.py): its exit status is that process's to wait
for, and what `exec` refuses is an ordinary error. It is traced until the dynamic linker has finished and its
entry point is reached; there a jump-to-itself takes the place of the first two bytes and tracing ends, so
that Frida can attach. Writing the two bytes back lets it go.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import struct
import subprocess
import time
from collections.abc import Sequence

from zluda.errors import Error

_PTRACE_TRACEME, _PTRACE_PEEKTEXT, _PTRACE_POKETEXT, _PTRACE_POKEUSER = 0, 1, 4, 6
_PTRACE_CONT, _PTRACE_DETACH = 7, 17
_PR_SET_PDEATHSIG = 1
_RIP = 16 * 8  # offset of the instruction pointer in `struct user`
_AT_NULL, _AT_ENTRY = 0, 9
_JUMP_TO_SELF = b"\xeb\xfe"
_BREAKPOINT = b"\xcc"


class HeldProcess:
    """A child process that waits at its entry point until ``original``'s first two bytes are put back."""

    def __init__(self, command: Sequence[str]) -> None:
        """Start ``command``. Raises :class:`zluda.Error` in one line where that cannot be done."""
        self.command = list(command)
        try:
            self._process = subprocess.Popen(self.command, preexec_fn=_trace_me, close_fds=False)
        except FileNotFoundError:
            there = os.path.exists(self.command[0])
            what = "its interpreter (the first line) does not exist" if there else "no such program"
            raise Error(f"{self.command[0]}: {what}") from None
        except PermissionError:
            raise Error(f"{self.command[0]}: not executable") from None
        except OSError as error:
            raise Error(f"{self.command[0]}: {error.strerror}") from None
        except subprocess.SubprocessError:
            raise Error(_NOT_PERMITTED) from None
        self.pid = self._process.pid
        try:
            self.entry, self.original = self._hold()
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise

    def _hold(self) -> tuple[int, bytes]:
        self._wait_for(signal.SIGTRAP)
        entry = _entry_point(self.pid)
        original = _peek(self.pid, entry)
        _poke(self.pid, entry, _BREAKPOINT + original[1:])
        _ptrace(_PTRACE_CONT, self.pid, 0, 0)
        self._wait_for(signal.SIGTRAP)
        _ptrace(_PTRACE_POKEUSER, self.pid, _RIP, entry)
        _poke(self.pid, entry, _JUMP_TO_SELF + original[2:])
        _ptrace(_PTRACE_DETACH, self.pid, 0, 0)
        return entry, original

    def _wait_for(self, wanted: signal.Signals) -> None:
        """Until the child stops with ``wanted``; other signals are passed on to it."""
        while True:
            _, status = os.waitpid(self.pid, 0)
            if not os.WIFSTOPPED(status):
                raise Error(f"{self.command[0]}: ended before its first instruction")
            if os.WSTOPSIG(status) == wanted:
                return
            _ptrace(_PTRACE_CONT, self.pid, 0, os.WSTOPSIG(status))

    def wait(self) -> int:
        """Its exit status, 128 + N where signal N ended it."""
        _wait_for_end(self.pid)
        status = _status(self._process)
        return 128 - status if status < 0 else status


_NOT_PERMITTED = (
    "ptrace is not permitted here, so programs cannot be recorded; in a container add --cap-add=SYS_PTRACE, "
    "else set /proc/sys/kernel/yama/ptrace_scope to 1 or 0"
)

_FRIDAS_SECONDS = 2.0

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def _wait_for_end(pid: int) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:  # a kernel, or a sandbox, without it
        while _state(pid) not in "ZX":
            time.sleep(0.01)
        return
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.poll()
    finally:
        os.close(descriptor)


def _status(process: subprocess.Popen[bytes]) -> int:
    """How a process that has ended did, as :class:`subprocess.Popen` says it.

    While Frida traces it the kernel gives its status to Frida first; should that never fetch it, `proc(5)`
    knows.
    """
    deadline = time.monotonic() + _FRIDAS_SECONDS
    while time.monotonic() < deadline:
        status = process.poll()
        if status is not None:
            return status
        time.sleep(0.01)
    with open(f"/proc/{process.pid}/stat") as file:
        code = int(file.read().split()[-1])
    return os.waitstatus_to_exitcode(code)


def _state(pid: int) -> str:
    """The process's state letter (`proc(5)`); X where it is gone."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def _trace_me() -> None:
    """In the child, before `exec`: be traced; and do not stay behind, held, when the parent is killed.

    The agent takes the second back when the program starts, for then it is to outlive us.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if _libc.ptrace(_PTRACE_TRACEME, 0, None, None) != 0:
        raise PermissionError


def _ptrace(request: int, pid: int, address: int, data: int) -> int:
    ctypes.set_errno(0)
    result = int(_libc.ptrace(request, pid, address, data))
    error = ctypes.get_errno()
    if result == -1 and error:
        raise Error(f"{_NOT_PERMITTED} ({os.strerror(error)})")
    return result


def _peek(pid: int, address: int) -> bytes:
    word = _ptrace(_PTRACE_PEEKTEXT, pid, address, 0)
    return struct.pack("<q", word)


def _poke(pid: int, address: int, data: bytes) -> None:
    _ptrace(_PTRACE_POKETEXT, pid, address, int.from_bytes(data, "little"))


def _entry_point(pid: int) -> int:
    """Where the program itself begins (`getauxval(3)`, AT_ENTRY)."""
    with open(f"/proc/{pid}/auxv", "rb") as file:
        vector = file.read()
    for kind, value in struct.iter_unpack("<QQ", vector[: len(vector) // 16 * 16]):
        if kind == _AT_ENTRY:
            return int(value)
        if kind == _AT_NULL:
            break
    raise Error("the program has no entry point; only 64-bit programs can be recorded")
