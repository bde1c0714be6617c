"""The trace file as a SQLite database: how it is made, and what is checked before any of it is believed."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from textwrap import shorten

from zluda.errors import TraceError

APPLICATION_ID = 0x7A4C5544  # "zLUD"
USER_VERSION = 1
"""The version that is written; every version from 1 to it is read (docs/trace-format.md, "The promise")."""

SQUEEZED = "squeezed arguments"
"""The arguments of calls may be without their zero bytes (``arguments.py``)."""

CONDITIONAL_NODES = "conditional nodes"
"""Calls inside the launch of a graph may be of bodies, that ran any number of times (``graphs.py``)."""

KNOWN_REQUIREMENTS = frozenset({SQUEEZED, CONDITIONAL_NODES})
"""What `meta` may have under ``requires``: additions without which a trace would be misread."""

SQLITE_PAGE_BYTES = 8192
_COMPACT_PAGE_BYTES, _COMPACT_BELOW = 1024, 16 << 20
"""Each table takes a page at least: in a small file that is most of it. Readers take pages of any size."""

_MESSAGE_CHARACTERS = 200
_LATER_TABLES = frozenset(
    {"found_page", "gpu_time", "gpu_clock", "proof", "noise"}
)  # earlier recordings of this version lack some
USED_BLOBS = """
    SELECT blob FROM payload UNION SELECT blob FROM image UNION SELECT blob FROM page
    UNION SELECT mask FROM noise
"""
"""The blobs that rows refer to."""

_OLDEST_SQLITE = (3, 37)  # STRICT tables

# SQLite file format, section 1.3: the header's fields that are checked.
_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100
_PAGE_SIZE_AT, _PAGE_COUNT_AT, _USER_VERSION_AT, _APPLICATION_ID_AT = 16, 28, 60, 68

# A whole check reads the whole file, so it is only done where that takes milliseconds; larger files are
# checked row by row as they are read.
_QUICK_CHECK_BYTES = 16 << 20


def create(path: Path) -> sqlite3.Connection:
    """A new, empty trace at ``path``, open for writing in WAL mode. A trace that is there is replaced."""
    check_sqlite()
    check_replaceable(path)
    with sqlite_errors(path):
        for name in (path, *sidecars(path)):
            name.unlink(missing_ok=True)
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        connection.execute(f"PRAGMA page_size = {SQLITE_PAGE_BYTES}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {USER_VERSION}")
        # The schema is written before WAL is switched on, so that the file itself has a whole header at any
        # time.
        connection.executescript(f"BEGIN; {schema_sql()} COMMIT;")
        _tune_for_writing(connection)
    return connection


def check_replaceable(path: Path) -> None:
    """May a trace be written at ``path``? Raises :class:`TraceError` where something else than a trace would
    be lost: a slip of ``-o`` must not cost a program, a source file or a device.
    """
    with sqlite_errors(path):
        if not path.exists():
            return
        if path.is_dir():
            raise TraceError("is a directory", file=str(path))
        with path.open("rb") if path.is_file() else nullcontext() as stream:
            header = stream.read(_HEADER_BYTES) if stream is not None else None
    application = None if header is None else header[_APPLICATION_ID_AT : _APPLICATION_ID_AT + 4]
    if application != APPLICATION_ID.to_bytes(4, "big") and header != b"":
        raise TraceError("is there and is not a trace; not replaced, choose another name", file=str(path))


def reopen(path: Path) -> sqlite3.Connection:
    """An existing trace, checked, open for writing in WAL mode."""
    check_header(path)
    with sqlite_errors(path):
        connection = sqlite3.connect(f"{_uri(path)}?mode=rw", uri=True, isolation_level=None)
        _distrust(connection)
        check_schema(connection, path)
        add_later_tables(connection)
        _tune_for_writing(connection)
    return connection


def open_readonly(path: Path) -> sqlite3.Connection:
    """An existing trace, checked, open for reading. Raises :class:`TraceError` with file and place."""
    check_header(path)
    _fold_wal(path)
    with sqlite_errors(path):
        connection = sqlite3.connect(
            f"{_uri(path)}?mode=ro", uri=True, isolation_level=None, check_same_thread=False
        )
        try:
            _distrust(connection)
            connection.execute("PRAGMA query_only = ON")
            check_schema(connection, path)
            if path.stat().st_size <= _QUICK_CHECK_BYTES:
                _quick_check(connection, path)
        except BaseException:
            connection.close()
            raise
    return connection


def check_sqlite(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> None:
    """Raises :class:`TraceError` where this Python's SQLite is too old for STRICT tables."""
    if version < _OLDEST_SQLITE:
        have, need = (".".join(map(str, number)) for number in (version, _OLDEST_SQLITE))
        raise TraceError(
            f"traces need SQLite {need} or later; this Python has {have}: use a newer Python build"
        )


def fold(connection: sqlite3.Connection) -> None:
    """Move what is in the WAL into the file and leave WAL mode: one closed file."""
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.execute("PRAGMA journal_mode = DELETE")


def compact(connection: sqlite3.Connection) -> None:
    """Rewrite a closed trace (no WAL, no transaction) without unused space; a small one in small pages."""
    (pages,), (size,) = (
        connection.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size")
    )
    if pages * size < _COMPACT_BELOW:
        connection.execute(f"PRAGMA page_size = {_COMPACT_PAGE_BYTES}")
    connection.execute("VACUUM")


def sidecars(path: Path) -> tuple[Path, ...]:
    """The files that SQLite keeps beside a database while it is open."""
    return tuple(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm", "-journal"))


@contextmanager
def sqlite_errors(path: Path, call: int | None = None) -> Iterator[None]:
    """Everything that SQLite or the system refuses becomes a :class:`TraceError` with the file."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        message = shorten(str(error), _MESSAGE_CHARACTERS)  # SQLite quotes whole definitions
        damaged = isinstance(error, sqlite3.DataError) or "malformed" in message or "UTF-8" in message
        raise TraceError(("damaged: " if damaged else "") + message, file=str(path), call=call) from error
    except UnicodeDecodeError as error:  # in SQLite's own message about a damaged schema
        raise TraceError(f"damaged: {error}", file=str(path), call=call) from error
    except OSError as error:
        raise TraceError(error.strerror or str(error), file=str(path), call=call) from error


def check_header(path: Path) -> None:
    """Is this a whole trace of a version that this reader knows? Raises :class:`TraceError` saying what it
    is.
    """
    check_sqlite()
    file = str(path)
    try:
        if path.exists() and not path.is_file() and not path.is_dir():  # opening a pipe would wait
            raise TraceError("is a device or a pipe; a trace is a file", file=file)
        with path.open("rb") as stream:
            header = stream.read(_HEADER_BYTES)
        size = path.stat().st_size
    except OSError as error:
        raise TraceError(error.strerror or str(error), file=file) from error
    if not header.startswith(_MAGIC):
        what = "an empty file" if not header else "not a trace (no SQLite header)"
        raise TraceError(what, file=file, offset=0)
    if len(header) < _HEADER_BYTES:
        raise TraceError("truncated inside the header", file=file, offset=size)
    application = int.from_bytes(header[_APPLICATION_ID_AT : _APPLICATION_ID_AT + 4], "big")
    if application != APPLICATION_ID:
        raise TraceError(
            f"a SQLite database of another program (application id {application:#x})",
            file=file,
            offset=_APPLICATION_ID_AT,
        )
    _check_version(int.from_bytes(header[_USER_VERSION_AT : _USER_VERSION_AT + 4], "big"), file)
    _check_length(path, header, size)


def _check_version(version: int, file: str) -> None:
    if version > USER_VERSION:
        raise TraceError(
            f"trace format {version}, newer than this zluda reads ({USER_VERSION}); update zluda",
            file=file,
            offset=_USER_VERSION_AT,
        )
    if version < 1:
        raise TraceError(f"trace format {version}, which there is not", file=file, offset=_USER_VERSION_AT)


def _check_length(path: Path, header: bytes, size: int) -> None:
    page = int.from_bytes(header[_PAGE_SIZE_AT : _PAGE_SIZE_AT + 2], "big")
    page = 65536 if page == 1 else page
    expected = page * int.from_bytes(header[_PAGE_COUNT_AT : _PAGE_COUNT_AT + 4], "big")
    wal = sidecars(path)[0]
    if size < expected and not wal.exists():  # with a WAL the file is made whole from there
        raise TraceError(f"truncated: {expected} bytes expected", file=str(path), offset=size)


def check_schema(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse views and triggers, and tables of ours that are defined otherwise. Other tables are ignored."""
    with sqlite_errors(path):
        rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema").fetchall()
    expected = _definitions()
    for kind, name, table, sql in rows:
        if kind in ("view", "trigger"):
            raise TraceError(f"holds a {kind}, {name!r}; traces have none", file=str(path))
        foreign_index = kind == "index" and table in expected and name not in expected and sql is not None
        if foreign_index or (name in expected and _normal(sql or "") != expected[name]):
            raise TraceError(f"the {kind} {name!r} is not the format's", file=str(path))
    missing = sorted(expected.keys() - _LATER_TABLES - {name for _, name, _, _ in rows})
    if missing:
        raise TraceError(f"the table or index {missing[0]!r} is missing", file=str(path))
    _check_requirements(connection, path)


def _check_requirements(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a trace that says it would be misread by who does not know what it requires, or whose lists
    that decide how it is read are none.
    """
    sql = "SELECT key, value FROM meta WHERE key IN ('requires', 'stripped', 'zluda')"
    with sqlite_errors(path):
        found = dict(connection.execute(sql).fetchall())
    try:
        writer = json.loads(found.get("zluda", '""'))
        for key in ("requires", "stripped"):
            listed = json.loads(found.get(key, "[]"))
            if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
                raise TraceError(f"damaged: {key} in its meta is no list of names", file=str(path))
        unknown = sorted(set(json.loads(found.get("requires", "[]"))) - KNOWN_REQUIREMENTS)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"damaged: its meta cannot be read ({error})", file=str(path)) from error
    if unknown:
        by = f" (written by zluda {writer})" if writer else ""
        raise TraceError(
            f"requires {', '.join(unknown)}, which this zluda does not know{by}; update zluda", file=str(path)
        )


@cache
def schema_sql() -> str:
    return Path(__file__).with_name("schema.sql").read_text("utf-8")


def unknown_tables(connection: sqlite3.Connection) -> list[str]:
    """Tables that a later version, or somebody else, has added."""
    sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
    return sorted({str(name) for (name,) in connection.execute(sql)} - set(table_names()))


def is_optional(table: str) -> bool:
    """Whether a trace may lack the table."""
    return table in _LATER_TABLES


def has_table(connection: sqlite3.Connection, name: str, database: str = "main") -> bool:
    """Whether a trace has a table: some came after the first recordings of its version."""
    sql = f"SELECT 1 FROM {database}.sqlite_schema WHERE type = 'table' AND name = ?"
    return connection.execute(sql, (name,)).fetchone() is not None


def add_later_tables(connection: sqlite3.Connection) -> None:
    """Give a trace of an earlier recorder the tables that it lacks, empty."""
    for name in sorted(_LATER_TABLES):
        if not has_table(connection, name):
            connection.execute(_definitions()[name])


@cache
def table_names() -> tuple[str, ...]:
    """The format's tables, in the order in which the schema defines them."""
    return tuple(re.findall(r"^CREATE TABLE (\w+)", schema_sql(), re.MULTILINE))


@cache
def keys() -> dict[str, tuple[str, ...]]:
    """Of each table without rowid, the columns of its key, in order."""
    found: dict[str, tuple[str, ...]] = {}
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(schema_sql())
        for table in table_names():
            if _definitions()[table].endswith("WITHOUT ROWID"):
                columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
                ordered = sorted((row[5], row[1]) for row in columns if row[5])
                found[table] = tuple(name for _, name in ordered)
    return found


@cache
def _definitions() -> dict[str, str]:
    """Name of each table and index → its SQL, normalised."""
    found: dict[str, str] = {}
    for statement in re.sub(r"--[^\n]*", "", schema_sql()).split(";"):
        match = re.match(r"\s*CREATE (?:TABLE|INDEX) (\w+)", statement)
        if match:
            found[match[1]] = _normal(statement)
    return found


def _normal(sql: str) -> str:
    """Without comments and with single spaces: SQLite keeps the text of a definition as it was given."""
    return " ".join(re.sub(r"--[^\n]*", "", sql).split())


def _uri(path: Path) -> str:
    return path.absolute().as_uri()


def _distrust(connection: sqlite3.Connection) -> None:
    """Settings for a file that anybody may have written (SQLite, "Defense Against The Dark Arts")."""
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    connection.execute("PRAGMA mmap_size = 0")


def _tune_for_writing(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    # What a killed process wrote is safe with the system; only `fold` waits for the disk. With NORMAL a
    # recorder would wait at every checkpoint, and the application with it.
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA cache_size = -32768")
    connection.execute("PRAGMA wal_autocheckpoint = 4096")


def _quick_check(connection: sqlite3.Connection, path: Path) -> None:
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise TraceError(f"damaged: {' '.join(str(verdict).split())}", file=str(path))


def _fold_wal(path: Path) -> None:
    """A killed recorder leaves a WAL: fold it in; or, killed before it wrote one or after, a journal: take
    back what was under way. A recorder that is still at work keeps it, and that is fine.
    """
    wal, _, journal = sidecars(path)
    left = next((one for one in (wal, journal) if one.exists()), None)
    if left is None:
        return
    with sqlite_errors(path):
        connection = sqlite3.connect(f"{_uri(path)}?mode=rw", uri=True, isolation_level=None, timeout=1)
        try:
            _distrust(connection)
            fold(connection)
        except sqlite3.OperationalError as error:
            # Locked: a recorder writes to it right now. Otherwise no right to fold: a reader sees the WAL as
            # it is, if the index of it is there.
            if not any(word in str(error) for word in ("locked", "readonly", "unable to open")):
                raise
            if "locked" not in str(error) and not sidecars(path)[1].exists():
                raise TraceError(
                    f"a killed recorder left {left.name}, which cannot be folded in here ({error});"
                    " copy both to where they can be written",
                    file=str(path),
                ) from error
        finally:
            connection.close()
