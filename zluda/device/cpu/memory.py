"""Device memory of the CPU device: one memfd, mapped where the trace had it.

The memory file is the concatenation of the mapped ranges, so another process that is handed the file
descriptor sees every byte at ``file_offset(address)``. Sub-allocations are 512-byte aligned, as CUDA's are.
"""

from __future__ import annotations

import bisect
import ctypes
import mmap
import os
from collections.abc import Iterator, Sequence

from zluda.errors import DeviceError
from zluda.records import dataclass

ALIGNMENT = 512
GRANULE = 2 << 20
DEFAULT_ARENA = 1 << 36  # address space only: pages are backed when touched
# Where the arena goes if it can. A mapping of many GiB amid the libraries would drive later small ones to
# either side of it, and machine code reaches its data and the runtime within 2 GiB only.
ARENA_HINT = 0x2000_0000_0000

_MAP_SHARED, _MAP_FIXED_NOREPLACE, _MAP_NORESERVE = 0x01, 0x100000, 0x4000
_PROT_READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step


@dataclass(frozen=True, slots=True)
class Range:
    """A mapped address range: ``start`` and ``size`` in bytes, and where it lies in the memory file."""

    start: int
    size: int
    file_offset: int

    @property
    def end(self) -> int:
        return self.start + self.size


class _Libc:
    """mmap and munmap with addresses as plain integers (Python's mmap cannot ask for a place)."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self.mmap = libc.mmap
        self.mmap.restype = ctypes.c_void_p
        self.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        self.munmap = libc.munmap
        self.munmap.restype = ctypes.c_int
        self.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]

    def map(self, fd: int, size: int, file_offset: int, address: int | None) -> int:
        """Map ``size`` bytes of ``fd``; at ``address`` exactly when given, else near the arena's place.

        Raises DeviceError.
        """
        flags = _MAP_SHARED | _MAP_NORESERVE | (_MAP_FIXED_NOREPLACE if address is not None else 0)
        wanted = ARENA_HINT if address is None else address
        result = self.mmap(wanted, size, _PROT_READ_WRITE, flags, fd, file_offset)
        if result is None or result == ctypes.c_void_p(-1).value:
            reason = os.strerror(ctypes.get_errno())
            place = "" if address is None else f" at {address:#x}"
            raise DeviceError("cpu", f"cannot map {size} bytes of device memory{place}: {reason}")
        if address is not None and result != address:  # kernels before 4.17 take the address as a hint
            self.munmap(result, size)
            raise DeviceError("cpu", f"address {address:#x} is taken in this process")
        return int(result)


class Memory:
    """An arena of device memory.

    ``reservations`` are the ``(start, size)`` ranges to map at exactly these addresses (rounded outwards to
    2 MiB), for allocations that name their address. All others come from an arena of ``capacity`` bytes of
    address space, mapped wherever there is room, so that they never take an address that is wanted later.
    ``guard`` bytes behind each of those belong to nobody, and its size is not rounded: accesses past its end
    can then be told from accesses to what follows.
    """

    def __init__(
        self,
        reservations: Sequence[tuple[int, int]] = (),
        *,
        capacity: int = DEFAULT_ARENA,
        guard: int = 0,
        fd: int | None = None,
    ) -> None:
        self._libc = _Libc()
        self.fd = os.memfd_create("zluda-device", os.MFD_CLOEXEC) if fd is None else fd
        self.ranges: list[Range] = []
        self._file_size = 0
        self._free: list[tuple[int, int]] = []  # (start, size), sorted, never touching
        self._guard = guard
        self._live: dict[int, tuple[int, int]] = {}  # start -> size, and size taken
        for start, size in _merged(reservations):
            self._add_range(size, start)
        self._arena = self._add_range(_round_up(capacity, GRANULE), None)

    def _add_range(self, size: int, start: int | None) -> Range:
        file_offset = self._file_size
        try:
            os.ftruncate(self.fd, file_offset + size)
        except OSError as error:  # in a runner that is confined, memory no longer grows
            place = "" if start is None else f" at {start:#x}"
            reason = error.strerror
            raise DeviceError("cpu", f"cannot add {size} bytes of device memory{place}: {reason}") from error
        address = self._libc.map(self.fd, size, file_offset, start)
        self._file_size += size
        added = Range(address, size, file_offset)
        bisect.insort(self.ranges, added, key=lambda r: r.start)
        self._give(address, size)
        return added

    # --- allocation ------------------------------------------------------------------------------------

    def allocate(self, size: int, address: int | None = None) -> int:
        """Reserve ``size`` bytes, at ``address`` if given. Raises DeviceError when there is no room.

        At a wanted address nothing is rounded: module variables lie closer together than allocations do.
        """
        size = taken = max(size, 1)
        if address is None:
            taken = _round_up(size + self._guard, ALIGNMENT)
            size = size if self._guard else taken
            start = self._find(taken)
        else:
            start = self._claim(address, size)
        self._take(start, taken)
        self._live[start] = size, taken
        return start

    def free(self, address: int) -> None:
        """Give an allocation back. Raises DeviceError for anything that is not one."""
        sizes = self._live.pop(address, None)
        if sizes is None:
            raise DeviceError("cpu", f"{address:#x} is not the start of an allocation")
        self._give(address, sizes[1])

    def allocations(self) -> Iterator[tuple[int, int]]:
        """(start, size) of everything allocated, in no particular order."""
        return ((start, size) for start, (size, _) in self._live.items())

    def _find(self, size: int) -> int:
        for block, free in self._free:
            start = _round_up(max(block, self._arena.start), ALIGNMENT)
            end = min(block + free, self._arena.end)
            if end - start >= size:
                return start
        raise DeviceError("cpu", f"out of device memory: {size} bytes wanted")

    def _claim(self, address: int, size: int) -> int:
        if not any(r.start <= address and address + size <= r.end for r in self.ranges):
            self._add_range(_round_up(address % GRANULE + size, GRANULE), address - address % GRANULE)
        i = bisect.bisect_right(self._free, (address, 1 << 64)) - 1
        if i < 0 or self._free[i][0] + self._free[i][1] < address + size:
            raise DeviceError("cpu", f"{size} bytes at {address:#x} are allocated already")
        return address

    def _take(self, start: int, size: int) -> None:
        i = bisect.bisect_right(self._free, (start, 1 << 64)) - 1
        block, free = self._free.pop(i)
        pieces = [(block, start - block), (start + size, block + free - start - size)]
        self._free[i:i] = [piece for piece in pieces if piece[1]]

    def _give(self, start: int, size: int) -> None:
        i = bisect.bisect_left(self._free, (start, 0))
        if i < len(self._free) and start + size == self._free[i][0]:
            size += self._free.pop(i)[1]
        if i > 0 and sum(self._free[i - 1]) == start:
            i -= 1
            previous = self._free.pop(i)
            start, size = previous[0], previous[1] + size
        self._free.insert(i, (start, size))

    # --- access ----------------------------------------------------------------------------------------

    def file_offset(self, address: int, size: int = 1) -> int:
        """Where ``address`` lies in the memory file. Raises DeviceError when it is not mapped."""
        for r in self.ranges:
            if r.start <= address and address + size <= r.end:
                return r.file_offset + address - r.start
        raise DeviceError("cpu", f"{size} bytes at {address:#x} are outside device memory")

    def view(self, address: int, size: int) -> memoryview:
        """The bytes themselves, writable. Raises DeviceError when they are not mapped."""
        self.file_offset(address, size)
        return memoryview((ctypes.c_char * size).from_address(address)).cast("B")

    def read(self, address: int, size: int) -> bytes:
        """A copy of ``size`` bytes."""
        return bytes(self.view(address, size)) if size else b""

    def write(self, address: int, data: bytes | bytearray | memoryview) -> None:
        """Copy ``data`` to ``address``."""
        source = memoryview(data).cast("B")
        if len(source):
            self.view(address, len(source))[:] = source

    def close(self) -> None:
        """Unmap everything and close the file."""
        for r in self.ranges:
            self._libc.munmap(r.start, r.size)
        self.ranges.clear()
        self._free.clear()
        self._live.clear()
        os.close(self.fd)


def _merged(reservations: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The union of ranges as 2 MiB aligned (start, size), in order."""
    result: list[tuple[int, int]] = []
    for start, size in sorted(reservations):
        first, last = start - start % GRANULE, _round_up(start + size, GRANULE)
        if result and first <= sum(result[-1]):
            first, last = result[-1][0], max(last, sum(result.pop()))
        result.append((first, last - first))
    return result


class HostMemory:
    """The memory part of :class:`zluda.device.base.Device`, where a :class:`Memory` is behind it."""

    memory: Memory

    def allocate(self, size: int, *, address: int | None = None) -> int:
        return self.memory.allocate(size, address)

    def free(self, address: int) -> None:
        self.memory.free(address)

    def read(self, address: int, size: int) -> bytes:
        return self.memory.read(address, size)

    def write(self, address: int, data: bytes | bytearray | memoryview) -> None:
        self.memory.write(address, data)

    def copy(self, destination: int, source: int, size: int) -> None:
        self.memory.write(destination, self.memory.read(source, size))

    def fill(self, address: int, pattern: bytes, count: int) -> None:
        self.memory.write(address, pattern * count)
