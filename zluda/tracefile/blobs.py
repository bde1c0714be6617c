"""Content-addressed bytes of a trace: each content stored once, zstd where that is shorter, zeros for
nothing.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import zstandard

from zluda.errors import TraceError

ZEROS = 0
"""The blob that is not stored: zeros of whatever length is asked for."""

MAX_BLOB_BYTES = 512 << 20
"""No content is longer: a reader never decompresses more for one blob."""

_LEVEL = 1  # as small as 3 on what kernels write, in two thirds of the time
_WORKERS = min(8, len(os.sched_getaffinity(0)) - 1)
_PREPARED_AT_LEAST = 4  # contents: fewer are not worth a thread
_KNOWN_KEYS = 1 << 17  # ids remembered to answer without a look-up: about 16 MiB


def blob_key(content: bytes) -> bytes:
    """The 128-bit BLAKE2b digest that names a content."""
    return hashlib.blake2b(content, digest_size=16).digest()


def is_zero(content: bytes) -> bool:
    return not content or (content[0] == 0 and content == bytes(len(content)))  # the first byte tells of most


class _Ready(NamedTuple):
    """What is known of a content before it is put."""

    content: bytes  # kept, so that its identity stays its own
    key: bytes | None  # None: zeros
    data: bytes | None  # as it is stored; None where it was known already


class BlobStore:
    """Puts contents into the `blob` table of a connection that may write."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._ready: dict[int, _Ready] = {}  # by the content's identity
        self._of_thread = threading.local()
        self._workers: ThreadPoolExecutor | None = None
        self._known: OrderedDict[bytes, int] = OrderedDict()
        self._sealed: set[int] = set()

    def put(self, content: bytes, *, sealed: bool = False) -> int:
        """The id of ``content``, stored if it is new; ``ZEROS`` if it is all zeros. ``sealed``: only its
        digest and size are stored. TraceError if it is too long.
        """
        ready = self._ready.pop(id(content), None)
        if is_zero(content) if ready is None else ready.key is None:
            return ZEROS
        if len(content) > MAX_BLOB_BYTES:
            raise TraceError(f"{len(content)} bytes in one piece; at most {MAX_BLOB_BYTES} can be stored")
        key = (ready.key if ready is not None else None) or blob_key(content)
        found = self._known.get(key)
        if found is None:
            data = ready.data if ready is not None else None
            found = self._find(key) or self._insert(key, content, data, sealed=sealed)
            self._known[key] = found
            if len(self._known) > _KNOWN_KEYS:
                self._known.popitem(last=False)
        if found in self._sealed and not sealed:  # an image whose bytes memory held before
            self._connection.execute(
                "UPDATE blob SET data = ? WHERE id = ?", (self._compressed(content), found)
            )
            self._sealed.discard(found)
        return found

    def prepare(self, contents: Sequence[bytes]) -> None:
        """Digest and compress contents that are about to be put, these very objects, on several processors:
        both let other threads run. It is forgotten with the next call.
        """
        self._ready.clear()
        if len(contents) < _PREPARED_AT_LEAST or _WORKERS < 2:
            return
        if self._workers is None:
            self._workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="blobs")
        for ready in self._workers.map(self._prepared, contents):
            self._ready[id(ready.content)] = ready

    def _prepared(self, content: bytes) -> _Ready:
        if is_zero(content):
            return _Ready(content, None, None)
        key = blob_key(content)
        return _Ready(content, key, None if key in self._known else self._compressed(content))

    def close(self) -> None:
        """End the threads that helped."""
        if self._workers is not None:
            self._workers.shutdown()

    def _find(self, key: bytes) -> int | None:
        row = self._connection.execute("SELECT id, length(data) FROM blob WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        if row[1] == 0:
            self._sealed.add(int(row[0]))
        return int(row[0])

    def _compressed(self, content: bytes) -> bytes:
        if not hasattr(self._of_thread, "compressor"):
            self._of_thread.compressor = zstandard.ZstdCompressor(level=_LEVEL)
        data: bytes = self._of_thread.compressor.compress(content)
        return data if len(data) < len(content) else content

    def _insert(self, key: bytes, content: bytes, data: bytes | None, *, sealed: bool) -> int:
        data = b"" if sealed else data if data is not None else self._compressed(content)
        cursor = self._connection.execute(
            "INSERT INTO blob (key, size, data) VALUES (?, ?, ?)", (key, len(content), data)
        )
        assert cursor.lastrowid is not None
        if sealed:
            self._sealed.add(cursor.lastrowid)
        return cursor.lastrowid


class StrippedError(TraceError):
    """The trace has the digest of these contents, and not the contents."""


class BlobReader:
    """Takes contents out again, each checked against its key; keeps the last few in memory."""

    def __init__(self, connection: sqlite3.Connection, file: str, *, cache_bytes: int = 32 << 20) -> None:
        self._connection, self._file = connection, file
        self._decompressor = zstandard.ZstdDecompressor()
        self._cache: OrderedDict[int, bytes] = OrderedDict()
        self._room = cache_bytes

    def get(self, blob: int, length: int, *, limit: int, call: int | None = None) -> bytes:
        """The content of ``blob``, which must be ``length`` bytes long and no longer than ``limit``."""
        if not 0 <= length <= limit:
            raise self._damaged(f"a length of {length} bytes where at most {limit} are allowed", call)
        if blob == ZEROS:
            return bytes(length)
        content = self._cache.get(blob)
        if content is None:
            content = self._load(blob, limit, call)
            self._keep(blob, content)
        else:
            self._cache.move_to_end(blob)
        if len(content) != length:
            raise self._damaged(f"blob {blob} has {len(content)} bytes, expected {length}", call)
        return content

    def digest(self, blob: int, length: int) -> bytes:
        """The BLAKE2b digest of a blob's content, which is ``length`` bytes long."""
        if blob == ZEROS:
            return blob_key(bytes(length))
        row = self._connection.execute("SELECT key FROM blob WHERE id = ?", (blob,)).fetchone()
        if row is None or not isinstance(row[0], bytes):
            raise self._damaged(f"blob {blob} is missing", None)
        return row[0]

    def _load(self, blob: int, limit: int, call: int | None) -> bytes:
        row = self._connection.execute("SELECT key, size, data FROM blob WHERE id = ?", (blob,)).fetchone()
        if row is None:
            raise self._damaged(f"blob {blob} is missing", call)
        key, size, data = row
        if not isinstance(size, int) or not isinstance(data, bytes) or not 0 <= size <= limit:
            raise self._damaged(f"blob {blob} claims {size!r} bytes; at most {limit} are allowed here", call)
        if not data and size:
            raise StrippedError(
                "these contents were stripped from the trace: only their digest is here",
                file=self._file,
                call=call,
            )
        content = data if len(data) == size else self._decompress(blob, data, size, call)
        if blob_key(content) != key:
            raise self._damaged(f"blob {blob} does not match its digest", call)
        return content

    def _decompress(self, blob: int, data: bytes, size: int, call: int | None) -> bytes:
        try:
            declared = zstandard.get_frame_parameters(data).content_size
            if declared != size:
                raise self._damaged(f"blob {blob} holds {declared} bytes, expected {size}", call)
            return self._decompressor.decompress(data, max_output_size=size)
        except zstandard.ZstdError as error:
            raise self._damaged(f"blob {blob}: {error}", call) from error

    def _keep(self, blob: int, content: bytes) -> None:
        self._cache[blob] = content
        self._room -= len(content)
        while self._room < 0 and self._cache:
            _, dropped = self._cache.popitem(last=False)
            self._room += len(dropped)

    def _damaged(self, message: str, call: int | None) -> TraceError:
        return TraceError(f"damaged: {message}", file=self._file, call=call)
