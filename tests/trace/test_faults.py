"""What recorders of other projects stumbled over; FAULTS.md has the whole list."""

from __future__ import annotations

import ctypes
import json
import os
import re
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from recorded_scenes import Recorded, StandIn, run_trace

from zluda.trace.session import check_place
from zluda.tracefile import open_trace

PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2  # linux/prctl.h, linux/capability.h


def record(standin: StandIn, directory: Path, scene: str, capture: str = "outputs") -> Recorded:
    recorded = run_trace(directory / "trace.bin", standin.faults, scene, standin.driver, capture=capture)
    print(recorded.errors)  # shown where a test fails
    return recorded


def test_a_driver_that_is_unloaded_and_loaded_again(standin: StandIn, tmp_path: Path) -> None:
    recorded = record(standin, tmp_path, "reloaded")
    assert recorded.status == 0
    with open_trace(recorded.trace) as trace:
        assert Counter(call.function for call in trace.iter_calls())["cuInit"] == 3
        assert trace.counts().launches == 3


def test_a_program_with_a_handler_for_its_crashes(standin: StandIn, tmp_path: Path) -> None:
    recorded = record(standin, tmp_path, "handled")
    assert recorded.status == 0
    with open_trace(recorded.trace) as trace:
        assert trace.counts().launches == 1


def test_a_crash_handler_runs_and_the_call_is_on_record(standin: StandIn, tmp_path: Path) -> None:
    recorded = record(standin, tmp_path, "reported")
    assert (recorded.status, recorded.output) == (9, "handler\n")
    with open_trace(recorded.trace) as trace:
        *before, last = trace.iter_calls()
        assert (last.function, last.result) == ("cuLaunchKernel", None)
        assert all(call.result == 0 for call in before)


def test_ten_thousand_allocations(standin: StandIn, tmp_path: Path) -> None:
    recorded = record(standin, tmp_path, "many_allocations", capture="calls")
    assert recorded.status == 0
    with open_trace(recorded.trace) as trace:
        made = [one for one in trace.allocations if not one.name]
        assert len(made) == len({one.base for one in made}) == 10000
        assert all(one.died is not None for one in made)


def test_several_contexts(standin: StandIn, tmp_path: Path) -> None:
    recorded = record(standin, tmp_path, "contexts")
    assert recorded.status == 0
    with open_trace(recorded.trace) as trace:
        assert Counter(call.function for call in trace.iter_calls())["cuCtxCreate_v2"] == 2
        assert all(launch.captured for launch in trace.iter_launches())
        (copied,) = trace.iter_calls_of("cuMemcpyPeer")
        (filled,) = trace.iter_calls_of("cuMemsetD8_v2")
        there = copied.arguments["dstDevice"]
        assert trace.read_memory(filled.sequence, there, 4) == (b"\x33" * 4, None)
        assert trace.read_memory(copied.sequence, there, 4) == (struct.pack("<I", 7), None)
        assert [gap.kind for gap in trace.gaps] == ["cuCtxEnablePeerAccess"]


def test_children_of_every_make(standin: StandIn, tmp_path: Path) -> None:
    """A thread's fork whose child forks, vfork, posix_spawn, and a daemon that outlives its parents."""
    recorded = record(standin, tmp_path, "children")
    assert recorded.status == 0
    index = json.loads((tmp_path / "trace.index.json").read_text())
    launches = [process["launches"] for process in index["processes"]]
    assert launches[:1] == [1] and launches.count(1) >= 4, index


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    directory = tmp_path / "closed"
    directory.mkdir(0o500)
    check_refused(directory, tmp_path / "ran", before=heed_permissions if os.geteuid() == 0 else None)


def test_a_file_system_that_cannot_be_written(tmp_path: Path) -> None:
    check_refused(Path("/proc"), tmp_path / "ran")


def test_a_name_that_has_no_room_for_what_stands_beside_it(tmp_path: Path) -> None:
    check_refused(tmp_path, tmp_path / "ran", name=251 * "x" + ".bin")
    assert list(tmp_path.iterdir()) == []


def test_where_a_trace_may_be_written_nothing_is_left_behind(tmp_path: Path) -> None:
    check_place(tmp_path / "trace.bin")
    assert list(tmp_path.iterdir()) == []


def test_every_fault_that_is_listed_has_its_test() -> None:
    here = Path(__file__).parent
    source = "".join(path.read_text() for path in here.glob("test_*.py"))
    listed = (here / "FAULTS.md").read_text()
    names, files = (
        re.findall(r"\b(test_\w+)\b(?!\.py)", listed),
        re.findall(r"(?<!\w)([\w/]*test_\w+\.py)", listed),
    )
    assert len(names) > 30
    assert [name for name in names if f"def {name}(" not in source] == []
    assert [one for one in files if not (here / one).exists() and not (here.parents[1] / one).exists()] == []


def heed_permissions() -> None:
    """Root writes anywhere by two capabilities: take them from what this process is to become."""
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        if ctypes.CDLL(None, use_errno=True).prctl(PR_CAPBSET_DROP, capability, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "a capability could not be dropped")


def check_refused(
    directory: Path, ran: Path, name: str = "trace.bin", before: Callable[[], None] | None = None
) -> None:
    """Before the program is started."""
    line = [sys.executable, "-m", "zluda", "trace", "-o", str(directory / name), "touch", str(ran)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300, preexec_fn=before)
    assert done.returncode == 2
    assert done.stderr.startswith(f"zluda: {directory}") and done.stderr.count("\n") == 1, done.stderr
    assert not ran.exists()
