"""Words for accesses that go wrong: the same on every device."""

from __future__ import annotations

from collections.abc import Iterable

from zluda.device.base import Dim3

_GUARD = 512


def guard_bytes(check: str) -> int:
    """How much memory behind each allocation belongs to nobody, where accesses are held against them."""
    return _GUARD if check == "memory" else 0


def outside(address: int, size: int, allocations: Iterable[tuple[int, int]]) -> str:
    """An access outside every allocation, with the nearest of them; ``allocations`` are (start, size)."""
    access = f"{size} bytes at {address:#x}" if size else f"{address:#x}"
    nearest = min(allocations, key=lambda a: _distance(address, size, *a), default=None)
    if nearest is None:
        return f"{access}; nothing is allocated"
    start, length = nearest
    there = f"the nearest allocation is {length} bytes at {start:#x}"
    if address < start:
        return f"{access}; {there}, {start - address} bytes further on"
    if address >= start + length:
        return f"{access}; {there}, which ends {address - start - length} bytes before"
    return f"{access}; {there}, which ends within the access"


def _distance(address: int, size: int, start: int, length: int) -> int:
    return max(start - address, address + size - start - length, 0)


def thread_index(number: int, block: Dim3) -> Dim3:
    """A thread's index in its block, from its number."""
    return (number % block[0], number // block[0] % block[1], number // (block[0] * block[1]))
