"""What processes forked for one job make for each other, so that none makes it twice.

Texture functions take longer to compile than the kernels that call them (:mod:`zluda.compiler.library`), and
several kernels need the same ones. A :class:`Pool` is a file in memory that all of the processes have open:
entries are appended, and whoever makes one holds a lock on its byte (fcntl(2), "Advisory record locking": it
is given up when the process ends, however it ends).
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_HEAD = struct.Struct("<32sQ")  # the key's bytes, how many bytes follow
_PLACES = 1 << 40  # locks of keys are on bytes beyond those that are read and written
_ENTRIES = 0  # the byte that is locked while entries are read or appended


class Pool:
    """Entries by key (64 hexadecimal digits); processes forked after it was made share it."""

    def __init__(self) -> None:
        self._file = os.memfd_create("zluda-siblings")
        self._seen = 0
        self._found: dict[str, tuple[int, int]] = {}

    def get(self, key: str, make: Callable[[], bytes], *, wait: bool) -> bytes | None:
        """The entry; made here where nobody has made it, or None if another is at it and not to ``wait``."""
        place = _PLACES + int(key[:8], 16)
        if not self._lock(place, wait=wait):
            return None
        try:
            entry = self._entry(key)
            if entry is None:
                entry = make()
                self._append(key, entry)
            return entry
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, place)

    def close(self) -> None:
        """Give the file up."""
        os.close(self._file)

    def _lock(self, place: int, *, wait: bool) -> bool:
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB), 1, place)
        except BlockingIOError:
            return False
        return True

    def _entry(self, key: str) -> bytes | None:
        with self._entries():
            end = os.fstat(self._file).st_size
            while self._seen < end:
                name, size = _HEAD.unpack(os.pread(self._file, _HEAD.size, self._seen))
                self._found[name.hex()] = self._seen + _HEAD.size, size
                self._seen += _HEAD.size + size
        if key not in self._found:
            return None
        start, size = self._found[key]
        return os.pread(self._file, size, start)

    def _append(self, key: str, entry: bytes) -> None:
        with self._entries():
            end = os.fstat(self._file).st_size
            try:
                _write(self._file, _HEAD.pack(bytes.fromhex(key), len(entry)) + entry, end)
            except OSError:
                os.ftruncate(self._file, end)  # no room for it: the others make it for themselves

    @contextmanager
    def _entries(self) -> Iterator[None]:
        fcntl.lockf(self._file, fcntl.LOCK_EX, 1, _ENTRIES)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _ENTRIES)


def _write(file: int, data: bytes, at: int) -> None:
    """All of it: a call may write less."""
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, at)
        view, at = view[written:], at + written


_pool: Pool | None = None


@contextmanager
def shared() -> Iterator[None]:
    """Within: what is forked has one pool."""
    global _pool
    before, pool = _pool, Pool()
    _pool = pool
    try:
        yield
    finally:
        _pool = before
        pool.close()


def once(key: str, make: Callable[[], bytes], *, wait: bool) -> bytes | None:
    """``make()``, unless another process of the pool has made it, or is at it and not to ``wait``: None."""
    return make() if _pool is None else _pool.get(key, make, wait=wait)
