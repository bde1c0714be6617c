"""Any rows of any table go through JSON lines and come back as they were."""

from __future__ import annotations

import io
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from zluda.tracefile import open_trace, schema
from zluda.tracefile.blobs import blob_key
from zluda.tracefile.jsonl import read_jsonl, write_jsonl

ROWS = 3

# As SQLite's STRICT columns hold them: 64-bit integers, finite numbers (NaN would be NULL), any text but half
# surrogates.
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "INTEGER": st.integers(-(1 << 63), (1 << 63) - 1),
    "REAL": st.floats(allow_nan=False, allow_infinity=False),
    "TEXT": st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    "BLOB": st.binary(max_size=40),
}


@cache
def columns() -> Mapping[str, list[tuple[str, str, bool, bool]]]:
    """Table → (name, type, whether it must have a value, whether it is of the key)."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(schema.schema_sql())
        return {
            table: [
                (str(row[1]), str(row[2]), bool(row[3] or row[5]), bool(row[5]))
                for row in connection.execute(f"PRAGMA table_info({table})")
            ]
            for table in schema.table_names()
        }


@st.composite
def rows_of(draw: st.DrawFn, table: str) -> list[dict[str, Any]]:
    if table == "blob":
        contents = draw(st.lists(st.binary(min_size=1, max_size=200), max_size=ROWS, unique=True))
        return [
            {"id": number, "key": blob_key(data), "size": len(data), "data": stored(data)}
            for number, data in enumerate(contents, 1)
        ]
    shape = {
        name: VALUES[kind] if must else st.none() | VALUES[kind] for name, kind, must, _ in columns()[table]
    }
    if table == "meta":
        shape["value"] = st.sampled_from(["1", '"text"', "[]", '{"a": null}'])
    keys = [name for name, _, _, key in columns()[table] if key]
    return draw(
        st.lists(
            st.fixed_dictionaries(shape), max_size=ROWS, unique_by=lambda row: tuple(row[k] for k in keys)
        )
    )


def stored(data: bytes) -> bytes:
    packed = zstandard.ZstdCompressor(level=1).compress(data)
    return packed if len(packed) < len(data) else data


def whole(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all tables; of blobs, their keys and sizes, since two ways to compress are one content."""
    with closing(sqlite3.connect(path)) as connection:
        return {
            table: connection.execute(
                f"SELECT {'id, key, size' if table == 'blob' else '*'} FROM {table}"
            ).fetchall()
            for table in schema.table_names()
        }


@settings(max_examples=10, deadline=None)
@given(tables=st.fixed_dictionaries({table: rows_of(table) for table in schema.table_names()}))
def test_every_row_of_every_table_comes_back(
    tmp_path_factory: pytest.TempPathFactory, tables: dict[str, list[dict[str, Any]]]
) -> None:
    directory = tmp_path_factory.mktemp("lines")
    first, second = directory / "a.bin", directory / "b.bin"
    with closing(schema.create(first)) as connection:
        for table, rows in tables.items():
            for row in rows:
                places = ", ".join("?" * len(row))
                connection.execute(
                    f"INSERT INTO {table} ({', '.join(row)}) VALUES ({places})", tuple(row.values())
                )
        schema.fold(connection)
    stream = io.StringIO()
    with open_trace(first) as trace:
        write_jsonl(trace, stream)
    read_jsonl(io.StringIO(stream.getvalue()), second)
    assert whole(second) == whole(first)
