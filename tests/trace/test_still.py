"""Holding the threads of a running process."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest
from recorded_scenes import StandIn

from zluda.errors import Error
from zluda.trace.still import Stillness, prologues, threads_of


def test_threads_stand_still_until_they_are_released(standin: StandIn, tmp_path: Path) -> None:
    progress = tmp_path / "progress"
    line = [standin.busy, "steady", "3", str(progress), "100"]
    app = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert app.stdout is not None and app.stdout.readline() == "ready\n"
        stillness = Stillness([])
        threads = threads_of(app.pid)
        assert len(threads) == 4
        assert stillness.hold(threads)
        assert not stillness.hold(threads)
        held = progress.read_bytes()
        time.sleep(0.1)
        assert progress.read_bytes() == held
        stillness.release()
        end = time.monotonic() + 300
        while progress.read_bytes() == held:
            assert time.monotonic() < end
        app.communicate("\n", timeout=300)
        assert app.returncode == 0
    finally:
        app.kill()
        app.communicate()


def test_a_thread_that_never_leaves_is_said_so_and_goes_on() -> None:
    app = subprocess.Popen(["sleep", "1000"])
    stillness = Stillness([(0, 1 << 63)])
    try:
        with pytest.raises(Error, match=f"thread {app.pid} does not leave a function"):
            stillness.hold([app.pid])
    finally:
        stillness.release()
    try:
        state = Path(f"/proc/{app.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        assert state in "SR"  # and not stopped
    finally:
        app.kill()
        app.wait()


def test_a_thread_that_has_ended_is_no_matter() -> None:
    app = subprocess.Popen(["true"])
    app.wait()
    stillness = Stillness([])
    stillness.hold([app.pid])
    stillness.release()
    assert threads_of(app.pid) == []


def test_a_holder_that_was_killed_is_told_of() -> None:
    stillness = Stillness([])
    os.kill(stillness._process.pid, 9)
    with pytest.raises(Error, match="their holder has ended"):
        stillness.hold([1])
    stillness.release()


def test_a_function_may_be_stood_at_but_not_in() -> None:
    assert prologues([100]) == [(101, 116)]
