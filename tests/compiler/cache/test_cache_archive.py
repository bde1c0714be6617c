"""Entries in a file: all of them or none, and nothing that is not one."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zluda.compiler.cache.archive import export_to, import_from
from zluda.compiler.cache.store import CONFINED, Store
from zluda.errors import Error

LIMIT = 1 << 20


def key(number: int) -> str:
    return f"{number:064x}"


@pytest.fixture
def empty(tmp_path: Path) -> Store:
    return Store(tmp_path / "empty", LIMIT)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Three entries, each of a header and two blocks."""
    store = Store(tmp_path / "full", LIMIT)
    for number in range(3):
        store.put(key(number), bytes([number]) * 700, label="cpu k")
    store.put(key(9), b"a replay's", suffix=CONFINED)
    export_to(store, tmp_path / "kernels.tar")
    return tmp_path / "kernels.tar"


def test_goes_there_and_back(archive: Path, empty: Store) -> None:
    assert import_from(empty, archive) == (3, 3)
    assert [empty.get(key(n)) for n in range(3)] == [bytes([n]) * 700 for n in range(3)]
    assert import_from(empty, archive) == (3, 0)


@pytest.mark.parametrize("blocks", range(11))
def test_a_file_that_is_cut_off_gives_nothing(archive: Path, empty: Store, blocks: int) -> None:
    archive.write_bytes(archive.read_bytes()[: 512 * blocks])
    refused(archive, empty)


@pytest.mark.parametrize("at", range(0, 9 * 512, 61))
def test_a_damaged_file_gives_nothing(archive: Path, empty: Store, at: int) -> None:
    data = bytearray(archive.read_bytes())
    data[at] ^= 0x55
    archive.write_bytes(data)
    if at % 1536 < 1259:  # not in what fills up an entry's last block
        refused(archive, empty)


def refused(archive: Path, store: Store) -> None:
    with pytest.raises(Error, match=str(archive)):
        import_from(store, archive)
    assert list(store.entries()) == []


def member(name: str, **about: Any) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        entry = tarfile.TarInfo(name)
        for field, value in about.items():
            setattr(entry, field, value)
        with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
            archive.addfile(entry, io.BytesIO(bytes(entry.size)))

    return write


SPARSE = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "many"}


@pytest.mark.parametrize(
    "write",
    [
        member("../../escaped", size=3),
        member("/tmp/escaped", size=3),
        member(f"{key(1)}.code/../x", size=3),
        member(f"{key(1)}.confined", size=3),
        member(f"{key(1)}.code", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        member(f"{key(1)}.code", type=tarfile.LNKTYPE, linkname="/etc/passwd"),
        member(f"{key(1)}.code", type=tarfile.FIFOTYPE),
        member(f"{key(1)}.code", size=3),
        member(f"{key(1)}.code", pax_headers={"size": str(1 << 60)}),
        member(f"{key(1)}.code", pax_headers={"size": "-512"}),
        member(f"{key(1)}.code", pax_headers=SPARSE),
        Path.touch,
        lambda path: path.symlink_to(__file__),
    ],
)
def test_what_is_no_export_is_refused(tmp_path: Path, empty: Store, write: Callable[[Path], None]) -> None:
    path = tmp_path / "hostile.tar"
    write(path)
    refused(path, empty)


def test_entries_without_room_are_no_success(archive: Path, tmp_path: Path) -> None:
    with pytest.raises(Error, match="of 3 new entries did not fit"):
        import_from(Store(tmp_path / "small", 1600), archive)


def test_entries_that_cannot_be_written_are_no_success(
    archive: Path, empty: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("zluda.compiler.cache.store.os.rename", full)
    with pytest.raises(Error, match="cannot keep cpu k: No space left on device"):
        import_from(empty, archive)


def test_only_a_file_is_replaced(tmp_path: Path, empty: Store) -> None:
    pipe, link, file = tmp_path / "pipe", tmp_path / "link", tmp_path / "file"
    os.mkfifo(pipe)
    with pytest.raises(Error, match="not a regular file"):
        export_to(empty, pipe)
    assert pipe.is_fifo()
    link.symlink_to(file)
    export_to(empty, link)
    assert link.is_symlink() and file.is_file()
