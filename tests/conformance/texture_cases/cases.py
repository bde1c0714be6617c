"""The texture cases: what they ask of an NVIDIA GPU, family by family."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from texture_cases import footprints
from texture_cases.spec import (
    AS_INTEGER,
    BORDER,
    CLAMP,
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
    codes,
    constant_level,
    index,
    ramp,
    random_bits,
    spread,
    values,
    words,
)
from texture_cases.surfaces import surfaces, traps

TEX_1D = "tex.1d.v4.f32.f32 {%r0,%r1,%r2,%r3}, [%t, {%w0}];"
TEX_2D = "tex.2d.v4.f32.f32 {%r0,%r1,%r2,%r3}, [%t, {%w0,%w1}];"
TEX_3D = "tex.3d.v4.f32.f32 {%r0,%r1,%r2,%r3}, [%t, {%w0,%w1,%w2,%w2}];"
TEX_CUBE = "tex.cube.v4.f32.f32 {%r0,%r1,%r2,%r3}, [%t, {%w0,%w1,%w2,%w2}];"
LEVEL_1D = "tex.level.1d.v4.f32.f32 {%r0,%r1,%r2,%r3}, [%t, {%w0}], %w1;"
LEVEL_2D = "tex.level.2d.v4.f32.f32 {%r0,%r1,%r2,%r3}, [%t, {%w0,%w1}], %w2;"

MODES = {"wrap": WRAP, "clamp": CLAMP, "mirror": MIRROR, "border": BORDER}


def _form(text: str, *, dtype: str = "f32", ctype: str = "f32") -> str:
    return text.replace("f32.f32", f"{dtype}.{ctype}")


def _modes(mode: int) -> tuple[int, int, int]:
    return (mode, mode, mode)


def coordinates() -> Iterator[Case]:
    """How a coordinate becomes a texel and a fraction: every texel of a ramp says where it is."""
    fine = np.arange(-1024, 5120) / 1024  # texels -1 to 5 in steps of 1/1024
    tiny = np.concatenate([np.nextafter(np.float32(n), np.float32(s)) for n in range(5) for s in ([-9, 9],)])
    near = np.concatenate([n + s * 2.0 ** -np.arange(1, 25) for n in np.arange(0, 5, 0.5) for s in (1, -1)])
    state = np.random.RandomState(1)
    ramp4 = Texture((4, 0, 0))
    for name, mode in MODES.items():
        for filter, normal in itertools.product((POINT, LINEAR), (0, NORMALIZED)):
            scale = 4 if normal else 1
            x = np.concatenate([fine, near, tiny]).astype(np.float32) / np.float32(scale)
            x = np.concatenate([x, SPECIAL, state.uniform(-12, 12, 2048).astype(np.float32)]).astype(
                np.float32
            )
            texture = replace(ramp4, address=_modes(mode), filter=filter, flags=normal, border=(9.0,) * 4)
            yield Case(f"coord.1d.{name}.{'pl'[filter]}{'un'[normal // 2]}", texture, TEX_1D, words(x), 1)
    for width in (
        5,
        7,
        100,
        1000,
        4096,
        5000,
        8191,
        8192,
        8193,
        12000,
        16383,
        16384,
        16385,
        20000,
        40000,
        65536,
    ):
        x = state.uniform(0, 1, 6000).astype(np.float32)
        texture = Texture((width, 0, 0), filter=LINEAR, flags=NORMALIZED)
        for name, mode in (("clamp", CLAMP), ("wrap", WRAP), ("mirror", MIRROR)):
            far = x if name == "clamp" else (x * 7 - 3).astype(np.float32)
            t = replace(texture, address=_modes(mode))
            yield Case(f"coord.wide.{width}.{name}.l", t, TEX_1D, words(far), 1)
            yield Case(f"coord.wide.{width}.{name}.p", replace(t, filter=POINT), TEX_1D, words(far), 1)
        u = (state.uniform(0, width, 6000)).astype(np.float32)
        flat = replace(texture, flags=0)
        yield Case(f"coord.wide.{width}.unnormalised.l", flat, TEX_1D, words(u), 1)
        yield Case(f"coord.wide.{width}.unnormalised.p", replace(flat, filter=POINT), TEX_1D, words(u), 1)
    for mode_name, mode in MODES.items():
        xy = state.uniform(-2, 3, (2, 4000)).astype(np.float32)
        t = Texture((5, 3, 0), channels=2, filter=LINEAR, flags=NORMALIZED, address=_modes(mode))
        yield Case(f"coord.2d.{mode_name}", t, TEX_2D, words(*xy), 2)
        xyz = state.uniform(-2, 3, (3, 4000)).astype(np.float32)
        t3 = replace(t, size=(5, 3, 6), channels=4)
        yield Case(f"coord.3d.{mode_name}", t3, TEX_3D, words(*xyz), 3)
    mixed = Texture((5, 3, 6), channels=4, filter=LINEAR, flags=NORMALIZED, address=(WRAP, MIRROR, BORDER))
    yield Case("coord.3d.mixed", mixed, TEX_3D, words(*state.uniform(-2, 3, (3, 2000)).astype(np.float32)), 4)


def integers() -> Iterator[Case]:
    """Integer coordinates, linear memory, pitched memory."""
    x = np.concatenate(
        [np.arange(-9, 20), [1 << 16, 1 << 20, 1 << 27, (1 << 31) - 1, -(1 << 31), -(1 << 16)]]
    )
    form = _form(TEX_1D, ctype="s32")
    for (name, mode), filter, normal in itertools.product(MODES.items(), (POINT, LINEAR), (0, NORMALIZED)):
        t = Texture((5, 0, 0), address=_modes(mode), filter=filter, flags=normal, border=(9.0,) * 4)
        yield Case(f"integer.1d.{name}.{'pl'[filter]}{'un'[normal // 2]}", t, form, words(x), 4)
    grid = np.array([[a, b] for a in range(-3, 9) for b in range(-3, 7)]).T
    t2 = Texture((5, 3, 0), channels=2)
    yield Case("integer.2d.clamp", t2, _form(TEX_2D, ctype="s32"), words(*grid))
    yield Case(
        "integer.2d.border", replace(t2, address=_modes(BORDER)), _form(TEX_2D, ctype="s32"), words(*grid)
    )
    t3 = Texture((5, 3, 4), channels=4)
    cube = np.array([[a, b, d] for a in range(-1, 6) for b in range(-1, 4) for d in range(-1, 6)]).T
    yield Case("integer.3d.clamp", t3, _form(TEX_3D, ctype="s32"), words(*cube))
    for format, channels in (("f32", 1), ("f32", 4), ("u8", 4), ("s16", 2), ("u32", 1), ("f16", 2)):
        whole = AS_INTEGER if format[0] != "f" else 0
        dtype = "f32" if format[0] == "f" else "u32"
        t = Texture((1000, 0, 0), format, channels, resource="linear", flags=whole)
        xs = np.concatenate([x, np.arange(990, 1040), [1023, 1024, 4000, 1 << 24]])
        yield Case(
            f"integer.linear.{format}x{channels}", t, _form(TEX_1D, dtype=dtype, ctype="s32"), words(xs)
        )
    t = Texture((1000, 0, 0), "u8", 4, index, resource="linear")
    yield Case("integer.linear.normalised", t, _form(TEX_1D, ctype="s32"), words(x))
    yield Case("integer.linear.float_x", Texture((9, 0, 0), resource="linear"), TEX_1D, words(SPECIAL))
    f = np.arange(-16, 48) / 4.0
    yield Case("integer.linear.fractions", Texture((9, 0, 0), resource="linear"), TEX_1D, words(f))
    pitch = Texture((37, 5, 0), channels=2, resource="pitch", filter=LINEAR)
    state = np.random.RandomState(2)
    xy = (state.uniform(-3, 40, 500).astype(np.float32), state.uniform(-2, 8, 500).astype(np.float32))
    yield Case("integer.pitch.linear", pitch, TEX_2D, words(*xy), 2)
    norm = replace(pitch, flags=NORMALIZED, address=_modes(WRAP))
    yield Case("integer.pitch.wrap", norm, TEX_2D, words(xy[0] / 8, xy[1] / 4), 2)
    yield Case("integer.pitch.s32", replace(pitch, filter=POINT), _form(TEX_2D, ctype="s32"), words(*grid), 4)


def conversions() -> Iterator[Case]:
    """What a texel's bits become, and channels that are not there; with sRGB."""
    for format, bits in (("u8", 8), ("s8", 8), ("u16", 16), ("s16", 16), ("f16", 16)):
        n = 1 << bits
        t = Texture((256, n // 256, 0), format, 1, codes)
        i = np.arange(n)
        places = words(i % 256 + 0.5, i // 256 + 0.5)
        yield Case(f"convert.{format}", t, TEX_2D, places, 1)
        yield Case(f"convert.{format}.linear", replace(t, filter=LINEAR), TEX_2D, places, 1)
        if bits == 8:
            yield Case(f"convert.{format}.f16x2", t, TEX_HALF, places, 2)
        if format[0] != "f":
            whole = replace(t, flags=AS_INTEGER)
            for dtype in ("u32", "s32"):
                yield Case(f"convert.{format}.{dtype}", whole, _form(TEX_2D, dtype=dtype), places, 1)
    srgb = Texture(
        (256, 1, 0), "u8", 4, lambda t, level: np.repeat(codes(replace(t, channels=1), level), 4, 3)
    )
    srgb = replace(srgb, flags=SRGB)
    yield Case("convert.srgb", srgb, TEX_2D, words(np.arange(256) + 0.5, np.full(256, 0.5)))
    state = np.random.RandomState(3)
    x = state.uniform(0, 256, 4096).astype(np.float32)
    yield Case("convert.srgb.linear", replace(srgb, filter=LINEAR), TEX_2D, words(x, np.full(4096, 0.5)))
    for format in ("u8", "u16", "s16", "u32", "s32", "f16", "f32"):
        for channels in (1, 2, 4):
            for dtype in ("f32", "u32", "s32"):
                whole = AS_INTEGER if format[0] != "f" else 0
                t = Texture((16, 2, 0), format, channels, random_bits(5), flags=whole)
                form = _form(TEX_2D, dtype=dtype)
                i = np.arange(32)
                places = words(i % 16 + 0.5, i // 16 + 0.5)
                yield Case(f"convert.channels.{format}x{channels}.{dtype}", t, form, places)
    odd = [0x7FC00000, 0x7F800001, 0xFFC12345, 0xFF800001, 0x7F800000, 1, 0x80000000, 0x007FFFFF, 0x3F800000]
    t = Texture((16, 1, 0), "f32", 1, values(odd, np.uint32))
    yield Case("convert.f32.odd", t, TEX_2D, words(np.arange(16) + 0.5, np.full(16, 0.5)), 1)
    yield Case(
        "convert.f32.odd.linear", replace(t, filter=LINEAR), TEX_2D, words(np.arange(64) / 4, [0.5]), 1
    )
    halves = values([0x3C00, 0x7E00, 0x7C01, 0xFC00, 0x7C00, 1, 0x8000, 0x3FF, 0xFE12], np.uint16)
    t = Texture((16, 1, 0), "f16", 1, halves)
    yield Case(
        "convert.f16.odd.linear", replace(t, filter=LINEAR), TEX_2D, words(np.arange(64) / 4, [0.5]), 1
    )
    t = Texture((256, 256, 0), "f32", 1, spread(8, 20))
    i = np.arange(4096)
    yield Case("convert.f32.f16x2", t, TEX_HALF, words(i % 256 + 0.5, i // 256 + 0.5), 2)
    yield Case("convert.f32.f16", t, TEX_HALVES, words(i % 256 + 0.5, i // 256 + 0.5), 4, 16)
    t = Texture((256, 256, 0), "u16", 1, codes)
    i = np.arange(65536)
    yield Case("convert.u16.f16x2", t, TEX_HALF, words(i % 256 + 0.5, i // 256 + 0.5), 1)


TEX_HALF = "tex.2d.v2.f16x2.f32 {%r0,%r1}, [%t, {%w0,%w1}];"
TEX_HALVES = "tex.2d.v4.f16.f32 {%r0,%r1,%r2,%r3}, [%t, {%w0,%w1}];"


def filtering() -> Iterator[Case]:
    """Random texels between which is filtered: order and precision of the sums."""
    state = np.random.RandomState(4)

    def places(n: int, size: tuple[int, ...]) -> Array:
        return words(*(state.uniform(0, s, n).astype(np.float32) for s in size))

    for format, channels in (
        *(("f32", 1), ("f32", 4), ("f16", 1), ("f16", 4), ("u8", 1), ("u8", 4), ("s8", 1), ("u16", 1)),
        *(("s16", 1), ("u16", 4)),
    ):
        keep = channels
        n = 20000 if channels == 1 else 4000
        base = Texture((256, 0, 0), format, channels, random_bits(11), filter=LINEAR)
        yield Case(f"filter.1d.{format}x{channels}", base, TEX_1D, places(n, (256,)), keep)
        flat = replace(base, size=(64, 64, 0))
        yield Case(f"filter.2d.{format}x{channels}", flat, TEX_2D, places(n, (64, 64)), keep)
        solid = replace(base, size=(16, 16, 16))
        yield Case(f"filter.3d.{format}x{channels}", solid, TEX_3D, places(n, (16, 16, 16)), keep)
    for exponents in (3, 12, 40):
        base = Texture((256, 0, 0), "f32", 1, spread(exponents, exponents), filter=LINEAR)
        yield Case(f"filter.spread.1d.{exponents}", base, TEX_1D, places(20000, (256,)), 1)
        yield Case(
            f"filter.spread.2d.{exponents}",
            replace(base, size=(64, 64, 0)),
            TEX_2D,
            places(20000, (64, 64)),
            1,
        )
        yield Case(
            f"filter.spread.3d.{exponents}",
            replace(base, size=(16, 16, 16)),
            TEX_3D,
            places(20000, (16, 16, 16)),
            1,
        )
    halves = Texture((256, 0, 0), "f16", 1, spread(9, 9), filter=LINEAR)
    yield Case("filter.spread.1d.f16", halves, TEX_1D, places(20000, (256,)), 1)
    yield Case("filter.spread.2d.f16", replace(halves, size=(64, 64, 0)), TEX_2D, places(20000, (64, 64)), 1)
    # Every fraction between two texels, and every pair of them between four.
    one = Texture((256, 0, 0), "f32", 1, lambda t, level: (ramp(t, level) == 1) * 1.0, filter=LINEAR)
    fine = np.arange(0, 2048) / 1024 + 0.5
    yield Case("filter.weights.1d", one, TEX_1D, words(fine), 1)
    corner = replace(one, size=(4, 4, 0), data=lambda t, level: (index(t, level) == 5) * 1.0)
    a, b = (v.ravel() for v in np.meshgrid(np.arange(512) / 256 + 0.5, np.arange(0, 512, 5) / 256 + 0.5))
    yield Case("filter.weights.2d", corner, TEX_2D, words(a, b), 1)
    bytes_ = replace(corner, format="u8", data=lambda t, level: (index(t, level) == 5) * 255)
    yield Case("filter.weights.2d.u8", bytes_, TEX_2D, words(a, b), 1)
    two = Texture((2, 1, 0), "u8", 4, values([0, 1, 254, 255, 255, 0, 255, 1], np.uint8), filter=LINEAR)
    yield Case("filter.weights.1d.u8", two, TEX_2D, words(np.arange(512) / 256, [0.5]), 4)
    yield Case(
        "filter.half.2d",
        replace(two, size=(16, 16, 0), data=random_bits(21)),
        TEX_HALF,
        words(a * 4, b * 4),
        2,
    )


def weights() -> Iterator[Case]:
    """One texel of a volume that is 1, seen from all around: the weights of eight and of sixteen taps."""
    state = np.random.RandomState(14)
    at = ((state.randint(0, 512, (3, 30000)) + 128) / 256).astype(np.float32)
    solid = Texture((4, 4, 4), data=lambda t, level: (index(t, level) == 21) * 1.0, filter=LINEAR)
    yield Case("weights.3d", solid, TEX_3D, words(*at), 1)
    yield Case("weights.3d.f16", replace(solid, format="f16"), TEX_3D, words(*at[:, :3000]), 1)
    flat = replace(solid, size=(4, 4, 0), data=lambda t, level: (index(t, level) == 5) * 1.0)
    yield Case("weights.2d", flat, TEX_2D, words(*at[:2]), 1)
    mips = replace(flat, levels=2, flags=NORMALIZED, mip_filter=LINEAR, data=_one_of_level_0)
    lod = (state.randint(0, 257, 30000) / 256).astype(np.float32)
    yield Case("weights.mip.2d", mips, LEVEL_2D, words(at[0] / 4, at[1] / 4, lod), 1)
    form = "tex.level.3d.v4.f32.f32 {%r0,%r1,%r2,%r3}, [%t, {%w0,%w1,%w2,%w2}], %w3;"
    deep = replace(mips, size=(4, 4, 4))
    yield Case("weights.mip.3d", deep, form, words(*(at / 4), lod), 1)
    second = replace(deep, data=_one_of_level_1)
    yield Case("weights.mip.3d.second", second, form, words(*(at / 4), lod), 1)
    signed = Texture((256, 2, 0), "s8", 1, _every_pair, filter=LINEAR)
    for fraction in (1, 2, 3, 7, 16, 31, 64, 100, 127, 128, 129, 200, 255):
        places = words(np.arange(256) + 0.5, [0.5 + fraction / 256])
        yield Case(f"weights.s8.{fraction}", signed, TEX_2D, places, 1)
    yield Case(
        "weights.s8.2d",
        replace(signed, size=(64, 64, 0), data=random_bits(40)),
        TEX_2D,
        words(*(at[:2] * 20)),
        1,
    )


def _one_of_level_0(t: Texture, level: int) -> Array:
    return (index(t, level) == (21 if t.size[2] else 5)) * (1.0 if level == 0 else 0.0)


def _one_of_level_1(t: Texture, level: int) -> Array:
    return (index(t, level) == 0) * (1.0 if level == 1 else 0.0)


def _every_pair(t: Texture, level: int) -> Array:
    """Row 0 is all codes, row 1 zeros: a row's texels are scaled by the weight alone."""
    return np.stack([np.arange(256).astype(np.uint8).view(np.int8), np.zeros(256, np.int8)]).reshape(
        t.shape(level)
    )


def layers() -> Iterator[Case]:
    """Layer numbers, in range and out."""
    numbers = np.array(
        [0, 1, 2, 3, 4, 5, 6, 7, 100, 65535, 65536, 65537, 1 << 20, (1 << 31) - 1, -(1 << 31), -2, -1]
    )
    a1d = "tex.a1d.v4.f32.f32 {%r0,%r1,%r2,%r3}, [%t, {%w0,%w1}];"
    a2d = "tex.a2d.v4.f32.f32 {%r0,%r1,%r2,%r3}, [%t, {%w0,%w1,%w2,%w2}];"
    layered = Texture((5, 0, 0), channels=4, slices=5, filter=LINEAR)
    yield Case("layers.a1d", layered, a1d, words(numbers, [1.3]))
    flat = replace(layered, size=(5, 3, 0))
    yield Case("layers.a2d", flat, a2d, words(numbers, [1.3], [1.6]))
    yield Case("layers.a2d.border", replace(flat, address=_modes(BORDER)), a2d, words(numbers, [1.3], [1.6]))
    yield Case(
        "layers.a2d.wrap",
        replace(flat, flags=NORMALIZED, address=_modes(WRAP)),
        a2d,
        words(numbers, [1.3], [1.6]),
    )
    yield Case(
        "layers.a2d.s32", replace(flat, filter=POINT), _form(a2d, ctype="s32"), words(numbers, [1], [2])
    )
    state = np.random.RandomState(6)
    acube = "tex.acube.v4.f32.f32 {%r0,%r1,%r2,%r3}, [%t, {%w0,%w1,%w2,%w3}];"
    cubes = replace(layered, size=(4, 4, 0), slices=18, cube=True)
    xyz = state.uniform(-1, 1, (3, 17)).astype(np.float32)
    yield Case("layers.acube", cubes, acube, words(numbers, *xyz))


def cubes() -> Iterator[Case]:
    """Face selection, the place within a face, seams."""
    state = np.random.RandomState(7)
    xyz = state.uniform(-1, 1, (3, 8000)).astype(np.float32)
    few = np.array([-2, -1, -0.5, -0.0, 0.0, 0.5, 1, 2], np.float32)
    ties = np.array(list(itertools.product(few, few, few)), np.float32).T
    odd = np.array(list(itertools.product(SPECIAL[:12], few[2:6], SPECIAL[:12])), np.float32).T
    base = Texture((64, 64, 0), channels=4, slices=6, cube=True)
    for name, flags in (("", 0), (".seamless", SEAMLESS)):
        for filter in (POINT, LINEAR):
            t = replace(base, filter=filter, flags=flags | NORMALIZED)
            tag = f"{'pl'[filter]}{name}"
            yield Case(f"cube.random.{tag}", t, TEX_CUBE, words(*xyz), 3)
            yield Case(f"cube.ties.{tag}", t, TEX_CUBE, words(*ties), 3)
            yield Case(f"cube.odd.{tag}", t, TEX_CUBE, words(*odd), 3)
            scaled = xyz * (2.0 ** state.randint(-30, 31, 8000)).astype(np.float32)
            yield Case(f"cube.scaled.{tag}", t, TEX_CUBE, words(*scaled), 3)
    edge = xyz.copy()
    edge[0] = np.sign(edge[0])
    edge[1] = np.sign(edge[1]) * (1 - 2.0 ** state.randint(-12, -4, 8000) * state.uniform(0, 1, 8000))
    edge = edge.astype(np.float32)
    corner = edge.copy()
    corner[2] = np.sign(corner[2]) * (1 - 2.0 ** state.randint(-12, -4, 8000) * state.uniform(0, 1, 8000))
    small = Texture((4, 4, 0), channels=1, data=index, slices=6, cube=True, filter=LINEAR)
    for name, flags in (("", 0), (".seamless", SEAMLESS)):
        t = replace(small, flags=flags | NORMALIZED)
        for tag, places in (("edge", edge), ("corner", corner), ("random", xyz)):
            for turn in range(3):
                yield Case(f"cube.{tag}.{turn}{name}", t, TEX_CUBE, words(*np.roll(places, turn, 0)), 1)
    fine = replace(base, size=(2048, 2048, 0), channels=2, filter=LINEAR, flags=NORMALIZED)
    yield Case("cube.fine", fine, TEX_CUBE, words(*xyz), 2)


def mips() -> Iterator[Case]:
    """Levels: explicit, chosen by gradients, by nothing; clamped and biased."""
    state = np.random.RandomState(8)
    base = Texture((64, 64, 0), channels=2, data=constant_level, levels=7, flags=NORMALIZED)
    lods = np.concatenate([(np.arange(-1024, 8192) / 1024).astype(np.float32), SPECIAL])
    places = words([0.3], [0.7], lods)
    for tag, mip_filter in (("p", POINT), ("l", LINEAR)):
        t = replace(base, mip_filter=mip_filter)
        yield Case(f"mip.level.{tag}", t, LEVEL_2D, places, 2)
        yield Case(f"mip.level.linear.{tag}", replace(t, filter=LINEAR), LEVEL_2D, places, 2)
        yield Case(
            f"mip.level.no_trilinear.{tag}", replace(t, flags=NORMALIZED | NO_TRILINEAR), LEVEL_2D, places, 2
        )
        yield Case(f"mip.level.clamped.{tag}", replace(t, lod=(1.3, 3.7)), LEVEL_2D, places, 2)
        for bias in (0.37, -1.21, 100.0, -100.0, 0.001):
            yield Case(f"mip.level.bias.{bias}.{tag}", replace(t, bias=bias), LEVEL_2D, places, 2)
        yield Case(f"mip.none.clamped.{tag}", replace(t, lod=(1.3, 3.7)), TEX_2D, words([0.3], [0.7]), 2)
        both = replace(t, lod=(1.3, 3.7), bias=0.9)
        yield Case(f"mip.level.bias.clamped.{tag}", both, LEVEL_2D, places, 2)
        yield Case(f"mip.none.{tag}", replace(t, bias=2.3), TEX_2D, words(state.uniform(0, 1, 64), [0.5]), 2)
        base_form = TEX_2D.replace("tex.2d", "tex.base.2d")
        yield Case(
            f"mip.base.{tag}", replace(t, bias=2.3), base_form, words(state.uniform(0, 1, 64), [0.5]), 2
        )
    # Without normalised coordinates, an x in texels of level 0 or of its own?
    ramps = replace(base, data=ramp, mip_filter=LINEAR, channels=4, filter=LINEAR)
    xyl = state.uniform(0, 1, (3, 6000)).astype(np.float32)
    xyl[2] *= 7
    yield Case("mip.level.ramp", ramps, LEVEL_2D, words(*xyl))
    odd = replace(ramps, size=(77, 45, 0), levels=7)
    yield Case("mip.level.odd_size", odd, LEVEL_2D, words(*xyl))
    noise = replace(ramps, data=random_bits(31), channels=1)
    yield Case("mip.level.filter.f32", noise, LEVEL_2D, words(*xyl), 1)
    yield Case("mip.level.filter.u8", replace(noise, format="u8"), LEVEL_2D, words(*xyl), 1)
    yield Case("mip.level.filter.f16", replace(noise, format="f16"), LEVEL_2D, words(*xyl), 1)
    line = replace(base, size=(64, 0, 0), levels=7, mip_filter=LINEAR)
    yield Case("mip.level.1d", line, LEVEL_1D, words([0.3], lods), 2)
    layered = replace(base, slices=3, channels=4, mip_filter=LINEAR, data=ramp)
    form = "tex.level.a2d.v4.f32.f32 {%r0,%r1,%r2,%r3}, [%t, {%w0,%w1,%w2,%w2}], %w3;"
    yield Case("mip.level.a2d", layered, form, words(np.arange(6000) % 5, *xyl))
    solid = replace(
        base, size=(32, 32, 32), levels=6, channels=4, mip_filter=LINEAR, data=ramp, filter=LINEAR
    )
    form = "tex.level.3d.v4.f32.f32 {%r0,%r1,%r2,%r3}, [%t, {%w0,%w1,%w2,%w2}], %w3;"
    yield Case("mip.level.3d", solid, form, words(xyl[0], xyl[1], xyl[0], xyl[2]))
    cube = replace(base, slices=6, cube=True, channels=4, mip_filter=LINEAR, data=ramp)
    form = "tex.level.cube.v4.f32.f32 {%r0,%r1,%r2,%r3}, [%t, {%w0,%w1,%w2,%w2}], %w3;"
    yield Case("mip.level.cube", cube, form, words(*(xyl[:2] * 2 - 1), [0.4], xyl[2]))
    single = Texture((64, 64, 0), channels=4, data=ramp, flags=NORMALIZED)
    yield Case("mip.level.single", single, LEVEL_2D, places, 4)
    flat = replace(single, flags=0)
    yield Case("mip.level.unnormalised", flat, LEVEL_2D, words([13.0], [7.0], lods), 4)
    integer = "tex.level.2d.v4.f32.s32 {%r0,%r1,%r2,%r3}, [%t, {%w0,%w1}], %w2;"
    levels = np.arange(-3, 12)
    yield Case("mip.level.s32", replace(base, data=ramp, channels=4), integer, words([5], [9], levels), 4)
    yield from _gradients(base, state)


def _gradients(base: Texture, state: np.random.RandomState) -> Iterator[Case]:
    t = replace(base, mip_filter=LINEAR, size=(1024, 1024, 0), levels=11, filter=LINEAR)
    grad_1d = "tex.grad.1d.v4.f32.f32 {%r0,%r1,%r2,%r3}, [%t, {%w0}], {%w1}, {%w2};"
    grad_2d = "tex.grad.2d.v4.f32.f32 {%r0,%r1,%r2,%r3}, [%t, {%w0,%w1}], {%w2,%w3}, {%w4,%w5};"
    grad_3d = (
        "tex.grad.3d.v4.f32.f32 {%r0,%r1,%r2,%r3}, [%t, {%w0,%w1,%w2,%w2}],"
        " {%w3,%w4,%w5,%w5}, {%w6,%w7,%w8,%w8};"
    )
    grad_cube = grad_3d.replace("grad.3d", "grad.cube")
    steps = (2.0 ** (np.arange(-512, 5632) / 512) / 1024).astype(np.float32)  # lod -1 to 11
    zero = np.zeros(1, np.float32)
    line = replace(t, size=(1024, 0, 0))
    yield Case("grad.1d.dx", line, grad_1d, words([0.3], steps, zero), 1)
    yield Case("grad.1d.dy", line, grad_1d, words([0.3], zero, -steps), 1)
    half = np.float32([0.5])
    yield Case("grad.2d.dxx", t, grad_2d, words(half, half, steps, zero, zero, zero), 1)
    yield Case("grad.2d.dyy", t, grad_2d, words(half, half, zero, zero, zero, steps), 1)
    yield Case("grad.2d.diagonal", t, grad_2d, words(half, half, steps, steps, zero, zero), 1)
    yield Case("grad.2d.cross", t, grad_2d, words(half, half, steps, zero, zero, steps), 1)
    four = (state.uniform(-1, 1, (4, 20000)) * 2.0 ** -state.uniform(0, 10, 20000)).astype(np.float32)
    yield Case("grad.2d.random", t, grad_2d, words(half, half, *four), 1)
    one = np.stack([four[0], four[1], 0 * four[0], 0 * four[0]])
    yield Case("grad.2d.one", t, grad_2d, words(half, half, *one), 1)
    oblong = replace(t, size=(1024, 64, 0))
    yield Case("grad.2d.oblong", oblong, grad_2d, words(half, half, *four), 1)
    for anisotropy in (1, 2, 4, 16):
        a = replace(t, anisotropy=anisotropy)
        yield Case(f"grad.2d.anisotropy.{anisotropy}", a, grad_2d, words(half, half, *four[:, :6000]), 1)
    ramps = replace(t, data=ramp, channels=4, anisotropy=16)
    yield Case("grad.2d.anisotropy.ramp", ramps, grad_2d, words([0.4], half, *four[:, :6000]), 4)
    one_line = replace(
        t, data=lambda t, v: (ramp(t, v)[..., :1] == t.shape(v)[2] // 2) * 1.0, channels=1, anisotropy=8
    )
    ax = (np.arange(2048) / 2048 * 0.05 + 0.475).astype(np.float32)
    yield Case(
        "grad.2d.anisotropy.line", one_line, grad_2d, words(ax, half, [8 / 1024], zero, zero, [1 / 1024]), 1
    )
    odd = np.array(list(itertools.product(SPECIAL[:12], SPECIAL[:12])), np.float32).T
    yield Case("grad.2d.odd", t, grad_2d, words(half, half, odd[0], zero, zero, odd[1]), 1)
    yield Case("grad.2d.point", replace(t, mip_filter=POINT), grad_2d, words(half, half, *four[:, :4000]), 1)
    yield Case("grad.2d.bias", replace(t, bias=0.7), grad_2d, words(half, half, *four[:, :4000]), 1)
    yield Case("grad.2d.clamped", replace(t, lod=(1.3, 3.7)), grad_2d, words(half, half, *four[:, :4000]), 1)
    six = (state.uniform(-1, 1, (6, 8000)) * 2.0 ** -state.uniform(0, 6, 8000)).astype(np.float32)
    solid = replace(t, size=(64, 64, 64), levels=7)
    yield Case("grad.3d.random", solid, grad_3d, words(half, half, half, *six), 1)
    cube = replace(t, size=(256, 256, 0), slices=6, cube=True, levels=9)
    at = state.uniform(-1, 1, (3, 8000)).astype(np.float32)
    yield Case("grad.cube.random", cube, grad_cube, words(*at, *six), 1)
    yield Case("grad.cube.axis", cube, grad_cube, words([1.0], [0.1], [0.2], *six), 1)


def borders() -> Iterator[Case]:
    """The border colour in each format."""
    colour = (2.5, -0.5, 0.3, 1e-3)
    x = np.array([-3.0, -0.9, -0.5, -0.25, 0.0, 0.25, 0.5, 3.5, 3.75, 4.0, 9.0])
    for format in ("u8", "s8", "u16", "s16", "f16", "f32"):
        for channels in (1, 4):
            t = Texture((4, 1, 0), format, channels, index, address=_modes(BORDER), border=colour)
            yield Case(f"border.{format}x{channels}.p", t, TEX_2D, words(x, [0.5]))
            yield Case(f"border.{format}x{channels}.l", replace(t, filter=LINEAR), TEX_2D, words(x, [0.5]))
    for format in ("u8", "s8", "u16", "s16", "u32", "s32"):
        for colour_name, c in (("float", colour), ("large", (300.0, -200.0, 7e4, 3e9))):
            t = Texture((4, 1, 0), format, 4, index, address=_modes(BORDER), border=c, flags=AS_INTEGER)
            for dtype in ("u32", "s32", "f32"):
                yield Case(
                    f"border.{format}.{colour_name}.{dtype}", t, _form(TEX_2D, dtype=dtype), words(x, [0.5])
                )
    srgb = Texture((4, 1, 0), "u8", 4, index, address=_modes(BORDER), border=(0.5, 0.1, 0.9, 0.5), flags=SRGB)
    yield Case("border.srgb", srgb, TEX_2D, words(x, [0.5]))


def gathers() -> Iterator[Case]:
    """``tld4``: which texel goes where, and where the footprint steps over."""
    state = np.random.RandomState(9)
    form = "tld4.r.2d.v4.f32.f32 {%r0,%r1,%r2,%r3}, [%t, {%w0,%w1}];"
    t = Texture((8, 8, 0), channels=4, data=index, gather=True)
    grid = [v.ravel() for v in np.meshgrid(np.arange(-16, 80) / 8, [0.5, 1.0, 3.3, 7.9])]
    for component in "rgba":
        yield Case(f"gather.{component}", t, form.replace("tld4.r", f"tld4.{component}"), words(*grid))
    fine = np.arange(-512, 2048) / 1024 + 1
    yield Case("gather.fine", t, form, words(fine, [2.0]))
    for name, mode in MODES.items():
        m = replace(t, address=_modes(mode), flags=NORMALIZED, border=(99.0, 98.0, 97.0, 96.0))
        yield Case(f"gather.{name}", m, form, words(*state.uniform(-1, 2, (2, 500)).astype(np.float32)))
    yield Case("gather.filter_linear", replace(t, filter=LINEAR), form, words(*grid))
    for format, dtype in (("u8", "u32"), ("s16", "s32"), ("u32", "u32"), ("f16", "f32")):
        whole = AS_INTEGER if format[0] != "f" else 0
        g = replace(t, format=format, flags=whole)
        yield Case(f"gather.{format}", g, _form(form, dtype=dtype), words(*grid))
    yield Case("gather.u8.normalised", replace(t, format="u8"), form, words(*grid))
    yield Case(
        "gather.channel_missing", replace(t, channels=1), form.replace("tld4.r", "tld4.a"), words(*grid)
    )
    t = replace(t, gather=False)
    yield Case("gather.no_flag", t, form, words(*grid))
    layered = replace(t, slices=3)
    a2d = "tld4.g.a2d.v4.f32.f32 {%r0,%r1,%r2,%r3}, [%t, {%w0,%w1,%w2,%w2}];"
    yield Case("gather.a2d", layered, a2d, words(np.arange(384) % 5, *grid))
    cube = "tld4.r.cube.v4.f32.f32 {%r0,%r1,%r2,%r3}, [%t, {%w0,%w1,%w2,%w2}];"
    xyz = state.uniform(-1, 1, (3, 1000)).astype(np.float32)
    for name, flags in (("", 0), (".seamless", SEAMLESS)):
        g = Texture((4, 4, 0), data=index, slices=6, cube=True, flags=NORMALIZED | flags)
        yield Case(f"gather.cube{name}", g, cube, words(*xyz))


def extras() -> Iterator[Case]:
    """Offsets, residence, depth compare, queries."""
    t = Texture((16, 16, 0), channels=4, data=ramp)
    base = "tex.2d.v4.f32.f32 {%r0,%r1,%r2,%r3}, [%t, {%w0,%w1}]"
    e = np.arange(-20, 20)
    yield Case("extra.offset", t, f"{base}, {{%w2,%w3}};", words([8.5], [8.5], e, e[::-1]))
    yield Case(
        "extra.offset.huge", t, f"{base}, {{%w2,%w3}};", words([8.5], [8.5], [256, 16, 64, -64, 1 << 20], [0])
    )
    wrapped = replace(t, flags=NORMALIZED, address=_modes(WRAP))
    yield Case("extra.offset.wrap", wrapped, f"{base}, {{%w2,%w3}};", words([0.9], [0.1], e, e))
    bordered = replace(t, address=_modes(BORDER), border=(99.0, 98.0, 97.0, 96.0))
    yield Case("extra.offset.border", bordered, f"{base}, {{%w2,%w3}};", words([2.5], [14.5], e, e))
    yield Case("extra.offset.s32", t, _form(base, ctype="s32") + ", {%w2,%w3};", words([8], [8], e, e))
    mips = replace(t, levels=5, flags=NORMALIZED)
    level = "tex.level.2d.v4.f32.f32 {%r0,%r1,%r2,%r3}, [%t, {%w0,%w1}], %w2, {%w3,%w4};"
    yield Case(
        "extra.offset.level",
        mips,
        level,
        words([0.5], [0.5], np.repeat([0.0, 1.0, 2.0], 8), np.arange(24) % 8 - 4, [1]),
    )
    solid = Texture((16, 16, 16), channels=4)
    form3 = "tex.3d.v4.f32.f32 {%r0,%r1,%r2,%r3}, [%t, {%w0,%w1,%w2,%w2}], {%w3,%w4,%w5,%w5};"
    yield Case("extra.offset.3d", solid, form3, words([8.5], [8.5], [8.5], e, -e, e))
    layered = replace(t, slices=4)
    forma = "tex.a2d.v4.f32.f32 {%r0,%r1,%r2,%r3}, [%t, {%w0,%w1,%w2,%w2}], {%w3,%w4,%w5,%w5};"
    yield Case("extra.offset.a2d", layered, forma, words([1], [8.5], [8.5], e, -e, e))
    line = Texture((16, 0, 0), channels=4)
    yield Case("extra.offset.1d", line, TEX_1D[:-1] + ", %w1;", words([8.5], e))
    yield Case("extra.offset.1d.vector", line, TEX_1D[:-1] + ", {%w1};", words([8.5], e))
    typed = "{.reg .s32 %e; mov.b32 %e, %w1; " + TEX_1D[:-1] + ", %e;}"
    yield Case("extra.offset.1d.typed", line, typed, words([8.5], e))
    gather = replace(t, gather=True)
    form4 = "tld4.r.2d.v4.f32.f32 {%r0,%r1,%r2,%r3}, [%t, {%w0,%w1}], {%w2,%w3};"
    yield Case(
        "extra.offset.gather", gather, form4, words([8.0], [8.0], np.arange(-40, 40), np.arange(40, -40, -1))
    )
    linear = Texture((64, 0, 0), resource="linear")
    yield Case("extra.offset.buffer", linear, _form(TEX_1D, ctype="s32")[:-1] + ", %w1;", words([8], e))
    residence = base.replace("%r3}", "%r3}|%p")
    x = np.arange(-8, 40) / 2
    yield Case("extra.resident", t, f"{residence};", words(x, [3.5]))
    yield Case("extra.resident.border", bordered, f"{residence};", words(x, [3.5]))
    yield Case(
        "extra.resident.buffer",
        linear,
        _form(TEX_1D, ctype="s32").replace("%r3}", "%r3}|%p"),
        words(np.arange(60, 70)),
    )
    depths = np.arange(-8, 40) / 16
    yield Case("extra.compare", replace(t, channels=1), f"{base}, %w2;", words([3.5], [3.5], depths))
    yield Case(
        "extra.compare.normalised",
        replace(t, channels=1, flags=NORMALIZED),
        f"{base}, %w2;",
        words([0.3], [0.5], depths),
    )
    yield from _queries()


TXQ = SUQ = (
    "width",
    "height",
    "depth",
)  # CUDA's driver has no others: it does not find the kernel, or refuses


def _queries() -> Iterator[Case]:
    kinds: dict[str, Texture] = {
        "1d": Texture((37, 0, 0)),
        "2d": Texture((37, 21, 0), "u8", 4, flags=AS_INTEGER),
        "2dn": Texture((37, 21, 0), "u8", 4, flags=NORMALIZED, filter=LINEAR, address=(WRAP, MIRROR, BORDER)),
        "3d": Texture((37, 21, 9), "f16", 2),
        "a1d": Texture((37, 0, 0), "s16", 2, slices=5, flags=AS_INTEGER),
        "a2d": Texture((37, 21, 0), "u32", 1, slices=5, flags=AS_INTEGER),
        "cube": Texture((32, 32, 0), slices=6, cube=True, flags=NORMALIZED),
        "acube": Texture((32, 32, 0), slices=12, cube=True, flags=NORMALIZED),
        "mip": Texture((37, 21, 0), levels=5, flags=NORMALIZED),
        "linear": Texture((1000, 0, 0), resource="linear"),
        "pitch": Texture((37, 21, 0), "u16", 2, resource="pitch"),
    }
    for name, t in kinds.items():
        for query in TXQ:
            yield Case(f"query.{name}.{query}", t, f"txq.{query}.b32 %r0, [%t];", words([0]), 1)
        form = "".join(f"txq.level.{q}.b32 %r{i}, [%t], %w0;" for i, q in enumerate(TXQ))
        yield Case(f"query.{name}.level", t, form, words(np.arange(-1, 9)), 3)
        if name in ("1d", "2d", "3d", "a1d", "a2d"):
            for query in SUQ:
                yield Case(
                    f"query.surface.{name}.{query}",
                    replace(t, surface=True, flags=0),
                    f"suq.{query}.b32 %r0, [%t];",
                    words([0]),
                    1,
                )
    yield Case("query.istypep", kinds["2d"], "istypep.texref %p, %t;", words([0]), 1)


FAMILIES: dict[str, Any] = {
    f.__name__: f
    for f in (
        *(
            coordinates,
            integers,
            conversions,
            filtering,
            weights,
            layers,
            cubes,
            mips,
            borders,
            gathers,
            extras,
        ),
        *(surfaces, traps),
        *(footprints.gradients, footprints.solids, footprints.anisotropy, footprints.last_bits),
        *(footprints.directions, footprints.faces, footprints.apart),
    )
}


def all_cases() -> Iterator[Case]:
    for family in FAMILIES.values():
        yield from family()
