"""`zluda matrix` as a user has it: real traces, real processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.usefixtures("shared_cache")

CORPUS = Path(__file__).parents[2] / "corpus"
COMMAND = [sys.executable, "-m", "zluda", "matrix"]


def _matrix(*arguments: str | Path, status: int = 0) -> str:
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(autouse=True)
def no_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever works on the sources may commit while tests run: to a night, those are other sources."""
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "none"))


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    place = tmp_path / "corpus"
    place.mkdir()
    for name in ("saxpy", "reduction"):
        (place / f"{name}.bin").symlink_to(CORPUS / name / "trace.bin")
    (place / "broken.bin").write_bytes(b"no trace")
    return place


def test_two_nights_and_what_is_known_to_fail(corpus: Path, tmp_path: Path) -> None:
    store = tmp_path / "nights.db"
    options = ("--store", store, "--corpus", corpus, "--device", "cpu")
    said = _matrix("run", *options, "-j", "2", status=2)
    assert "✓ saxpy on cpu, nvidia: identical" in said and "– broken on cpu, nvidia: not-run: " in said
    told = json.loads(_matrix("run", *options, "--json", "--allow", "not-run"))
    assert told == {"run": 2, "cells": 3, "taken_over": 2, "states": {"identical": 2, "not-run": 1}}
    assert "nothing changed; 3 cells as before" in _matrix("compare", "last-1", "--store", store)

    expectations = corpus / "expectations"
    expectations.mkdir()
    (expectations / "cpu.txt").write_text("differs reduction/.* # thought so\nskip broken/.* # no trace\n")
    assert "unexpected-pass" in _matrix("run", *options)
    _matrix("run", *options, "--strict", status=1)
    _matrix("expect", "--store", store, "--corpus", corpus)
    text = (expectations / "cpu.txt").read_text()
    assert "reduction" not in text and "skip broken/.* # no trace" in text
    _matrix("run", *options, "--strict")


def test_a_night_that_was_killed_goes_on(corpus: Path, tmp_path: Path) -> None:
    store = tmp_path / "nights.db"
    options = [
        "--store",
        str(store),
        "--corpus",
        str(corpus),
        "--device",
        "cpu",
        "--samples",
        "0",
        "saxpy",
        "reduction",
    ]
    night = subprocess.Popen(
        [*COMMAND, "run", *options],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert night.stdout is not None and "saxpy" in night.stdout.readline()
    os.killpg(night.pid, signal.SIGKILL)
    night.wait()
    night.stdout.close()
    assert "no finished run" in _matrix("compare", "last", "--store", store, status=2)
    assert "run 1 has other options" in _matrix("run", *options[:-1], "--resume", status=2)
    said = _matrix("run", *options, "--resume")
    assert "run 1: 2 cells" in said and "saxpy on cpu" not in said and "reduction on cpu" in said
    assert "was not interrupted" in _matrix("run", *options, "--resume", status=2)


def test_an_interruption_ends_cells_and_is_no_result(corpus: Path, tmp_path: Path) -> None:
    store = tmp_path / "nights.db"
    options = ["--store", str(store), "--corpus", str(corpus), "--device", "cpu", "--samples", "1000"]
    night = subprocess.Popen([*COMMAND, "run", *options, "saxpy"], stderr=subprocess.PIPE, text=True)
    ours = psutil.Process(night.pid)
    for _ in range(600):
        if cells := ours.children():
            break
        time.sleep(0.1)
    for _ in range(12):  # Python drops an interruption that comes while it calls a destructor
        night.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            _, said = night.communicate(timeout=10)
            break
    assert night.returncode == 130 and "Traceback" not in said
    assert not any(cell.is_running() and cell.status() != psutil.STATUS_ZOMBIE for cell in cells)
    assert "1 cells" in _matrix("run", *options[:-2], "--samples", "0", "saxpy")


def test_says_what_is_wrong_with_what_it_is_given(corpus: Path, tmp_path: Path) -> None:
    store = tmp_path / "nights.db"
    options = ("run", "--store", store, "--corpus", corpus)
    assert "nosuch: not in" in _matrix(*options, "nosuch", status=2)
    assert "no such device" in _matrix(*options, "--device", "gpu", status=2)
    assert "has no numerics" in _matrix(*options, "--device", "interpreter", "--numerics", "native", status=2)
    assert "--allow differs" in _matrix(*options, "--allow", "differs", status=2)
    assert "no such directory" in _matrix(*options, "--expectations", tmp_path / "none", status=2)
    assert "no such file" in _matrix("compare", "last", "--store", tmp_path / "none.db", status=2)
