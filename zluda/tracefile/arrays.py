"""CUDA arrays in a trace: their shape, and how their contents are linearised.

An array is an allocation of kind ``array``. It has no address, so its ``base`` is a number of the recorder's
that no pointer has; what it is stands in the descriptor of the call that made it, and its shape, for people,
in its ``name``. Its contents are rows of texels without gaps, row after row, slice after slice (depth,
layers, faces: +x -x +y -y +z -z; of a layered cube, face ``6 * layer + face``), and level after level.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

# CUDA_ARRAY3D_ flags of cuda.h.
LAYERED, SURFACE, CUBE = 0x1, 0x2, 0x4

# CUarray_format → type of a channel, as PTX spells types.
_CHANNELS = {
    0x01: "u8",
    0x02: "u16",
    0x03: "u32",
    0x08: "s8",
    0x09: "s16",
    0x0A: "s32",
    0x10: "f16",
    0x20: "f32",
    **dict.fromkeys((0xC0, 0xC1, 0xC2), "u8"),
    **dict.fromkeys((0xC3, 0xC4, 0xC5), "u16"),
    **dict.fromkeys((0xC6, 0xC7, 0xC8), "s8"),
    **dict.fromkeys((0xC9, 0xCA, 0xCB), "s16"),
}

# Entry → bytes of its descriptor → the descriptor; of those without a suffix sizes were 32 bits.
_DESCRIPTORS = {
    "cuArrayCreate": {16: struct.Struct("<4I"), 24: struct.Struct("<2Q2I")},
    "cuArray3DCreate": {24: struct.Struct("<6I"), 40: struct.Struct("<3Q3I4x")},
    "cuMipmappedArrayCreate": {40: struct.Struct("<3Q3I4x")},
}


class Box(NamedTuple):
    """Part of one mip level: first byte of the row, first row and slice; width in bytes, rows, slices."""

    level: int
    x: int
    y: int
    z: int
    width: int
    height: int
    depth: int


class ArrayShape(NamedTuple):
    """``CUDA_ARRAY3D_DESCRIPTOR`` and the number of mip levels. Sizes are in texels, 0 where there is no such
    dimension; ``depth`` counts layers and faces too.
    """

    width: int
    height: int
    depth: int
    format: int
    channels: int
    flags: int = 0
    levels: int = 1

    @property
    def element(self) -> str:
        """Type of a channel, as PTX spells it; empty for formats whose texels are not channels in order."""
        return _CHANNELS.get(self.format, "")

    @property
    def texel_bytes(self) -> int:
        """0 for formats that are not linearised."""
        return int(self.element[1:] or 0) // 8 * self.channels

    @property
    def layered(self) -> bool:
        """Whether slices are layers or faces, which every mip level has as many of."""
        return bool(self.flags & (LAYERED | CUBE))

    def extent(self, level: int = 0) -> tuple[int, int, int]:
        """Bytes of a row of a level, rows, slices."""
        depth = self.depth if self.layered else self.depth >> level
        return max(self.width >> level, 1) * self.texel_bytes, max(self.height >> level, 1), max(depth, 1)

    def level_at(self, level: int) -> int:
        """The offset of a level in the linearised contents; of the one after the last, their size."""
        return sum(row * rows * slices for row, rows, slices in map(self.extent, range(level)))

    @property
    def size(self) -> int:
        """Bytes of the linearised contents."""
        return self.level_at(self.levels)

    @property
    def text(self) -> str:
        """``array 64×48 f32``, ``array 16×16 u8x4, 6 faces, 5 levels``"""
        kind = self.element or f"format {self.format:#x}"
        sides = [self.width, self.height] + ([] if self.layered else [self.depth])
        told = f"array {'×'.join(str(n) for n in sides if n)} {kind}"
        told += f"x{self.channels}" if self.channels > 1 else ""
        if self.layered:
            told += f", {self.depth} {'faces' if self.flags & CUBE else 'layers'}"
        return told + (f", {self.levels} levels" if self.levels > 1 else "")

    def place(self, offset: int) -> str:
        """Coordinates of the channel at an offset of the linearised contents.

        ``(7, 1)``, ``(7, 1, 2)`` with its slice; ``level 1 (3, 0)``; ``(7, 1) channel 2``.
        """
        box = next(self.boxes(offset, 1))
        _, rows, slices = self.extent(box.level)
        texel, within = divmod(box.x, self.texel_bytes)
        coordinates = [texel] + [n for n, most in ((box.y, rows), (box.z, slices)) if most > 1 or slices > 1]
        told = f"({', '.join(map(str, coordinates))})"
        told = f"level {box.level} {told}" if self.levels > 1 else told
        channel = within * self.channels // self.texel_bytes
        return f"{told} channel {channel}" if self.channels > 1 else told

    def boxes(self, offset: int, size: int) -> Iterator[Box]:
        """The parts that make up ``[offset, offset + size)`` of the linearised contents, in order."""
        level = 0
        while size > 0:
            row, rows, slices = self.extent(level)
            slice_bytes = row * rows
            if offset >= slice_bytes * slices:
                offset, level = offset - slice_bytes * slices, level + 1
                continue
            z, rest = divmod(offset, slice_bytes)
            y, x = divmod(rest, row)
            if x or size < row:
                box = Box(level, x, y, z, min(row - x, size), 1, 1)
            elif y or size < slice_bytes:
                box = Box(level, 0, y, z, row, min(rows - y, size // row), 1)
            else:
                box = Box(level, 0, 0, z, row, rows, min(slices - z, size // slice_bytes))
            yield box
            taken = box.width * box.height * box.depth
            offset, size = offset + taken, size - taken


def created_shape(entry: str, descriptor: bytes, rest: Sequence[int]) -> ArrayShape:
    """The shape of an array from the entry that made it, its descriptor, and the arguments after that.

    Raises ValueError for a descriptor that is none of the entry's.
    """
    layout = _DESCRIPTORS.get(entry, {}).get(len(descriptor))
    if layout is None:
        raise ValueError(f"{entry}: a descriptor of {len(descriptor)} bytes")
    fields = layout.unpack(descriptor)
    if entry == "cuArrayCreate":
        width, height, format, channels = fields
        return ArrayShape(width, height, 0, format, channels)
    width, height, depth, format, channels, flags = fields
    levels = rest[0] & 0xFFFFFFFF if entry == "cuMipmappedArrayCreate" else 1
    return ArrayShape(width, height, depth, format, channels, flags, levels)


def rows(start: int, pitch: int, slice_bytes: int, width: int, height: int, depth: int) -> Iterator[int]:
    """Where each row of a box of ``width`` bytes begins, in order."""
    for z in range(depth):
        for y in range(height):
            yield start + z * slice_bytes + y * pitch
