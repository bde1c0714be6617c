"""Children of every make: recorded, or told of; and the program goes on as it would."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from recorded_scenes import Recorded, StandIn, run_trace

from zluda.errors import Error
from zluda.trace.application import Application
from zluda.trace.following import Following, Successor, _changes_user
from zluda.trace.hold import process_state
from zluda.tracefile import open_trace

SECONDS = 60

PROGRAM = """
import ctypes, os, subprocess, sys, threading
driver = ctypes.CDLL(sys.argv[1])
app, garbage = sys.argv[2:]

def use():
    assert driver.cuInit(0) == 0

def fork(calls):
    child = os.fork()
    if child == 0:
        [use() for _ in range(calls)]
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    use()

use()
fork(1)
assert os.system("exit 3") == 3 << 8
use()
fork(2)  # Frida was once done with a process whose memory a child had called execve in
child = os.posix_spawn(app, [app, "saxpy"], os.environ)
assert os.waitpid(child, 0)[1] == 0
fork(3)
assert subprocess.run([app, "status"], preexec_fn=lambda: None).returncode == 7
assert subprocess.run([app, "status"], start_new_session=True, cwd="/", close_fds=False).returncode == 7
use()
for wrong, number in ((garbage, 8), ("/no/such/program", 2), ("/", 13)):
    try:
        subprocess.run([wrong])
        raise AssertionError(wrong)
    except OSError as error:
        assert error.errno == number, error
use()
child = ctypes.CDLL(None).syscall(57)  # fork, and nobody knows
if child == 0:
    [use() for _ in range(5)]
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
use()
"""


@pytest.fixture(scope="module")
def family(standin: StandIn, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    directory = tmp_path_factory.mktemp("family")
    garbage = directory / "garbage"
    garbage.write_bytes(b"\0garbage")
    garbage.chmod(0o755)
    command = [sys.executable, "-c", PROGRAM, standin.driver, standin.app, str(garbage)]
    recorded = run_trace(directory / "trace.bin", *command)
    assert recorded.status == 0, recorded.errors
    return recorded


def test_the_parent_is_recorded_whatever_children_it_has(family: Recorded) -> None:
    with open_trace(family.trace) as trace:
        assert [call.function for call in trace.iter_calls()] == ["cuInit"] * 8


def test_what_is_forked_is_recorded_before_and_after_a_child_of_posix_spawn(family: Recorded) -> None:
    index = json.loads(family.trace.with_name("trace.index.json").read_text())
    main, *children = index["processes"]
    assert main["calls"] == 8
    assert sorted(child["calls"] for child in children) == [1, 2, 3, 4, 4, 13]
    assert {child["parent"] for child in children} == {main["pid"]}
    commands = sorted(child["command"][1:] for child in children if child["command"])
    assert commands == [["saxpy"], ["status"], ["status"]]


def test_calls_of_a_child_that_nobody_knew_are_told_and_a_gap(family: Recorded) -> None:
    assert "5 calls of children forked by a bare clone are not recorded" in family.errors
    with open_trace(family.trace) as trace:
        assert [(gap.kind, gap.times) for gap in trace.gaps] == [("child", 5)]


def test_a_static_program_is_told_and_a_gap(standin: StandIn, tmp_path: Path) -> None:
    source, static = tmp_path / "a.c", tmp_path / "static"
    source.write_text('void _start(void) { __asm__ volatile("mov $60, %eax; xor %edi, %edi; syscall"); }\n')
    subprocess.run(["cc", "-nostdlib", "-static", source, "-o", static], check=True)
    program = (
        "import ctypes, subprocess, sys\n"
        "assert ctypes.CDLL(sys.argv[1]).cuInit(0) == 0\n"
        "[subprocess.run([sys.argv[2]], check=True) for _ in range(3)]\n"
    )
    command = [sys.executable, "-c", program, standin.driver, str(static)]
    recorded = run_trace(tmp_path / "trace.bin", *command)
    assert recorded.status == 0, recorded.errors
    assert recorded.errors.count("(static) is not recorded: a static or 32-bit program") == 1
    with open_trace(recorded.trace) as trace:
        assert [gap.kind for gap in trace.gaps] == ["child"] * 3


def test_children_start_when_the_session_is_gone(standin: StandIn, tmp_path: Path) -> None:
    program = (
        "import ctypes, subprocess, sys\n"
        "assert ctypes.CDLL(sys.argv[1]).cuInit(0) == 0\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
        "print(subprocess.check_output(['echo', 'hi']), flush=True)\n"
    )
    line = [sys.executable, "-m", "zluda", "trace", "-o", str(tmp_path / "trace.bin"), "--no-verify", "--"]
    pipe = subprocess.PIPE
    session = subprocess.Popen(
        [*line, sys.executable, "-c", program, standin.driver], stdin=pipe, stdout=pipe, text=True
    )
    assert session.stdout is not None and session.stdin is not None
    assert session.stdout.readline() == "ready\n"
    session.kill()
    session.wait(SECONDS)
    session.stdin.write("\n")
    session.stdin.flush()
    assert session.stdout.readline() == "b'hi\\n'\n"
    session.stdin.close()
    session.stdout.close()


def test_a_held_program_sleeps_until_it_is_let_go() -> None:
    application = Application(["/bin/sh", "-c", "exit 7"])
    end = time.monotonic() + SECONDS
    while process_state(application.pid) != "S":
        assert time.monotonic() < end
    application.release()
    assert application.wait() == 7


@pytest.mark.parametrize(("mode", "changes"), [(0o755, False), (0o4755, True), (0o2755, True)])
def test_a_program_that_changes_user(tmp_path: Path, mode: int, changes: bool) -> None:
    program = tmp_path / "program"
    program.write_text("")
    program.chmod(mode)
    assert _changes_user(os.getpid(), str(program)) is changes
    assert _changes_user(os.getpid(), os.path.relpath(program)) is changes
    assert not _changes_user(os.getpid(), str(tmp_path / "none"))


@pytest.fixture(scope="module")
def refusing() -> Iterator[tuple[Following, list[int]]]:
    refused: list[int] = []

    def take(child: Successor) -> None:
        child.release()
        raise Error("not today")

    yield Following(take, lambda pid, _: refused.append(pid)), refused


def test_a_child_goes_on_where_it_cannot_be_followed(refusing: tuple[Following, list[int]]) -> None:
    following, refused = refusing
    program = (
        "import os, socket, sys\n"
        "s = socket.socket(socket.AF_UNIX); s.connect('\\0' + sys.argv[1]); s.sendall(b'/bin/echo\\0')\n"
        "assert s.recv(1) == b'\\0'\n"
        "os.execv('/bin/echo', ['echo', 'hi'])\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program, following.name], stdout=subprocess.PIPE)
    output, _ = child.communicate(timeout=SECONDS)
    assert (output, child.returncode) == (b"hi\n", 0)
    end = time.monotonic() + SECONDS
    while refused != [child.pid]:
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("said", [b"", b"/bin/true", b"\0" * 3, b"x" * 100000])
def test_who_connects_and_leaves_disturbs_nobody(refusing: tuple[Following, list[int]], said: bytes) -> None:
    following, _ = refusing
    before = threading.active_count()
    stranger = subprocess.run(
        [
            sys.executable,
            "-c",
            "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect('\\0' + sys.argv[1]);"
            f"s.sendall({said!r})",
            following.name,
        ],
        timeout=SECONDS,
    )
    assert stranger.returncode == 0
    end = time.monotonic() + SECONDS
    while threading.active_count() > before:
        assert time.monotonic() < end
        time.sleep(0.01)
    with socket.socket(socket.AF_UNIX) as again:
        again.connect(f"\0{following.name}")
