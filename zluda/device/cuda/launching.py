"""Launching on an NVIDIA GPU from a packed parameter buffer."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence

from zluda.device.cuda.libcuda import LibCuda
from zluda.device.results import CudaError

# CU_LAUNCH_PARAM_*
_END, _BUFFER_POINTER, _BUFFER_SIZE = 0, 1, 2
_CONFIG = struct.Struct("<7I4xQQI4x")  # CUlaunchConfig: grid, block, shared bytes, stream, attributes, count
_ATTRIBUTE = struct.Struct("<i4x64s")  # CUlaunchAttribute: id, value
_INVALID_VALUE = 1
CLUSTER_DIMENSION = 4  # CUlaunchAttributeID


def launch(
    library: LibCuda,
    function: int,
    grid: Sequence[int],
    block: Sequence[int],
    shared_bytes: int,
    stream: int,
    parameters: bytes | bytearray | memoryview,
    attributes: Sequence[tuple[int, bytes]] = (),
) -> None:
    """``cuLaunchKernel``, or ``cuLaunchKernelEx`` where there are attributes; parameters by ``extra``."""
    buffer = ctypes.create_string_buffer(bytes(parameters), max(len(parameters), 1))
    size = ctypes.c_size_t(len(parameters))
    extra = (ctypes.c_void_p * 5)(
        _BUFFER_POINTER, ctypes.addressof(buffer), _BUFFER_SIZE, ctypes.addressof(size), _END
    )
    passed = extra if len(parameters) else None
    if not attributes:
        library.call("cuLaunchKernel", function, *grid, *block, shared_bytes, stream, None, passed)
        return
    config, table = configuration(grid, block, shared_bytes, stream, attributes)
    library.call("cuLaunchKernelEx", config, function, None, passed)
    del table


def configuration(
    grid: Sequence[int],
    block: Sequence[int],
    shared_bytes: int,
    stream: int,
    attributes: Sequence[tuple[int, bytes]],
) -> tuple[ctypes.Array[ctypes.c_char], ctypes.Array[ctypes.c_char]]:
    """A ``CUlaunchConfig``, and the attributes that it points to, which must live as long."""
    packed = b"".join(_ATTRIBUTE.pack(number, bytes(value)) for number, value in attributes)
    table = ctypes.create_string_buffer(packed, max(len(packed), 1))
    words = _CONFIG.pack(*grid, *block, shared_bytes, stream, ctypes.addressof(table), len(attributes))
    return ctypes.create_string_buffer(words, len(words)), table


def parameter_slots(library: LibCuda, handle: int, *, kernel: bool) -> list[tuple[int, int]]:
    """(offset, size) of each parameter of a CUkernel or CUfunction."""
    entry = "cuKernelGetParamInfo" if kernel else "cuFuncGetParamInfo"
    slots: list[tuple[int, int]] = []
    while True:
        offset, size = ctypes.c_size_t(), ctypes.c_size_t()
        code = library.result(entry, handle, len(slots), ctypes.byref(offset), ctypes.byref(size))
        if code == _INVALID_VALUE:  # past the last
            return slots
        if code:
            raise CudaError(code, entry)
        slots.append((offset.value, size.value))
