"""What an H200 computes for ``tex`` and ``tld4``, over NumPy arrays: a model made from its results alone.

Coordinates are fixed point. A normalised one is first cut to :func:`coordinate_bits` fraction bits and multiplied
by the size; a linear filter's place has 8 fraction bits, rounded half up, half a texel subtracted. Weights have
8 bits and always sum to 256: each axis splits what the one before it gave (:func:`split`), first the level or
slice, then x, then y. Filtering aligns the texels of a slice (or level) to the largest exponent among those with
a weight, keeps four bits more than the result has, adds exactly, and rounds once, ties away from zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from zluda.numerics.texture.layout import Address, Filter, Flags, Format, Geometry
from zluda.numerics.texture.tables import LOG2, SRGB

Array = np.ndarray[Any, Any]

_LEAST = -100000  # an exponent below every number's
_WIDE = 8193
"""Sizes from here on are multiplied with one bit more of a normalised coordinate (131072 was not tried)."""


@dataclass(frozen=True)
class Image:
    """A texture for the model: ``levels`` are arrays (slices, height, width, channels) of the format's values."""

    geometry: Geometry
    format: Format
    levels: Sequence[Array]
    flags: Flags = Flags(0)  # noqa: RUF009
    address: tuple[Address, Address, Address] = (Address.CLAMP,) * 3
    filter: Filter = Filter.POINT
    mip_filter: Filter = Filter.POINT
    mip_bias: float = 0.0
    min_lod: float = 0.0
    max_lod: float = 0.0
    border: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)

    @property
    def normalized(self) -> bool:
        return bool(self.flags & Flags.NORMALIZED_COORDINATES)

    @property
    def dimensions(self) -> int:
        return int(self.geometry & 3)

    @property
    def reads_floats(self) -> bool:
        """Whether texels are read as floats."""
        return bool(self.flags & Flags.READ_NORMALIZED) or self.format in (Format.HALF, Format.FLOAT)

    def size(self, level: int, axis: int) -> int:
        """Texels of a level along x, y or z."""
        return int(self.levels[level].shape[2 - axis])


# --- coordinates -----------------------------------------------------------------------------------------


def coordinate_bits(size: int) -> int:
    """Fraction bits that are kept of a normalised coordinate."""
    return 22 if size >= _WIDE else 21


def texel_coordinate(x: Array, size: int, *, normalized: bool) -> Array:
    """Coordinates (f32) in texels, as f64: exact. NaN is 0, subnormal numbers too."""
    wide = np.where(np.isnan(x) | (np.abs(x) < 2.0**-126), 0.0, x.astype(np.float64))
    if not normalized:
        return wide
    scale = 2.0 ** coordinate_bits(size)
    return np.floor(wide * scale) / scale * size


def place(
    x: Array, size: int, address: Address, *, normalized: bool, linear: bool
) -> tuple[Array, Array, Array]:
    """The two texels (-1: the border) along an axis, and the second one's weight in 256ths."""
    u = texel_coordinate(x, size, normalized=normalized)
    if not normalized and address in (Address.WRAP, Address.MIRROR):
        address = Address.CLAMP
    if address in (Address.WRAP, Address.MIRROR):
        u = np.where(np.isfinite(u), np.mod(u, 2.0 * size), 0.0)
    fixed = np.floor((u - 0.5) * 256 + 0.5) if linear else np.floor(u) * 256
    fixed = np.clip(fixed, -(2.0**40), 2.0**40)
    if address == Address.CLAMP:
        fixed = np.clip(fixed, 0, (size - 1) * 256)
    fixed = fixed.astype(np.int64)
    first, weight = fixed >> 8, fixed & 255
    return wrapped(first, size, address), wrapped(first + 1, size, address), weight


def wrapped(i: Array, size: int, address: Address) -> Array:
    """Texel numbers brought into range; -1 where it is the border's."""
    if address == Address.WRAP:
        return i % size
    if address == Address.MIRROR:
        i = i % (2 * size)
        return np.where(i < size, i, 2 * size - 1 - i)
    if address == Address.BORDER:
        return np.where((i >= 0) & (i < size), i, -1)
    return np.clip(i, 0, size - 1)


# --- texels ----------------------------------------------------------------------------------------------

_PRECISION = {Format.HALF: 11, Format.FLOAT: 24}
_LARGEST = {
    Format.UNSIGNED_INT8: 255,
    Format.SIGNED_INT8: 127,
    Format.UNSIGNED_INT16: 65535,
    Format.SIGNED_INT16: 32767,
}


def _bits(values: Array) -> Array:
    return np.ascontiguousarray(values, np.float32).view(np.uint32)


def decoded(image: Image, texels: Array) -> Array:
    """Texels as an unfiltered read gives them: u32 words."""
    format = image.format
    if not image.reads_floats:
        return texels.astype(np.int64).astype(np.uint32)
    if format == Format.FLOAT:
        return np.ascontiguousarray(texels).view(np.uint32)
    if format == Format.HALF:
        return _half_bits(texels)
    values = np.maximum(texels.astype(np.float64) / _LARGEST[format], -1.0).astype(np.float32)
    bits = _bits(values)
    if image.flags & Flags.SRGB and format == Format.UNSIGNED_INT8:
        bits[..., :3] = _bits(np.array(SRGB, np.uint16).view(np.float16)[texels[..., :3]])
    return bits


def _half_bits(texels: Array) -> Array:
    with np.errstate(invalid="ignore"):
        bits = _bits(texels.astype(np.float32))
    return bits


# --- filtering -------------------------------------------------------------------------------------------


def split(whole: Array, weight: Array, *, second_first: bool) -> tuple[Array, Array]:
    """A weight shared between two texels: one part is rounded half up, the other is what is left."""
    if second_first:
        second = (whole * weight + 128) >> 8
        return whole - second, second
    first = (whole * (256 - weight) + 128) >> 8
    return first, whole - first


def _exponent(values: Array) -> Array:
    return np.where(values == 0, _LEAST, np.frexp(values)[1] - 1)


def blend_floats(groups: Sequence[tuple[Array, Array]], precision: int) -> Array:
    """Texels (taps, …) and weights (taps, …) of each group → their weighted sum, f64 with ``precision`` bits."""
    total: Any = 0.0
    for texels, weights in groups:
        largest = np.where(weights == 0, _LEAST, _exponent(texels)).max(0)
        unit = np.ldexp(1.0, np.where(largest == _LEAST, 0, largest) - (precision - 1) - 4)
        total = total + (np.trunc(texels / unit) * weights).sum(0) * unit / 256
    mantissa, exponent = np.frexp(np.abs(total))
    least = -24 if precision == 11 else -149  # the smallest subnormal number
    kept = np.minimum(precision, exponent - least)
    rounded: Array = np.sign(total) * np.ldexp(np.floor(np.ldexp(mantissa, kept) + 0.5), exponent - kept)
    return rounded


def blend_integers(groups: Sequence[tuple[Array, Array]], format: Format) -> Array:
    """The same of normalised integers, as ones of 16 bits: the sum, rounded half up, as f64.

    Signed bytes are 258 and 1/128 times as large then; in one of twenty the unit's last bit is another.
    """
    total = np.asarray(sum((texels.astype(np.int64) * weights).sum(0) for texels, weights in groups))
    if format == Format.SIGNED_INT8:
        return np.maximum((total * 33025 + 16384) >> 15, -32767) / 32767
    if format == Format.SIGNED_INT16:
        return np.maximum(np.floor(total / 256 + 0.5), -32767) / 32767
    return np.floor(total / 256 + 0.5) / 65535


def widened(image: Image, texels: Array) -> Array:
    """Normalised bytes as integers of 16 bits, but for signed ones."""
    wide = texels.astype(np.int64)
    return wide * 257 if image.format == Format.UNSIGNED_INT8 else wide


# --- a whole fetch ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tap:
    """One texel a sample: level, slice, row, column (-1 in any: the border), and weight in 256ths."""

    level: Array
    z: Array
    y: Array
    x: Array
    weight: Array


def level_weights(image: Image, lod: Array | None, n: int) -> list[tuple[Array, Array]]:
    """(level, weight) pairs of each sample. ``lod`` None: level 0, clamped but not biased."""
    whole = np.full(n, 256, np.int64)
    top = (len(image.levels) - 1) * 256
    fixed: Array = np.zeros(n)
    if lod is not None:
        wide = np.nan_to_num(lod.astype(np.float64), posinf=1e9, neginf=-1e9)
        fixed = np.trunc(np.clip(wide, -1e6, 1e6) * 256) + np.trunc(image.mip_bias * 256)
    fixed = np.clip(fixed, np.trunc(image.min_lod * 256), np.trunc(image.max_lod * 256))
    fixed = np.clip(fixed, 0, top).astype(np.int64)
    if image.mip_filter == Filter.POINT:
        return [(np.minimum((fixed + 128) >> 8, len(image.levels) - 1), whole)]
    level, weight = fixed >> 8, fixed & 255
    return [(level, 256 - weight), (np.minimum(level + 1, len(image.levels) - 1), weight)]


def taps(
    image: Image, coordinates: Sequence[Array], lod: Array | None, layer: Array | None
) -> list[list[Tap]]:
    """The texels of each sample in groups that are summed together: by level and slice."""
    n = len(coordinates[0])
    groups: list[list[Tap]] = []
    for level, share in level_weights(image, lod, n):
        axes = [_axis(image, coordinates, axis, level) for axis in range(image.dimensions)]
        slices: list[tuple[Array, Array]] = [(layer if layer is not None else np.zeros(n, np.int64), share)]
        if image.dimensions == 3:
            first, second, weight = axes[2]
            low, high = split(share, weight, second_first=False)
            slices = [(first, low), (second, high)]
        groups += [_square(axes, level, z, whole) for z, whole in slices]
    return groups


def _axis(image: Image, coordinates: Sequence[Array], axis: int, level: Array) -> tuple[Array, Array, Array]:
    """:func:`place` along an axis, each sample by its level's size."""
    found = [np.zeros(len(level), np.int64) for _ in range(3)]
    for number in np.unique(level):
        chosen = level == number
        parts = place(
            coordinates[axis][chosen],
            image.size(int(number), axis),
            image.address[axis],
            normalized=image.normalized,
            linear=image.filter == Filter.LINEAR and image.reads_floats,
        )
        for whole, part in zip(found, parts, strict=True):
            whole[chosen] = part
    return found[0], found[1], found[2]


def _square(axes: Sequence[tuple[Array, Array, Array]], level: Array, z: Array, whole: Array) -> list[Tap]:
    x0, x1, fx = axes[0]
    parts = split(whole, fx, second_first=True)
    zero = np.zeros_like(x0)
    if len(axes) == 1:
        return [Tap(level, z, zero, x, w) for x, w in zip((x0, x1), parts, strict=True)]
    y0, y1, fy = axes[1]
    found = []
    for x, part, last in ((x0, parts[0], False), (x1, parts[1], True)):
        for y, w in zip((y0, y1), split(part, fy, second_first=last), strict=True):
            found.append(Tap(level, z, y, x, w))
    return found


def _texels(image: Image, tap: Tap) -> tuple[Array, Array]:
    """The taps' texels (n, channels), and which are the border's."""
    outside = (tap.x < 0) | (tap.y < 0) | (tap.z < 0)
    found = np.zeros((len(tap.x), image.levels[0].shape[3]), image.levels[0].dtype)
    for number in np.unique(tap.level):
        chosen = (tap.level == number) & ~outside
        found[chosen] = image.levels[int(number)][tap.z[chosen], tap.y[chosen], tap.x[chosen]]
    return found, outside


def _border(image: Image) -> Array:
    return np.array(image.border, np.float64)


def four_channels(words: Array) -> Array:
    """Channels that are not there are 0, the fourth too."""
    n, channels = words.shape
    missing = np.zeros((n, 4), np.uint32)
    missing[:, :channels] = words
    return missing


def sample(
    image: Image, coordinates: Sequence[Array], *, lod: Array | None = None, layer: Array | None = None
) -> Array:
    """``tex`` at f32 coordinates (arrays of n): words (n, 4).

    ``lod`` (f32) picks the level; ``layer`` is the slice's number, in range.
    """
    groups = taps(image, coordinates, lod, layer)
    everything = [tap for group in groups for tap in group]
    if image.filter == Filter.POINT and len(groups) == 1 or not image.reads_floats:
        texels, outside = _texels(image, everything[0])
        words = decoded(image, texels)
        words[outside] = border_words(image)[: words.shape[1]]
        return four_channels(words)
    return four_channels(_bits(_filtered(image, groups)))


def _filtered(image: Image, groups: list[list[Tap]]) -> Array:
    pairs = []
    precision = _PRECISION.get(image.format)
    for group in groups:
        values = []
        for tap in group:
            texels, outside = _texels(image, tap)
            wide = texels.astype(np.float64) if precision else widened(image, texels)
            wide[outside] = filtered_border(image)[: wide.shape[1]]
            values.append(wide)
        weights = np.stack([np.broadcast_to(tap.weight[:, None], values[0].shape) for tap in group])
        pairs.append((np.stack(values), weights))
    if precision:
        return blend_floats(pairs, precision).astype(np.float32)
    return blend_integers(pairs, image.format).astype(np.float32)


def border_words(image: Image) -> Array:
    """The border's colour as an unfiltered read gives it."""
    return _bits(np.array(image.border, np.float32))


def filtered_border(image: Image) -> Array:
    """The border's colour among the texels that are filtered."""
    return _border(image)
