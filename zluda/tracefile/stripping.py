"""Taking things out of a trace before it is shared: machine code, modules that no replay needs, contents,
what names the machine.

``strip`` writes a copy; the source stays. What was taken out is in `meta` under ``stripped``, and whoever
needs it is told so by name: the reader of contents, ``replay``, ``diff``.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import Any

from zluda.errors import TraceError
from zluda.tracefile import schema
from zluda.tracefile.blobs import BlobReader, BlobStore
from zluda.tracefile.reader import Trace
from zluda.tracefile.records import PAYLOAD_BYTES
from zluda.tracefile.replacing import replacing
from zluda.tracefile.subset import errors_of_copying
from zluda.tracefile.writer import TraceWriter

STRIPPED = "stripped"
"""The `meta` key: a list of what was taken out."""


class Part(StrEnum):
    """What can be taken out of a trace."""

    MACHINE_CODE = "machine-code"  # images of modules whose PTX is on record, but for that PTX
    UNUSED = "unused"  # images of modules of which no launch has its memory on record
    CONTENTS = "contents"  # bytes of memory and of arguments: the digest of each stays
    NAMES = "names"  # command, directories, host: what says whose machine it was


def require(trace: Trace, part: Part, done: str) -> None:
    """Raises :class:`TraceError` where ``part`` was taken out of a trace that is to be ``done`` something."""
    if part.value in trace.meta.get(STRIPPED, ()):
        what = part.value.replace("-", " ")
        raise TraceError(f"was stripped of {what}, and cannot be {done} without", file=str(trace.path))


_NAMES = ("command", "working_directory", "host", "libcuda", "environment")

# PTX for newer GPUs than the recorded one (`compute_120`) does not stand for the machine code that ran there.
_NO_MACHINE_CODE = """
DELETE FROM image WHERE kind != 'ptx' AND architecture IS NOT 'signatures' AND module IN (
    SELECT module FROM image WHERE kind = 'ptx' AND CAST(substr(architecture, 9) AS INTEGER) <= :capability)
"""

# In a graph no launch is looked at by itself. A variable of a module may be reached by launches of others:
# where its contents are on record, it is used.
_NO_UNUSED = """
DELETE FROM image WHERE module NOT IN (
    SELECT module FROM function JOIN shape ON function = function.id JOIN launch ON shape = shape.id
        WHERE captured < 2 AND module IS NOT NULL
    UNION SELECT module FROM allocation JOIN page ON page.allocation = allocation.id WHERE module IS NOT NULL)
"""

# Contents of memory, and what arguments pointed to; a kernel's name and a module's PTX are neither.
_NO_CONTENTS = """
UPDATE blob SET data = x'' WHERE id IN (SELECT blob FROM page UNION SELECT blob FROM payload)
    AND id NOT IN (SELECT blob FROM image UNION SELECT mask FROM noise)
"""

# Parameters that name files, and those with texts in which files are named.
_FILES = frozenset(
    {"fname", "fileName", "path", "pathToFile", "configFile", "outputFile", "logFile", "installPath"}
)
_NAMING = frozenset({"name", "options", "includeNames"})

_NO_NAMES = (
    f"DELETE FROM meta WHERE key IN ({', '.join(repr(name) for name in _NAMES)})",
    "UPDATE meta SET value = in_json(value)",
    "UPDATE module SET origin = last_names(origin)",
    "UPDATE image SET origin = last_names(origin)",
    "UPDATE gap SET text = last_absolute_names(text)",
    "UPDATE proof SET reason = last_absolute_names(reason)",
)

# What a replay by the recording GPU says of an element that differs (replay/proof.py).
_NO_VALUES = ("UPDATE meta SET value = in_json(value)", "UPDATE proof SET reason = without_values(reason)")

# A path may hold blanks: it goes on to the last slash before what ends it.
_ABSOLUTE = re.compile(r"(?<![\w.])/(?=\S)(?:[^:;,(\n]*/)?")
_ANY_PATH = re.compile(r"[^\s=]*/(?=\S)(?:.*/)?")
_VALUES = re.compile(r"recorded [^;]+?, replayed [^;]+")


def _last_names(text: str) -> str:
    """A text whose paths are cut to their last names."""
    return _ANY_PATH.sub("", text)


def _last_absolute_names(text: str) -> str:
    """The same for paths from the root on: in sentences, where a slash may stand between words."""
    return _ABSOLUTE.sub("", text)


def _without_values(text: str) -> str:
    """A text that does not tell what an element was."""
    return _VALUES.sub("recorded and replayed values stripped", text)


def _drop_machine_code(copy: sqlite3.Connection, source: Trace) -> None:
    major, minor = source.meta.get(
        "compute_capability", (99, 0)
    )  # where it is not known, PTX is taken for what ran
    copy.execute(_NO_MACHINE_CODE, {"capability": 10 * major + minor})


def _drop_unused(copy: sqlite3.Connection, source: Trace) -> None:
    copy.execute(_NO_UNUSED)


def _hide_names(copy: sqlite3.Connection, source: Trace) -> None:
    _define(copy, _last_absolute_names)
    for statement in _NO_NAMES:
        copy.execute(statement)
    _hide_file_names(copy, source)


def _hide_contents(copy: sqlite3.Connection, source: Trace) -> None:
    _define(copy, _without_values)
    for statement in (_NO_CONTENTS, *_NO_VALUES):
        copy.execute(statement)


def _define(copy: sqlite3.Connection, hide: Callable[[str], str]) -> None:
    """The functions that the statements use; ``in_json`` does ``hide`` to each text of a JSON value."""
    texts = {"last_names": _last_names, "last_absolute_names": _last_absolute_names}
    for name, function in {**texts, "without_values": _without_values}.items():
        copy.create_function(name, 1, function, deterministic=True)
    copy.create_function("in_json", 1, lambda text: json.dumps(_deep(json.loads(text), hide)))


def _deep(value: Any, hide: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, list):
        return [_deep(one, hide) for one in value]
    if isinstance(value, dict):
        return {key: _deep(one, hide) for key, one in value.items()}
    return value


def _hide_file_names(copy: sqlite3.Connection, source: Trace) -> None:
    """Take out what names a file among the texts that calls were given, and cut paths in the others: what a
    compiler is told, say.
    """
    copy.execute(
        "CREATE TEMP TABLE text (signature, parameter, file, naming, PRIMARY KEY (signature, parameter))"
    )
    for number, signature in source.signatures.items():
        for index, one in enumerate(signature.parameters):
            if "char" in one.type and "unsigned char" not in one.type:
                row = (number, index, one.name in _FILES, one.name in _NAMING)
                copy.execute("INSERT INTO text VALUES (?, ?, ?, ?)", row)
    given = "payload JOIN call ON payload.call = sequence JOIN text USING (signature, parameter)"
    copy.execute(f"DELETE FROM payload WHERE id IN (SELECT payload.id FROM {given} WHERE file)")
    reader, store = BlobReader(copy, str(source.path)), BlobStore(copy)
    stored = f"{given} JOIN blob ON blob.id = blob WHERE length(data) > 0 AND direction = 'in'"
    found = copy.execute(f"SELECT payload.id, blob, length, naming FROM {stored}").fetchall()
    for number, blob, length, naming in found:
        whole = reader.get(blob, length, limit=PAYLOAD_BYTES)
        short = _shortened(whole, _last_names if naming else _last_absolute_names)
        if short != whole:
            change = (store.put(short), len(short), number)
            copy.execute("UPDATE payload SET blob = ?, length = ? WHERE id = ?", change)


def _shortened(texts: bytes, hide: Callable[[str], str]) -> bytes:
    """Texts that end with a zero each."""
    parts = texts.decode("utf-8", "surrogateescape").split("\0")
    return "\0".join(map(hide, parts)).encode("utf-8", "surrogateescape")


_UNUSED_BLOBS = f"DELETE FROM blob WHERE id NOT IN ({schema.USED_BLOBS})"


_TAKE_OUT: dict[Part, Callable[[sqlite3.Connection, Trace], None]] = {
    Part.MACHINE_CODE: _drop_machine_code,
    Part.UNUSED: _drop_unused,
    Part.CONTENTS: _hide_contents,
    Part.NAMES: _hide_names,
}


def strip(source: Trace, target: Path, parts: Iterable[Part]) -> None:
    """Write ``source`` without ``parts`` to ``target``.

    Raises :class:`TraceError` where ``target`` is the source, or is there and is no trace, or cannot be
    written; what was there is then left as it was.
    """
    chosen = sorted(set(parts))
    with replacing(target, source=source.path) as part:
        with (
            errors_of_copying(source.path, part),
            closing(sqlite3.connect(source.path)) as original,
            closing(sqlite3.connect(part, isolation_level=None)) as copy,
        ):
            original.backup(copy)
            copy.execute("BEGIN IMMEDIATE")
            schema.add_later_tables(copy)
            for table in schema.unknown_tables(copy):  # nobody here knows what is in it
                copy.execute('DROP TABLE "{}"'.format(table.replace('"', '""')))
            for one in chosen:
                _TAKE_OUT[one](copy, source)
            copy.execute(_UNUSED_BLOBS)
            copy.execute("COMMIT")
            copy.execute("PRAGMA secure_delete = ON")
            schema.compact(copy)  # what was taken out must not stay in free pages
        with TraceWriter.reopen(part) as writer:
            if chosen:
                before = source.meta.get(STRIPPED, [])
                writer.set_meta({STRIPPED: sorted({*before, *(one.value for one in chosen)})})
