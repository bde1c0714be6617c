"""``scripts/record_kills.py`` with the stand-in driver: what its check finds, and what it does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from recorded_scenes import StandIn

SCRIPT = Path(__file__).parents[2] / "scripts" / "record_kills.py"
PROGRAM = """\
import ctypes, mmap, struct, sys, time
driver = ctypes.CDLL(sys.argv[2])
open(sys.argv[1], "wb").write(bytes(8))
file = open(sys.argv[1], "r+b")
account = mmap.mmap(file.fileno(), 8)
for done in range(int(sys.argv[3]), 1 << 40):
    driver.cuInit(0)
    struct.pack_into("<Q", account, 0, done)
    time.sleep(0.001)
"""


@pytest.mark.parametrize(("first", "found"), [(1, "1 of 1 kills"), (1 << 30, "calls of cuInit are on")])
def test_what_was_on_record_is_held_against_the_programs_account(
    standin: StandIn, tmp_path: Path, first: int, found: str
) -> None:
    line = [sys.executable, str(SCRIPT), "--counting", "cuInit", "--kills", "1", "--directory"]
    program = [sys.executable, "-c", PROGRAM, "{account}", standin.driver, str(first)]
    environment = {**os.environ, "ZLUDA": f"{sys.executable} -m zluda"}
    done = subprocess.run(
        [*line, str(tmp_path), "--", *program], capture_output=True, text=True, timeout=300, env=environment
    )
    assert found in done.stdout, done.stdout + done.stderr
    assert done.returncode == (first != 1)
