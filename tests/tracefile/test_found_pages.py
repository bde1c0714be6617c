"""Contents that no call made: kept apart from what the call before did, in every form that a trace has."""

from __future__ import annotations

import io
import sqlite3
from pathlib import Path

import pytest

from zluda.errors import TraceError
from zluda.tracefile import PAGE_BYTES, Trace, TraceWriter, open_trace
from zluda.tracefile.jsonl import read_jsonl, write_jsonl
from zluda.tracefile.salvage import check_whole, salvage
from zluda.tracefile.subset import Cut, write_subset

BASE = 0x7F00_0000_0000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Call 1 writes, the host writes, call 3 writes."""
    with TraceWriter.create(tmp_path / "t.bin") as writer:
        signature = writer.signature("cuAny", [])
        writer.add_calls((number, 1, None, signature, number, number, 0, b"") for number in range(5))
        a = writer.add_allocation(0, BASE, 2 * PAGE_BYTES)
        writer.add_page(1, a, 0, b"made by 1")
        writer.add_page(1, a, 0, b"host" * (PAGE_BYTES // 2), found=True)
        writer.add_page(3, a, 0, b"by 3")
    return tmp_path / "t.bin"


def check(trace: Trace) -> None:
    """What is made and what is found are told apart."""
    assert [(p.offset, p.length) for p in trace.pages(1)] == [(0, 9)]
    assert [p.offset for p in trace.found_pages(1)] == [0, PAGE_BYTES]
    assert (len(trace.pages(3)), trace.found_pages(3)) == (1, [])
    assert trace.read_allocation(1, 1, 0, 9, as_left=True) == (b"made by 1", None)
    assert trace.read_allocation(1, 1, 0, 9) == (b"hosthosth", None)
    assert trace.read_allocation(1, 2, 0, 9, as_left=True) == (b"hosthosth", None)
    assert trace.read_allocation(1, 3, 0, 9, as_left=True) == (b"by 3hosth", None)


def test_what_was_found_is_no_doing_of_the_call_before(path: Path) -> None:
    with open_trace(path) as trace:
        check(trace)
        assert trace.calls_with_pages == {1, 3}
        assert trace.allocations_with_pages == {1}
        check_whole(trace)


def test_a_trace_of_an_earlier_recorder_has_no_such_table(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE found_page")
    with open_trace(path) as trace:
        assert (len(trace.pages(1)), trace.found_pages(1)) == (3, [])
        assert trace.read_allocation(1, 1, 0, 9, as_left=True) == (b"hosthosth", None)
        check_whole(trace)
    TraceWriter.reopen(path).close()  # what goes on with it has the table
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM found_page").fetchone() == (0,)


def test_it_stays_apart_in_parts_lines_and_what_is_recovered(path: Path, tmp_path: Path) -> None:
    everything = Cut(0, 4, frozenset(range(5)), frozenset(), frozenset({1}), state=False)
    with open_trace(path) as trace:
        write_subset(trace, tmp_path / "part.bin", everything, {})
        lines = io.StringIO()
        write_jsonl(trace, lines)
    read_jsonl(lines.getvalue().splitlines(), tmp_path / "lines.bin")
    assert salvage(path, tmp_path / "whole.bin") == {}
    for name in ("part", "lines", "whole"):
        with open_trace(tmp_path / f"{name}.bin") as copy:
            check(copy)


def test_a_part_of_an_earlier_trace(path: Path, tmp_path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE found_page")
    with open_trace(path) as trace:
        everything = Cut(0, 4, frozenset(range(5)), frozenset(), frozenset({1}), state=False)
        write_subset(trace, tmp_path / "part.bin", everything, {})
    with open_trace(tmp_path / "part.bin") as part:
        assert len(part.pages(1)) == 3


def test_a_mark_without_its_row_is_damage(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO found_page VALUES (99)")
    with open_trace(path) as trace, pytest.raises(TraceError, match="found_page refer to what is not there"):
        check_whole(trace)
