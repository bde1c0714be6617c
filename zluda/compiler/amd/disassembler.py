"""AMD machine code to text, by LLVM's own disassembler (its C interface, through ctypes).

llvmlite carries no disassembler. Libraries that do: Debian's ``libllvm19`` and newer, and PyPI's
``rocm-llvm-python`` (the extra ``emulator``). Whichever knows the target is taken, the newest first.
"""

from __future__ import annotations

import ctypes
import functools
import glob
import importlib.util
import os
import re
from collections.abc import Iterator

from zluda.compiler.amd.targets import Target
from zluda.errors import DeviceError, UnsupportedError
from zluda.records import dataclass

REMEDY = "install libllvm19 or newer (apt-get install libllvm19), or pip install 'zluda[emulator]'"
_TRIPLE = b"amdgcn-amd-amdhsa"
_MAX_BYTES = 32  # no AMD instruction is longer
_SEARCH = ("/usr/lib/*/libLLVM*.so*", "/usr/lib/llvm-*/lib/libLLVM*.so*", "/opt/rocm*/llvm/lib/libLLVM*.so*")
# The first LLVM whose disassembler knows a generation's machine code as llvmlite's LLVM writes it.
_FIRST_VERSION = {9: 14, 10: 14, 11: 17, 12: 19}
_INTERFACE = {
    "LLVMCreateDisasmCPUFeatures": (
        ctypes.c_void_p,
        [*[ctypes.c_char_p] * 3, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p],
    ),
    "LLVMDisasmInstruction": (
        ctypes.c_size_t,
        [
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_uint64,
            ctypes.c_uint64,
            ctypes.c_char_p,
            ctypes.c_size_t,
        ],
    ),
    "LLVMDisasmDispose": (None, [ctypes.c_void_p]),
}


@dataclass(frozen=True, slots=True)
class Line:
    """One disassembled instruction: offset in the code, size in bytes, LLVM's text."""

    offset: int
    size: int
    text: str


def _version(path: str) -> int:
    """The LLVM version in a library's name (``libLLVM.so.19.1`` and ``libLLVM-14.so``: 19 and 14)."""
    found = re.search(r"libLLVM(?:-|\.so\.)(\d+)", os.path.basename(path))
    return int(found[1]) if found else 0


def _rocm_llvm_python() -> str | None:
    """The library inside the wheel ``rocm-llvm-python``, without importing the wheel."""
    try:
        spec = importlib.util.find_spec("rocm")
    except (ImportError, ValueError):
        return None
    for folder in spec.submodule_search_locations or () if spec is not None else ():
        path = os.path.join(folder, "llvm", "librocmllvm.so")
        if os.path.exists(path):
            return path
    return None


def candidates() -> list[tuple[int, str]]:
    """(LLVM version, path) of every library that may hold a disassembler, the best first."""
    found = {
        os.path.realpath(path): _version(path)
        for pattern in _SEARCH
        for path in glob.glob(pattern)
        if _version(path)
    }
    libraries = sorted(((version, path) for path, version in found.items()), reverse=True)
    wheel = _rocm_llvm_python()
    return [(99, wheel), *libraries] if wheel else libraries


@functools.cache
def _load(path: str) -> ctypes.CDLL | None:
    """The library with AMDGPU's parts initialised; None where it has none."""
    try:
        library = ctypes.CDLL(path)
        for part in ("TargetInfo", "Target", "TargetMC", "Disassembler"):
            getattr(library, f"LLVMInitializeAMDGPU{part}")()
        for name, (result, arguments) in _INTERFACE.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError):
        return None
    return library


@functools.cache
def library_for(target: Target) -> tuple[ctypes.CDLL, str]:
    """The library that disassembles for ``target`` and its path. Raises DeviceError, with the remedy."""
    for version, path in candidates():
        if version >= _FIRST_VERSION[target.generation]:
            library = _load(path)
            if library is not None:
                return library, path
    raise DeviceError(
        target.name,
        f"no LLVM disassembler for AMD GPUs (LLVM {_FIRST_VERSION[target.generation]} or newer) was found",
        remedy=REMEDY,
    )


class Disassembler:
    """Disassembles for one target and wave size. Raises DeviceError where no library can."""

    def __init__(self, target: Target, wave_size: int | None = None) -> None:
        self.target = target
        self._library, self.path = library_for(target)
        wave_size = wave_size or target.wave_size
        features = f"+wavefrontsize{wave_size}" if len(target.wave_sizes) > 1 else ""
        self._context = self._library.LLVMCreateDisasmCPUFeatures(
            _TRIPLE, target.name.encode(), features.encode(), None, 0, None, None
        )
        if not self._context:
            raise DeviceError(target.name, f"{self.path} does not know this target", remedy=REMEDY)
        self._text = ctypes.create_string_buffer(1024)

    def at(self, code: bytes | memoryview, offset: int) -> Line:
        """The instruction at ``offset``. Raises UnsupportedError for bytes that are none."""
        window = bytes(code[offset : offset + _MAX_BYTES])
        buffer = (ctypes.c_ubyte * len(window)).from_buffer_copy(window)
        size = self._library.LLVMDisasmInstruction(
            self._context, buffer, len(window), offset, self._text, len(self._text)
        )
        if not size:
            raise UnsupportedError(
                f"machine code {window[:8].hex(' ')}", f"offset {offset:#x}, target {self.target.name}"
            )
        return Line(offset, size, self._text.value.decode().strip())

    def lines(self, code: bytes | memoryview, start: int = 0, end: int | None = None) -> Iterator[Line]:
        """Every instruction from ``start`` to ``end``, in order."""
        offset, end = start, len(code) if end is None else end
        while offset < end:
            line = self.at(code, offset)
            yield line
            offset += line.size

    def __del__(self) -> None:
        if getattr(self, "_context", None):
            self._library.LLVMDisasmDispose(self._context)
