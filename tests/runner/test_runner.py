"""The runner process: what it can do, what it cannot, and what is seen of its death."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import runner_probe

from zluda.driver import CudaError
from zluda.errors import DeviceError, Error, LaunchError, PtxError, UnsupportedError
from zluda.runner import Runner, RunnerDied, near, spawn, start

PLACE = 0x7F12_3440_0000


@pytest.fixture(autouse=True)
def probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runners of these tests serve the probe driver."""
    monkeypatch.setitem(near.FACTORIES, "cpu", ("runner_probe:driver", True, "host"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))


@pytest.fixture
def runner() -> Iterator[Runner]:
    with start(time_limit=20) as runner:
        yield runner


def do(runner: Runner, act: str) -> str:
    return runner.driver.cuFuncGetName(runner_probe.NAMES.index(act))


def launch(runner: Runner, act: str) -> None:
    function = runner.driver.cuModuleGetFunction(1, act)
    runner.driver.cuLaunchKernel(function, (1, 1, 1), (1, 1, 1), 0, 0, b"")


def can_fix_layout() -> bool:
    """Whether randomisation can be turned off here (some containers forbid it); in its own thread."""
    answers: list[bool] = []
    thread = threading.Thread(
        target=lambda: answers.append(spawn.personality(spawn.ADDR_NO_RANDOMIZE, on=True))
    )
    thread.start()
    thread.join()
    return answers[0]


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def shared_files() -> list[str]:
    """This process's shared memory files and doorbells."""
    links = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:
            continue
    return sorted(link for link in links if "zluda" in link or "pipe:" in link or "pidfd" in link)


class TestConfinement:
    @pytest.mark.parametrize(
        "act",
        ["open", "create", "list", "socket", "unix socket", "fork", "exec", "popen", "kill parent"],
    )
    def test_refuses(self, runner: Runner, act: str) -> None:
        with pytest.raises(Error, match="PermissionError"):
            do(runner, act)

    @pytest.mark.parametrize("act", ["thread", "anonymous memory"])
    def test_allows(self, runner: Runner, act: str) -> None:
        do(runner, act)

    def test_is_in_force_in_every_thread(self, runner: Runner) -> None:
        for task in os.listdir(f"/proc/{runner.pid}/task"):
            status = Path(f"/proc/{runner.pid}/task/{task}/status").read_text()
            assert "Seccomp:\t2" in status and "NoNewPrivs:\t1" in status
        assert runner.confinement == ("memory", "system calls")

    def test_bounds_private_memory(self) -> None:
        with start(memory_limit=256 << 20) as runner:
            with pytest.raises(Error, match="MemoryError"):
                do(runner, "private gigabyte")
            with pytest.raises(CudaError, match="OUT_OF_MEMORY"):
                runner.driver.cuMemAlloc(1 << 30)

    def test_bounds_what_it_writes(self, runner: Runner) -> None:
        with pytest.raises(Error, match="PermissionError"):
            do(runner, "write much")

    def test_leaves_it_no_descriptor_of_ours(self, runner: Runner) -> None:
        links = {os.readlink(f"/proc/{runner.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{runner.pid}/fd")}
        known = ("/dev/null", "/memfd:zluda-", "pipe:[")
        assert [link for link in links if not link.startswith(known)] == []


class TestDeath:
    @pytest.mark.parametrize(("act", "number"), [("store to 8", signal.SIGSEGV), ("abort", signal.SIGABRT)])
    def test_a_signal_is_a_crash_with_its_kernel(self, runner: Runner, act: str, number: int) -> None:
        with pytest.raises(RunnerDied) as caught:
            launch(runner, act)
        died = caught.value
        assert (died.reason, died.signal, died.kernel, died.command) == (
            "crash",
            number,
            act,
            "cuLaunchKernel",
        )
        assert str(died) == f"runner: ended by {signal.Signals(number).name} (kernel {act})"
        assert runner.died is died and gone(runner.pid)

    def test_its_last_words_are_told(self, runner: Runner) -> None:
        with pytest.raises(RunnerDied, match=r"LLVM ERROR: no such luck$"):
            launch(runner, "write and abort")

    def test_an_exit_is_a_crash(self, runner: Runner) -> None:
        with pytest.raises(RunnerDied) as caught:
            do(runner, "exit")
        assert (caught.value.reason, caught.value.exit_status, caught.value.kernel) == ("crash", 3, "")
        assert caught.value.command == "cuFuncGetName"

    @pytest.mark.parametrize("act", ["sleep", "spin"])
    def test_no_progress_is_a_hang(self, act: str) -> None:
        with start(time_limit=0.3) as runner:
            began = time.monotonic()
            with pytest.raises(RunnerDied) as caught:
                launch(runner, act)
            assert 0.3 <= time.monotonic() - began < 5
            assert (caught.value.reason, caught.value.kernel, caught.value.signal) == ("hang", act, None)
            assert gone(runner.pid)

    def test_compiling_is_no_progress_of_the_kernel(self) -> None:
        with start(time_limit=0.5) as runner:
            launch(runner, runner_probe.SLOW_TO_COMPILE)

    def test_compiling_has_a_limit_of_its_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(near._LIMITS, False, (1 << 34, 600.0, 0.3))
        with start(time_limit=0.3) as runner:
            with pytest.raises(
                RunnerDied, match=f"compiling kernel {runner_probe.SLOW_TO_COMPILE}"
            ) as caught:
                launch(runner, runner_probe.SLOW_TO_COMPILE)
            assert caught.value.reason == "hang"

    def test_a_closed_doorbell_is_a_crash(self, runner: Runner) -> None:
        with pytest.raises(RunnerDied) as caught:
            launch(runner, "close its doorbell")
        assert (caught.value.reason, caught.value.signal) == ("crash", signal.SIGKILL)
        assert gone(runner.pid)

    def test_it_is_told_again(self, runner: Runner) -> None:
        with pytest.raises(RunnerDied):
            do(runner, "exit")
        with pytest.raises(RunnerDied, match="status 3"):
            runner.driver.cuCtxGetCurrent()

    def test_killed_from_outside(self, runner: Runner) -> None:
        os.kill(runner.pid, signal.SIGKILL)
        with pytest.raises(RunnerDied) as caught:
            runner.driver.cuCtxGetCurrent()
        assert caught.value.signal == signal.SIGKILL

    def test_garbage_on_the_channel_is_a_crash(self, runner: Runner) -> None:
        runner._link._channel._in._words[24] = 12345  # the reply ring's head, as a wild store might
        with pytest.raises(RunnerDied, match="ring indices"):
            runner.driver.cuCtxGetCurrent()
        assert gone(runner.pid)

    def test_before_it_is_ready(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(near.FACTORIES, "cpu", ("runner_probe:nothing", True, "host"))
        before = shared_files()
        with pytest.raises(RunnerDied, match=r"exited with status 1 .*AttributeError"):
            start()
        assert shared_files() == before


class TestErrors:
    @pytest.mark.parametrize(
        ("act", "kind"),
        [
            ("cuda error", CudaError),
            ("unsupported", UnsupportedError),
            ("ptx error", PtxError),
            ("device error", DeviceError),
        ],
    )
    def test_keep_their_type(self, runner: Runner, act: str, kind: type[Error]) -> None:
        with pytest.raises(kind):
            do(runner, act)
        assert runner.driver.cuCtxGetCurrent() == 4711

    def test_keep_where_a_kernel_failed(self, runner: Runner) -> None:
        with pytest.raises(CudaError) as caught:
            do(runner, "cuda error")
        failed = caught.value.launch
        assert isinstance(failed, LaunchError) and (failed.block, failed.address) == ((1, 2, 3), 8)

    def test_a_fault_of_ours_is_an_error_too(self, runner: Runner) -> None:
        with pytest.raises(Error, match="internal error in cuFuncGetName: KeyError: 'missing'"):
            do(runner, "internal")

    def test_an_unknown_entry(self, runner: Runner) -> None:
        with pytest.raises(AttributeError, match="cuNothing"):
            runner.driver.cuNothing  # type: ignore[attr-defined]  # noqa: B018

    def test_a_process_that_cannot_be_started(self, monkeypatch: pytest.MonkeyPatch) -> None:
        before = shared_files()
        monkeypatch.setattr(sys, "executable", "/nowhere/python")
        with pytest.raises(DeviceError, match="cannot execute /nowhere/python"):
            start()
        assert shared_files() == before

    def test_wrong_arguments(self) -> None:
        with pytest.raises(DeviceError, match="time_limit is 0; expected more than 0"):
            start(time_limit=0)
        with pytest.raises(DeviceError, match="nvptx:x"):
            start("nvptx:x")
        with pytest.raises(UnsupportedError, match="numerics"):
            start(numerics="neither")


class TestMemory:
    def test_addresses_as_requested(self) -> None:
        places = [(PLACE + 512, 100), (0x7FFF_B000_0000, 5 << 20), (0x2_0000_0000, 1)]
        with start(reservations=places) as runner:
            for address, size in places:
                assert runner.driver.cuMemAlloc(size, address=address) == address
                runner.driver.cuMemcpyHtoD(address, bytes([7]))
                assert runner.memory.read(address, 1) == b"\7"
            elsewhere = runner.driver.cuMemAlloc(64)
            assert all(not a // near.GRANULE * near.GRANULE <= elsewhere < a + s for a, s in places)
            runner.driver.cuMemcpyHtoD(elsewhere, b"x")
            assert runner.memory.read(elsewhere, 1) == b"x"

    def test_an_address_that_cannot_be_had(self) -> None:
        with pytest.raises(DeviceError, match="0xffff800000000000"):
            start(reservations=[(0xFFFF_8000_0000_0000, 1)])
        with pytest.raises(DeviceError, match="cannot reserve"):
            start(reservations=[(PLACE, 0)])

    def test_another_layout_where_the_place_is_taken(self) -> None:
        # Without randomisation the executable's own libraries end here, so this needs another execution.
        with start(reservations=[(0x7FFF_F7E0_0000, 1)]) as runner:
            assert runner.driver.cuMemAlloc(1, address=0x7FFF_F7E0_0000) == 0x7FFF_F7E0_0000
            *_, attempt, _ = Path(f"/proc/{runner.pid}/cmdline").read_bytes().split(b"\0")
            assert int(attempt) > 0 or not can_fix_layout()

    def test_large_copies_are_cut(self, runner: Runner) -> None:
        data = os.urandom(1 << 20) * 40 + b"end"
        address = runner.driver.cuMemAlloc(len(data))
        runner.driver.cuMemcpyHtoD(address, data)
        assert runner.driver.cuMemcpyDtoH(address, len(data)) == data
        assert runner.memory.read(address, len(data)) == data
        view = runner.memory.view(address, len(data))
        assert view is not None and view.readonly and view == data
        view.release()

    def test_a_large_image_arrives(self, runner: Runner) -> None:
        assert runner.driver.cuModuleLoadData(bytes(40 << 20)) == 40 << 20

    def test_cannot_be_shrunk_under_us(self, runner: Runner) -> None:
        with pytest.raises(PermissionError):
            os.ftruncate(runner.memory._fd, 0)

    def test_ranges_are_merged(self) -> None:
        step = near.GRANULE
        assert near.merged([(3 * step, step), (5, 1), (step - 1, 2), (7 * step + 1, 1)]) == [
            (0, 2 * step),
            (3 * step, step),
            (7 * step, step),
        ]


def test_constants_are_asked_once(runner: Runner) -> None:
    assert [runner.driver.cuDriverGetVersion() for _ in range(3)] == [1, 1, 1]
    assert runner.driver.cuDeviceGetAttribute(75, 0) == 75
    assert runner.driver.cuDeviceGetAttribute(76, 0) == 76


class TestEnd:
    def test_close_leaves_nothing(self) -> None:
        before = shared_files()
        runner = start()
        runner.close()
        runner.close()
        assert gone(runner.pid) and shared_files() == before
        with pytest.raises(RunnerDied, match="closed"):
            runner.driver.cuCtxGetCurrent()

    def test_it_ends_with_the_process_that_started_it(self, tmp_path: Path) -> None:
        script = textwrap.dedent(
            """
            import os, signal
            from zluda.runner import near, start
            near.FACTORIES["cpu"] = ("runner_probe:driver", True, "host")
            print(start().pid, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
            """
        )
        output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        pid = int(output.stdout)
        deadline = time.monotonic() + 5
        while not gone(pid) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert gone(pid)

    def test_it_outlives_the_thread_that_asked_for_it(self) -> None:
        started: list[Runner] = []
        thread = threading.Thread(target=lambda: started.append(start()))
        thread.start()
        thread.join()
        time.sleep(0.1)
        with started[0] as runner:
            assert runner.driver.cuCtxGetCurrent() == 4711

    def test_the_terminals_interrupt_leaves_it_alone(self, runner: Runner) -> None:
        os.kill(runner.pid, signal.SIGINT)
        assert runner.driver.cuCtxGetCurrent() == 4711

    def test_threads_share_one(self, runner: Runner) -> None:
        errors: list[BaseException] = []

        def ask() -> None:
            try:
                for _ in range(50):
                    assert runner.driver.cuCtxGetCurrent() == 4711
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
