"""Confinement of the runner process: what it may ask of the kernel once it is set up.

The filter is classic BPF written here rather than made by libseccomp, so that a machine with nothing but
Python is confined too. It is a list of what is allowed: computing, threads, memory, signals to itself, and
reading and writing what is already open. Everything else fails with EACCES, notably opening files, sockets,
processes and executing programs. ``clone3`` fails with ENOSYS because a filter cannot see its flags; C
libraries then use ``clone``, which is allowed for threads alone.

A runner over AMD's HIP runtime (``gpu``) may in addition do what that runtime does while it works: speak to
its kernel drivers (``ioctl`` of amdkfd, DRM and WSL's dxgkrnl alone) through devices opened before, read
files, and bind memory to NUMA nodes. It still writes no file, opens no socket and starts no program.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import signal
import struct
import sys

from zluda.errors import DeviceError

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_SECCOMP = {"x86_64": 317, "aarch64": 277}  # the system call's number
_SET_MODE_FILTER, _FLAG_TSYNC = 1, 1
_RET_ALLOW, _RET_ERRNO, _RET_KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_CLONE_THREAD = 0x00010000
_F_CMDS = (1, 3, 1030)  # F_GETFD, F_GETFL, F_DUPFD_CLOEXEC

# System call → number on (x86_64, aarch64); None where that machine has no such call.
_ALLOWED: dict[str, tuple[int | None, int | None]] = {
    "read": (0, 63),
    "readv": (19, 65),
    "pread64": (17, 67),
    "write": (1, 64),
    "writev": (20, 66),
    "close": (3, 57),
    "lseek": (8, 62),
    "fstat": (5, 80),
    "poll": (7, None),
    "ppoll": (271, 73),
    "mmap": (9, 222),
    "munmap": (11, 215),
    "mprotect": (10, 226),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "msync": (26, 227),
    "brk": (12, 214),
    "futex": (202, 98),
    "set_robust_list": (273, 99),
    "get_robust_list": (274, 100),
    "rseq": (334, 293),
    "set_tid_address": (218, 96),
    "membarrier": (324, 283),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "rt_sigtimedwait": (128, 137),
    "sigaltstack": (131, 132),
    "restart_syscall": (219, 128),
    "sched_yield": (24, 124),
    "sched_getaffinity": (204, 123),
    "sched_getparam": (143, 121),
    "sched_getscheduler": (145, 120),
    "getcpu": (309, 168),
    "nanosleep": (35, 101),
    "clock_nanosleep": (230, 115),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "gettimeofday": (96, 169),
    "time": (201, None),
    "times": (100, 153),
    "getrusage": (98, 165),
    "sysinfo": (99, 179),
    "uname": (63, 160),
    "getrandom": (318, 278),
    "getpid": (39, 172),
    "gettid": (186, 178),
    "getppid": (110, 173),
    "getuid": (102, 174),
    "geteuid": (107, 175),
    "getgid": (104, 176),
    "getegid": (108, 177),
    "arch_prctl": (158, None),
    "exit": (60, 93),
    "exit_group": (231, 94),
}
# … and what a GPU's runtime does besides.
_GPU_ALLOWED: dict[str, tuple[int | None, int | None]] = {
    "stat": (4, None),
    "lstat": (6, None),
    "newfstatat": (262, 79),
    "statx": (332, 291),
    "statfs": (137, 43),
    "fstatfs": (138, 44),
    "access": (21, None),
    "faccessat": (269, 48),
    "faccessat2": (439, 439),
    "readlink": (89, None),
    "readlinkat": (267, 78),
    "getdents64": (217, 61),
    "getcwd": (79, 17),
    "memfd_create": (319, 279),
    "ftruncate": (77, 46),
    "eventfd2": (290, 19),
    "mlock": (149, 228),
    "munlock": (150, 229),
    "mbind": (237, 235),
    "get_mempolicy": (239, 236),
    "set_mempolicy": (238, 237),
    "sched_setaffinity": (203, 122),
}
# The letters of the ioctls of amdkfd ("K"), DRM ("d") and dxgkrnl ("G"): bits 8 to 15 of a command.
_GPU_IOCTLS = (ord("K"), ord("d"), ord("G"))
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
# Allowed under a condition: (x86_64, aarch64).
_IOCTL, _OPEN, _OPENAT = (16, 29), (2, None), (257, 56)
_CLONE, _CLONE3, _TGKILL, _FCNTL, _PRLIMIT = (56, 220), (435, 435), (234, 131), (72, 25), (302, 261)
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x40000000

# struct seccomp_data: nr, arch, instruction_pointer, args[6]; little-endian low words.
_NR, _ARCH = 0, 4
_LOAD, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_AND, _SHIFT_RIGHT = 0x54, 0x74
_Program = list[tuple[int, int, int, int]]


def _arg_low(index: int) -> int:
    return 16 + 8 * index


def _arg_high(index: int) -> int:
    return 20 + 8 * index


def filter_program(machine: str, pid: int, *, gpu: bool = False) -> _Program:
    """The filter as BPF instructions (code, jump if true, jump if false, constant)."""
    column = list(_AUDIT_ARCH).index(machine)
    # EACCES, not EPERM: glibc's fortified printf looks into /proc/self/maps and aborts on all but EACCES
    # and ENOENT.
    allow, refuse = (_RET, 0, 0, _RET_ALLOW), (_RET, 0, 0, _RET_ERRNO | errno.EACCES)
    program = [
        (_LOAD, 0, 0, _ARCH),
        (_JEQ, 1, 0, _AUDIT_ARCH[machine]),
        (_RET, 0, 0, _RET_KILL_PROCESS),
        (_LOAD, 0, 0, _NR),
        (_JGE, 0, 1, _X32),
        (_RET, 0, 0, _RET_KILL_PROCESS),
        (_JEQ, 0, 1, _CLONE3[column]),
        (_RET, 0, 0, _RET_ERRNO | errno.ENOSYS),
        # clone: threads of this process alone
        (_JEQ, 0, 4, _CLONE[column]),
        (_LOAD, 0, 0, _arg_low(0)),
        (_JSET, 0, 1, _CLONE_THREAD),
        allow,
        refuse,
        # tgkill: this process alone (abort, raise)
        (_JEQ, 0, 4, _TGKILL[column]),
        (_LOAD, 0, 0, _arg_low(0)),
        (_JEQ, 0, 1, pid),
        allow,
        refuse,
        # fcntl: looking, and duplicating what is open
        (_JEQ, 0, 3 + len(_F_CMDS), _FCNTL[column]),
        (_LOAD, 0, 0, _arg_low(1)),
        *((_JEQ, len(_F_CMDS) - i, 0, command) for i, command in enumerate(_F_CMDS)),
        refuse,
        allow,
        # prlimit64: reading limits alone, of this process alone
        (_JEQ, 0, 9, _PRLIMIT[column]),
        (_LOAD, 0, 0, _arg_low(2)),
        (_JEQ, 0, 6, 0),
        (_LOAD, 0, 0, _arg_high(2)),
        (_JEQ, 0, 4, 0),
        (_LOAD, 0, 0, _arg_low(0)),
        (_JEQ, 1, 0, 0),
        (_JEQ, 0, 1, pid),
        allow,
        refuse,
    ]
    table = {**_ALLOWED, **(_GPU_ALLOWED if gpu else {})}
    for number in sorted(n for row in table.values() if (n := row[column]) is not None):
        program += [(_JEQ, 0, 1, number), allow]
    if gpu:
        program += _gpu_conditions(column, allow, refuse)
    return [*program, refuse]


def _gpu_conditions(
    column: int, allow: tuple[int, int, int, int], refuse: tuple[int, int, int, int]
) -> _Program:
    """A GPU's own ioctls, and opening files to read them. The accumulator holds the call's number."""
    letters = len(_GPU_IOCTLS)
    program: _Program = [
        (_JEQ, 0, letters + 5, _IOCTL[column]),
        (_LOAD, 0, 0, _arg_low(1)),
        (_SHIFT_RIGHT, 0, 0, 8),
        (_AND, 0, 0, 0xFF),
        *((_JEQ, letters - i, 0, letter) for i, letter in enumerate(_GPU_IOCTLS)),
        refuse,
        allow,
    ]
    for number, flags in ((_OPEN[column], 1), (_OPENAT[column], 2)):
        if number is not None:
            program += [
                (_JEQ, 0, 4, number),
                (_LOAD, 0, 0, _arg_low(flags)),
                (_JSET, 0, 1, _WRITING),
                refuse,
                allow,
            ]
    return program


def machine_supported(machine: str | None = None) -> bool:
    """Whether there is a filter for this kind of processor."""
    return sys.platform == "linux" and (machine or platform.machine()) in _AUDIT_ARCH


def forbid(*, gpu: bool = False) -> None:
    """Install the filter on every thread; DeviceError where this machine or kernel cannot."""
    machine = platform.machine()
    if not machine_supported(machine):
        raise DeviceError("runner", f"no system call filter for {sys.platform} on {machine}")
    instructions = b"".join(struct.pack("<HBBI", *i) for i in filter_program(machine, os.getpid(), gpu=gpu))
    buffer = ctypes.create_string_buffer(instructions, len(instructions))

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))

    program = Program(len(instructions) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    _prctl(libc, _PR_SET_NO_NEW_PRIVS, 1)
    # seccomp(2) rather than prctl: TSYNC covers the threads that the device has started already.
    if libc.syscall(_SECCOMP[machine], _SET_MODE_FILTER, _FLAG_TSYNC, ctypes.byref(program)) != 0:
        raise _refused("a system call filter")


def limit(memory_limit: int) -> None:
    """Bound private memory in bytes, and leave no core file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (memory_limit, memory_limit))


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it ends; at once if that is past."""
    _prctl(ctypes.CDLL(None, use_errno=True), _PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _prctl(libc: ctypes.CDLL, option: int, value: int) -> None:
    zero = ctypes.c_ulong(0)
    if libc.prctl(option, ctypes.c_ulong(value), zero, zero, zero) != 0:
        raise _refused(f"prctl({option})")


def _refused(what: str) -> DeviceError:
    reason = os.strerror(ctypes.get_errno())
    return DeviceError(
        "runner", f"the kernel refuses {what}: {reason}", remedy="use a kernel with CONFIG_SECCOMP_FILTER"
    )
