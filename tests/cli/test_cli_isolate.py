"""`zluda isolate` where there is little to isolate: what it says, and its exit status."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import zluda
import zluda.cli.main
from zluda.diff.results import LaunchResult, ReplayResult, Verdict

SAXPY = Path(__file__).parents[2] / "corpus" / "saxpy" / "trace.bin"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs ``zluda isolate …`` on the CPU; ``verdict`` is what every launch is found to be in the stream."""

    def run(*arguments: object, verdict: Verdict = Verdict.IDENTICAL) -> tuple[int, str, str]:
        def replay(file: str, **options: object) -> ReplayResult:
            results = [LaunchResult(466, "launch", "k", verdict, "a reason")]
            return ReplayResult(file, "cpu", False, "nvidia", results, 1.0)

        monkeypatch.setattr(zluda, "replay", replay)
        monkeypatch.setattr(sys, "argv", ["zluda", "isolate", *map(str, arguments), "-d", "cpu"])
        with pytest.raises(SystemExit) as exit:
            zluda.cli.main.main()
        captured = capsys.readouterr()
        return int(exit.value.code or 0), captured.out, captured.err

    return run


def test_where_all_holds_nothing_is_at_fault(run: Any) -> None:
    assert run(SAXPY)[:2] == (0, "nothing fails: 1 launch identical on cpu\n")
    assert json.loads(run(SAXPY, "--json")[1])["layer"] == "none"


def test_what_could_not_be_judged_is_not_said_to_hold(run: Any) -> None:
    status, out, _ = run(SAXPY, verdict=Verdict.GAP)
    assert status == 2 and "could not be judged" in out
    status, out, _ = run(SAXPY, "--json", verdict=Verdict.GAP)
    assert status == 2 and json.loads(out)["layer"] == "cannot tell"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--launch", 0), "neither launches a kernel nor copies"),
        (("--launch", 99999), "99999"),
        (("--launch", 10**30), f"{10**30}: no such call"),
        (("--numerics", "exact"), "exact"),
        (("--seconds", 5), "--seconds says how long --reduce looks"),
        (("--reduce", __file__), "is no directory"),
        (("--reduce", Path(__file__).parent), "holds other files"),
        (("--reduce", "/dev/null/repro"), "/dev/null is no directory"),
    ],
)
def test_bad_input_is_one_line_and_exits_2(run: Any, arguments: tuple[object, ...], words: str) -> None:
    status, out, err = run(SAXPY, *arguments)
    assert (status, out) == (2, "")
    assert words in err and len(err.splitlines()) == 1
