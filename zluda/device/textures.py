"""Texture and surface handles of one device: the table in its memory that compiled code looks them up in.

The layout is :mod:`zluda.numerics.texture.layout`'s. Whoever makes texture objects, binds references or
initialises samplers maps its handle to a descriptor here; arrays and their contents are the caller's own.
"""

from __future__ import annotations

from dataclasses import field

from zluda.device.base import Device
from zluda.numerics.texture.layout import DESCRIPTOR_BYTES, ROOT_BYTES, Descriptor, HandleTable
from zluda.records import dataclass


@dataclass
class Textures:
    """Descriptors by handle. Nothing is allocated before the first one, or before code asks for the root."""

    device: Device
    _table: HandleTable = field(default_factory=HandleTable)
    _root: int = 0
    _table_at: int = 0

    @property
    def root(self) -> int:
        """Address of the root: what ``__zluda_textures`` holds."""
        if not self._root:
            self._root = self.device.allocate(ROOT_BYTES)
            self._place()
        return self._root

    def descriptor_at(self, handle: int) -> int:
        """The address of a handle's descriptor; 0 where it has none."""
        return self._table.entries.get(handle, 0)

    def set(self, handle: int, descriptor: Descriptor) -> None:
        """Make the handle mean this, in place of what it meant. ValueError for a handle of 0."""
        address = self.descriptor_at(handle) or self.device.allocate(DESCRIPTOR_BYTES)
        self.device.write(address, descriptor.pack())
        self._set(handle, address)

    def remove(self, handle: int) -> None:
        """Forget a handle. Code that uses it afterwards is stopped."""
        address = self.descriptor_at(handle)
        if address:
            self._set(handle, 0)
            self.device.free(address)

    def _set(self, handle: int, address: int) -> None:
        if self._table.full and handle not in self._table.entries:
            self._table = self._table.grown()
            self._table.set(handle, address)
            if self._root:
                self._place()
            return
        offset, entry = self._table.set(handle, address)
        if self._root:
            self.device.write(self._table_at + offset, entry)

    def _place(self) -> None:
        """Put the whole table into new memory, and point the root there."""
        before, self._table_at = self._table_at, self.device.allocate(self._table.size)
        self.device.write(self._table_at, self._table.pack())
        self.device.write(self._root, self._table.root(self._table_at))
        if before:
            self.device.free(before)
