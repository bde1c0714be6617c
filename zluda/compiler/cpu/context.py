"""The records that generated code, the native runtime and the device share: one place for their layout."""

from __future__ import annotations

import ctypes

MAX_WARPS = 32  # 1024 threads a block
BARRIERS = 16  # PTX ISA 9.7.13.1: sixteen barriers a block
STACK_BYTES = 32 << 20  # address space of a warp's stack: 512 KiB of local memory a thread, and as much again
STACK_REGION = STACK_BYTES * MAX_WARPS

SHARED_STRIDE = 1 << 24
"""From one block's shared memory to that of the next block of its cluster, as on NVIDIA GPUs."""

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
    """A warp that can be suspended: its saved stack pointer, the votes of its last barrier, and the phase of
    its cluster's barrier in which it arrived."""

    _fields_ = [
        ("stack", ctypes.c_uint64),
        ("votes", ctypes.c_uint32),
        ("voters", ctypes.c_uint32),
        ("phase", ctypes.c_uint32),
        ("padding", ctypes.c_uint32),
    ]


class Cluster(ctypes.Structure):
    """Blocks of one cluster, whose contexts lie side by side from ``first`` on, and their barrier.

    ``left`` blocks have not ended. The barrier: warps arrived and still there, phases that it has completed.
    """

    _fields_ = [
        ("first", ctypes.c_uint64),
        ("size", ctypes.c_uint32),
        ("left", ctypes.c_uint32),
        ("arrived", ctypes.c_uint32),
        ("live", ctypes.c_uint32),
        ("generation", ctypes.c_uint32),
        ("padding", ctypes.c_uint32),
    ]


class Context(ctypes.Structure):
    """What a worker's code knows of the block it runs. Addresses are host addresses.

    ``shared`` is where the shared memory of the cluster's first block begins, ``own_shared`` that of this
    one. ``random`` is the state of what a seeded schedule draws. A thread that runs several blocks by turns
    (``Job.slots``) has one context a block, at ``slots`` of its own, with ``gang`` set; ``resume`` is then
    where the block goes on, ``escape`` where its thread does.
    """

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
        ("gang", ctypes.c_uint32),
        ("own_shared", ctypes.c_uint64),
        ("workspace", ctypes.c_uint64),
        ("cluster", ctypes.c_uint64),
        ("clusterid", Triple),
        ("nclusterid", Triple),
        ("cluster_ctaid", Triple),
        ("cluster_rank", ctypes.c_uint32),
        ("cluster_waiting", ctypes.c_uint32),
        ("running", ctypes.c_uint32),
        ("resume", ctypes.c_uint64),
        ("slots", ctypes.c_uint64),
        ("clusters", ctypes.c_uint64),
        ("slot_stacks", ctypes.c_uint64),
        ("random", ctypes.c_uint64),
        ("solo", Cluster),
        ("barriers", Barrier * BARRIERS),
        ("fibers", Fiber * MAX_WARPS),
    ]


class Job(ctypes.Structure):
    """One launch: what every worker runs, the next block to take, and the first fault.

    ``sequence`` counts launches (a worker waits for it to move), ``done`` the workers that have finished. A
    worker runs up to ``slots`` blocks by turns where that is not 0, whole clusters of ``cluster`` blocks at
    once; ``workspace`` is where a cooperative grid synchronises. A ``seed`` other than 0 draws the order of
    blocks and warps.
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
        ("workspace", ctypes.c_uint64),
        ("seed", ctypes.c_uint64),
        ("cluster", Triple),
        ("cluster_size", ctypes.c_uint32),
        ("slots", ctypes.c_uint32),
        ("padding", ctypes.c_uint32),
    ]


class GridWorkspace(ctypes.Structure):
    """What the blocks of a cooperative grid synchronise by, at the address in ``%envreg1`` and ``%envreg2``.

    As ``cooperative_groups`` knows it: the size, then the word that counts arrivals.
    """

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("barrier", ctypes.c_uint32),
        ("padding", ctypes.c_uint32 * 14),
    ]


class Ranges(ctypes.Structure):
    """The live allocations, where accesses are held against them: ``count`` sorted pairs of start and end."""

    _fields_ = [("pairs", ctypes.c_uint64), ("count", ctypes.c_uint64)]


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

RANGES = "zluda.ranges"
"""The symbol by which code finds the device's :class:`Ranges`."""
