"""A verb that makes a file makes it whole, or leaves what is there as it was."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from zluda.errors import TraceError
from zluda.tracefile import TraceWriter, open_trace
from zluda.tracefile.jsonl import read_jsonl
from zluda.tracefile.replacing import replacing
from zluda.tracefile.salvage import salvage
from zluda.tracefile.stripping import Part, strip
from zluda.tracefile.subset import Cut, write_subset

HEAD = '{"format": "zluda trace", "version": 1}'
ROW = '{"table": "meta", "key": "k", "value": "1"}'
CUT = Cut(0, 0, frozenset(), frozenset(), frozenset(), state=False)


def write(path: Path, **meta: object) -> Path:
    with TraceWriter.create(path, meta) as writer:
        writer.add_calls([(0, 1, None, writer.signature("cuInit", []), 0, 1, 0, b"")])
    return path


def cut(source: Path, target: Path) -> None:
    with open_trace(source) as trace:
        write_subset(trace, target, CUT, {})


def stripped(source: Path, target: Path) -> None:
    with open_trace(source) as trace:
        strip(trace, target, [Part.NAMES])


def from_lines(source: Path, target: Path) -> None:
    read_jsonl([HEAD, ROW], target)


Make = Callable[[Path, Path], object]
MAKERS: list[Make] = [cut, stripped, salvage, from_lines]
READERS: list[Make] = [cut, stripped, salvage]


@pytest.mark.parametrize("make", MAKERS)
def test_a_trace_that_is_there_is_replaced_and_nothing_is_left_beside(make: Make, tmp_path: Path) -> None:
    source, target = write(tmp_path / "a.bin", number=1), write(tmp_path / "b.bin", old=True)
    (tmp_path / "b.bin-wal").write_bytes(b"of the trace that was there")
    make(source, target)
    with open_trace(target) as trace:
        assert "old" not in trace.meta
    assert {path.name for path in tmp_path.iterdir()} == {"a.bin", "b.bin"}


@pytest.mark.parametrize("make", MAKERS)
def test_what_is_no_trace_is_not_lost(make: Make, tmp_path: Path) -> None:
    source, note = write(tmp_path / "a.bin"), tmp_path / "note.txt"
    note.write_text("mine")
    with pytest.raises(TraceError, match="is not a trace; not replaced"):
        make(source, note)
    assert note.read_text() == "mine"


@pytest.mark.parametrize("make", READERS)
def test_the_source_is_never_written(make: Make, tmp_path: Path) -> None:
    source, other = write(tmp_path / "a.bin"), tmp_path / "link.bin"
    other.symlink_to(source)
    before = source.read_bytes()
    for name in (source, other):
        with pytest.raises(TraceError, match="choose another name"):
            make(source, name)
    assert source.read_bytes() == before


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none/x.bin", "there is no directory"),
        (".", "is a directory"),
        ("c.bin", "left of it is in c.bin.rings"),
    ],
)
def test_a_place_where_nothing_can_be_made_is_named(
    make: Make, name: str, message: str, tmp_path: Path
) -> None:
    source = write(tmp_path / "a.bin")
    (tmp_path / "c.bin.rings").mkdir()
    with pytest.raises(TraceError, match=message):
        make(source, tmp_path / name)
    assert {path.name for path in tmp_path.iterdir()} == {"a.bin", "c.bin.rings"}


def test_a_trace_does_not_go_to_standard_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TraceError, match="not written to standard output; name a file"):
        cut(write(tmp_path / "a.bin"), Path("-"))


def test_a_block_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    target = write(tmp_path / "a.bin", old=True)
    before = target.read_bytes()
    with pytest.raises(TraceError, match=r"a\.bin: disk full$"), replacing(target) as part:
        part.write_bytes(b"half")
        raise TraceError("disk full", file=str(part))
    assert target.read_bytes() == before and list(tmp_path.iterdir()) == [target]


def test_lines_that_are_none_cost_nothing(tmp_path: Path) -> None:
    target = write(tmp_path / "a.bin", old=True)
    before = target.read_bytes()
    with pytest.raises(TraceError, match="line 2"):
        read_jsonl([HEAD, "{"], target)
    assert target.read_bytes() == before and list(tmp_path.iterdir()) == [target]


def test_two_at_once_each_make_a_whole_trace(tmp_path: Path) -> None:
    source, target = write(tmp_path / "a.bin"), tmp_path / "b.bin"
    with replacing(target) as part:
        cut(source, part)
        cut(source, target)
        with open_trace(target) as trace:
            assert trace.counts().calls == 1
    with open_trace(target) as trace:
        assert trace.counts().calls == 1


@pytest.mark.parametrize("make", READERS)
def test_a_trace_that_others_read_and_cut_is_read(make: Make, tmp_path: Path) -> None:
    """Readers do not wait for one another."""
    source = write(tmp_path / "a.bin")
    with TraceWriter.reopen(source) as writer:
        signature = writer.signature("cuInit", [])
        writer.add_calls([(number, 1, None, signature, 0, 1, 0, b"") for number in range(1, 9)])
    with open_trace(source) as trace, closing(sqlite3.connect(source, isolation_level=None)) as other:
        calls = trace.iter_calls()
        next(calls)  # and is not done
        other.execute("BEGIN")
        other.execute("SELECT * FROM call").fetchone()
        make(source, tmp_path / "b.bin")
        assert len(list(calls)) == 8
        write_subset(trace, tmp_path / "c.bin", CUT, {})


def test_damage_met_while_copying_is_the_sources(tmp_path: Path) -> None:
    """Not the new file's, which is why its name would mislead."""
    source = write(tmp_path / "a.bin", text="x" * 20000)
    with open_trace(source) as trace:
        data = bytearray(source.read_bytes())
        at = data.index(b"x" * 5000)
        page = at // 8192 * 8192
        data[page : page + 8192] = bytes(8192)
        root = data.index(b"cuInit") // 8192 * 8192
        data[root : root + 8192] = b"\xff" * 8192
        source.write_bytes(data)
        with pytest.raises(TraceError, match=r"a\.bin: damaged"):
            write_subset(trace, tmp_path / "b.bin", CUT, {})
    assert not (tmp_path / "b.bin").exists()
