"""Pointers to functions through memory and parameters: into their own module, and into another one."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import zluda
from zluda.device import base
from zluda.device.amd import AmdDevice
from zluda.device.cpu import CpuDevice
from zluda.driver.translated import TranslatedDriver
from zluda.errors import LaunchError, UnsupportedError

# ``double`` and ``square`` stand at the same place of their modules, and take the same parameters.
TEXT = """
.version 8.0
.target sm_80
.address_size 64
.visible .global .align 4 .u32 factor = {factor};
.func (.param .b32 r) {name}(.param .b32 x)
{{
    .reg .b32 %x, %f;
    ld.param.b32 %x, [x];
    ld.global.u32 %f, [factor];
    {body};
    st.param.b32 [r], %x;
    ret;
}}
.visible .global .align 8 .u64 pointer = {name};
.visible .entry give(.param .u64 to)
{{
    .reg .b64 %f, %p;
    ld.param.u64 %p, [to];
    mov.u64 %f, {name};
    st.global.u64 [%p], %f;
    ret;
}}
.visible .entry apply(.param .u64 data, .param .u64 function)
{{
    .reg .b64 %f, %p, %i;
    .reg .b32 %x, %t;
    ld.param.u64 %p, [data];
    ld.param.u64 %f, [function];
    mov.u32 %t, %tid.x;
    mul.wide.u32 %i, %t, 4;
    add.u64 %p, %p, %i;
    ld.global.b32 %x, [%p];
    {{
    .param .b32 from, to;
    st.param.b32 [to], %x;
    call (from), %f, (to), one;
    ld.param.b32 %x, [from];
    }}
    st.global.b32 [%p], %x;
    ret;
    one: .callprototype (.param .b32 _) _ (.param .b32 _);
}}
"""
DOUBLE = TEXT.format(name="double", factor=2, body="mul.lo.u32 %x, %x, %f")
SQUARE = TEXT.format(name="square", factor=0, body="mul.lo.u32 %x, %x, %x")
X = np.arange(40, dtype=np.uint32)


@pytest.fixture(scope="module", params=["cpu", "gfx1030"])
def device(request: pytest.FixtureRequest) -> Iterator[zluda.Device]:
    with zluda.open_device(request.param) as opened:
        yield opened


def given(device: zluda.Device, module: zluda.Module) -> int:
    """The address that a kernel has of its module's function."""
    cell = device.array(np.zeros(1, np.uint64))
    module.kernel("give").launch(grid=1, block=1, args=[cell])
    return int(cell.numpy()[0])


def apply(device: zluda.Device, module: zluda.Module, function: int) -> list[int]:
    data = device.array(X)
    module.kernel("apply").launch(grid=1, block=len(X), args=[data, np.uint64(function)])
    return [int(x) for x in data.numpy()]


def test_a_module_calls_what_another_kernel_of_it_handed_out(device: zluda.Device) -> None:
    double, square = device.load_module(DOUBLE), device.load_module(SQUARE)
    assert apply(device, double, given(device, double)) == (2 * X).tolist()
    assert apply(device, square, given(device, square)) == (X * X).tolist()


def test_a_function_of_another_module_is_refused_by_name(device: zluda.Device) -> None:
    double, square = device.load_module(DOUBLE), device.load_module(SQUARE)
    with pytest.raises(UnsupportedError, match=r"function of another module.*kernel apply"):
        apply(device, double, given(device, square))


def test_the_same_text_loaded_twice_has_functions_of_its_own(device: zluda.Device) -> None:
    """Each reads variables of its own instance: calling the other's would read the wrong ones."""
    one, two = device.load_module(DOUBLE), device.load_module(DOUBLE)
    assert given(device, one) != given(device, two)
    with pytest.raises(UnsupportedError, match="another module"):
        apply(device, one, given(device, two))


@pytest.mark.parametrize("address", [0, 1 << 40])
def test_what_names_no_function_is_a_fault(device: zluda.Device, address: int) -> None:
    double = device.load_module(DOUBLE)
    with pytest.raises(LaunchError, match="invalid function pointer"):
        apply(device, double, address)
    with pytest.raises(LaunchError, match="invalid function pointer"):
        apply(device, double, given(device, double) + 4)  # in the module, but at no function


@pytest.mark.parametrize("make", [CpuDevice, lambda: AmdDevice("gfx1030")], ids=["cpu", "gfx1030"])
def test_a_pointer_read_from_a_variable_is_passed_to_a_kernel(make: Callable[[], base.Device]) -> None:
    """As ``cudaMemcpyFromSymbol`` of a ``__device__`` function pointer, and the kernel's parameter."""
    driver = TranslatedDriver(make())
    driver.cuInit(0)
    driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0))
    modules = [driver.cuModuleLoadData(text.encode()) for text in (DOUBLE, SQUARE)]
    data = driver.cuMemAlloc(X.nbytes)
    for module, expected in zip(modules, (2 * X, X * X), strict=True):
        address, size = driver.cuModuleGetGlobal(module, "pointer")
        pointer = driver.cuMemcpyDtoH(address, size)
        driver.cuMemcpyHtoD(data, X.tobytes())
        function = driver.cuModuleGetFunction(module, "apply")
        parameters = struct.pack("<Q", data) + bytes(pointer)
        driver.cuLaunchKernel(function, (1, 1, 1), (len(X), 1, 1), 0, 0, parameters)
        assert np.frombuffer(driver.cuMemcpyDtoH(data, X.nbytes), np.uint32).tolist() == expected.tolist()
    driver.close()
