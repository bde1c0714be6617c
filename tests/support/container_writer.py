"""Writes fatbins and ELF files, so that tests need no binaries: the measured layouts, from the other side."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import lz4.block
import zstandard


@dataclass(frozen=True)
class Entry:
    """One fatbin entry to write; ``compression`` is ``""``, ``"zstd"`` or ``"lz4"``."""

    payload: bytes
    arch: int
    kind: int = 1
    version: tuple[int, int] = (8, 3)
    compression: str = ""
    options: str = ""
    name: str = ""
    flags: int = 0x11


def fatbin(*entries: Entry) -> bytes:
    body = b"".join(map(_entry, entries))
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def _entry(entry: Entry) -> bytes:
    flags, packed = entry.flags, entry.payload
    if entry.compression == "zstd":
        flags, packed = flags | 0x8000, zstandard.ZstdCompressor().compress(entry.payload)
    elif entry.compression == "lz4":
        flags, packed = flags | 0x2000, lz4.block.compress(entry.payload, store_size=False)
    name = entry.name.encode() + b"\0" if entry.name else b""
    name_at = 64
    options = entry.options.encode() + b"\0" if entry.options else b""
    options_at = _padded(64 + len(name)) if options else 0
    extra = name.ljust(_padded(len(name)), b"\0")
    if options:
        extra += struct.pack("<II", options_at + 8, len(options)) + options.ljust(
            _padded(len(options)), b"\0"
        )
    stored = packed.ljust(_padded(len(packed)), b"\0")
    header = struct.pack(
        "<HHIQIIHHIIIQQQ",
        entry.kind,
        0x0101,
        64 + len(extra),
        len(stored),
        len(packed) if entry.compression else 0,
        options_at,
        entry.version[1],
        entry.version[0],
        entry.arch,
        name_at if name else 0,
        len(name),
        flags,
        0,
        len(entry.payload) if entry.compression else 0,
    )
    return header + extra + stored


def _padded(size: int) -> int:
    return -(-size // 8) * 8


def elf(sections: dict[str, bytes], *, machine: int = 62) -> bytes:
    """A 64-bit little-endian ELF file with these sections."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name in [*sections, ".shstrtab"])
    data, headers = b"", [bytes(64)]
    for name, content in [*sections.items(), (".shstrtab", names)]:
        at = names.index(b"\0" + name.encode() + b"\0") + 1
        headers.append(struct.pack("<IIQQQQIIQQ", at, 1, 0, 0, 64 + len(data), len(content), 0, 0, 8, 0))
        data += content.ljust(_padded(len(content)), b"\0")
    head = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 2, machine, 1, 0, 0, 64 + len(data), 0, 64, 0, 0, 64,
        len(headers), len(headers) - 1,
    )  # fmt: skip
    return head + data + b"".join(headers)
