"""What a replay leaves: its result as an object and as JSON, its memory as a trace."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from kernels import LAYOUT, MODULE, add, added, parameters, ramp
from replay_case import Case

import zluda
from zluda.diff.results import ReplayResult, Verdict
from zluda.diff.traces import compare_traces
from zluda.errors import DeviceError, TraceError, UnsupportedError
from zluda.tracefile import open_trace

COUNT = 64
SIZE = 4 * COUNT


def program(case: Case) -> None:
    """Two launches and a copy."""
    record = case.record
    record.start()
    kernel = record.function(record.module(MODULE), "add", LAYOUT)
    x, y = record.allocate(SIZE), record.allocate(SIZE)
    record.copy_in(x, ramp(COUNT))
    record.copy_in(y, ramp(COUNT, 0.5))
    for _ in range(2):
        record.launch(kernel, parameters(x, y, COUNT), {x: added(record.read(x, SIZE), record.read(y, SIZE))})
    record.copy_out(x, SIZE)


def diff(first: Path, second: Path) -> ReplayResult:
    with open_trace(first) as left, open_trace(second) as right:
        return compare_traces(left, right)


def test_a_replay_kept_as_a_trace_equals_the_record(case: Case, tmp_path: Path) -> None:
    program(case)
    kept = tmp_path / "replayed.bin"
    case.replay({"add": add}, output=kept)
    result = diff(case.path, kept)
    assert [one.verdict for one in result.results] == [Verdict.IDENTICAL] * 3
    with open_trace(kept) as trace, open_trace(case.path) as record:
        assert trace.counts().calls == record.counts().calls
        assert trace.meta["device"] == "cpu"
        assert list(trace.iter_calls()) == list(record.iter_calls())


def test_a_kept_replay_can_be_replayed(case: Case, tmp_path: Path) -> None:
    program(case)
    kept = tmp_path / "replayed.bin"
    case.replay({"add": add}, output=kept)
    result = zluda.replay(kept, device="cpu")
    assert [one.verdict for one in result.results] == [Verdict.IDENTICAL] * 3


def test_a_kept_replay_shows_its_differences(case: Case, tmp_path: Path) -> None:
    program(case)
    kept = tmp_path / "replayed.bin"
    case.replay({"add": lambda *_: None}, output=kept)
    result = diff(case.path, kept)
    assert [one.verdict for one in result.results] == [Verdict.DIFFERS, Verdict.INHERITED, Verdict.INHERITED]


def test_launches_that_did_not_run_are_gaps_of_the_kept_replay(case: Case, tmp_path: Path) -> None:
    program(case)
    kept = tmp_path / "replayed.bin"
    case.replay({}, output=kept)
    result = diff(case.path, kept)
    assert [one.verdict for one in result.results] == [Verdict.GAP, Verdict.GAP, Verdict.IDENTICAL]
    assert "tex.2d" in result.results[0].reason


def test_a_replay_never_overwrites_its_record(case: Case) -> None:
    program(case)
    with pytest.raises(TraceError, match="is the file that is read"):
        case.replay({"add": add}, output=case.path)
    with open_trace(case.path) as trace:
        assert trace.counts().launches == 2


def test_json_has_the_documented_keys(case: Case) -> None:
    program(case)
    found = case.replay({"add": add}).to_json()
    verdict_keys = {verdict.key for verdict in Verdict}
    assert set(found) == verdict_keys | {
        "trace",
        "device",
        "emulated",
        "numerics",
        "mode",
        "verdict",
        "launches",
        "copies",
        "reasons",
        "first_divergence",
        "at_fault",
        "blame",
        "seconds",
        "product",
        "relocated",
        "fidelity",
        "kernels",
        "differences",
        "differences_left_out",
        "printed",
    }
    assert (found["launches"], found["copies"], found["identical"]) == (2, 1, 3)
    assert sum(found[key] for key in verdict_keys) == found["launches"] + found["copies"]


def test_launches_are_a_frame(case: Case) -> None:
    program(case)
    frame = case.replay({"add": add}).launches
    assert list(frame["kernel"]) == ["add", "add", "cuMemcpyDtoH_v2"]
    assert set(frame["verdict"]) == {"identical"}


def test_progress_reaches_its_total(case: Case) -> None:
    program(case)
    told: list[tuple[int, int]] = []
    case.replay({"add": add}, progress=lambda done, total: told.append((done, total)))
    assert told[-1][0] == told[-1][1]
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_the_package_is_the_function(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    import zluda.replay.player

    assert zluda.replay is sys.modules["zluda.replay"]
    assert zluda.replay.player.Player
    program(case)
    assert case.replay({"add": add}).exit_status() == 0


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"mode": "alone"}, UnsupportedError, "alone"),
        ({"numerics": "envelope"}, UnsupportedError, "envelope"),
        ({"device": "hip:0"}, DeviceError, "hip"),
        ({"device": "toaster"}, DeviceError, "toaster"),
        ({"select": "kernel:("}, zluda.Error, "regular expression"),
    ],
)
def test_options_of_other_versions_are_refused_by_name(
    case: Case, options: dict[str, str], error: type[Exception], text: str
) -> None:
    program(case)
    case.record.__exit__()
    with pytest.raises(error, match=text):
        zluda.replay(case.path, **{"device": "cpu", **options})  # type: ignore[arg-type]


def test_a_replay_that_fails_leaves_the_trace_that_was_there(case: Case, tmp_path: Path) -> None:
    program(case)
    kept = tmp_path / "replayed.bin"
    case.replay({"add": add}, output=kept)
    before = kept.read_bytes()

    def give_up(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        zluda.replay(case.path, device="cpu", output=kept, progress=give_up)
    assert kept.read_bytes() == before
    assert not list(tmp_path.glob(".zluda-*"))
