"""GPU memory at wanted addresses, by the driver's virtual memory management (``cuMemAddressReserve`` …).

The driver maps memory in steps of 2 MiB while programs allocate in steps of 512 bytes, so whole ranges are
reserved and backed once and allocations are claimed inside them.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence

from zluda.device.claims import Claims, union
from zluda.device.cuda.libcuda import LibCuda
from zluda.device.results import CudaError
from zluda.errors import DeviceError
from zluda.records import dataclass

GRANULE = 2 << 20
# Steps of a reservation to try: driver 580 moves a wanted address up to the next multiple of 32 MiB, so that
# only one that begins there stays where it was asked for. Backing memory goes by 2 MiB inside.
STEPS = (32 << 20, GRANULE)
_PINNED, _DEVICE, _READ_WRITE = 1, 1, 3  # CUmemAllocationType, CUmemLocationType, CUmemAccess_flags
_PROPERTIES = struct.Struct("<iiiiQQ")  # CUmemAllocationProp: type, handle types, location, win32, flags
_ACCESS = struct.Struct("<iii")  # CUmemAccessDesc: location, flags


@dataclass(frozen=True, slots=True)
class Range:
    """A usable range; ``memory`` is the handle of what backs it."""

    start: int
    size: int
    memory: int


class Arena:
    """Ranges of one GPU's address space, reserved and backed; allocations claimed inside them.

    ``reservations`` are disjoint (address, size) in steps of 2 MiB. Raises DeviceError where the driver gives
    other addresses, CudaError where it has no memory for them.
    """

    def __init__(self, library: LibCuda, device: int, reservations: Sequence[tuple[int, int]]) -> None:
        self._library, self._device = library, device
        self._reserved: list[tuple[int, int]] = []
        self._ranges: list[Range] = []
        self._claims = Claims()
        self._reserve_around(reservations)
        try:
            for start, size in reservations:
                self._ranges.append(self._back(start, size))
                self._claims.add_range(start, size)
        except BaseException:
            self.close()
            raise

    def claim(self, address: int, size: int) -> int:
        """Take ``size`` bytes at ``address``; CudaError (out of memory) where they are not free and ours."""
        why_not = self._claims.claim(address, size)
        if why_not is not None:
            raise CudaError("CUDA_ERROR_OUT_OF_MEMORY", "cuMemAlloc", why_not)
        return address

    def give_back(self, address: int) -> bool:
        """Free an allocation; false where it is none of the arena's."""
        return self._claims.give_back(address)

    def holding(self, address: int) -> tuple[int, int] | None:
        """Start and size of the allocation that holds ``address``."""
        return self._claims.holding(address)

    def close(self) -> None:
        """Unmap and release everything."""
        for r in self._ranges:
            self._library.call("cuMemUnmap", r.start, r.size)
            self._library.call("cuMemRelease", r.memory)
        self._ranges.clear()
        self._claims.clear()
        self._free_reserved()

    def _reserve_around(self, reservations: Sequence[tuple[int, int]]) -> None:
        """Reserve what holds the reservations, in the first step at which the driver gives all."""
        offers = []
        for step in STEPS:
            offer = self._reserve_union(union(reservations, step))
            if offer is None:
                return
            offers.append(offer)
        raise DeviceError(f"cuda:{self._device}", "the driver does not give " + ", nor ".join(offers))

    def _reserve_union(self, wanted: Sequence[tuple[int, int]]) -> str | None:
        """Reserve all of ``wanted``; where one range is not given, nothing, and which it was."""
        for start, size in wanted:
            got = self._library.get("cuMemAddressReserve", ctypes.c_uint64, size, 0, start, 0)
            self._reserved.append((got, size))
            if got != start:
                self._free_reserved()
                return f"{size} bytes at {start:#x} (it offers {got:#x})"
        return None

    def _free_reserved(self) -> None:
        while self._reserved:
            self._library.call("cuMemAddressFree", *self._reserved.pop())

    def _back(self, start: int, size: int) -> Range:
        """Memory for a reserved range, readable and writable."""
        packed = _PROPERTIES.pack(_PINNED, 0, _DEVICE, self._device, 0, 0)
        properties = ctypes.create_string_buffer(packed, len(packed))
        memory = self._library.get("cuMemCreate", ctypes.c_uint64, size, properties, 0)
        try:
            self._library.call("cuMemMap", start, size, 0, memory, 0)
        except CudaError:
            self._library.call("cuMemRelease", memory)
            raise
        found = Range(start, size, memory)
        access = ctypes.create_string_buffer(_ACCESS.pack(_DEVICE, self._device, _READ_WRITE), _ACCESS.size)
        try:
            self._library.call("cuMemSetAccess", start, size, access, 1)
        except CudaError:
            self._ranges.append(found)  # for close() to undo
            raise
        return found
