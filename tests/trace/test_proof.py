"""A recorded program proves itself at the end, where the GPU is there; elsewhere it says why not."""

from __future__ import annotations

import shutil
from pathlib import Path

from recorded_scenes import StandIn, run_trace

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
