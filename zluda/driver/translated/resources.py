"""From CUDA's resource, texture and view descriptors to the descriptor that compiled code reads."""

from __future__ import annotations

import struct

from zluda.driver.descriptors import Resource, ResourceType, Texture, View
from zluda.driver.errors import CudaError
from zluda.driver.translated.arrays import CHANNELS, OF_ARRAYS
from zluda.driver.translated.state import State
from zluda.errors import UnsupportedError
from zluda.numerics.texture.layout import (
    Address,
    Descriptor,
    Filter,
    Flags,
    Format,
    Geometry,
    Kind,
    Level,
    channel_format,
    tight_levels,
)
from zluda.tracefile.arrays import CUBE, LAYERED, SURFACE, ArrayShape

# CU_TRSF_ flags of cuda.h.
_READ_AS_INTEGER = 0x01
_FLAGS = {
    0x02: Flags.NORMALIZED_COORDINATES,
    0x10: Flags.SRGB,
    0x20: Flags.NO_TRILINEAR_OPTIMIZATION,
    0x40: Flags.SEAMLESS_CUBE,
}

_NUMBERS = struct.Struct("<I7f")  # anisotropy, bias, clamps, border: what C would hold them in

# Most texels a row, rows, and bytes from row to row of textures over memory (MAXIMUM_TEXTURE1D_LINEAR_WIDTH,
# MAXIMUM_TEXTURE2D_LINEAR_* of an H200).
_LARGEST: dict[int, tuple[int, int, int]] = {
    ResourceType.LINEAR: (1 << 28, 1, 1 << 32),
    ResourceType.PITCH2D: (131072, 65000, 2097120),
}

# CUresourceViewFormat, from 1 on: 1, 2 and 4 channels of each of these.
_VIEW_FORMATS = (
    *(Format.UNSIGNED_INT8, Format.SIGNED_INT8, Format.UNSIGNED_INT16, Format.SIGNED_INT16),
    *(Format.UNSIGNED_INT32, Format.SIGNED_INT32, Format.HALF, Format.FLOAT),
)


def descriptor_of(state: State, resource: Resource, texture: Texture | None, view: View | None) -> Descriptor:
    """The descriptor of a texture or (without ``texture``) of a surface over a resource.

    Raises CUDA_ERROR_INVALID_VALUE for what CUDA refuses and UnsupportedError for formats that are not
    sampled.
    """
    if resource.type in OF_ARRAYS:
        plain = _of_array(state, resource, surface=texture is None)
    elif texture is None:
        raise CudaError("CUDA_ERROR_INVALID_VALUE", detail="a surface is made of an array")
    else:
        plain = _of_memory(state, resource)
    if view is not None:
        if resource.type in _LARGEST:
            raise CudaError("CUDA_ERROR_INVALID_VALUE", detail="a view is of an array, not of memory")
        plain = _viewed(plain, view)
    return plain if texture is None else sampled(plain, texture)


def _of_array(state: State, resource: Resource, *, surface: bool) -> Descriptor:
    array = state.arrays[resource.at]
    if surface and resource.type != ResourceType.ARRAY:
        detail = "a surface is made of an array: of one level of a mipmapped one"
        raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=detail)
    if bool(array.levels) != (resource.type == ResourceType.MIPMAPPED_ARRAY):
        raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=f"array {resource.at:#x} is not of that type")
    shape = array.shape
    if surface and not shape.flags & SURFACE:
        detail = f"array {resource.at:#x} was made without CUDA_ARRAY3D_SURFACE_LDST"
        raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=detail)
    size = (shape.width, max(shape.height, 1), 1 if shape.layered else max(shape.depth, 1))
    slices = max(shape.depth, 1) if shape.layered else 1
    levels, _ = tight_levels(
        size, shape.texel_bytes, levels=shape.levels, slices=slices, address=array.address
    )
    format, _ = channel_format(shape.format)
    return Descriptor(
        *(Kind.SURFACE if surface else Kind.TEXTURE, _geometry(shape), format, shape.channels, levels),
        layers=(slices // 6 if shape.flags & CUBE else slices) if shape.flags & LAYERED else 1,
        array_format=shape.format,
    )


def _geometry(shape: ArrayShape) -> Geometry:
    if shape.layered:
        geometry = Geometry.D2 if shape.height else Geometry.D1
    else:
        geometry = Geometry.D3 if shape.depth else Geometry.D2 if shape.height else Geometry.D1
    if shape.flags & LAYERED:
        geometry |= Geometry.LAYERED
    return geometry | Geometry.CUBE if shape.flags & CUBE else geometry


def _of_memory(state: State, resource: Resource) -> Descriptor:
    if resource.type not in _LARGEST:
        raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=f"resource type {resource.type}")
    format, _ = channel_format(resource.format)
    if resource.channels not in CHANNELS:
        raise CudaError(
            "CUDA_ERROR_INVALID_VALUE", detail=f"{resource.channels} channels; expected 1, 2 or 4"
        )
    texel = format.bytes * resource.channels
    if resource.type == ResourceType.LINEAR:
        width, geometry = resource.size // texel, Geometry.D1 | Geometry.BUFFER
        level = Level(resource.at, resource.size, resource.size, width)
        span = resource.size
    else:
        geometry = Geometry.D2
        slice_bytes = resource.pitch * resource.height
        level = Level(resource.at, resource.pitch, slice_bytes, resource.width, resource.height)
        span = slice_bytes - resource.pitch + resource.width * texel
    sizes, most = (level.width, level.height, level.row_pitch), _LARGEST[resource.type]
    if level.row_pitch < level.width * texel or not all(
        1 <= n <= m for n, m in zip(sizes, most, strict=True)
    ):
        detail = f"width, height and pitch {sizes}, texels of {texel} bytes; expected 1 to {most}"
        raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=detail)
    if not _held(state, resource.at, span):
        detail = f"{resource.at:#x}+{span:#x} is in no allocation"
        raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=detail)
    return Descriptor(
        *(Kind.TEXTURE, geometry, format, resource.channels, [level]), array_format=resource.format
    )


def _held(state: State, address: int, size: int) -> bool:
    """Whether a range lies in one allocation or in a module's variable."""
    ranges = [(base, one.size) for base, one in state.allocations.items()]
    for _, module in state.modules.items():
        ranges += [module.code.global_variable(name) for name in module.variables]
    return any(base <= address and address + size <= base + length for base, length in ranges)


def _viewed(plain: Descriptor, view: View) -> Descriptor:
    """The part of a resource that a view shows, as the format that it gives."""
    first, last = view.first_level, view.last_level
    if not first <= last < len(plain.levels):
        raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=f"levels {first} to {last} of {len(plain.levels)}")
    format, channels = plain.format, plain.channels
    if view.format:
        kind, channels = divmod(view.format - 1, 3)
        if kind >= len(_VIEW_FORMATS):
            raise UnsupportedError(f"CUresourceViewFormat {view.format:#x}", "resource view")
        format, channels = _VIEW_FORMATS[kind], 1 << channels
    if format.bytes * channels != plain.texel_bytes:
        detail = f"a view of {format.bytes * channels} bytes a texel, of texels of {plain.texel_bytes}"
        raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=detail)
    faces = 6 if plain.geometry & Geometry.CUBE else 1
    layers = view.last_layer - view.first_layer + 1
    seen = max(layers, faces)  # a cube is looked at whole, though a view of one tells no layers
    uneven = layers > 1 and layers % faces
    if layers < 1 or uneven or view.first_layer + seen > plain.layers * faces:
        detail = f"layers {view.first_layer} to {view.last_layer} of {plain.layers * faces}"
        raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=detail)
    levels = [
        Level(
            *(one.address + view.first_layer * one.slice_pitch, one.row_pitch, one.slice_pitch),
            *(one.width, one.height, one.depth),
        )
        for one in plain.levels[first : last + 1]
    ]
    layered = bool(plain.geometry & Geometry.LAYERED)
    return Descriptor(
        *(plain.kind, plain.geometry, format, channels, levels),
        layers=max(layers // faces, 1) if layered else 1,
        array_format=plain.array_format,
    )


def sampled(plain: Descriptor, texture: Texture) -> Descriptor:
    """A resource's descriptor with how it is sampled. Raises CUDA_ERROR_INVALID_VALUE for no such way."""
    flags = Flags(0)
    for bit, flag in _FLAGS.items():
        flags |= flag if texture.flags & bit else Flags(0)
    _, always_normalised = channel_format(plain.array_format or plain.format)
    small = plain.format.bytes <= 2 and plain.format is not Format.HALF
    if always_normalised or (small and not texture.flags & _READ_AS_INTEGER):
        flags |= Flags.READ_NORMALIZED
    try:
        x, y, z = (Address(mode) for mode in texture.address_modes)
        filters = Filter(texture.filter_mode), Filter(texture.mipmap_filter_mode)
        _ = _NUMBERS.pack(texture.max_anisotropy, *texture[5:8], *texture.border_color)
    except (ValueError, OverflowError, struct.error) as error:
        raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=f"texture descriptor: {error}") from error
    return Descriptor(
        *(plain.kind, plain.geometry, plain.format, plain.channels, plain.levels),
        layers=plain.layers,
        flags=flags,
        address=(x, y, z),
        filter=filters[0],
        mip_filter=filters[1],
        max_anisotropy=texture.max_anisotropy,
        mip_bias=texture.mipmap_level_bias,
        min_lod=texture.min_mipmap_level_clamp,
        max_lod=texture.max_mipmap_level_clamp,
        border=texture.border_color,
        array_format=plain.array_format,
    )
