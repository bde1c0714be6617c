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

from zluda.compiler.cache.store import COMPILED, KEY, MAX_ENTRY, MIB, Store, unpack
from zluda.errors import Error


def export_to(store: Store, path: Path) -> tuple[int, int]:
    """Write the store's entries to ``path``; returns how many, and their bytes.

    Raises OSError, and Error where something is at ``path`` that cannot be replaced by a file.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        raise Error(f"{path}: not a regular file; name one to write to")
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

    Raises Error, with nothing kept, for a file that :func:`export_to` has not written or that is damaged; and
    for entries that cannot be written or that the store's limit leaves no room for.
    """
    count = sum(1 for _ in _entries(path))
    known = _compiled(store)
    new = set()
    for key, label, payload in _entries(path):
        if key not in known:
            store.keep(key, payload, label=label)
            new.add(key)
    lost = len(new - _compiled(store))
    if lost:
        raise Error(
            f"{path}: {lost} of {len(new)} new entries did not fit into {store.limit // MIB} MiB; "
            "ZLUDA_CACHE_POLICY=aggressive keeps more"
        )
    return count, len(new)


def _compiled(store: Store) -> set[str]:
    return {e.key for e in store.entries() if e.suffix == COMPILED}


def _entries(path: Path) -> Iterator[tuple[str, str, bytes]]:
    """(key, label, payload) of each, checked."""
    end = 0
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
                end = member.offset_data + -(-member.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
                yield key, *found
    except (tarfile.TarError, ArithmeticError, LookupError, ValueError) as error:  # it raises any of them
        raise Error(f"{path}: not an exported kernel cache, or cut off ({error})") from error
    # A damaged header, or the file's end, is an archive's end to tarfile; written are two blocks of zeros.
    with path.open("rb") as rest:
        rest.seek(end)
        padding = rest.read(2 * tarfile.RECORDSIZE)
    if len(padding) < 2 * tarfile.BLOCKSIZE or any(padding):
        raise Error(f"{path}: damaged or cut off behind its first {end} bytes; nothing was imported")
