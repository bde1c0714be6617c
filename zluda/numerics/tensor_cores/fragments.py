"""Which lane holds which element: the fragments of ``mma``, ``wmma`` and ``wgmma`` (PTX ISA 9.7.14, 9.7.15).

A *fragment* is a tuple of 32 tuples, one a lane, of the places its elements have in the matrix, in register
order, low bits first. A place is ``(line, k)``: of A the row, of B the column, so that a result element at
(row, column) is the product of two lines. Of C and D it is ``(row, column)``. Several independent products in
one warp (``m8n8k4``) have lines of their own.

``g`` is the lane's group of four, ``t`` its place in the group, ``i`` the element.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

WARP = 32
Place = tuple[int, int]
Fragment = tuple[tuple[Place, ...], ...]


def _fragment(count: int, place: Callable[[int, int, int], Place], distinct: int = 0) -> Fragment:
    """``count`` elements a lane; where only ``distinct`` differ they repeat."""
    distinct = distinct or count
    return tuple(
        tuple(place(lane // 4, lane % 4, i % distinct) for i in range(count)) for lane in range(WARP)
    )


# --- mma ---------------------------------------------------------------------------------------------


@functools.cache
def mma_a(rows: int, k: int, packed: int) -> Fragment:
    """A of every ``mma`` but m8n8k4 of f16: ``packed`` elements a register, which alternate between rows."""
    halves = rows // 8

    def place(g: int, t: int, i: int) -> Place:
        register, e = divmod(i, packed)
        return g + 8 * (register % halves), 4 * packed * (register // halves) + packed * t + e

    return _fragment(rows * k // WARP, place)


@functools.cache
def mma_b(k: int, packed: int) -> Fragment:
    """B of every ``mma`` but m8n8k4 of f16."""
    return _fragment(8 * k // WARP, lambda g, t, i: (g, 4 * packed * (i // packed) + packed * t + i % packed))


@functools.cache
def mma_c(rows: int) -> Fragment:
    """C and D of every ``mma`` but m8n8k4 of f16."""
    return _fragment(rows // 4, lambda g, t, i: (g + 8 * (i // 2), 2 * t + i % 2))


# m8n8k4 of f16: four products a warp, each of a pair of groups of four lanes. at is a lane's place in its
# group, h is 4 in the upper half of the warp.
_QUAD_PLACES: dict[str, tuple[int, Callable[[int, int, int], Place]]] = {
    "row": (4, lambda at, h, i: (at + h, i)),
    "col": (4, lambda at, h, i: (i + h, at)),
    "f16": (8, lambda at, h, i: (at + h, i)),
    "f32": (8, lambda at, h, i: ((at & 1) + (i & 2) + h, (i & 4) + (at & 2) + (i & 1))),
}


@functools.cache
def _quads(kind: str, *, result: bool) -> Fragment:
    count, place = _QUAD_PLACES[kind]

    def lane_places(lane: int) -> tuple[Place, ...]:
        product = 8 * (lane % 16 // 4)
        places = [place(lane % 4, 4 * (lane // 16), i) for i in range(count)]
        return tuple((line + product, at + product * result) for line, at in places)

    return tuple(lane_places(lane) for lane in range(WARP))


def quad_a(layout: str) -> Fragment:
    """A of ``mma.m8n8k4`` of f16, by rows or columns."""
    return _quads(layout, result=False)


def quad_b(layout: str) -> Fragment:
    """B of ``mma.m8n8k4`` of f16."""
    return _quads("row" if layout == "col" else "col", result=False)


def quad_c(type_name: str) -> Fragment:
    """C or D of ``mma.m8n8k4`` of f16, whose place depends on its type."""
    return _quads(type_name, result=True)


# --- wmma --------------------------------------------------------------------------------------------

_HALVES_A: dict[int, Callable[[int, int, int], Place]] = {
    8: lambda g, t, i: (g, 2 * t + i % 2 + 8 * (i // 2 % 2)),
    16: lambda g, t, i: (g + 8 * (i // 2 % 2), 2 * t + i % 2 + 8 * (i // 4)),
    32: lambda g, t, i: (g + 8 * (i // 2 % 2) + 16 * (i // 8), 2 * t + i % 2 + 8 * (i // 4 % 2)),
}
_HALVES_B = _HALVES_A | {16: lambda g, t, i: (g + 8 * (i // 4), 2 * t + i % 2 + 8 * (i // 2 % 2))}
_RESULTS: dict[tuple[int, int], Callable[[int, int, int], Place]] = {
    (16, 16): lambda g, t, i: (g + 8 * (i // 2 % 2), 2 * t + i % 2 + 8 * (i // 4)),
    (32, 8): lambda g, t, i: (g + 8 * (i // 2 % 2) + 16 * (i // 4), 2 * t + i % 2),
    (8, 32): lambda g, t, i: (2 * t + i % 2, g + 8 * (i // 2)),
    (8, 8): lambda g, t, i: (g, 2 * t + i),
}


@functools.cache
def wmma_operand(letter: str, lines: int, k: int, type_name: str) -> Fragment:
    """A (``letter`` a) or B of ``lines`` rows or columns."""
    distinct = lines * k // WARP
    if type_name in ("f16", "bf16"):
        place = (_HALVES_A if letter == "a" else _HALVES_B)[lines]
        return _fragment(16 if type_name == "f16" else distinct, place, distinct)
    if type_name == "tf32":
        if letter == "a":
            return _fragment(4, lambda g, t, i: (g + 8 * (i % 2), t + 4 * (i // 2)))
        return _fragment(4, lambda g, t, i: (g + 8 * (i // 2), t + 4 * (i % 2)))
    # Integers fill one register a line, b1 and f64 have one element a lane.
    packed = {"s8": 4, "u8": 4, "s4": 8, "u4": 8}.get(type_name, k // 4)
    return _fragment(distinct, lambda g, t, i: (g + 8 * (i // packed), packed * t + i % packed))


@functools.cache
def wmma_result(m: int, n: int) -> Fragment:
    """C or D."""
    return _fragment(m * n // WARP, _RESULTS[m, n])


# --- metadata of sparse A ----------------------------------------------------------------------------


def metadata_place(kind: str, k: int, half: int, chunk: int, selector: int) -> tuple[int, int]:
    """Where the 4 bits of a chunk of row ``g + 8 * half`` are: (lane of the group, lowest bit).

    ``kind`` is the element type's width: ``"4"``, ``"8"``, ``"16"``, ``"32"``; ``k`` the shape's K.
    """
    if kind == "4":  # chunks are twice as long
        kind, k = "8", k // 2
    wide = {"8": 64, "16": 32, "32": 16}[kind]
    if kind == "8":
        if k == wide:
            return half + 2 * (chunk // 8), 4 * (chunk % 8)
        return 2 * selector + half, 4 * chunk
    if k == wide:
        return 2 * selector + chunk // 4, 16 * half + 4 * (chunk % 4)
    return selector, 16 * half + 4 * chunk
