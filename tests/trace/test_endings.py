"""However a program or its recorder ends, what was recorded before is in the trace, and the status is
right.
"""

from __future__ import annotations

import resource
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from recorded_scenes import Recorded, StandIn, end, run_trace, running, stop, wait_until, word

from zluda.tracefile import TraceWriter, open_trace

Scene = Callable[..., Recorded]


@pytest.mark.parametrize(
    ("name", "status", "calls"),
    [("status", 7, 4), ("_exit", 3, 13), ("kill", 137, 13), ("abort", 134, 13), ("crash", 139, 6)],
)
def test_the_status_is_the_programs_and_nothing_is_lost(
    scene: Scene, name: str, status: int, calls: int
) -> None:
    recorded = scene(name)
    assert recorded.status == status
    with open_trace(recorded.trace) as trace:
        assert trace.counts().calls == calls


def test_a_crash_says_in_which_call(scene: Scene) -> None:
    recorded = scene("crash")
    assert "ended by SIGSEGV in call 5, cuLaunchKernel" in recorded.errors
    with open_trace(recorded.trace) as trace:
        call = trace.call(5)
        assert (call.function, call.result, call.end_ns) == ("cuLaunchKernel", None, None)
        assert call.arguments["gridDimX"] == 1
        assert trace.launch(5).kernel == "crash"


def test_a_crash_inside_an_allocation_is_the_open_call(scene: Scene) -> None:
    recorded = scene("crash_in_allocation")
    assert recorded.status == 139
    assert "ended by SIGSEGV in call 4, cuMemAlloc_v2" in recorded.errors
    with open_trace(recorded.trace) as trace:
        call = trace.call(4)
        assert (call.function, call.result, call.end_ns) == ("cuMemAlloc_v2", None, None)
        assert call.arguments["bytesize"] == 0xDEAD
        assert trace.allocations == [one for one in trace.allocations if one.name]  # the variable alone


def test_threads_that_outlive_the_main_one_are_recorded_and_end_the_program(scene: Scene) -> None:
    """Frida's threads remain, and Frida ends no process without a main thread (agent/exits.c)."""
    recorded = scene("main_leaves")
    assert (recorded.status, recorded.output) == (0, "last\n"), recorded.errors
    with open_trace(recorded.trace) as trace:
        assert trace.counts().calls == 13


def test_a_program_that_may_write_no_large_file_goes_on(standin: StandIn, tmp_path: Path) -> None:
    line = [
        "/bin/sh",
        "-c",
        f"ulimit -f 8; exec {standin.app} status",
    ]  # as a user limits it; the recorder is not
    recorded = run_trace(tmp_path / "trace.bin", *line)
    assert recorded.status == 2  # not SIGXFSZ
    assert recorded.errors.startswith("zluda: nothing was recorded: no room in "), recorded.errors
    assert len(recorded.errors.splitlines()) == 1


def test_a_program_that_never_uses_cuda(scene: Scene) -> None:
    recorded = scene("nothing")
    assert recorded.status == 2
    assert "nothing was recorded" in recorded.errors and recorded.errors.count("\n") == 1
    assert not recorded.trace.exists()


@pytest.mark.parametrize("kind", ["missing", "not executable", "directory", "no place", "no interpreter"])
def test_a_program_that_cannot_be_started(standin: StandIn, tmp_path: Path, kind: str) -> None:
    trace, app = tmp_path / "trace.bin", tmp_path / "app"
    if kind == "not executable":
        app.write_text("text")
    elif kind == "directory":
        app.mkdir()
    elif kind == "no interpreter":
        app.write_text("#!/no/such/interpreter\n")
        app.chmod(0o755)
    elif kind == "no place":
        trace, app = tmp_path / "nowhere" / "trace.bin", Path(standin.app)
    line = [sys.executable, "-m", "zluda", "trace", "-o", str(trace), str(app)]
    result = subprocess.run(line, capture_output=True, text=True, timeout=300)
    assert result.returncode == 2
    assert result.stderr.startswith("zluda: ") and result.stderr.count("\n") == 1
    assert str(app if kind != "no place" else trace.parent) in result.stderr
    assert ("interpreter" in result.stderr) == (kind == "no interpreter")


def test_an_older_trace_gives_way(standin: StandIn, tmp_path: Path) -> None:
    trace = tmp_path / "trace.bin"
    with TraceWriter.create(trace, {"host": "older"}):
        pass
    assert run_trace(trace, standin.app, "status").status == 7
    with open_trace(trace) as opened:
        assert opened.counts().calls == 4
        assert opened.meta["host"] != "older"


def test_no_other_file_gives_way(standin: StandIn, tmp_path: Path) -> None:
    app = tmp_path / "app"
    shutil.copy(standin.app, app)
    before = app.read_bytes()
    recorded = run_trace(app, standin.app, "status")  # the slip: zluda trace -o ./app
    assert recorded.status == 2
    assert "app: is there and is not a trace" in recorded.errors
    assert app.read_bytes() == before


@contextmanager
def recording(
    standin: StandIn, trace: Path, *arguments: str
) -> Iterator[tuple[subprocess.Popen[str], int, int]]:
    """A recording under way, once its first calls are made: the session, the recorder's and the program's
    pid.
    """
    line = [
        sys.executable,
        "-m",
        "zluda",
        "trace",
        "--capture",
        "calls",
        "-o",
        str(trace),
        standin.app,
        *arguments,
    ]
    session = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    control = Path(f"{trace}.rings/control")
    recorder = app = 0
    try:
        wait_until(lambda: word(control, "SEQUENCE") > 8)
        recorder, app = word(control, "RECORDER_PID"), word(control, "APP_PID")
        yield session, recorder, app
    finally:
        end(session, app, recorder)


def check_complete(trace_file: Path, at_least: int) -> None:
    """All calls without a hole, all but the last returned, every launch with its parameters."""
    with open_trace(trace_file) as trace:
        calls = list(trace.iter_calls())
        assert len(calls) >= at_least
        assert [call.sequence for call in calls] == list(range(len(calls)))
        assert all(call.result == 0 for call in calls[:-1])
        launches = list(trace.iter_launches())
        launched = [call.sequence for call in calls if call.function == "cuLaunchKernel"]
        assert [launch.call for launch in launches] == launched
        buffer = trace.allocations[-1].base
        assert all(launch.parameters == struct.pack("<QI", buffer, 5) for launch in launches)
    assert not Path(f"{trace_file}.rings").exists()


@pytest.mark.parametrize("killed", ["recorder", "recorder and session", "everything"])
def test_kill_in_the_middle_of_a_loop(standin: StandIn, tmp_path: Path, killed: str) -> None:
    trace = tmp_path / "trace.bin"
    control = Path(f"{trace}.rings/control")
    with recording(standin, trace, "loop", "40000") as (session, recorder, app):
        wait_until(lambda: word(control, "SEQUENCE") > 5000)
        if killed != "recorder":
            session.kill()
        if killed == "everything":
            stop(app, signal.SIGKILL)
        stop(recorder, signal.SIGKILL)
        if killed == "recorder":
            _, errors = session.communicate(timeout=300)
            assert session.returncode == 0
            assert "recording ended early" in errors
            check_complete(trace, 40006)
        else:
            wait_until(lambda: not running(recorder) and (not running(app) or killed != "everything"))
            check_complete(trace, 5000)


def test_a_stream_that_makes_no_progress_is_let_go(standin: StandIn, tmp_path: Path) -> None:
    trace = tmp_path / "trace.bin"
    code = (
        "import sys; from zluda.trace.session import record;"
        "outcome = record(sys.argv[2:], sys.argv[1], progress_seconds=0.2); sys.exit(outcome.status)"
    )
    line = [sys.executable, "-c", code, str(trace), standin.app, "stuck"]
    assert subprocess.run(line, timeout=300).returncode == 0
    with open_trace(trace) as opened:
        (launch,) = opened.iter_launches()
        assert not launch.captured
        assert any("no progress" in gap.text for gap in opened.gaps if gap.call == launch.call)


def test_a_recorder_that_cannot_write_lets_the_program_go_on(standin: StandIn, tmp_path: Path) -> None:
    trace = tmp_path / "trace.bin"
    with recording(standin, trace, "loop", "50000") as (session, recorder, _app):
        # Its files may not grow beyond 256 KiB, as if the disk were full.
        resource.prlimit(recorder, resource.RLIMIT_FSIZE, (1 << 18, 1 << 18))
        _, errors = session.communicate(timeout=300)
        assert session.returncode == 0
        assert "recording stopped" in errors
    with open_trace(trace) as opened:  # room again: what the rings hold is merged
        calls = [call.sequence for call in opened.iter_calls()]
        assert calls == list(range(len(calls))) and len(calls) > 8
        ending, *lost = [gap for gap in opened.gaps if gap.kind == "recorder"]  # the rings may hold all of it
        assert all("calls after that are lost" in gap.text for gap in lost)
        assert len(calls) + sum(gap.times for gap in lost) > 50000
        assert "the recorder could not go on" in ending.text and "killed" not in ending.text


def test_a_held_program_does_not_outlive_its_session() -> None:
    code = (
        "import time; from zluda.trace.hold import HeldProcess;"
        "print(HeldProcess(['/bin/sleep', '1000']).pid, flush=True); time.sleep(1000)"
    )
    session = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert session.stdout is not None
    pid = int(session.stdout.readline())
    assert running(pid)
    session.kill()
    wait_until(lambda: not running(pid))
    session.communicate()


def test_without_frida_the_remedy_is_named(standin: StandIn, tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['frida'] = None; sys.argv = ['zluda', 'trace', sys.argv[1]];"
        "from zluda.cli.main import main; main()"
    )
    line = [sys.executable, "-c", code, standin.app]
    done = subprocess.run(line, timeout=300, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "zluda: device trace: frida is not installed; pip install 'zluda[trace]'\n"


def test_a_trace_is_finished_when_the_session_is_killed(standin: StandIn, tmp_path: Path) -> None:
    trace = tmp_path / "trace.bin"
    with recording(standin, trace, "wait") as (session, recorder, app):
        # All its calls are made: what it makes after the session's death is not recorded.
        assert session.stdout is not None and session.stdout.readline() == "ready\n"
        session.kill()
        wait_until(lambda: not running(recorder))
        assert running(app)  # it goes on, unrecorded
        with open_trace(trace) as opened:
            assert opened.counts().calls == 13
            assert [gap.kind for gap in opened.gaps] == ["recorder"]


def test_signals_to_the_session_reach_the_program(standin: StandIn, tmp_path: Path) -> None:
    trace = tmp_path / "trace.bin"
    with recording(standin, trace, "wait") as (session, _, _app):
        assert session.stdout is not None and session.stdout.readline() == "ready\n"
        session.terminate()
        session.communicate(timeout=300)
        assert session.returncode == 128 + signal.SIGTERM
    with open_trace(trace) as opened:
        assert opened.counts().calls == 13


def test_a_trace_being_recorded_is_not_overwritten(standin: StandIn, tmp_path: Path) -> None:
    trace = tmp_path / "trace.bin"
    with recording(standin, trace, "wait"):
        second = run_trace(trace, standin.app, "saxpy")
        assert second.status == 2
        assert "another recorder is writing it" in second.errors


def test_a_child_that_closes_every_descriptor_before_exec_goes_on(tmp_path: Path) -> None:
    """Python's subprocess does; Frida's connection must survive it (agent/descriptors.c)."""
    program = "import subprocess; [print(subprocess.check_output(['echo', 'hi'])) for _ in range(3)]"
    recorded = run_trace(tmp_path / "trace.bin", sys.executable, "-c", program)
    assert recorded.output == "b'hi\\n'\n" * 3


def test_threads_that_start_subprocesses_together(standin: StandIn, tmp_path: Path) -> None:
    """Frida keeps one fork in mind; threads that fork wait for each other (agent/forks.c)."""
    program = tmp_path / "program.py"
    program.write_text(
        "import ctypes, subprocess, sys, threading\n"
        "driver = ctypes.CDLL(sys.argv[1])\n"
        "assert driver.cuInit(0) == 0\n"
        "together, words = threading.Barrier(4), []\n"
        "def start(number):\n"
        "    for _ in range(3):\n"
        "        together.wait()\n"
        "        words.append(subprocess.check_output(['echo', str(number)]))\n"
        "threads = [threading.Thread(target=start, args=(number,)) for number in range(4)]\n"
        "[thread.start() for thread in threads]\n"
        "[thread.join() for thread in threads]\n"
        "assert driver.cuInit(0) == 0\n"
        "print(b''.join(sorted(words)).decode().split())\n"
    )
    recorded = run_trace(tmp_path / "trace.bin", sys.executable, str(program), standin.driver)
    assert recorded.output == f"{[str(number) for number in range(4) for _ in range(3)]}\n", recorded.errors
    assert recorded.status == 0
    with open_trace(recorded.trace) as trace:
        assert [call.function for call in trace.iter_calls()] == ["cuInit", "cuInit"]


def test_recording_goes_on_after_a_child_of_posix_spawn(standin: StandIn, tmp_path: Path) -> None:
    """Until it is another program such a child runs in its parent's memory (agent/execs.c)."""
    program = tmp_path / "program.py"
    program.write_text(
        "import ctypes, os, sys, threading\n"
        "driver, app = ctypes.CDLL(sys.argv[1]), sys.argv[2]\n"
        "assert driver.cuInit(0) == 0\n"
        "assert os.system('true') == 0\n"
        "assert driver.cuInit(0) == 0\n"
        "def start():\n"
        "    child = os.posix_spawn(app, [app, 'saxpy'], os.environ)\n"
        "    assert os.waitpid(child, 0)[1] == 0\n"
        "threads = [threading.Thread(target=start) for number in range(2)]\n"
        "[thread.start() for thread in threads]\n"
        "[thread.join() for thread in threads]\n"
        "assert driver.cuInit(0) == 0\n"
    )
    recorded = run_trace(tmp_path / "trace.bin", sys.executable, str(program), standin.driver, standin.app)
    assert recorded.status == 0, recorded.errors
    with open_trace(recorded.trace) as trace:
        assert [call.function for call in trace.iter_calls()] == ["cuInit"] * 3, recorded.errors
    children = list(tmp_path.glob("trace.*.bin"))
    assert len(children) == 2, recorded.errors
    for path in children:
        with open_trace(path) as trace:
            assert "cuLaunchKernel" in {call.function for call in trace.iter_calls()}
