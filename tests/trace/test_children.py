"""Children of every make: recorded, or told of; and the program goes on as it would."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
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


def test_a_thread_that_becomes_another_program_is_followed(standin: StandIn, tmp_path: Path) -> None:
    """It takes the place of all threads, and their main one's process id (ptrace(2))."""
    program = (
        "import ctypes, os, sys, threading, time\n"
        "assert ctypes.CDLL(sys.argv[1]).cuInit(0) == 0\n"
        "become = lambda: os.execv(sys.argv[2], [sys.argv[2], 'status'])\n"
        "threading.Thread(target=become).start()\n"
        "time.sleep(60)\n"
    )
    line = [sys.executable, "-c", program, standin.driver, standin.app]
    recorded = run_trace(tmp_path / "trace.bin", *line)
    assert recorded.status == 7, recorded.errors
    calls = []
    for path in sorted(tmp_path.glob("trace*.bin")):
        with open_trace(path) as trace:
            calls.append(trace.counts().calls)
    assert sorted(calls) == [1, 4]


CLOSES = """
import ctypes, os, sys
if os.fork() == 0:
    for descriptor in range(3, 4096):
        try:
            os.close(descriptor)
        except OSError:
            pass
    os._exit(ctypes.CDLL(sys.argv[1]).cuInit(0))
sys.exit(os.wait()[1])
"""


def test_a_forked_child_that_closes_every_descriptor_and_loads_the_driver_is_recorded(
    standin: StandIn, tmp_path: Path
) -> None:
    """Frida's connection must survive it (agent/descriptors.c)."""
    recorded = run_trace(tmp_path / "trace.bin", sys.executable, "-c", CLOSES, standin.driver)
    (child,) = tmp_path.glob("trace.*.bin")
    with open_trace(child) as trace:
        assert [call.function for call in trace.iter_calls()] == ["cuInit"]
    assert recorded.status in (0, 2), recorded.errors  # the program itself makes no call


MANY = """
import ctypes, os, sys
from pathlib import Path
driver, most = ctypes.CDLL(sys.argv[1]), 0
assert driver.cuInit(0) == 0
for _ in range(5):
    if os.fork() == 0:
        os._exit(driver.cuInit(0))
    assert os.wait()[1] == 0
    most = max(most, len(list(Path(sys.argv[2]).glob("*.rings"))))
print(most)
"""


def test_children_that_have_ended_keep_no_rings(standin: StandIn, tmp_path: Path) -> None:
    recorded = run_trace(tmp_path / "trace.bin", sys.executable, "-c", MANY, standin.driver, str(tmp_path))
    assert recorded.status == 0, recorded.errors
    assert int(recorded.output) <= 3  # the program's, the child's, and the last one's
    assert len(list(tmp_path.glob("trace.*.bin"))) == 5


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
s.sendall(b'E%d\\0/bin/echo\\0' % os.getpid())
assert s.recv(1) == b'\\0'
os.execv('/bin/echo', ['echo', 'hi'])
"""


class Takes:
    """Follows everybody; ``take`` is what it does."""

    def __init__(self, take: Callable[[Successor], None]) -> None:
        self.take_successor = take
        self.refused: list[int] = []
        self.forked: list[tuple[int, int]] = []

    def is_followed(self, pid: int) -> bool:
        return True

    def take_forked(self, pid: int, parent: int) -> None:
        self.forked.append((pid, parent))

    def unrecorded(self, pid: int, reason: str) -> None:
        self.refused.append(pid)


@pytest.fixture(scope="module")
def refusing() -> Iterator[tuple[Following, Takes]]:
    def take(child: Successor) -> None:
        child.release()
        raise Error("not today")

    takes = Takes(take)
    following = Following(takes)
    yield following, takes
    following.close()


def test_a_child_goes_on_where_it_cannot_be_followed(refusing: tuple[Following, Takes]) -> None:
    following, takes = refusing
    child = subprocess.Popen([sys.executable, "-c", BECOMES_ECHO, following.name], stdout=subprocess.PIPE)
    output, _ = child.communicate(timeout=SECONDS)
    assert (output, child.returncode) == (b"hi\n", 0)
    end = time.monotonic() + SECONDS
    while takes.refused != [child.pid]:
        assert time.monotonic() < end
        time.sleep(0.01)


FORKS = """
import os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect('\\0' + sys.argv[1])
s.sendall(b'F%d\\0\\0' % os.getppid())
assert s.recv(1) == b''
"""


def test_a_forked_child_waits_until_it_was_taken(refusing: tuple[Following, Takes]) -> None:
    following, takes = refusing
    child = subprocess.Popen([sys.executable, "-c", FORKS, following.name])
    assert child.wait(SECONDS) == 0
    assert takes.forked == [(child.pid, os.getpid())]


@pytest.mark.parametrize(
    "said", [b"", b"E1", b"E1\0/bin/true", b"E1\0/bin/true\0", b"Ex\0\0", b"\0" * 3, b"x" * 100000]
)
def test_who_connects_and_leaves_disturbs_nobody(refusing: tuple[Following, Takes], said: bytes) -> None:
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

    following = Following(Takes(take))
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
