"""Copies of rows, and what textures and surfaces are made of: CUDA's structures as values, and their bytes.

Fields are those of cuda.h's ``CUDA_MEMCPY3D``, ``CUDA_RESOURCE_DESC``, ``CUDA_TEXTURE_DESC`` and
``CUDA_RESOURCE_VIEW_DESC``; ``driver_api.json`` has the offsets that the headers give them.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from zluda.tracefile.arrays import ArrayShape


class MemoryType(enum.IntEnum):
    """``CUmemorytype``."""

    HOST = 1
    DEVICE = 2
    ARRAY = 3
    UNIFIED = 4


class CopyEnd(NamedTuple):
    """One end of a copy of rows. ``x`` and ``pitch`` are bytes; ``height`` is rows from slice to slice."""

    x: int = 0
    y: int = 0
    z: int = 0
    type: int = MemoryType.HOST
    host: int = 0
    device: int = 0
    array: int = 0
    pitch: int = 0
    height: int = 0

    def step(self, width: int, height: int) -> tuple[int, int]:
        """Bytes from row to row and from slice to slice in memory, for a box of ``width`` bytes."""
        pitch = self.pitch or self.x + width
        return pitch, pitch * (self.height or self.y + height)


class Copy(NamedTuple):
    """A copy of ``depth`` slices of ``height`` rows of ``width`` bytes."""

    source: CopyEnd
    destination: CopyEnd
    width: int
    height: int = 1
    depth: int = 1

    @property
    def size(self) -> int:
        """Bytes copied."""
        return self.width * self.height * self.depth

    def parts(self, limit: int) -> Iterator[tuple[Copy, int]]:
        """Parts of at most ``limit`` bytes, or of one row, each with its offset in the host's rows."""
        source, destination = (self._stepped(end) for end in (self.source, self.destination))
        slice_bytes = self.width * self.height
        if self.size <= limit:
            yield self, 0
        elif slice_bytes <= limit:
            step = limit // slice_bytes
            for z in range(0, self.depth, step):
                ends = (source._replace(z=source.z + z), destination._replace(z=destination.z + z))
                yield Copy(*ends, self.width, self.height, min(step, self.depth - z)), z * slice_bytes
        else:
            step = max(limit // self.width, 1)
            for z in range(self.depth):
                for y in range(0, self.height, step):
                    one, two = (e._replace(y=e.y + y, z=e.z + z) for e in (source, destination))
                    part = Copy(one, two, self.width, min(step, self.height - y))
                    yield part, z * slice_bytes + y * self.width

    def _stepped(self, end: CopyEnd) -> CopyEnd:
        """An end whose steps do not depend on the box's size."""
        pitch, slice_bytes = end.step(self.width, self.height)
        return end._replace(pitch=pitch, height=slice_bytes // pitch if pitch else end.height)


class ResourceType(enum.IntEnum):
    """``CUresourcetype``."""

    ARRAY = 0
    MIPMAPPED_ARRAY = 1
    LINEAR = 2
    PITCH2D = 3


class Resource(NamedTuple):
    """``CUDA_RESOURCE_DESC``. ``at`` is a handle or an address; of linear memory ``size`` is bytes."""

    type: int
    at: int
    format: int = 0
    channels: int = 0
    size: int = 0
    width: int = 0
    height: int = 0
    pitch: int = 0


class Texture(NamedTuple):
    """``CUDA_TEXTURE_DESC``."""

    address_modes: tuple[int, int, int] = (0, 0, 0)
    filter_mode: int = 0
    flags: int = 0
    max_anisotropy: int = 0
    mipmap_filter_mode: int = 0
    mipmap_level_bias: float = 0.0
    min_mipmap_level_clamp: float = 0.0
    max_mipmap_level_clamp: float = 0.0
    border_color: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)


class View(NamedTuple):
    """``CUDA_RESOURCE_VIEW_DESC``; ``format`` is a ``CUresourceViewFormat``."""

    format: int
    width: int
    height: int
    depth: int
    first_level: int
    last_level: int
    first_layer: int
    last_layer: int


_COPY_2D = struct.Struct("<" + 2 * "2QI4x4Q" + "2Q")
_COPY_3D = struct.Struct("<" + 2 * "4QI4x6Q" + "3Q")
_ARRAY = struct.Struct("<2Q2I")
_ARRAY_3D = struct.Struct("<3Q3I4x")
_RESOURCE_TYPE, _AT = struct.Struct("<I4xQ"), 8
_LINEAR = struct.Struct("<Q2IQ")
_PITCH2D = struct.Struct("<Q2I3Q")
_RESOURCE_BYTES = 144
_TEXTURE = struct.Struct("<7I7f48x")
_VIEW = struct.Struct("<I4x3Q4I64x")


def decode_copy(data: bytes) -> Copy:
    """``CUDA_MEMCPY2D``, ``CUDA_MEMCPY3D`` or ``CUDA_MEMCPY3D_PEER``, by size. ValueError for another one."""
    if len(data) == _COPY_2D.size:
        fields: tuple[int, ...] = _COPY_2D.unpack(data)
        source, destination = (CopyEnd(x, y, 0, *rest) for x, y, *rest in (fields[:7], fields[7:14]))
        return Copy(source, destination, *fields[14:])
    if len(data) == _COPY_3D.size:
        fields = _COPY_3D.unpack(data)
        source, destination = (CopyEnd(*f[:3], *f[4:8], *f[9:]) for f in (fields[:11], fields[11:22]))
        return Copy(source, destination, *fields[22:])
    raise ValueError(f"{len(data)} bytes are no copy's structure")


def encode_copy(copy: Copy) -> bytes:
    """As ``CUDA_MEMCPY3D``."""
    fields = [(*end[:3], 0, *end[3:7], 0, *end[7:]) for end in (copy.source, copy.destination)]
    return _COPY_3D.pack(*fields[0], *fields[1], copy.width, copy.height, copy.depth)


def encode_copy_2d(copy: Copy) -> bytes:
    """As ``CUDA_MEMCPY2D``."""
    fields = [(*end[:2], *end[3:8]) for end in (copy.source, copy.destination)]
    return _COPY_2D.pack(*fields[0], *fields[1], copy.width, copy.height)


def decode_array(data: bytes) -> ArrayShape:
    """``CUDA_ARRAY_DESCRIPTOR`` or ``CUDA_ARRAY3D_DESCRIPTOR``, by size."""
    if len(data) == _ARRAY.size:
        width, height, format, channels = _ARRAY.unpack(data)
        return ArrayShape(width, height, 0, format, channels)
    return ArrayShape(*_ARRAY_3D.unpack(data))


def encode_array(shape: ArrayShape) -> bytes:
    """As ``CUDA_ARRAY_DESCRIPTOR``."""
    return _ARRAY.pack(shape.width, shape.height, shape.format, shape.channels)


def encode_array_3d(shape: ArrayShape) -> bytes:
    """As ``CUDA_ARRAY3D_DESCRIPTOR``."""
    return _ARRAY_3D.pack(*shape[:6])


def decode_resource(data: bytes) -> Resource:
    """``CUDA_RESOURCE_DESC``."""
    type, at = _RESOURCE_TYPE.unpack_from(data)
    if type == ResourceType.LINEAR:
        at, format, channels, size = _LINEAR.unpack_from(data, _AT)
        return Resource(type, at, format, channels, size)
    if type == ResourceType.PITCH2D:
        at, format, channels, width, height, pitch = _PITCH2D.unpack_from(data, _AT)
        return Resource(type, at, format, channels, 0, width, height, pitch)
    return Resource(type, at)


def encode_resource(resource: Resource) -> bytes:
    """As ``CUDA_RESOURCE_DESC``."""
    data = bytearray(_RESOURCE_BYTES)
    _RESOURCE_TYPE.pack_into(data, 0, resource.type, resource.at)
    if resource.type == ResourceType.LINEAR:
        _LINEAR.pack_into(data, _AT, resource.at, resource.format, resource.channels, resource.size)
    elif resource.type == ResourceType.PITCH2D:
        shape = (resource.width, resource.height, resource.pitch)
        _PITCH2D.pack_into(data, _AT, resource.at, resource.format, resource.channels, *shape)
    return bytes(data)


def decode_texture(data: bytes) -> Texture:
    """``CUDA_TEXTURE_DESC``."""
    fields = _TEXTURE.unpack(data)
    return texture_of((fields[:3], *fields[3:10], fields[10:]))


def encode_texture(texture: Texture) -> bytes:
    """As ``CUDA_TEXTURE_DESC``."""
    return _TEXTURE.pack(*texture.address_modes, *texture[1:8], *texture.border_color)


def decode_view(data: bytes) -> View:
    """``CUDA_RESOURCE_VIEW_DESC``."""
    return View(*_VIEW.unpack(data))


def encode_view(view: View) -> bytes:
    """As ``CUDA_RESOURCE_VIEW_DESC``."""
    return _VIEW.pack(*view)


def copy_of(value: Any) -> Copy:
    """A copy as it came over a channel: nested sequences."""
    source, destination, *size = value
    return Copy(CopyEnd(*source), CopyEnd(*destination), *size)


def texture_of(value: Any) -> Texture:
    """A texture descriptor as it came over a channel."""
    modes, *fields, color = value
    return Texture._make((tuple(modes), *fields, tuple(color)))
