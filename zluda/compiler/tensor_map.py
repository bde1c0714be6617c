"""Tensor maps: the 128 bytes that ``cuTensorMapEncode*`` makes and tensor copies read.

CUDA does not document them. Their layout here is what the driver of an H200 gave for 3,374 maps, and what its
``tensormap.replace`` wrote: a map of a record, or made on any side, is the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from zluda.records import dataclass

MAP_BYTES = 128


@dataclass(frozen=True, slots=True)
class Field:
    """``bits`` bits from bit ``at`` on: the value less ``bias``, without its lowest ``dropped`` bits.

    What stands above them is in ``more`` bits at ``more_at``.
    """

    at: int
    bits: int
    bias: int = 0
    dropped: int = 0
    more_at: int = 0
    more: int = 0


MODE = Field(64, 1)
"""1: im2col."""

FIELDS: dict[str, tuple[Field, ...]] = {
    "global_address": (Field(0, 64),),
    "rank": (Field(68, 3),),
    "elemtype": (Field(71, 4, more_at=80, more=1),),
    "interleave_layout": (Field(75, 2),),
    "swizzle_mode": (Field(77, 2),),
    "fill_mode": (Field(79, 1),),
    "global_stride": tuple(Field(96 + 32 * i, 32, 0, 4, 224 + 4 * i, 4) for i in range(4)),
    "global_dim": tuple(Field(256 + 32 * i, 32, 1) for i in range(5)),
    "element_stride": tuple(Field(416 + 3 * i, 3, 1) for i in range(5)),
    "box_dim": tuple(Field(440 + 8 * i, 8, 1) for i in range(5)),
}
"""By the names of ``tensormap.replace`` (PTX ISA 9.7.9.28); one for each dimension. The rank is one less."""

CHANNELS, PIXELS = FIELDS["box_dim"][0], Field(480, 10, 1)
"""An im2col map's box: elements of a pixel, and pixels."""

_PROMOTION = Field(81, 2)
_TOTAL, _SHARED_ALIGN = Field(512, 32), Field(576, 32)  # bytes of a box, alignment; copies do not read them
_LOWER_AT, _UPPER_AT = 448, 464
CORNER_BITS = {3: (16,), 4: (8, 8), 5: (5, 5, 5)}
"""Bits of an im2col map's corners by its rank, side by side; signed."""

# CUtensorMapDataType → the hardware's number, whether tensor floats are rounded, and bytes of an element.
_TF32 = 1 << 4
ELEMENTS: dict[int, int] = {0: 1, 1: 2, 2: 4, 3: 4, 4: 8, 5: 8, 6: 2, 7: 4, 8: 4, 9: 8, 10: 2}
"""Bytes of an element by the hardware's number of its type (:data:`FIELDS` ``elemtype``)."""
HALF, SINGLE, SINGLE_FLUSHED, DOUBLE, BRAIN = 6, 7, 8, 9, 10
_TYPES = (
    0,
    1,
    2,
    3,
    4,
    5,
    HALF,
    SINGLE,
    DOUBLE,
    BRAIN,
    SINGLE_FLUSHED,
    SINGLE | _TF32,
    SINGLE_FLUSHED | _TF32,
)
REPLACED_TYPES = (*range(11), SINGLE | _TF32, SINGLE_FLUSHED | _TF32)
"""What ``tensormap.replace.elemtype`` writes, by its value; the bit above the type says tensor float."""

_MOST = 228 << 10  # bytes of a box: a multiprocessor's shared memory
_FLOATS = frozenset(range(6, 13))
_SPANS = {1: 32, 2: 64, 3: 128}  # bytes that a swizzle turns about
_ALIGNS = {0: 16, 1: 256, 2: 512, 3: 1024}


class TensorMapError(ValueError):
    """What CUDA refuses to encode; the text says which argument."""


def corner_fields(rank: int) -> tuple[list[Field], list[Field]]:
    """Where an im2col map has its lower and upper corners."""
    fields: tuple[list[Field], list[Field]] = ([], [])
    for found, at in zip(fields, (_LOWER_AT, _UPPER_AT), strict=True):
        for bits in CORNER_BITS[rank]:
            found.append(Field(at, bits))
            at += bits
    return fields


def _signed(size: int) -> int:
    """As CUDA takes it here: 32 bits."""
    return size - (1 << 32) if size >> 31 else size


def _put(word: int, field: Field, value: int) -> int:
    value = (value - field.bias) >> field.dropped
    low, high = value & ((1 << field.bits) - 1), value >> field.bits & ((1 << field.more) - 1)
    return word | low << field.at | high << field.more_at


class Tensor(NamedTuple):
    """What tiled and im2col maps share. Sizes are in elements, strides in bytes, the rest enums of cuda.h."""

    type: int
    address: int
    sizes: Sequence[int]
    strides: Sequence[int]
    steps: Sequence[int]
    interleave: int = 0
    swizzle: int = 0
    promotion: int = 0
    fill: int = 0


def _check(reasons: Mapping[str, bool]) -> None:
    for reason, wrong in reasons.items():
        if wrong:
            raise TensorMapError(reason)


def _check_tensor(t: Tensor, inner: int) -> None:
    """What CUDA asks of every map; ``inner`` are the elements of a box along the first dimension."""
    rank = len(t.sizes)
    _check({"tensorDataType": not 0 <= t.type < len(_TYPES), "tensorRank": not 1 <= rank <= 5})
    unit = 32 if t.interleave == 2 else 16
    span = _SPANS.get(t.swizzle)
    row = inner * ELEMENTS[_TYPES[t.type] & 15]
    _check(
        {
            "globalAddress": t.address % unit != 0,
            "globalDim": any(not 1 <= n <= 1 << 32 for n in t.sizes),
            "globalStrides": any(s % unit or not 0 <= s < 1 << 40 for s in t.strides[: rank - 1]),
            "elementStrides": any(not 1 <= n <= 8 for n in t.steps),
            "interleave": not 0 <= t.interleave <= 2 or (t.interleave != 0 and rank < 3),
            "swizzle": not 0 <= t.swizzle <= 3 or (t.interleave == 2 and t.swizzle != 1),
            "l2Promotion": not 0 <= t.promotion <= 3,
            "oobFill": not 0 <= t.fill <= 1 or (t.fill == 1 and t.type not in _FLOATS),
            "boxDim": t.interleave == 0 and (row % 16 != 0 or (span is not None and row > span)),
        }
    )


def _encode(t: Tensor, total: int) -> int:
    word = 0
    values: dict[str, Sequence[int]] = {
        "global_address": (t.address,),
        "rank": (len(t.sizes) - 1,),
        "elemtype": (_TYPES[t.type],),
        "interleave_layout": (t.interleave,),
        "swizzle_mode": (t.swizzle,),
        "fill_mode": (t.fill,),
        "global_stride": t.strides[: len(t.sizes) - 1],
        "global_dim": t.sizes,
        "element_stride": t.steps,
    }
    for name, numbers in values.items():
        for field, number in zip(FIELDS[name], numbers, strict=False):
            word = _put(word, field, number)
    word = _put(word, _PROMOTION, t.promotion)
    return _put(_put(word, _TOTAL, total), _SHARED_ALIGN, _ALIGNS[t.swizzle])


def encode_tiled(t: Tensor, box: Sequence[int]) -> bytes:
    """``cuTensorMapEncodeTiled``. Raises TensorMapError."""
    _check_tensor(t, box[0])
    _check({"boxDim": any(not 1 <= n <= 256 for n in box)})
    total = ELEMENTS[_TYPES[t.type] & 15]
    for n, step in zip(box, t.steps, strict=True):
        total *= n // step
    _check({"boxDim": total > _MOST})
    word = _encode(t, total)
    for field, n in zip(FIELDS["box_dim"], box, strict=False):
        word = _put(word, field, n)
    return word.to_bytes(MAP_BYTES, "little")


def encode_im2col(t: Tensor, lower: Sequence[int], upper: Sequence[int], channels: int, pixels: int) -> bytes:
    """``cuTensorMapEncodeIm2col``. Raises TensorMapError."""
    rank = len(t.sizes)
    _check({"tensorRank": rank not in CORNER_BITS})
    _check_tensor(t, channels)
    # Interleaved, the slice of channels is no dimension of its own: the width comes first.
    spatial = t.sizes[0 if t.interleave else 1 :]
    _check(
        {
            "pixelBoxCorner": any(
                not -(1 << bits - 1) <= n < 1 << bits - 1
                for corner in (lower, upper)
                for n, bits in zip(corner, CORNER_BITS[rank], strict=True)
            ),
            "pixelBoxUpperCorner": any(
                low >= _signed(size) + high for low, high, size in zip(lower, upper, spatial, strict=False)
            ),
            "channelsPerPixel": not 1 <= channels <= 256,
            "pixelsPerColumn": not 1 <= pixels <= 1024,
        }
    )
    total = channels * pixels * ELEMENTS[_TYPES[t.type] & 15]
    _check({"pixelsPerColumn": total > _MOST})
    word = _put(_encode(t, total), MODE, 1)
    word = _put(_put(word, CHANNELS, channels), PIXELS, pixels)
    for fields, corner in zip(corner_fields(rank), (lower, upper), strict=True):
        for field, n in zip(fields, corner, strict=True):
            word = _put(word, field, n)
    return word.to_bytes(MAP_BYTES, "little")
