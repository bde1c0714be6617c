"""The rings through which a recorded application hands its calls to the recorder.

Beside the trace ``x.bin`` stands, while it is being recorded, the directory ``x.bin.rings``:

``control``
    one page shared by everybody: the global call counter, the recorder's process id and heartbeat, flags.
``functions.json``
    the functions that are hooked, in the order of their index, as rows of ``driver_api.json``.
``meta.json``, ``options.json``
    what the trace's ``meta`` begins with, and what the drain is to do with contents.
``ring-N``
    one ring for each thread of the application that calls the driver: a header of :data:`RING_HEADER_BYTES`
    bytes, then the slots. The thread is the only producer, the recorder the only consumer.
``globals-N``
    the recorder's answer to the module load that is call N: the names of its variables, one a line.

**Slots and records.** A ring is an array of slots of :data:`SLOT_BYTES` bytes. ``head`` (slots ever written)
and ``tail`` (slots ever consumed) only grow; slot number *n* lies at index *n* modulo the capacity. A record
is one or more consecutive slots: a header of :data:`RECORD_HEADER_BYTES` bytes (:data:`RECORD_HEADER`), then
its body. A record never wraps: where it would, a ``PAD`` record fills the rest of the ring. The producer
writes the body, then the header, then the commit word (the low half of slot number + 1, so that an older lap
is never mistaken for it), then ``head``. x86 keeps stores in order, so what lies before ``head`` is complete
at any moment, even if the producer is killed at the next instruction; what lies behind it is not looked at.

**Order.** Each call takes its number from the counter in ``control`` when it is entered (``ENTER``) and is
closed by a record of its own (``LEAVE``), so the recorder never waits for a call that has not returned.
Everything else that belongs to a call (``DATA``, ``PAGE``, …) carries its number. Times are the monotonic
clock's, taken before the record is committed. What one thread did before another thread's call began was
committed before that call's time stamp; so a recorder that reads the clock, then the heads, and consumes
only records stamped before that moment, in order of their stamps, sees causes before effects over all rings.

**Full ring.** The producer waits and adds the time to ``STALL_NS``. A recorder that is gone (its process
does not exist, or its heartbeat is older than :data:`HEARTBEAT_LIMIT_NS`) is not waited for: the application
sets ``FLAG_STOPPED`` and goes on unrecorded. A recorder that leaves a program which goes on sets
``FLAG_LEFT`` first: from then on nobody waits.

**After a kill.** The recorder advances ``tail`` only after the records are committed to the trace, and notes
the tails in the trace in the same transaction. While it lives it holds a lock on ``control``; whoever gets
the lock merges what is left (``recovery.py``).

All these numbers are given to the agent's C code as ``#define`` lines by :func:`c_defines`; they stand
nowhere else.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
import re
import shutil
import struct
from pathlib import Path

from zluda.errors import TraceError

SLOT_BYTES = 128
RING_HEADER_BYTES = 4096
RECORD_HEADER_BYTES = 40
CHUNK_BYTES = 65536
"""The most data one DATA or PAGE record carries."""
MAX_RECORD_SLOTS = 1 << 16  # the field has 16 bits
DATA_HEADER_BYTES = 16
DEFAULT_RING_BYTES = 512 << 20
"""Some seven seconds of launches at the highest rate: bursts longer than that wait for the drain."""
CHOSEN_RING_BYTES = 4 << 30
"""At most, where launches are chosen: each then hands over all that it reaches, and long runs of others come
after it, in which the recorder catches up.
"""
SMALL_RING_BYTES = 4 << 20
FULL_SIZE_RINGS = 4
"""Rings of the first threads have the full size; an application with hundreds of threads must not fill the
disk.
"""
CONTROL_BYTES = 4096
CONTROL_MAGIC = int.from_bytes(b"ZLUDACTL", "little")
RING_MAGIC = int.from_bytes(b"ZLUDARNG", "little")
HEARTBEAT_LIMIT_NS = 60_000_000_000

# --- record kinds ------------------------------------------------------------------------------------

# kind: what the header's fields and the body mean
KINDS = {
    "PAD": 0,  # nothing: the rest of the ring before it wraps
    # function: its index; extra: parent + 1; body: argument words, `in` pointees, packed parameters
    "ENTER": 1,
    # function: LEAVE_ flags; body: result (8 bytes), `out` pointees
    "LEAVE": 2,
    # function: parameter | direction << 8 | part << 16; extra: address; body: total, offset, bytes
    "DATA": 3,
    # function: PHASE_; extra: allocation base; body: offset in the allocation (8 bytes), bytes
    "PAGE": 4,
    # extra: handle; body: kind, count (4 bytes each), handle of its module or library (8 bytes; 0: not
    # known), (offset, size) pairs of 4 bytes, name
    "FUNCTION": 5,
    # extra: address; body: size, module handle (8 bytes each), name
    "GLOBAL": 6,
    # body: kind, NUL, text
    "GAP": 7,
    # function: ordinal; body: total memory, compute capability major, minor (8 bytes each), name
    "DEVICE": 8,
    # extra: cuDriverGetVersion
    "DRIVER": 9,
    # extra: the number in place of an address; body: size of the linearised contents, handle (8 bytes each)
    "ARRAY": 10,
    # extra: base; body: size (8 bytes): memory made elsewhere, which a call opened
    "RANGE": 11,
    # function: a GPU clock; body: a launch's number, start on that clock, duration (8 bytes each), repeated
    "TIME": 12,
    # function: a GPU clock; extra: the host's time; body: that of the GPU clock, uncertainty (8 bytes each)
    "CLOCK": 13,
    # body: JSON of the recording as a whole: {"library": {name, path, hooks}} or {"gap": [kind, text]}
    "NOTE": 14,
    # as PAGE; it comes when the call has returned, in a ring that has nothing else
    "LATE_PAGE": 15,
    # nothing: all pages that the launch changed are in, it is as LEAVE_CAPTURED
    "CAPTURED": 16,
}
PAD, ENTER, LEAVE, DATA, PAGE, FUNCTION, GLOBAL, GAP, DEVICE, DRIVER, ARRAY, RANGE, TIME, CLOCK, NOTE, *_ = (
    KINDS.values()
)
LATE_PAGE, CAPTURED = KINDS["LATE_PAGE"], KINDS["CAPTURED"]

LEAVE_CAPTURED = 1
"""The memory that the launch reaches was looked at after it."""
LEAVE_DEFERRED = 2
"""The stream is capturing: the call was noted in a graph and not carried out."""
LEAVE_UNSELECTED = 0x10
"""A launch whose memory was not asked for."""
LEAVE_OVER_BUDGET = 0x20
"""A launch after the trace had reached the size that was given."""
CAPTURED_OF_FLAGS = bytes(
    3 if flags & LEAVE_OVER_BUDGET else 2 if flags & LEAVE_UNSELECTED else flags & LEAVE_CAPTURED
    for flags in range(256)
)
"""What the `launch` row of a call with these flags has as `captured`."""

PHASE_BEFORE, PHASE_AFTER = 0, 1

# Numbers that stand for data which is no parameter of the function.
PARAMETER_ATTRIBUTES = 0xFE
PARAMETER_MADE = 0xFD
"""What a library made in the call: PTX, machine code; parts are numbered as the library's table lists
them.
"""

# The agent's rules for a parameter, and the kinds of special work; see `zluda/trace/spec.py`.
RULES = {"none": 0, "fixed": 1, "string": 2, "buffer": 3, "image": 4, "strings": 5, "guarded": 6}
DIRECTIONS = {"value": 0, "in": 1, "out": 2, "inout": 3}

# --- places in `control` and in a ring's header ------------------------------------------------------

CONTROL = {
    "MAGIC": 0,
    "SEQUENCE": 8,  # the next call's number
    "RINGS": 16,  # rings asked for
    "HEARTBEAT_NS": 24,  # by the recorder, at every pass
    "RECORDER_PID": 32,
    "FLAGS": 40,
    "STALL_NS": 48,  # time applications waited for a full ring
    "LOST_THREADS": 56,  # threads that got no ring (no space, no memory)
    "AGENT_GONE": 64,  # the agent was unloaded: nothing more will come
    "RING_BYTES": 72,
    "APP_PID": 80,
    "LOST_CALLS": 88,  # calls entered after FLAG_STOPPED
    "LOOKED_BYTES": 96,  # of memory that was looked at for changes
    "MOVED_BYTES": 104,  # of that, what was copied from the GPU
    "TIMING": 112,  # 1: launches are timed, by events around them
    "UNTIMED": 120,  # launches that could not be
    "WAIT_NS": 128,  # time applications waited for their streams
    "LOOK_NS": 136,  # time they took to find what changed in the memory of launches, and to take it
    "WRITE_NS": 144,  # of that, to put pages into rings
    "STAYS": 152,  # 1: the agent outlives the session
    "CHILDRENS_CALLS": 160,  # by forked children that have no agent
    "FLOWED": 168,  # launches whose memory was captured without waiting for them
}
FLAG_STOPPED = 1
FLAG_FAILED = 2
"""The recorder could not go on; why is in the file ``FAILURE`` beside the rings, if that could be written."""
FAILURE = "failure"
FLAG_OVER_BUDGET = 4
"""The trace has reached the size that was given: contents are not recorded any more."""
FLAG_LEFT = 8
"""The recorder has left a program that goes on: nothing is recorded any more, and that loses nothing."""
RING = {"MAGIC": 0, "CAPACITY": 8, "THREAD": 16, "CLOSED": 24, "HEAD": 64, "TAIL": 128}

RECORD_HEADER = struct.Struct("<IHHQQIIQ")  # commit, kind, slots, sequence, time_ns, function, length, extra
assert RECORD_HEADER.size == RECORD_HEADER_BYTES


def c_defines() -> str:
    """The layout as preprocessor lines for the agent's C code."""
    named = {
        "SLOT_BYTES": SLOT_BYTES,
        "RING_HEADER_BYTES": RING_HEADER_BYTES,
        "RECORD_HEADER_BYTES": RECORD_HEADER_BYTES,
        "CHUNK_BYTES": CHUNK_BYTES,
        "DATA_HEADER_BYTES": DATA_HEADER_BYTES,
        "CONTROL_BYTES": CONTROL_BYTES,
        "SMALL_RING_BYTES": SMALL_RING_BYTES,
        "FULL_SIZE_RINGS": FULL_SIZE_RINGS,
        "RING_MAGIC_VALUE": RING_MAGIC,
        "HEARTBEAT_LIMIT_NS": HEARTBEAT_LIMIT_NS,
        "FLAG_STOPPED": FLAG_STOPPED,
        "FLAG_LEFT": FLAG_LEFT,
        "LEAVE_CAPTURED": LEAVE_CAPTURED,
        "LEAVE_DEFERRED": LEAVE_DEFERRED,
        "LEAVE_UNSELECTED": LEAVE_UNSELECTED,
        "LEAVE_OVER_BUDGET": LEAVE_OVER_BUDGET,
        "FLAG_OVER_BUDGET": FLAG_OVER_BUDGET,
        "PHASE_BEFORE": PHASE_BEFORE,
        "PHASE_AFTER": PHASE_AFTER,
        "PARAMETER_ATTRIBUTES": PARAMETER_ATTRIBUTES,
        "PARAMETER_MADE": PARAMETER_MADE,
    }
    for prefix, table in (
        ("KIND_", KINDS),
        ("CONTROL_", CONTROL),
        ("RING_", RING),
        ("RULE_", RULES),
        ("DIRECTION_", DIRECTIONS),
    ):
        named |= {prefix + name.upper(): value for name, value in table.items()}
    return "".join(f"#define {name} {value}ULL\n" for name, value in named.items())


_FALLOC_FL_KEEP_SIZE, _FALLOC_FL_PUNCH_HOLE = 1, 2


MOUNTS = Path("/proc/self/mountinfo")
_DISKS = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "overlay"})


def _file_system(directory: Path) -> str:
    """The type of a directory's file system, as the kernel names it; empty where it is not told."""
    device = os.stat(directory).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in MOUNTS.read_text("utf-8", "surrogateescape").splitlines():
        fields, _, behind = line.partition(" - ")
        if fields.split()[2] == number:
            return behind.split()[0]
    return ""


def ring_bytes_for(directory: Path, *, chooses: bool) -> int:
    """How large the first rings of a recording into ``directory`` are: :data:`DEFAULT_RING_BYTES`; where
    launches are chosen, more, on a disk that has the room, a container's own included. Files in memory, of
    other machines, and of file systems that are not known to allocate ahead, stay small.
    """
    if not chooses or _file_system(directory) not in _DISKS:
        return DEFAULT_RING_BYTES
    spare = shutil.disk_usage(directory).free // 16
    return max(DEFAULT_RING_BYTES, min(CHOSEN_RING_BYTES, spare // SLOT_BYTES * SLOT_BYTES))


def rings_directory(trace: str | Path) -> Path:
    """Where the rings of a trace stand."""
    return Path(f"{trace}.rings")


SHARED_RING = "/dev/shm/zluda-ring-"
"""How the names of rings begin that are in memory: a link stands for such a one in the rings' directory."""


def remove_rings(directory: Path) -> None:
    """Take the rings' directory away, and rings in memory that it has links to."""
    for path in directory.glob("ring-*"):
        remove_ring(path)
    shutil.rmtree(directory, ignore_errors=True)


def remove_ring(path: Path) -> None:
    """Take one ring away."""
    with contextlib.suppress(OSError):
        if path.is_symlink() and re.fullmatch(SHARED_RING + r"\d+-\d+", shared := os.readlink(path)):
            os.unlink(shared)
        path.unlink()


def give_rings_back(directory: Path) -> None:
    """Free the disk blocks of rings that a program which goes on still maps (`fallocate(2)`). A thread that
    stores to one all the same finds zeros there.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    for path in directory.glob("ring-*"):
        with open(path, "r+b") as file:
            libc.fallocate(
                file.fileno(),
                _FALLOC_FL_PUNCH_HOLE | _FALLOC_FL_KEEP_SIZE,
                ctypes.c_long(RING_HEADER_BYTES),
                ctypes.c_long(max(1, os.fstat(file.fileno()).st_size - RING_HEADER_BYTES)),
            )


class Control:
    """The ``control`` page. The recorder creates it and holds its lock for as long as it lives."""

    def __init__(self, directory: Path, *, descriptor: int | None = None) -> None:
        """Open it, or take over the open file ``descriptor`` together with its lock.

        Raises FileNotFoundError where there is none, TraceError where it is something else.
        """
        self.path = directory / "control"
        self._file = open(self.path if descriptor is None else descriptor, "r+b", buffering=0)  # noqa: SIM115
        try:
            self._map = mmap.mmap(self._file.fileno(), CONTROL_BYTES)
        except ValueError:
            self._file.close()
            raise TraceError("truncated", file=str(self.path)) from None
        if self["MAGIC"] != CONTROL_MAGIC:
            self.close()
            raise TraceError("not a zluda control page", file=str(self.path), offset=0)

    @classmethod
    def create(cls, directory: Path, ring_bytes: int = DEFAULT_RING_BYTES) -> Control:
        """A new control page, locked by the caller."""
        page = bytearray(CONTROL_BYTES)
        struct.pack_into("<Q", page, CONTROL["MAGIC"], CONTROL_MAGIC)
        struct.pack_into("<Q", page, CONTROL["RING_BYTES"], ring_bytes)
        (directory / "control").write_bytes(page)
        control = cls(directory)
        control.lock()
        return control

    def fileno(self) -> int:
        return self._file.fileno()

    def __getitem__(self, name: str) -> int:
        return int(struct.unpack_from("<Q", self._map, CONTROL[name])[0])

    def __setitem__(self, name: str, value: int) -> None:
        struct.pack_into("<Q", self._map, CONTROL[name], value)

    def lock(self) -> bool:
        """Become the recorder (or its heir); false where another process is it."""
        try:
            fcntl.flock(self._file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        self._map.close()
        self._file.close()
