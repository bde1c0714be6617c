"""Cases about footprints: levels by gradients, anisotropic probes, and what else is decided by a last bit.

Gradients are given in texels of the first level (:func:`_gradients`), so that their mantissas are chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from texture_cases.spec import (
    BORDER,
    LINEAR,
    MIRROR,
    NO_TRILINEAR,
    NORMALIZED,
    POINT,
    SEAMLESS,
    SPECIAL,
    SRGB,
    WRAP,
    Array,
    Case,
    Texture,
    constant_level,
    ramp,
    random_bits,
    spread,
    words,
)

GRAD_1D = "tex.grad.1d.v4.f32.f32 {%r0,%r1,%r2,%r3}, [%t, {%w0}], {%w1}, {%w2};"
GRAD_2D = "tex.grad.2d.v4.f32.f32 {%r0,%r1,%r2,%r3}, [%t, {%w0,%w1}], {%w2,%w3}, {%w4,%w5};"
GRAD_3D = (
    "tex.grad.3d.v4.f32.f32 {%r0,%r1,%r2,%r3}, [%t, {%w0,%w1,%w2,%w2}], {%w3,%w4,%w5,%w5}, {%w6,%w7,%w8,%w8};"
)
GRAD_CUBE = GRAD_3D.replace("grad.3d", "grad.cube")
TEX_3D = "tex.3d.v4.f32.f32 {%r0,%r1,%r2,%r3}, [%t, {%w0,%w1,%w2,%w2}];"
LEVEL_3D = "tex.level.3d.v4.f32.f32 {%r0,%r1,%r2,%r3}, [%t, {%w0,%w1,%w2,%w2}], %w3;"
LEVEL_2D = "tex.level.2d.v4.f32.f32 {%r0,%r1,%r2,%r3}, [%t, {%w0,%w1}], %w2;"
LEVEL_CUBE = "tex.level.cube.v4.f32.f32 {%r0,%r1,%r2,%r3}, [%t, {%w0,%w1,%w2,%w2}], %w3;"
TEX_2D = "tex.2d.v4.f32.f32 {%r0,%r1,%r2,%r3}, [%t, {%w0,%w1}];"
TEX_CUBE = "tex.cube.v4.f32.f32 {%r0,%r1,%r2,%r3}, [%t, {%w0,%w1,%w2,%w2}];"

HALF = np.float32([0.5])
LEVELS = Texture(
    (1024, 1024, 0),
    channels=1,
    data=constant_level,
    levels=11,
    flags=NORMALIZED,
    mip_filter=LINEAR,
    filter=LINEAR,
)
"""A texture whose levels hold their numbers: a fetch gives the level of detail."""


def _short(state: np.random.RandomState, n: int, bits: int, spread: float) -> Array:
    """Numbers of so many bits and random sign, of magnitudes between 1/2 and 1 times up to 2^-spread."""
    m = state.randint(1 << (bits - 1), 1 << bits, n) / float(1 << bits)
    return m * 2.0 ** -np.floor(state.uniform(0, spread + 1, n)) * state.choice([-1.0, 1.0], n)


def _size(state: np.random.RandomState, n: int, low: float, high: float) -> Array:
    """Powers of two."""
    return 2.0 ** state.randint(low, high + 1, n)


def gradients() -> Iterator[Case]:
    """The level that two gradients choose."""
    state = np.random.RandomState(101)

    def case(name: str, texture: Texture, grads: list[Array], form: str = GRAD_2D) -> Case:
        size = [max(1, s) for s in texture.size[: len(grads) // 2]] * 2
        columns = [(g / s).astype(np.float32) for g, s in zip(grads, size, strict=True)]
        return Case(f"footprint.{name}", texture, form, words(*[HALF] * (len(grads) // 2), *columns), 1)

    n = 6000
    scale = _size(state, n, 1, 9)
    zero = np.zeros(n)
    for bits in (8, 10, 14):
        a, c = (_short(state, n, bits, 1) * scale for _ in range(2))
        yield case(f"sum.{bits}", LEVELS, [a, zero, c, zero])
    for bits, octaves in ((9, 0), (10, 1), (10, 4), (24, 1)):
        four = [_short(state, n, bits, octaves) * scale for _ in range(4)]
        yield case(f"four.{bits}.{octaves}", LEVELS, four)
    small = [_short(state, n, 10, 5) * scale / 16 for _ in range(2)]
    yield case(
        "sum.small",
        LEVELS,
        [_short(state, n, 10, 0) * scale, small[0], _short(state, n, 10, 0) * scale, small[1]],
    )
    like = state.normal(0, 1, (4, 20000)) * 2.0 ** state.uniform(0, 8, 20000)
    yield case("random", LEVELS, list(like))
    for size in ((1000, 600, 0), (77, 45, 0), (1023, 3, 0), (8192, 5, 0)):
        t = replace(LEVELS, size=size, levels=int(np.log2(max(size))) + 1)
        part = like[:, :2500]
        yield case(f"size.{size[0]}.{size[1]}", t, list(part))
        yield case(f"size.{size[0]}.{size[1]}.one", t, [part[0], 0 * part[0], 0 * part[0], 0 * part[0]])
    line = replace(LEVELS, size=(1000, 0, 0), levels=10)
    yield case("1d", line, [like[0, :3000], like[1, :3000]], GRAD_1D)
    odd = np.array([(x, y) for x in SPECIAL[:12] for y in SPECIAL[:12]], np.float32).T
    none = np.zeros(1, np.float32)
    yield Case("footprint.odd.ab", LEVELS, GRAD_2D, words(HALF, HALF, odd[0], odd[1], none, none), 1)
    yield Case("footprint.odd.ac", LEVELS, GRAD_2D, words(HALF, HALF, odd[0], none, odd[1], none), 1)
    yield Case(
        "footprint.odd.bias",
        replace(LEVELS, bias=1.5),
        GRAD_2D,
        words(HALF, HALF, odd[0], none, none, odd[1]),
        1,
    )
    tiny = (2.0 ** -np.arange(0, 140, 0.25)).astype(np.float32)
    up = replace(LEVELS, bias=15.9)
    yield Case("footprint.tiny", up, GRAD_2D, words(HALF, HALF, tiny, none, none, none), 1)
    down = replace(LEVELS, bias=-16.0)
    huge = (2.0 ** np.arange(0, 120, 0.25)).astype(np.float32)
    yield Case("footprint.huge", down, GRAD_2D, words(HALF, HALF, huge, none, none, none), 1)


def solids() -> Iterator[Case]:
    """The same in three dimensions and on cubes, whose gradients are differences of places."""
    state = np.random.RandomState(102)
    n = 5000
    for size in ((64, 64, 64), (48, 40, 36)):
        t = replace(LEVELS, size=size, levels=6)
        scale = _size(state, n, 0, 4)
        six = [_short(state, n, 10, 1) * scale / size[i % 3] for i in range(6)]
        yield Case(f"footprint.3d.{size[0]}.short", t, GRAD_3D, words(HALF, HALF, HALF, *six), 1)
        six = list(state.normal(0, 1, (6, n)) * scale / size[0])
        yield Case(f"footprint.3d.{size[0]}", t, GRAD_3D, words(HALF, HALF, HALF, *six), 1)
        at = state.uniform(-2, 2, (3, n)).astype(np.float32)
        yield Case(f"footprint.3d.{size[0]}.places", t, GRAD_3D, words(*at, *six), 1)
        far = (at * 1000).astype(np.float32)
        yield Case(f"footprint.3d.{size[0]}.far", t, GRAD_3D, words(*far, *six), 1)
    one = _short(state, n, 12, 0) * scale / 48
    yield Case(
        "footprint.3d.one", t, GRAD_3D, words(HALF, HALF, HALF, one, [0.0], [0.0], [0.0], [0.0], [0.0]), 1
    )
    for edge in (256, 100):
        t = replace(LEVELS, size=(edge, edge, 0), slices=6, cube=True, levels=int(np.log2(edge)) + 1)
        at = state.uniform(-1, 1, (3, n)).astype(np.float32)
        for name, low, high in (("small", 2, 7), ("large", 0, 3), ("huge", -3, 0)):
            six = list(state.normal(0, 1, (6, n)) * 2.0 ** -state.uniform(low, high, n))
            yield Case(f"footprint.cube.{edge}.{name}", t, GRAD_CUBE, words(*at, *six), 1)
        six = [_short(state, n, 10, 1) * 2.0 ** -state.randint(2, 7, n) for _ in range(6)]
        six[0] = six[3] = 0 * six[0]
        yield Case(f"footprint.cube.{edge}.face", t, GRAD_CUBE, words([1.0], [0.0], [0.0], *six), 1)
        seamless = replace(t, flags=NORMALIZED | SEAMLESS)
        yield Case(f"footprint.cube.{edge}.seamless", seamless, GRAD_CUBE, words(*at, *six), 1)
        ties = np.array(
            [(x, y, z) for x in (-1, 1, 0.5) for y in (-1, 1, 0.5) for z in (-1, 1, 0.5)], np.float32
        ).T
        yield Case(
            f"footprint.cube.{edge}.ties",
            t,
            GRAD_CUBE,
            words(*np.resize(ties, (3, 27)), *[s[:540] for s in six]),
            1,
        )


def _window(number: int, axis: int) -> Texture:
    """Four texels of each 32 along an axis are ones, each in a channel of its own."""

    def data(t: Texture, level: int) -> Array:
        values = np.zeros(t.shape(level))
        at = ramp(replace(t, channels=2), level)[..., axis] % 32
        for channel in range(4):
            values[..., channel] = at == 4 * number + channel
        return values

    return Texture(
        (256, 256, 0),
        channels=4,
        data=data,
        flags=NORMALIZED,
        filter=LINEAR,
        address=(WRAP, WRAP, WRAP),
        anisotropy=16,
    )


def _windows(name: str, columns: Array, axes: tuple[int, ...], **options: object) -> Iterator[Case]:
    for axis in axes:
        for number in range(8):
            t = replace(_window(number, axis), **options)  # type: ignore[arg-type]
            yield Case(f"footprint.window.{name}.{'xy'[axis]}{number}", t, GRAD_2D, columns, 4)


def anisotropy() -> Iterator[Case]:
    """The level, number, places and weights of an anisotropic footprint's probes."""
    state = np.random.RandomState(103)
    n = 1500
    plain = NORMALIZED | NO_TRILINEAR
    scale = _size(state, n, 2, 9)
    long = _short(state, n, 12, 0) * scale
    short = long * 2.0 ** -state.uniform(0, 5, n)
    zero = np.zeros(n)
    along = words(HALF, HALF, *(np.stack([long, zero, zero, short]) / 1024).astype(np.float32))
    any4 = state.normal(0, 1, (4, n)) * 2.0 ** state.uniform(0, 8, n)
    any4[2:] = any4[2:] * 2.0 ** -state.uniform(0, 4, n)
    oblique = words(HALF, HALF, *(any4 / 1024).astype(np.float32))
    for most in (1, 2, 5, 6, 8, 10, 12, 16):
        for tag, flags in (("", plain), (".optimised", NORMALIZED)):
            t = replace(LEVELS, flags=flags, anisotropy=most)
            yield Case(f"footprint.aniso.along.{most}{tag}", t, GRAD_2D, along, 1)
            yield Case(f"footprint.aniso.any.{most}{tag}", t, GRAD_2D, oblique, 1)
    t = replace(LEVELS, flags=plain, anisotropy=16)
    more = state.normal(0, 1, (4, 12000)) * 2.0 ** state.uniform(0, 8, 12000)
    yield Case("footprint.aniso.more", t, GRAD_2D, words(HALF, HALF, *(more / 1024).astype(np.float32)), 1)
    four = [_short(state, 6000, 10, 2) * _size(state, 6000, 7, 7) for _ in range(4)]
    yield Case(
        "footprint.aniso.short", t, GRAD_2D, words(HALF, HALF, *(np.stack(four) / 1024).astype(np.float32)), 1
    )
    for tag, options in (
        ("bias", {"bias": 0.7}),
        ("bias.optimised", {"bias": 0.7, "flags": NORMALIZED}),
        ("clamped", {"lod": (1.3, 3.7)}),
        ("clamped.optimised", {"lod": (1.3, 3.7), "flags": NORMALIZED}),
        ("point", {"mip_filter": POINT}),
        ("point.optimised", {"mip_filter": POINT, "flags": NORMALIZED}),
        ("points", {"filter": POINT}),
    ):
        yield Case(f"footprint.aniso.{tag}", replace(t, **options), GRAD_2D, oblique, 1)  # type: ignore[arg-type]
    lods = words(HALF, HALF, (np.arange(-300, 2900) / 256).astype(np.float32))
    for most in (2, 5, 8, 16):
        yield Case(
            f"footprint.aniso.level.{most}", replace(t, anisotropy=most, flags=NORMALIZED), LEVEL_2D, lods, 1
        )
    line = replace(t, size=(1024, 0, 0))
    yield Case(
        "footprint.aniso.1d", line, GRAD_1D, words(HALF, *(any4[[0, 2], :500] / 1024).astype(np.float32)), 1
    )
    cube = replace(t, size=(256, 256, 0), slices=6, cube=True, levels=9)
    six = list(state.normal(0, 1, (6, n)) * 2.0 ** -state.uniform(1, 6, n))
    yield Case("footprint.aniso.cube", cube, GRAD_CUBE, words(*state.uniform(-1, 1, (3, n)), *six), 1)
    solid = replace(t, size=(64, 64, 64), levels=6)
    yield Case("footprint.aniso.3d", solid, GRAD_3D, words(HALF, HALF, HALF, *six), 1)
    yield from _probes(state)


def _probes(state: np.random.RandomState) -> Iterator[Case]:
    n = 1500
    at = ((state.randint(0, 256 * 32, (2, n)) + 0.5) / 256 / 256 + 0.25).astype(np.float32)
    length = 2.0 ** state.uniform(0, 4.6, n)
    across = np.minimum(length * 2.0 ** -state.uniform(0, 5, n), 1.2) * state.choice([-1.0, 1.0], n)
    zero = np.zeros(n)

    def rows(*grads: Array, keep: int = n) -> Array:
        return words(at[0][:keep], at[1][:keep], *(np.stack(grads)[:, :keep] / 256).astype(np.float32))

    yield from _windows("along", rows(length, zero, zero, across), (0,))
    yield from _windows("y", rows(zero, length, across, zero, keep=400), (1,))
    for most in (2, 6, 12):
        yield from _windows(f"most.{most}", rows(length, zero, zero, across, keep=300), (0,), anisotropy=most)
    angle, turn = state.uniform(0, 2 * np.pi, (2, n))
    long = np.stack([length * np.cos(angle), length * np.sin(angle)])
    wide = np.stack([-across * np.sin(angle), across * np.cos(angle)])
    first, second = long * np.cos(turn) + wide * np.sin(turn), -long * np.sin(turn) + wide * np.cos(turn)
    yield from _windows("any", rows(*first, *second), (0, 1))
    yield from _windows(
        "mip",
        rows(2 * long[0], 2 * long[1], 2 * wide[0], 2 * wide[1], keep=600),
        (0, 1),
        levels=4,
        flags=NORMALIZED | NO_TRILINEAR,
        mip_filter=POINT,
    )
    big = (state.normal(0, 1, (4, 2500)) * 2.0 ** state.uniform(0, 6, 2500) / 256).astype(np.float32)
    spots = state.uniform(0, 1, (2, 2500)).astype(np.float32)
    whole = Texture(
        (256, 256, 0),
        levels=9,
        flags=NORMALIZED,
        filter=LINEAR,
        mip_filter=LINEAR,
        anisotropy=16,
        address=(WRAP, MIRROR, WRAP),
    )
    for format in ("f32", "u8", "f16", "s8", "s16"):
        t = replace(whole, format=format, data=random_bits(71))
        yield Case(f"footprint.whole.{format}", t, GRAD_2D, words(*spots, *big), 1)
    coloured = replace(whole, format="u8", channels=4, data=random_bits(72), flags=NORMALIZED | SRGB)
    yield Case("footprint.whole.srgb", coloured, GRAD_2D, words(*spots, *big), 4)


def last_bits() -> Iterator[Case]:
    """sRGB texels by their place, wide cubes, border colours, biases."""
    state = np.random.RandomState(104)
    image = Texture((256, 256, 0), "u8", 4, random_bits(73), flags=SRGB, filter=LINEAR)
    x, y = state.uniform(0, 256, (2, 8000)).astype(np.float32)
    row = (np.floor(y) + 0.5).astype(np.float32)
    column = (np.floor(x) + 0.5).astype(np.float32)
    yield Case("bits.srgb.row", image, TEX_2D, words(x, row), 4)
    yield Case("bits.srgb.column", image, TEX_2D, words(column, y), 4)
    yield Case("bits.srgb.both", image, TEX_2D, words(x, y), 4)
    yield Case("bits.srgb.texel", image, TEX_2D, words(column, row), 4)
    yield Case("bits.srgb.point", replace(image, filter=POINT), TEX_2D, words(column, row), 4)
    for format in ("s8", "u8", "s16"):
        mips = Texture(
            (64, 64, 0),
            format,
            1,
            random_bits(74),
            levels=7,
            flags=NORMALIZED,
            filter=LINEAR,
            mip_filter=LINEAR,
        )
        yield Case(
            f"bits.mip.{format}",
            mips,
            LEVEL_2D,
            words(*state.uniform(0, 1, (2, 3000)), state.uniform(0, 7, 3000)),
            1,
        )
    for edge in (100, 512, 1000, 2048, 4096, 8192):
        t = Texture((edge, edge, 0), "u8", 2, _parity, slices=6, cube=True, flags=NORMALIZED, filter=LINEAR)
        xyz = state.uniform(-1, 1, (3, 6000)).astype(np.float32)
        near = xyz.copy()
        near[0] = np.sign(near[0])
        near[1] = (np.sign(near[1]) * (1 - state.uniform(-2, 4, 6000) / edge)).astype(np.float32)
        seamless = replace(t, flags=NORMALIZED | SEAMLESS)
        one = np.stack([np.ones(3000), state.uniform(-1, 1, 3000), state.uniform(-1, 1, 3000)])
        if edge <= 512:  # an H200 was asked about the others once
            yield Case(f"bits.cube.{edge}", t, TEX_CUBE, words(*xyz), 2)
            yield Case(f"bits.cube.{edge}.seamless", seamless, TEX_CUBE, words(*near), 2)
            yield Case(f"bits.cube.{edge}.one", t, TEX_CUBE, words(*one), 2)
    colours = np.concatenate(
        [
            np.arange(-8, 264) / 255,
            state.uniform(-1.1, 1.1, 200),
            (np.arange(0, 256) + 0.5) / 255,
            np.arange(-128, 128) / 127,
        ]
    )
    for format in ("u8", "s8", "u16", "s16", "srgb"):
        base = Texture(
            (4, 1, 0),
            format if format != "srgb" else "u8",
            4,
            address=(BORDER,) * 3,
            flags=SRGB if format == "srgb" else 0,
        )
        for number in range(0, len(colours) // 4, 15):
            border = tuple(float(v) for v in np.float32(colours[4 * number : 4 * number + 4]))
            yield Case(
                f"bits.border.{format}.{number}",
                replace(base, border=border),
                TEX_2D,
                words([-3.0], [0.5]),
                4,
            )
    edge_x = np.arange(-192, 192) / 128
    for format in ("u8", "s8", "u16", "s16", "f16", "f32", "srgb"):
        base = Texture(
            (4, 1, 0),
            format if format != "srgb" else "u8",
            4,
            random_bits(75),
            filter=LINEAR,
            flags=SRGB if format == "srgb" else 0,
        )
        t = replace(base, address=(BORDER,) * 3, border=(0.7, 0.1234567, 0.9, 0.4999))
        yield Case(f"bits.border.linear.{format}", t, TEX_2D, words(edge_x, [0.7]), 4)
    lods = (np.arange(-600, 3000) / 256).astype(np.float32)[::9]
    for number in range(60):
        bias = float(np.float32(state.uniform(-3, 3)))
        low = float(np.float32(state.uniform(-1, 4)))
        t = replace(
            LEVELS,
            size=(64, 64, 0),
            levels=7,
            bias=bias,
            lod=(low, low + float(np.float32(state.uniform(-1, 3)))),
        )
        if number % 4 == 3:
            yield Case(f"bits.lod.{number}", t, LEVEL_2D, words(HALF, HALF, lods), 1)


def _parity(t: Texture, level: int) -> Array:
    """Bytes 0 and 255 by turns, in x and in y: a filtered texel says the fraction it was taken at."""
    n = t.size[0]
    turns = (np.arange(n) % 2 * 255).astype(np.uint8)
    face = np.stack([np.broadcast_to(turns, (n, n)), np.broadcast_to(turns[:, None], (n, n))], axis=2)
    return np.broadcast_to(face, (6, n, n, 2))


def directions() -> Iterator[Case]:
    """Which way a footprint's probes lie, and how wide textures scale gradients."""
    state = np.random.RandomState(105)
    like = state.normal(0, 1, (4, 3000)) * 2.0 ** state.uniform(0, 8, 3000)
    for size in ((1025, 2047, 0), (3000, 1500, 0), (16383, 9, 0), (6001, 5, 0)):
        t = replace(LEVELS, size=size, levels=int(np.log2(max(size))) + 1)
        grads = [(g / s).astype(np.float32) for g, s in zip(like, (size[0], size[1]) * 2, strict=True)]
        yield Case(f"footprint.wide.{size[0]}", t, GRAD_2D, words(HALF, HALF, *grads), 1)
        one = words(HALF, HALF, grads[0], [0.0], [0.0], [0.0])
        yield Case(f"footprint.wide.{size[0]}.one", t, GRAD_2D, one, 1)
    line = replace(LEVELS, size=(40001, 0, 0), levels=16)
    yield Case(
        "footprint.wide.1d", line, GRAD_1D, words(HALF, (like[0] / 40001).astype(np.float32), [0.0]), 1
    )
    n = 2000
    at = ((state.randint(0, 256 * 32, (2, n)) + 0.5) / 256 / 256 + 0.25).astype(np.float32)
    zero = np.zeros(n)
    angle = state.uniform(-np.pi, np.pi, n)
    ways = {
        "single": (15.9 * np.cos(angle), 15.9 * np.sin(angle), zero, zero),
        "second": (zero, zero, 12.0 * np.cos(angle), 12.0 * np.sin(angle)),
        "shorter": (5.0 * np.cos(angle), 5.0 * np.sin(angle), zero, zero),
        "twice": (7.9 * np.cos(angle), 7.9 * np.sin(angle), 7.9 * np.cos(angle), 7.9 * np.sin(angle)),
        "bare": (14.0 * np.cos(angle), 14.0 * np.sin(angle), -np.sin(angle), np.cos(angle)),
        "small": (15.0 * np.cos(angle), 15.0 * np.sin(angle), zero + 1.5, zero + 1.5),
    }
    for name, grads4 in ways.items():
        columns = words(*at, *(np.stack(grads4) / 256).astype(np.float32))
        yield from _windows(f"way.{name}", columns, (0, 1))
    size = {"levels": 4, "flags": NORMALIZED | NO_TRILINEAR, "mip_filter": LINEAR}
    long = 2.0 ** state.uniform(1, 4, n)
    columns = words(
        *at, *(np.stack([long, zero, zero, 2.0 ** state.uniform(0, 1.5, n)]) / 256).astype(np.float32)
    )
    yield from _windows("blend", columns, (0,), **size)
    for level in (0, 1):
        yield from _windows(f"only.{level}", columns, (0,), **size, data=_window_of(level))
    solid = replace(LEVELS, size=(64, 64, 64), levels=6, data=random_bits(90))
    part = (state.normal(0, 1, (6, 2000)) * 2.0 ** state.uniform(-6, -1, 2000)).astype(np.float32)
    places = state.uniform(0, 1, (3, 2000)).astype(np.float32)
    yield Case("footprint.held.3d", solid, GRAD_3D, words(*places, *part), 1)
    cube = replace(LEVELS, size=(200, 200, 0), slices=6, cube=True, levels=8, data=random_bits(91))
    yield Case("footprint.held.cube", cube, GRAD_CUBE, words(*(2 * places - 1), *part), 1)


def _window_of(level: int) -> Callable[[Texture, int], Array]:
    """Zeros on all levels but one, which has its column's number, squared (a window cannot tell levels)."""

    def data(t: Texture, at: int) -> Array:
        values = np.zeros(t.shape(at))
        if at == level:
            x = ramp(replace(t, channels=1), at)[..., 0]
            for channel in range(4):
                values[..., channel] = x % 4 == channel
        return values

    return data


def faces() -> Iterator[Case]:
    """Probes within a cube's face, sums of slices that are far apart, ties of axes."""
    state = np.random.RandomState(106)
    n = 2000
    angle = state.uniform(-np.pi, np.pi, n)
    long, wide = 2.0 ** state.uniform(0, 4, n), 2.0 ** state.uniform(-2, 1, n)
    at = state.uniform(-0.5, 0.5, (2, n))
    columns = _on_first_face(at, long, wide, angle)
    yield from _cube_windows("way.face", columns, (0, 1))
    yield from _cube_windows("way.face.seamless", columns, (0,), SEAMLESS)
    # Two slices whose sums cancel: a texel of 1 against one of 2^-k, over every weight of the first.
    for distance in range(1, 13):
        pair = Texture((1, 1, 2), data=_two_slices(distance), filter=LINEAR)
        z = (np.arange(0, 513) / 256 + 0.25).astype(np.float32)
        yield Case(f"bits.slices.{distance}", pair, TEX_3D, words(HALF, HALF, z), 1)
    # Both gradients, their sum and difference as long as one another in ten bits, and nearly so.
    base, zero = _short(state, n, 10, 0) * 8, np.zeros(n)
    near = base * (1 + state.randint(-3, 4, n) / 2048)
    for number in range(8):
        columns = words(HALF, HALF, *(np.stack([base, zero, near * 0.0, near]) / 256).astype(np.float32))
        yield Case(f"footprint.window.way.ties.x{number}", _window(number, 0), GRAD_2D, columns, 4)


def _on_first_face(at: Array, long: Array, wide: Array, angle: Array) -> Array:
    """Places on the face of x = 1 of a cube of 256 texels an edge, and two gradients across each other."""
    one, zero = np.ones(len(angle)), np.zeros(len(angle))
    du = np.stack([long * np.cos(angle), long * np.sin(angle)]) / 128
    dv = np.stack([-wide * np.sin(angle), wide * np.cos(angle)]) / 128
    return words(one, at[1], at[0], zero, du[1], du[0], zero, dv[1], dv[0])


def _cube_windows(name: str, columns: Array, axes: tuple[int, ...], flags: int = 0) -> Iterator[Case]:
    for axis in axes:
        for number in range(8):
            plain = NORMALIZED | NO_TRILINEAR | flags
            t = replace(_window(number, axis), slices=6, cube=True, flags=plain)
            yield Case(f"footprint.cube.{name}.{'xy'[axis]}{number}", t, GRAD_CUBE, columns, 4)


def apart() -> Iterator[Case]:
    """Sums of slices, levels and probes that are far apart, and probes over a cube's edge."""
    state = np.random.RandomState(107)
    n = 8000
    places = state.uniform(0, 1, (3, n)).astype(np.float32)
    lods = state.uniform(0, 4, n).astype(np.float32)
    plain = {"flags": NORMALIZED, "filter": LINEAR, "address": (WRAP, WRAP, WRAP)}
    for format, data in (("f32", spread(93, 12)), ("f16", spread(94, 7)), ("srgb", random_bits(92))):
        kind, flags = (format, NORMALIZED) if format != "srgb" else ("u8", NORMALIZED | SRGB)
        channels = 4 if format == "srgb" else 1
        base = Texture((64, 64, 0), kind, channels, data, **{**plain, "flags": flags})  # type: ignore[arg-type]
        solid = replace(base, size=(16, 16, 16))
        yield Case(f"bits.apart.{format}.3d", solid, TEX_3D, words(*places), channels)
        mips = replace(base, levels=5, mip_filter=LINEAR)
        yield Case(f"bits.apart.{format}.levels", mips, LEVEL_2D, words(*places[:2], lods), channels)
        deep = replace(solid, levels=4, mip_filter=LINEAR)
        yield Case(f"bits.apart.{format}.3d.levels", deep, LEVEL_3D, words(*places, lods), channels)
        like = (state.normal(0, 1, (4, n)) * 2.0 ** state.uniform(0, 4, n) / 64).astype(np.float32)
        probed = replace(base, anisotropy=16)
        yield Case(f"bits.apart.{format}.probes", probed, GRAD_2D, words(*places[:2], *like), channels)
        both = replace(mips, anisotropy=16)
        yield Case(f"bits.apart.{format}.probes.levels", both, GRAD_2D, words(*places[:2], *like), channels)
    n = 1500
    angle = state.uniform(-np.pi, np.pi, n)
    long, wide = 2.0 ** state.uniform(2, 4, n), 2.0 ** state.uniform(-1, 1, n)
    near = 1 - np.stack([np.abs(state.uniform(0, 12, n)), state.uniform(64, 192, n)]) / 128
    yield from _cube_windows("way.edge", _on_first_face(near, long, wide, angle), (0, 1))


def _two_slices(distance: int) -> Callable[[Texture, int], Array]:
    """An odd mantissa of 24 bits in each slice, the second 2^-distance of the first and negative."""

    def data(t: Texture, at: int) -> Array:
        values = np.zeros(t.shape(at))
        values[0], values[1] = 1 + 5 * 2.0**-23, -(1 + 2.0**-22 + 2.0**-23) * 2.0**-distance
        return values

    return data
