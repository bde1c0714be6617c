"""Files inside wheels, zip files, conda packages and tar files, each as a file of its own on the disk."""

from __future__ import annotations

import lzma
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from zluda.errors import Error

MOST_BYTES = 8 << 30
"""The largest member that is unpacked: what an archive can ask for."""

_STEP = 1 << 20
_TAR_NAMES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst", ".conda")
_CORRUPT = (zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error, lzma.LZMAError)
_ENCRYPTED = 1 << 0  # of a zip member's flags
_ZIP = b"PK\x03\x04"

Member = tuple[str, IO[bytes]]
"""(name in the archive, the content: a file on the disk that is gone when it is closed)"""


def is_archive(path: Path, head: bytes) -> bool:
    """Whether a file that begins with ``head`` is taken for an archive."""
    return head.startswith(_ZIP) or path.name.endswith(_TAR_NAMES)


def members(path: Path) -> Iterator[Member]:
    """The files in an archive, one at a time; conda's inner archives are opened too.

    Raises Error where the archive is damaged, of a kind that is not read, or a member is too large.
    """
    try:
        if _is_zip(path):
            yield from _zip_members(path)
        elif path.name.endswith(".zst"):
            with path.open("rb") as file:
                yield from _zstandard_tar(file, path.name)
        else:
            with tarfile.open(path, "r:*") as archive:
                yield from _tar_members(archive)
    except _CORRUPT as error:
        first = str(error).partition("\n")[0].rstrip(":")  # tarfile goes on with each kind that it is not
        raise Error(f"{path}: archive cannot be read: {first}") from error


def _is_zip(path: Path) -> bool:
    """By its end, as zip files may be appended to something; by its beginning, where the end is cut off."""
    with path.open("rb") as file:
        return file.read(len(_ZIP)) == _ZIP or zipfile.is_zipfile(path)


def _zip_members(path: Path) -> Iterator[Member]:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if info.is_dir():
                continue
            with _opened(archive, info) as stream:
                if info.filename.endswith(".tar.zst"):
                    yield from _zstandard_tar(stream, info.filename)
                else:
                    yield from _unpacked(info.filename, stream)


def _opened(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> IO[bytes]:
    """A member, to be read. Raises Error, with a name and a way out, for one that cannot be unpacked here."""
    why = "is encrypted" if info.flag_bits & _ENCRYPTED else ""
    try:
        if not why:
            return archive.open(info)
    except RuntimeError as error:  # a method that zipfile lacks (NotImplementedError), or this Python does
        why = f"cannot be unpacked ({error}; method {info.compress_type})"
    raise Error(f"member {info.filename} {why}: unpack the archive and check the directory")


def _zstandard_tar(file: IO[bytes], name: str) -> Iterator[Member]:
    import zstandard

    try:
        with (
            zstandard.ZstdDecompressor().stream_reader(file) as stream,
            tarfile.open(fileobj=stream, mode="r|") as archive,
        ):
            yield from _tar_members(archive)
    except zstandard.ZstdError as error:
        raise Error(f"{name}: Zstandard data corrupt: {error}") from error


def _tar_members(archive: tarfile.TarFile) -> Iterator[Member]:
    for info in archive:
        stream = archive.extractfile(info) if info.isfile() else None
        if stream is not None:
            yield from _unpacked(info.name, stream)


def _unpacked(name: str, stream: IO[bytes]) -> Iterator[Member]:
    """Copied to a file without a name, so that it can be mapped."""
    with tempfile.TemporaryFile() as file:
        while chunk := stream.read(_STEP):
            if file.tell() + len(chunk) > MOST_BYTES:
                raise Error(f"{name}: larger than {MOST_BYTES:,} bytes unpacked")
            file.write(chunk)
        file.seek(0)
        yield name, file
