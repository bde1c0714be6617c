"""The recorded application's parent: what it keeps for the session, and what it leaves to the application."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from zluda.errors import Error
from zluda.trace.application import Application


@pytest.mark.parametrize(("end", "status"), [("kill -9 $$", 137), ("exit 7", 7), ("true", 0)])
def test_nobody_in_the_sessions_process_can_take_the_exit_status(end: str, status: int) -> None:
    application = Application(["/bin/sh", "-c", end])
    with pytest.raises(ChildProcessError):  # what Frida does to processes that it traces
        os.waitpid(application.pid, os.WNOHANG)
    application.release()
    assert application.wait() == status


def test_an_application_that_is_not_to_run_ends() -> None:
    application = Application(["/bin/sh", "-c", "exit 7"])
    application.kill()
    with pytest.raises(ProcessLookupError):
        os.kill(application.pid, 0)


def test_a_parent_that_was_killed_is_told_of() -> None:
    application = Application(["/bin/sh", "-c", "exit 7"])
    with open(f"/proc/{application.pid}/stat") as file:
        parent = int(file.read().rsplit(")", 1)[1].split()[1])
    os.kill(parent, 9)
    with pytest.raises(Error, match="how that ended is not known"):
        application.wait()


def test_descriptors_and_the_current_directory_are_the_applications(tmp_path: Path) -> None:
    for module in ("json", "struct", "zluda"):  # a recorder that looked here would not start
        (tmp_path / f"{module}.py").write_text("raise SystemExit(9)\n")
    reading, writing = os.pipe()
    script = f"echo $PWD $PYTHONPATH > /dev/fd/{writing}"
    line = [sys.executable, "-P", "-m", "zluda", "trace", "-o", "t.bin", "--", "/bin/sh", "-c", script]
    environment = {**os.environ, "PYTHONPATH": "/where/the/user/says"}
    done = subprocess.run(
        line, cwd=tmp_path, env=environment, pass_fds=(writing,), capture_output=True, text=True, check=False
    )
    os.close(writing)
    assert "made no CUDA driver call" in done.stderr
    with open(reading) as told:
        assert told.read() == f"{tmp_path} /where/the/user/says\n"
