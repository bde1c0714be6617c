"""A confined runner on a host with many cores: its threads' stacks are address space, not private memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CORPUS = Path(__file__).parents[2] / "corpus"

SIXTEEN_CORES = """
import os
os.sched_getaffinity = lambda pid: set(range(16))
"""


def test_sixteen_cores_fit_in_the_memory_limit(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(SIXTEEN_CORES)
    done = subprocess.run(
        [sys.executable, "-m", "zluda", "replay", str(CORPUS / "matmul" / "trace.bin"), "--device", "cpu"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "identical on cpu" in done.stdout
