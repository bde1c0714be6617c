"""GPU memory at wanted addresses, by the driver's virtual memory management (``cuMemAddressReserve`` …).

The driver maps memory in steps of 2 MiB while programs allocate in steps of 512 bytes, so whole ranges are
reserved and backed once and allocations are claimed inside them.
"""

from __future__ import annotations

import bisect
import ctypes
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from zluda.device.cuda.libcuda import LibCuda
from zluda.device.results import CudaError
from zluda.errors import DeviceError

GRANULE = 2 << 20
STEPS = (GRANULE, 32 << 20)
"""Alignments of a reservation to try, smallest first: driver 580 moves a wanted address up to the next multiple
of 32 MiB, so that only a reservation that begins at one stays where it was asked for."""
_PINNED, _DEVICE, _READ_WRITE = 1, 1, 3  # CUmemAllocationType, CUmemLocationType, CUmemAccess_flags
_PROPERTIES = struct.Struct("<iiiiQQ")  # CUmemAllocationProp: type, handle types, location, win32, flags
_ACCESS = struct.Struct("<iii")  # CUmemAccessDesc: location, flags


@dataclass(frozen=True, slots=True)
class Range:
    """A usable range; ``memory`` is the handle of what backs it, ``reserved`` the (address, size) around it."""

    start: int
    size: int
    memory: int
    reserved: tuple[int, int]


class Arena:
    """Ranges of one GPU's address space, reserved and backed; allocations claimed inside them."""

    def __init__(self, library: LibCuda, device: int, reservations: Sequence[tuple[int, int]]) -> None:
        self._library, self._device = library, device
        self._ranges: list[Range] = []
        self._starts: list[int] = []  # of live allocations, sorted
        self._sizes: dict[int, int] = {}
        try:
            for start, size in reservations:
                self._ranges.append(self._reserve(start, size))
        except BaseException:
            self.close()
            raise

    def claim(self, address: int, size: int) -> int:
        """Take ``size`` bytes at ``address``; CudaError (out of memory) where they are not free and ours."""
        end = address + size
        if not any(r.start <= address and end <= r.start + r.size for r in self._ranges):
            raise self._refused(address, size, "in no reserved range")
        at = bisect.bisect_right(self._starts, address)
        before = self._starts[at - 1] if at else None
        after = self._starts[at] if at < len(self._starts) else None
        overlaps = before is not None and before + self._sizes[before] > address
        if overlaps or (after is not None and after < end):
            raise self._refused(address, size, "taken")
        self._starts.insert(at, address)
        self._sizes[address] = size
        return address

    def give_back(self, address: int) -> bool:
        """Free an allocation; false where it is none of the arena's."""
        if address not in self._sizes:
            return False
        del self._sizes[address]
        self._starts.remove(address)
        return True

    def holding(self, address: int) -> tuple[int, int] | None:
        """Start and size of the allocation that holds ``address``."""
        at = bisect.bisect_right(self._starts, address) - 1
        if at < 0 or address >= self._starts[at] + self._sizes[self._starts[at]]:
            return None
        return self._starts[at], self._sizes[self._starts[at]]

    def close(self) -> None:
        """Unmap and release everything."""
        for r in self._ranges:
            self._library.call("cuMemUnmap", r.start, r.size)
            self._library.call("cuMemRelease", r.memory)
            self._library.call("cuMemAddressFree", *r.reserved)
        self._ranges.clear()
        self._starts.clear()
        self._sizes.clear()

    def _reserve(self, start: int, size: int) -> Range:
        reserved = self._address_range(start, size)
        memory = 0
        try:
            memory = self._back(start, size)
            access = ctypes.create_string_buffer(
                _ACCESS.pack(_DEVICE, self._device, _READ_WRITE), _ACCESS.size
            )
            self._library.call("cuMemSetAccess", start, size, access, 1)
        except CudaError:
            if memory:
                self._library.call("cuMemUnmap", start, size)
                self._library.call("cuMemRelease", memory)
            self._library.call("cuMemAddressFree", *reserved)
            raise
        return Range(start, size, memory, reserved)

    def _address_range(self, start: int, size: int) -> tuple[int, int]:
        """Reserve addresses that hold [start, start + size); DeviceError where the driver gives others."""
        offers = []
        for step in STEPS:
            low = start // step * step
            length = -(-(start + size - low) // step) * step
            got = self._library.get("cuMemAddressReserve", ctypes.c_uint64, length, 0, low, 0)
            if got == low:
                return low, length
            self._library.call("cuMemAddressFree", got, length)
            offers.append(f"{got:#x}")
        raise DeviceError(
            f"cuda:{self._device}",
            f"the driver does not give {size} bytes at {start:#x} (it offers {', '.join(offers)})",
        )

    def _back(self, start: int, size: int) -> int:
        packed = _PROPERTIES.pack(_PINNED, 0, _DEVICE, self._device, 0, 0)
        properties = ctypes.create_string_buffer(packed, len(packed))
        memory = self._library.get("cuMemCreate", ctypes.c_uint64, size, properties, 0)
        try:
            self._library.call("cuMemMap", start, size, 0, memory, 0)
        except CudaError:
            self._library.call("cuMemRelease", memory)
            raise
        return memory

    def _refused(self, address: int, size: int, why: str) -> CudaError:
        return CudaError("CUDA_ERROR_OUT_OF_MEMORY", "cuMemAlloc", f"{address:#x}+{size:#x} is {why}")
