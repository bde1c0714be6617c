"""Making the driver of a confined runner, and warming it up before the confinement.

The one of a GPU, which is not confined, is ``zluda.driver.native.from_setup``.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from typing import Any

from zluda.compiler import cache
from zluda.device import names
from zluda.device.base import Device
from zluda.device.cpu import CpuDevice, Memory
from zluda.driver import Driver
from zluda.driver.translated import TranslatedDriver

# What is imported late on a kernel's way from an image to machine code.
_PACKAGES = ("zluda.ptx", "zluda.compiler", "zluda.driver.translated")
_LATE = ("zstandard", "lz4.block", "dataclasses", "difflib")  # compressed fatbins; messages

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


_EMULATOR_SHARE = 0.9  # of a command's time limit: it can say where a kernel hangs, who waits for it cannot


def _cpu(setup: Mapping[str, Any], memory: Memory, numerics: str) -> Device:
    return CpuDevice(
        memory,
        numerics=numerics,
        contract=setup["contract"],
        check=setup["check"],
        seed=setup["schedule"],
    )


def _amd(setup: Mapping[str, Any], memory: Memory, numerics: str) -> Device:
    from zluda.device.amd import AmdDevice

    timeout_s = _EMULATOR_SHARE * setup["time_limit"]
    return AmdDevice(
        setup["device"],
        memory,
        numerics=numerics,
        contract=setup["contract"],
        check=setup["check"],
        seed=setup["schedule"],
        timeout_s=timeout_s,
    )


def _interpreter(setup: Mapping[str, Any], memory: Memory, numerics: str) -> Device:
    from zluda.device.interpreter import InterpreterDevice
    from zluda.device.ptxas import sources

    seconds = _EMULATOR_SHARE * setup["time_limit"]
    return InterpreterDevice(sources(setup["contract"]), memory, check=setup["check"], seconds=seconds)


# Kind of device → (what makes it, the package whose modules may be imported late).
_DEVICES = {
    "cpu": (_cpu, "zluda.device.cpu"),
    "gfx": (_amd, "zluda.device.amd"),
    "interpreter": (_interpreter, "zluda.device.interpreter"),
}


def import_late(packages: Iterable[str]) -> None:
    """Import what their modules do, and what those import where they use it."""
    for package in packages:
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
            importlib.import_module(module.name)
    for late in _LATE:
        importlib.import_module(late)


def translated_driver(setup: Mapping[str, Any], memory: Memory) -> Driver:
    """The translated driver over a device in ``memory``, warmed up: it opens no file from here on."""
    name = setup["device"]
    make, own_package = _DEVICES[names.kind(name)]
    import_late((*_PACKAGES, own_package))
    numerics = names.chosen_numerics(name, setup["numerics"])
    device = make(setup, memory, numerics)
    with cache.using(None):  # what is found there would not be compiled
        _warm_up(TranslatedDriver(device))
    return TranslatedDriver(make(setup, memory, numerics))


def hip_driver(setup: Mapping[str, Any], memory: object) -> Driver:
    """The translated driver over an AMD GPU, warmed up: HIP has its devices open from here on."""
    from zluda.device.amd.hip import HipDevice  # reserves addresses before the compiler is imported

    reservations = [(start, size) for start, size in setup["reservations"]]
    numerics = names.chosen_numerics(setup["device"], setup["numerics"])
    device = HipDevice(
        int(setup["device"].partition(":")[2]),
        numerics=numerics,
        contract=setup["contract"],
        reservations=reservations,
    )
    with cache.using(None):
        _warm_up(TranslatedDriver(device))
    return TranslatedDriver(device)


def nvptx_driver(setup: Mapping[str, Any], memory: object) -> Driver:
    """The translated driver over an NVIDIA GPU, which runs what this compiler makes."""
    from zluda.device.cuda.nvptx import NvptxDevice

    device = NvptxDevice(
        int(setup["device"].partition(":")[2]),
        numerics=names.chosen_numerics(setup["device"], setup["numerics"]),
        contract=setup["contract"],
        reservations=[(start, size) for start, size in setup["reservations"]],
    )
    return TranslatedDriver(device)


def _warm_up(driver: Driver) -> None:
    """Compile and run a kernel: targets, thread pools and tables are then there."""
    driver.cuInit()
    driver.cuCtxCreate(0, 0)
    module = driver.cuModuleLoadData(_WARM_UP)
    buffer = driver.cuMemAlloc(256)
    function = driver.cuModuleGetFunction(module, "warm_up")
    driver.cuMemsetD8(buffer, 0, 256)
    driver.cuLaunchKernel(function, (1, 1, 1), (64, 1, 1), 0, 0, buffer.to_bytes(8, "little"))
    driver.cuMemcpyDtoH(buffer, 256)
    driver.cuModuleUnload(module)
    driver.cuMemFree(buffer)
