"""The stand-in driver and its programs as the tests see them, one run of ``zluda trace``, and processes under
way.
"""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zluda.tracefile.ring import CONTROL

SOURCES = Path(__file__).parent / "standin"


@dataclass(frozen=True)
class StandIn:
    """What was built."""

    directory: Path

    @property
    def app(self) -> str:
        return str(self.directory / "app")

    @property
    def late(self) -> str:
        return str(self.directory / "late")

    @property
    def graphs(self) -> str:
        return str(self.directory / "graphs")

    @property
    def busy(self) -> str:
        return str(self.directory / "busy")

    @property
    def faults(self) -> str:
        return str(self.directory / "faults")

    @property
    def libraries(self) -> str:
        return str(self.directory / "libraries")

    @property
    def driver(self) -> str:
        return str(self.directory / "libcuda.so.1")


@dataclass(frozen=True)
class Recorded:
    """One run of ``zluda trace``."""

    trace: Path
    status: int
    output: str
    errors: str


def run_trace(
    trace: Path,
    *command: str,
    capture: str = "outputs",
    timing: str = "events",
    verify: bool = False,
    queries: bool = False,
) -> Recorded:
    """Run the command line in a process of its own, as a user would; proving it would take a GPU."""
    options = ["-o", str(trace), "--capture", capture, "--timing", timing]
    options += ["--queries"] * queries + ["--no-verify"] * (not verify)
    line = [sys.executable, "-m", "zluda", "trace", *options, "--", *command]
    result = subprocess.run(line, capture_output=True, text=True, timeout=300, cwd=trace.parent)
    return Recorded(trace, result.returncode, result.stdout, result.stderr)


def word(control: Path, name: str) -> int:
    """A word of the control page; 0 before it is there."""
    try:
        return int(struct.unpack_from("<Q", control.read_bytes(), CONTROL[name])[0])
    except (FileNotFoundError, struct.error):
        return 0


def wait_until(condition: Callable[[], bool], seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.02)


def stop(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def end(session: subprocess.Popen[Any], *pids: int) -> None:
    """Whatever a test came to: the recording's command and its processes (0: not known) are gone after it."""
    for pid in filter(None, pids):
        stop(pid, signal.SIGKILL)
    session.kill()
    session.communicate()


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
