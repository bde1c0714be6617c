"""What an H200 computes for ``tex`` and ``tld4``, over NumPy arrays: a model made from its results alone.

Coordinates are fixed point. A normalised one is first cut to :func:`coordinate_bits` fraction bits and
multiplied by the size; a linear filter's place has 8 fraction bits, rounded half up, half a texel subtracted.
Weights have 8 bits and always sum to 256: each axis splits what the one before it gave (:func:`split`), first
the level or slice, then x, then y. Filtering aligns the texels of a slice (or level) to the largest exponent
among those with a weight, keeps four bits more than the result has, adds exactly, and rounds once, ties away
from zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from zluda.numerics.texture.layout import Address, Filter, Flags, Format, Geometry
from zluda.numerics.texture.tables import SRGB, SRGB_STEPS, srgb_limits
from zluda.records import dataclass

Array = np.ndarray[Any, Any]

_LEAST = -100000  # an exponent below every number's
_WIDE = 8193
"""Sizes from here on are multiplied with one bit more of a normalised coordinate (131072 was not tried)."""


@dataclass(frozen=True)
class Image:
    """A texture for the model: ``levels`` are arrays (slices, height, width, channels) of the format."""

    geometry: Geometry
    format: Format
    levels: Sequence[Array]
    flags: Flags = Flags(0)
    address: tuple[Address, Address, Address] = (Address.CLAMP,) * 3
    filter: Filter = Filter.POINT
    mip_filter: Filter = Filter.POINT
    max_anisotropy: int = 0
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
    small = np.isnan(x) | (np.abs(x) < 2.0**-126)
    wide = np.where(small, np.float32(0), x).astype(np.float64)
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
        return _bits(texels.astype(np.float32))


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


def srgb_exponents(texels: Array) -> Array:
    """The exponents that the unit has for sRGB bytes."""
    found: Array = np.searchsorted(SRGB_STEPS, texels, "right") - 13
    return found


def blend_floats(
    groups: Sequence[tuple[Array, Array]], precision: int, exponents: Sequence[Array] | None = None
) -> Array:
    """Texels (taps, …) and weights (taps, …) of each group → f32 bits of their weighted sum.

    It has ``precision`` bits. NaN is the canonical one of the format; subnormal f32 texels are zeros.
    ``exponents`` are sRGB bytes' own, of which eight bits are kept; else four more than the result has.
    """
    total: Any = 0.0
    for number, (texels, weights) in enumerate(groups):
        finite = np.where((weights == 0) | ~np.isfinite(texels), 0.0, texels)
        if precision == 24:
            finite = np.where(np.abs(finite) < 2.0**-126, 0.0, finite)
        own = _exponent(finite) if exponents is None else exponents[number]
        largest = np.where(weights == 0, _LEAST, own).max(0)
        kept = precision + 3 if exponents is None else 7
        unit = np.ldexp(1.0, np.where(largest == _LEAST, 0, largest) - kept)
        total = total + (np.trunc(finite / unit) * weights).sum(0) * unit / 256
    mantissa, exponent = np.frexp(np.abs(total))
    least = -24 if precision == 11 else -149  # the smallest subnormal number
    digits = np.minimum(precision, exponent - least)
    rounded = np.sign(total) * np.ldexp(np.floor(np.ldexp(mantissa, digits) + 0.5), exponent - digits)
    return _with_specials(
        _bits(rounded.astype(np.float32)), groups, 0x7FFFFFFF if precision == 24 else 0x7FFFE000
    )


def _with_specials(bits: Array, groups: Sequence[tuple[Array, Array]], nan: int) -> Array:
    """Where a texel with a weight is no number, what becomes of the sum; -0 of negative zeros alone."""
    texels = np.concatenate([t for t, _ in groups])
    counts = np.concatenate([w for _, w in groups]) > 0
    plus, minus = (((texels == x) & counts).any(0) for x in (np.inf, -np.inf))
    negative = ((texels == 0) & np.signbit(texels) | ~counts).all(0)
    bits = np.where(negative, 0x80000000, bits)
    bits = np.where(plus, 0x7F800000, np.where(minus, 0xFF800000, bits))
    none = (np.isnan(texels) & counts).any(0) | (plus & minus)
    found: Array = np.where(none, nan, bits).astype(np.uint32)
    return found


def blend_integers(groups: Sequence[tuple[Array, Array]], format: Format) -> Array:
    """The same of normalised integers, as ones of 16 bits: the sum, rounded half up, as f64.

    Of signed bytes the unit widens the sum: by a 128th, of which it looks at all but the lowest four bits.
    """
    total = np.asarray(sum((texels.astype(np.int64) * weights).sum(0) for texels, weights in groups))
    found: Array
    if format == Format.SIGNED_INT8:
        found = np.maximum(total + (((total >> 4) * 257 + 1024) >> 11), -32767) / 32767
    elif format == Format.SIGNED_INT16:
        found = np.maximum(np.floor(total / 256 + 0.5), -32767) / 32767
    else:
        found = np.floor(total / 256 + 0.5) / 65535
    return found


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


def optimised(image: Image, fixed: Array) -> Array:
    """Levels of detail in 256ths as an anisotropic sampler blends them: in a shorter stretch between."""
    if image.max_anisotropy < 2 or image.flags & Flags.NO_TRILINEAR_OPTIMIZATION:
        return fixed
    part = fixed & 255
    steep = {2: (3 * part - 126) >> 1, 4: (7 * part - 378) >> 2, 8: 2 * part - 128}
    most = next(n for n in (8, 4, 2) if image.max_anisotropy >= n)
    found: Array = fixed - part + np.clip(steep[most], 0, 256)
    return found


def level_weights(image: Image, lod: Array | None, n: int) -> list[tuple[Array, Array]]:
    """(level, weight) pairs of each sample. ``lod`` None: level 0, clamped but not biased."""
    whole = np.full(n, 256, np.int64)
    top = (len(image.levels) - 1) * 256
    fixed: Array = np.zeros(n)
    if lod is not None:
        wide = np.nan_to_num(lod.astype(np.float64), posinf=1e9, neginf=-1e9)
        fixed = np.trunc(np.clip(wide, -1e6, 1e6) * 256) + np.trunc(np.clip(image.mip_bias, -15, 15) * 256)
        fixed = optimised(image, fixed.astype(np.int64))
    fixed = np.maximum(np.minimum(fixed, np.trunc(image.max_lod * 256)), np.trunc(image.min_lod * 256))
    fixed = np.clip(fixed, 0, top).astype(np.int64)
    if image.mip_filter == Filter.POINT:
        return [(np.minimum((fixed + 128) >> 8, len(image.levels) - 1), whole)]
    level, weight = fixed >> 8, fixed & 255
    return [(level, 256 - weight), (np.minimum(level + 1, len(image.levels) - 1), weight)]


def taps(
    image: Image, coordinates: Sequence[Array], lod: Array | None, layer: Array | None
) -> list[list[Tap]]:
    """The texels of each sample in groups that are summed together: by level and slice.

    A line is an image of one row, read at its upper edge.
    """
    n = len(coordinates[0])
    if image.dimensions == 1:
        coordinates = [coordinates[0], np.zeros(n, np.float32)]
    groups: list[list[Tap]] = []
    for level, share in level_weights(image, lod, n):
        axes = [_axis(image, coordinates, axis, level) for axis in range(len(coordinates))]
        slices: list[tuple[Array, Array]] = [(layer if layer is not None else np.zeros(n, np.int64), share)]
        if len(coordinates) == 3:
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
    (x0, x1, fx), (y0, y1, fy) = axes[:2]
    parts = split(whole, fx, second_first=True)
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
    if image.geometry & Geometry.BUFFER:  # linear memory is read by integers alone
        return np.zeros((len(coordinates[0]), 4), np.uint32)
    groups = taps(image, coordinates, lod, layer)
    everything = [tap for group in groups for tap in group]
    if (image.filter == Filter.POINT and image.mip_filter == Filter.POINT) or not image.reads_floats:
        return four_channels(_unfiltered(image, everything[0]))
    words = four_channels(_filtered(image, groups))
    if image.filter == Filter.POINT:  # of one level alone it is the texel as it is
        single = [t for t in everything if t.weight.any()]
        alone = np.max([np.where(t.weight == 256, 1, 0) for t in single], axis=0) == 1
        for tap in single:
            chosen = alone & (tap.weight == 256)
            words[chosen] = four_channels(_unfiltered(image, tap))[chosen]
    return words


def _unfiltered(image: Image, tap: Tap) -> Array:
    texels, outside = _texels(image, tap)
    texels[outside] = border_texel(image)[: texels.shape[1]]
    return decoded(image, texels)


def _filtered(image: Image, groups: list[list[Tap]]) -> Array:
    """Words (n, channels): by floats where texels are, else by integers."""
    columns = []
    for channel in range(image.levels[0].shape[3]):
        srgb = bool(image.flags & Flags.SRGB) and image.format == Format.UNSIGNED_INT8 and channel < 3
        precision = 11 if srgb else _PRECISION.get(image.format)
        pairs, exponents = [], []
        for group in groups:
            values, powers = [], []
            for tap in group:
                texels, outside = _texels(image, tap)
                texels[outside] = border_texel(image)[: texels.shape[1]]
                one = texels[:, channel]
                if srgb:
                    powers.append(srgb_exponents(one))
                    one = np.array(SRGB, np.uint16).view(np.float16)[one]
                values.append(_wide(one) if precision else widened(image, one))
            pairs.append((np.stack(values), np.stack([tap.weight for tap in group])))
            exponents += [np.stack(powers)] if srgb else []
        if precision:
            columns.append(blend_floats(pairs, precision, exponents or None))
        else:
            columns.append(_bits(blend_integers(pairs, image.format).astype(np.float32)))
    return np.stack(columns, axis=1)


def _wide(texels: Array) -> Array:
    with np.errstate(invalid="ignore"):
        return texels.astype(np.float64)


def border_texel(image: Image) -> Array:
    """The border's colour as a texel: halves are cut, integers take the lowest bits.

    Normalised ones are cut to four bits more than the format has, then rounded, ties towards zero.
    """
    dtype = image.levels[0].dtype
    colour = np.array(image.border, np.float32)
    if image.format == Format.FLOAT:
        return colour
    if image.format == Format.HALF:
        cut = colour.view(np.uint32) & 0xFFFFE000
        half: Array = np.clip(cut.view(np.float32), -65504, 65504).astype(np.float16)
        return half
    if not image.flags & Flags.READ_NORMALIZED:
        return colour.view(np.uint32).astype(np.int64).astype(dtype)
    signed = dtype.kind == "i"
    limited = np.clip(colour.astype(np.float64), -1.0 if signed else 0.0, 1.0)
    scale = 2.0 ** (8 * dtype.itemsize + 4 - signed)
    short = np.floor(np.abs(limited) * scale) / scale
    whole: Array = (np.sign(limited) * np.ceil(short * _LARGEST[image.format] - 0.5)).astype(dtype)
    if image.flags & Flags.SRGB:
        whole[:3] = np.searchsorted(np.array(srgb_limits(), np.float32), colour[:3], "right")
    return whole
