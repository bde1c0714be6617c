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
.visible .entry as_cube(.param .u64 texture, .param .u64 out)
{
    .reg .b64 %t, %p, %o;
    .reg .b32 %x;
    .reg .f32 %a, %b, %c, %v<4>;
    .reg .pred %q;
    ld.param.u64 %t, [texture];
    ld.param.u64 %p, [out];
    mov.u32 %x, %tid.x;
    setp.eq.u32 %q, %x, 0;
    selp.f32 %a, 0f3F800000, 0f00000000, %q;
    setp.eq.u32 %q, %x, 1;
    selp.f32 %b, 0fBF800000, 0f00000000, %q;
    setp.ge.u32 %q, %x, 2;
    selp.f32 %c, 0fBF800000, 0f00000000, %q;
    mul.wide.u32 %o, %x, 8;
    add.s64 %p, %p, %o;
    tex.cube.v4.f32.f32 {%v0, %v1, %v2, %v3}, [%t, {%a, %b, %c, %c}];
    st.global.f32 [%p], %v0;
    tld4.r.cube.v4.f32.f32 {%v0, %v1, %v2, %v3}, [%t, {%a, %b, %c, %c}];
    st.global.f32 [%p+4], %v1;
    ret;
}
.visible .entry wide(.param .u64 surface, .param .u64 out)
{
    .reg .b64 %s, %p;
    .reg .b32 %x, %v<4>;
    ld.param.u64 %s, [surface];
    ld.param.u64 %p, [out];
    mov.u32 %x, %tid.x;
    shl.b32 %x, %x, 4;
    suld.b.1d.v4.b32.clamp {%v0, %v1, %v2, %v3}, [%s, {%x}];
    st.global.v4.u32 [%p], {%v0, %v1, %v2, %v3};
    mov.u32 %v0, -1;
    sust.b.1d.v4.b32.clamp [%s, {%x}], {%v0, %v0, %v0, %v0};
    ret;
}
"""
U32, COUNT = 0x03, 32
LINE = ArrayShape(COUNT, 0, 0, U32, 1, SURFACE)
NUMBERS = struct.pack(f"<{COUNT}I", *(i * i + 7 for i in range(COUNT)))


def launch(
    driver: TranslatedDriver, module: int, kernel: str, *parameters: int, threads: int = COUNT
) -> None:
    function = driver.cuModuleGetFunction(module, kernel)
    packed = struct.pack(f"<{len(parameters)}Q", *parameters)
    driver.cuLaunchKernel(function, (1, 1, 1), (threads, 1, 1), 0, 0, packed)
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


def test_what_is_no_cube_has_one_face(driver: TranslatedDriver) -> None:
    """A fetch of the wrong kind stays inside of the texels: five faces more would be others' memory."""
    module, out = driver.cuModuleLoadData(PTX), driver.cuMemAlloc(8 * 3)
    array = driver.cuArray3DCreate(ArrayShape(1, 1, 0, 0x20, 1))
    driver.write_array(array, 0, struct.pack("<f", 2.5))
    seamless = Texture(filter_mode=1, flags=0x40)
    for texture in (Texture(), seamless):
        handle = driver.cuTexObjectCreate(Resource(ResourceType.ARRAY, array), texture)
        launch(driver, module, "as_cube", handle, out, threads=3)
        assert struct.unpack("<6f", driver.cuMemcpyDtoH(out, 24)) == (2.5,) * 6


def test_an_access_wider_than_a_surface_touches_nothing(driver: TranslatedDriver) -> None:
    module, out = driver.cuModuleLoadData(PTX), driver.cuMemAlloc(16)
    driver.cuMemsetD8(out, 0xEE, 16)
    array = driver.cuArray3DCreate(ArrayShape(2, 0, 0, 0x01, 1, SURFACE))
    driver.write_array(array, 0, b"ab")
    surface = driver.cuSurfObjectCreate(Resource(ResourceType.ARRAY, array))
    launch(driver, module, "wide", surface, out, threads=2)
    assert driver.cuMemcpyDtoH(out, 16) == bytes(16)
    assert driver.read_array(array, 0, 2) == b"ab"


def test_textures_of_a_destroyed_array_stop_a_launch(driver: TranslatedDriver) -> None:
    module = driver.cuModuleLoadData(PTX)
    whole = driver.cuMipmappedArrayCreate(LINE._replace(levels=2))
    surface = driver.cuSurfObjectCreate(
        Resource(ResourceType.ARRAY, driver.cuMipmappedArrayGetLevel(whole, 0))
    )
    picture, out = driver.cuModuleGetTexRef(module, "picture"), driver.cuMemAlloc(4 * COUNT)
    driver.cuTexRefSetMipmappedArray(picture, whole, 1)
    driver.cuMipmappedArrayDestroy(whole)
    driver.cuTexRefSetFlags(picture, 1)  # of a reference to nothing
    for kernel, parameter in (("by_handle", surface), ("by_reference", out)):
        with pytest.raises(CudaError, match="a texture or surface handle that no object has"):
            launch(driver, module, kernel, parameter)
        assert driver.recover()
    driver.cuSurfObjectDestroy(surface)


@pytest.mark.parametrize(
    "texture",
    [
        Texture(max_anisotropy=-1),
        Texture(mipmap_level_bias=1e300),
        Texture(border_color=(0.0, 0.0, -1e39, 0.0)),
        Texture(address_modes=(0, 4, 0)),
        Texture(filter_mode=-1),
    ],
)
def test_a_sampler_that_c_could_not_hold_is_refused(driver: TranslatedDriver, texture: Texture) -> None:
    array = driver.cuArrayCreate(LINE._replace(height=2))
    with pytest.raises(CudaError, match="texture descriptor"):
        driver.cuTexObjectCreate(Resource(ResourceType.ARRAY, array), texture)
    reference = driver.cuTexRefCreate()
    with pytest.raises(CudaError, match="dimension 3"):
        driver.cuTexRefSetAddressMode(reference, 3, 0)
