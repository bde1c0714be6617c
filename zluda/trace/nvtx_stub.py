"""The library that NVTX asks for by the name in ``NVTX_INJECTION64_PATH``: a stub that jumps to the agent.

It is made here, byte by byte, since a machine on which programs are recorded need not have a compiler. It
exports ``InitializeInjectionNvtx2``, which jumps to the address in ``zluda_nvtx``, a variable that the agent
fills in when the library is loaded, and returns 0 (which leaves NVTX without effect) where nobody did.
See ELF (System V ABI, gABI 4.1) and its AMD64 supplement.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

FILE_NAME = "zluda-nvtx.so"
VARIABLE = "NVTX_INJECTION64_PATH"

_PAGE = 0x1000
_CODE = bytes.fromhex(
    "48 8b 05 00 00 00 00"  # mov rax, [rip + zluda_nvtx]
    "48 85 c0"  # test rax, rax
    "74 02"  # jz over the jump
    "ff e0"  # jmp rax
    "31 c0 c3"  # xor eax, eax; ret
)
_LOAD_END = 7  # of the first instruction, from which its operand counts

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_PT_LOAD, _PT_DYNAMIC, _PT_GNU_STACK = 1, 2, 0x6474E551
_SEGMENTS = 4
_DT = {"NULL": 0, "HASH": 4, "STRTAB": 5, "SYMTAB": 6, "STRSZ": 10, "SYMENT": 11, "SONAME": 14}
_FUNCTION, _OBJECT = 0x12, 0x11  # global


@contextmanager
def placed(environment: Mapping[str, str]) -> Iterator[Path | None]:
    """The stub as a file, for as long as this lasts; None where the user has NVTX tell another tool."""
    if VARIABLE in environment:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="zluda-") as directory:
        path = Path(directory) / FILE_NAME
        path.write_bytes(stub())
        yield path


def stub() -> bytes:
    """The shared object: a page of code and tables, a page with ``.dynamic`` and the variable."""
    names = b"\0InitializeInjectionNvtx2\0zluda_nvtx\0" + FILE_NAME.encode() + b"\0"
    function, variable = names.index(b"Init"), names.index(b"zluda_nvtx")
    soname = names.index(FILE_NAME.encode())
    at_symbols = _HEADER.size + _SEGMENTS * _SEGMENT.size
    at_names = at_symbols + 3 * _SYMBOL.size
    at_hash = _aligned(at_names + len(names))
    at_code = _aligned(at_hash + 4 * 6)
    entries = {"HASH": at_hash, "STRTAB": at_names, "SYMTAB": at_symbols, "STRSZ": len(names)}
    entries |= {"SYMENT": _SYMBOL.size, "SONAME": soname, "NULL": 0}
    dynamic = b"".join(struct.pack("<QQ", _DT[tag], value) for tag, value in entries.items())
    at_variable = _PAGE + len(dynamic)
    code = _CODE[:3] + struct.pack("<i", at_variable - (at_code + _LOAD_END)) + _CODE[_LOAD_END:]
    symbols = bytes(_SYMBOL.size) + _SYMBOL.pack(function, _FUNCTION, 0, 1, at_code, len(code))
    symbols += _SYMBOL.pack(variable, _OBJECT, 0, 2, at_variable, 8)
    # One bucket with a chain through both symbols: nbucket, nchain, bucket[1], chain[3].
    hashes = struct.pack("<6I", 1, 3, 1, 0, 2, 0)
    end = at_code + len(code)
    segments = [
        _SEGMENT.pack(_PT_LOAD, 5, 0, 0, 0, end, end, _PAGE),
        _SEGMENT.pack(_PT_LOAD, 6, _PAGE, _PAGE, _PAGE, len(dynamic) + 8, len(dynamic) + 8, _PAGE),
        _SEGMENT.pack(_PT_DYNAMIC, 6, _PAGE, _PAGE, _PAGE, len(dynamic), len(dynamic), 8),
        _SEGMENT.pack(_PT_GNU_STACK, 6, 0, 0, 0, 0, 0, 16),  # without it the stack is to be executable
    ]
    ident = b"\x7fELF\2\1\1".ljust(16, b"\0")
    header = _HEADER.pack(
        ident, 3, 62, 1, 0, _HEADER.size, 0, 0, _HEADER.size, _SEGMENT.size, _SEGMENTS, 64, 0, 0
    )
    image = bytearray(_PAGE + len(dynamic) + 8)
    pieces = {
        0: header + b"".join(segments),
        at_symbols: symbols,
        at_names: names,
        at_hash: hashes,
        at_code: code,
        _PAGE: dynamic,
    }
    for at, piece in pieces.items():
        image[at : at + len(piece)] = piece
    return bytes(image)


def _aligned(offset: int) -> int:
    return -(-offset // 16) * 16
