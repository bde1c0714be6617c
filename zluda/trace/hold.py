"""Holding a program at its first instruction, so that the agent can get in.

A program that is recorded is started by the process that is its parent (parent.py): its exit status is that
process's to wait for, and what `exec` refuses is an ordinary error. It is traced until the dynamic linker has
finished and its entry point is reached. There it is sent to a page of its own that we had it map: a loop that
sleeps until a byte is written, and then goes to the entry point. Then tracing ends, so that Frida can attach.
(A loop that does not sleep would take a processor from the agent, which Frida gives five seconds to get in.)
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Sequence

from zluda.errors import Error
from zluda.trace import ptrace
from zluda.trace.ptrace import NOT_PERMITTED, Registers, libc, peek, poke

_WALL = 0x40000000
_PR_SET_PDEATHSIG = 1
_AT_NULL, _AT_ENTRY = 0, 9
_BREAKPOINT = b"\xcc"
_SYSCALL = b"\x0f\x05"
_SYS_MMAP = 9
_PAGE = 4096
_PROT_READ_EXEC, _MAP_PRIVATE_ANONYMOUS = 5, 0x22

# What a held program does: nanosleep for a millisecond at a time until a byte is written; some two minutes
# if nobody writes it, for then the session is gone. rbx, rdi and rsi hold nothing at an entry point (System
# V ABI, "Process Initialization").
_SLICES = 120_000
_WAITING = bytes.fromhex(
    f"bb {_SLICES.to_bytes(4, 'little').hex()}"  # mov $SLICES, %ebx
    "b8 23000000"  # 1: mov $SYS_nanosleep, %eax
    "48 8d 3d 1f000000"  # lea 3f(%rip), %rdi
    "31 f6"  # xor %esi, %esi
    "0f 05"  # syscall
    "80 3d 24000000 00"  # cmpb $0, 4f(%rip)
    "75 04"  # jne 2f
    "ff cb"  # dec %ebx
    "75 e3"  # jne 1b
    "ff 25 00000000"  # 2: jmp *(%rip)
)
_SLICE = struct.Struct("<QqqB")  # the entry point; 3: seconds, nanoseconds; 4: the byte


class HeldProcess:
    """A child process that waits at its entry point for :func:`release` at ``gate``."""

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
            raise Error(NOT_PERMITTED) from None
        self.pid = self._process.pid
        try:
            self.gate = self._hold()
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise

    def _hold(self) -> int:
        self._wait_for(signal.SIGTRAP)
        return _hold_at_entry(self.pid, self._wait_for)

    def _wait_for(self, wanted: signal.Signals) -> None:
        """Until the child stops with ``wanted``; other signals are passed on to it."""
        while True:
            _, status = os.waitpid(self.pid, 0)
            if not os.WIFSTOPPED(status):
                raise Error(f"{self.command[0]}: ended before its first instruction")
            if os.WSTOPSIG(status) == wanted:
                return
            ptrace.request(ptrace.CONT, self.pid, 0, os.WSTOPSIG(status))

    def wait(self) -> int:
        """Its exit status, 128 + N where signal N ended it."""
        _wait_for_end(self.pid)
        status = _status(self._process)
        return 128 - status if status < 0 else status


class Seized:
    """A process that runs, traced from now on by the calling thread, which alone may use this."""

    def __init__(self, pid: int, thread: int | None = None) -> None:
        """``thread`` is the one that is about to execute another program, the main one by default; by that it
        becomes the main one (`ptrace(2)`, "execve(2) under ptrace"). Raises :class:`zluda.Error` where it may
        not be traced.
        """
        self.pid, self.ended = pid, False
        self._thread = thread or pid
        self._gate: int | None = None
        ptrace.request(ptrace.SEIZE, self._thread, 0, ptrace.O_TRACEEXEC)

    def _wait(self, options: int = 0) -> tuple[int, int]:
        """`waitpid`; of a thread that has become the main one, by that one's id."""
        try:
            return os.waitpid(self._thread, _WALL | options)
        except ChildProcessError:
            if self._thread == self.pid:
                raise
            self._thread = self.pid
            return os.waitpid(self.pid, _WALL | options)

    def became_another(self, *, wait: bool) -> bool:
        """Whether it has become another program, and is stopped before its loader's first instruction."""
        while not self.ended:
            pid, status = self._wait(0 if wait else os.WNOHANG)
            if pid == 0:
                return False
            if os.WIFSTOPPED(status) and status >> 16 == ptrace.EVENT_EXEC:
                return True
            self._go_on(status)
        return False

    def stopped_at_end(self, is_over: Callable[[], bool]) -> bool:
        """Let it run until it is about to end, where it is stopped: its files are as it leaves them, and its
        parent does not know yet. False where it was killed, or is let go because ``is_over``.
        """
        ptrace.request(ptrace.SETOPTIONS, self.pid, 0, ptrace.O_TRACEEXEC | ptrace.O_TRACEEXIT)
        ptrace.request(ptrace.CONT, self.pid, 0, 0)
        while not self.ended:
            pid, status = os.waitpid(self.pid, _WALL | os.WNOHANG)
            if pid == 0 and is_over():
                self.let_go()
                self.ended = True  # for us
            elif pid == 0:
                time.sleep(_POLL_SECONDS)
            elif os.WIFSTOPPED(status) and status >> 16 == ptrace.EVENT_EXIT:
                return True
            else:
                self._go_on(status)
        return False

    def hold_at_entry(self) -> None:
        """From there to its entry point, where it waits for :meth:`release`, traced no longer."""
        self._gate = _hold_at_entry(self.pid, self._wait_for_trap)

    def release(self) -> None:
        """Let it run."""
        if self._gate is not None:
            release(self.pid, self._gate)
        elif not self.ended:
            ptrace.request(ptrace.DETACH, self.pid, 0, 0)

    def let_go(self) -> None:
        """Stop tracing it while it runs."""
        ptrace.request(ptrace.INTERRUPT, self._thread, 0, 0)
        while not self.ended:
            _, status = self._wait()
            if os.WIFSTOPPED(status) and status >> 16 == ptrace.EVENT_STOP:
                ptrace.request(ptrace.DETACH, self._thread, 0, 0)
                return
            self._go_on(status)

    def _wait_for_trap(self, wanted: signal.Signals) -> None:
        while not self.ended:
            _, status = self._wait()
            if os.WIFSTOPPED(status) and status >> 8 == wanted:
                return
            self._go_on(status)
        raise Error("it ended before its first instruction")

    def _go_on(self, status: int) -> None:
        """After a stop that is not ours, as it would without us (ptrace(2), "Group-stop")."""
        if not os.WIFSTOPPED(status):
            self.ended = True
        elif status >> 16 == 0:
            ptrace.request(ptrace.CONT, self._thread, 0, os.WSTOPSIG(status))
        elif os.WSTOPSIG(status) == signal.SIGTRAP:
            ptrace.request(ptrace.CONT, self._thread, 0, 0)
        else:
            ptrace.request(ptrace.LISTEN, self._thread, 0, 0)


def release(pid: int, gate: int) -> None:
    """Let a process run that waits at ``gate``. Raises :class:`OSError` where it has ended."""
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        memory.seek(gate)
        memory.write(b"\1")


_FRIDAS_SECONDS, _POLL_SECONDS = 2.0, 0.002


def _wait_for_end(pid: int) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:  # a kernel, or a sandbox, without it
        while process_state(pid) not in "ZX":
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


def process_state(pid: int) -> str:
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
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if libc.ptrace(ptrace.TRACEME, 0, None, None) != 0:
        raise PermissionError


def _hold_at_entry(pid: int, wait_for: Callable[[signal.Signals], None]) -> int:
    """Have a traced process that is stopped before its entry point wait there, and trace it no longer.

    ``wait_for`` returns when it is stopped by a signal. Returns the address of the byte for :func:`release`.
    """
    entry = _entry_point(pid)
    original = peek(pid, entry)
    poke(pid, entry, _BREAKPOINT + original[1:])
    ptrace.request(ptrace.CONT, pid, 0, 0)
    wait_for(signal.SIGTRAP)
    registers = Registers()
    ptrace.request(ptrace.GETREGS, pid, 0, ctypes.addressof(registers))
    page = _new_page(pid, entry, original, registers, wait_for)
    poke(pid, entry, original)
    code = _WAITING + _SLICE.pack(entry, 0, 1_000_000, 0)
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        memory.seek(page)
        memory.write(code)
    registers.rip = page
    ptrace.request(ptrace.SETREGS, pid, 0, ctypes.addressof(registers))
    ptrace.request(ptrace.DETACH, pid, 0, 0)
    return page + len(code) - 1


def _new_page(
    pid: int, entry: int, original: bytes, registers: Registers, wait_for: Callable[[signal.Signals], None]
) -> int:
    """Have a stopped process map a page that it can execute; its address."""
    poke(pid, entry, _SYSCALL + original[2:])
    call = Registers.from_buffer_copy(registers)
    call.rip, call.rax, call.orig_rax = entry, _SYS_MMAP, 2**64 - 1
    call.rdi, call.rsi, call.rdx = 0, _PAGE, _PROT_READ_EXEC
    call.r10, call.r8, call.r9 = _MAP_PRIVATE_ANONYMOUS, 2**64 - 1, 0
    ptrace.request(ptrace.SETREGS, pid, 0, ctypes.addressof(call))
    ptrace.request(ptrace.SINGLESTEP, pid, 0, 0)
    wait_for(signal.SIGTRAP)
    ptrace.request(ptrace.GETREGS, pid, 0, ctypes.addressof(call))
    if call.rax > 2**64 - _PAGE:
        raise Error(f"it could not map a page ({os.strerror(2**64 - call.rax)})")
    return int(call.rax)


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
