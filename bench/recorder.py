"""The command that a benchmark records a program with."""

from __future__ import annotations

import sys
from pathlib import Path


def command(trace: Path, *options: str) -> list[str]:
    """What stands before the program: a recording without its proof, which is not what recording costs."""
    return [
        sys.executable,
        "-m",
        "zluda",
        "trace",
        "--quiet",
        "--no-verify",
        "-o",
        str(trace),
        *options,
        "--",
    ]
