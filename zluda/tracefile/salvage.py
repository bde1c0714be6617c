"""What can still be read of a damaged trace, as a new one.

Rows are read in the order of their numbers, over what cannot be read to what can be again. Rows that refer to
a blob or a call that is lost go as well. Gaps of the new trace say what was lost, as far as that can be told.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

from zluda.errors import TraceError
from zluda.tracefile import rows, schema
from zluda.tracefile.arguments import ArgumentLayout
from zluda.tracefile.blobs import MAX_BLOB_BYTES, BlobReader
from zluda.tracefile.reader import Trace
from zluda.tracefile.replacing import replacing
from zluda.tracefile.writer import TraceWriter

_LARGEST_STEP = 1 << 62

# Rows that are of no use without another: (table, condition that holds for those).
_ORPHANS = (
    ("call", "signature NOT IN (SELECT id FROM signature)"),
    ("function", "module IS NOT NULL AND module NOT IN (SELECT id FROM module)"),
    ("shape", "function NOT IN (SELECT id FROM function)"),
    ("launch", "call NOT IN (SELECT sequence FROM call) OR shape NOT IN (SELECT id FROM shape)"),
    ("payload", "call NOT IN (SELECT sequence FROM call) OR blob != 0 AND blob NOT IN (SELECT id FROM blob)"),
    ("image", "module NOT IN (SELECT id FROM module) OR blob != 0 AND blob NOT IN (SELECT id FROM blob)"),
    (
        "page",
        "allocation NOT IN (SELECT id FROM allocation) OR blob != 0 AND blob NOT IN (SELECT id FROM blob)",
    ),
    ("found_page", "page NOT IN (SELECT id FROM page)"),
    ("gpu_time", "call NOT IN (SELECT sequence FROM call)"),
    ("proof", "call NOT IN (SELECT sequence FROM call)"),
    (
        "noise",
        "call NOT IN (SELECT sequence FROM call) OR allocation NOT IN (SELECT id FROM allocation)"
        " OR mask != 0 AND mask NOT IN (SELECT id FROM blob)",
    ),
)

# Rows as a reader takes them: (table, columns of its key, the columns that are converted, conversion).
_CONVERSIONS: tuple[tuple[str, str, str, Callable[[Any], object]], ...] = (
    ("meta", "key", "key, value", rows.meta),
    ("signature", "id", "id, function, parameters", rows.signature),
    ("module", "id", "id, kind, origin, handle, load_call, unload_call", lambda row: rows.module(row, ())),
    (
        "image",
        "module, ordinal",
        "module, kind, architecture, origin, size, blob",
        rows.image,
    ),
    ("function", "id", "id, handle, first_call, module, name, layout", rows.function),
    ("shape", "id", "*", rows.shape),
    ("allocation", "id", "id, base, size, kind, name, module, born, died", rows.allocation),
    ("payload", "id", "parameter, direction, offset, length, blob", rows.payload_piece),
    ("page", "id", "call, allocation, offset, length, blob", rows.page),
    ("gap", "id", "call, kind, text, count", rows.gap),
    ("proof", "call", "call, verdict, reason", rows.proof),
    ("noise", "call, allocation", "*", rows.noise),
)

# A launch of which pages are lost must not look as if it had changed nothing.
_DOUBT_CAPTURES = "UPDATE launch SET captured = 0 WHERE captured = 1"


def salvage(source: Path, target: Path, *, damage: str = "") -> dict[str, int]:
    """Write what can be read of ``source`` to ``target``; returns how many rows of each table are lost, as
    far as that can be told. ``damage`` is what is known to be wrong: a table may have lost all its rows and
    look like one that had none.

    Raises :class:`TraceError` where ``source`` is no trace at all, or ``target`` is it.
    """
    check_is_trace(source)
    lost: dict[str, int] = {}
    notes: list[str] = []
    with replacing(target, source=source) as part:
        with schema.sqlite_errors(part), closing(schema.create(part)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            with closing(_open_damaged(source)) as damaged:
                for table in schema.table_names():
                    if schema.is_optional(table) and not _is_there(damaged, table):
                        continue
                    failure = _copy(damaged, connection, table)
                    if failure:
                        notes.append(f"{table}: {failure}")
            lost |= _drop_bad_blobs(connection, source)
            lost |= _drop_unreadable(connection)
            requirements = _requirements(connection)
            for table, condition in _ORPHANS:
                gone = connection.execute(f"DELETE FROM {table} WHERE {condition}").rowcount
                if gone:
                    lost[table] = lost.get(table, 0) + gone
            if damage and not notes and not lost:
                notes.append(f"what is lost cannot be told: {damage}")
            if notes or lost:
                connection.execute(_DOUBT_CAPTURES)
            connection.execute("COMMIT")
            schema.fold(connection)
        with TraceWriter.reopen(part) as writer:
            for note in notes:
                writer.add_gap(None, "recovery", f"part of the file could not be read; {note}")
            for table, count in lost.items():
                writer.add_gap(None, "recovery", f"rows of {table} that referred to what is lost", count)
            writer.set_meta({"recovered": True, **({"requires": requirements} if requirements else {})})
    return lost | {note: 0 for note in notes}


def _open_damaged(source: Path) -> sqlite3.Connection:
    damaged = sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)
    damaged.text_factory = bytes
    damaged.execute("PRAGMA trusted_schema = OFF")
    # Without it SQLite refuses a file that is shorter than its header says.
    damaged.execute("PRAGMA writable_schema = ON")
    return damaged


def check_whole(trace: Trace) -> None:
    """Read all of a trace. Raises :class:`TraceError` naming the first thing that is damaged or missing."""
    for _ in trace.iter_calls():
        pass
    for _ in trace.iter_launches():
        pass
    _ = (trace.module_list, trace.functions, trace.allocations, trace.gaps, trace.unproved, trace.noise)
    with closing(schema.open_readonly(trace.path)) as connection, schema.sqlite_errors(trace.path):
        (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        if verdict != "ok":
            raise TraceError(f"damaged: {' '.join(str(verdict).split())}", file=str(trace.path))
        bad = _bad_blobs(connection, trace.path)
        if bad:
            raise TraceError(f"damaged: {next(iter(bad.values()))}", file=str(trace.path))
        for table, condition in _ORPHANS:
            if not schema.has_table(connection, table):
                continue
            (count,) = connection.execute(f"SELECT count(*) FROM {table} WHERE {condition}").fetchone()
            if count:
                raise TraceError(
                    f"damaged: {count} rows of {table} refer to what is not there", file=str(trace.path)
                )


def check_is_trace(source: Path) -> None:
    """Raises :class:`TraceError` where a file is none. Damage is allowed, but it must have been a trace:
    magic and application id.
    """
    try:
        schema.check_header(source)
    except TraceError as error:
        if "truncated:" not in str(error):
            raise


def _is_there(damaged: sqlite3.Connection, table: str) -> bool:
    """Whether a table is there, or may be: the list of them can be damaged too."""
    try:
        return schema.has_table(damaged, table)
    except sqlite3.Error:
        return True


def _copy(damaged: sqlite3.Connection, new: sqlite3.Connection, table: str) -> str | None:
    """Copy the rows of one table that can be read; what could not, in words."""
    described = new.execute(f"PRAGMA table_info({table})").fetchall()
    columns = [str(row[1]) for row in described]
    types = [str(row[2]) for row in described]
    insert = f"INSERT OR IGNORE INTO {table} VALUES ({', '.join('?' * len(columns))})"
    select = f"SELECT {', '.join(columns)} FROM {table}"
    key = schema.keys().get(table)
    if key is not None:
        orders = [", ".join(key), ", ".join(f"{name} DESC" for name in key)]
        places = [columns.index(name) for name in key]
        runs: Iterator[Iterator[tuple[Any, ...] | str]] = (
            _in_order(_read(damaged, f"{select} ORDER BY {order}"), places, descending=order is orders[1])
            for order in orders
        )
    else:
        runs = _readable_runs(damaged, table, select)
    count, failures = 0, 0
    reason = ""
    for run in runs:
        more, failure = _insert(new, insert, run, types)
        count += more
        if failure is None:
            break
        failures, reason = failures + 1, failure
    return (
        f"{count} rows were read, and {failures} times the next could not be: {reason}" if failures else None
    )


def _readable_runs(
    damaged: sqlite3.Connection, table: str, select: str
) -> Iterator[Iterator[tuple[Any, ...] | str]]:
    """Rows in the order of their rowids, a run for each stretch that can be read."""
    numbered = select.replace("SELECT ", "SELECT rowid, ", 1) + " WHERE rowid >= {} ORDER BY rowid"
    last = -1

    def run(sql: str) -> Iterator[tuple[Any, ...] | str]:
        nonlocal last
        for row in _read(damaged, sql):
            if isinstance(row, str):
                yield row
            elif row[0] <= last:
                yield _AGAIN
                return
            else:
                last = row[0]
                yield row[1:]

    while (start := _next_readable(damaged, table, last + 1)) is not None:
        yield run(numbered.format(start))
        if last < start:
            # A cursor fetches one row ahead: a row before one that cannot be read has to be asked for alone.
            yield chain(run(numbered.format(start) + " LIMIT 1"), ["the row after it cannot be read"])
        if last < start:
            return


def _next_readable(damaged: sqlite3.Connection, table: str, start: int) -> int | None:
    """The smallest rowid from ``start`` on at which reading can begin; None where there is none.

    A damaged piece of a table holds rowids that follow each other, so ever longer steps pass over it, and
    halving finds its end.
    """
    bad, step = start - 1, 1
    while not _can_begin(damaged, table, bad + step):
        bad, step = bad + step, 2 * step
        if step > _LARGEST_STEP:
            return None
    good = bad + step
    while good - bad > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if _can_begin(damaged, table, middle) else (good, middle)
    return good


def _can_begin(damaged: sqlite3.Connection, table: str, rowid: int) -> bool:
    try:
        damaged.execute(f"SELECT * FROM {table} WHERE rowid >= ? ORDER BY rowid LIMIT 1", (rowid,)).fetchone()
    except (sqlite3.Error, UnicodeDecodeError):
        return False
    return True


def _read(damaged: sqlite3.Connection, sql: str) -> Iterator[tuple[Any, ...] | str]:
    """Rows; at the first that cannot be read, why, as the last."""
    try:
        yield from damaged.execute(sql)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        yield str(error)


_AGAIN = "rows come again, or out of order"
"""Damaged pages can refer to each other so that rows never end."""


def _in_order(
    found: Iterator[tuple[Any, ...] | str], places: Sequence[int], *, descending: bool
) -> Iterator[tuple[Any, ...] | str]:
    """Rows as long as their keys, the columns at ``places``, go one way."""
    last: tuple[Any, ...] | None = None
    for row in found:
        if not isinstance(row, str):
            key = tuple(row[place] for place in places)
            if last is not None and not _follows(key, last, descending=descending):
                yield _AGAIN
                return
            last = key
        yield row


def _follows(key: tuple[Any, ...], last: tuple[Any, ...], *, descending: bool) -> bool:
    try:
        return key < last if descending else key > last
    except TypeError:  # of other types than the columns hold
        return False


def _insert(
    new: sqlite3.Connection, sql: str, found: Iterator[tuple[Any, ...] | str], types: list[str]
) -> tuple[int, str | None]:
    """Insert rows until one is a reason; returns how many were taken, and that reason."""
    count = 0
    for row in found:
        if isinstance(row, str):
            return count, row
        try:
            count += new.execute(sql, [_typed(v, kind) for v, kind in zip(row, types, strict=True)]).rowcount
        except (sqlite3.Error, UnicodeDecodeError):  # a value that the column does not take: that row alone
            continue
    return count, None


def _typed(value: Any, kind: str) -> Any:
    return value.decode("utf-8") if kind == "TEXT" and isinstance(value, bytes) else value


def _drop_unreadable(connection: sqlite3.Connection) -> dict[str, int]:
    """Remove rows that a reader could not make values of."""
    lost: dict[str, int] = {}
    for table, key, columns, convert in _CONVERSIONS:
        width = key.count(",") + 1
        found = connection.execute(f"SELECT {key}, {columns} FROM {table}")
        bad = [row[:width] for row in found if not _converts(convert, row[width:])]
        where = " AND ".join(f"{name} = ?" for name in key.split(", "))
        connection.executemany(f"DELETE FROM {table} WHERE {where}", bad)
        if bad:
            lost[table] = len(bad)
    bad = _unreadable_calls(connection)
    connection.executemany("DELETE FROM call WHERE sequence = ?", bad)
    return lost | ({"call": len(bad)} if bad else {})


def _unreadable_calls(connection: sqlite3.Connection) -> list[tuple[int]]:
    """The calls of which arguments cannot be made."""
    squeezed = schema.SQUEEZED in _requirements(connection)
    layouts = {
        number: ArgumentLayout(rows.signature((number, "", parameters)).parameters, squeezed=squeezed)
        for number, parameters in connection.execute("SELECT id, parameters FROM signature")
    }
    return [
        (sequence,)
        for sequence, signature, arguments in connection.execute(
            "SELECT sequence, signature, arguments FROM call"
        )
        if signature in layouts
        and not _converts(lambda row: layouts[row[0]].decode(row[1], 0), (signature, arguments))
    ]


def _requirements(connection: sqlite3.Connection) -> list[str]:
    """What a reader of the rows must know. Where `meta` is lost, that is everything: nothing that this
    version knows makes rows unreadable that do not need it.
    """
    found = connection.execute("SELECT value FROM meta WHERE key = 'requires'").fetchone()
    if found is not None:
        return [str(one) for one in json.loads(found[0])]
    (count,) = connection.execute("SELECT count(*) FROM meta").fetchone()
    return [] if count else sorted(schema.KNOWN_REQUIREMENTS)


def _converts(convert: Callable[[Any], object], row: tuple[Any, ...]) -> bool:
    try:
        convert(row)
    except (TypeError, ValueError, LookupError, RecursionError):
        return False
    return True


def _bad_blobs(connection: sqlite3.Connection, source: Path) -> dict[int, TraceError]:
    """Blobs whose content does not match its digest, with what is said of each."""
    reader = BlobReader(connection, str(source), cache_bytes=0)
    bad: dict[int, TraceError] = {}
    for number, size, stripped in connection.execute(
        "SELECT id, size, length(data) = 0 AND size > 0 FROM blob"
    ).fetchall():
        try:
            if not stripped:
                reader.get(number, size, limit=MAX_BLOB_BYTES)
        except TraceError as error:
            bad[number] = error
    return bad


def _drop_bad_blobs(connection: sqlite3.Connection, source: Path) -> dict[str, int]:
    bad = _bad_blobs(connection, source)
    connection.executemany("DELETE FROM blob WHERE id = ?", [(number,) for number in bad])
    return {"blob": len(bad)} if bad else {}
