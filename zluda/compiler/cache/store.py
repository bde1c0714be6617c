"""A directory of entries, shared by all processes of one user, bounded in bytes.

An entry is a file named by its key. It is written under another name and renamed, so a reader finds it whole
or not at all; a digest over key and content tells damage, and a damaged entry is as good as none. Its time of
modification is the time of its last use, and entries that were not used for longest go first. Eviction is
one process's at a time, by a lock on a file beside the entries; reading and writing take no lock.

What lies here is executed. The directory and each file must therefore be this user's and writable by nobody
else, or opening the directory fails by name. It is opened once and all else goes through that descriptor, so
a directory put in its place later is not followed.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import logging
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from zluda.errors import Error
from zluda.records import dataclass

if TYPE_CHECKING:
    from zluda.config import Config

MIB = 1 << 20
LIMITS = {"off": 512 * MIB, "normal": 512 * MIB, "aggressive": 4096 * MIB}
"""Bytes kept, by ``ZLUDA_CACHE_POLICY``."""

MAX_ENTRY = 64 * MIB
KEY = re.compile(r"[0-9a-f]{64}")
COMPILED, CONFINED = ".code", ".confined"
"""Suffixes: entries that this user's own processes made, and those that came from a confined runner, which
has executed a trace's code and may be under its control: such entries never leave confinement."""

_MAGIC = b"ZLUDAKC1"
_HEAD = len(_MAGIC) + 32 + 2
_ENTRY = re.compile(r"([0-9a-f]{64})(\.code|\.confined)")
_UNFINISHED = "unfinished-"
_STALE_SECONDS = 3600.0
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW

log = logging.getLogger("zluda")


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of the store. ``size`` in bytes, ``used`` in nanoseconds since the epoch."""

    key: str
    suffix: str
    size: int
    used: int

    @property
    def name(self) -> str:
        return self.key + self.suffix


class Store:
    """Entries in ``path``, at most ``limit`` bytes of them; implements :class:`zluda.compiler.cache.Cache`.

    Raises Error where the directory is not safe to execute code from, OSError where it cannot be made.
    """

    def __init__(self, path: Path, limit: int) -> None:
        self.path, self.limit = path, limit
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | _FLAGS)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise Error(f"{path}: not a directory of its own, and what lies there is executed") from error
            raise
        reason = _unsafe(os.fstat(self._fd))
        if reason:
            os.close(self._fd)
            raise Error(
                f"{path}: {reason}, and what lies there is executed; make it yours alone (chmod go-w), "
                "or name another in ZLUDA_CACHE_DIR"
            )
        self._written = limit  # since the directory was last measured: it is at the first entry written

    # --- entries ---------------------------------------------------------------------------------------

    def get(self, key: str, suffix: str = COMPILED) -> bytes | None:
        """The payload put under ``key``. A damaged entry is removed and counts as missing."""
        found = self._read(key + suffix)
        if found is None:
            return None
        payload = unpack(key, found)
        if payload is None:
            log.warning("%s: entry %s is damaged; it is made again", self.path, key)
            with suppress(OSError):  # a read-only file system
                self._remove(key + suffix)
        return payload[1] if payload else None

    def put(self, key: str, payload: bytes, *, label: str = "", suffix: str = COMPILED) -> None:
        """Keep a payload; one that is too large or cannot be written is not kept (logged)."""
        try:
            self.keep(key, payload, label=label, suffix=suffix)
        except Error as error:
            log.warning("%s", error)

    def keep(self, key: str, payload: bytes, *, label: str = "", suffix: str = COMPILED) -> None:
        """Keep a payload. Raises Error for one that is too large or cannot be written."""
        data = pack(key, payload, label)
        if len(data) > min(MAX_ENTRY, self.limit):
            raise Error(f"{self.path}: {label or key} is too large to keep ({len(data)} bytes)")
        try:
            self._write(key + suffix, data)
        except OSError as error:
            raise Error(f"{self.path}: cannot keep {label or key}: {error.strerror}") from error
        self._written += len(data)
        if self._written > self.limit // 16:
            try:
                self.evict()
            except OSError as error:
                log.warning("%s: cannot be kept to its limit: %s", self.path, error.strerror)

    def raw(self, entry: Entry) -> bytes | None:
        """An entry's file, checked; None where it has gone or is damaged. Does not count as a use."""
        data = self._read(entry.name, use=False)
        return data if data is not None and unpack(entry.key, data) is not None else None

    def entries(self) -> Iterator[Entry]:
        """All entries, in no particular order; not what has an entry's name and is no file."""
        with os.scandir(self._fd) as listing:
            for file in listing:
                match = _ENTRY.fullmatch(file.name)
                if match is not None:
                    with suppress(FileNotFoundError):  # somebody evicted it
                        found = file.stat(follow_symlinks=False)
                        if stat.S_ISREG(found.st_mode):
                            yield Entry(match[1], match[2], found.st_size, found.st_mtime_ns)

    def clear(self) -> tuple[int, int]:
        """Remove everything; returns how many entries that were, and their bytes."""
        removed = list(self.entries())
        for entry in removed:
            self._remove(entry.name)
        self._remove_unfinished(older_than=0.0)
        return len(removed), sum(e.size for e in removed)

    def evict(self) -> None:
        """Remove what was not used for longest until nine tenths of the limit are left, if there is more."""
        self._written = 0
        lock = os.open("lock", os.O_RDWR | os.O_CREAT | _FLAGS, 0o600, dir_fd=self._fd)
        try:
            with suppress(BlockingIOError):  # another process is at it
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._evict()
        finally:
            os.close(lock)

    def _evict(self) -> None:
        self._remove_unfinished(older_than=_STALE_SECONDS)
        entries = sorted(self.entries(), key=lambda e: e.used)
        excess = sum(e.size for e in entries) - self.limit
        if excess <= 0:
            return
        excess += self.limit // 10
        for entry in entries:
            if excess <= 0:
                return
            self._remove(entry.name)
            excess -= entry.size

    # --- files -----------------------------------------------------------------------------------------

    def _read(self, name: str, *, use: bool = True) -> bytes | None:
        fd = -1
        try:
            # A pipe of that name must not keep us waiting.
            fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK | _FLAGS, dir_fd=self._fd)
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode) or _unsafe(found) or found.st_size > MAX_ENTRY:
                log.warning("%s: %s is not an entry of this user's; left alone", self.path, name)
                return None
            with open(fd, "rb", closefd=False) as file:
                data = file.read()
            if use:
                with suppress(OSError):  # a read-only file system: entries then age by when they were made
                    os.utime(fd)
            return data
        except FileNotFoundError:
            return None
        except OSError as error:
            log.warning("%s: cannot read %s: %s", self.path, name, error.strerror)
            return None
        finally:
            if fd >= 0:
                os.close(fd)

    def _write(self, name: str, data: bytes) -> None:
        unfinished = f"{_UNFINISHED}{os.getpid()}-{os.urandom(8).hex()}"
        fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600, dir_fd=self._fd)
        try:
            with open(fd, "wb") as file:
                file.write(data)
            os.rename(unfinished, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        except BaseException:
            self._remove(unfinished)
            raise

    def _remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._fd)

    def _remove_unfinished(self, *, older_than: float) -> None:
        """What writers that were killed have left."""
        before = time.time() - older_than
        for name in os.listdir(self._fd):
            if name.startswith(_UNFINISHED):
                with suppress(FileNotFoundError):
                    if os.stat(name, dir_fd=self._fd, follow_symlinks=False).st_mtime < before:
                        self._remove(name)


def pack(key: str, payload: bytes, label: str) -> bytes:
    """An entry's file: magic, digest of the rest and the key, label's length (u16), label, payload."""
    text = label.encode()[:1024]
    rest = len(text).to_bytes(2, "little") + text + payload
    return _MAGIC + hashlib.blake2b(rest, digest_size=32, key=key.encode()).digest() + rest


def unpack(key: str, data: bytes) -> tuple[str, bytes] | None:
    """(label, payload) of an entry's file; None for one that is damaged or another key's."""
    digest, rest = data[len(_MAGIC) : _HEAD - 2], data[_HEAD - 2 :]
    if data[: len(_MAGIC)] != _MAGIC or len(data) < _HEAD:
        return None
    if hashlib.blake2b(rest, digest_size=32, key=key.encode()).digest() != digest:
        return None
    end = 2 + int.from_bytes(rest[:2], "little")
    return rest[2:end].decode(errors="replace"), rest[end:]


def _unsafe(found: os.stat_result) -> str:
    """Why somebody else could have put something there; empty where nobody could."""
    if found.st_uid != os.geteuid():
        return f"it belongs to user {found.st_uid}, not to {os.geteuid()}"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "others can write to it"
    return ""


def directory(config: Config) -> Path:
    """Where this user's entries are: ``ZLUDA_CACHE_DIR``, else the platform's place for caches.

    Raises OSError for a user without a home.
    """
    if config.cache_dir:
        return Path(config.cache_dir).absolute() / "kernels"
    import platformdirs

    with suppress(RuntimeError):  # raised by newer versions, where older ones give "~" itself
        place = platformdirs.user_cache_path("zluda", appauthor=False)
        if place.is_absolute():
            return place / "kernels"
    raise OSError(errno.ENOENT, "there is no home directory; name one in HOME or ZLUDA_CACHE_DIR", "~")


def open_configured(config: Config) -> Store | None:
    """The store that the environment asks for; None (and a warning) where its directory cannot be made.

    Raises Error for a directory that is not safe, and for a ``ZLUDA_CACHE_DIR`` that cannot be made.
    """
    try:
        return Store(directory(config), LIMITS[config.cache_policy])
    except OSError as error:
        reason = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
        if config.cache_dir:
            raise Error(f"ZLUDA_CACHE_DIR: {reason}") from error
        log.warning("no kernel cache: %s", reason)
        return None
