"""AMD code objects of a few instructions: an assembler (LLVM's, by ctypes), a writer of minimal ELF files."""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from zluda.compiler.amd.disassembler import library_for
from zluda.compiler.amd.targets import target

_TRIPLE = b"amdgcn-amd-amdhsa"
_OBJECT_FILE = 1


class AssemblyError(Exception):
    """The assembler refused the text."""


@functools.cache
def _llvm(target_name: str) -> ctypes.CDLL:
    library, _ = library_for(target(target_name))
    for part in ("AsmParser", "AsmPrinter"):
        getattr(library, f"LLVMInitializeAMDGPU{part}")()
    pointers = (
        "LLVMModuleCreateWithName",
        "LLVMCreateTargetMachine",
        "LLVMGetBufferStart",
        "LLVMContextCreate",
        "LLVMModuleCreateWithNameInContext",
    )
    for name in pointers:
        getattr(library, name).restype = ctypes.c_void_p
    library.LLVMGetBufferSize.restype = ctypes.c_size_t
    return library


_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


@functools.cache
def _machine(target_name: str) -> int:
    library = _llvm(target_name)
    found, message = ctypes.c_void_p(), ctypes.c_char_p()
    library.LLVMGetTargetFromTriple(_TRIPLE, ctypes.byref(found), ctypes.byref(message))
    return int(library.LLVMCreateTargetMachine(found, _TRIPLE, target_name.encode(), b"", 0, 0, 0))


def assemble(target_name: str, text: str) -> bytes:
    """A relocatable object. Raises AssemblyError for text that the target does not have."""
    library = _llvm(target_name)
    context = ctypes.c_void_p(library.LLVMContextCreate())
    failed: list[bool] = []
    handler = _HANDLER(lambda info, _: failed.append(True))
    library.LLVMContextSetDiagnosticHandler(context, handler, None)
    module = ctypes.c_void_p(library.LLVMModuleCreateWithNameInContext(b"test", context))
    library.LLVMSetTarget(module, _TRIPLE)
    data = text.encode()
    library.LLVMSetModuleInlineAsm2(module, data, ctypes.c_size_t(len(data)))
    message, buffer = ctypes.c_char_p(), ctypes.c_void_p()
    machine = ctypes.c_void_p(_machine(target_name))
    status = library.LLVMTargetMachineEmitToMemoryBuffer(
        machine, module, _OBJECT_FILE, ctypes.byref(message), ctypes.byref(buffer)
    )
    try:
        if status or failed:
            raise AssemblyError(text)
        size = library.LLVMGetBufferSize(buffer)
        return ctypes.string_at(library.LLVMGetBufferStart(buffer), size)
    finally:
        library.LLVMDisposeModule(module)
        library.LLVMContextDispose(context)


def text_section(data: bytes) -> tuple[bytes, dict[str, int]]:
    """The machine code of an object and the offsets of its symbols."""
    offset, count = struct.unpack_from("<Q", data, 0x28)[0], struct.unpack_from("<H", data, 0x3C)[0]
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, offset + 64 * i) for i in range(count)]
    code, symbols, text_index = b"", {}, -1
    for i, section in enumerate(sections):
        if section[1] == 1 and section[2] & 4:
            code, text_index = data[section[4] : section[4] + section[5]], i
    for section in sections:
        if section[1] == 2:
            strings = sections[section[6]]
            names = data[strings[4] : strings[4] + strings[5]]
            for name, _, _, index, value, _ in struct.iter_unpack(
                "<IBBHQQ", data[section[4] : section[4] + section[5]]
            ):
                if index == text_index and name:
                    symbols[names[name : names.index(b"\0", name)].decode()] = value
    return code, symbols


@dataclass(frozen=True)
class Kernel:
    """A kernel of a code object: where its label is, and what its descriptor says."""

    name: str
    lds_bytes: int = 0
    private_bytes: int = 0
    kernarg_bytes: int = 64
    wave32: bool = True
    float_mode: int = 0xF0


_DESCRIPTOR_BYTES = 64
_KERNARG_PTR, _WAVE32 = 1 << 3, 1 << 10


def code_object(target_name: str, text: str, kernels: Sequence[Kernel]) -> bytes:
    """A loadable code object from assembly text with one label a kernel.

    A kernel finds its kernarg pointer in s[0:1] and its workgroup's x in s2 (from gfx12 on in ttmp9).
    """
    code, labels = text_section(assemble(target_name, text))
    descriptors, symbols = bytearray(), []
    code_at = 0x1000
    data_at = code_at + (len(code) + 0xFFF & ~0xFFF)
    for i, kernel in enumerate(kernels):
        address = data_at + i * _DESCRIPTOR_BYTES
        rsrc1 = 63 | kernel.float_mode << 12
        rsrc2 = 2 << 1 | 1 << 7 | (2 << 11)
        properties = _KERNARG_PTR | (_WAVE32 if kernel.wave32 else 0)
        descriptors += struct.pack(
            "<III4xq20xIIIHH4x",
            kernel.lds_bytes,
            kernel.private_bytes,
            kernel.kernarg_bytes,
            code_at + labels[kernel.name] - address,
            0,
            rsrc1,
            rsrc2,
            properties,
            0,
        )
        symbols += [
            (kernel.name + ".kd", address, _DESCRIPTOR_BYTES, 1),
            (kernel.name, code_at + labels[kernel.name], 0, 2),
        ]
    return _elf(target_name, code_at, code, data_at, bytes(descriptors), symbols)


def _elf(
    target_name: str,
    code_at: int,
    code: bytes,
    data_at: int,
    data: bytes,
    symbols: Sequence[tuple[str, int, int, int]],
) -> bytes:
    """ET_DYN with two loaded segments and a symbol table."""
    names, table = b"\0", bytearray(24)
    for name, address, size, kind in symbols:
        table += struct.pack("<IBBHQQ", len(names), 0x10 | kind, 0, 1, address, size)
        names += name.encode() + b"\0"
    image = bytearray(data_at + len(data))
    image[code_at : code_at + len(code)] = code
    image[data_at:] = data
    table_at = len(image)
    names_at = table_at + len(table)
    sections_at = names_at + len(names) + 7 & ~7
    sections = [
        (0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        (0, 1, 6, code_at, code_at, len(code), 0, 0, 256, 0),
        (0, 2, 0, 0, table_at, len(table), 3, 1, 8, 24),
        (0, 3, 0, 0, names_at, len(names), 0, 0, 1, 0),
    ]
    segments = [
        (1, 5, code_at, code_at, code_at, len(code), len(code), 0x1000),
        (1, 4, data_at, data_at, data_at, len(data), len(data), 0x1000),
    ]
    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01\x40\x03",
        3,
        224,
        1,
        0,
        64,
        sections_at,
        target(target_name).elf_machine,
        64,
        56,
        len(segments),
        64,
        len(sections),
        3,
    )
    image[:64] = header
    for i, segment in enumerate(segments):
        struct.pack_into("<IIQQQQQQ", image, 64 + 56 * i, *segment)
    tail = bytes(table) + names
    tail += b"\0" * (sections_at - table_at - len(tail))
    return bytes(image) + tail + b"".join(struct.pack("<IIQQQQIIQQ", *s) for s in sections)
