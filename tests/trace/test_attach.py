"""Processes: attaching to one that runs, children with an index or without a trace."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from recorded_scenes import Recorded, StandIn, run_trace

import zluda
from zluda.diff.results import Verdict
from zluda.errors import Error
from zluda.trace.attach import attach
from zluda.tracefile import open_trace


def start(*command: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def line(process: subprocess.Popen[str], *, errors: bool = False) -> str:
    stream = process.stderr if errors else process.stdout
    assert stream is not None
    return stream.readline().strip()


def tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


@pytest.fixture(scope="module")
def attached(standin: StandIn, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """A program recorded from the middle of its run on, and left before its end."""
    trace = tmp_path_factory.mktemp("attached") / "trace.bin"
    app = start(standin.graphs, "waiting")
    assert line(app) == "ready"
    command = [sys.executable, "-m", "zluda", "trace", "--attach", str(app.pid), "-o", str(trace)]
    recorder = start(*command)
    assert line(recorder, errors=True) == f"zluda: process {app.pid}: recording; interrupt to stop"
    with pytest.raises(Error, match=r"is being recorded already, to .*trace\.bin"):
        attach(app.pid, trace.with_name("second.bin"))
    tell(app)
    assert line(app) == "launched"
    recorder.send_signal(signal.SIGINT)
    _, errors = recorder.communicate(timeout=300)
    output, _ = app.communicate("\n", timeout=300)
    assert app.returncode == 0
    return Recorded(trace, recorder.returncode, output, errors)


def test_a_program_that_was_attached_to_goes_on_after_the_recording(attached: Recorded) -> None:
    assert attached.status == 0 and "2 launches" in attached.errors
    assert float(attached.output) > 0


def test_memory_made_before_is_found_where_it_is_named(attached: Recorded) -> None:
    with open_trace(attached.trace) as trace:
        assert trace.meta["attached"] is True
        functions = [call.function for call in trace.iter_calls()]
        assert functions[:2] == ["cuMemAlloc_v2", "cuLaunchKernel"]
        (gap,) = (gap for gap in trace.gaps if gap.kind == "attach")
        assert gap.call == 0
        (memory,) = (a for a in trace.allocations if not a.name)
        assert (memory.size, memory.born) == (1024, 0)
        first, second = trace.iter_launches()
        assert first.kernel == second.kernel == "triple"
        assert (first.module is None, second.module is not None) == (True, True)


def test_launches_of_modules_from_before_are_gaps_and_the_others_replay(attached: Recorded) -> None:
    first, second = zluda.replay(attached.trace, device="cpu").results
    assert first.verdict is Verdict.GAP and "module of kernel triple is not on record" in first.reason
    assert second.verdict is Verdict.IDENTICAL


def test_a_process_that_is_not_there() -> None:
    with pytest.raises(Error, match="process 999999999: there is none"):
        attach(999999999, "trace.bin")


def test_children_have_an_index(standin: StandIn, tmp_path: Path) -> None:
    command = ["env", standin.app, "fork"]  # `env` becomes the program, in whose child our code goes on
    recorded = run_trace(tmp_path / "trace.bin", *command)
    assert recorded.status == 4
    index = json.loads((tmp_path / "trace.index.json").read_text())
    main, child = index["processes"]
    assert index["command"] == main["command"] == command
    assert (main["trace"], main["calls"], main["launches"], main["parent"]) == ("trace.bin", 13, 1, None)
    assert (child["trace"], child["parent"]) == (f"trace.{child['pid']}.bin", main["pid"])
    assert child["calls"] == 13 and (tmp_path / child["trace"]).exists()


def test_children_that_are_not_followed_have_no_trace(standin: StandIn, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "zluda",
        "trace",
        "--no-follow-children",
        "-o",
        str(tmp_path / "trace.bin"),
    ]
    done = subprocess.run(
        [*command, "--", "env", standin.app, "fork"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 4, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["trace.bin"]
    with open_trace(tmp_path / "trace.bin") as trace:
        assert trace.counts().calls == 13
