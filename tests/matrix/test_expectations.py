"""Files of what is known to fail: how they are read, what they make of a cell, how they are written anew."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from zluda.errors import Error
from zluda.matrix.expectations import file_of, parse, read_expectations, regenerated
from zluda.matrix.states import exit_status

TODAY = datetime.date(2026, 12, 1)
TEXT = """
# a comment
unsupported      cupy_.*/native   # cuBLAS is not there (until 2026-12-01)
differs,crash    nbody/.*         # off by one ULP, issue 12
flaky            histogram/native # any order
skip             vision/.*        # takes an hour
differs          old/.*           # long mended (until 2026-11-30)
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    file_of(tmp_path, "cuda:0").write_text(TEXT)
    return tmp_path


@pytest.mark.parametrize(
    ("program", "numerics", "found", "state"),
    [
        ("cupy_random", "native", "unsupported", "expected-fail"),
        ("cupy_random", "nvidia", "unsupported", "unsupported"),  # the line is of native numerics
        ("cupy_random", "native", "differs", "differs"),  # fails, but not as expected
        ("cupy_random", "native", "identical", "unexpected-pass"),
        ("nbody", "native", "crash", "expected-fail"),
        ("nbody2", "native", "crash", "crash"),  # a pattern is for the whole name
        ("nbody", "native", "within", "unexpected-pass"),
        ("nbody", "native", "infrastructure", "infrastructure"),  # says nothing of the program
        ("nbody", "native", "not-run", "not-run"),
        ("histogram", "native", "flaky", "expected-fail"),
        ("histogram", "native", "identical", "identical"),  # what is flaky may pass
        ("histogram", "native", "differs", "differs"),
        ("old", "native", "differs", "differs"),  # expired
    ],
)
def test_judges_a_cell(directory: Path, program: str, numerics: str, found: str, state: str) -> None:
    known = read_expectations(directory, ["cuda:0", "cpu"], today=TODAY)
    assert known.judge(program, "cuda:0", numerics, found).state == state
    assert known.judge(program, "cpu", numerics, found).state == found  # which has no file


def test_tells_of_lines_that_expired_or_fit_nothing(directory: Path) -> None:
    known = read_expectations(directory, ["cuda:0"], today=TODAY)
    assert [line.reason for line in known.expired()] == ["long mended"]
    seen = [("nbody", "cuda:0", "native"), ("old", "cuda:0", "native"), ("vision", "cpu", "native")]
    assert [line.text.split()[1] for line in known.unused(seen)] == [
        "cupy_.*/native",
        "histogram/native",
        "vision/.*",
    ]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("differs nbody/.*", "expected WHAT PATTERN # REASON"),
        ("differs nbody/.* #", "expected WHAT PATTERN # REASON"),
        ("identical nbody/.* # fine", "'identical': expected some of"),
        ("not-run nbody/.* # gone", "'not-run'"),
        ("differs nbody/( # why", "unterminated subpattern"),
        ("differs nbody/.* # why (until 2026-02-30)", "day"),
    ],
)
def test_refuses_a_line_with_its_place(tmp_path: Path, line: str, what: str) -> None:
    file_of(tmp_path, "cpu").write_text(f"# first\n{line}\n")
    with pytest.raises(Error, match=r"cpu\.txt:2") as error:
        read_expectations(tmp_path, ["cpu"])
    assert what in str(error.value)


def test_a_file_written_anew_makes_the_run_as_expected(directory: Path) -> None:
    cells = [
        ("cupy_random", "native", "identical", ""),  # its line goes
        ("nbody", "native", "crash", "signal 11"),  # its line stays
        ("saxpy", "native", "differs", "#4 saxpy(int, float):\n differs"),
        ("old", "native", "differs", ""),
        ("vision", "native", "not-run", "skipped"),
        ("sound", "native", "identical", ""),
    ]
    file = file_of(directory, "cuda:0")
    text = regenerated(parse(file), cells, device="cuda:0", today=TODAY, days=10)
    file.write_text(text)
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert lines[:3] == [line for line in TEXT.splitlines() if line[:4] in ("diff", "flak", "skip")][:3]
    assert (
        len(lines) == 5
        and "saxpy" in lines[4]
        and lines[4].endswith("# #4 saxpy(int, float): differs (until 2026-12-11)")
    )
    known = read_expectations(directory, ["cuda:0"], today=TODAY)
    judged = [known.judge(name, "cuda:0", numerics, found).state for name, numerics, found, _ in cells]
    assert judged == ["identical", "expected-fail", "expected-fail", "expected-fail", "not-run", "identical"]
    assert regenerated(parse(file), cells, device="cuda:0", today=TODAY, days=10) == text


@pytest.mark.parametrize(
    ("states", "strict", "status"),
    [
        (["identical", "within", "expected-fail"], False, 0),
        (["expected-fail"], False, 0),
        (["identical", "unexpected-pass"], False, 0),
        (["identical", "unexpected-pass"], True, 1),
        (["identical", "flaky"], False, 1),
        (["identical", "differs", "not-run"], False, 1),
        (["identical", "not-run"], False, 2),
        (["identical", "infrastructure"], False, 2),
        (["not-compared"], False, 2),
        ([], False, 2),
    ],
)
def test_exit_status(states: list[str], strict: bool, status: int) -> None:
    assert exit_status(states, strict=strict) == status


def test_exit_status_accepts_what_is_allowed_and_nothing_that_fails() -> None:
    assert (
        exit_status(["identical", "unsupported", "not-run"], strict=False, allow=["unsupported", "not-run"])
        == 0
    )
    assert exit_status(["unsupported"], strict=False, allow=["unsupported"]) == 2  # nothing was compared
