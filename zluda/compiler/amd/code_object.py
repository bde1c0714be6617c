"""AMD code objects: ELF, kernel descriptors, metadata, symbols; loading them at an address.

Layouts: LLVM "User Guide for AMDGPU Backend", sections "ELF Code Object", "Code Object V3 Kernel Descriptor"
and "Code Object V3 Metadata".
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator
from dataclasses import field
from typing import Any

from zluda.compiler.amd.targets import Target, target_of_machine
from zluda.errors import Error, UnsupportedError
from zluda.records import dataclass

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_DESCRIPTOR = struct.Struct("<III4xq20xIIIHH4x")

_ET_DYN, _EM_AMDGPU = 3, 224
_PT_LOAD, _PT_DYNAMIC, _PT_NOTE = 1, 2, 4
_SHT_SYMTAB, _SHT_DYNSYM = 2, 11
_DT_RELA, _DT_RELASZ = 7, 8
_NT_AMDGPU_METADATA = 32
_R_AMDGPU_ABS64, _R_AMDGPU_RELATIVE64 = 3, 13
STT_OBJECT, STT_FUNC = 1, 2


@dataclass(frozen=True, slots=True)
class Symbol:
    """A defined symbol: address relative to the load address, size in bytes, ELF symbol type."""

    name: str
    address: int
    size: int
    type: int


# KERNEL_CODE_PROPERTY bits, in the order in which their user SGPRs are laid out.
USER_SGPRS = (
    ("private_segment_buffer", 0, 4),
    ("dispatch_ptr", 1, 2),
    ("queue_ptr", 2, 2),
    ("kernarg_segment_ptr", 3, 2),
    ("dispatch_id", 4, 2),
    ("flat_scratch_init", 5, 2),
    ("private_segment_size", 6, 1),
)


@dataclass(frozen=True, slots=True)
class KernelDescriptor:
    """The 64 bytes that the command processor reads. Sizes in bytes; ``entry`` relative to the descriptor."""

    lds_bytes: int
    private_bytes: int
    kernarg_bytes: int
    entry: int
    rsrc3: int
    rsrc1: int
    rsrc2: int
    properties: int
    kernarg_preload: int

    @property
    def user_sgpr_count(self) -> int:
        return self.rsrc2 >> 1 & 31

    @property
    def user_sgprs(self) -> tuple[tuple[str, int], ...]:
        """(name, registers) of the user SGPRs that are set up, in order."""
        return tuple((name, count) for name, bit, count in USER_SGPRS if self.properties >> bit & 1)

    @property
    def work_group_id_sgprs(self) -> tuple[bool, bool, bool]:
        """Which of a workgroup's x, y and z ids follow the user SGPRs."""
        return (bool(self.rsrc2 >> 7 & 1), bool(self.rsrc2 >> 8 & 1), bool(self.rsrc2 >> 9 & 1))

    @property
    def work_item_id_vgprs(self) -> int:
        """How many of v0, v1 and v2 hold a work item's x, y and z at entry."""
        return min((self.rsrc2 >> 11 & 3) + 1, 3)

    @property
    def work_group_info_sgpr(self) -> bool:
        return bool(self.rsrc2 >> 10 & 1)

    @property
    def uses_scratch(self) -> bool:
        return bool(self.rsrc2 & 1)

    @property
    def wave32(self) -> bool:
        return bool(self.properties >> 10 & 1)

    @property
    def dynamic_stack(self) -> bool:
        return bool(self.properties >> 11 & 1)

    @property
    def float_mode(self) -> int:
        """The low byte of MODE at entry: rounding of f32 and of f16/f64, then their denormal modes."""
        return self.rsrc1 >> 12 & 0xFF


@dataclass(frozen=True, slots=True)
class KernelArgument:
    """One argument of a kernel: place in the kernarg segment in bytes, kind as the metadata names it."""

    name: str
    offset: int
    size: int
    kind: str


@dataclass(frozen=True, slots=True)
class KernelEntry:
    """A kernel of a code object."""

    name: str
    address: int
    descriptor_address: int
    descriptor: KernelDescriptor
    metadata: dict[str, Any] = field(repr=False)

    @property
    def arguments(self) -> tuple[KernelArgument, ...]:
        """Explicit and hidden arguments, in order of their offsets."""
        return tuple(
            KernelArgument(a.get(".name", ""), a[".offset"], a[".size"], a[".value_kind"])
            for a in self.metadata.get(".args", ())
        )

    @property
    def max_flat_workgroup_size(self) -> int:
        return int(self.metadata.get(".max_flat_workgroup_size", 1024))


class CodeObject:
    """A linked code object. Raises Error for bytes that are none."""

    def __init__(self, data: bytes, *, file: str = "<code object>") -> None:
        self.file, self.data = file, data
        if len(data) < _HEADER.size or data[:4] != b"\x7fELF":
            raise Error(f"{file}: not an ELF file")
        header = _HEADER.unpack_from(data)
        if header[0][4] != 2 or header[2] != _EM_AMDGPU or header[1] != _ET_DYN:
            raise Error(f"{file}: not a linked AMD GPU code object")
        self.abi_version, self.flags = header[0][8], header[7]
        try:
            self._segments = [
                _SEGMENT.unpack_from(data, header[5] + i * header[9]) for i in range(header[10])
            ]
            self._sections = [
                _SECTION.unpack_from(data, header[6] + i * header[11]) for i in range(header[12])
            ]
            self.symbols = {s.name: s for s in self._read_symbols()}
            self.metadata = self._read_metadata()
            self.kernels = {k.name: k for k in self._read_kernels()}
        except (struct.error, IndexError, ValueError) as error:
            raise Error(f"{file}: damaged code object: {error}") from error

    @property
    def target(self) -> Target:
        """The processor it was built for. Raises UnsupportedError for one that is not in the table."""
        found = target_of_machine(self.flags & 0xFF)
        if found is None:
            raise UnsupportedError(f"AMD machine {self.flags & 0xFF:#x}", self.file)
        return found

    @property
    def load_size(self) -> int:
        """Bytes of address space that the loaded segments span."""
        return max((s[3] + s[6] for s in self._segments if s[0] == _PT_LOAD), default=0)

    @functools.cached_property
    def image(self) -> bytes:
        """The loaded segments at address 0, before relocation."""
        image = bytearray(self.load_size)
        for kind, _, offset, address, _, size, _, _ in self._segments:
            if kind == _PT_LOAD:
                image[address : address + size] = self.data[offset : offset + size]
        return bytes(image)

    def load(self, address: int) -> bytes:
        """The memory image for a load at ``address``. Raises UnsupportedError for a foreign relocation."""
        image = bytearray(self.image)
        for offset, kind, addend in self._relocations():
            if kind == _R_AMDGPU_RELATIVE64:
                struct.pack_into("<Q", image, offset, address + addend)
            elif kind == _R_AMDGPU_ABS64:
                raise UnsupportedError("relocation R_AMDGPU_ABS64 against an external symbol", self.file)
            else:
                raise UnsupportedError(f"dynamic relocation {kind}", self.file)
        return bytes(image)

    def kernel(self, name: str) -> KernelEntry:
        """Raises Error where there is none so named."""
        if name not in self.kernels:
            known = ", ".join(self.kernels) or "none"
            raise Error(f"{self.file} has no kernel {name}; it has {known}")
        return self.kernels[name]

    def file_offset(self, address: int) -> int:
        """Where in the file the byte lies that is loaded at ``address``. Raises Error where none is."""
        for kind, _, offset, start, _, size, _, _ in self._segments:
            if kind == _PT_LOAD and start <= address < start + size:
                return int(offset + address - start)
        raise Error(f"{self.file}: no byte of it is loaded at {address:#x}")

    def code_ranges(self) -> Iterator[tuple[int, int]]:
        """(start, end) of the executable segments, relative to the load address."""
        for kind, flags, _, address, _, size, _, _ in self._segments:
            if kind == _PT_LOAD and flags & 1:
                yield address, address + size

    def relocated_addresses(self) -> set[int]:
        """Addresses, relative to the load address, that words of the loaded image will hold."""
        return {addend for _, kind, addend in self._relocations() if kind == _R_AMDGPU_RELATIVE64}

    def _relocations(self) -> Iterator[tuple[int, int, int]]:
        dynamic: dict[int, int] = {}
        for kind, _, offset, _, _, size, _, _ in self._segments:
            if kind == _PT_DYNAMIC:
                dynamic = dict(struct.iter_unpack("<QQ", self.data[offset : offset + size]))
        start, size = dynamic.get(_DT_RELA, 0), dynamic.get(_DT_RELASZ, 0)
        for offset, info, addend in _RELOCATION.iter_unpack(self.image[start : start + size]):
            yield offset, info & 0xFFFFFFFF, addend

    def _read_symbols(self) -> Iterator[Symbol]:
        # .symtab, where it is kept, also names functions that are not exported.
        for wanted in (_SHT_SYMTAB, _SHT_DYNSYM):
            for _, kind, _, _, offset, size, link, _, _, _ in self._sections:
                if kind == wanted:
                    strings = self._sections[link]
                    names = self.data[strings[4] : strings[4] + strings[5]]
                    for name, info, _, section, value, length in _SYMBOL.iter_unpack(
                        self.data[offset : offset + size]
                    ):
                        if name and section:
                            text = names[name : names.index(b"\0", name)].decode()
                            yield Symbol(text, value, length, info & 15)

    def _read_metadata(self) -> dict[str, Any]:
        for kind, _, offset, _, _, size, _, _ in self._segments:
            position = offset
            while kind == _PT_NOTE and position + 12 <= offset + size:
                name_size, data_size, note = struct.unpack_from("<III", self.data, position)
                start = position + 12 + (name_size + 3 & ~3)
                if note == _NT_AMDGPU_METADATA:
                    import msgpack

                    unpacked = msgpack.unpackb(self.data[start : start + data_size])
                    return unpacked if isinstance(unpacked, dict) else {}
                position = start + (data_size + 3 & ~3)
        return {}

    def _read_kernels(self) -> Iterator[KernelEntry]:
        described = {k[".symbol"]: k for k in self.metadata.get("amdhsa.kernels", ())}
        for symbol in list(self.symbols.values()):
            if symbol.name.endswith(".kd"):
                lds, private, kernarg, entry, *rest = _DESCRIPTOR.unpack_from(self.image, symbol.address)
                descriptor = KernelDescriptor(lds, private, kernarg, entry, *rest)
                yield KernelEntry(
                    symbol.name.removesuffix(".kd"),
                    symbol.address + entry,
                    symbol.address,
                    descriptor,
                    described.get(symbol.name, {}),
                )
