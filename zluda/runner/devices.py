"""Making the driver that a runner serves, and warming it up before the runner is confined."""

from __future__ import annotations

import importlib
import pkgutil

from zluda.device.cpu import CpuDevice, Memory
from zluda.driver import Driver
from zluda.driver.translated import TranslatedDriver

# What may be imported or opened late by the way of a kernel through the compiler.
_PACKAGES = ("zluda.ptx", "zluda.compiler", "zluda.numerics", "zluda.device.cpu", "zluda.driver.translated")

_WARM_UP = b"""
.version 8.0
.target sm_90
.address_size 64
.visible .entry warm_up(.param .u64 p)
{
    .reg .b64 %rd<4>;
    .reg .b32 %r<3>;
    .reg .f32 %f<3>;
    ld.param.u64 %rd1, [p];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.f32 %f1, [%rd3];
    add.rn.f32 %f2, %f1, %f1;
    bar.sync 0;
    st.global.f32 [%rd3], %f2;
    ret;
}
"""


def cpu_driver(memory: Memory, numerics: str | None) -> Driver:
    """The translated driver over a CPU device in ``memory``, warmed up: it opens no file from here on."""
    from zluda.device.api import check_numerics

    check_numerics("cpu", numerics)
    for package in _PACKAGES:
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
            importlib.import_module(module.name)
    _warm_up(TranslatedDriver(CpuDevice(memory)))
    return TranslatedDriver(CpuDevice(memory))


def _warm_up(driver: Driver) -> None:
    """Compile and run a kernel: targets, thread pools and tables are then there."""
    driver.cuInit()
    driver.cuCtxCreate(0, 0)
    module = driver.cuModuleLoadData(_WARM_UP)
    buffer = driver.cuMemAlloc(256)
    function = driver.cuModuleGetFunction(module, "warm_up")
    driver.cuLaunchKernel(function, (1, 1, 1), (64, 1, 1), 0, 0, buffer.to_bytes(8, "little"))
    driver.cuModuleUnload(module)
    driver.cuMemFree(buffer)


def cuda_driver(device: str, reservations: list[list[int]]) -> Driver:
    """NVIDIA's driver for ``cuda:N``, its arena over ``reservations``."""
    from zluda.driver.native import NativeDriver

    ordinal = int(device.partition(":")[2])
    return NativeDriver(ordinal, reservations=[(start, size) for start, size in reservations])
