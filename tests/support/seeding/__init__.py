"""Faults seeded into zluda, for tests and benchmarks of what finds faults.

A fault is texts of source files that are read otherwise when the modules are imported: in the command that
is started with :func:`environment`, and in every Python process that it starts in turn (the interpreter
itself imports ``hook/sitecustomize.py``, before anything else). No file is changed. ``table.py`` has faults
of tests by name.

A key of the kernel cache is made of the compiler's source files, which a fault does not change. So a seeded
process could fill the user's cache with wrong code, and find right code there in place of what it is to be
tested with. It never sees that cache: it has none, or one below a given directory that is of these changes
alone. The hook sets that in the process itself, whatever its environment says.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HOOK = Path(__file__).parent / "hook"
VARIABLE = "SEEDED_FAULT_OF_ZLUDA"
SOURCE = Path(__file__).resolve().parents[3]
"""Where the package is imported from."""


@dataclass(frozen=True)
class Change:
    """``old`` stands once in the source of ``module`` (its full name), and ``new`` is read in its place."""

    module: str
    old: str
    new: str


def environment(
    changes: Sequence[Change], *, cache: Path | None = None, base: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Environment variables of a process with these changes: ``base`` (else this one's) and the hook's.

    ``cache``: a directory below which the process keeps compiled kernels, apart from those of other changes;
    without it nothing is kept.
    """
    found = dict(os.environ if base is None else base)
    seeded = {
        "changes": [[one.module, one.old, one.new] for one in changes],
        "cache": "" if cache is None else str(cache.resolve()),
    }
    paths = [str(HOOK), str(SOURCE), found.get("PYTHONPATH", "")]
    return found | {VARIABLE: json.dumps(seeded), "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def run(
    changes: Sequence[Change], script: str, *arguments: str, cache: Path | None = None, timeout: float = 300
) -> object:
    """What a script prints in a process with these changes, as JSON: its last line."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", script, *arguments],
        capture_output=True,
        text=True,
        env=environment(changes, cache=cache),
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
