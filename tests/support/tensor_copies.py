"""Tensor copies as CUDA's manual has them, element by element in Python: what compiled code is held to.

``case`` says how a map was encoded: ``type`` (CUtensorMapDataType), ``dims``, ``strides`` (bytes), ``steps``,
``swizzle``, ``fill``, ``interleave`` where there is any; ``box``, or ``lower``, ``upper``, ``channels`` and
``pixels``. An H200 agrees, in every case of its recording.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

SIZES = (1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4)
TENSOR_FLOAT = (11, 12)  # CUtensorMapDataType


def filler(case: dict[str, Any]) -> bytes:
    """An element that lies outside of the tensor."""
    size = SIZES[case["type"]]
    return (0x7FF7.to_bytes(2, "little") * 4)[:size] if case["fill"] else bytes(size)


def loaded(case: dict[str, Any], element: bytes) -> bytes:
    """An element as a load delivers it: tensor floats are rounded to nearest, ties away from zero."""
    if case["type"] not in TENSOR_FLOAT:
        return element
    bits = int.from_bytes(element, "little")
    if bits & 0x7FFFFFFF > 0x7F800000:
        return 0x7FFFE000.to_bytes(4, "little")
    return (bits + 0x1000 & 0xFFFFE000).to_bytes(4, "little")


def swizzled(offset: int, mode: int) -> int:
    """Where a byte of a box lies: 16-byte chunks exclusive or bits of the row of 128 bytes."""
    bits = (1 << mode) - 1
    return offset ^ (offset >> 7 & bits) << 4


def elements(
    case: dict[str, Any], at: Sequence[int], offsets: Sequence[int] = ()
) -> Iterator[tuple[int, int | None]]:
    """(offset in shared memory, byte offset in the tensor or None outside) of each element of a box."""
    size = SIZES[case["type"]]
    if case.get("interleave"):
        yield from _interleaved(case, at, offsets, size)
        return
    steps = [1, *case["steps"][1:]]
    if "box" in case:
        counts = [-(-n // s) for n, s in zip(case["box"], steps, strict=True)]
        places = (
            [c + k * s for c, k, s in zip(at, reversed(index), steps, strict=False)]
            for index in itertools.product(*map(range, reversed(counts)))
        )
        row = counts[0]
    else:
        places = _pixels(case, at, offsets, steps)
        row = case["channels"]
    for n, place in enumerate(places):
        inside = all(0 <= p < d for p, d in zip(place, case["dims"], strict=True))
        byte = place[0] * size + sum(p * s for p, s in zip(place[1:], case["strides"], strict=False))
        pitch = (16 << case["swizzle"]) if case["swizzle"] else row * size
        yield swizzled(n // row * pitch + n % row * size, case["swizzle"]), byte if inside else None


def _interleaved(
    case: dict[str, Any], at: Sequence[int], offsets: Sequence[int], size: int
) -> Iterator[tuple[int, int | None]]:
    """Slices of channels, 16 or 32 bytes, are what the map's first dimension counts."""
    piece, rank = 16 * case["interleave"], len(case["dims"])
    if "box" in case:
        counts = [-(-n // s) for n, s in zip(case["box"], [1, *case["steps"][1:]], strict=True)]
        counts[rank - 2] = 1  # one slice
        steps = [1, *case["steps"][1:]]
        places = [
            [c + k * s for c, k, s in zip(at, reversed(index), steps, strict=False)]
            for index in itertools.product(*map(range, reversed(counts)))
        ]
    else:  # as with a dimension in front, and the slice's apart
        space = {**case, "dims": [1, *case["dims"][:-2], case["dims"][-1]], "channels": 1}
        steps = [1, *case["steps"][: rank - 2], case["steps"][-1]]
        found = _pixels(space, [0, *at[: rank - 2], at[rank - 1]], offsets, steps)
        places = [[*place[1:-1], at[rank - 2], place[-1]] for place in found]
    for n, place in enumerate(places):
        inside = all(0 <= p < d for p, d in zip(place, case["dims"], strict=True))
        start = place[0] * piece + sum(p * s for p, s in zip(place[1:], case["strides"], strict=True))
        for k in range(0, piece, size):
            yield swizzled(n * piece + k, case["swizzle"]), start + k if inside else None


def _pixels(
    case: dict[str, Any], at: Sequence[int], offsets: Sequence[int], steps: Sequence[int]
) -> Iterator[list[int]]:
    rank = len(case["dims"])
    low = case["lower"]
    high = [d - 1 + u for d, u in zip(case["dims"][1:-1], case["upper"], strict=True)]
    pixel = list(at[1 : rank - 1])
    image = at[rank - 1]
    for _ in range(case["pixels"]):
        for c in range(case["channels"]):
            yield [at[0] + c, *(p + o for p, o in zip(pixel, offsets, strict=False)), image]
        for axis in range(rank - 2):
            pixel[axis] += steps[1 + axis]
            if pixel[axis] <= high[axis]:
                break
            pixel[axis] = low[axis]
        else:
            image += steps[rank - 1]
