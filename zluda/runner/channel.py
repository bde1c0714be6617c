"""The channel between the near side and the runner: two rings and two bulk areas in one shared memory file.

::

    offset            what                                                     written by
    0                 magic u64, version u32, reserved u32, setup length u64   near, before the runner starts
    64, 128           command ring: head u64, tail u64                         near, runner
    192, 256          reply ring: head u64, tail u64                           runner, near
    4096              command ring, RING bytes                                 near
    4096 + RING       reply ring, RING bytes                                   runner
    4096 + 2·RING     command bulk, BULK bytes (first the setup: JSON)         near
    … + BULK          reply bulk, BULK bytes                                   runner

A ring is a byte ring with one producer and one consumer. Head and tail count bytes from the start and
never wrap; each has a cache line of its own and is written as one word. A frame is ``length u32, reserved
u32, sequence u64`` and ``length`` bytes of MessagePack, padded to 8; it may wrap. The producer writes the
frame, then the head, then rings the consumer's doorbell: a byte into a pipe, which orders memory on machines
that need it and wakes the other side on the same core where that is quickest (an eventfd does not: 6 µs there
and back against 100 on a virtual machine). A side looks at its ring only after its doorbell. The reply to a
command carries its sequence number; one command is under way at a time.

Bytes of :data:`INLINE` or more do not go through the ring but through the sender's bulk area, and the frame
holds their offset and size (extension type 1). A bulk area belongs to the command under way and starts anew
with the next. The file is sparse: what was never used takes no memory.

Both sides take what they read for hostile: every length is checked before it is used, and a frame is copied
out before it is parsed. What does not fit is a :class:`ChannelError`.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from typing import Any

from zluda.errors import Error

MAGIC = 0x31524E524144554C  # "LUDARNR1"
VERSION = 1
RING = 1 << 18
BULK = 1 << 28
INLINE = 4096
COMMAND_INDICES, REPLY_INDICES = (64, 128), (192, 256)
COMMAND_RING = 4096
REPLY_RING = COMMAND_RING + RING
COMMAND_BULK = REPLY_RING + RING
REPLY_BULK = COMMAND_BULK + BULK
SIZE = REPLY_BULK + BULK

_HEADER = struct.Struct("<QIIQ")
_FRAME = struct.Struct("<IIQ")
_BULK_REFERENCE = struct.Struct("<QQ")
_BULK_TYPE = 1
_KEEP = 1 << 24  # bytes of a bulk area that stay allocated between commands


class ChannelError(Error):
    """The other side wrote what no side of this channel writes."""

    def __init__(self, message: str) -> None:
        super().__init__(f"runner channel: {message}")


class Ring:
    """One direction: ``push`` on the producer's side, ``pop`` on the consumer's."""

    def __init__(self, memory: mmap.mmap, start: int, indices: tuple[int, int]) -> None:
        self._memory, self._start = memory, start
        # A view of whole words: an index is then stored and loaded in one piece.
        self._words = memoryview(memory)[:COMMAND_RING].cast("Q")
        self._head_at, self._tail_at = (index // 8 for index in indices)

    def push(self, sequence: int, body: bytes) -> None:
        """Append a frame; ChannelError where the ring has no room for it."""
        head, tail = self._words[self._head_at], self._words[self._tail_at]
        frame = _FRAME.pack(len(body), 0, sequence) + body + bytes(-len(body) % 8)
        if not 0 <= head - tail <= RING:
            raise ChannelError(f"ring indices {head} and {tail}")
        if len(frame) > RING - (head - tail):
            raise ChannelError(f"a frame of {len(frame)} bytes does not fit into {RING - (head - tail)}")
        at = head % RING
        first = frame[: RING - at]
        self._memory[self._start + at : self._start + at + len(first)] = first
        rest = frame[len(first) :]
        self._memory[self._start : self._start + len(rest)] = rest
        self._words[self._head_at] = head + len(frame)

    def pop(self) -> tuple[int, bytes] | None:
        """The next frame's sequence number and body, or None where there is none."""
        head, tail = self._words[self._head_at], self._words[self._tail_at]
        available = head - tail
        if available == 0:
            return None
        if not _FRAME.size <= available <= RING or available % 8 or tail % 8:
            raise ChannelError(f"ring indices {head} and {tail}")
        length, reserved, sequence = _FRAME.unpack(self._bytes(tail, _FRAME.size))
        size = _FRAME.size + length + -length % 8
        if size > available or reserved:
            raise ChannelError(f"a frame of {length} bytes where {available} were written")
        body = self._bytes(tail + _FRAME.size, length)
        self._words[self._tail_at] = tail + size
        return sequence, body

    def release(self) -> None:
        self._words.release()

    def _bytes(self, index: int, size: int) -> bytes:
        at = index % RING
        first = self._memory[self._start + at : self._start + min(at + size, RING)]
        return first + self._memory[self._start : self._start + size - len(first)]


class BulkWriter:
    """The sender's bulk area."""

    def __init__(self, memory: mmap.mmap, start: int) -> None:
        self._memory, self._start, self._used = memory, start, 0

    def reset(self) -> None:
        """Begin the next command's bulk data."""
        if self._used > _KEEP:
            keep, end = self._start + _KEEP, self._start + self._used
            self._memory.madvise(mmap.MADV_REMOVE, keep, -(-(end - keep) // mmap.PAGESIZE) * mmap.PAGESIZE)
        self._used = 0

    def put(self, data: memoryview) -> bytes:
        """Store ``data``; returns the reference that the frame carries."""
        at = self._used
        if data.nbytes > BULK - at:
            raise ChannelError(f"{data.nbytes} bytes do not fit into the {BULK - at} left of the bulk area")
        self._memory[self._start + at : self._start + at + data.nbytes] = data
        self._used = min(at + data.nbytes + -data.nbytes % 64, BULK)
        return _BULK_REFERENCE.pack(at, data.nbytes)


class BulkReader:
    """The other side's bulk area."""

    def __init__(self, memory: mmap.mmap, start: int) -> None:
        self._view = memoryview(memory)[start : start + BULK].toreadonly()

    def get(self, reference: bytes) -> memoryview:
        """The bytes of a reference, valid until the next command."""
        if len(reference) != _BULK_REFERENCE.size:
            raise ChannelError(f"a bulk reference of {len(reference)} bytes")
        at, size = _BULK_REFERENCE.unpack(reference)
        if at > BULK or size > BULK - at:
            raise ChannelError(f"bulk data {at:#x}+{size:#x} outside the area")
        return self._view[at : at + size]

    def release(self) -> None:
        self._view.release()


class Channel:
    """One side of the channel over the shared file ``fd``, which stays the caller's to close."""

    def __init__(self, fd: int, *, near: bool) -> None:
        self._memory = mmap.mmap(fd, SIZE)
        magic, version, reserved, _ = _HEADER.unpack_from(self._memory, 0)
        if (magic, version, reserved) != (MAGIC, VERSION, 0):
            raise ChannelError(f"version {version}, magic {magic:#x}; expected {VERSION}, {MAGIC:#x}")
        commands = Ring(self._memory, COMMAND_RING, COMMAND_INDICES)
        replies = Ring(self._memory, REPLY_RING, REPLY_INDICES)
        self._out, self._in = (commands, replies) if near else (replies, commands)
        out_at, in_at = (COMMAND_BULK, REPLY_BULK) if near else (REPLY_BULK, COMMAND_BULK)
        self._bulk_out, self._bulk_in = BulkWriter(self._memory, out_at), BulkReader(self._memory, in_at)

    def setup(self) -> bytes:
        """What :func:`create` was given."""
        length = _HEADER.unpack_from(self._memory, 0)[3]
        if length > BULK:
            raise ChannelError(f"a setup of {length} bytes")
        return self._memory[COMMAND_BULK : COMMAND_BULK + length]

    def send(self, sequence: int, message: object, *, keep: bool = False) -> None:
        """Send one message: nested lists, dicts, integers, floats, strings, bytes and memoryviews.

        ``keep`` leaves what was sent before in the bulk area: the other side is still at it.
        """
        import msgpack

        if not keep:
            self._bulk_out.reset()
        try:
            body = msgpack.packb(self._split(message))
        except (OverflowError, ValueError, TypeError) as error:
            raise ChannelError(f"a message that cannot be sent: {error}") from error
        self._out.push(sequence, body)

    def receive(self) -> tuple[int, Any] | None:
        """The next message and its sequence number; None where none has come.

        Arrays come as tuples; bulk data as read-only memoryviews that the next message invalidates.
        """
        frame = self._in.pop()
        if frame is None:
            return None
        return frame[0], decode(frame[1], self._bulk_in)

    def _split(self, message: object) -> object:
        """The message with large bytes put into the bulk area and references in their place."""
        if isinstance(message, bytes | bytearray | memoryview):
            view = memoryview(message).cast("B")
            if len(view) < INLINE:
                return bytes(view)
            import msgpack

            return msgpack.ExtType(_BULK_TYPE, self._bulk_out.put(view))
        if isinstance(message, list | tuple):
            return [self._split(item) for item in message]
        if isinstance(message, dict):
            return {key: self._split(value) for key, value in message.items()}
        return message

    def close(self) -> None:
        for part in (self._in, self._out, self._bulk_in):
            part.release()
        self._memory.close()


def create(setup: bytes) -> int:
    """A new shared file with ``setup`` in it; neither side can change its size."""
    fd = os.memfd_create("zluda-channel", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, SIZE)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
    os.pwrite(fd, _HEADER.pack(MAGIC, VERSION, 0, len(setup)), 0)
    os.pwrite(fd, setup, COMMAND_BULK)
    return fd


def decode(body: bytes, bulk: BulkReader) -> Any:
    """Parse a frame's body; ChannelError for whatever is not a message of this channel."""
    import msgpack

    def extension(kind: int, data: bytes) -> memoryview:
        if kind != _BULK_TYPE:
            raise ChannelError(f"extension type {kind}")
        return bulk.get(data)

    try:
        return msgpack.unpackb(body, use_list=False, ext_hook=extension)
    except (msgpack.UnpackException, ValueError, TypeError, RecursionError) as error:
        raise ChannelError(f"a frame that does not parse: {error or type(error).__name__}") from error
