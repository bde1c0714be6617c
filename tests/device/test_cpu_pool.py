"""The thread pool's life: helpers come when there is work, and go before what they read is freed."""

from __future__ import annotations

import gc
import struct
import threading
import time

import pytest

from zluda.device.cpu import CpuDevice
from zluda.ptx import parse_module

COUNT = """.version 8.0
.target sm_90
.address_size 64
.visible .entry count(.param .u64 p)
{ .reg .b64 %rd1; ld.param.u64 %rd1, [p]; red.global.add.u32 [%rd1], 1; ret; }"""


def launch_many_blocks(device: CpuDevice) -> int:
    kernel = device.load(parse_module(COUNT)).kernel("count")
    counter = device.allocate(4)
    device.fill(counter, b"\0", 4)
    device.launch(kernel, (30_000, 1, 1), (32, 1, 1), struct.pack("<Q", counter))
    return int.from_bytes(device.read(counter, 4), "little")


def helpers() -> int:
    return sum(t.name == "zluda-cpu" for t in threading.enumerate())


def wait_until(fewer: int) -> bool:
    deadline = time.monotonic() + 5
    while helpers() > fewer and time.monotonic() < deadline:
        time.sleep(0.01)
    return helpers() <= fewer


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
def test_every_block_runs_once_on_any_number_of_threads(threads: int) -> None:
    before = helpers()
    device = CpuDevice(threads=threads)
    for _ in range(3):
        assert launch_many_blocks(device) == 30_000 * 32
    assert helpers() == before + threads - 1
    device.close()
    assert helpers() == before


def test_devices_that_come_and_go() -> None:
    for _ in range(30):
        device = CpuDevice(threads=3)
        assert launch_many_blocks(device) == 30_000 * 32
        device.close()


def test_a_forgotten_device_ends_its_threads() -> None:
    before = helpers()
    device = CpuDevice(threads=2)
    launch_many_blocks(device)
    del device
    gc.collect()
    assert wait_until(before)


def test_launches_from_several_python_threads() -> None:
    device = CpuDevice(threads=2)
    counts: list[int] = []
    callers = [threading.Thread(target=lambda: counts.append(launch_many_blocks(device))) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert counts == [30_000 * 32] * 4
    device.close()
