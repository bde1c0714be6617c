"""Arrays, copies of rows, texture objects and references on a device that runs translated code."""

from __future__ import annotations

import struct

import gpu_smoke
import pytest

from zluda.driver import CudaError
from zluda.driver.descriptors import Copy, CopyEnd, MemoryType, Resource, ResourceType, Texture, View
from zluda.driver.translated import TranslatedDriver
from zluda.errors import UnsupportedError
from zluda.numerics.texture.layout import (
    DESCRIPTOR_BYTES,
    FIELDS,
    LEVEL_BYTES,
    LEVEL_FIELDS,
    LEVELS_AT,
    Flags,
    Geometry,
    Kind,
    tight_levels,
)
from zluda.tracefile.arrays import CUBE, LAYERED, SURFACE, ArrayShape

F32, U8, HALF = 0x20, 0x01, 0x10
PICTURE = ArrayShape(20, 10, 0, F32, 1, SURFACE)


def in_array(array: int, x: int = 0, y: int = 0, z: int = 0) -> CopyEnd:
    return CopyEnd(x, y, z, MemoryType.ARRAY, array=array)


def in_memory(address: int, pitch: int = 0, height: int = 0, x: int = 0, y: int = 0, z: int = 0) -> CopyEnd:
    return CopyEnd(x, y, z, MemoryType.DEVICE, device=address, pitch=pitch, height=height)


# --- arrays ------------------------------------------------------------------------------------------


def test_it_does_what_an_nvidia_gpu_is_asked_to_do(driver: TranslatedDriver) -> None:
    assert gpu_smoke.arrays(driver) == "8 kinds of arrays"
    assert gpu_smoke.objects(driver).startswith("handles 0x1, 0x2, 0x3, 0x4, 0x1;")


@pytest.mark.parametrize("shape", gpu_smoke.SHAPES, ids=lambda shape: shape.text)
def test_the_record_linearises_as_compiled_code_reads(shape: ArrayShape) -> None:
    size = (shape.width, max(shape.height, 1), 1 if shape.layered else max(shape.depth, 1))
    slices = shape.depth if shape.layered else 1
    levels, total = tight_levels(size, shape.texel_bytes, levels=shape.levels, slices=slices)
    assert total == shape.size
    for number, level in enumerate(levels):
        row, rows, found = shape.extent(number)
        assert (level.address, level.row_pitch, level.slice_pitch) == (
            shape.level_at(number),
            row,
            row * rows,
        )
        assert found == (shape.depth if shape.layered else level.depth)


@pytest.mark.parametrize(
    "shape",
    [
        ArrayShape(0, 4, 0, F32, 1),
        ArrayShape(4, 4, 0, F32, 3),
        ArrayShape(4, 0, 4, F32, 1),
        ArrayShape(131073, 0, 0, F32, 1),
        ArrayShape(8, 8, 5, F32, 1, CUBE),
        ArrayShape(8, 4, 6, F32, 1, CUBE),
        ArrayShape(8, 8, 9, F32, 1, CUBE | LAYERED),
        ArrayShape(8, 8, 0, F32, 1, LAYERED),
        ArrayShape(8, 8, 2049, F32, 1, LAYERED),
    ],
    ids=str,
)
def test_what_is_no_array_is_refused(driver: TranslatedDriver, shape: ArrayShape) -> None:
    with pytest.raises(CudaError, match="no such array"):
        driver.cuArray3DCreate(shape)


def test_formats_without_channels_are_unsupported_by_number(driver: TranslatedDriver) -> None:
    with pytest.raises(UnsupportedError, match="CUarray_format 0x91"):
        driver.cuArray3DCreate(ArrayShape(8, 8, 0, 0x91, 4))
    with pytest.raises(UnsupportedError, match="SPARSE"):
        driver.cuArray3DCreate(ArrayShape(8, 8, 0, F32, 4, 0x40))


def test_a_levels_contents_lie_in_its_mipmapped_array(driver: TranslatedDriver) -> None:
    shape = ArrayShape(16, 8, 0, U8, 4, 0, 5)
    whole = driver.cuMipmappedArrayCreate(shape)
    level = driver.cuMipmappedArrayGetLevel(whole, 2)
    assert driver.cuArray3DGetDescriptor(level) == ArrayShape(4, 2, 0, U8, 4)
    driver.cuMemcpyHtoA(level, 4, b"abcd")
    assert driver.read_array(whole, shape.level_at(2) + 4, 4) == b"abcd"
    with pytest.raises(CudaError, match="level 5 of 5"):
        driver.cuMipmappedArrayGetLevel(whole, 5)
    with pytest.raises(CudaError, match="belongs to a mipmapped array"):
        driver.cuArrayDestroy(level)
    driver.cuMipmappedArrayDestroy(whole)
    with pytest.raises(CudaError, match="not live"):
        driver.read_array(level, 0, 1)
    with pytest.raises(CudaError, match="6 levels"):
        driver.cuMipmappedArrayCreate(shape._replace(levels=6))


def test_arrays_and_objects_go_with_their_context(driver: TranslatedDriver) -> None:
    context = driver.cuCtxCreate(0, 0)
    array = driver.cuArray3DCreate(PICTURE)
    surface = driver.cuSurfObjectCreate(Resource(ResourceType.ARRAY, array))
    driver.cuCtxDestroy(context)
    for use in (
        lambda: driver.cuArray3DGetDescriptor(array),
        lambda: driver.cuSurfObjectGetResourceDesc(surface),
    ):
        with pytest.raises(CudaError, match="not live"):
            use()


# --- copies ------------------------------------------------------------------------------------------


def test_boxes_between_every_two_kinds_of_memory(driver: TranslatedDriver) -> None:
    """Host → array → pitched memory → a volume → another → host, each with a place and steps of its own."""
    rows = bytes(i * 7 % 251 for i in range(24 * 5 * 3))
    volume = driver.cuArray3DCreate(ArrayShape(16, 8, 6, HALF, 2))
    other = driver.cuArray3DCreate(ArrayShape(9, 7, 4, F32, 1))
    memory = driver.cuMemAlloc(4096)
    driver.cuMemsetD8(memory, 0xAA, 4096)
    size = (24, 5, 3)
    assert driver.cuMemcpy3D(Copy(CopyEnd(), in_array(volume, 8, 2, 1), *size), rows) == b""
    driver.cuMemcpy3D(Copy(in_array(volume, 8, 2, 1), in_memory(memory, 40, 6, x=3, y=1, z=2), *size))
    content = driver.cuMemcpyDtoH(memory, 4096)
    for z in range(3):
        for y in range(5):
            at = ((2 + z) * 6 + 1 + y) * 40 + 3
            assert content[at : at + 24] == rows[(z * 5 + y) * 24 :][:24]
            assert content[at - 1] == content[at + 24] == 0xAA
    driver.cuMemcpy3DAsync(Copy(in_memory(memory, 40, 6, 3, 1, 2), in_array(other, 4, 1, 1), *size), 0)
    assert driver.cuMemcpy3D(Copy(in_array(other, 4, 1, 1), CopyEnd(), *size)) == rows
    driver.cuMemcpy2D(Copy(in_array(other, 4, 1, 0), in_array(volume, 0, 0, 0), 24, 5))
    assert driver.cuMemcpy2DUnaligned(Copy(in_memory(memory + 3, 40), CopyEnd(), 2, 1)) == b"\xaa\xaa"


@pytest.mark.parametrize(
    ("copy", "why"),
    [
        (lambda array, memory: Copy(CopyEnd(), in_array(array, 4), 80), "leaves|box up to"),
        (lambda array, memory: Copy(CopyEnd(), in_array(array, 0, 10), 80), "box up to"),
        (lambda array, memory: Copy(CopyEnd(), in_array(array, 2), 78), "texels have 4"),
        (lambda array, memory: Copy(CopyEnd(), in_memory(memory, 80), 80, 10, 1), "past its allocation"),
        (lambda array, memory: Copy(CopyEnd(), in_memory(memory, 40), 80, 2), "a pitch of 40"),
        (lambda array, memory: Copy(CopyEnd(), in_array(array + 1), 80), "not live"),
        (lambda array, memory: Copy(CopyEnd(), CopyEnd(type=9), 80), "memory type 9"),
    ],
)
def test_copies_that_leave_their_memory_are_refused(driver: TranslatedDriver, copy, why: str) -> None:  # type: ignore[no-untyped-def]
    array, memory = driver.cuArray3DCreate(PICTURE), driver.cuMemAlloc(512)
    made = copy(array, memory)
    with pytest.raises(CudaError, match=why):
        driver.cuMemcpy3D(made, bytes(made.size))


def test_ranges_of_arrays(driver: TranslatedDriver) -> None:
    one, two = (driver.cuArrayCreate(ArrayShape(64, 0, 0, U8, 1)) for _ in range(2))
    memory = driver.cuMemAlloc(64)
    driver.cuMemcpyHtoAAsync(one, 8, b"0123456789", 0)
    driver.cuMemcpyAtoD(memory + 4, one, 10, 6)
    assert driver.cuMemcpyDtoH(memory + 4, 6) == b"234567"
    driver.cuMemcpyDtoA(two, 1, memory + 5, 4)
    driver.cuMemcpyAtoA(one, 0, two, 2, 3)
    assert driver.cuMemcpyAtoH(one, 0, 3) + driver.cuMemcpyAtoHAsync(two, 1, 1, 0) == b"4563"
    with pytest.raises(CudaError, match="leaves"):
        driver.cuMemcpyAtoH(one, 60, 5)


def test_fills_of_rows(driver: TranslatedDriver) -> None:
    memory = driver.cuMemAlloc(600)
    driver.cuMemsetD8(memory, 0, 600)
    driver.cuMemsetD2D16(memory + 2, 20, 0x0102, 3, 4)
    driver.cuMemsetD2D32Async(memory + 100, 8, 7, 2, 5, 0)
    content = driver.cuMemcpyDtoH(memory, 600)
    for row in range(4):
        assert content[row * 20 : row * 20 + 20] == bytes(2) + b"\2\1" * 3 + bytes(12)
    assert content[100:140] == struct.pack("<I", 7) * 10 and not any(content[140:])
    with pytest.raises(CudaError, match="pitch 2"):
        driver.cuMemsetD2D8(memory, 2, 0, 3, 2)
    with pytest.raises(CudaError, match="past its allocation"):
        driver.cuMemsetD2D8(memory, 300, 0, 3, 3)


# --- objects -----------------------------------------------------------------------------------------


def descriptor(driver: TranslatedDriver, key: int) -> bytes:
    """The bytes that compiled code finds under a handle."""
    state = driver._state
    at = state.services.textures.descriptor_at(key)
    assert at, f"{key:#x} has no descriptor"
    return state.device.read(at, DESCRIPTOR_BYTES)


def word(data: bytes, field: str) -> int:
    return int(struct.unpack_from("<I", data, FIELDS[field])[0])


def level(data: bytes, number: int) -> tuple[int, ...]:
    """Address, row pitch, slice pitch, width, height, depth."""
    assert list(LEVEL_FIELDS.values()) == [0, 8, 16, 24, 28, 32]
    return struct.unpack_from("<3Q3I", data, LEVELS_AT + number * LEVEL_BYTES)


def test_a_recorded_handle_is_given_out_as_it_is(driver: TranslatedDriver) -> None:
    array = driver.cuArray3DCreate(PICTURE)
    resource = Resource(ResourceType.ARRAY, array)
    assert driver.cuTexObjectCreate(resource, Texture(), handle=0x10_0002) == 0x10_0002
    assert driver.cuSurfObjectCreate(resource, handle=3) == 3
    assert driver.cuTexObjectCreate(resource, Texture()) == 1
    with pytest.raises(CudaError, match="0x3 is another object's"):
        driver.cuTexObjectCreate(resource, Texture(), handle=3)
    assert word(descriptor(driver, 3), "kind") == Kind.SURFACE
    driver.cuSurfObjectDestroy(3)
    assert driver._state.services.textures.descriptor_at(3) == 0
    assert driver.cuTexObjectCreate(resource, Texture(), handle=3) == 3


@pytest.mark.parametrize(
    ("shape", "geometry", "layers"),
    [
        (ArrayShape(8, 0, 0, F32, 1), Geometry.D1, 1),
        (ArrayShape(8, 4, 0, F32, 1), Geometry.D2, 1),
        (ArrayShape(8, 4, 3, F32, 1), Geometry.D3, 1),
        (ArrayShape(8, 0, 3, F32, 1, LAYERED), Geometry.D1 | Geometry.LAYERED, 3),
        (ArrayShape(8, 4, 3, F32, 1, LAYERED), Geometry.D2 | Geometry.LAYERED, 3),
        (ArrayShape(8, 8, 6, F32, 1, CUBE), Geometry.D2 | Geometry.CUBE, 1),
        (ArrayShape(8, 8, 12, F32, 1, CUBE | LAYERED), Geometry.D2 | Geometry.CUBE | Geometry.LAYERED, 2),
    ],
)
def test_a_texture_has_its_arrays_geometry(
    driver: TranslatedDriver, shape: ArrayShape, geometry: Geometry, layers: int
) -> None:
    array = driver.cuArray3DCreate(shape)
    data = descriptor(driver, driver.cuTexObjectCreate(Resource(ResourceType.ARRAY, array), Texture()))
    assert (word(data, "geometry"), word(data, "layers"), word(data, "levels")) == (geometry, layers, 1)
    row, rows, _ = shape.extent()
    depth = shape.depth if geometry == Geometry.D3 else 1
    assert level(data, 0) == (driver.array_address(array), row, row * rows, 8, max(shape.height, 1), depth)


def test_how_a_texture_is_read(driver: TranslatedDriver) -> None:
    array = driver.cuArray3DCreate(ArrayShape(8, 4, 0, U8, 4))
    resource = Resource(ResourceType.ARRAY, array)
    texture = Texture((0, 2, 3), 1, 0x02 | 0x10 | 0x20, 4, 1, 0.5, 1.0, 2.0, (0.25, 0.5, 0.75, 1.0))
    data = descriptor(driver, driver.cuTexObjectCreate(resource, texture))
    fields = ("address_x", "address_y", "address_z", "filter", "max_anisotropy", "mip_filter")
    assert [word(data, name) for name in fields] == [0, 2, 3, 1, 4, 1]
    wanted = Flags.NORMALIZED_COORDINATES | Flags.SRGB | Flags.NO_TRILINEAR_OPTIMIZATION
    assert word(data, "flags") == wanted | Flags.READ_NORMALIZED
    assert struct.unpack_from("<7f", data, FIELDS["mip_bias"]) == (0.5, 1.0, 2.0, 0.25, 0.5, 0.75, 1.0)
    integers = descriptor(driver, driver.cuTexObjectCreate(resource, Texture(flags=1)))
    assert word(integers, "flags") == 0
    wide = driver.cuArray3DCreate(ArrayShape(8, 4, 0, 0x03, 1))
    assert not word(descriptor(driver, driver.cuTexObjectCreate(Resource(0, wide), Texture())), "flags")
    snorm = driver.cuArray3DCreate(ArrayShape(8, 4, 0, 0xC7, 2))
    read = descriptor(driver, driver.cuTexObjectCreate(Resource(0, snorm), Texture(flags=1)))
    assert word(read, "flags") == Flags.READ_NORMALIZED and word(read, "array_format") == 0xC7
    assert word(read, "format") == 0x08


def test_a_view_shows_some_levels_and_layers_as_another_format(driver: TranslatedDriver) -> None:
    shape = ArrayShape(16, 8, 5, F32, 1, LAYERED, 3)
    array = driver.cuMipmappedArrayCreate(shape)
    resource = Resource(ResourceType.MIPMAPPED_ARRAY, array)
    view = View(0x03, 16, 8, 0, 1, 2, 2, 4)  # as UINT_4X8
    handle = driver.cuTexObjectCreate(resource, Texture(), view)
    assert driver.cuTexObjectGetResourceViewDesc(handle) == view
    data = descriptor(driver, handle)
    assert [word(data, n) for n in ("levels", "layers", "format", "channels")] == [2, 3, U8, 4]
    assert level(data, 0)[:5] == (driver.array_address(array) + shape.level_at(1) + 2 * 128, 32, 128, 8, 4)
    for wrong, why in (
        (view._replace(last_level=3), "levels 1 to 3 of 3"),
        (view._replace(last_layer=5), "layers 2 to 5 of 5"),
        (view._replace(format=0x01), "a view of 1 bytes"),
    ):
        with pytest.raises(CudaError, match=why):
            driver.cuTexObjectCreate(resource, Texture(), wrong)
    with pytest.raises(UnsupportedError, match="CUresourceViewFormat 0x19"):
        driver.cuTexObjectCreate(resource, Texture(), view._replace(format=0x19))


def test_textures_over_memory(driver: TranslatedDriver) -> None:
    memory = driver.cuMemAlloc(4096)
    linear = Resource(ResourceType.LINEAR, memory + 512, HALF, 2, 400)
    data = descriptor(driver, driver.cuTexObjectCreate(linear, Texture()))
    assert word(data, "geometry") == Geometry.D1 | Geometry.BUFFER
    assert level(data, 0)[0] == memory + 512 and level(data, 0)[3] == 100
    pitched = Resource(ResourceType.PITCH2D, memory, U8, 4, 0, 10, 6, 64)
    data = descriptor(driver, driver.cuTexObjectCreate(pitched, Texture()))
    assert word(data, "geometry") == Geometry.D2
    assert level(data, 0) == (memory, 64, 384, 10, 6, 1)
    for wrong in (linear._replace(size=4000), pitched._replace(height=65), linear._replace(at=8)):
        with pytest.raises(CudaError, match="is in no allocation"):
            driver.cuTexObjectCreate(wrong, Texture())


def test_a_surface_wants_an_array_made_for_it(driver: TranslatedDriver) -> None:
    plain = driver.cuArray3DCreate(PICTURE._replace(flags=0))
    with pytest.raises(CudaError, match="SURFACE_LDST"):
        driver.cuSurfObjectCreate(Resource(ResourceType.ARRAY, plain))
    with pytest.raises(CudaError, match="made of an array"):
        driver.cuSurfObjectCreate(Resource(ResourceType.LINEAR, driver.cuMemAlloc(64), F32, 1, 64))
    with pytest.raises(CudaError, match="not of that type"):
        driver.cuTexObjectCreate(Resource(ResourceType.MIPMAPPED_ARRAY, plain), Texture())


@pytest.mark.parametrize("limit", [1, 7, 100, 2000, 10**6])
def test_a_copy_in_parts_is_the_same_copy(driver: TranslatedDriver, limit: int) -> None:
    volume = driver.cuArray3DCreate(ArrayShape(30, 12, 6, F32, 1))
    memory = driver.cuMemAlloc(30000)
    rows = bytes(i * 11 % 253 for i in range(40 * 9 * 5))
    copy = Copy(CopyEnd(), in_array(volume, 16, 2, 1), 40, 9, 5)
    parts = list(copy.parts(limit))
    assert all(part.size <= max(limit, 40) for part, _ in parts)
    assert sum(part.size for part, _ in parts) == copy.size
    for part, at in parts:
        driver.cuMemcpy3D(part, rows[at : at + part.size])
    out = Copy(in_array(volume, 16, 2, 1), in_memory(memory, 48), 40, 9, 5)
    for part, _ in out.parts(limit):
        driver.cuMemcpy3D(part)
    back = Copy(in_memory(memory, 48), CopyEnd(), 40, 9, 5)
    assert b"".join(driver.cuMemcpy3D(part) for part, _ in back.parts(limit)) == rows
    assert driver.cuMemcpy3D(back) == rows


@pytest.mark.parametrize(
    ("resource", "view"),
    [
        (Resource(ResourceType.LINEAR, 0, F32, 0, 64), None),
        (Resource(ResourceType.LINEAR, 0, F32, 3, 96), None),
        (Resource(ResourceType.LINEAR, 0, F32, 1, 3), None),
        (Resource(ResourceType.LINEAR, 0, U8, 1, (1 << 28) + 1), None),
        (Resource(ResourceType.PITCH2D, 0, F32, 1, 0, 16, 16, 0), None),
        (Resource(ResourceType.PITCH2D, 0, F32, 1, 0, 17, 4, 64), None),
        (Resource(ResourceType.PITCH2D, 0, F32, 1, 0, 0, 4, 64), None),
        (Resource(ResourceType.PITCH2D, 0, F32, 1, 0, 16, 0, 64), None),
        (Resource(9, 0, F32, 1, 64), None),
        (Resource(ResourceType.LINEAR, 0, F32, 1, 64), View(22, 16, 1, 1, 0, 0, 0, 0)),
    ],
    ids=str,
)
def test_no_texture_is_made_of_memory_so_described(
    driver: TranslatedDriver, resource: Resource, view: View | None
) -> None:
    resource = resource._replace(at=driver.cuMemAlloc(4096))
    with pytest.raises(CudaError, match="CUDA_ERROR_INVALID_VALUE"):
        driver.cuTexObjectCreate(resource, Texture(), view)


def test_a_view_of_cubes_stays_inside_of_them(driver: TranslatedDriver) -> None:
    cubes = driver.cuArray3DCreate(ArrayShape(4, 4, 12, F32, 1, LAYERED | CUBE))

    def view(first: int, last: int) -> int:
        shown = View(0, 4, 4, 0, 0, 0, first, last)
        return driver.cuTexObjectCreate(Resource(ResourceType.ARRAY, cubes), Texture(), shown)

    for first, last in ((0, 0), (6, 6), (0, 5), (6, 11), (0, 11)):
        assert view(first, last)
    for first, last in ((7, 7), (6, 12), (0, 6), (8, 11)):
        with pytest.raises(CudaError, match="layers"):
            view(first, last)


def test_no_surface_is_made_of_a_mipmapped_array(driver: TranslatedDriver) -> None:
    whole = driver.cuMipmappedArrayCreate(PICTURE._replace(levels=2))
    with pytest.raises(CudaError, match="of one level of a mipmapped one"):
        driver.cuSurfObjectCreate(Resource(ResourceType.MIPMAPPED_ARRAY, whole))
    with pytest.raises(CudaError, match="level -1"):
        driver.cuMipmappedArrayGetLevel(whole, -1)


def test_each_part_of_how_a_texture_is_read_is_its_own(driver: TranslatedDriver) -> None:
    """No two fields are alike: one taken for another shows."""
    cube = Resource(ResourceType.ARRAY, driver.cuArray3DCreate(ArrayShape(4, 4, 6, 0x02, 1, CUBE)))
    data = descriptor(driver, driver.cuTexObjectCreate(cube, Texture((1, 2, 3), 0, 0x40, 0, 1)))
    assert (word(data, "filter"), word(data, "mip_filter")) == (0, 1)
    assert word(data, "flags") == Flags.SEAMLESS_CUBE | Flags.READ_NORMALIZED  # of 16 bits too
    halves = Resource(ResourceType.ARRAY, driver.cuArrayCreate(ArrayShape(4, 4, 0, HALF, 1)))
    assert word(descriptor(driver, driver.cuTexObjectCreate(halves, Texture())), "flags") == 0


def test_a_reference_is_read_as_it_was_set_last(driver: TranslatedDriver) -> None:
    module = driver.cuModuleLoadData(
        b".version 8.0\n.target sm_80\n.address_size 64\n.global .texref picture;\n"
        b".visible .entry k() { .reg .b32 %v<4>, %x; mov.u32 %x, 0;"
        b" tex.1d.v4.u32.s32 {%v0, %v1, %v2, %v3}, [picture, {%x}]; ret; }"
    )
    picture = driver.cuModuleGetTexRef(module, "picture")
    address, _ = driver._state.modules[module].code.global_variable("picture")
    memory = driver.cuMemAlloc(4096)
    driver.cuTexRefSetFormat(picture, F32, 1)
    assert driver.cuTexRefSetAddress(picture, memory + 512 + 16, 400) == 16
    assert level(descriptor(driver, address), 0)[::3][:2] == (memory + 512, 104)  # 16 bytes are 4 texels
    for dimension, mode in enumerate((1, 2, 3)):
        driver.cuTexRefSetAddressMode(picture, dimension, mode)
    driver.cuTexRefSetMipmapLevelClamp(picture, 1.5, 2.5)
    data = descriptor(driver, address)
    assert [word(data, f"address_{axis}") for axis in "xyz"] == [1, 2, 3]
    assert struct.unpack_from("<2f", data, FIELDS["min_lod"]) == (1.5, 2.5)
    driver.cuModuleUnload(module)
    assert driver._state.services.textures.descriptor_at(address) == 0


def test_levels_of_layers_have_them_all(driver: TranslatedDriver) -> None:
    whole = driver.cuMipmappedArrayCreate(ArrayShape(16, 8, 5, F32, 1, LAYERED, 3))
    shape = driver.cuArray3DGetDescriptor(driver.cuMipmappedArrayGetLevel(whole, 2))
    assert shape[:3] == (4, 2, 5)


def test_a_context_takes_its_own_arrays_with_it(driver: TranslatedDriver) -> None:
    kept = driver.cuArray3DCreate(PICTURE)
    context = driver.cuCtxCreate(0, 0)
    gone = driver.cuArray3DCreate(PICTURE)
    driver.cuCtxDestroy(context)
    driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0))
    assert driver.cuArray3DGetDescriptor(kept) == PICTURE
    with pytest.raises(CudaError, match="not live"):
        driver.cuArray3DGetDescriptor(gone)
