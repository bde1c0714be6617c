"""Memory of a HIP device: at wanted addresses where the runtime can, wherever it likes else.

``hipMemAddressReserve`` and ``hipMemMap`` (HIP 6) place memory as CUDA's virtual memory management does.
HIP 5 exports them and gives null; so what counts is whether the wanted address comes back. A range that
cannot be had is noted, and whoever asks for an address in it is refused with that reason.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from zluda.device.amd.hip.runtime import Runtime
from zluda.device.claims import Claims, union
from zluda.device.results import CudaError
from zluda.errors import DeviceError
from zluda.records import dataclass

GRANULE = 2 << 20
_FILLS = {1: "hipMemsetD8", 2: "hipMemsetD16", 4: "hipMemsetD32"}


@dataclass(frozen=True, slots=True)
class Range:
    """A reserved and backed range; ``handle`` is what backs it."""

    start: int
    size: int
    handle: int


class HipMemory:
    """Allocations of one GPU.

    ``reservations`` are (address, size) ranges for ``allocate(address=…)``; ``refused`` is, of those that
    could not be had, (address, size) → why not. Methods raise DeviceError with HIP's own words.
    """

    def __init__(
        self, runtime: Runtime, device: int, name: str, reservations: Sequence[tuple[int, int]] = ()
    ) -> None:
        self._runtime, self._device, self._name = runtime, device, name
        self._ranges: list[Range] = []
        self._claims = Claims()
        self._plain: set[int] = set()
        self.refused: dict[tuple[int, int], str] = {}
        for start, size in union(reservations, GRANULE):
            try:
                self._reserve(start, size)
            except (CudaError, DeviceError) as error:
                self.refused[start, size] = str(error)
            else:
                self._claims.add_range(start, size)

    # --- allocation ------------------------------------------------------------------------------------

    def allocate(self, size: int, address: int | None = None) -> int:
        """``size`` bytes, at ``address`` if given."""
        if address is None:
            made = int(self._call("hipMalloc", max(size, 1)))
            self._plain.add(made)
            return made
        why_not = self._claims.claim(address, max(size, 1))
        if why_not is not None:
            raise DeviceError(self._name, self._reason(address) or why_not)
        return address

    def free(self, address: int) -> None:
        if self._claims.give_back(address):
            self._call("hipDeviceSynchronize")  # as hipFree does: what runs may still use it
            return
        if address not in self._plain:
            raise DeviceError(self._name, f"{address:#x} is not the start of an allocation")
        self._plain.discard(address)
        self._call("hipFree", address)

    def close(self) -> None:
        """Free everything."""
        while self._plain:
            self._call("hipFree", self._plain.pop())
        for r in self._ranges:
            self._call("hipMemUnmap", r.start, r.size)
            self._call("hipMemRelease", r.handle)
            self._call("hipMemAddressFree", r.start, r.size)
        self._ranges.clear()
        self._claims.clear()

    # --- contents --------------------------------------------------------------------------------------

    def read(self, address: int, size: int) -> bytes:
        if not size:
            return b""
        data = ctypes.create_string_buffer(size)
        self._call("hipMemcpyDtoH", ctypes.addressof(data), address, size)
        return data.raw

    def write(self, address: int, data: bytes | bytearray | memoryview) -> None:
        size = memoryview(data).nbytes
        if size:
            source = (ctypes.c_char * size).from_buffer_copy(data)
            self._call("hipMemcpyHtoD", address, ctypes.addressof(source), size)

    def copy(self, destination: int, source: int, size: int) -> None:
        if size:
            self._call("hipMemcpyDtoD", destination, source, size)

    def fill(self, address: int, pattern: bytes, count: int) -> None:
        """Write ``pattern`` (1, 2 or 4 bytes) ``count`` times."""
        if count:
            self._call(_FILLS[len(pattern)], address, int.from_bytes(pattern, "little"), count)

    # --- wanted addresses --------------------------------------------------------------------------------

    def _reserve(self, start: int, size: int) -> None:
        got = int(self._runtime.call("hipMemAddressReserve", size, 0, start, 0) or 0)
        if got != start:
            if got:
                self._runtime.call("hipMemAddressFree", got, size)
            offer = (
                f"it offers {got:#x}" if got else f"HIP {self._runtime.version_text} reserves no addresses"
            )
            raise DeviceError(self._name, f"{start:#x}+{size:#x} cannot be had: {offer}")
        try:
            self._ranges.append(Range(start, size, self._back(start, size)))
        except CudaError:
            self._runtime.call("hipMemAddressFree", start, size)
            raise

    def _back(self, start: int, size: int) -> int:
        """Memory for a reserved range, readable and writable; its handle."""
        runtime, binding = self._runtime, self._runtime.binding
        properties = binding.hipMemAllocationProp()
        properties.type = runtime.constant("hipMemAllocationType", "hipMemAllocationTypePinned")
        properties.location.type = runtime.constant("hipMemLocationType", "hipMemLocationTypeDevice")
        properties.location.id = self._device
        access = binding.hipMemAccessDesc()
        access.location.type, access.location.id = properties.location.type, self._device
        access.flags = runtime.constant("hipMemAccessFlags", "hipMemAccessFlagsProtReadWrite")
        handle = int(runtime.call("hipMemCreate", size, properties, 0))
        try:
            runtime.call("hipMemMap", start, size, 0, handle, 0)
        except CudaError:
            runtime.call("hipMemRelease", handle)
            raise
        try:
            runtime.call("hipMemSetAccess", start, size, access, 1)
        except CudaError:
            runtime.call("hipMemUnmap", start, size)
            runtime.call("hipMemRelease", handle)
            raise
        return handle

    def _reason(self, address: int) -> str:
        """Why the range around ``address`` is not there, where it was asked for."""
        for (start, size), why_not in self.refused.items():
            if start <= address < start + size:
                return why_not
        return ""

    def _call(self, entry: str, *arguments: object) -> Any:
        try:
            return self._runtime.call(entry, *arguments)
        except CudaError as error:
            raise DeviceError(self._name, str(error)) from error
