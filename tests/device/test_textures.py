"""The handle table in a device's memory."""

import struct

from zluda.device.cpu import CpuDevice
from zluda.device.textures import Textures
from zluda.numerics.texture.layout import DESCRIPTOR_BYTES, Descriptor, Format, Geometry, Kind, Level, slot_of


def _descriptor(width: int) -> Descriptor:
    return Descriptor(
        Kind.TEXTURE, Geometry.D1, Format.FLOAT, 1, [Level(0x1000, 4 * width, 4 * width, width)]
    )


def _look_up(device: CpuDevice, root: int, handle: int) -> int:
    table, mask = struct.unpack("<QQ", device.read(root, 16))
    slot = slot_of(handle, mask + 1)
    while True:
        key, descriptor = struct.unpack("<QQ", device.read(table + 16 * slot, 16))
        if key in (0, handle):
            return int(descriptor)
        slot = (slot + 1) & mask


def test_handles_are_found_in_memory_before_and_after_the_table_grows() -> None:
    device = CpuDevice()
    textures = Textures(device)
    textures.set(7, _descriptor(7))
    root = textures.root
    handles = [7, *range(0x100001, 0x100001 + 1100)]  # more than the first table has room for
    for handle in handles[1:]:
        textures.set(handle, _descriptor(handle & 0xFFF))
    assert textures.root == root
    for handle in handles:
        at = _look_up(device, root, handle)
        assert device.read(at, DESCRIPTOR_BYTES) == _descriptor(handle & 0xFFF).pack()


def test_a_handle_may_mean_something_else_or_nothing_later() -> None:
    device = CpuDevice()
    textures = Textures(device)
    root = textures.root
    textures.set(5, _descriptor(1))
    textures.set(5, _descriptor(2))
    assert device.read(_look_up(device, root, 5), DESCRIPTOR_BYTES) == _descriptor(2).pack()
    textures.remove(5)
    assert _look_up(device, root, 5) == 0
    textures.remove(5)
    assert _look_up(device, root, 6) == 0
