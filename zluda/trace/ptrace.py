"""``ptrace(2)`` of x86-64, as far as programs are held by it."""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from zluda.errors import Error

TRACEME, PEEKTEXT, POKETEXT = 0, 1, 4
CONT, SINGLESTEP, GETREGS, SETREGS, DETACH = 7, 9, 12, 13, 17
SETOPTIONS, SEIZE, INTERRUPT, LISTEN = 0x4200, 0x4206, 0x4207, 0x4208
O_TRACEEXEC, O_TRACEEXIT = 0x10, 0x40
EVENT_EXEC, EVENT_EXIT, EVENT_STOP = 4, 6, 128

NOT_PERMITTED = (
    "ptrace is not permitted here, so programs cannot be recorded; in a container add --cap-add=SYS_PTRACE, "
    "else set /proc/sys/kernel/yama/ptrace_scope to 1 or 0"
)

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.restype = ctypes.c_long
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def request(number: int, pid: int, address: int, data: int) -> int:
    """The result. Raises :class:`zluda.Error` where the process is gone, or may not be traced."""
    ctypes.set_errno(0)
    result = int(libc.ptrace(number, pid, address, data))
    error = ctypes.get_errno()
    if result == -1 and error == errno.ESRCH:
        raise Error("it was killed")
    if result == -1 and error:
        raise Error(f"{NOT_PERMITTED} ({os.strerror(error)})")
    return result


def peek(pid: int, address: int) -> bytes:
    """Eight bytes of its memory."""
    word = request(PEEKTEXT, pid, address, 0)
    return struct.pack("<q", word)


def poke(pid: int, address: int, data: bytes) -> None:
    """Put eight bytes there."""
    request(POKETEXT, pid, address, int.from_bytes(data, "little"))


_REGISTERS = (
    *("r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx", "rsi", "rdi"),
    *("orig_rax", "rip", "cs", "eflags", "rsp", "ss", "fs_base", "gs_base", "ds", "es", "fs", "gs"),
)


class Registers(ctypes.Structure):
    """`struct user_regs_struct` of x86-64."""

    _fields_ = [(name, ctypes.c_uint64) for name in _REGISTERS]
