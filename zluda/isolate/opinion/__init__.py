"""A second opinion on the emulator: AMD's own pseudo-code of vector instructions, beside the semantic table.

Owns an interpreter of that pseudo-code (``pseudocode``), which PyPI's tinygrad carries as AMD's ISA manuals
print it; kernels of single instructions (``assembly``, ``instructions``); and the comparison of both. Shares
nothing with ``device/amd/emulator`` but the names of instructions and how many operands each has. No code of
a trace is executed: :func:`opinion` runs its own kernels, in a process apart, since what is wrong may be any
instruction, one that addresses are made with included.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from zluda.errors import Error
from zluda.records import dataclass

_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Opinion:
    """``told`` instructions were held against the pseudo-code, and ``wrong`` says what was otherwise."""

    told: tuple[str, ...]
    wrong: tuple[str, ...]


def opinion(target: str, instructions: Iterable[str]) -> Opinion:
    """What AMD's pseudo-code says of how the emulator executes instructions of a target, by their names.

    Raises Error where that cannot be known: without tinygrad, or for a generation that it has no manual of.
    """
    root = str(Path(__file__).resolve().parents[3])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-P", "-m", "zluda.isolate.opinion", target, *sorted(set(instructions))]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Opinion((), (f"kernels of single instructions had not ended after {_SECONDS} s",))
    if done.returncode < 0:
        return Opinion((), (f"a kernel of single instructions died of signal {-done.returncode}",))
    if done.returncode:
        raise Error(done.stderr.strip().rsplit("\n", 1)[-1] or f"status {done.returncode}")
    found = json.loads(done.stdout)
    return Opinion(tuple(found["told"]), tuple(found["wrong"]))
