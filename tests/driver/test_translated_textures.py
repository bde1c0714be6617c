"""Kernels that read textures and write surfaces, through the driver: references, objects, dead handles."""

from __future__ import annotations

import struct

import pytest

from zluda.driver import CudaError
from zluda.driver.descriptors import Copy, CopyEnd, MemoryType, Resource, ResourceType, Texture
from zluda.driver.translated import TranslatedDriver
from zluda.tracefile.arrays import SURFACE, ArrayShape

PTX = b"""
.version 8.0
.target sm_80
.address_size 64
.global .texref picture;
.global .surfref canvas;
.visible .entry by_reference(.param .u64 out)
{
    .reg .b64 %p, %o;
    .reg .b32 %x, %y, %r, %v<4>;
    ld.param.u64 %p, [out];
    mov.u32 %x, %tid.x;
    mov.u32 %y, 1;
    tex.2d.v4.u32.s32 {%v0, %v1, %v2, %v3}, [picture, {%x, %y}];
    mul.wide.u32 %o, %x, 4;
    add.s64 %p, %p, %o;
    st.global.u32 [%p], %v0;
    shl.b32 %r, %x, 2;
    sust.b.1d.b32.trap [canvas, {%r}], {%v0};
    ret;
}
.visible .entry by_handle(.param .u64 surface)
{
    .reg .b64 %s;
    .reg .b32 %x, %r, %v;
    ld.param.u64 %s, [surface];
    mov.u32 %x, %tid.x;
    shl.b32 %r, %x, 2;
    suld.b.1d.b32.trap {%v}, [%s, {%r}];
    add.u32 %v, %v, 1;
    sust.b.1d.b32.trap [%s, {%r}], {%v};
    ret;
}
"""
U32, COUNT = 0x03, 32
LINE = ArrayShape(COUNT, 0, 0, U32, 1, SURFACE)
NUMBERS = struct.pack(f"<{COUNT}I", *(i * i + 7 for i in range(COUNT)))


def launch(driver: TranslatedDriver, module: int, kernel: str, parameter: int) -> None:
    function = driver.cuModuleGetFunction(module, kernel)
    driver.cuLaunchKernel(function, (1, 1, 1), (COUNT, 1, 1), 0, 0, parameter.to_bytes(8, "little"))
    driver.cuCtxSynchronize()


def test_references_read_what_is_bound_to_them(driver: TranslatedDriver) -> None:
    module = driver.cuModuleLoadData(PTX)
    picture = driver.cuModuleGetTexRef(module, "picture")
    assert driver.cuModuleGetTexRef(module, "picture") == picture
    memory, out = driver.cuMemAlloc(1024), driver.cuMemAlloc(4 * COUNT)
    canvas = driver.cuArray3DCreate(LINE)
    driver.cuMemcpyHtoD(memory + 256, NUMBERS)
    driver.cuTexRefSetFlags(picture, 1)
    with pytest.raises(CudaError, match="format was not set"):
        driver.cuTexRefSetAddress(picture, memory, 512)
    driver.cuTexRefSetFormat(picture, U32, 1)
    assert driver.cuTexRefSetAddress(picture, memory + 16, 4 * COUNT) == 16
    driver.cuTexRefSetAddress2D(picture, LINE._replace(height=3), memory, 256)
    driver.cuSurfRefSetArray(driver.cuModuleGetSurfRef(module, "canvas"), canvas, 0)
    launch(driver, module, "by_reference", out)
    assert driver.cuMemcpyDtoH(out, 4 * COUNT) == NUMBERS == driver.read_array(canvas, 0, 4 * COUNT)
    array = driver.cuArrayCreate(LINE._replace(height=2))
    driver.write_array(array, 4 * COUNT, NUMBERS[::-1])
    driver.cuTexRefSetArray(picture, array, 1)
    launch(driver, module, "by_reference", out)
    assert driver.cuMemcpyDtoH(out, 4 * COUNT) == NUMBERS[::-1]
    with pytest.raises(CudaError, match="TRSA_OVERRIDE_FORMAT"):
        driver.cuTexRefSetArray(picture, array, 0)
    with pytest.raises(CudaError, match="no reference 'none'"):
        driver.cuModuleGetTexRef(module, "none")
    driver.cuModuleUnload(module)
    with pytest.raises(CudaError, match="not live"):
        driver.cuTexRefSetFlags(picture, 0)


def test_a_surface_is_read_and_written_by_its_recorded_handle(driver: TranslatedDriver) -> None:
    module = driver.cuModuleLoadData(PTX)
    array = driver.cuArray3DCreate(LINE)
    row = Copy(CopyEnd(), CopyEnd(type=MemoryType.ARRAY, array=array), 4 * COUNT)
    driver.cuMemcpy3D(row, NUMBERS)
    handle = driver.cuSurfObjectCreate(Resource(ResourceType.ARRAY, array), handle=0x20_0007)
    launch(driver, module, "by_handle", handle)
    launch(driver, module, "by_handle", handle)
    expected = struct.pack(f"<{COUNT}I", *(i * i + 9 for i in range(COUNT)))
    assert driver.cuMemcpyAtoH(array, 0, 4 * COUNT) == expected
    texture = driver.cuTexObjectCreate(Resource(ResourceType.ARRAY, array), Texture())
    driver.cuTexObjectDestroy(texture)
    driver.cuSurfObjectDestroy(handle)
    with pytest.raises(CudaError) as failed:
        launch(driver, module, "by_handle", handle)
    assert failed.value.launch is not None and failed.value.launch.kernel == "by_handle"
