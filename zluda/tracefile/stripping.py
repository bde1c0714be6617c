"""Taking things out of a trace before it is shared: machine code, contents, what names the machine.

``strip`` writes a copy; the source stays. What was taken out is in `meta` under ``stripped``, and whoever
needs it is told so by name: the reader of contents, ``replay``, ``diff``.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from enum import StrEnum
from pathlib import Path

from zluda.errors import TraceError
from zluda.tracefile import schema
from zluda.tracefile.reader import Trace
from zluda.tracefile.writer import TraceWriter

STRIPPED = "stripped"
"""The `meta` key: a list of what was taken out."""


class Part(StrEnum):
    """What can be taken out of a trace."""

    MACHINE_CODE = "machine-code"  # images of modules whose PTX is on record, but for that PTX
    CONTENTS = "contents"  # bytes of memory and of arguments: the digest of each stays
    NAMES = "names"  # command, directories, host: what says whose machine it was


def require(trace: Trace, part: Part, done: str) -> None:
    """Raises :class:`TraceError` where ``part`` was taken out of a trace that is to be ``done`` something."""
    if part.value in trace.meta.get(STRIPPED, ()):
        what = part.value.replace("-", " ")
        raise TraceError(f"was stripped of {what}, and cannot be {done} without", file=str(trace.path))


_NAMES = ("command", "working_directory", "host", "libcuda", "environment")

_NO_MACHINE_CODE = """
DELETE FROM image WHERE kind != 'ptx' AND module IN (SELECT module FROM image WHERE kind = 'ptx')
"""

# Contents of memory, and what arguments pointed to; a kernel's name and a module's PTX are neither.
_NO_CONTENTS = """
UPDATE blob SET data = x'' WHERE id IN (SELECT blob FROM page UNION SELECT blob FROM payload)
    AND id NOT IN (SELECT blob FROM image UNION SELECT mask FROM noise)
"""

# Files that modules were loaded from.
_FILE_NAMES = """
DELETE FROM payload WHERE parameter = 1 AND call IN (
    SELECT sequence FROM call JOIN signature ON call.signature = signature.id
    WHERE function IN ('cuModuleLoad', 'cuLibraryLoadFromFile'))
"""

_NO_NAMES = (
    _FILE_NAMES,
    f"DELETE FROM meta WHERE key IN ({', '.join(repr(name) for name in _NAMES)})",
    "UPDATE module SET origin = last_names(origin)",
    "UPDATE image SET origin = last_names(origin)",
    "UPDATE gap SET text = last_names(text)",
)

_ABSOLUTE = re.compile(r"(?<![\w.])/(?:[^/\s]+/)*([^/\s]+)")


def _last_names(text: str) -> str:
    """A text whose absolute paths are cut to their last names."""
    return _ABSOLUTE.sub(r"\1", text)


_UNUSED_BLOBS = f"DELETE FROM blob WHERE id NOT IN ({schema.USED_BLOBS})"


def _run(*statements: str) -> Callable[[sqlite3.Connection], None]:
    def run(connection: sqlite3.Connection) -> None:
        for statement in statements:
            connection.execute(statement)

    return run


_TAKE_OUT: dict[Part, Callable[[sqlite3.Connection], None]] = {
    Part.MACHINE_CODE: _run(_NO_MACHINE_CODE),
    Part.CONTENTS: _run(_NO_CONTENTS),
    Part.NAMES: _run(*_NO_NAMES),
}


def strip(source: Trace, target: Path, parts: Iterable[Part]) -> None:
    """Write ``source`` without ``parts`` to ``target``.

    Raises :class:`TraceError` where ``target`` is the source, or is there and is no trace.
    """
    chosen = sorted(set(parts))
    if target.exists() and target.samefile(source.path):
        raise TraceError("is the trace that is stripped; choose another name", file=str(target))
    schema.check_replaceable(target)
    with schema.sqlite_errors(target):
        for name in (target, *schema.sidecars(target)):
            name.unlink(missing_ok=True)
        with (
            closing(sqlite3.connect(source.path)) as original,
            closing(sqlite3.connect(target, isolation_level=None)) as copy,
        ):
            original.backup(copy)
            copy.create_function("last_names", 1, _last_names, deterministic=True)
            copy.execute("BEGIN IMMEDIATE")
            schema.add_later_tables(copy)
            for table in schema.unknown_tables(copy):  # nobody here knows what is in it
                copy.execute('DROP TABLE "{}"'.format(table.replace('"', '""')))
            for part in chosen:
                _TAKE_OUT[part](copy)
            copy.execute(_UNUSED_BLOBS)
            copy.execute("COMMIT")
            copy.execute("PRAGMA secure_delete = ON")
            copy.execute("VACUUM")  # what was taken out must not stay in free pages
    with TraceWriter.reopen(target) as writer:
        before = source.meta.get(STRIPPED, [])
        writer.set_meta({STRIPPED: sorted({*before, *(part.value for part in chosen)})})
