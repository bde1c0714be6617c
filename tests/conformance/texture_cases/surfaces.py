"""The cases of surfaces: loads, stores and reductions, and the accesses that end a context."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from texture_cases.spec import SPECIAL, Case, Texture, index, random_bits, words


def surfaces() -> Iterator[Case]:
    """Loads, stores and reductions; in range and out, by each clamp mode but trap."""
    flat = Texture((16, 4, 0), "u32", 1, index, surface=True)
    x = np.arange(-80, 160, 4)
    for clamp in ("clamp", "zero"):
        form = f"suld.b.2d.b32.{clamp} %r0, [%t, {{%w0,%w1}}];"
        for y in (-3, 2, 7):
            yield Case(f"surface.load.2d.{clamp}.{y}", flat, form, words(x, [y]), 1)
        form = f"suld.b.1d.b32.{clamp} %r0, [%t, {{%w0}}];"
        far = np.concatenate([x, [1 << 20, -(1 << 20), (1 << 31) - 4, -(1 << 31)]])
        yield Case(f"surface.load.1d.{clamp}", replace(flat, size=(16, 0, 0)), form, words(far), 1)
        grid = np.array(list(itertools.product((-4, 0, 60, 64), (-1, 2, 4), (-1, 1, 2, 3)))).T
        solid = replace(flat, size=(16, 4, 3))
        form = f"suld.b.3d.b32.{clamp} %r0, [%t, {{%w0,%w1,%w2,%w2}}];"
        yield Case(f"surface.load.3d.{clamp}", solid, form, words(*grid), 1)
        layered = replace(flat, slices=3)
        form = f"suld.b.a2d.b32.{clamp} %r0, [%t, {{%w0,%w1,%w2,%w2}}];"
        yield Case(f"surface.load.a2d.{clamp}", layered, form, words(grid[2], grid[0], grid[1]), 1)
        form = f"suld.b.a1d.b32.{clamp} %r0, [%t, {{%w0,%w1}}];"
        line = replace(flat, size=(16, 0, 0), slices=3)
        yield Case(f"surface.load.a1d.{clamp}", line, form, words(grid[2], grid[0]), 1)
        if clamp == "zero":
            yield Case(
                "surface.size.zero.edge",
                replace(flat, format="u8", channels=1),
                "suld.b.2d.b32.zero %r0, [%t, {%w0,%w1}];",
                words([8, 12, 16, -4], [1]),
                1,
            )
        for channels, form in (
            (2, "suld.b.2d.b64.{c} %r0, [%t, {{%w0,%w1}}];"),
            (4, "suld.b.2d.v2.b64.{c} {{%r0,%r2}}, [%t, {{%w0,%w1}}];"),
        ):
            wide = replace(flat, channels=channels)
            places = words(np.arange(-2, 19) * 4 * channels, [1])
            yield Case(f"surface.wide.{clamp}.{channels}", wide, form.format(c=clamp), places, channels, 64)
        # Sizes other than the texel's, places that no texel begins at.
        for bits, vec in itertools.product((8, 16, 32, 64), ("", "v2", "v4")):
            width = {8: 16, 16: 16, 32: 32, 64: 64}[bits]
            n = {"": 1, "v2": 2, "v4": 4}[vec]
            if n * bits > 32:
                continue
            regs = (
                "%r0"
                if n == 1
                else "{" + ",".join(f"%r{i * (2 if width == 64 else 1)}" for i in range(n)) + "}"
            )
            form = f"suld.b.2d.{vec + '.' if vec else ''}b{bits}.{clamp} {regs}, [%t, {{%w0,%w1}}];"
            byte = n * bits // 8
            yield Case(
                f"surface.size.{clamp}.b{bits}{vec}",
                replace(flat, format="u8", channels=4),
                form,
                words(np.arange(-16, 80, byte), [1]),
                4,
                width,
            )
    random = np.random.RandomState(10).randint(0, 1 << 32, 16, dtype=np.uint64)
    for clamp in ("clamp", "zero"):
        form = f"sust.b.2d.b32.{clamp} [%t, {{%w0,%w1}}], %w2;"
        yield Case(f"surface.store.2d.{clamp}", flat, form, words(np.arange(-16, 80, 16), [2], random[:6]), 0)
        form = f"sust.b.2d.v2.b32.{clamp} [%t, {{%w0,%w1}}], {{%w2,%w3}};"
        wide = replace(flat, channels=2)
        yield Case(
            f"surface.store.v2.{clamp}",
            wide,
            form,
            words(np.arange(-16, 144, 16), [2], random[:10], random[:10]),
            0,
        )
        for op, type in itertools.product(("add", "min", "max", "and", "or"), ("u32", "s32", "b32", "u64")):
            wide64 = type.endswith("64")
            if (type[0] == "b") != (op in ("and", "or")) or (wide64 and op != "add"):
                continue
            t = replace(flat, data=random_bits(12), channels=1 + wide64)
            value = "%w2"
            if wide64:
                pair = "{.reg .b64 %v; mov.b64 %v, {%w2, %w3};"
                form = f"{pair} sured.b.{op}.2d.{type}.{clamp} [%t, {{%w0,%w1}}], %v;}}"
            else:
                form = f"sured.b.{op}.2d.{type}.{clamp} [%t, {{%w0,%w1}}], {value};"
            size = 8 if wide64 else 4
            places = words(np.arange(-2, 18) * size, [1], np.resize(random, 20), np.resize(random[::-1], 20))
            yield Case(f"surface.reduce.{op}.{type}.{clamp}", t, form, places, 0)
    form = "sured.p.add.2d.b32.clamp [%t, {%w0,%w1}], %w2;"
    yield Case("surface.reduce.p", flat, form, words(np.arange(0, 16), [1], np.arange(100, 116)), 0)
    yield from _formatted()


def _formatted() -> Iterator[Case]:
    """``sust.p``: values converted to the surface's format."""
    known = [-2, -1, -0.7, -1 / 254, 0, 1e-9, 0.25, 0.5, 0.6, 1, 1.5, 300, 7e4, 1e10, 5e9, -5e9]
    drawn = np.random.RandomState(13).uniform(-1.1, 1.1, 100)
    floats = np.concatenate([np.concatenate([known, drawn]).astype(np.float32), SPECIAL[:12]])
    integers = np.array(
        [
            0,
            1,
            -1,
            127,
            128,
            255,
            256,
            -128,
            -129,
            32767,
            32768,
            65535,
            65536,
            -32769,
            (1 << 31) - 1,
            -(1 << 31),
        ]
    )
    for format in ("u8", "s8", "u16", "s16", "u32", "s32", "f16", "f32"):
        for channels in (1, 4):
            for type, data in (("floats", floats), ("integers", integers)):
                t = Texture(
                    (len(data), 1, 0), format, channels, lambda t, level: index(t, level) + 7, surface=True
                )
                form = "sust.p.2d.v4.b32.clamp [%t, {%w0,%w1}], {%w2,%w3,%w4,%w5};"
                cols = words(np.arange(len(data)), [0], data, data[::-1], np.roll(data, 3), np.roll(data, 5))
                yield Case(f"surface.formatted.{format}x{channels}.{type}", t, form, cols, 0)
    t = Texture((8, 1, 0), "u8", 4, lambda t, level: index(t, level) + 7, surface=True)
    yield Case(
        "surface.formatted.scalar",
        t,
        "sust.p.2d.b32.clamp [%t, {%w0,%w1}], %w2;",
        words(np.arange(8), [0], np.arange(90, 98)),
        0,
    )
    form = "sust.p.2d.v2.b32.zero [%t, {%w0,%w1}], {%w2,%w3};"
    yield Case(
        "surface.formatted.v2.zero",
        t,
        form,
        words(np.arange(-2, 10), [0], np.arange(90, 102), np.arange(20, 32)),
        0,
    )


def traps() -> Iterator[Case]:
    """Accesses that end the context: each is run in a process of its own."""
    flat = Texture((16, 4, 0), "u32", 1, index, surface=True)
    load = "suld.b.2d.b32.trap %r0, [%t, {%w0,%w1}];"
    yield Case("trap.load.inside", flat, load, words(np.arange(0, 64, 4), [1]), 1)
    yield Case("trap.load.outside", flat, load, words([64], [1]), 1)
    yield Case("trap.load.misaligned.trap", flat, load, words([2], [1]), 1)
    for clamp in ("clamp", "zero"):
        yield Case(
            f"trap.load.misaligned.{clamp}", flat, load.replace("trap", clamp), words([2, 5, 7], [1]), 1
        )
    yield Case(
        "trap.store.outside", flat, "sust.b.2d.b32.trap [%t, {%w0,%w1}], %w2;", words([64], [1], [7]), 0
    )
    yield Case(
        "trap.layer",
        replace(flat, slices=3),
        "suld.b.a2d.b32.trap %r0, [%t, {%w0,%w1,%w2,%w2}];",
        words([3], [0], [1]),
        1,
    )
