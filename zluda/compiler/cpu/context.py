"""The records that generated code, the native runtime and the device share: one place for their layout."""

from __future__ import annotations

import ctypes

MAX_WARPS = 32  # 1024 threads a block
BARRIERS = 16  # PTX ISA 9.7.13.1: sixteen barriers a block
STACK_BYTES = 32 << 20  # address space of a warp's stack: 512 KiB of local memory a thread, and as much again
STACK_REGION = STACK_BYTES * MAX_WARPS

Triple = ctypes.c_uint32 * 3


class Barrier(ctypes.Structure):
    """One of a block's barriers: warps arrived, threads expected (0: all), votes, warps that wait."""

    _fields_ = [
        ("arrived", ctypes.c_uint32),
        ("expected", ctypes.c_uint32),
        ("votes", ctypes.c_uint32),
        ("voters", ctypes.c_uint32),
        ("waiting", ctypes.c_uint32),
    ]


class Fiber(ctypes.Structure):
    """A warp that can be suspended: its saved stack pointer, and the votes of its last barrier."""

    _fields_ = [
        ("stack", ctypes.c_uint64),
        ("votes", ctypes.c_uint32),
        ("voters", ctypes.c_uint32),
    ]


class Context(ctypes.Structure):
    """What a worker's code knows of the block it runs. Addresses are host addresses."""

    _fields_ = [
        ("params", ctypes.c_uint64),
        ("shared", ctypes.c_uint64),
        ("symbols", ctypes.c_uint64),
        ("stack_low", ctypes.c_uint64),
        ("stack_high", ctypes.c_uint64),
        ("ctaid", Triple),
        ("nctaid", Triple),
        ("shared_bytes", ctypes.c_uint32),
        ("dynamic_shared_bytes", ctypes.c_uint32),
        ("param_bytes", ctypes.c_uint32),
        ("worker", ctypes.c_uint32),
        ("grid_id", ctypes.c_uint64),
        ("job", ctypes.c_uint64),
        ("escape", ctypes.c_uint64),
        ("scheduler", ctypes.c_uint64),
        ("warp_function", ctypes.c_uint64),
        ("warps", ctypes.c_uint32),
        ("live", ctypes.c_uint32),
        ("current", ctypes.c_uint32),
        ("ready", ctypes.c_uint32),
        ("pending", ctypes.c_uint32),
        ("padding", ctypes.c_uint32),
        ("barriers", Barrier * BARRIERS),
        ("fibers", Fiber * MAX_WARPS),
    ]


class Job(ctypes.Structure):
    """One launch: what every worker runs, the next block to take, and the first fault.

    ``sequence`` counts launches (a worker waits for it to move), ``done`` the workers that have finished.
    """

    _fields_ = [
        ("sequence", ctypes.c_uint32),
        ("done", ctypes.c_uint32),
        ("kernel", ctypes.c_uint64),
        ("params", ctypes.c_uint64),
        ("symbols", ctypes.c_uint64),
        ("grid_id", ctypes.c_uint64),
        ("next", ctypes.c_uint64),
        ("blocks", ctypes.c_uint64),
        ("chunk", ctypes.c_uint64),
        ("nctaid", Triple),
        ("shared_bytes", ctypes.c_uint32),
        ("dynamic_shared_bytes", ctypes.c_uint32),
        ("param_bytes", ctypes.c_uint32),
        ("warps", ctypes.c_uint32),
        ("fault", ctypes.c_uint32),
        ("fault_ctaid", Triple),
        ("fault_thread", ctypes.c_uint32),
        ("fault_address", ctypes.c_uint64),
    ]


class Perturbation(ctypes.Structure):
    """How approximate instructions are moved inside their bounds.

    ``share`` is how far, as a share of the bound (0: not at all). The direction is turned where ``pattern``
    and the number of the place in the code have an odd number of bits in common, and, unless ``seed`` is 0,
    by a hash of the arguments and the seed.
    """

    _fields_ = [
        ("share", ctypes.c_double),
        ("pattern", ctypes.c_uint32),
        ("seed", ctypes.c_uint32),
    ]


PERTURBATION = "zluda.perturbation"
"""The symbol by which code finds the device's :class:`Perturbation`."""
