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
import ctypes, os, subprocess, sys
driver = ctypes.CDLL(sys.argv[1])
app, static, garbage = sys.argv[2:]

def use(times=1):
    assert [driver.cuInit(0) for _ in range(times)] == [0] * times

use()
assert os.system("exit 3") == 3 << 8
use()
child = os.fork()  # Frida was once done with a process in whose memory a child had called execve
if child == 0:
    use(2)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
use()
assert subprocess.run([app, "status"], start_new_session=True, cwd="/").returncode == 7
use()
for wrong, number in ((garbage, 8), ("/no/such/program", 2), ("/", 13)):
    try:
        subprocess.run([wrong])
        raise AssertionError(wrong)
    except OSError as error:
        assert error.errno == number, error
for _ in range(3):
    assert os.waitpid(os.posix_spawn(static, [static], os.environ), 0)[1] == 0
use()
child = ctypes.CDLL(None).syscall(57)  # fork, and nobody knows
if child == 0:
    use(5)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
use()
"""


@pytest.fixture(scope="module")
def family(standin: StandIn, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    directory = tmp_path_factory.mktemp("family")
    source, static, garbage = (directory / name for name in ("a.c", "static", "garbage"))
    source.write_text('void _start(void) { __asm__ volatile("mov $60, %eax; xor %edi, %edi; syscall"); }\n')
    subprocess.run(["cc", "-nostdlib", "-static", source, "-o", static], check=True)
    garbage.write_bytes(b"\0garbage")
    garbage.chmod(0o755)
    command = [sys.executable, "-c", PROGRAM, standin.driver, standin.app, str(static), str(garbage)]
    recorded = run_trace(directory / "trace.bin", *command)
    assert recorded.status == 0, recorded.errors
    return recorded


def test_the_parent_is_recorded_whatever_children_it_has(family: Recorded) -> None:
    with open_trace(family.trace) as trace:
        assert [call.function for call in trace.iter_calls()] == ["cuInit"] * 6


def test_what_is_forked_after_system_is_recorded_and_what_subprocess_starts(family: Recorded) -> None:
    index = json.loads(family.trace.with_name("trace.index.json").read_text())
    main, *children = index["processes"]
    assert main["calls"] == 6
    assert sorted(child["calls"] for child in children) == [2, 4]
    assert {child["parent"] for child in children} == {main["pid"]}
    assert [child["command"][1:] for child in children if child["calls"] == 4] == [["status"]]


def test_what_is_not_recorded_is_told_once_and_a_gap(family: Recorded) -> None:
    assert family.errors.count("(static) is not recorded: a static or 32-bit program") == 1
    assert family.errors.count("5 calls of children forked by a bare clone are not recorded") == 1
    with open_trace(family.trace) as trace:
        assert [(gap.kind, gap.times) for gap in trace.gaps] == [("child", 1)] * 3 + [("child", 5)]


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


# What agent/execs.c does.
BECOMES_ECHO = """
import os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect('\\0' + sys.argv[1])
s.sendall(b'/bin/echo\\0')
assert s.recv(1) == b'\\0'
os.execv('/bin/echo', ['echo', 'hi'])
"""


@pytest.fixture(scope="module")
def refusing() -> Iterator[tuple[Following, list[int]]]:
    refused: list[int] = []

    def take(child: Successor) -> None:
        child.release()
        raise Error("not today")

    following = Following(take, lambda pid, _: refused.append(pid))
    yield following, refused
    following.close()


def test_a_child_goes_on_where_it_cannot_be_followed(refusing: tuple[Following, list[int]]) -> None:
    following, refused = refusing
    child = subprocess.Popen([sys.executable, "-c", BECOMES_ECHO, following.name], stdout=subprocess.PIPE)
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


def test_a_child_is_seen_to_when_the_session_ends() -> None:
    """It would be left stopped, or with a breakpoint."""
    under_way, go_on = threading.Event(), threading.Event()

    def take(child: Successor) -> None:
        under_way.set()
        assert go_on.wait(SECONDS)
        child.hold()
        child.release()

    following = Following(take, lambda pid, reason: None)
    child = subprocess.Popen(
        [sys.executable, "-c", BECOMES_ECHO, following.name], stdout=subprocess.PIPE, text=True
    )
    assert under_way.wait(SECONDS)
    closing = threading.Thread(target=following.close)
    closing.start()
    go_on.set()
    closing.join(SECONDS)
    assert not closing.is_alive()
    assert child.communicate(timeout=SECONDS)[0] == "hi\n"
    late = subprocess.run(
        [sys.executable, "-c", BECOMES_ECHO, following.name], capture_output=True, timeout=SECONDS
    )
    assert b"ConnectionRefusedError" in late.stderr
