"""One thread captures its stream into graphs all the time while others are recorded: no capture is spoilt."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest
from recorded_scenes import StandIn, wait_until

from zluda.tracefile import open_trace

THREADS, ROUNDS = 4, 100


@pytest.mark.parametrize("options", [["--capture", "full"], ["--capture", "calls"]])
def test_looking_at_memory_and_taking_times_spoil_no_other_threads_capture(
    standin: StandIn, tmp_path: Path, options: list[str]
) -> None:
    trace, progress = tmp_path / "trace.bin", tmp_path / "progress"
    program = [standin.busy, "beside", str(THREADS), str(progress), "100"]
    line = [sys.executable, "-m", "zluda", "trace", "--no-verify", *options, "-o", str(trace), *program]
    session = subprocess.Popen(line, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def rounds() -> int:
        content = progress.read_bytes() if progress.exists() else b""
        return min(struct.unpack_from(f"<{THREADS}Q", content)) if content else 0

    wait_until(lambda: session.poll() is not None or rounds() > ROUNDS)
    _, errors = session.communicate("\n", timeout=300)
    assert session.returncode == 0, errors
    with open_trace(trace) as opened:
        ends = [call.result for call in opened.iter_calls() if call.function == "cuStreamEndCapture"]
        assert len(ends) >= ROUNDS and set(ends) == {0}
        assert not any("could not be read" in gap.reason for gap in opened.gaps)
