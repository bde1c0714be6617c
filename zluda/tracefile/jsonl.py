"""A trace as JSON lines, and back: every row of every table, nothing else.

The first line is ``{"format": "zluda trace", "version": 1}``. Each line after it is one row, ``{"table": …}``
with a member for each column; bytes are base64, blobs hold their content and not its compressed form. Tables
come in the order of the schema, rows in that of their keys. A trace made from the lines has the same rows;
of a table that a later version has added there are no lines, and lines of one are passed over. The last line
is ``{"table": "end", "lines": N}``, where the first one says ``"end": true``: a file that was cut off is
noticed.
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
from zluda.tracefile.replacing import replacing

FORMAT = "zluda trace"
_END = "end"
_FIRST_CHARACTERS = 1 << 16
_NO_ROW = (
    ValueError,
    TypeError,
    OverflowError,
    RecursionError,
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
)
"""What comes of a line with other values than the table takes."""

_MOST_CHARACTERS = 2 * MAX_BLOB_BYTES  # base64 takes 4/3


def write_jsonl(trace: Trace, stream: TextIO) -> int:
    """Write every row of ``trace``; returns how many lines that took."""
    stream.write(json.dumps({"format": FORMAT, "version": schema.USER_VERSION, _END: True}) + "\n")
    lines = 1
    with closing(schema.open_readonly(trace.path)) as connection:
        blobs = BlobReader(connection, str(trace.path))
        for table in _tables(connection):
            for row in _rows(connection, table, trace.path):
                if table == "blob":
                    row = _content(row, blobs)
                stream.write(json.dumps({"table": table, **_encoded(row)}) + "\n")
                lines += 1
    stream.write(json.dumps({"table": _END, "lines": lines + 1}) + "\n")
    return lines + 1


def lines_of(stream: TextIO, name: str) -> Iterator[str]:
    """The lines of a file, which may be anything: none is longer than a trace's can be.

    Raises :class:`TraceError` for a longer one, and for what is no text.
    """
    limit = _FIRST_CHARACTERS
    number = 1
    try:
        while line := stream.readline(limit):
            if len(line) == limit and not line.endswith("\n"):
                raise TraceError(f"line {number} is longer than any of a trace", file=name)
            yield line
            number, limit = number + 1, _MOST_CHARACTERS
    except UnicodeDecodeError as error:
        raise TraceError(f"line {number} is no text ({error.reason})", file=name) from error


def read_jsonl(lines: Iterable[str], target: Path, *, name: str = "<lines>") -> None:
    """Make a trace at ``target`` of lines that :func:`write_jsonl` wrote; ``name`` is their file, for errors.

    Raises :class:`TraceError` naming the line that is none of a trace, or where the last ones are missing;
    what was at ``target`` is then left as it was.
    """
    numbered = enumerate(lines, 1)
    ends = _check_first(next(numbered, (1, ""))[1], name)
    with (
        replacing(target) as part,
        schema.sqlite_errors(part),
        closing(schema.create(part)) as connection,
    ):
        columns = {table: _columns(connection, table) for table in _tables(connection)}
        compressor = zstandard.ZstdCompressor(level=3)
        connection.execute("BEGIN IMMEDIATE")
        number, ended = 1, False
        for number, line in numbered:
            try:
                table, row = _row(line, columns)
                ended = table == _END and row.get("lines") == number
                if table in columns:
                    _insert(connection, table, _stored(row, compressor) if table == "blob" else row)
            except _NO_ROW as error:
                raise TraceError(f"line {number} is no row of a trace: {error}", file=name) from error
        if ends and not ended:
            raise TraceError(f"cut off after line {number}: its last line is missing", file=name)
        connection.execute("COMMIT")
        schema.fold(connection)


def _insert(connection: sqlite3.Connection, table: str, row: Mapping[str, Any]) -> None:
    places = ", ".join("?" * len(row))
    connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({places})", tuple(row.values()))


def _tables(connection: sqlite3.Connection) -> list[str]:
    """The format's tables, in the order of the schema."""
    known = schema.table_names()
    return [name for name in known if _columns(connection, name)]


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [str(row[1]) for row in connection.execute(f"PRAGMA table_info({table})")]


def _rows(connection: sqlite3.Connection, table: str, file: Path) -> Iterator[dict[str, Any]]:
    key = ", ".join(schema.keys().get(table, ("rowid",)))
    with schema.sqlite_errors(file):
        cursor = connection.execute(f"SELECT * FROM {table} ORDER BY {key}")
        names = [column[0] for column in cursor.description]
    rows = iter(cursor)
    while True:
        with schema.sqlite_errors(file):  # of the trace alone, not of where its lines go
            row = next(rows, None)
        if row is None:
            return
        yield dict(zip(names, row, strict=True))


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
        return table, value
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


def _check_first(line: str, name: str) -> bool:
    """Whether there must be a last line that says so."""
    try:
        first = json.loads(line)
    except (ValueError, RecursionError):
        first = None
    if not isinstance(first, dict) or first.get("format") != FORMAT:
        raise TraceError("line 1 does not say that these are lines of a trace", file=name)
    version = first.get("version")
    if not isinstance(version, int) or not 1 <= version <= schema.USER_VERSION:
        raise TraceError(
            f"lines of trace format {version}; this zluda reads {schema.USER_VERSION}", file=name
        )
    return first.get(_END) is True
