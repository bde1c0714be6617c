"""A trace as JSON lines, and back: every row of every table, nothing else.

The first line is ``{"format": "zluda trace", "version": 1}``. Each line after it is one row, ``{"table": …}``
with a member for each column; bytes are base64, blobs hold their content and not its compressed form. Tables
come in the order of the schema, rows in that of their keys. A trace made from the lines has the same rows;
of a table that a later version has added there are no lines, and lines of one are passed over.
"""

from __future__ import annotations

import base64
import binascii
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, TextIO

import zstandard

from zluda.errors import TraceError
from zluda.tracefile import schema
from zluda.tracefile.blobs import MAX_BLOB_BYTES, BlobReader, blob_key
from zluda.tracefile.reader import Trace

FORMAT = "zluda trace"


def write_jsonl(trace: Trace, stream: TextIO) -> int:
    """Write every row of ``trace``; returns how many lines that took."""
    stream.write(json.dumps({"format": FORMAT, "version": schema.USER_VERSION}) + "\n")
    lines = 1
    with closing(schema.open_readonly(trace.path)) as connection:
        blobs = BlobReader(connection, str(trace.path))
        for table in _tables(connection):
            with schema.sqlite_errors(trace.path):
                for row in _rows(connection, table):
                    if table == "blob":
                        row = _content(row, blobs)
                    stream.write(json.dumps({"table": table, **_encoded(row)}) + "\n")
                    lines += 1
    return lines


def read_jsonl(lines: Iterable[str], target: Path, *, name: str = "<lines>") -> None:
    """Make a trace at ``target`` of lines that :func:`write_jsonl` wrote; ``name`` is their file, for errors.

    Raises :class:`TraceError` naming the line that is none of a trace.
    """
    numbered = enumerate(lines, 1)
    _check_first(next(numbered, (1, ""))[1], name)
    complete = False
    try:
        with schema.sqlite_errors(target), closing(schema.create(target)) as connection:
            columns = {table: _columns(connection, table) for table in _tables(connection)}
            compressor = zstandard.ZstdCompressor(level=3)
            connection.execute("BEGIN IMMEDIATE")
            for number, line in numbered:
                try:
                    table, row = _row(line, columns)
                    if table not in columns:
                        continue
                    if table == "blob":
                        row = _stored(row, compressor)
                    places = ", ".join("?" * len(row))
                    connection.execute(
                        f"INSERT INTO {table} ({', '.join(row)}) VALUES ({places})", tuple(row.values())
                    )
                except (ValueError, TypeError, sqlite3.Error, OverflowError) as error:
                    raise TraceError(f"line {number} is no row of a trace: {error}", file=name) from error
            connection.execute("COMMIT")
            schema.fold(connection)
        complete = True
    finally:
        if not complete:
            for left in (target, *schema.sidecars(target)):
                left.unlink(missing_ok=True)


def _tables(connection: sqlite3.Connection) -> list[str]:
    """The format's tables, in the order of the schema."""
    known = schema.table_names()
    return [name for name in known if _columns(connection, name)]


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [str(row[1]) for row in connection.execute(f"PRAGMA table_info({table})")]


def _rows(connection: sqlite3.Connection, table: str) -> Iterator[dict[str, Any]]:
    key = ", ".join(schema.keys().get(table, ("rowid",)))
    cursor = connection.execute(f"SELECT * FROM {table} ORDER BY {key}")
    names = [column[0] for column in cursor.description]
    return (dict(zip(names, row, strict=True)) for row in cursor)


def _content(row: Mapping[str, Any], blobs: BlobReader) -> dict[str, Any]:
    """A blob's row with its content; without one where it was stripped of it."""
    if row["data"] == b"" and row["size"]:
        return {**row, "data": None}
    return {**row, "data": blobs.get(row["id"], row["size"], limit=MAX_BLOB_BYTES)}


def _encoded(row: Mapping[str, Any]) -> dict[str, Any]:
    """Bytes as base64, under a name that says so."""
    return {
        f"{name}:base64" if isinstance(value, bytes) else name: (
            base64.b64encode(value).decode() if isinstance(value, bytes) else value
        )
        for name, value in row.items()
    }


def _row(line: str, columns: Mapping[str, list[str]]) -> tuple[str, dict[str, Any]]:
    value = json.loads(line)
    if not isinstance(value, dict) or not isinstance(value.get("table"), str):
        raise ValueError("expected an object that names a table")
    table = value.pop("table")
    if table not in columns:
        return table, {}
    row = {}
    for name, one in value.items():
        plain, _, coded = name.partition(":")
        if coded == "base64":
            try:
                one = base64.b64decode(one, validate=True)
            except binascii.Error as error:
                raise ValueError(f"{plain}: {error}") from error
        row[plain] = one
    unknown = row.keys() - set(columns[table])
    if unknown or not row:
        raise ValueError(f"table {table} has no column {', '.join(sorted(unknown)) or 'given'}")
    return table, row


def _stored(row: dict[str, Any], compressor: zstandard.ZstdCompressor) -> dict[str, Any]:
    """A blob's row as it is kept: compressed where that is shorter, and under its own digest."""
    data = row.get("data")
    if data is None:  # stripped of its contents
        return {**row, "data": b""}
    if not isinstance(data, bytes) or len(data) != row.get("size") or blob_key(data) != row.get("key"):
        raise ValueError("a blob's content is not of its size and digest")
    packed = compressor.compress(data)
    return {**row, "data": packed if len(packed) < len(data) else data}


def _check_first(line: str, name: str) -> None:
    try:
        first = json.loads(line)
    except ValueError:
        first = None
    if not isinstance(first, dict) or first.get("format") != FORMAT:
        raise TraceError("line 1 does not say that these are lines of a trace", file=name)
    version = first.get("version")
    if not isinstance(version, int) or not 1 <= version <= schema.USER_VERSION:
        raise TraceError(
            f"lines of trace format {version}; this zluda reads {schema.USER_VERSION}", file=name
        )
