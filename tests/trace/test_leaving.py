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
from recorded_scenes import StandIn, wait_until

from zluda.tracefile import open_trace
from zluda.tracefile.ring import CONTROL

CYCLES = int(os.environ.get("ATTACH_CYCLES", "300"))
SECONDS = 300


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


def recorder_of(app: Busy, trace: Path) -> subprocess.Popen[str]:
    """``zluda trace --attach``, once it records."""
    command = ["trace", "--capture", "calls", "--attach", str(app.process.pid), "-o", str(trace)]
    recorder = subprocess.Popen([sys.executable, "-m", "zluda", *command], stderr=subprocess.PIPE, text=True)
    assert recorder.stderr is not None
    first = recorder.stderr.readline()
    assert "recording; interrupt to stop" in first, first + recorder.stderr.read()
    return recorder


def attach_for(
    app: Busy, trace: Path, number: int = signal.SIGINT, rounds: int = 0, seconds: float = 0
) -> str:
    """Record so many rounds of every thread (or for a while); the recorder's last line."""
    recorder = recorder_of(app, trace)
    time.sleep(seconds)
    assert all(app.goes_on() for _ in range(rounds))
    recorder.send_signal(number)
    _, errors = recorder.communicate(timeout=SECONDS)
    if number == signal.SIGKILL:
        assert recorder.returncode == -signal.SIGKILL
    elif recorder.returncode != 0:
        assert recorder.returncode == 2 and "made no CUDA driver call" in errors and not rounds, errors
    return errors


def wait_until_unrecorded(pid: int) -> None:
    """Until a recorder whose session was killed has written the rest."""
    wait_until(lambda: ".rings/control\n" not in Path(f"/proc/{pid}/maps").read_text())


def code_of(pid: int) -> dict[str, bytes]:
    """The machine code of a process's C library and driver, by their names."""
    found = {"libc.so.6": b"", "libcuda.so.1": b""}  # in several pieces, where pages have been written
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, access, _, _, _, *path = line.split(maxsplit=5)
            if "x" in access and path and (name := Path(path[0]).name) in found:
                first, behind = (int(end, 16) for end in span.split("-"))
                memory.seek(first)
                found[name] += memory.read(behind - first)
    return found


def connections_of(pid: int) -> list[Path]:
    """Its sockets, which are Frida's."""
    with contextlib.suppress(FileNotFoundError):  # closed at this moment
        return [fd for fd in Path(f"/proc/{pid}/fd").iterdir() if os.readlink(fd).startswith("socket:")]
    return connections_of(pid)


@pytest.mark.parametrize(("kind", "threads"), [("churning", 2), ("capturing", 1), ("steady", 64)])
def test_a_program_that_is_left_goes_on_and_ends_well(
    standin: StandIn, tmp_path: Path, kind: str, threads: int
) -> None:
    with busy(standin, tmp_path, kind, threads, pause=10000 * threads) as app:
        for number in (1, 2):  # and again: the first one's hooks serve the second
            errors = attach_for(app, tmp_path / f"{number}.bin", rounds=3)
            assert "could not" not in errors
            with open_trace(tmp_path / f"{number}.bin") as trace:
                calls = list(trace.iter_calls())
                assert len(calls) > 5
                assert [call.sequence for call in calls] == list(range(len(calls)))
                assert all(call.result in (0, None) for call in calls)
            assert app.goes_on()
        attach_for(app, tmp_path / "3.bin")
        assert app.end() == 0  # at once, while the recorder's parts go


def test_a_program_inside_a_call_is_attached_to_and_left(standin: StandIn, tmp_path: Path) -> None:
    with busy(standin, tmp_path, "blocked", 2) as app:
        # Begins and ends while the call is under way: nothing is recorded.
        assert "made no CUDA driver call" in attach_for(app, tmp_path / "1.bin")
        app.let_calls_return()
        assert app.goes_on()
        attach_for(app, tmp_path / "2.bin", rounds=2)
        with open_trace(tmp_path / "2.bin") as trace:
            assert {call.function for call in trace.iter_calls()} == {"cuStandInBlock"}
        assert app.end() == 0


def test_a_program_whose_recorder_is_killed_goes_on_and_ends_well(standin: StandIn, tmp_path: Path) -> None:
    with busy(standin, tmp_path, "steady", 4) as app:
        for number in (1, 2):
            attach_for(app, tmp_path / f"{number}.bin", signal.SIGKILL, rounds=3)
            assert app.goes_on()
        attach_for(app, tmp_path / "3.bin", rounds=2)
        assert app.goes_on()
        assert app.end() == 0
    for number in (1, 2, 3):
        with open_trace(tmp_path / f"{number}.bin") as trace:
            assert trace.counts().calls > 10


def test_a_killed_recorder_leaves_the_programs_code_as_it_is(standin: StandIn, tmp_path: Path) -> None:
    """Threads may be anywhere in it."""
    with busy(standin, tmp_path, "steady", 2) as app:
        recorder = recorder_of(app, tmp_path / "1.bin")
        before = code_of(app.process.pid)
        connections = connections_of(app.process.pid)
        recorder.kill()
        recorder.communicate()
        wait_until_unrecorded(app.process.pid)
        wait_until(lambda: connections_of(app.process.pid) != connections)  # Frida has noticed
        assert app.goes_on()
        assert code_of(app.process.pid) == before


@pytest.mark.parametrize("finished", [True, False])
def test_a_program_whose_recorder_was_killed_is_attached_to_again(
    standin: StandIn, tmp_path: Path, finished: bool
) -> None:
    """What the killed recorder left is written by itself, where only its session was killed, else by us."""
    with busy(standin, tmp_path, "steady", 2) as app:
        recorder = recorder_of(app, tmp_path / "1.bin")
        assert app.goes_on() and app.goes_on()
        if not finished:
            control = (tmp_path / "1.bin.rings/control").read_bytes()
            os.kill(struct.unpack_from("<Q", control, CONTROL["RECORDER_PID"])[0], signal.SIGKILL)
        recorder.kill()
        recorder.communicate()
        attach_for(app, tmp_path / "2.bin", rounds=2)
        assert not (tmp_path / "1.bin.rings").exists()
        assert app.end() == 0
    for number in (1, 2):
        with open_trace(tmp_path / f"{number}.bin") as trace:
            assert trace.counts().calls > 5


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
                    attach_for(app, tmp_path / f"{cycle}.bin", number, seconds=chosen.uniform(0, 0.1))
                    if chosen.random() < 0.5:
                        assert app.goes_on()
                assert app.end() == 0
    finally:
        for process in load:
            process.kill()
            process.wait()
