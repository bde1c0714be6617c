"""Host memory for blocks and waves: mapped, not backed until touched."""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
from typing import Any

from zluda.device.amd.emulator.state import APERTURE_BITS
from zluda.errors import DeviceError

_PROT_READ_WRITE, _MAP_PRIVATE, _MAP_ANONYMOUS = 3, 0x02, 0x20
_MAP_NORESERVE, _MAP_FIXED_NOREPLACE = 0x4000, 0x100000
_APERTURES = range(0x3000, 0x6000)  # upper halves of host addresses that are seldom taken
_apertures = itertools.cycle(_APERTURES)  # round and round: those of closed devices are free again


@functools.cache
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return libc


def _map(size: int, address: int | None = None) -> int | None:
    """Map ``size`` bytes, at ``address`` exactly if given; None where that is not possible."""
    flags = _MAP_PRIVATE | _MAP_ANONYMOUS | _MAP_NORESERVE
    flags |= _MAP_FIXED_NOREPLACE if address is not None else 0
    result = _libc().mmap(address or 0, size, _PROT_READ_WRITE, flags, -1, 0)
    if result is None or result == ctypes.c_void_p(-1).value:
        return None
    if address is not None and result != address:  # kernels before 4.17 take the address as a hint
        _libc().munmap(result, size)
        return None
    return int(result)


class Mapping:
    """Anonymous memory, zero at first. ``address`` is its start; freed with the object."""

    def __init__(self, size: int, address: int | None = None) -> None:
        self.size = 0  # until there is something to unmap
        place = _map(size, address)
        if place is None:
            reason = os.strerror(ctypes.get_errno())
            raise DeviceError("emulator", f"cannot map {size} bytes for waves: {reason}")
        self.address, self.size = place, size

    def close(self) -> None:
        if self.size:
            _libc().munmap(self.address, self.size)
            self.size = 0

    def __del__(self) -> None:
        self.close()


def map_aperture(size: int) -> Mapping:
    """Memory that begins at a multiple of 4 GiB: LDS, whose flat addresses are then host addresses."""
    for upper in itertools.islice(_apertures, len(_APERTURES)):
        try:
            return Mapping(size, upper << APERTURE_BITS)
        except DeviceError:
            continue
    raise DeviceError("emulator", "no address space is left for LDS")
