"""Writing a trace. One writer a file; bulk methods take tuples, so that a recorder keeps up with launches."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from types import TracebackType
from typing import Any

from zluda.errors import TraceError
from zluda.tracefile import schema
from zluda.tracefile.blobs import ZEROS, BlobStore
from zluda.tracefile.gpu_times import Moment
from zluda.tracefile.records import (
    PAGE_BYTES,
    PAYLOAD_BYTES,
    AllocationKind,
    Dim3,
    Direction,
    Fidelity,
    LeftOut,
    ModuleKind,
    Noise,
    Parameter,
    Unproved,
)

CallRow = tuple[int, int, int | None, int, int, int | None, int | None, bytes]
"""sequence, thread, parent, signature id, start_ns, end_ns, result, arguments (see ``arguments.py``)"""

FinishRow = tuple[int, int, int, bytes]
"""sequence, end_ns, result, arguments"""

LaunchRow = tuple[int, int, int, bytes, int | None, int]
"""call, shape id, stream, packed parameters, gpu_time_ns, captured (0 to 3, see `schema.sql`)"""

_BULK_ROWS = 500  # times 8 columns, well below the 32766 variables that SQLite allows in a statement


class TraceWriter:
    """Writes one trace file, in WAL mode while it is open and one closed file after :meth:`close`.

    Nothing is visible to readers before :meth:`commit`. Every method raises :class:`TraceError` naming the
    file when the disk or the data refuses.
    """

    def __init__(self, path: str | Path, connection: sqlite3.Connection) -> None:
        """Use :meth:`create` or :meth:`reopen`."""
        self.path = Path(path)
        self._connection = connection
        self._blobs = BlobStore(connection)
        self._signatures: dict[tuple[str, tuple[Parameter, ...]], int] = {}
        self._shapes: dict[tuple[Any, ...], int] = {}
        self._closed = False
        self.redacts = False
        """Of what memory and buffers hold, only digests are stored."""

    @classmethod
    def create(cls, path: str | Path, meta: Mapping[str, Any] | None = None) -> TraceWriter:
        """Start a new file, replacing one that is there. ``meta`` values are anything JSON can hold."""
        path = Path(path)
        writer = cls(path, schema.create(path))
        writer._begin()
        writer.set_meta(meta or {})
        return writer

    @classmethod
    def reopen(cls, path: str | Path) -> TraceWriter:
        """Go on writing a file that another writer left, for recovery."""
        path = Path(path)
        writer = cls(path, schema.reopen(path))
        writer._begin()
        return writer

    def set_meta(self, meta: Mapping[str, Any]) -> None:
        """Add or replace entries of `meta`."""
        self._many(
            "INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)",
            [(key, json.dumps(value)) for key, value in meta.items()],
        )

    def signature(self, function: str, parameters: Sequence[Parameter]) -> int:
        """The id of a function's signature, written when first asked for."""
        key = (function, tuple(parameters))
        found = self._signatures.get(key)
        if found is None:
            rows = [[p.name, p.type, p.direction, p.pointee_size] for p in parameters]
            found = self._insert(
                "INSERT INTO signature (function, parameters) VALUES (?, ?)", (function, json.dumps(rows))
            )
            self._signatures[key] = found
        return found

    def add_calls(self, rows: Iterable[CallRow]) -> None:
        """Insert calls, finished or (``end_ns`` and ``result`` None) still open."""
        self._bulk("call", 8, rows)

    def finish_calls(self, rows: Iterable[FinishRow]) -> None:
        """Close calls that were inserted open; ``arguments`` replaces the earlier bytes."""
        self._many(
            "UPDATE call SET end_ns = ?, result = ?, arguments = ? WHERE sequence = ?",
            ((*finished, sequence) for sequence, *finished in rows),
        )

    def add_payload(
        self,
        call: int,
        parameter: int,
        direction: Direction,
        data: bytes,
        *,
        offset: int = 0,
        text: bool = False,
    ) -> None:
        """Variable-size data of a call's parameter; long data can come in several pieces by ``offset``.
        ``text``: a name or the like, which is not redacted.
        """
        sealed = self.redacts and not text
        rows = []
        for start, piece in _pieces(data, 0, PAYLOAD_BYTES):
            blob = self._put(piece, call, sealed=sealed)
            rows.append((call, parameter, direction.value, offset + start, len(piece), blob))
        self._many(
            "INSERT INTO payload (call, parameter, direction, offset, length, blob)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            # A payload of no bytes is a row too: it was captured, and it was empty.
            rows or [(call, parameter, direction.value, offset, 0, ZEROS)],
        )

    def add_module(
        self,
        call: int,
        kind: ModuleKind,
        handle: int,
        *,
        origin: str = "",
        image: bytes = b"",
        architecture: str = "",
    ) -> int:
        """A module or library loaded by ``call``; returns its id. ``image`` is what was handed over, if
        read.
        """
        module = self._insert(
            "INSERT INTO module (kind, origin, handle, load_call) VALUES (?, ?, ?, ?)",
            (kind.value, origin, _signed(handle), call),
        )
        if image:
            self.add_image(module, kind, image, architecture=architecture, origin="as loaded")
        return module

    def add_image(
        self, module: int, kind: ModuleKind, data: bytes, *, architecture: str = "", origin: str = ""
    ) -> None:
        """An image found inside a module: the PTX to replay (the first of kind ptx is it), a cubin."""
        (ordinal,) = self._one("SELECT count(*) FROM image WHERE module = ?", (module,))
        self._insert(
            "INSERT INTO image (module, ordinal, kind, architecture, origin, size, blob)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (module, ordinal, kind.value, architecture, origin, len(data), self._put(data, None)),
        )

    def unload_module(self, module: int, call: int) -> None:
        self._many("UPDATE module SET unload_call = ? WHERE id = ?", [(call, module)])

    def add_function(
        self,
        call: int,
        handle: int,
        name: str,
        *,
        module: int | None,
        layout: Sequence[tuple[int, int]] | None = None,
    ) -> int:
        """A kernel handle first seen at ``call``; returns its id, which launches refer to."""
        return self._insert(
            "INSERT INTO function (handle, first_call, module, name, layout) VALUES (?, ?, ?, ?, ?)",
            (_signed(handle), call, module, name, None if layout is None else json.dumps(layout)),
        )

    def set_layout(self, function: int, layout: Sequence[tuple[int, int]]) -> None:
        """The (offset, size) of each parameter, when it becomes known later than the handle."""
        self._many("UPDATE function SET layout = ? WHERE id = ?", [(json.dumps(layout), function)])

    def shape(
        self,
        function: int,
        grid: Dim3,
        block: Dim3,
        *,
        cluster: Dim3 = (1, 1, 1),
        shared_bytes: int = 0,
        attributes: bytes = b"",
        fidelity: Fidelity = Fidelity.UNKNOWN,
    ) -> int:
        """The id of what many launches have in common, written when first asked for."""
        row = (function, *grid, *block, *cluster, shared_bytes, attributes, fidelity.value)
        found = self._shapes.get(row)
        if found is None:
            columns = "function, grid_x, grid_y, grid_z, block_x, block_y, block_z"
            columns += ", cluster_x, cluster_y, cluster_z, shared_bytes, attributes, fidelity"
            places = ", ".join("?" * len(row))
            found = self._insert(f"INSERT INTO shape ({columns}) VALUES ({places})", row)
            self._shapes[row] = found
        return found

    def add_launch(
        self,
        call: int,
        shape: int,
        parameters: bytes,
        *,
        stream: int = 0,
        gpu_time_ns: int | None = None,
        captured: bool = False,
        left_out: LeftOut | None = None,
    ) -> None:
        """One launch of a :meth:`shape`; see :meth:`add_launches` for many."""
        row = (call, shape, _signed(stream), parameters, gpu_time_ns, int(left_out or captured))
        self.add_launches([row])

    def add_launches(self, rows: Iterable[LaunchRow]) -> None:
        """Many launches; ``stream`` is below 2^63 here."""
        self._bulk("launch", 6, rows)

    def set_captured(self, calls: Iterable[int]) -> None:
        """Mark launches whose reachable memory was looked at after they ran."""
        self._many("UPDATE launch SET captured = 1 WHERE call = ?", ((call,) for call in calls))

    def add_gpu_times(self, rows: Iterable[tuple[int, int, int, int]]) -> None:
        """(call, clock, start, duration) of launches and launches of graphs, in ns of the GPU's clock of that
        number.

        What is there already stays: what came within a call that a killed recorder had open is read again.
        """
        self._bulk("gpu_time", 4, rows, "OR IGNORE ")

    def add_moment(self, moment: Moment) -> None:
        """A moment of a GPU's clock and of the calls'."""
        sql = """INSERT INTO gpu_clock (clock, gpu_ns, host_ns, error_ns) SELECT ?1, ?2, ?3, ?4
            WHERE NOT EXISTS (SELECT 1 FROM gpu_clock WHERE (clock, gpu_ns, host_ns) = (?1, ?2, ?3))"""
        self._insert(sql, moment)

    def add_allocation(
        self,
        call: int,
        base: int,
        size: int,
        kind: AllocationKind = AllocationKind.DEVICE,
        *,
        name: str = "",
        module: int | None = None,
    ) -> int:
        """Memory made by ``call``; returns its id. A module's variable has its ``name`` and ``module``."""
        return self._insert(
            "INSERT INTO allocation (base, size, kind, name, module, born) VALUES (?, ?, ?, ?, ?, ?)",
            (_signed(base), size, kind.value, name, module, call),
        )

    def close_allocation(self, allocation: int, call: int) -> None:
        """``call`` freed it."""
        self._many("UPDATE allocation SET died = ? WHERE id = ?", [(call, allocation)])

    def add_page(self, call: int, allocation: int, offset: int, data: bytes, *, found: bool = False) -> None:
        """The contents at ``offset`` of an allocation after ``call``; any length, split here at 64 KiB
        pages. ``found``: no call made them, they were found before the call after this one.
        """
        sql = "INSERT INTO page (call, allocation, offset, length, blob) VALUES (?, ?, ?, ?, ?)"
        rows = [
            (call, allocation, start, len(piece), self._put(piece, call, sealed=self.redacts))
            for start, piece in _pieces(data, offset, PAGE_BYTES)
        ]
        if not found:
            self._many(sql, rows)
            return
        pages = [self._insert(sql, row) for row in rows]
        self._many("INSERT INTO found_page (page) VALUES (?)", ((page,) for page in pages))

    def prepare(self, contents: Sequence[bytes]) -> None:
        """Digest and compress pages that :meth:`add_page` is about to be given, these very objects."""
        if not self.redacts:
            self._blobs.prepare(contents)

    def add_gap(self, call: int | None, kind: str, text: str, count: int = 1) -> int:
        """Returns its id."""
        return self._insert(
            "INSERT INTO gap (call, kind, text, count) VALUES (?, ?, ?, ?)", (call, kind, text, count)
        )

    def count_gap(self, gap: int, count: int) -> None:
        """Have a gap stand for so many."""
        self._many("UPDATE gap SET count = ? WHERE id = ?", [(count, gap)])

    def set_proof(self, unproved: Iterable[Unproved], noise: Iterable[tuple[Noise, bytes]]) -> None:
        """What came of running the trace again on the GPU that recorded it, in place of what is there.

        Each noise comes with its mask; its ``mask`` is not looked at.
        """
        self._many("DELETE FROM proof", [()])
        self._many("DELETE FROM noise", [()])
        self._many("INSERT INTO proof (call, verdict, reason) VALUES (?, ?, ?)", unproved)
        self._many(
            f"INSERT INTO noise VALUES ({', '.join('?' * len(Noise._fields))})",
            (one._replace(mask=self._put(mask, one.call), unbounded=one.unbounded) for one, mask in noise),
        )

    def size(self) -> int:
        """Bytes that the file has, or will have when it is closed."""
        (pages,) = self._one("PRAGMA page_count", ())
        return int(pages) * schema.SQLITE_PAGE_BYTES

    def commit(self) -> None:
        """Make everything written so far survive the death of this process."""
        with schema.sqlite_errors(self.path):
            self._connection.execute("COMMIT")
            self._begin()

    def close(self) -> None:
        """Commit and fold the WAL into one file. Closing twice is harmless."""
        if self._closed:
            return
        self._closed = True
        self._blobs.close()
        with schema.sqlite_errors(self.path):
            try:
                self._connection.execute("COMMIT")
                schema.fold(self._connection)
            finally:
                self._connection.close()

    def _begin(self) -> None:
        with schema.sqlite_errors(self.path):
            self._connection.execute("BEGIN IMMEDIATE")

    def _many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        with self._writing():
            self._connection.executemany(sql, rows)

    def _bulk(self, table: str, columns: int, rows: Iterable[Sequence[Any]], conflict: str = "") -> None:
        """Insert whole rows, many in a statement: half the time of a statement a row."""
        rows = iter(rows)
        row = f"({', '.join('?' * columns)})"
        while chunk := list(islice(rows, _BULK_ROWS)):
            sql = f"INSERT {conflict}INTO {table} VALUES {', '.join([row] * len(chunk))}"
            with self._writing():
                self._connection.execute(sql, list(chain.from_iterable(chunk)))

    def _insert(self, sql: str, row: Sequence[Any]) -> int:
        with self._writing():
            return self._connection.execute(sql, row).lastrowid or 0

    def _one(self, sql: str, row: Sequence[Any]) -> Any:
        with self._writing():
            return self._connection.execute(sql, row).fetchone()

    def _put(self, content: bytes, call: int | None, *, sealed: bool = False) -> int:
        with schema.sqlite_errors(self.path, call):
            return self._blobs.put(content, sealed=sealed)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """SQLite's refusals, and values that a column cannot hold, as :class:`TraceError`."""
        try:
            with schema.sqlite_errors(self.path):
                yield
        except (OverflowError, sqlite3.ProgrammingError) as error:
            raise TraceError(f"cannot be written: {error}", file=str(self.path)) from error

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _pieces(data: bytes, offset: int, step: int) -> Iterator[tuple[int, bytes]]:
    """(offset, piece) of ``data``, which lies at ``offset``, cut at multiples of ``step``."""
    end = offset + len(data)
    start = offset
    while start < end:
        stop = min(end, (start // step + 1) * step)
        yield start, data[start - offset : stop - offset]
        start = stop


def _signed(word: int) -> int:
    """A 64-bit word as SQLite holds it: two's complement."""
    return word - (1 << 64) if word >> 63 else word
