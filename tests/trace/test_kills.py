"""The program, its recorder, or both are killed at random moments; what had returned before is on record."""

from __future__ import annotations

import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections import Counter
from dataclasses import astuple, dataclass
from pathlib import Path

import pytest
from recorded_scenes import StandIn, end, running, stop, wait_until, word

from zluda.tracefile import Trace, open_trace

KILLED = ("application", "recorder", "session", "session and recorder", "everything")
KILLS = int(os.environ.get("RECORDER_KILLS", "200"))
THREADS = 6
LOGS, LOG = 2048, struct.Struct("<5Q")  # `struct log` in standin/busy.c
FUNCTIONS = ("cuMemAlloc_v2", "cuLaunchKernel", "cuGraphLaunch", "cuMemFree_v2")


@dataclass(frozen=True)
class Log:
    """How many calls of :data:`FUNCTIONS` had returned, by a thread's own account."""

    thread: int
    allocations: int
    launches: int
    graph_launches: int
    frees: int


def logs(progress: Path) -> list[Log]:
    content = progress.read_bytes()
    return [Log(*LOG.unpack_from(content, LOGS + number * LOG.size)) for number in range(THREADS)]


def check(trace: Trace, returned: list[Log]) -> None:
    """Every call that had returned is on record, with its result."""
    recorded = Counter((call.thread, call.function) for call in trace.iter_calls() if call.result == 0)
    for log in returned:
        thread, *counts = astuple(log)
        for function, count in zip(FUNCTIONS, counts, strict=True):
            assert recorded[thread, function] >= count, (thread, function)
    launches = {launch.call: launch for launch in trace.iter_launches()}
    for call in trace.iter_calls():
        if call.function == "cuLaunchKernel" and call.parent is None and call.result == 0:
            assert launches[call.sequence].parameters


def goes_on(session: subprocess.Popen[bytes]) -> bool:
    assert session.poll() is None, session.communicate()[1].decode()
    return True


def kill_at_random(standin: StandIn, directory: Path, killed: str, pause: float) -> None:
    """Killed once every thread has gone round, and a while later."""
    directory.mkdir()
    trace, progress = directory / "trace.bin", directory / "progress"
    program = [standin.busy, "logging", str(THREADS), str(progress), "200"]
    line = [sys.executable, "-m", "zluda", "trace", "--capture", "full", "-o", str(trace), *program]
    session = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    control = Path(f"{trace}.rings/control")
    recorder = app = 0
    try:
        wait_until(lambda: goes_on(session) and word(control, "SEQUENCE") > 0)
        recorder, app = word(control, "RECORDER_PID"), word(control, "APP_PID")
        wait_until(lambda: goes_on(session) and all(log.frees > 1 for log in logs(progress)))
        time.sleep(pause)
        returned = logs(progress)
        for name, pid in {"session": session.pid, "recorder": recorder, "application": app}.items():
            if name in killed or killed == "everything":
                stop(pid, signal.SIGKILL)
        stop(app, signal.SIGKILL)
        wait_until(lambda: not running(app))
        session.communicate(timeout=300)
        wait_until(lambda: not running(recorder))
        with open_trace(trace) as opened:
            check(opened, returned)
        assert not control.parent.exists()
    finally:
        end(session, app, recorder)


FORKING = """
import ctypes, os, sys
driver, rounds, told_to_end = ctypes.CDLL(sys.argv[1]), open(sys.argv[2], "r+b", buffering=0), sys.argv[3]
assert driver.cuInit(0) == 0
number = 0
while not os.path.exists(told_to_end):
    child = os.fork()
    if child == 0:
        if os.fork() == 0:
            os._exit(0)
        os._exit(7 + os.wait()[1])
    status = os.waitpid(child, 0)[1]
    assert status == 7 << 8, status
    number += 1
    os.pwrite(rounds.fileno(), number.to_bytes(8, "little"), 0)
sys.exit(3)
"""


def kill_among_forks(standin: StandIn, directory: Path, killed: str, pause: float) -> None:
    """The program, and each child that it forks, end as if nothing were."""
    directory.mkdir()
    trace, rounds, told_to_end = (directory / name for name in ("trace.bin", "rounds", "end"))
    rounds.write_bytes(bytes(8))

    def done() -> int:
        return int.from_bytes(rounds.read_bytes(), "little")

    program = [sys.executable, "-c", FORKING, standin.driver, str(rounds), str(told_to_end)]
    line = [sys.executable, "-m", "zluda", "trace", "--capture", "calls", "--no-verify", "-o", str(trace)]
    session = subprocess.Popen([*line, "--", *program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    control = Path(f"{trace}.rings/control")
    app = recorder = 0
    try:
        wait_until(lambda: goes_on(session) and done() > 0)
        app, recorder = word(control, "APP_PID"), word(control, "RECORDER_PID")
        time.sleep(pause)
        session.kill()
        if "recorder" in killed:
            stop(recorder, signal.SIGKILL)
        before = done()
        wait_until(lambda: not running(app) or done() > before + 20)
        told_to_end.touch()
        assert session.stdout is not None
        assert session.stdout.read() == b""  # what it wrote, until it has ended
        assert done() > before + 20
    finally:
        end(session, app, recorder)


@pytest.mark.parametrize(("killed", "pause"), [("session", 0), ("session and recorder", 0.1)])
def test_a_program_that_forks_goes_on_when_its_recorder_is_killed(
    standin: StandIn, tmp_path: Path, killed: str, pause: float
) -> None:
    kill_among_forks(standin, tmp_path / "killed", killed, pause)


@pytest.mark.nightly
def test_kills_at_random_moments_among_forks(standin: StandIn, tmp_path: Path) -> None:
    chosen = random.Random(6)
    for number in range(KILLS):
        killed, pause = chosen.choice(["session", "session and recorder"]), chosen.uniform(0, 0.5)
        print(f"kill {number}: {killed} after {pause:.3f} s", flush=True)  # shown where it fails
        kill_among_forks(standin, tmp_path / str(number), killed, pause)


@pytest.mark.parametrize("killed", ["application", "everything"])
def test_a_kill_among_threads_and_graphs_loses_no_call_that_had_returned(
    standin: StandIn, tmp_path: Path, killed: str
) -> None:
    kill_at_random(standin, tmp_path / "killed", killed, 0)


@pytest.mark.nightly
def test_kills_at_random_moments_lose_no_call_that_had_returned(standin: StandIn, tmp_path: Path) -> None:
    chosen = random.Random(5)
    for number in range(KILLS):
        killed, pause = chosen.choice(KILLED), chosen.uniform(0, 0.5)
        print(f"kill {number}: {killed} after {pause:.3f} s", flush=True)  # shown where it fails
        kill_at_random(standin, tmp_path / str(number), killed, pause)
        shutil.rmtree(tmp_path / str(number))
