"""Handing a module image to NVIDIA's driver."""

from __future__ import annotations

import ctypes
import struct

from zluda.device.cuda.libcuda import LibCuda
from zluda.device.results import RESULT_NAMES, CudaError

_FATBIN_MAGIC, _WRAPPER_MAGIC = 0xBA55ED50, 0x466243B1
_WRAPPER = struct.Struct("<IIQQ")  # magic, version, pointer to the fatbin, pointer to more
_LOG_BYTES = 16384
# CUjit_option
_ERROR_LOG_BUFFER, _ERROR_LOG_BUFFER_SIZE_BYTES = 5, 6


class Image:
    """An image's bytes at an address. Keep it while the module lives.

    ``cuModuleLoadDataEx`` takes a fatbin as it is (``address``), and refuses the wrapper that the runtime
    hands to ``cuLibraryLoadData`` (``wrapped``; the same as ``address`` for what is no fatbin).
    """

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        content = bytes(data)
        self._buffer = ctypes.create_string_buffer(content)  # with the NUL that ends PTX text
        self.address = self.wrapped = ctypes.addressof(self._buffer)
        if content[:4] == _FATBIN_MAGIC.to_bytes(4, "little"):
            wrapper = _WRAPPER.pack(_WRAPPER_MAGIC, 1, self.address, 0)
            self._wrapper = ctypes.create_string_buffer(wrapper, len(wrapper))
            self.wrapped = ctypes.addressof(self._wrapper)


class _Log:
    """Options of a just-in-time compilation that have it say why it failed."""

    count = 2

    def __init__(self) -> None:
        self._text = ctypes.create_string_buffer(_LOG_BYTES)
        self.options = (ctypes.c_int * 2)(_ERROR_LOG_BUFFER, _ERROR_LOG_BUFFER_SIZE_BYTES)
        self.values = (ctypes.c_void_p * 2)(ctypes.addressof(self._text), _LOG_BYTES)

    def check(self, code: int, entry: str) -> None:
        if code:
            lines = self._text.value.decode(errors="replace").split("\n")
            detail = "; ".join(line.strip() for line in lines if line.strip())
            raise CudaError(code, entry, detail or RESULT_NAMES.get(code, ""))


def load_module(library: LibCuda, image: Image) -> int:
    """``cuModuleLoadDataEx``; the module's handle. CudaError carries the compiler's own words."""
    log, out = _Log(), ctypes.c_void_p()
    code = library.result(
        "cuModuleLoadDataEx", ctypes.byref(out), image.address, log.count, log.options, log.values
    )
    log.check(code, "cuModuleLoadData")
    return out.value or 0


def load_library(library: LibCuda, image: Image) -> int:
    """``cuLibraryLoadData``; the library's handle. CudaError carries the compiler's own words."""
    log, out = _Log(), ctypes.c_void_p()
    code = library.result(
        "cuLibraryLoadData",
        ctypes.byref(out),
        image.wrapped,
        log.options,
        log.values,
        log.count,
        None,
        None,
        0,
    )
    log.check(code, "cuLibraryLoadData")
    return out.value or 0
