"""Allocations claimed at wanted addresses inside ranges that were reserved and backed as a whole.

Drivers map memory in steps of 2 MiB while CUDA programs allocate in steps of 512 bytes.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence


class Claims:
    """Which bytes of the usable ranges are taken."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []
        self._starts: list[int] = []  # of live allocations, sorted
        self._sizes: dict[int, int] = {}

    def add_range(self, start: int, size: int) -> None:
        """Allocations may be claimed in ``size`` bytes from ``start``."""
        self._ranges.append((start, size))

    def claim(self, address: int, size: int) -> str | None:
        """Take ``size`` bytes at ``address``; None, or why they cannot be had."""
        end = address + size
        if not any(start <= address and end <= start + length for start, length in self._ranges):
            return f"{address:#x}+{size:#x} is in no reserved range"
        at = bisect.bisect_right(self._starts, address)
        before = self._starts[at - 1] if at else None
        after = self._starts[at] if at < len(self._starts) else None
        overlaps = before is not None and before + self._sizes[before] > address
        if overlaps or (after is not None and after < end):
            return f"{address:#x}+{size:#x} is taken"
        self._starts.insert(at, address)
        self._sizes[address] = size
        return None

    def give_back(self, address: int) -> bool:
        """Free an allocation; false where none begins at ``address``."""
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

    def clear(self) -> None:
        """Forget everything."""
        self._ranges.clear()
        self._starts.clear()
        self._sizes.clear()


def union(ranges: Sequence[tuple[int, int]], step: int) -> list[tuple[int, int]]:
    """The union of (address, size) ranges, rounded outwards to ``step``: sorted and disjoint."""
    result: list[tuple[int, int]] = []
    for start, size in sorted(ranges):
        first, last = start // step * step, -(-(start + size) // step) * step
        if result and first <= sum(result[-1]):
            before, length = result.pop()
            first, last = before, max(last, before + length)
        result.append((first, last - first))
    return result
