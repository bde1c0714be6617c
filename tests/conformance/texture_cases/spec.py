"""A texture experiment: what the texture is, which instruction reads it, at which places.

The same :class:`Case` is run on an NVIDIA GPU (``probe.py``), by the reference model and by lowered code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

FORMATS: dict[str, tuple[int, type]] = {
    "u8": (0x01, np.uint8),
    "u16": (0x02, np.uint16),
    "u32": (0x03, np.uint32),
    "s8": (0x08, np.int8),
    "s16": (0x09, np.int16),
    "s32": (0x0A, np.int32),
    "f16": (0x10, np.float16),
    "f32": (0x20, np.float32),
}
"""Name → (``CUarray_format``, NumPy type)."""

WRAP, CLAMP, MIRROR, BORDER = range(4)
POINT, LINEAR = range(2)

AS_INTEGER, NORMALIZED, SRGB, NO_TRILINEAR, SEAMLESS = 1, 2, 0x10, 0x20, 0x40
"""``CU_TRSF_…``."""


@dataclass(frozen=True)
class Texture:
    """What is made with ``cuArray3DCreate`` (or linear memory) and ``cuTexObjectCreate``.

    ``size`` is (width, height, depth), 0 for what it has not; ``slices`` counts layers (a1d, a2d), faces (6,
    cube) or faces of all cubes. ``data(level)`` gives the texels of a level, shape (slices or depth, height,
    width, channels). ``resource`` is ``array``, ``linear`` or ``pitch``.
    """

    size: tuple[int, int, int]
    format: str = "f32"
    channels: int = 1
    data: Callable[[Texture, int], Array] = field(default=lambda t, level: ramp(t, level))
    slices: int = 0
    cube: bool = False
    levels: int = 1
    resource: str = "array"
    flags: int = 0
    address: tuple[int, int, int] = (CLAMP, CLAMP, CLAMP)
    filter: int = POINT
    mip_filter: int = POINT
    anisotropy: int = 0
    bias: float = 0.0
    lod: tuple[float, float] = (0.0, 20.0)
    border: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    surface: bool = False
    gather: bool = False

    def shape(self, level: int = 0) -> tuple[int, int, int, int]:
        """(slices or depth, height, width, channels) of a level."""
        width, height, depth = (max(1, n >> level) for n in self.size)
        return (self.slices or depth, height, width, self.channels)

    @property
    def dtype(self) -> type:
        return FORMATS[self.format][1]

    def texels(self, level: int = 0) -> Array:
        """A level's texels, of its format."""
        with np.errstate(all="ignore"):
            values = np.ascontiguousarray(self.data(self, level).astype(self.dtype))
        assert values.shape == self.shape(level), (values.shape, self.shape(level))
        return values


@dataclass(frozen=True)
class Case:
    """One instruction over ``words`` (n × k u32 bit patterns, ``%w0`` … in ``form``).

    ``form`` is PTX with ``%t`` for the handle, ``%r0`` … for results and ``%p`` for a predicate result;
    ``results`` says how many words are kept. ``width`` is the bits of a result register.
    """

    name: str
    texture: Texture
    form: str
    words: Array
    results: int = 4
    width: int = 32


def ramp(texture: Texture, level: int) -> Array:
    """Channels x, y, slice, level: a texel says where it is."""
    z, y, x, _ = np.indices((*texture.shape(level)[:3], 1))
    parts = [x, y, z, np.full_like(x, level)]
    return np.concatenate(parts[: texture.channels], axis=3)


def index(texture: Texture, level: int) -> Array:
    """Every channel of every texel has a number of its own."""
    shape = texture.shape(level)
    return np.arange(np.prod(shape)).reshape(shape)


def constant_level(texture: Texture, level: int) -> Array:
    """The level's number in channel 0; what it is for is channel 1's x ramp."""
    values = ramp(texture, level)
    values[..., 0] = level
    return values


def random_bits(seed: int) -> Callable[[Texture, int], Array]:
    """Any bits of the format, but for floats all finite and of exponents near 1."""

    def make(texture: Texture, level: int) -> Array:
        state = np.random.RandomState(seed + level)
        shape = texture.shape(level)
        if texture.format in ("f16", "f32"):
            return state.uniform(-1, 1, shape)
        bits = 8 * np.dtype(texture.dtype).itemsize
        return (state.randint(0, 1 << 32, shape, dtype=np.uint64) & ((1 << bits) - 1)).astype(texture.dtype)

    return make


def spread(seed: int, exponents: int) -> Callable[[Texture, int], Array]:
    """Random floats whose exponents spread over ±``exponents``."""

    def make(texture: Texture, level: int) -> Array:
        state = np.random.RandomState(seed + level)
        shape = texture.shape(level)
        return state.uniform(-1, 1, shape) * 2.0 ** state.randint(-exponents, exponents + 1, shape)

    return make


def values(bits: list[int], unsigned: type) -> Callable[[Texture, int], Array]:
    """The given bit patterns, over and over."""

    def make(texture: Texture, level: int) -> Array:
        shape = texture.shape(level)
        return np.resize(np.array(bits, unsigned), int(np.prod(shape))).view(texture.dtype).reshape(shape)

    return make


def codes(texture: Texture, level: int) -> Array:
    """All bit patterns of the format in order."""
    shape = texture.shape(level)
    unsigned = np.dtype(f"u{np.dtype(texture.dtype).itemsize}")
    return np.arange(np.prod(shape)).astype(unsigned).view(texture.dtype).reshape(shape)


def words(*columns: Any) -> Array:
    """Columns (floats as f32, integers as 32 bits) to n × k words."""
    arrays = [np.atleast_1d(np.asarray(c)) for c in columns]
    n = max(len(a) for a in arrays)
    found = []
    for a in arrays:
        bits = (
            a.astype(np.float32).view(np.uint32)
            if a.dtype.kind == "f"
            else a.astype(np.int64).astype(np.uint32)
        )
        found.append(np.resize(bits, n))
    return np.stack(found, axis=1)


SPECIAL = np.array(
    [
        *(0x0, 0x80000000, 0x7FC00000, 0xFFC00000, 0x7F800000, 0xFF800000, 0x7F800001, 1, 0x80000001),
        *(0x7F7FFFFF, 0xFF7FFFFF, 0x4B000000, 0xCB000000, 0x4F000000, 0xCF000000, 0x4EFFFFFF, 0x5F000000),
        *(0x49000000, 0x47000000, 0xC7000000, 0x3F7FFFFF, 0xBF7FFFFF, 0x3EFFFFFF, 0x3F000001, 0x33800000),
        0xB3800000,
    ],
    np.uint32,
).view(np.float32)
