"""Runners over the real CPU device: translated kernels that work, crash and hang, confined."""

from __future__ import annotations

import signal
import struct
from collections.abc import Iterator
from pathlib import Path

import lz4.block
import numpy as np
import pytest
import zstandard
from kernels import MODULE, parameters

import zluda
from zluda.device.cpu.memory import Memory
from zluda.driver import CudaError
from zluda.errors import LaunchError, PtxError
from zluda.runner import Runner, RunnerDied, start
from zluda.runner.devices import translated_driver

HEADER = ".version 8.0\n.target sm_80\n.address_size 64\n"
BAD = (
    HEADER
    + """
.visible .entry store_to(.param .u64 where)
{
    .reg .b64 %rd<2>;
    .reg .b32 %r<2>;
    ld.param.u64 %rd1, [where];
    mov.u32 %r1, 1;
    st.global.u32 [%rd1], %r1;
    ret;
}
.visible .entry for_ever()
{
LOOP:
    bra LOOP;
}
.visible .entry trap()
{
    trap;
}
"""
)
PLACE = 0x7F12_3440_0000


def ready(runner: Runner) -> int:
    """The bad kernels' module, in a new context."""
    runner.driver.cuInit()
    runner.driver.cuCtxCreate(0, runner.driver.cuDeviceGet(0))
    return runner.driver.cuModuleLoadData(BAD.encode())


@pytest.fixture
def runner() -> Iterator[Runner]:
    with start(reservations=[(PLACE, 1 << 20)], time_limit=60) as runner:
        yield runner


def test_a_kernel_works_on_memory_where_it_was(runner: Runner) -> None:
    ready(runner)
    driver = runner.driver
    function = driver.cuModuleGetFunction(driver.cuModuleLoadData(MODULE.encode()), "add")
    x, y = driver.cuMemAlloc(4000, address=PLACE + 512), driver.cuMemAlloc(4000)
    driver.cuMemcpyHtoD(x, np.arange(1000, dtype="f4").tobytes())
    driver.cuMemcpyHtoD(y, np.ones(1000, "f4").tobytes())
    driver.cuLaunchKernel(function, (8, 1, 1), (128, 1, 1), 0, 0, parameters(x, y, 1000))
    assert runner.memory.read(x, 4000) == (np.arange(1000, dtype="f4") + 1).tobytes()


def test_a_store_to_address_8_is_a_crash_with_its_kernel(runner: Runner) -> None:
    function = runner.driver.cuModuleGetFunction(ready(runner), "store_to")
    with pytest.raises(RunnerDied) as caught:
        runner.driver.cuLaunchKernel(function, (1, 1, 1), (1, 1, 1), 0, 0, struct.pack("<Q", 8))
    assert (caught.value.reason, caught.value.kernel) == ("crash", "store_to")
    assert caught.value.signal == signal.SIGSEGV


def test_an_endless_loop_is_a_hang_with_its_kernel() -> None:
    with start(time_limit=1.5) as runner:
        function = runner.driver.cuModuleGetFunction(ready(runner), "for_ever")
        with pytest.raises(RunnerDied) as caught:
            runner.driver.cuLaunchKernel(function, (1, 1, 1), (32, 1, 1), 0, 0, b"")
        assert (caught.value.reason, caught.value.kernel) == ("hang", "for_ever")


@pytest.mark.parametrize("device", ["cpu", "gfx1030"])
def test_a_prepared_launch_compiles_nothing(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    setup: dict[str, object] = {"device": device, "numerics": None, "contract": "auto", "schedule": 0}
    setup |= {"check": "none", "time_limit": 60.0}
    driver = translated_driver(setup, Memory())
    driver.cuInit()
    driver.cuCtxCreate(0, 0)
    function = driver.cuModuleGetFunction(driver.cuModuleLoadData(MODULE.encode()), "add")
    x, y = driver.cuMemAlloc(4000), driver.cuMemAlloc(4000)
    driver.cuMemcpyHtoD(x, np.ones(1000, "f4").tobytes())
    driver.cuMemcpyHtoD(y, np.ones(1000, "f4").tobytes())
    launch = (function, (8, 1, 1), (128, 1, 1), 0, 0, parameters(x, y, 1000))
    driver.prepare_launch(*launch)
    monkeypatch.setattr("llvmlite.binding.parse_assembly", None)
    driver.cuLaunchKernel(*launch)
    assert driver.cuMemcpyDtoH(x, 4000) == np.full(1000, 2, "f4").tobytes()
    driver.close()


def test_a_launch_that_is_refused_says_so_when_launched(runner: Runner) -> None:
    ready(runner)
    function = runner.driver.cuModuleGetFunction(runner.driver.cuModuleLoadData(MODULE.encode()), "add")
    with pytest.raises(CudaError) as caught:
        runner.driver.cuLaunchKernel(function, (0, 1, 1), (32, 1, 1), 0, 0, bytes(24))
    assert (caught.value.name, caught.value.call) == ("CUDA_ERROR_INVALID_VALUE", "cuLaunchKernel")


def test_a_trap_is_the_kernels_own_failure(runner: Runner) -> None:
    function = runner.driver.cuModuleGetFunction(ready(runner), "trap")
    with pytest.raises(CudaError) as caught:
        runner.driver.cuLaunchKernel(function, (1, 1, 1), (1, 1, 1), 0, 0, b"")
    assert caught.value.launch is not None and caught.value.launch.kernel == "trap"
    with pytest.raises(CudaError, match=caught.value.name):
        runner.driver.cuMemAlloc(4)
    assert runner.driver.recover()
    runner.driver.cuMemAlloc(4)


@pytest.mark.parametrize("flag", [0, 0x8000, 0x2000], ids=["plain", "zstd", "lz4"])
def test_a_fatbin_is_unpacked_though_confined(runner: Runner, flag: int) -> None:
    ready(runner)
    module = runner.driver.cuModuleLoadData(fatbin(MODULE.encode() + b"\0", flag))
    runner.driver.cuModuleGetFunction(module, "add")


def fatbin(text: bytes, flag: int) -> bytes:
    """A fatbin of one PTX entry for sm_80 (layout: ``zluda/ptx/containers.py``)."""
    compressors = {
        0: lambda b: b,
        0x8000: zstandard.compress,
        0x2000: lambda b: lz4.block.compress(b, store_size=False),
    }
    packed = compressors[flag](text)
    stored = packed + bytes(-len(packed) % 8)
    compressed, size = (len(packed), len(text)) if flag else (0, 0)
    entry = struct.pack(
        "<HHIQIIHHIIIQQQ", 1, 0x0101, 64, len(stored), compressed, 0, 0, 8, 80, 0, 0, 0x11 | flag, 0, size
    )
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entry) + len(stored)) + entry + stored


def test_numpy_is_not_loaded_where_kernels_run(runner: Runner) -> None:
    maps = Path(f"/proc/{runner.pid}/maps").read_text()
    assert "llvmlite" in maps and "numpy" not in maps and "pandas" not in maps


class TestIsolatedDevice:
    def test_is_used_like_any(self) -> None:
        with zluda.open_device("cpu", isolate=True) as device:
            assert device.name == "cpu" and device.numerics == "nvidia"
            x, y = device.array(np.arange(40, dtype="f4")), device.array(np.ones(40, "f4"))
            kernel = device.load_module(MODULE).kernel("add")
            assert [(p.offset, p.size) for p in kernel.parameters] == [(0, 8), (8, 8), (16, 4)]
            kernel.launch(grid=2, block=32, args=[x, y, 40])
            device.synchronize()
            assert (x.numpy() == np.arange(40) + 1).all()
            x.free()

    def test_a_crash_is_no_crash_of_ours(self) -> None:
        with zluda.open_device("cpu", isolate=True) as device:
            with pytest.raises(RunnerDied, match=r"SIGSEGV \(kernel store_to\)"):
                device.load_module(BAD).kernel("store_to").launch(grid=1, block=1, args=[8])
            with pytest.raises(RunnerDied):
                device.synchronize()

    def test_failures_keep_their_type(self) -> None:
        with zluda.open_device("cpu", isolate=True) as device:
            module = device.load_module(BAD + "\n.visible .entry bad() { frobnicate; }\n")
            with pytest.raises(LaunchError, match="kernel trap"):
                module.kernel("trap").launch(grid=1, block=1)
            with pytest.raises(PtxError, match="frobnicate"):
                module.kernel("bad")
