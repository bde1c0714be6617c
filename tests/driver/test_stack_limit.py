"""How deep recursion goes: what ``cuCtxSetLimit`` gives, and what ends a launch that goes deeper."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from zluda.device import base
from zluda.device.amd import AmdDevice
from zluda.device.cpu import CpuDevice
from zluda.driver import CudaError
from zluda.driver.translated import TranslatedDriver

STACK_SIZE = 0  # CUlimit
DEEP, ENDLESS = 1000, -1

# A thread sums 1 to n by recursion; each level keeps its own n across the call.
PTX = b"""
.version 8.0
.target sm_80
.address_size 64
.func (.param .b32 r) sum(.param .b32 n)
{
    .reg .b32 %n, %m;
    .reg .pred %p;
    ld.param.b32 %n, [n];
    setp.eq.s32 %p, %n, 0;
    mov.b32 %m, 0;
    @%p bra done;
    sub.s32 %m, %n, 1;
    {
    .param .b32 of, is;
    st.param.b32 [of], %m;
    call (is), sum, (of);
    ld.param.b32 %m, [is];
    }
    add.s32 %m, %m, %n;
    mul.lo.s32 %m, %m, 3;
done:
    st.param.b32 [r], %m;
    ret;
}
.visible .entry run(.param .u64 to, .param .b32 n)
{
    .reg .b32 %n, %x;
    .reg .b64 %p, %i;
    ld.param.u64 %p, [to];
    ld.param.b32 %n, [n];
    mov.u32 %x, %tid.x;
    mul.wide.u32 %i, %x, 4;
    add.u64 %p, %p, %i;
    {
    .param .b32 of, is;
    st.param.b32 [of], %n;
    call (is), sum, (of);
    ld.param.b32 %x, [is];
    }
    st.global.b32 [%p], %x;
    ret;
}
"""


def expected(n: int) -> int:
    value = 0
    for level in range(1, n + 1):
        value = (value + level) * 3 % 2**32
    return value


def opened(device: base.Device) -> TranslatedDriver:
    driver = TranslatedDriver(device)
    driver.cuInit(0)
    driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0))
    return driver


def run(driver: TranslatedDriver, depth: int) -> list[int]:
    function = driver.cuModuleGetFunction(driver.cuModuleLoadData(PTX), "run")
    to = driver.cuMemAlloc(4 * 40)
    driver.cuLaunchKernel(function, (1, 1, 1), (40, 1, 1), 0, 0, struct.pack("<Qi", to, depth))
    return list(struct.unpack("<40I", driver.cuMemcpyDtoH(to, 160)))


@pytest.mark.parametrize("make", [CpuDevice, lambda: AmdDevice("gfx1030")], ids=["cpu", "gfx1030"])
def test_recursion_goes_as_deep_as_the_limit_says(make: Callable[[], base.Device]) -> None:
    driver = opened(make())
    driver.cuCtxSetLimit(STACK_SIZE, 128 << 10)
    assert driver.cuCtxGetLimit(STACK_SIZE) == 128 << 10
    assert run(driver, DEEP) == [expected(DEEP)] * 40
    with pytest.raises(
        CudaError, match=r"kernel run.*thread \(0, 0, 0\).*recursion beyond the stack"
    ) as failed:
        run(driver, ENDLESS)
    assert failed.value.name == "CUDA_ERROR_HARDWARE_STACK_ERROR"
    assert failed.value.launch is not None and failed.value.launch.kernel == "run"
    driver.close()


def test_without_a_limit_an_amd_gpu_has_16_KiB() -> None:
    driver = opened(AmdDevice("gfx1030"))
    assert run(driver, 50) == [expected(50)] * 40
    with pytest.raises(CudaError, match="recursion beyond the stack of a thread") as failed:
        run(driver, DEEP)
    assert failed.value.name == "CUDA_ERROR_HARDWARE_STACK_ERROR"
    driver.close()


def test_more_than_a_wave_has_is_refused() -> None:
    driver = opened(AmdDevice("gfx1030"))
    with pytest.raises(CudaError, match="at most 262144") as refused:
        driver.cuCtxSetLimit(STACK_SIZE, 1 << 20)
    assert refused.value.name == "CUDA_ERROR_INVALID_VALUE"
    assert driver.cuCtxGetLimit(STACK_SIZE) == 1024
    driver.close()
