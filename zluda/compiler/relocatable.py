"""Relocatable ELF objects put together into one, as ``ld -r`` does: a kernel, and functions compiled apart.

Sections stay apart, each with its relocations; undefined symbols of one object become those of that name that
another defines. Of the objects behind the first only what is loaded is kept. Host objects and AMD's alike
(System V ABI, chapter 4).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from zluda.errors import Error
from zluda.records import dataclass

HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
RELOCATION = struct.Struct("<QQq")

ET_REL = 1
SHT_NULL, SHT_SYMTAB, SHT_STRTAB, SHT_RELA, SHT_NOTE, SHT_NOBITS, SHT_GROUP = 0, 2, 3, 4, 7, 8, 17
_SHT_LLVM_ADDRSIG = 0x6FFF4C03  # numbers of symbols, which change
SHF_ALLOC = 2
STB_LOCAL = 0
SHN_ABS = 0xFFF1
NONE: Mapping[str, bytes] = MappingProxyType({})
_REWRITTEN = frozenset((SHT_NULL, SHT_SYMTAB, SHT_STRTAB, SHT_RELA, SHT_GROUP, _SHT_LLVM_ADDRSIG))


@dataclass(slots=True)
class _Section:
    """A section of the result."""

    name: str
    type: int
    flags: int
    data: bytes
    size: int
    align: int
    entry: int = 0
    link: int = 0
    info: int = 0


class _Input:
    """An object that is read; ``sections`` maps its sections that are kept to their place in the result."""

    def __init__(self, data: bytes) -> None:
        if len(data) < HEADER.size or data[:4] != b"\x7fELF":
            raise Error("not an ELF object")
        self.data, self.header = data, HEADER.unpack_from(data)
        if self.header[1] != ET_REL:
            raise Error("not a relocatable object")
        self.rows = [
            SECTION.unpack_from(data, self.header[6] + i * SECTION.size) for i in range(self.header[12])
        ]
        self._names = self.contents(self.header[13])
        self.sections: dict[int, int] = {}
        self.symbols: dict[int, int] = {}  # number here → number in the result

    def contents(self, index: int) -> bytes:
        _, kind, _, _, offset, size, *_ = self.rows[index]
        return b"" if kind == SHT_NOBITS else self.data[offset : offset + size]

    def name(self, index: int) -> str:
        return _text(self._names, self.rows[index][0])

    def symbol_rows(self) -> Iterator[tuple[int, str, int, int, int, int, int]]:
        """(number, name, info, other, section, value, size) of each symbol."""
        for i, row in enumerate(self.rows):
            if row[1] == SHT_SYMTAB:
                strings = self.contents(row[6])
                for number, (name, *rest) in enumerate(SYMBOL.iter_unpack(self.contents(i))):
                    info, other, section, value, size = rest
                    yield number, _text(strings, name), info, other, section, value, size


def _text(table: bytes, at: int) -> str:
    return table[at : table.index(b"\0", at)].decode()


def merge(
    first: bytes,
    others: Sequence[bytes],
    changed: Mapping[str, bytes] = NONE,
    *,
    local: frozenset[str] = frozenset(),
) -> bytes:
    """One relocatable object of several for one machine.

    ``changed`` holds sections of the first by name; global symbols in ``local`` are local ones from now on.
    Raises Error for bytes that are none, and for a name that two of them define.
    """
    inputs = [_Input(first), *map(_Input, others)]
    result: list[_Section] = []
    for number, source in enumerate(inputs):
        for index, row in enumerate(source.rows):
            _, kind, flags, _, _, size, _, info, align, entry = row
            loaded = flags & SHF_ALLOC and kind != SHT_NOTE
            if kind not in _REWRITTEN and (loaded or number == 0):
                data, name = source.contents(index), source.name(index)
                if number == 0 and name in changed:
                    data = changed[name]
                    size = len(data)
                result.append(_Section(name, kind, flags, data, size, align, entry, 0, info))
                source.sections[index] = len(result)
    symbols, strings, first_global = _symbol_table(inputs, local)
    symbol_table = len(result) + 1
    result.append(
        _Section(
            ".symtab", SHT_SYMTAB, 0, symbols, len(symbols), 8, SYMBOL.size, symbol_table + 1, first_global
        )
    )
    result.append(_Section(".strtab", SHT_STRTAB, 0, strings, len(strings), 1))
    result += [s for source in inputs for s in _relocations(source, symbol_table)]
    return _written(inputs[0].header, result)


def _symbol_table(inputs: Sequence[_Input], hidden: frozenset[str]) -> tuple[bytes, bytes, int]:
    """(``.symtab``, ``.strtab``, the first global symbol's number)."""
    local: list[tuple[str, int, int, int, int, int]] = [("", 0, 0, 0, 0, 0)]
    found: dict[str, tuple[str, int, int, int, int, int]] = {}
    users: list[tuple[_Input, int, str]] = []
    for source in inputs:
        for number, name, info, other, section, value, size in source.symbol_rows():
            place = section if section == SHN_ABS else source.sections.get(section, 0)
            row = (name, info, other, place, value, size)
            if info >> 4 != STB_LOCAL:
                users.append((source, number, name))
                if name in found and place and found[name][3]:
                    raise Error(f"two objects define {name}")
                if name not in found or place:
                    found[name] = row
            elif place and (place != SHN_ABS or source is inputs[0]):
                source.symbols[number] = len(local)
                local.append(row)
    numbers: dict[str, int] = {}
    for name in [n for n in found if n in hidden]:
        _, info, other, place, value, size = found.pop(name)
        numbers[name] = len(local)
        local.append((name, info & 15, other, place, value, size))
    numbers |= {name: len(local) + i for i, name in enumerate(found)}
    for source, number, name in users:
        source.symbols[number] = numbers[name]
    strings, rows = bytearray(b"\0"), []
    for name, info, other, place, value, size in (*local, *found.values()):
        rows.append(SYMBOL.pack(len(strings) if name else 0, info, other, place, value, size))
        if name:
            strings += name.encode() + b"\0"
    return b"".join(rows), bytes(strings), len(local)


def _relocations(source: _Input, symbol_table: int) -> Iterator[_Section]:
    for index, row in enumerate(source.rows):
        if row[1] == SHT_RELA and row[7] in source.sections:
            data = b"".join(
                RELOCATION.pack(offset, source.symbols[info >> 32] << 32 | info & 0xFFFFFFFF, addend)
                for offset, info, addend in RELOCATION.iter_unpack(source.contents(index))
            )
            yield _Section(
                source.name(index),
                SHT_RELA,
                row[2],
                data,
                len(data),
                8,
                RELOCATION.size,
                symbol_table,
                source.sections[row[7]],
            )


def _written(header: tuple[int, ...], sections: list[_Section]) -> bytes:
    names, name_at = bytearray(b"\0"), []
    for each in (*(s.name for s in sections), ".shstrtab"):
        name_at.append(len(names))
        names += each.encode() + b"\0"
    sections = [*sections, _Section(".shstrtab", SHT_STRTAB, 0, bytes(names), len(names), 1)]
    out, rows = bytearray(HEADER.size), [bytes(SECTION.size)]
    for section, name in zip(sections, name_at, strict=True):
        out += bytes(-len(out) % max(section.align, 1))
        kind, flags = section.type, section.flags
        tail = (section.link, section.info, section.align, section.entry)
        rows.append(SECTION.pack(name, kind, flags, 0, len(out), section.size, *tail))
        out += section.data
    out += bytes(-len(out) % 8)
    table = len(out)
    fields = list(header)
    fields[6], fields[12], fields[13] = table, len(rows), len(rows) - 1
    out[: HEADER.size] = HEADER.pack(*fields)
    return bytes(out + b"".join(rows))
