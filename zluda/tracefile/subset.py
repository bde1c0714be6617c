"""A part of a trace as a trace of its own: chosen calls, what belongs to them, and memory as it was before.

Numbers of calls, modules, functions and allocations stay those of the source, so that a verdict on a part can
be looked up in the whole. Memory before the first call of the part is put, as ``page`` rows, at the call
before it; where that call is not part of the trace, a call of :data:`STATE_CALL`, which no driver has, holds
the place.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zluda.errors import TraceError
from zluda.tracefile import schema
from zluda.tracefile.memory import Span
from zluda.tracefile.reader import Trace
from zluda.tracefile.records import PAGE_BYTES, Allocation, Page
from zluda.tracefile.replacing import replacing
from zluda.tracefile.writer import TraceWriter

STATE_CALL = "zluda_state"
"""The function of the call that stands for all calls that were cut away before a part's first."""

Progress = Callable[[int, int], None]
"""Called with (allocations done, allocations in all)."""


@dataclass(frozen=True)
class Cut:
    """What of a trace is kept.

    ``calls`` are kept besides all of ``first`` to ``last`` (both included). ``state``: memory of the kept
    allocations, as it was before ``first``, is kept too.
    """

    first: int
    last: int
    calls: frozenset[int]
    modules: frozenset[int]
    allocations: frozenset[int]
    state: bool


# Table → the rows that are kept. `kept_…` are temporary tables of what a cut names.
_CALL = "(SELECT sequence FROM kept_call)"
_MODULE = "(SELECT id FROM kept_module)"
_ROWS: dict[str, str] = {
    "meta": "true",
    "signature": f"id IN (SELECT signature FROM source.call WHERE sequence IN {_CALL})",
    "call": f"sequence IN {_CALL}",
    "payload": f"call IN {_CALL}",
    "module": f"id IN {_MODULE}",
    "image": f"module IN {_MODULE}",
    "function": f"(module IS NULL OR module IN {_MODULE}) AND first_call <= :last",
    "shape": f"id IN (SELECT shape FROM source.launch WHERE call IN {_CALL})",
    "launch": f"call IN {_CALL}",
    "allocation": "id IN (SELECT id FROM kept_allocation)",
    "page": "call BETWEEN :first AND :last AND allocation IN (SELECT id FROM kept_allocation)",
    "found_page": "page IN (SELECT id FROM main.page)",
    "gpu_time": f"call IN {_CALL}",
    "gpu_clock": "true",
    "gap": f"call IS NULL OR call IN {_CALL}",
    "proof": f"call IN {_CALL}",
    "noise": f"call IN {_CALL} AND allocation IN (SELECT id FROM kept_allocation)",
}

# What is later than the last kept call has not happened yet.
_FORGET_THE_FUTURE = (
    "UPDATE module SET unload_call = NULL WHERE unload_call > :last",
    "UPDATE allocation SET died = NULL WHERE died > :last",
    "UPDATE call SET parent = NULL WHERE parent IS NOT NULL AND parent NOT IN (SELECT sequence FROM call)",
)


def write_subset(
    source: Trace, target: Path, cut: Cut, meta: Mapping[str, Any], *, progress: Progress | None = None
) -> None:
    """Write the rows of ``source`` that ``cut`` keeps to a new trace at ``target``.

    ``meta`` is added to the source's. Raises :class:`TraceError` where ``target`` is the source itself, or is
    there and is no trace, or cannot be written; what was there is then left as it was.
    """
    with replacing(target, source=source.path) as part:
        with errors_of_copying(source.path, part), closing(schema.create(part)) as connection:
            connection.execute("ATTACH DATABASE ? AS source", (str(source.path.absolute()),))
            connection.execute("BEGIN")  # IMMEDIATE would lock the source, which others may be reading
            _name_kept(connection, cut)
            bounds = {"first": cut.first, "last": cut.last}
            for table, where in _ROWS.items():
                _copy(connection, table, where, bounds)
            for statement in _FORGET_THE_FUTURE:
                connection.execute(statement, bounds if ":last" in statement else {})
            if cut.state:
                _put_state(connection, source, cut, progress)
            _copy(connection, "blob", f"id IN ({schema.USED_BLOBS})", {})
            connection.execute("COMMIT")
            connection.execute("DETACH DATABASE source")
            schema.fold(connection)
        with TraceWriter.reopen(part) as writer:
            writer.set_meta(meta)


@contextmanager
def errors_of_copying(source: Path, target: Path) -> Iterator[None]:
    """What SQLite refuses is the target's fault where the system refuses (a full disk); what cannot be read,
    and rows that no table takes, are the source's.
    """
    with schema.sqlite_errors(target):
        try:
            yield
        except sqlite3.DatabaseError as error:
            refused = isinstance(error, sqlite3.OperationalError)
            if refused and "user-defined function" not in str(error):  # those are given texts of the source
                raise
            raise TraceError(f"damaged: {error}", file=str(source)) from error


def _copy(connection: sqlite3.Connection, table: str, where: str, bounds: Mapping[str, int]) -> None:
    if schema.has_table(connection, table, "source"):
        connection.execute(f"INSERT INTO main.{table} SELECT * FROM source.{table} WHERE {where}", bounds)


def _name_kept(connection: sqlite3.Connection, cut: Cut) -> None:
    connection.execute("CREATE TEMP TABLE kept_call (sequence INTEGER PRIMARY KEY)")
    connection.execute(
        "INSERT INTO kept_call SELECT sequence FROM source.call WHERE sequence BETWEEN ? AND ?",
        (cut.first, cut.last),
    )
    _fill(connection, "kept_call", "sequence", cut.calls)
    for table, ids in (("kept_module", cut.modules), ("kept_allocation", cut.allocations)):
        connection.execute(f"CREATE TEMP TABLE {table} (id INTEGER PRIMARY KEY)")
        _fill(connection, table, "id", ids)


def _fill(connection: sqlite3.Connection, table: str, column: str, values: Iterable[int]) -> None:
    connection.executemany(f"INSERT OR IGNORE INTO {table} ({column}) VALUES (?)", ((v,) for v in values))


def _put_state(connection: sqlite3.Connection, source: Trace, cut: Cut, progress: Progress | None) -> None:
    """Memory before the first call, at the call before it."""
    before = cut.first - 1
    if before not in cut.calls:
        _put_state_call(connection, before, source.call(cut.first).start_ns, source.call(cut.first).thread)
    live = [one for one in source.live_allocations(before) if one.id in cut.allocations]
    for done, allocation in enumerate(live):
        connection.executemany(
            "INSERT INTO page (call, allocation, offset, length, blob) VALUES (?, ?, ?, ?, ?)",
            (
                (before, allocation.id, page.offset, page.length, page.blob)
                for page in state_rows(source, allocation, before)
            ),
        )
        if progress is not None:
            progress(done + 1, len(live))


def _put_state_call(connection: sqlite3.Connection, sequence: int, time: int, thread: int) -> None:
    cursor = connection.execute(
        "INSERT INTO signature (function, parameters) VALUES (?, ?)", (STATE_CALL, "[]")
    )
    connection.execute(
        "INSERT INTO call VALUES (?, ?, NULL, ?, ?, ?, 0, ?)",
        (sequence, thread, cursor.lastrowid, time, time, b""),
    )


def state_rows(trace: Trace, allocation: Allocation, call: int) -> Iterator[Page]:
    """The rows that tell what is known of an allocation after ``call``, in the order in which they hold.

    A row of which nothing is left, since later ones cover it, is none of them.
    """
    for number in trace.pages_on_record(allocation.id, call):
        start = number * PAGE_BYTES
        unknown = [(start, min(start + PAGE_BYTES, allocation.size))]
        needed = []
        for page in trace.page_history(allocation.id, number, call):
            covered = (page.offset, page.offset + page.length)
            left = [part for span in unknown for part in _without(span, *covered)]
            if left != unknown:
                needed.append(page)
                unknown = left
            if not unknown:
                break
        yield from reversed(needed)


def _without(span: Span, start: int, stop: int) -> list[Span]:
    """What of a span is outside of ``[start, stop)``."""
    low, high = span
    if stop <= low or high <= start:
        return [span]
    return [part for part in ((low, start), (stop, high)) if part[0] < part[1]]
