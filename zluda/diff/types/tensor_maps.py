"""What a tensor map says of its tensor: the elements' type (``CUtensorMapDataType``), and its pitches."""

from __future__ import annotations

from zluda.compiler.tensor_map import ELEMENTS, FIELDS, MAP_BYTES, Field

__all__ = ["MAP_BYTES", "element_of", "pitches_of"]

# By the hardware's numbers, which the first ten of cuda.h's are too; the rest are f32 as well.
_NAMES = ("u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f32", "f64", "bf16")


def element_of(data: bytes) -> str:
    """``f16``; empty for what no map has."""
    word = int.from_bytes(data[:MAP_BYTES], "little")
    (field,) = FIELDS["elemtype"]
    number = word >> field.at & ((1 << field.bits) - 1)
    return _NAMES[number] if number in ELEMENTS else ""


def pitches_of(data: bytes) -> tuple[int, ...]:
    """Bytes from row to row, from plane to plane and so on."""
    word = int.from_bytes(data[:MAP_BYTES], "little")
    (rank,) = FIELDS["rank"]
    dimensions = word >> rank.at & ((1 << rank.bits) - 1)  # one less than there are
    return tuple(_value(word, field) for field in FIELDS["global_stride"][:dimensions])


def _value(word: int, field: Field) -> int:
    low = word >> field.at & ((1 << field.bits) - 1)
    high = word >> field.more_at & ((1 << field.more) - 1)
    return (low | high << field.bits) << field.dropped
