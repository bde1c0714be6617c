"""Entries in one file, to take to another machine: a plain tar archive of the files as they are.

Only what this user's own processes compiled is exported. Importing checks every entry's digest, name and
size before the first is kept; that finds damage, not malice: whoever imports a file runs its maker's code.
"""

from __future__ import annotations

import contextlib
import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

from zluda.compiler.cache.store import COMPILED, KEY, MAX_ENTRY, Store, unpack
from zluda.errors import Error


def export_to(store: Store, path: Path) -> tuple[int, int]:
    """Write the store's entries to ``path``; returns how many, and their bytes. Raises OSError."""
    count = size = 0
    unfinished = path.with_name(path.name + f".{os.getpid()}")
    try:
        with tarfile.open(unfinished, "x:", format=tarfile.USTAR_FORMAT) as archive:
            for entry in sorted(store.entries(), key=lambda e: e.key):
                data = store.raw(entry) if entry.suffix == COMPILED else None
                if data is not None:
                    member = tarfile.TarInfo(entry.name)
                    member.size, member.mode = len(data), 0o600
                    archive.addfile(member, io.BytesIO(data))
                    count, size = count + 1, size + len(data)
        unfinished.replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            unfinished.unlink()
        raise
    return count, size


def import_from(store: Store, path: Path) -> tuple[int, int]:
    """Add a file's entries to the store; returns how many there are, and how many of them were new.

    Raises Error, with nothing kept, for a file that :func:`export_to` has not written or that is damaged.
    """
    count = sum(1 for _ in _entries(path))
    known = {e.key for e in store.entries() if e.suffix == COMPILED}
    new = 0
    for key, label, payload in _entries(path):
        if key not in known:
            store.put(key, payload, label=label)
            new += 1
    return count, new


def _entries(path: Path) -> Iterator[tuple[str, str, bytes]]:
    """(key, label, payload) of each, checked."""
    try:
        with tarfile.open(path, "r:") as archive:
            for member in archive:
                key = member.name.removesuffix(COMPILED)
                if not member.isreg() or key + COMPILED != member.name or not KEY.fullmatch(key):
                    raise Error(f"{path}: {member.name!r} is no entry of a kernel cache")
                if member.size > MAX_ENTRY:
                    raise Error(f"{path}: entry {key} is larger than any ({member.size} bytes)")
                file = archive.extractfile(member)
                found = unpack(key, file.read()) if file is not None else None
                if found is None:
                    raise Error(f"{path}: entry {key} is damaged; nothing was imported")
                yield key, *found
    except tarfile.TarError as error:
        raise Error(f"{path}: not an exported kernel cache, or cut off ({error})") from error
