"""The CUDA driver API over HIP, in a runner: streams, events, memory, launches, failures."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy
import pytest
from kernels import ADD, HEADER, added, parameters, ramp

import zluda
from zluda import runner
from zluda.driver import CudaError, Driver, LaunchAttribute
from zluda.errors import DeviceError

COUNT = 1000
SIZE = 4 * COUNT
COOPERATIVE = 2  # CU_LAUNCH_ATTRIBUTE_COOPERATIVE

VARIABLE = """
.visible .global .align 4 .u32 table[4] = {5, 6, 7, 8};
.visible .entry look(.param .u64 look_param_0)
{
    .reg .b64 %rd<2>;
    .reg .b32 %r<2>;
    ld.param.u64 %rd1, [look_param_0];
    ld.global.u32 %r1, [table+8];
    st.global.u32 [%rd1], %r1;
    ret;
}
"""


@pytest.fixture
def driver(gpu: str) -> Iterator[Driver]:
    with runner.start("hip:0", numerics="nvidia") as started:
        assert started.confinement == ("memory", "system calls")
        opened = started.driver
        opened.cuInit(0)
        opened.cuCtxSetCurrent(opened.cuDevicePrimaryCtxRetain(0))
        yield opened


class Adding:
    """``x += y`` in device memory."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        module = driver.cuModuleLoadData((HEADER + ADD).encode())
        self.kernel = driver.cuModuleGetFunction(module, "add")
        self.x, self.y = driver.cuMemAlloc(SIZE), driver.cuMemAlloc(SIZE)
        driver.cuMemcpyHtoD(self.x, ramp(COUNT))
        driver.cuMemcpyHtoD(self.y, ramp(COUNT, 0.25))

    def launch(self, stream: int = 0, **options: object) -> None:
        packed = parameters(self.x, self.y, COUNT)
        self.driver.cuLaunchKernel(self.kernel, (8, 1, 1), (128, 1, 1), 0, stream, packed, **options)  # type: ignore[arg-type]


def test_a_gpu_tells_its_own_name_and_figures(driver: Driver) -> None:
    assert driver.cuDeviceGetName(0) == driver.product == "emulated gfx1030"
    assert driver.emulated and driver.recover()
    warp_size, shared, multiprocessors = (driver.cuDeviceGetAttribute(n, 0) for n in (10, 8, 16))
    assert (warp_size, shared) == (32, 65536) and multiprocessors in (2, 4)
    free, total = driver.cuMemGetInfo()
    assert 0 < free <= total == driver.cuDeviceTotalMem(0) == 16 << 30


def test_work_on_streams_is_ordered_by_events(driver: Driver) -> None:
    adding = Adding(driver)
    first, second = driver.cuStreamCreate(1), driver.cuStreamCreateWithPriority(1, -1)
    start, between, end = (driver.cuEventCreate() for _ in range(3))
    driver.cuEventRecord(start, first)
    adding.launch(first)
    driver.cuEventRecord(between, first)
    driver.cuStreamWaitEvent(second, between)
    adding.launch(second)
    driver.cuEventRecord(end, second)
    driver.cuEventSynchronize(end)
    assert driver.cuEventQuery(end) and driver.cuStreamQuery(second)
    assert driver.cuEventElapsedTime(start, end) > 0
    once = added(ramp(COUNT), ramp(COUNT, 0.25))
    assert driver.cuMemcpyDtoHAsync(adding.x, SIZE, second) == added(once, ramp(COUNT, 0.25))
    for stream in (first, second):
        driver.cuStreamDestroy(stream)
    driver.cuEventDestroy(start)
    with pytest.raises(CudaError, match="INVALID_HANDLE"):
        driver.cuStreamSynchronize(first)


@pytest.mark.parametrize("stream", [0, 1, 2])
def test_predefined_streams(driver: Driver, stream: int) -> None:
    adding = Adding(driver)
    adding.launch(stream)
    driver.cuStreamSynchronize(stream)
    assert driver.cuMemcpyDtoH(adding.x, SIZE) == added(ramp(COUNT), ramp(COUNT, 0.25))


def test_fills_and_copies_go_through_hip(driver: Driver) -> None:
    x, y = driver.cuMemAlloc(64), driver.cuMemAlloc(64)
    driver.cuMemsetD8(x, 0x11, 64)
    driver.cuMemsetD16(x + 16, 0x2222, 8)
    driver.cuMemsetD32Async(x + 32, 0x33333333, 4, 0)
    driver.cuMemcpyDtoD(y + 16, x + 16, 32)
    expected = bytes(16) + b"\x22" * 16 + b"\x33" * 16
    driver.cuMemsetD8(y, 0, 16)
    assert driver.cuMemcpyDtoH(y, 48) == expected


def test_variables_are_linked_where_hip_puts_them(driver: Driver) -> None:
    module = driver.cuModuleLoadData((HEADER + VARIABLE).encode())
    address, size = driver.cuModuleGetGlobal(module, "table")
    assert size == 16 and driver.cuMemcpyDtoH(address, 16) == struct.pack("<4I", 5, 6, 7, 8)
    driver.cuMemcpyHtoD(address + 8, struct.pack("<I", 70))
    out = driver.cuMemAlloc(4)
    look = driver.cuModuleGetFunction(module, "look")
    driver.cuLaunchKernel(look, (1, 1, 1), (1, 1, 1), 0, 0, out.to_bytes(8, "little"))
    assert driver.cuMemcpyDtoH(out, 4) == struct.pack("<I", 70)


def test_hips_refusals_are_cudas_with_hips_words(driver: Driver) -> None:
    with pytest.raises(CudaError, match=r"CUDA_ERROR_OUT_OF_MEMORY.*hipErrorOutOfMemory"):
        driver.cuMemAlloc(1 << 50)


def test_a_cooperative_launch_needs_hip_6(driver: Driver) -> None:
    cooperative = (LaunchAttribute(COOPERATIVE, (1).to_bytes(4, "little")),)
    with pytest.raises(DeviceError, match="needs HIP 6 or later: hipModuleLaunchCooperativeKernel"):
        Adding(driver).launch(attributes=cooperative)


@pytest.mark.parametrize("gpu", ["gfx90a"], indirect=True)
def test_arrays_and_kernels(gpu: str) -> None:
    with zluda.open_device("hip", isolate=True) as device:
        assert device.name == "hip:0" and device.emulated
        kernel = device.load_module(HEADER + ADD).kernel("add")
        x = device.array(numpy.arange(100, dtype=numpy.float32))
        kernel.launch(grid=1, block=128, args=[x, x, numpy.uint32(100)])
        assert (x.numpy() == 2 * numpy.arange(100)).all()
