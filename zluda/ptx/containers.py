"""Where PTX travels: plain text, fatbins, and ELF files (cubins, executables, libraries).

The layouts are not documented by NVIDIA; they were measured on files that nvcc 13.0 wrote. A fatbin is a
header (magic 0xBA55ED50, version, header size, payload size) and entries, each a 64-byte header, optional
name and options blocks, and a payload that may be compressed (LZ4 block or Zstandard frame).
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable, Iterator

from zluda.errors import PtxError
from zluda.ptx import elf
from zluda.ptx.elf import Buffer
from zluda.ptx.parse import decode
from zluda.records import dataclass

FATBIN_MAGIC = 0xBA55ED50
WRAPPER_MAGIC = 0x466243B1
"""Magic of the wrapper that points to a fatbin in memory (section ``.nvFatBinSegment``)."""

KIND_PTX, KIND_ELF, KIND_LTO = 1, 2, 8
FLAG_64BIT, FLAG_DEBUG, FLAG_LINUX = 0x1, 0x2, 0x10
FLAG_LZ4, FLAG_ZSTD = 0x2000, 0x8000
FLAG_ARCH_SPECIFIC, FLAG_FAMILY = 0x100000, 0x200000

_KIND_NAMES = {KIND_PTX: "compute", KIND_ELF: "sm", KIND_LTO: "lto"}

MAX_DECOMPRESSED = 1 << 28
"""Largest payload in bytes that is decompressed: what a file can ask for."""

_FATBIN_HEADER = struct.Struct("<IHHQ")
_ENTRY_HEADER = struct.Struct("<HHIQI I HHI II QQQ".replace(" ", ""))
_FATBIN_SECTIONS = (".nv_fatbin", "__nv_relfatbin")


class Container(enum.Enum):
    """What a block of bytes is."""

    PTX = "PTX text"
    FATBIN = "fatbin"
    CUBIN = "cubin"
    ELF = "ELF file"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class FatbinEntry:
    """One entry of a fatbin.

    ``kind`` is KIND_PTX, KIND_ELF or KIND_LTO; ``arch`` the SM number (90); ``version`` the
    ``.version`` of PTX as (major, minor); ``options`` the ptxas options it was made with; ``name``
    the source file, if written; ``start`` and ``stop`` where the payload lies in ``data``, and
    ``size`` its size in bytes after decompression.
    """

    kind: int
    arch: int
    version: tuple[int, int]
    flags: int
    options: str
    name: str
    data: Buffer
    start: int
    stop: int
    size: int

    @property
    def stored(self) -> bytes:
        """The payload as it lies in the file: a copy."""
        return bytes(self.data[self.start : self.stop])

    @property
    def compressed(self) -> bool:
        """Whether ``stored`` must be decompressed."""
        return bool(self.flags & (FLAG_LZ4 | FLAG_ZSTD))

    @property
    def portable(self) -> bool:
        """False for arch- or family-specific code (``sm_90a``, ``sm_100f``)."""
        return not self.flags & (FLAG_ARCH_SPECIFIC | FLAG_FAMILY)

    @property
    def architecture(self) -> str:
        """As CUDA's tools write it: ``compute_90`` of PTX, ``sm_90a`` of machine code, ``lto_90``."""
        suffix = "a" if self.flags & FLAG_ARCH_SPECIFIC else "f" if self.flags & FLAG_FAMILY else ""
        return f"{_KIND_NAMES.get(self.kind, f'kind-{self.kind}')}_{self.arch}{suffix}"

    def payload(self) -> bytes:
        """The payload, decompressed; raises :class:`PtxError` when it is corrupt or too large."""
        if self.size > MAX_DECOMPRESSED:
            raise PtxError(f"fatbin entry claims {self.size} bytes; at most {MAX_DECOMPRESSED} are accepted")
        if self.flags & FLAG_ZSTD:
            return _unzstd(self.stored, self.size)
        if self.flags & FLAG_LZ4:
            return _unlz4(self.stored, self.size)
        return self.stored


@dataclass(frozen=True, slots=True)
class PtxImage:
    """PTX found in a container: its text, the SM number it targets, its ``.version`` and its options.

    ``portable`` is false for arch- or family-specific code (``sm_90a``, ``sm_100f``).
    """

    text: str
    arch: int
    ptx_version: tuple[int, int]
    options: str
    portable: bool = True


def identify(data: Buffer) -> Container:
    """What the bytes are, by their first ones."""
    if data[:4] == elf.MAGIC:
        machine = struct.unpack_from("<H", data, 18)[0] if len(data) >= 20 else 0
        return Container.CUBIN if machine == elf.EM_CUDA else Container.ELF
    if len(data) >= 4 and struct.unpack_from("<I", data)[0] == FATBIN_MAGIC:
        return Container.FATBIN
    if b".version" in data[:65536] and b"\0" not in data[:64]:
        return Container.PTX
    return Container.UNKNOWN


def fatbin_size(data: Buffer, offset: int = 0) -> int:
    """The whole size in bytes of the fatbin at ``offset``; raises :class:`PtxError` when there is none."""
    if len(data) - offset < _FATBIN_HEADER.size:
        raise PtxError(f"fatbin truncated at byte {offset}: {len(data) - offset} of 16 header bytes")
    magic, _, header_size, payload = _FATBIN_HEADER.unpack_from(data, offset)
    if magic != FATBIN_MAGIC:
        raise PtxError(f"no fatbin at byte {offset}: magic {magic:#x}, expected {FATBIN_MAGIC:#x}")
    if header_size < _FATBIN_HEADER.size:
        raise PtxError(f"fatbin at byte {offset}: header size {header_size}")
    return int(header_size) + int(payload)


def fatbin_entries(data: Buffer, offset: int = 0) -> Iterator[FatbinEntry]:
    """The entries of the fatbin at ``offset``; raises :class:`PtxError` when it is truncated or corrupt."""
    size = fatbin_size(data, offset)
    if offset + size > len(data):
        raise PtxError(f"fatbin truncated at byte {offset}: {len(data) - offset} of {size} bytes")
    end = offset + size
    position = offset + int(struct.unpack_from("<H", data, offset + 6)[0])
    while position + _ENTRY_HEADER.size <= end:
        entry, position = _entry(data, position, end)
        yield entry
    if any(data[position:end]):
        raise PtxError(f"fatbin corrupt at byte {position}: {end - position} bytes after the last entry")


def _entry(data: Buffer, at: int, end: int) -> tuple[FatbinEntry, int]:
    kind, _, header, stored, packed, options_at, minor, major, arch, name_at, name_size, flags, _, size = (
        _ENTRY_HEADER.unpack_from(data, at)
    )
    if header < _ENTRY_HEADER.size or at + header + stored > end:
        raise PtxError(f"fatbin corrupt at byte {at}: entry of {header} + {stored} bytes in {end - at}")
    if packed > stored:
        raise PtxError(f"fatbin corrupt at byte {at}: {packed} compressed bytes in {stored}")
    start = at + header
    options = ""
    if options_at and options_at + 8 <= header:
        text_at, text_size = struct.unpack_from("<II", data, at + options_at)
        options = _text(data, at, header, text_at, text_size)
    entry = FatbinEntry(
        kind,
        arch,
        (major, minor),
        flags,
        options,
        _text(data, at, header, name_at, name_size),
        data,
        start,
        start + (packed or stored),
        size if flags & (FLAG_LZ4 | FLAG_ZSTD) else packed or stored,
    )
    return entry, at + header + stored


def _text(data: Buffer, at: int, header: int, offset: int, size: int) -> str:
    if not size or offset + size > header:
        return ""
    return data[at + offset : at + offset + size].rstrip(b"\0").decode("utf-8", "replace").strip()


def _unzstd(stored: bytes, size: int) -> bytes:
    import zstandard

    try:
        with zstandard.ZstdDecompressor().stream_reader(stored) as reader:
            data = reader.read(size + 1)
    except zstandard.ZstdError as error:
        raise PtxError(f"fatbin entry: Zstandard data corrupt: {error}") from None
    return _checked(data, size)


def _unlz4(stored: bytes, size: int) -> bytes:
    import lz4.block

    try:
        data = lz4.block.decompress(stored, uncompressed_size=size)
    except lz4.block.LZ4BlockError as error:
        raise PtxError(f"fatbin entry: LZ4 data corrupt: {error}") from None
    return _checked(data, size)


def _checked(data: bytes, size: int) -> bytes:
    if len(data) != size:
        raise PtxError(f"fatbin entry: decompressed to {len(data)} bytes, its header says {size}")
    return data


# --- ELF -------------------------------------------------------------------------------------------


def fatbins_in_elf(data: Buffer) -> Iterator[bytes]:
    """Each fatbin of an executable, library or object file, in the order of the file."""
    for start, stop in fatbin_sections(data):
        yield from (bytes(data[first:last]) for first, last in fatbin_spans(data, start, stop))


def fatbin_sections(data: Buffer) -> list[tuple[int, int]]:
    """Where the sections of an ELF file lie in which CUDA's tools put fatbins: (start, stop)."""
    found = (one for one in elf.sections_with_bytes(data) if one.name in _FATBIN_SECTIONS)
    return [(one.offset, one.offset + one.size) for one in found]


def fatbin_spans(data: Buffer, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Where each fatbin lies in a section: (start, stop). Raises :class:`PtxError` for a damaged one."""
    magic = struct.pack("<I", FATBIN_MAGIC)
    at = data.find(magic, start, stop)
    while at >= 0:
        end = at + fatbin_size(data, at)
        if end > stop:
            raise PtxError(f"fatbin truncated at byte {at}: {stop - at} of {end - at} bytes in its section")
        yield at, end
        at = data.find(magic, end, stop)


# --- PTX -------------------------------------------------------------------------------------------


def entries_of(data: bytes) -> list[FatbinEntry]:
    """All fatbin entries of a fatbin or ELF file; empty for PTX text and cubins."""
    kind = identify(data)
    if kind is Container.FATBIN:
        return list(fatbin_entries(data))
    if kind is Container.ELF:
        return [entry for fatbin in fatbins_in_elf(data) for entry in fatbin_entries(fatbin)]
    return []


def ptx_from(data: bytes) -> list[PtxImage]:
    """All PTX in the bytes, decompressed; empty where there is machine code only.

    Raises :class:`PtxError` for truncated or corrupt containers, and for bytes that are no container at all.
    """
    kind = identify(data)
    if kind is Container.PTX:
        return [_image_of_text(decode(data))]
    if kind is Container.UNKNOWN:
        raise PtxError(f"neither PTX text, fatbin nor ELF: begins with {data[:8].hex(' ') or 'nothing'}")
    return [_image(entry) for entry in entries_of(data) if entry.kind == KIND_PTX]


def _image(entry: FatbinEntry) -> PtxImage:
    return PtxImage(decode(entry.payload()), entry.arch, entry.version, entry.options, entry.portable)


def best_entry(entries: Iterable[FatbinEntry], compute_capability: int) -> FatbinEntry | None:
    """The PTX among entries that a device is given, as :func:`best_ptx` says; nothing is decompressed."""
    usable = [
        one
        for one in entries
        if one.kind == KIND_PTX
        and (one.arch <= compute_capability if one.portable else one.arch == compute_capability)
    ]
    return max(usable, key=lambda one: (one.arch, one.portable, one.version), default=None)


def _image_of_text(text: str) -> PtxImage:
    from zluda.ptx.parse import parse_module

    module = parse_module(text)
    target = module.target[0] if module.target else ""
    digits = "".join(c for c in target if c.isdigit())
    return PtxImage(text, int(digits or 0), module.version, "", not target.endswith(("a", "f")))


def best_ptx(data: bytes, compute_capability: int) -> PtxImage | None:
    """The PTX a device of this compute capability (90 for 9.0) would be given; None when there is none.

    That is the newest architecture not above the device's, as the driver chooses; code specific to one
    architecture (``sm_90a``) only on that one. PTX text is taken whatever it targets.
    """
    if identify(data) in (Container.PTX, Container.UNKNOWN):
        return ptx_from(data)[0]
    best = best_entry(entries_of(data), compute_capability)
    return None if best is None else _image(best)


def best_cubin(data: bytes, compute_capability: int) -> bytes | None:
    """The machine code a device of this compute capability (90 for 9.0) would run; None when there is none.

    That is the newest of its major architecture not above it; code specific to one architecture (``sm_90a``)
    only on that one. Raises :class:`PtxError` for a corrupt container.
    """
    if identify(data) is Container.CUBIN:
        return data
    usable = [
        entry
        for entry in entries_of(data)
        if entry.kind == KIND_ELF
        and entry.arch // 10 == compute_capability // 10
        and entry.arch <= compute_capability
        and (entry.arch == compute_capability or not entry.flags & FLAG_ARCH_SPECIFIC)
    ]
    best = max(usable, key=lambda entry: (entry.arch, entry.flags & FLAG_ARCH_SPECIFIC), default=None)
    return None if best is None else best.payload()
