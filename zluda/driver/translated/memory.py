"""Allocation, copies and fills.

A range that a caller names must lie in one allocation or one module variable, as the NVIDIA driver checks.
Page-locked host memory is device memory too: a kernel reads it at the same address (unified addressing).
An asynchronous entry does its work before it returns, after what its stream was given before.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from typing import TypeVar

from zluda.driver.base import Bytes
from zluda.driver.errors import CudaError
from zluda.driver.translated.contexts import total_memory
from zluda.driver.translated.services import check_output
from zluda.driver.translated.state import Allocation, State, entry
from zluda.errors import DeviceError

R = TypeVar("R")

_PITCH = 512  # bytes; the pitch an H200 gives is a multiple of it
_HOST_ALLOC_FLAGS = 0x7  # PORTABLE, DEVICEMAP, WRITECOMBINED


class MemoryEntries:
    """``cuMem*`` except the host's own address ranges."""

    _state: State

    # --- allocation -----------------------------------------------------------------------------------

    @entry()
    def cuMemGetInfo(self) -> tuple[int, int]:
        if self._state.gpu is not None:
            return self._state.gpu.memory_info()
        total = total_memory()
        used = sum(a.size for a in self._state.allocations.values())
        return max(total - used, 0), total

    @entry()
    def cuMemAlloc(self, size: int, *, address: int | None = None) -> int:
        return self._allocate(size, address)

    @entry()
    def cuMemAllocPitch(
        self, width: int, height: int, element_size: int, *, address: int | None = None
    ) -> tuple[int, int]:
        if element_size not in (4, 8, 16) or width <= 0 or height <= 0:
            raise CudaError(
                "CUDA_ERROR_INVALID_VALUE", detail=f"{width} × {height} elements of {element_size} bytes"
            )
        pitch = -(-width // _PITCH) * _PITCH
        return self._allocate(pitch * height, address), pitch

    @entry()
    def cuMemFree(self, address: int) -> None:
        self._free(address, host=False)

    @entry()
    def cuMemAllocAsync(self, size: int, stream: int, *, address: int | None = None) -> int:
        self._check_stream(stream)
        return self._allocate(size, address)

    @entry()
    def cuMemFreeAsync(self, address: int, stream: int) -> None:
        self._check_stream(stream)
        self._free(address, host=False)

    @entry()
    def cuMemGetAddressRange(self, address: int) -> tuple[int, int]:
        found = self._range_of(address)
        if found is None:
            raise CudaError("CUDA_ERROR_NOT_FOUND", detail=f"{address:#x} is in no allocation")
        return found

    @entry()
    def cuMemAllocHost(self, size: int) -> int:
        return self._allocate(size, None, host=True)

    @entry()
    def cuMemHostAlloc(self, size: int, flags: int) -> int:
        if flags & ~_HOST_ALLOC_FLAGS:
            raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=f"flags {flags:#x}; expected bits of 0x7")
        return self._allocate(size, None, host=True)

    @entry()
    def cuMemFreeHost(self, address: int) -> None:
        self._free(address, host=True)

    def _allocate(self, size: int, address: int | None, *, host: bool = False) -> int:
        if size <= 0:
            raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=f"{size} bytes; expected more than 0")
        state = self._state
        try:
            base = state.device.allocate(size, address=address)
        except (DeviceError, MemoryError, OSError) as error:
            raise CudaError("CUDA_ERROR_OUT_OF_MEMORY", detail=str(error)) from error
        state.allocations[base] = Allocation(size, state.current(), host)
        bisect.insort(state.bases, base)
        return base

    def _free(self, address: int, *, host: bool) -> None:
        state = self._state
        if address == 0 and not host:
            return  # as free(NULL)
        allocation = state.allocations.get(address)
        if allocation is None or allocation.host != host:
            raise CudaError(
                "CUDA_ERROR_INVALID_VALUE", detail=f"{address:#x} is not the start of an allocation"
            )
        del state.allocations[address]
        state.bases.remove(address)
        state.device.free(address)

    # --- copies ---------------------------------------------------------------------------------------

    @entry()
    def cuMemcpyHtoD(self, destination: int, data: Bytes) -> None:
        self._write(destination, data)
        check_output(self._state)

    @entry()
    def cuMemcpyHtoDAsync(self, destination: int, data: Bytes, stream: int) -> None:
        self._check_stream(stream)
        self._write(destination, data)

    @entry()
    def cuMemcpyDtoH(self, source: int, size: int) -> bytes:
        data = self._read(source, size)
        check_output(self._state)
        return data

    @entry()
    def cuMemcpyDtoHAsync(self, source: int, size: int, stream: int) -> bytes:
        self._check_stream(stream)
        return self._read(source, size)

    @entry()
    def cuMemcpyDtoD(self, destination: int, source: int, size: int) -> None:
        self._copy(destination, source, size)

    @entry()
    def cuMemcpyDtoDAsync(self, destination: int, source: int, size: int, stream: int) -> None:
        self._check_stream(stream)
        self._copy(destination, source, size)

    @entry()
    def cuMemcpy(self, destination: int, source: int, size: int) -> None:
        self._copy(destination, source, size)
        check_output(self._state)

    @entry()
    def cuMemcpyAsync(self, destination: int, source: int, size: int, stream: int) -> None:
        self._check_stream(stream)
        self._copy(destination, source, size)

    def _write(self, destination: int, data: Bytes) -> None:
        size = memoryview(data).nbytes
        if self._checked(destination, size):
            self._do(lambda: self._state.device.write(destination, data))

    def _read(self, source: int, size: int) -> bytes:
        if not self._checked(source, size):
            return b""
        return self._do(lambda: self._state.device.read(source, size))

    def _copy(self, destination: int, source: int, size: int) -> None:
        if self._checked(destination, size) and self._checked(source, size):
            self._do(lambda: self._state.device.copy(destination, source, size))

    # --- fills ----------------------------------------------------------------------------------------

    @entry()
    def cuMemsetD8(self, destination: int, value: int, count: int) -> None:
        self._fill(destination, value, 1, count)

    @entry()
    def cuMemsetD16(self, destination: int, value: int, count: int) -> None:
        self._fill(destination, value, 2, count)

    @entry()
    def cuMemsetD32(self, destination: int, value: int, count: int) -> None:
        self._fill(destination, value, 4, count)

    @entry()
    def cuMemsetD8Async(self, destination: int, value: int, count: int, stream: int) -> None:
        self._check_stream(stream)
        self._fill(destination, value, 1, count)

    @entry()
    def cuMemsetD16Async(self, destination: int, value: int, count: int, stream: int) -> None:
        self._check_stream(stream)
        self._fill(destination, value, 2, count)

    @entry()
    def cuMemsetD32Async(self, destination: int, value: int, count: int, stream: int) -> None:
        self._check_stream(stream)
        self._fill(destination, value, 4, count)

    def _fill(self, destination: int, value: int, width: int, count: int) -> None:
        if destination % width:
            raise CudaError(
                "CUDA_ERROR_INVALID_VALUE", detail=f"{destination:#x} is not a multiple of {width}"
            )
        if self._checked(destination, width * count):
            pattern = (value & ((1 << 8 * width) - 1)).to_bytes(width, "little")
            self._do(lambda: self._state.device.fill(destination, pattern, count))

    # --- checks ---------------------------------------------------------------------------------------

    def _check_stream(self, stream: int) -> None:
        """The stream of an asynchronous entry, done at once: what a GPU was given before it comes first."""
        self._state.await_stream(stream)

    def _checked(self, address: int, size: int) -> bool:
        """Whether there is anything to do; CUDA_ERROR_INVALID_VALUE for a range that is not all ours."""
        if size < 0:
            raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=f"{size} bytes")
        if size == 0:
            return False
        found = self._range_of(address)
        if found is None or address + size > found[0] + found[1]:
            held = "in no allocation" if found is None else f"past its allocation {found[0]:#x}+{found[1]:#x}"
            raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=f"{address:#x}+{size:#x} is {held}")
        return True

    def _range_of(self, address: int) -> tuple[int, int] | None:
        state = self._state
        at = bisect.bisect_right(state.bases, address) - 1
        if at >= 0:
            base = state.bases[at]
            if address < base + state.allocations[base].size:
                return base, state.allocations[base].size
        for _, module in state.modules.items():
            for name in module.variables:
                base, size = module.code.global_variable(name)
                if base <= address < base + size:
                    return base, size
        return self._array_at(address)

    def _array_at(self, address: int) -> tuple[int, int] | None:
        """The array in whose memory an address lies: a replay on a GPU reads it so."""
        for _, array in self._state.arrays.items():
            size = array.shape.size
            if array.whole == 0 and array.address <= address < array.address + size:
                return array.address, size
        return None

    @staticmethod
    def _do(action: Callable[[], R]) -> R:
        try:
            return action()
        except DeviceError as error:
            raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=str(error)) from error
