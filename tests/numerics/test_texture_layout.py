"""The descriptor and the handle table that compiled code reads."""

import struct

import pytest

from zluda.errors import UnsupportedError
from zluda.numerics.texture.layout import (
    DESCRIPTOR_BYTES,
    FIELDS,
    LEVEL_BYTES,
    LEVEL_FIELDS,
    LEVELS_AT,
    Address,
    Descriptor,
    Filter,
    Format,
    Geometry,
    HandleTable,
    Kind,
    channel_format,
    slot_of,
    tight_levels,
)


def _u32(data: bytes, name: str) -> int:
    return int(struct.unpack_from("<I", data, FIELDS[name])[0])


def test_fields_stand_at_their_offsets() -> None:
    levels, size = tight_levels((8, 4, 1), 4, levels=3, slices=2, address=0x1000)
    data = Descriptor(
        *(Kind.TEXTURE, Geometry.D2 | Geometry.LAYERED, Format.HALF, 2, levels),
        layers=2,
        address=(Address.WRAP, Address.MIRROR, Address.BORDER),
        filter=Filter.LINEAR,
        border=(0.0, 0.0, 0.0, 2.5),
    ).pack()
    assert len(data) == DESCRIPTOR_BYTES
    assert size == 2 * 4 * (32 + 8 + 2)
    assert [_u32(data, n) for n in ("format", "channels", "texel_bytes", "levels")] == [0x10, 2, 4, 3]
    assert [_u32(data, n) for n in ("address_x", "address_y", "address_z", "filter")] == [0, 2, 3, 1]
    assert _u32(data, "array_format") == 0x10
    assert struct.unpack_from("<f", data, FIELDS["border_a"]) == (2.5,)
    second = LEVELS_AT + LEVEL_BYTES
    assert struct.unpack_from("<Q", data, second + LEVEL_FIELDS["address"]) == (0x1000 + 256,)
    assert struct.unpack_from("<III", data, second + LEVEL_FIELDS["width"]) == (4, 2, 1)
    assert max(FIELDS.values()) < LEVELS_AT


def test_normalised_and_unknown_formats() -> None:
    assert channel_format(0x02) == (Format.UNSIGNED_INT16, False)
    assert channel_format(0xC2) == (Format.UNSIGNED_INT8, True)
    assert channel_format(0xCA) == (Format.SIGNED_INT16, True)
    with pytest.raises(UnsupportedError, match="0x91"):
        channel_format(0x91)


def _look_up(data: bytes, key: int) -> int:
    """As compiled code does it."""
    capacity = len(data) // 16
    slot = slot_of(key, capacity)
    while True:
        found, descriptor = struct.unpack_from("<QQ", data, 16 * slot)
        if found in (0, key):
            return int(descriptor)
        slot = (slot + 1) % capacity


def test_every_handle_is_found_through_growth_and_removal() -> None:
    table = HandleTable(16)
    keys = [*range(1, 40), *(0x7F00_0000_0000 + 8 * i for i in range(40)), (1 << 64) - 1]
    for key in keys:
        if table.full:
            table = table.grown()
        offset, entry = table.set(key, key * 3 & 0xFFFF_FFFF | 1)
        assert table.pack()[offset : offset + 16] == entry
    for key in keys[::3]:
        table.set(key, 0)
    data = table.pack()
    assert [_look_up(data, k) for k in keys] == [
        0 if i % 3 == 0 else k * 3 & 0xFFFF_FFFF | 1 for i, k in enumerate(keys)
    ]
    assert _look_up(data, 12345) == 0
    assert table.capacity == 256
    assert table.root(0x500) == struct.pack("<QQ", 0x500, 255)


def test_zero_is_no_handle() -> None:
    with pytest.raises(ValueError, match="expected a 64-bit number"):
        HandleTable().set(0, 1)
