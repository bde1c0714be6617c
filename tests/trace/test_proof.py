"""A recorded program proves itself at the end, where the GPU is there; elsewhere it says why not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from recorded_scenes import StandIn, run_trace

from zluda.cli.trace import _verify
from zluda.diff.proof import Proof
from zluda.replay.proof import prove
from zluda.report.proof import sentence
from zluda.tracefile import TraceWriter, open_trace

RECORDED = Path(__file__).parents[1] / "replay" / "data" / "triton_add.bin"


def test_without_a_gpu_the_line_says_why(standin: StandIn, tmp_path: Path) -> None:
    recorded = run_trace(tmp_path / "trace.bin", standin.app, "saxpy", verify=True)
    assert recorded.status == 0
    (line,) = (line for line in recorded.errors.splitlines() if "proved" in line)
    assert "trace.bin: not proved: device cuda" in line
    with open_trace(recorded.trace) as trace:
        proof = Proof.of(trace.meta, "")
    assert proof is not None
    assert proof.reason in line


def test_a_recording_is_proved_by_what_computes_the_same(tmp_path: Path) -> None:
    path = tmp_path / "trace.bin"
    shutil.copy(RECORDED, path)
    with TraceWriter.reopen(path) as writer:
        writer.set_meta({"gpu": "zluda cpu"})  # the CPU stands for the H200 that recorded it
    proof = prove(path, "cpu", runs=1)
    assert proof.holds, sentence(proof)
    assert set(proof.launches) == {"identical"}
    with open_trace(path) as trace:
        assert trace.unproved == []


def test_a_fault_of_ours_is_said_and_the_status_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> Proof:
        raise KeyError("cuNew")

    monkeypatch.setattr("zluda.replay.proof.prove", broken)
    _verify([tmp_path / "a.bin", tmp_path / "b.bin"], 1.0, quiet=True)
    said = capsys.readouterr().err
    assert said.count("not proved: a fault in zluda, please report it: KeyError('cuNew')") == 2


@pytest.mark.parametrize(
    ("proof", "quiet", "told"),
    [
        (Proof(True, runs=2, launches={"identical": 1}), True, False),
        (Proof(True, runs=2, launches={"identical": 1}), False, True),
        (Proof(True, runs=2, launches={"differs": 1}), True, True),
        (Proof(False, "no GPU"), True, False),
    ],
)
def test_quiet_leaves_out_what_went_well(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    proof: Proof,
    quiet: bool,
    told: bool,
) -> None:
    limits = []

    def proved(path: Path, *, limit: float, progress: object) -> Proof:
        limits.append(limit)
        return proof

    monkeypatch.setattr("zluda.replay.proof.prove", proved)
    _verify([tmp_path / "a.bin"], 60.0, quiet=quiet)
    assert ("a.bin: " in capsys.readouterr().err) == told
    assert 59 < limits[0] <= 60
