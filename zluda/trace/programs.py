"""What is known of a program from its file, before it runs."""

from __future__ import annotations

import struct
from pathlib import Path

_MAGIC64 = b"\x7fELF\x02\x01"
_MAGIC32 = b"\x7fELF\x01"
_PT_INTERP = 3
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")  # System V ABI, "ELF Header"


def seen_by(pid: int, path: str) -> str:
    """A file, as that process names it, by a name that is good here."""
    return f"/proc/{pid}/root{path}" if path.startswith("/") else f"/proc/{pid}/cwd/{path}"


def loads_libraries(executable: str | Path) -> bool:
    """Whether a program has a dynamic loader and 64 bits, and so can load libcuda; True where that cannot be
    told.

    Of a 64-bit little-endian ELF file: whether it has a PT_INTERP program header.
    """
    try:
        with open(executable, "rb") as file:
            header = file.read(_HEADER.size)
            if header.startswith(_MAGIC32):
                return False
            if len(header) < _HEADER.size or not header.startswith(_MAGIC64):
                return True
            fields = _HEADER.unpack(header)
            offset, size, count = fields[5], fields[9], fields[10]
            file.seek(offset)
            table = file.read(size * count)
    except OSError:
        return True
    kinds = [struct.unpack_from("<I", table, at)[0] for at in range(0, len(table) - 3, max(size, 4))]
    return _PT_INTERP in kinds
