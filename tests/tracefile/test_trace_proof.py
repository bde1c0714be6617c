"""What running a trace again on its GPU gave, kept in it and in its other forms."""

from __future__ import annotations

import io
import sqlite3
from pathlib import Path

import pytest
from trace_builder import TraceBuilder

from zluda.errors import TraceError
from zluda.tracefile import Noise, NoiseKind, TraceWriter, Unproved, open_trace
from zluda.tracefile.jsonl import read_jsonl, write_jsonl
from zluda.tracefile.salvage import check_whole, salvage
from zluda.tracefile.stripping import Part, strip

MASK = bytes([0b101, 0x80])
ELEMENTS = Noise(5, 1, NoiseKind.ELEMENTS, "f32", 64, 16, 0, 0, 2.5, 1e-7, False, 2)
SET = Noise(5, 2, NoiseKind.SET, "u32", 8, 0, 0, 8, None, None, True, 3)
PROVED = [Unproved(5, "noise", "atom.add.f32"), Unproved(6, "gap", "not captured")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "trace.bin"
    with TraceBuilder(path) as record:
        record.start()
        for _ in range(2):
            record.copy_in(record.allocate(256), bytes(range(256)))
    with TraceWriter.reopen(path) as writer:
        writer.set_proof([Unproved(0, "differs", "an earlier proof")], [(SET._replace(call=1), b"")])
        writer.set_proof(PROVED, [(ELEMENTS, MASK), (SET, b"")])
    return path


def proved(path: Path) -> tuple[list[Unproved], list[tuple[Noise, bytes]]]:
    with open_trace(path) as trace:
        check_whole(trace)
        masks = [(one._replace(mask=0), trace.noise_mask(one)) for one in trace.noise]
        return trace.unproved, masks


def test_the_last_proof_is_read_as_it_was_written(path: Path) -> None:
    assert proved(path) == (PROVED, [(ELEMENTS, MASK), (SET, b"")])


def test_it_goes_through_json_lines(path: Path, tmp_path: Path) -> None:
    stream = io.StringIO()
    with open_trace(path) as trace:
        write_jsonl(trace, stream)
    read_jsonl(stream.getvalue().splitlines(), tmp_path / "again.bin")
    assert proved(tmp_path / "again.bin") == proved(path)


def test_it_is_salvaged(path: Path, tmp_path: Path) -> None:
    assert salvage(path, tmp_path / "saved.bin") == {}
    assert proved(tmp_path / "saved.bin") == proved(path)


def test_a_mask_is_no_content(path: Path, tmp_path: Path) -> None:
    with open_trace(path) as trace:
        strip(trace, tmp_path / "bare.bin", [Part.CONTENTS])
    assert proved(tmp_path / "bare.bin") == proved(path)


@pytest.fixture
def earlier(path: Path) -> Path:
    """A trace of a recorder that proved nothing."""
    with sqlite3.connect(path) as connection:
        connection.executescript("DROP TABLE proof; DROP TABLE noise")
    return path


def test_a_trace_without_the_tables_is_whole(earlier: Path, tmp_path: Path) -> None:
    assert proved(earlier) == ([], [])
    assert salvage(earlier, tmp_path / "saved.bin") == {}
    with open_trace(earlier) as trace:
        strip(trace, tmp_path / "bare.bin", [Part.CONTENTS])
    assert proved(tmp_path / "bare.bin") == ([], [])
    with TraceWriter.reopen(earlier) as writer:
        writer.set_proof(PROVED, [])
    assert proved(earlier) == (PROVED, [])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("UPDATE noise SET kind = 'other'", "damaged: a row that cannot be read"),
        ("UPDATE noise SET row_bytes = 0", "damaged: a row that cannot be read"),
        ("UPDATE noise SET max_ulp = -1.0 WHERE allocation = 1", "damaged: a row that cannot be read"),
        ("UPDATE noise SET elements = 999 WHERE allocation = 1", "damaged: blob"),
        ("UPDATE noise SET mask = 999 WHERE allocation = 1", "rows of noise refer to what is not there"),
        ("UPDATE proof SET call = 999 WHERE call = 5", "rows of proof refer to what is not there"),
    ],
)
def test_a_damaged_proof_is_said(path: Path, tmp_path: Path, change: str, message: str) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(change)
    with pytest.raises(TraceError, match=message):
        proved(path)
    salvage(path, tmp_path / "saved.bin")
    with open_trace(tmp_path / "saved.bin") as trace:
        check_whole(trace)
