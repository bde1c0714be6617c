"""The stand-in driver and its programs as the tests see them, and one run of ``zluda trace``."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

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
    result = subprocess.run(line, capture_output=True, text=True, timeout=120, cwd=trace.parent)
    return Recorded(trace, result.returncode, result.stdout, result.stderr)
