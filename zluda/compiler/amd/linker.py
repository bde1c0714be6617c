"""From LLVM's relocatable AMDGPU object to a code object that loads: a small static linker.

It does what ``ld.lld -shared`` does for one object without archives: sections laid out into three segments
(read-only, code, data), relocations applied, a dynamic section with symbols, hash table and relocations, and
``.symtab``/``.strtab``, without which the HIP runtime refuses a code object. A symbol that the object does
not define is either given its address here or left to the loader, as an ``R_AMDGPU_ABS64`` relocation.

Layouts: LLVM "User Guide for AMDGPU Backend", sections "ELF Code Object" and "Relocation Records"; System V
ABI, chapters 4 and 5.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import field

from zluda.compiler.relocatable import HEADER, RELOCATION, SECTION, SYMBOL
from zluda.errors import Error, UnsupportedError
from zluda.records import dataclass

SEGMENT = struct.Struct("<IIQQQQQQ")
DYNAMIC = struct.Struct("<QQ")

_ET_REL, _ET_DYN, _EM_AMDGPU = 1, 3, 224
_PT_LOAD, _PT_DYNAMIC, _PT_NOTE, _PT_PHDR, _PT_GNU_STACK = 1, 2, 4, 6, 0x6474E551
_PROGBITS, _SYMTAB, _STRTAB, _RELA, _HASH, _DYNAMIC_SECTION, _NOTE, _NOBITS, _DYNSYM = (
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    11,
)
_WRITE, _ALLOC, _EXECUTE = 1, 2, 4
_DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_RELA, _DT_RELASZ, _DT_RELAENT, _DT_STRSZ, _DT_SYMENT = (
    4,
    5,
    6,
    7,
    8,
    9,
    10,
    11,
)
_STB_LOCAL, _STB_GLOBAL, _STB_WEAK = 0, 1, 2
_STV_HIDDEN = 2
_SHN_ABS = 0xFFF1
_PAGE = 4096
_WORD = (1 << 64) - 1

ABS64, RELATIVE64 = 3, 13


@dataclass(frozen=True, slots=True)
class Field:
    """How a relocation is computed: from ``pc``, of the ``got`` slot, the ``high`` half, ``size`` bytes."""

    name: str
    size: int
    pc: bool = False
    got: bool = False
    high: bool = False


RELOCATIONS: dict[int, Field] = {
    1: Field("R_AMDGPU_ABS32_LO", 4),
    2: Field("R_AMDGPU_ABS32_HI", 4, high=True),
    3: Field("R_AMDGPU_ABS64", 8),
    4: Field("R_AMDGPU_REL32", 4, pc=True),
    5: Field("R_AMDGPU_REL64", 8, pc=True),
    6: Field("R_AMDGPU_ABS32", 4),
    7: Field("R_AMDGPU_GOTPCREL", 4, pc=True, got=True),
    8: Field("R_AMDGPU_GOTPCREL32_LO", 4, pc=True, got=True),
    9: Field("R_AMDGPU_GOTPCREL32_HI", 4, pc=True, got=True, high=True),
    10: Field("R_AMDGPU_REL32_LO", 4, pc=True),
    11: Field("R_AMDGPU_REL32_HI", 4, pc=True, high=True),
}


@dataclass(slots=True)
class Section:
    """A section: of the object, or made here. ``address`` is set by the layout; ``link`` names another."""

    name: str
    type: int
    flags: int
    data: bytearray
    align: int
    entry: int = 0
    link: str = ""
    info: int = 0
    address: int = -1

    @property
    def segment(self) -> int:
        """0 read-only, 1 code, 2 data: the order of the segments."""
        return 1 if self.flags & _EXECUTE else 2 if self.flags & _WRITE else 0


@dataclass(frozen=True, slots=True)
class Symbol:
    name: str
    info: int
    other: int
    section: int
    value: int
    size: int

    @property
    def exported(self) -> bool:
        return (
            self.info >> 4 in (_STB_GLOBAL, _STB_WEAK)
            and self.other & 3 != _STV_HIDDEN
            and bool(self.section)
        )


@dataclass(slots=True)
class Object:
    """A relocatable object: relocations are (section, offset, type, symbol, addend)."""

    ident: bytes
    flags: int
    sections: list[Section]
    symbols: list[Symbol] = field(default_factory=list)
    relocations: list[tuple[int, int, int, int, int]] = field(default_factory=list)


def _string(table: bytes, at: int) -> str:
    return table[at : table.index(b"\0", at)].decode()


def read_object(data: bytes) -> Object:
    """Raises Error for bytes that are no relocatable AMDGPU object."""
    if len(data) < HEADER.size or data[:4] != b"\x7fELF":
        raise Error("not an ELF object")
    header = HEADER.unpack_from(data)
    if header[1] != _ET_REL or header[2] != _EM_AMDGPU:
        raise Error("not a relocatable AMDGPU object")
    rows = [SECTION.unpack_from(data, header[6] + i * SECTION.size) for i in range(header[12])]
    names = data[rows[header[13]][4] :]

    def contents(row: tuple[int, ...]) -> bytearray:
        return bytearray(row[5]) if row[1] == _NOBITS else bytearray(data[row[4] : row[4] + row[5]])

    sections = [Section(_string(names, r[0]), r[1], r[2], contents(r), max(r[8], 1), r[9]) for r in rows]
    found = Object(header[0], header[7], sections)
    for row, section in zip(rows, sections, strict=True):
        if row[1] == _SYMTAB:
            strings = bytes(sections[row[6]].data)
            found.symbols = [
                Symbol(_string(strings, name), *rest) for name, *rest in SYMBOL.iter_unpack(section.data)
            ]
    for row, section in zip(rows, sections, strict=True):
        if row[1] == _RELA and sections[row[7]].flags & _ALLOC:
            found.relocations += [
                (row[7], offset, info & 0xFFFFFFFF, info >> 32, addend)
                for offset, info, addend in RELOCATION.iter_unpack(section.data)
            ]
    return found


def elf_hash(name: str) -> int:
    """The System V ABI's hash of a symbol name."""
    h = 0
    for c in name.encode():
        h = (h << 4) + c
        top = h & 0xF0000000
        h = (h ^ top >> 24) & ~top & 0xFFFFFFFF
    return h


def hash_table(names: list[str]) -> bytes:
    """``.hash`` of dynamic symbols 1, 2, …"""
    buckets, chain = [0] * max(len(names), 1), [0] * (len(names) + 1)
    for i, name in enumerate(names, 1):
        bucket = elf_hash(name) % len(buckets)
        chain[i], buckets[bucket] = buckets[bucket], i
    words = [len(buckets), len(chain), *buckets, *chain]
    return struct.pack(f"<{len(words)}I", *words)


def link(data: bytes, symbols: Mapping[str, int] | None = None) -> bytes:
    """Link an object; ``symbols`` gives addresses of names that it leaves undefined.

    Raises UnsupportedError for a relocation that LLVM does not write for kernels.
    """
    return _Linker(read_object(data), symbols or {}).link()


class _Linker:
    def __init__(self, source: Object, given: Mapping[str, int]) -> None:
        self.source, self.given = source, given
        self.kept = [s for s in source.sections if s.flags & _ALLOC and s.data]
        used = sorted({symbol for _, _, _, symbol, _ in source.relocations})
        # Undefined symbols that the loader is to resolve; they stand behind the exported ones.
        self.imported = [i for i in used if self._left_to_loader(source.symbols[i])]
        self.exported = [i for i, s in enumerate(source.symbols) if s.exported]
        self.dynamic_index = {s: n for n, s in enumerate([*self.exported, *self.imported], 1)}
        self.got_slots: dict[int, int] = {}
        for _, _, kind, symbol, _ in source.relocations:
            if self._field(kind).got:
                self.got_slots.setdefault(symbol, 8 * len(self.got_slots))
        self.loader_relocations: list[tuple[int, int, int]] = []

    def _field(self, kind: int) -> Field:
        if kind not in RELOCATIONS:
            raise UnsupportedError(f"relocation type {kind} in an AMDGPU object")
        return RELOCATIONS[kind]

    def _left_to_loader(self, symbol: Symbol) -> bool:
        return not symbol.section and bool(symbol.name) and symbol.name not in self.given

    # --- layout ----------------------------------------------------------------------------------------

    def link(self) -> bytes:
        names = [self.source.symbols[i].name for i in self.dynamic_index]
        self.strings = b"\0" + b"".join(n.encode() + b"\0" for n in names)
        count = 1 + len(names)
        words = sum(kind == ABS64 for _, _, kind, _, _ in self.source.relocations) + len(self.got_slots)
        made = {
            ".dynsym": Section(".dynsym", _DYNSYM, _ALLOC, bytearray(24 * count), 8, 24, ".dynstr", 1),
            ".hash": Section(".hash", _HASH, _ALLOC, bytearray(hash_table(names)), 4, 4, ".dynsym"),
            ".dynstr": Section(".dynstr", _STRTAB, _ALLOC, bytearray(self.strings), 1),
            ".rela.dyn": Section(".rela.dyn", _RELA, _ALLOC, bytearray(24 * words), 8, 24, ".dynsym"),
            ".dynamic": Section(
                ".dynamic", _DYNAMIC_SECTION, _ALLOC | _WRITE, bytearray(16 * 9), 8, 16, ".dynstr"
            ),
            ".got": Section(".got", _PROGBITS, _ALLOC | _WRITE, bytearray(8 * len(self.got_slots)), 8),
        }
        self.got = made[".got"]
        notes = [s for s in self.kept if s.type == _NOTE]
        rest = [s for s in self.kept if s.type != _NOTE]
        self.sections = [s for s in [*notes, *made.values(), *rest] if s.data]
        self.sections.sort(key=lambda s: (s.segment, s.type == _NOBITS))
        self.bounds = list(self._place())
        self._relocate()
        self._fill_dynamic(made)
        return self._write(notes)

    def _place(self) -> Iterator[tuple[int, int, int]]:
        """Give every section its address, which is its file offset too; (start, file end, end) a segment."""
        position = HEADER.size + SEGMENT.size * 7
        for segment in range(3):
            start = file_end = 0 if segment == 0 else -(-position // _PAGE) * _PAGE
            position = max(position, start)
            file_end = position
            for section in (s for s in self.sections if s.segment == segment):
                position = -(-position // section.align) * section.align
                section.address = position
                position += len(section.data)
                if section.type != _NOBITS:
                    file_end = position
            yield start, file_end, position

    # --- relocation ------------------------------------------------------------------------------------

    def _address(self, index: int) -> int:
        """A symbol's address; 0 for one left to the loader."""
        symbol = self.source.symbols[index]
        if not symbol.section:
            return self.given.get(symbol.name, 0)
        if symbol.section == _SHN_ABS:
            return symbol.value
        return self.source.sections[symbol.section].address + symbol.value

    def _word(self, place: int, symbol: int, addend: int) -> int:
        """A 64-bit address at ``place``: what the file holds, with what is left for the loader to do."""
        value = (self._address(symbol) + addend) & _WORD
        if symbol in self.imported:
            self.loader_relocations.append((place, self.dynamic_index[symbol] << 32 | ABS64, addend))
        elif self.source.symbols[symbol].section:
            self.loader_relocations.append((place, RELATIVE64, value))
        return value

    def _relocate(self) -> None:
        for symbol, slot in self.got_slots.items():
            struct.pack_into("<Q", self.got.data, slot, self._word(self.got.address + slot, symbol, 0))
        for section_index, offset, kind, symbol, addend in self.source.relocations:
            section, how = self.source.sections[section_index], self._field(kind)
            place = section.address + offset
            if kind == ABS64:
                value = self._word(place, symbol, addend)
            else:
                if symbol in self.imported and not how.got:
                    name = self.source.symbols[symbol].name
                    raise UnsupportedError(f"{how.name} against {name}, which has no address at link time")
                target = self.got.address + self.got_slots[symbol] if how.got else self._address(symbol)
                value = target + addend - (place if how.pc else 0)
            value = value >> 32 if how.high else value
            struct.pack_into(
                "<Q" if how.size == 8 else "<I", section.data, offset, value & (1 << 8 * how.size) - 1
            )

    # --- tables ----------------------------------------------------------------------------------------

    def _fill_dynamic(self, made: Mapping[str, Section]) -> None:
        rows, name = [bytes(SYMBOL.size)], 1
        for index in self.dynamic_index:
            symbol = self.source.symbols[index]
            section = self._section_index(symbol)
            rows.append(
                SYMBOL.pack(name, symbol.info, symbol.other, section, self._address(index), symbol.size)
            )
            name += len(symbol.name.encode()) + 1
        made[".dynsym"].data[:] = b"".join(rows)
        relocations = b"".join(RELOCATION.pack(*r) for r in self.loader_relocations)
        made[".rela.dyn"].data[: len(relocations)] = relocations
        entries = [
            (_DT_SYMTAB, made[".dynsym"].address),
            (_DT_SYMENT, SYMBOL.size),
            (_DT_STRTAB, made[".dynstr"].address),
            (_DT_STRSZ, len(self.strings)),
            (_DT_HASH, made[".hash"].address),
        ]
        if relocations:
            entries += [
                (_DT_RELA, made[".rela.dyn"].address),
                (_DT_RELASZ, len(relocations)),
                (_DT_RELAENT, RELOCATION.size),
            ]
        self.dynamic = made[".dynamic"]
        packed = b"".join(DYNAMIC.pack(*e) for e in entries)
        self.dynamic.data[: len(packed)] = packed

    def _section_index(self, symbol: Symbol) -> int:
        if not symbol.section or symbol.section == _SHN_ABS:
            return symbol.section
        return 1 + self.sections.index(self.source.sections[symbol.section])

    # --- the file --------------------------------------------------------------------------------------

    def _write(self, notes: list[Section]) -> bytes:
        out = bytearray(self.bounds[2][1])
        for section in self.sections:
            if section.type != _NOBITS:
                out[section.address : section.address + len(section.data)] = section.data
        table = next(s for s in self.sections if s.name == ".dynsym").data
        extra = [
            Section(".symtab", _SYMTAB, 0, bytearray(table), 8, 24, ".strtab", 1),
            Section(".strtab", _STRTAB, 0, bytearray(self.strings), 1),
            Section(".shstrtab", _STRTAB, 0, bytearray(), 1),
        ]
        every = [*self.sections, *extra]
        names = b"\0"
        name_at: list[int] = []
        for section in every:
            name_at.append(len(names))
            names += section.name.encode() + b"\0"
        extra[-1].data[:] = names
        for section in extra:
            out += bytes(-len(out) % section.align)
            section.address = len(out)
            out += section.data
        out += bytes(-len(out) % 8)
        section_headers = len(out)
        index = {s.name: i for i, s in enumerate(every, 1)}
        rows = [bytes(SECTION.size)]
        for section, name in zip(every, name_at, strict=True):
            address = section.address if section.flags & _ALLOC else 0
            link = index.get(section.link, 0)
            rows.append(
                SECTION.pack(
                    name, section.type, section.flags, address, section.address, len(section.data),
                    link, section.info, section.align, section.entry,
                )
            )  # fmt: skip
        out += b"".join(rows)
        segments = b"".join(SEGMENT.pack(*s) for s in self._segments(notes))
        out[HEADER.size : HEADER.size + len(segments)] = segments
        out[: HEADER.size] = HEADER.pack(
            self.source.ident, _ET_DYN, _EM_AMDGPU, 1, 0, HEADER.size, section_headers, self.source.flags,
            HEADER.size, SEGMENT.size, 7, SECTION.size, len(every) + 1, len(every),
        )  # fmt: skip
        return bytes(out)

    def _segments(self, notes: list[Section]) -> Iterator[tuple[int, ...]]:
        table = SEGMENT.size * 7
        yield _PT_PHDR, 4, HEADER.size, HEADER.size, HEADER.size, table, table, 8
        for flags, (start, file_end, end) in zip((4, 5, 6), self.bounds, strict=True):
            yield _PT_LOAD, flags, start, start, start, file_end - start, end - start, _PAGE
        size = len(self.dynamic.data)
        at = self.dynamic.address
        yield _PT_DYNAMIC, 6, at, at, at, size, size, 8
        yield _PT_GNU_STACK, 6, 0, 0, 0, 0, 0, 0
        if notes:
            at, size = notes[0].address, notes[-1].address + len(notes[-1].data) - notes[0].address
        yield (_PT_NOTE, 4, at, at, at, size, size, 4) if notes else (0, 0, 0, 0, 0, 0, 0, 0)
