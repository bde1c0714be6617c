"""Where a wave's registers and a block's bookkeeping live in memory: one place for their layout.

A wave's record begins with 129 scalar registers (``instruction.py`` numbers the named ones), then the fields
below, then vector registers of ``wave_size`` 32-bit lanes each.
"""

from __future__ import annotations

import ctypes

PC = 640  # i64: where the wave goes on, an offset in the code object
COUNT = 648  # i64: instructions executed, where they are counted
BUDGET = 656  # i32: backward branches until the wave yields
GENERATION = 660  # i32: the barrier generation that the wave has signalled for
PRIVATE = 672  # i64: host address of the wave's scratch
ISSUED = 680  # i64: a clock that only counts, for s_memtime
VECTOR = 688  # i64: instructions of the vector unit among those counted
BYTES = 696  # i64: bytes of memory that lanes have asked for, where they are counted
VGPRS = 704


def wave_bytes(wave_size: int, registers: int) -> int:
    """Bytes of a wave's record: an odd number of cache lines, so that a block's records use all sets."""
    return VGPRS + 4 * wave_size * registers


# What the wave function returns to the scheduler.
ENDED, YIELDED, AT_BARRIER = range(3)

FAULTS = {
    1: "LDS access out of range",
    2: "scratch access out of range",
    3: "access to memory that is not allocated",
    4: "jump to an address that is no instruction of the kernel",
    5: "s_trap executed",
    6: "stopped: no end within the time allowed",
    7: "hangs",
    8: "misaligned address",
}
"""What stops a launch, by :attr:`Block.fault`."""

LDS_RANGE, SCRATCH_RANGE, GLOBAL_RANGE, BAD_JUMP, TRAP, TIMEOUT, HANG, MISALIGNED = FAULTS


def sized(fault: int, size: int) -> int:
    """What is recorded of a fault and the size in bytes of its access."""
    return fault | size << 8


def fault_code(recorded: int) -> tuple[int, int]:
    """A fault and the size of its access, 0 where it was none."""
    return recorded & 0xFF, recorded >> 8


def fault_wave(recorded: int) -> tuple[int, int]:
    """A fault's wave in its block, and its lane."""
    return recorded >> 8, recorded & 0xFF


ACCESS_FAULTS = (LDS_RANGE, SCRATCH_RANGE, GLOBAL_RANGE, MISALIGNED)


class Block(ctypes.Structure):
    """A resident block: barrier, limits, and the first fault (with its instruction's offset).

    ``ready`` and ``waiting`` (at a barrier) have a bit a wave; waves that have ended are in neither. ``wave``
    is the one that runs; ``fault`` has the access's size above its code, ``fault_lane`` the wave above the
    lane (:func:`fault_code`, :func:`fault_wave`).
    """

    _fields_ = [
        ("generation", ctypes.c_uint32),
        ("arrived", ctypes.c_uint32),
        ("live", ctypes.c_uint32),
        ("lds_bytes", ctypes.c_uint32),
        ("private_bytes", ctypes.c_uint32),
        ("fault", ctypes.c_uint32),
        ("fault_lane", ctypes.c_uint32),
        ("range_count", ctypes.c_uint32),
        ("fault_address", ctypes.c_uint64),
        ("fault_offset", ctypes.c_uint64),
        ("lds", ctypes.c_uint64),
        ("private_memory", ctypes.c_uint64),
        ("waves", ctypes.c_uint64),
        ("ranges", ctypes.c_uint64),
        ("code", ctypes.c_uint64),
        ("index", ctypes.c_uint64),
        ("busy", ctypes.c_uint32),
        ("ready", ctypes.c_uint32),
        ("waiting", ctypes.c_uint32),
        ("wave", ctypes.c_uint32),
    ]


class Job(ctypes.Structure):
    """A launch, as all workers see it.

    ``template`` holds, for each wave of a block, the ``template_bytes`` with which its record begins. The
    ``*_sgpr`` fields are scalar registers to write for each block or wave, NO_SGPR where there is none:
    workgroup ids, scratch resource, flat scratch base, and the wave's offset in its block's scratch.
    Workers take ``share`` blocks at a time.
    """

    _fields_ = [
        ("wave_function", ctypes.c_uint64),
        ("next", ctypes.c_uint64),
        ("blocks", ctypes.c_uint64),
        ("share", ctypes.c_uint64),
        ("multiplier", ctypes.c_uint64),
        ("seed", ctypes.c_uint64),
        ("template", ctypes.c_uint64),
        ("template_bytes", ctypes.c_uint64),
        ("wave_bytes", ctypes.c_uint64),
        ("wave_private_bytes", ctypes.c_uint64),
        ("instructions", ctypes.c_uint64),
        ("code", ctypes.c_uint64),
        ("ranges", ctypes.c_uint64),
        ("range_count", ctypes.c_uint32),
        ("waves", ctypes.c_uint32),
        ("grid_x", ctypes.c_uint32),
        ("grid_y", ctypes.c_uint32),
        ("id_x_sgpr", ctypes.c_uint32),
        ("id_y_sgpr", ctypes.c_uint32),
        ("id_z_sgpr", ctypes.c_uint32),
        ("ids_in_ttmps", ctypes.c_uint32),
        ("resource_sgpr", ctypes.c_uint32),
        ("flat_scratch_sgpr", ctypes.c_uint32),
        ("wave_offset_sgpr", ctypes.c_uint32),
        ("lds_bytes", ctypes.c_uint32),
        ("private_bytes", ctypes.c_uint32),
        ("budget", ctypes.c_uint32),
        ("fault", ctypes.c_uint32),
        ("fault_lane", ctypes.c_uint32),
        ("fault_wave", ctypes.c_uint32),
        ("fault_address", ctypes.c_uint64),
        ("fault_offset", ctypes.c_uint64),
        ("fault_block", ctypes.c_uint64),
    ]


class Worker(ctypes.Structure):
    """A thread: its slots for resident blocks, its random numbers, and how far it is with a launch.

    ``used`` slots of ``wanted`` hold a block; blocks ``ticket`` to ``last_ticket`` are this thread's to run.
    ``progress`` counts rounds in which something happened; ``quiet`` the rounds since. ``stuck`` is 1 where
    one of those left all registers as another had.
    """

    _fields_ = [
        ("slots", ctypes.c_uint64),
        ("slot_count", ctypes.c_uint32),
        ("used", ctypes.c_uint32),
        ("random", ctypes.c_uint64),
        ("ticket", ctypes.c_uint64),
        ("last_ticket", ctypes.c_uint64),
        ("progress", ctypes.c_uint64),
        ("quiet", ctypes.c_uint64),
        ("kept_digest", ctypes.c_uint64),
        ("wanted", ctypes.c_uint32),
        ("stuck", ctypes.c_uint32),
    ]


SLICE = 1 << 29  # host clock cycles after which a worker returns to its caller

NO_SGPR = 150  # a word between the registers and the fields, which nobody reads


def block_field(name: str) -> int:
    """Byte offset of a field of :class:`Block`."""
    return int(getattr(Block, name).offset)


# gfx9 and later see LDS and scratch through apertures of 4 GiB (LLVM, "Address Spaces"). LDS is mapped so
# that a flat address is a host address. No host address lies in the scratch aperture: it is not canonical.
APERTURE_BITS = 32
PRIVATE_APERTURE_HIGH = 0x00010000
