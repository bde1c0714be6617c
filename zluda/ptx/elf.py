"""What is read from 64-bit little-endian ELF files: sections, and the variables of NVIDIA machine code.

Layouts are those of the System V ABI (chapters Sections and Symbol Table). In which sections a cubin keeps
the variables of a module was measured on files that nvcc 13.0 wrote: ``.nv.global`` (zeros),
``.nv.global.init`` and ``.nv.constant3`` (``__constant__``).
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from zluda.errors import PtxError

Buffer: TypeAlias = bytes | mmap.mmap
"""A file's bytes: in memory, or mapped so that only what is looked at is read."""

MAGIC = b"\x7fELF"
EM_CUDA = 190

_SHT_SYMTAB, _SHT_DYNAMIC, _SHT_NOBITS, _SHT_DYNSYM = 2, 6, 8, 11
_DT_NEEDED = 1
_DYNAMIC = struct.Struct("<QQ")  # tag, value
_PARAMETERS = ".nv.constant0."  # the section of a kernel's parameters, which device functions lack
_STT_OBJECT = 1
_SECTION = struct.Struct("<IIQQQQII16x")  # name, type, flags, address, offset, size, link, info
_SYMBOL = struct.Struct("<IBBHQQ")  # name, info, other, section, value, size
_VARIABLE_SECTIONS = (".nv.global", ".nv.constant3")


class Section(NamedTuple):
    """One section: where its bytes lie in the file, and the index of the section that it refers to."""

    name: str
    type: int
    offset: int
    size: int
    link: int


def sections(data: Buffer) -> list[Section]:
    """The section table, the empty first one included, so that an index in it is an index here.

    Raises :class:`PtxError` where it, or the bytes of a section, lie outside the file.
    """
    if data[4:6] != b"\x02\x01" or len(data) < 64:
        raise PtxError("ELF file is truncated or not 64-bit little-endian")
    table = struct.unpack_from("<Q", data, 40)[0]
    entry_size, count, names = struct.unpack_from("<HHH", data, 58)
    if not count:
        return []
    if entry_size < _SECTION.size or names >= count or table + entry_size * count > len(data):
        raise PtxError(f"ELF file truncated: section table at byte {table} lies outside {len(data)} bytes")
    headers = [_SECTION.unpack_from(data, table + i * entry_size) for i in range(count)]
    strings = data[headers[names][4] : headers[names][4] + headers[names][5]]
    found = [
        Section(_string(strings, name), kind, offset, size, link)
        for name, kind, _, _, offset, size, link, _ in headers
    ]
    for section in found:
        if section.type != _SHT_NOBITS and section.offset + section.size > len(data):
            end = section.offset + section.size
            raise PtxError(f"ELF file truncated: section {section.name} ends at byte {end} of {len(data)}")
    return found


def sections_with_bytes(data: Buffer) -> Iterator[Section]:
    """The sections that have bytes in the file; raises as :func:`sections`."""
    return (one for one in sections(data) if one.type != _SHT_NOBITS and one.size)


def cubin_variables(data: bytes) -> list[str]:
    """Names of the variables in global and constant memory of a cubin, in the order of its symbol table.

    Of any binding: nvcc makes those of a whole program local, and the driver finds them all the same. Raises
    :class:`PtxError` where the file is damaged.
    """
    table = sections(data)
    names: list[str] = []
    for symbols in table:
        if symbols.type != _SHT_SYMTAB:
            continue
        if symbols.link >= len(table) or symbols.size % _SYMBOL.size:
            raise PtxError(f"ELF file corrupt: symbol table {symbols.name}")
        strings = table[symbols.link]
        text = data[strings.offset : strings.offset + strings.size]
        content = data[symbols.offset : symbols.offset + symbols.size]
        for name, info, _, section, _, size in _SYMBOL.iter_unpack(content):
            defined = info & 0xF == _STT_OBJECT and size and section < len(table)
            if defined and table[section].name.startswith(_VARIABLE_SECTIONS):
                names.append(_string(text, name))
    return names


def cubin_kernels(data: Buffer) -> list[str]:
    """Names of the kernels of a cubin; raises :class:`PtxError` where the file is damaged."""
    names = (one.name for one in sections(data))
    return [name.removeprefix(_PARAMETERS) for name in names if name.startswith(_PARAMETERS)]


def imported_symbols(data: Buffer) -> list[str]:
    """Names that an executable or library wants of others, without versions; raises as :func:`sections`."""
    table, names = sections(data), []
    for symbols in table:
        if symbols.type == _SHT_DYNSYM:
            text = _linked_strings(data, table, symbols)
            content = data[symbols.offset : symbols.offset + symbols.size // _SYMBOL.size * _SYMBOL.size]
            names += [_string(text, row[0]) for row in _SYMBOL.iter_unpack(content) if row[3] == 0]
    return [name for name in names if name]


def needed_libraries(data: Buffer) -> list[str]:
    """The libraries that an executable or library is linked with (``DT_NEEDED``); raises as
    :func:`sections`.
    """
    table, names = sections(data), []
    for dynamic in table:
        if dynamic.type == _SHT_DYNAMIC:
            text = _linked_strings(data, table, dynamic)
            end = dynamic.offset + dynamic.size // _DYNAMIC.size * _DYNAMIC.size
            rows = _DYNAMIC.iter_unpack(data[dynamic.offset : end])
            names += [_string(text, value) for tag, value in rows if tag == _DT_NEEDED]
    return names


def _linked_strings(data: Buffer, table: list[Section], section: Section) -> bytes:
    """The strings that a section refers to."""
    if section.link >= len(table):
        raise PtxError(f"ELF file corrupt: {section.name} refers to section {section.link} of {len(table)}")
    strings = table[section.link]
    return bytes(data[strings.offset : strings.offset + strings.size])


def _string(table: bytes, at: int) -> str:
    end = table.find(b"\0", at)
    return table[at : end if end >= 0 else len(table)].decode("utf-8", "replace")
