"""The texture and surface descriptor in device memory: written by drivers, read by compiled code.

CUDA's texture and surface objects are opaque 64-bit handles. Code that uses one finds its *descriptor*:

``__zluda_textures`` (module variable, 8 bytes) → *root* → *table* → *descriptor* → texels

* the **root** is two u64: the address of the table, and its capacity (a power of two) less one. It stays
  where it is as long as a device lives, so that a larger table can take the place of a full one;
* the **table** is open-addressed: ``capacity`` pairs of u64 (key, address of a descriptor), the key's
  place being :func:`slot_of`, collisions going to the next slot, round the end. Key 0 is an empty slot; a
  removed entry keeps its key with descriptor 0 (:class:`HandleTable` does all this);
* keys are handles as the program holds them (a recorded handle works as it is), and for ``.texref``,
  ``.surfref`` and ``.samplerref`` variables the variable's own address: that is what the name stands for in
  ``tex [name, …]``, and what ``mov.u64 %rd, name`` gives.

A **descriptor** is :data:`DESCRIPTOR_BYTES`: the fields of :data:`FIELDS`, then :data:`MAX_LEVELS` records
of a mip level, :data:`LEVEL_FIELDS` each. Texels are linear: texel (x, y, z) of a level is ``texel_bytes`` at
``address + z * slice_pitch + y * row_pitch + x * texel_bytes``, channels in order, little endian. ``z``
counts slices of depth (3-D), layers (layered), faces (cube: +x -x +y -y +z -z), or ``6 * layer + face``.

A descriptor serves ``tex``, ``suld`` and ``txq`` alike; a surface is one whose kind is ``Kind.SURFACE`` and
whose sampler fields do not matter. A sampler of its own (independent texture mode) is one whose texels do
not matter.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator, Sequence
from dataclasses import field

from zluda.errors import UnsupportedError
from zluda.records import dataclass

ROOT_BYTES = 16
MAX_LEVELS = 18
"""The full mip chain of the largest array CUDA makes, 131072 texels wide."""


class Kind(enum.IntEnum):
    TEXTURE = 1
    SURFACE = 2
    SAMPLER = 3


class Geometry(enum.IntFlag):
    """What the texels are laid out as: dimensions, and whether z counts layers or faces."""

    D1 = 1
    D2 = 2
    D3 = 3
    LAYERED = 4
    CUBE = 8
    BUFFER = 16
    """1-D over linear memory (``tex1Dfetch``): read by integer coordinates, zero outside."""


class Format(enum.IntEnum):
    """Of one channel; the numbers are ``CUarray_format``'s."""

    UNSIGNED_INT8 = 0x01
    UNSIGNED_INT16 = 0x02
    UNSIGNED_INT32 = 0x03
    SIGNED_INT8 = 0x08
    SIGNED_INT16 = 0x09
    SIGNED_INT32 = 0x0A
    HALF = 0x10
    FLOAT = 0x20

    @property
    def bytes(self) -> int:
        return _FORMAT_BYTES[self]


_FORMAT_BYTES = {
    **dict.fromkeys((Format.UNSIGNED_INT8, Format.SIGNED_INT8), 1),
    **dict.fromkeys((Format.UNSIGNED_INT16, Format.SIGNED_INT16, Format.HALF), 2),
    **dict.fromkeys((Format.UNSIGNED_INT32, Format.SIGNED_INT32, Format.FLOAT), 4),
}

_NORMALIZED_FORMATS = {
    0xC0 + 3 * i + j: (format, 1 << j)
    for i, format in enumerate(
        (Format.UNSIGNED_INT8, Format.UNSIGNED_INT16, Format.SIGNED_INT8, Format.SIGNED_INT16)
    )
    for j in range(3)
}


def channel_format(array_format: int) -> tuple[Format, bool]:
    """``CUarray_format`` → (format of a channel, whether it is always read as a normalised float).

    Raises UnsupportedError for planar, block-compressed and packed 10-bit formats, by number.
    """
    if array_format in _NORMALIZED_FORMATS:
        return _NORMALIZED_FORMATS[array_format][0], True
    try:
        return Format(array_format), False
    except ValueError:
        raise UnsupportedError(f"CUarray_format {array_format:#x}", "array descriptor") from None


class Address(enum.IntEnum):
    """``CUaddress_mode``."""

    WRAP = 0
    CLAMP = 1
    MIRROR = 2
    BORDER = 3


class Filter(enum.IntEnum):
    """``CUfilter_mode``."""

    POINT = 0
    LINEAR = 1


class Flags(enum.IntFlag):
    NORMALIZED_COORDINATES = 1
    """``CU_TRSF_NORMALIZED_COORDINATES``: coordinates are fractions of the size."""
    READ_NORMALIZED = 2
    """8- and 16-bit integers are read as floats in [0, 1] or [-1, 1]: ``CU_TRSF_READ_AS_INTEGER`` not set."""
    SRGB = 4
    """``CU_TRSF_SRGB``."""
    SEAMLESS_CUBE = 8
    """``CU_TRSF_SEAMLESS_CUBEMAP``: filtering crosses from face to face."""
    NO_TRILINEAR_OPTIMIZATION = 16
    """``CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION``."""


_NO_FLAGS = Flags(0)
_UNSIGNED, _FLOAT = "I", "f"

_FIELD_TYPES: tuple[tuple[str, str], ...] = (
    ("kind", _UNSIGNED),
    ("geometry", _UNSIGNED),
    ("format", _UNSIGNED),
    ("channels", _UNSIGNED),  # 1, 2 or 4
    ("texel_bytes", _UNSIGNED),
    ("flags", _UNSIGNED),
    ("address_x", _UNSIGNED),
    ("address_y", _UNSIGNED),
    ("address_z", _UNSIGNED),
    ("filter", _UNSIGNED),
    ("mip_filter", _UNSIGNED),
    ("max_anisotropy", _UNSIGNED),
    ("levels", _UNSIGNED),  # at least 1
    ("layers", _UNSIGNED),  # of a layered one (cubes of a layered cube), else 1
    ("mip_bias", _FLOAT),
    ("min_lod", _FLOAT),
    ("max_lod", _FLOAT),
    ("border_r", _FLOAT),
    ("border_g", _FLOAT),
    ("border_b", _FLOAT),
    ("border_a", _FLOAT),
    ("array_format", _UNSIGNED),  # the CUarray_format that txq and suq are asked about
)
FIELDS: dict[str, int] = {name: 4 * i for i, (name, _) in enumerate(_FIELD_TYPES)}
"""Field to its byte offset; each has 4 bytes."""

_LEVEL_TYPES = (
    ("address", 8),
    ("row_pitch", 8),
    ("slice_pitch", 8),
    ("width", 4),
    ("height", 4),
    ("depth", 4),
)
LEVEL_FIELDS: dict[str, int] = {
    name: sum(size for _, size in _LEVEL_TYPES[:i]) for i, (name, _) in enumerate(_LEVEL_TYPES)
}
"""Field of a level record to its byte offset in the record: three of 8 bytes, then three of 4."""

LEVELS_AT = 96
LEVEL_BYTES = 40
DESCRIPTOR_BYTES = LEVELS_AT + MAX_LEVELS * LEVEL_BYTES

_HEADER = struct.Struct("<" + "".join(code for _, code in _FIELD_TYPES))
_LEVEL = struct.Struct("<QQQIIIxxxx")


@dataclass(frozen=True, slots=True)
class Level:
    """One mip level: where it is, the distance in bytes of rows and of slices, and its size in texels.

    ``depth`` is 1 but for 3-D ones; layers and faces are not counted here.
    """

    address: int
    row_pitch: int
    slice_pitch: int
    width: int
    height: int = 1
    depth: int = 1


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A texture, surface or sampler as compiled code sees it."""

    kind: Kind
    geometry: Geometry
    format: Format
    channels: int
    levels: Sequence[Level]
    layers: int = 1
    flags: Flags = _NO_FLAGS
    address: tuple[Address, Address, Address] = (Address.CLAMP, Address.CLAMP, Address.CLAMP)
    filter: Filter = Filter.POINT
    mip_filter: Filter = Filter.POINT
    max_anisotropy: int = 0
    mip_bias: float = 0.0
    min_lod: float = 0.0
    max_lod: float = 0.0
    border: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    array_format: int = 0

    @property
    def texel_bytes(self) -> int:
        return self.channels * self.format.bytes

    def pack(self) -> bytes:
        """The descriptor's bytes. Raises UnsupportedError where it has more levels than there is room for."""
        if not 1 <= len(self.levels) <= MAX_LEVELS:
            raise UnsupportedError(f"{len(self.levels)} mip levels", "texture descriptor")
        header = _HEADER.pack(
            *(self.kind, self.geometry, self.format, self.channels, self.texel_bytes, self.flags),
            *(
                *self.address,
                self.filter,
                self.mip_filter,
                self.max_anisotropy,
                len(self.levels),
                self.layers,
            ),
            *(self.mip_bias, self.min_lod, self.max_lod, *self.border),
            self.array_format or self.format,
        )
        levels = b"".join(
            _LEVEL.pack(v.address, v.row_pitch, v.slice_pitch, v.width, v.height, v.depth)
            for v in self.levels
        )
        return (header.ljust(LEVELS_AT, b"\0") + levels).ljust(DESCRIPTOR_BYTES, b"\0")


def tight_levels(
    size: tuple[int, int, int], texel_bytes: int, *, levels: int = 1, slices: int = 1, address: int = 0
) -> tuple[list[Level], int]:
    """Levels of an array laid out without gaps, level after level, and the bytes of all.

    ``size`` is (width, height, depth) with 1 for what it has not; ``slices`` are layers, or faces times
    layers: they lie one after the other in each level.
    """
    found: list[Level] = []
    start = address
    for number in range(levels):
        width, height, depth = (max(1, n >> number) for n in size)
        row = width * texel_bytes
        found.append(Level(start, row, row * height, width, height, depth))
        start += row * height * depth * slices
    return found, start - address


HASH_MULTIPLIER = 0x9E3779B97F4A7C15
"""2^64 over the golden ratio: spreads small handles and addresses alike (Knuth 6.4)."""
HASH_SHIFT = 32


def slot_of(key: int, capacity: int) -> int:
    """A key's first slot: bits 32 and up of its product with :data:`HASH_MULTIPLIER`, modulo the capacity."""
    return ((key * HASH_MULTIPLIER & (1 << 64) - 1) >> HASH_SHIFT) & (capacity - 1)


@dataclass(slots=True)
class HandleTable:
    """The table as its owner keeps it: tells which bytes of device memory to write for each change.

    At most half the slots hold keys, so that a search ends; :attr:`full` says that a table of twice the
    capacity is due (:meth:`grown`).
    """

    capacity: int = 1024
    entries: dict[int, int] = field(default_factory=dict)
    _slots: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self._slots = [0] * self.capacity
        for key in self.entries:
            self._slots[self._find(key)] = key

    @property
    def size(self) -> int:
        """Bytes of device memory the table takes."""
        return 16 * self.capacity

    @property
    def full(self) -> bool:
        """Whether no new key should be set."""
        return 2 * (len(self.entries) + 1) > self.capacity

    def grown(self) -> HandleTable:
        """A table with room for more, without the removed entries."""
        live = {key: address for key, address in self.entries.items() if address}
        return HandleTable(2 * self.capacity if 4 * len(live) > self.capacity else self.capacity, live)

    def set(self, key: int, descriptor: int) -> tuple[int, bytes]:
        """Map a key to a descriptor's address (0: remove it): (byte offset in the table, the 16 bytes)."""
        slot = self._find(key)
        self._slots[slot] = key
        self.entries[key] = descriptor
        return 16 * slot, struct.pack("<QQ", key, descriptor)

    def pack(self) -> bytes:
        """The whole table."""
        return b"".join(self._words())

    def root(self, address: int) -> bytes:
        """The root's bytes for this table at an address."""
        return struct.pack("<QQ", address, self.capacity - 1)

    def _words(self) -> Iterator[bytes]:
        for key in self._slots:
            yield struct.pack("<QQ", key, self.entries.get(key, 0))

    def _find(self, key: int) -> int:
        if not 0 < key < 1 << 64:
            raise ValueError(f"texture handle {key:#x}: expected a 64-bit number other than 0")
        slot = slot_of(key, self.capacity)
        while self._slots[slot] not in (0, key):
            slot = (slot + 1) & (self.capacity - 1)
        return slot
