"""Programs at work that are attached to and left go on, end as they would, and can be attached to again."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from recorded_scenes import StandIn

from zluda.tracefile import open_trace

CYCLES = int(os.environ.get("ATTACH_CYCLES", "300"))
SECONDS = 60


class Busy:
    """``standin/busy.c`` at work."""

    def __init__(self, standin: StandIn, directory: Path, kind: str, threads: int, pause: int = 5000) -> None:
        self.threads, self.progress = threads, directory / "progress"
        line = [standin.busy, kind, str(threads), str(self.progress), str(pause)]
        self.process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None and self.process.stdout.readline() == "ready\n"

    def rounds(self) -> tuple[int, ...]:
        return struct.unpack_from(f"<{self.threads}Q", self.progress.read_bytes())

    def goes_on(self) -> bool:
        """Whether every thread makes progress."""
        before, end = self.rounds(), time.monotonic() + SECONDS
        while self.process.poll() is None and time.monotonic() < end:
            if all(now > then for then, now in zip(before, self.rounds(), strict=True)):
                return True
            time.sleep(0.01)
        return False

    def end(self) -> int:
        """Its status when it is told to end, which it does from `main` while its threads go on."""
        self.process.communicate("\n", timeout=SECONDS)
        return self.process.returncode

    def let_calls_return(self) -> None:
        Path(f"{self.progress}.go").touch()


@contextlib.contextmanager
def busy(standin: StandIn, directory: Path, kind: str, threads: int, pause: int = 5000) -> Iterator[Busy]:
    directory.mkdir(exist_ok=True)
    app = Busy(standin, directory, kind, threads, pause)
    try:
        yield app
    finally:
        app.process.kill()
        app.process.communicate()


def attach_for(
    app: Busy, trace: Path, seconds: float, number: int = signal.SIGINT, status: int = 0, rounds: int = 0
) -> str:
    """Record it for a while, and so many rounds of every thread; the recorder's last line."""
    command = ["trace", "--capture", "calls", "--attach", str(app.process.pid), "-o", str(trace)]
    recorder = subprocess.Popen([sys.executable, "-m", "zluda", *command], stderr=subprocess.PIPE, text=True)
    assert recorder.stderr is not None
    first = recorder.stderr.readline()
    assert "recording; interrupt to stop" in first, first + recorder.stderr.read()
    time.sleep(seconds)
    assert all(app.goes_on() for _ in range(rounds))
    recorder.send_signal(number)
    _, errors = recorder.communicate(timeout=SECONDS)
    assert recorder.returncode == (status if number != signal.SIGKILL else -signal.SIGKILL), errors
    return errors


@pytest.mark.parametrize(("kind", "threads"), [("churning", 2), ("capturing", 1), ("steady", 64)])
def test_a_program_that_is_left_goes_on_and_ends_well(
    standin: StandIn, tmp_path: Path, kind: str, threads: int
) -> None:
    with busy(standin, tmp_path, kind, threads, pause=10000 * threads) as app:
        for number in (1, 2):  # and again: the first one's hooks serve the second
            errors = attach_for(app, tmp_path / f"{number}.bin", 0.3, rounds=2)
            assert "could not" not in errors
            with open_trace(tmp_path / f"{number}.bin") as trace:
                calls = list(trace.iter_calls())
                assert len(calls) > 5
                assert [call.sequence for call in calls] == list(range(len(calls)))
                assert all(call.result in (0, None) for call in calls)
            assert app.goes_on()
        attach_for(app, tmp_path / "3.bin", 0)
        assert app.end() == 0  # at once, while the recorder's parts go


def test_a_program_inside_a_call_is_attached_to_and_left(standin: StandIn, tmp_path: Path) -> None:
    with busy(standin, tmp_path, "blocked", 2) as app:
        # Begins and ends while the call is under way: nothing is recorded.
        assert "made no CUDA driver call" in attach_for(app, tmp_path / "1.bin", 0.1, status=2)
        app.let_calls_return()
        assert app.goes_on()
        attach_for(app, tmp_path / "2.bin", 0.1)
        with open_trace(tmp_path / "2.bin") as trace:
            assert {call.function for call in trace.iter_calls()} == {"cuStandInBlock"}
        assert app.end() == 0


def test_a_program_whose_recorder_is_killed_goes_on_and_ends_well(standin: StandIn, tmp_path: Path) -> None:
    with busy(standin, tmp_path, "steady", 4) as app:
        attach_for(app, tmp_path / "1.bin", 0.5, signal.SIGKILL)
        assert app.goes_on()
        attach_for(app, tmp_path / "2.bin", 0.1)
        assert app.goes_on()
        assert app.end() == 0
    with open_trace(tmp_path / "1.bin") as trace:
        assert trace.counts().calls > 10


@pytest.mark.nightly
def test_hundreds_of_recordings_begin_and_end_under_load(standin: StandIn, tmp_path: Path) -> None:
    chosen = random.Random(7)
    load = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3)]
    try:
        for first in range(0, CYCLES, 5):
            kind, threads = chosen.choice([("steady", 6), ("churning", 3), ("capturing", 1), ("steady", 1)])
            pause = chosen.choice([0, 500, 5000]) if threads == 1 else 5000
            with busy(standin, tmp_path / str(first), kind, threads, pause) as app:
                for cycle in range(first, first + 5):
                    number = chosen.choice([signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
                    print(
                        f"cycle {cycle}: {kind} {threads} {pause} {number}", flush=True
                    )  # shown where it fails
                    attach_for(app, tmp_path / f"{cycle}.bin", chosen.uniform(0, 0.1), number)
                    if chosen.random() < 0.5:
                        assert app.goes_on()
                assert app.end() == 0
    finally:
        for process in load:
            process.kill()
            process.wait()
