"""What docs/trace-format.md promises: traces of every version are read, and replay, the same for ever.

``golden/v1`` was made by the recorder and writer of version 1: ``varying_sums`` and ``varying_append`` are
``tests/trace/gpu/varying.cu`` on an H200 (2026-11-30, driver 580.159), proved, names taken out; ``every_row``
has a row of every kind (``tests/support/golden.py``). Two of ``tests/replay/data``, which earlier recorders
of version 1 made, lack the optional tables. Never make these files anew: a reader that cannot take them
breaks the promise, and a change of the format gets a version, and golden traces, of its own.
"""

from __future__ import annotations

import io
import json
import re
import sqlite3
from enum import Enum
from pathlib import Path

import pytest
from golden import describe

import zluda
from zluda.cli.main import command
from zluda.tracefile import (
    AllocationKind,
    Direction,
    Fidelity,
    LeftOut,
    ModuleKind,
    NoiseKind,
    open_trace,
    schema,
)
from zluda.tracefile.jsonl import read_jsonl, write_jsonl
from zluda.tracefile.libraries import library_of
from zluda.tracefile.salvage import check_whole

VERSION_1 = Path(__file__).parent / "golden" / "v1"
EARLIER = Path(__file__).parents[1] / "replay" / "data"
GOLDEN = {
    path.stem: next(p for d in (VERSION_1, EARLIER) if (p := d / f"{path.stem}.bin").exists())
    for path in sorted(VERSION_1.glob("*.json"))
}


def expected(name: str) -> dict[str, object]:
    found: dict[str, object] = json.loads((VERSION_1 / f"{name}.json").read_text())
    return found


def described(path: Path) -> dict[str, object]:
    with open_trace(path) as trace:
        check_whole(trace)
        found: dict[str, object] = json.loads(json.dumps(describe(trace)))
    return found


def test_there_are_golden_traces() -> None:
    assert set(GOLDEN) == {"every_row", "graph_captured", "memory_managed", "varying_append", "varying_sums"}


@pytest.mark.parametrize("name", GOLDEN)
def test_a_golden_trace_holds_what_it_held(name: str) -> None:
    found = described(GOLDEN[name])
    for what, value in expected(name).items():
        assert found[what] == value, what


@pytest.mark.parametrize("name", GOLDEN)
def test_json_lines_keep_all_of_it(name: str, tmp_path: Path) -> None:
    stream = io.StringIO()
    with open_trace(GOLDEN[name]) as trace:
        write_jsonl(trace, stream)
    read_jsonl(stream.getvalue().splitlines(), tmp_path / "again.bin")
    assert described(tmp_path / "again.bin") == described(GOLDEN[name])


@pytest.mark.parametrize("name", ["varying_append", "varying_sums"])
def test_a_golden_trace_replays_as_it_did(name: str) -> None:
    result = zluda.replay(GOLDEN[name], device="cpu")
    assert [one.verdict.value for one in result.results] == ["noise"] * 4 + ["identical"]


# --- what may not change, and how additions are made ---------------------------------------------------


def definitions(sql: str) -> dict[str, str]:
    """Each table and index by its name, without comments."""
    text = re.sub(r"--[^\n]*", "", sql)
    statements = (" ".join(one.split()) for one in text.split(";"))
    return {one.split()[2]: one for one in statements if one}


def test_no_table_of_version_1_changes() -> None:
    frozen = definitions((VERSION_1 / "schema.sql").read_text())
    now = definitions(schema.schema_sql())
    assert {name: now.get(name) for name in frozen} == frozen
    added = {name for name in now.keys() - frozen.keys() if now[name].startswith("CREATE TABLE")}
    assert all(schema.is_optional(name) for name in added), "a table that is added must be optional"


def test_the_golden_traces_have_a_row_of_every_table() -> None:
    filled: set[str] = set()
    for path in GOLDEN.values():
        with sqlite3.connect(path) as connection:
            tables = [n for n in schema.table_names() if schema.has_table(connection, n)]
            filled |= {t for t in tables if connection.execute(f"SELECT 1 FROM {t} LIMIT 1").fetchone()}
    assert filled == set(schema.table_names())


WORDS: list[tuple[type[Enum], str, str]] = [
    (AllocationKind, "allocation", "kind"),
    (ModuleKind, "module", "kind"),
    (Fidelity, "shape", "fidelity"),
    (NoiseKind, "noise", "kind"),
    (LeftOut, "launch", "captured"),
]


@pytest.mark.parametrize(("words", "table", "column"), WORDS)
def test_every_word_of_version_1_is_in_a_golden_trace(words: type[Enum], table: str, column: str) -> None:
    """A word that is added would be read as damage by readers of version 1: it needs `requires`."""
    with sqlite3.connect(GOLDEN["every_row"]) as connection:
        found = {value for (value,) in connection.execute(f"SELECT {column} FROM {table}")}
    assert {word.value for word in words} == found - {0, 1}


def test_payloads_have_two_directions() -> None:
    with open_trace(GOLDEN["every_row"]) as trace:
        found = {payload.direction for payload in trace.payloads(1)}
    assert found == {Direction.IN, Direction.OUT}


# --- what version 1 does with what it does not know ----------------------------------------------------


@pytest.fixture
def later(tmp_path: Path) -> Path:
    """A golden trace as a later recorder of version 1 may have made it: more tables, and more in `meta`."""
    path = tmp_path / "later.bin"
    path.write_bytes(GOLDEN["every_row"].read_bytes())
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE more (id INTEGER PRIMARY KEY, what BLOB) STRICT")
        connection.execute("CREATE INDEX more_of_what ON more(what)")
        connection.execute("INSERT INTO more (what) VALUES (x'00')")
        connection.execute("INSERT INTO meta VALUES ('more', '{\"a\": [1]}')")
        connection.execute("INSERT INTO gap (kind, text, count) VALUES ('a later kind', 'why', 1)")
    return path


def test_additions_are_passed_over(later: Path) -> None:
    found = described(later)
    gaps = found.pop("gaps"), expected("every_row").pop("gaps")
    assert [one["count"] for one in gaps] == [3, 2]  # type: ignore[index]
    assert found.pop("meta")["more"] == {"a": [1]}  # type: ignore[index]
    for what, value in found.items():
        assert value == expected("every_row")[what], what


@pytest.mark.parametrize("verb", ["info", "dump", "strip", "replay", "convert", "trim"])
def test_a_newer_version_is_refused_by_its_number(
    later: Path, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with sqlite3.connect(later) as connection:
        connection.execute("PRAGMA user_version = 2")
    more = {
        "strip": ["--names", "-o", "x"],
        "convert": ["-", "--to", "jsonl"],
        "trim": ["--select", "0-1", "-o", "x"],
    }
    with pytest.raises(zluda.errors.TraceError, match="trace format 2, newer than this zluda reads"):
        command.main([verb, str(later), *more.get(verb, [])], standalone_mode=False)


def test_a_version_is_in_the_table_of_the_docs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "trace-format.md").read_text()
    assert re.findall(r"^\| (\d+) \|", page, re.MULTILINE) == [
        str(n) for n in range(1, schema.USER_VERSION + 1)
    ]


@pytest.mark.parametrize(
    ("function", "library"),
    [
        ("cublasSgemm_v2", "cuBLAS"),
        ("cutensorContract", "another library"),  # which no recorder of this version knows
        ("nvfatbinAddPTX", "another library"),
        ("cuLaunchKernel", None),
        ("cudbgApiInit", None),
        ("nvtxRangePushA", None),
        ("zluda_state", None),
    ],
)
def test_calls_of_libraries_that_come_later_are_told_from_the_drivers(
    function: str, library: str | None
) -> None:
    assert library_of(function) == library
