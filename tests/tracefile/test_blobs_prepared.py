"""Contents that several threads digest and compress before they are put."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path
from unittest import mock

import pytest

from zluda.tracefile import blobs, schema
from zluda.tracefile.blobs import ZEROS, BlobReader, BlobStore


@pytest.fixture
def connection(tmp_path: Path) -> sqlite3.Connection:
    return schema.create(tmp_path / "t.bin")


def contents() -> list[bytes]:
    chance = random.Random(1)
    made = [chance.randbytes(65536) for _ in range(6)]
    return [*made, b"text " * 9000, bytes(65536), bytes(made[2]), made[3][:100]]


@pytest.mark.parametrize("workers", [1, 3])
def test_prepared_contents_are_stored_as_others(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    monkeypatch.setattr(blobs, "_WORKERS", workers)
    store, given = BlobStore(connection), contents()
    store.prepare(given)
    ids = [store.put(one) for one in given]
    assert ids[7] == ZEROS and ids[8] == ids[2] and len(set(ids)) == len(given) - 1
    reader = BlobReader(connection, "t.bin")
    assert [reader.get(key, len(one), limit=1 << 20) for key, one in zip(ids, given, strict=True)] == given
    (stored,) = connection.execute("SELECT length(data) FROM blob WHERE id = ?", (ids[6],)).fetchone()
    assert stored < 1000
    store.prepare(given)  # known by now: nothing is compressed again
    with mock.patch.object(store, "_compressed", side_effect=AssertionError):
        assert [store.put(one) for one in given] == ids
    store.close()


def test_what_was_prepared_is_told_by_identity(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blobs, "_WORKERS", 2)
    store, given = BlobStore(connection), contents()
    store.prepare(given)
    other = given[0][:-1] + b"?"  # alike, and another
    assert store.put(other) != store.put(given[0])
    store.prepare([])
    assert store.put(given[1]) == store.put(bytes(bytearray(given[1])))
    store.close()


def test_sealed_contents_stay_sealed(connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs, "_WORKERS", 2)
    store, given = BlobStore(connection), contents()
    store.prepare(given)
    key = store.put(given[0], sealed=True)
    assert connection.execute("SELECT length(data) FROM blob WHERE id = ?", (key,)).fetchone() == (0,)
    store.close()
