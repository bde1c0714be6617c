"""Has ``zluda isolate`` look at a program with a bug seeded, and judges what it says."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.detect.bugs import Bug
from bench.detect.programs import PROGRAMS, ROOT, trace_of
from bench.detect.support import environment
from zluda.records import dataclass

_LIMIT = 300.0  # seconds a command, generous: a bug takes a few


@dataclass(frozen=True, slots=True)
class Found:
    """What was said of a bug; empty where nothing was. ``said`` is the sentence behind the layer."""

    bug: Bug
    verdict: str
    layer: str
    instruction: str
    said: str
    seconds: float

    @property
    def flagged(self) -> bool:
        return self.verdict != ""

    @property
    def layer_right(self) -> bool:
        return self.flagged and self.layer == self.bug.layer

    @property
    def instruction_right(self) -> bool:
        return bool(self.instruction) and names(self.bug.instructions, self.instruction)


def names(expected: tuple[str, ...], instruction: str) -> bool:
    """Whether an instruction as PTX has it begins as one of those expected, its guard left aside."""
    text = " ".join(word for word in instruction.split() if not word.startswith("@"))
    return any(text == one or text.startswith((f"{one}.", f"{one} ")) for one in expected)


def look(bug: Bug, traces: Path) -> Found:
    """What ``zluda isolate`` says. Raises RuntimeError where it says nothing: the bug broke the tool."""
    trace = trace_of(bug.program, traces)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, "-m", "zluda", "isolate", str(trace), "--device", bug.device, "--json"]
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=_LIMIT, check=False,
            env=environment(bug.changes, cache=Path(cache)),
        )  # fmt: skip
    if not done.stdout:
        raise RuntimeError(f"{bug.name}: status {done.returncode}: {done.stderr[-400:]}")
    told: dict[str, Any] = json.loads(done.stdout)
    instruction = (told.get("instruction") or {}).get("text", "")
    verdict = told.get("verdict", "") if done.returncode else ""
    reason = told.get("reason", "")
    return Found(bug, verdict, told["layer"], instruction, reason, time.monotonic() - start)


_LEFT = """
import sys
from bench.detect.programs import PROGRAMS, computed, inputs_of
sys.stdout.write(computed(PROGRAMS[sys.argv[1]], inputs_of(sys.argv[1]), sys.argv[2]).hex())
"""


def has_effect(bug: Bug) -> bool:
    """Whether a program leaves other bytes on the bug's device than without the bug, or does not end.

    Nothing that is to find the bug takes part in that: the kernel is launched, and its output read.
    """
    left = []
    for changes in ((), bug.changes):
        with tempfile.TemporaryDirectory() as cache:
            command = [sys.executable, "-c", _LEFT, bug.program, bug.device]
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_LIMIT, check=False,
                env=environment(changes, cache=Path(cache)),
            )  # fmt: skip
            left.append(done.stdout if done.returncode == 0 else "")
    return left[0] != left[1]


def false_alarms(device: str, traces: Path) -> tuple[int, list[str]]:
    """How many traces there are, of the corpus and of the programs, and those that fail without any bug."""
    corpus = sorted(path.parent.name for path in (ROOT / "corpus").glob("*/trace.bin"))
    failing = []
    with tempfile.TemporaryDirectory() as cache:
        for name in (*PROGRAMS, *(f"corpus/{one}" for one in corpus)):
            command = [
                sys.executable,
                "-m",
                "zluda",
                "replay",
                str(trace_of(name, traces)),
                "--device",
                device,
            ]
            done = subprocess.run(
                command, cwd=ROOT, capture_output=True, env=environment((), cache=Path(cache)), check=False
            )
            if done.returncode:
                failing.append(name)
    return len(PROGRAMS) + len(corpus), failing
