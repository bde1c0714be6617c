"""Which allocations a launch can reach: the one rule that capture and replay share (D3).

A launch reaches an allocation when

1. an 8-byte aligned word of its packed parameters is an address inside it (device pointers are 8-byte
   aligned in the parameter buffer, CUDA C++ Programming Guide "kernel parameters"), or
2. it is a global of the launch's module (``roots``), or
3. an 8-byte aligned word *stored in* an allocation of rule 1 or 2 that is smaller than
   :data:`NESTED_LIMIT` is an address inside it (one level: pointers found there are not followed).

A word may also be the handle of a live texture or surface object: it then reaches what that object is made
of, an array or linear memory. What texture and surface references are bound to, any launch reaches.

A word that merely looks like an address makes the set larger, never smaller; what is compared on top is
harmless because memory nobody writes compares equal.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator

NESTED_LIMIT = 1 << 20
"""Bytes; contents of allocations at least this large are not scanned for pointers."""


class LiveSpans:
    """Address ranges of the live allocations, found by any address inside; keys are allocation ids."""

    def __init__(self) -> None:
        self._bases: list[int] = []
        self._at: dict[int, tuple[int, int]] = {}  # base → (size, key)
        self._base_of: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._bases)

    def __iter__(self) -> Iterator[int]:
        return (self._at[base][1] for base in self._bases)

    def __contains__(self, key: object) -> bool:
        return key in self._base_of

    def add(self, key: int, base: int, size: int) -> None:
        """Add a live allocation of ``size`` bytes. A dead one left at the same base is replaced."""
        if base in self._at:
            del self._base_of[self._at[base][1]]
        else:
            insort(self._bases, base)
        self._at[base] = (size, key)
        self._base_of[key] = base

    def remove(self, key: int) -> None:
        """Take an allocation out; one that is not there is ignored (freed twice in the record)."""
        base = self._base_of.pop(key, None)
        if base is not None:
            del self._at[base]
            self._bases.remove(base)

    def find(self, address: int) -> int | None:
        """The key of the allocation that ``address`` lies in."""
        index = bisect_right(self._bases, address) - 1
        if index < 0:
            return None
        base = self._bases[index]
        size, key = self._at[base]
        return key if address - base < size else None

    def overlapping(self, base: int, size: int) -> list[int]:
        """The keys of the allocations that share bytes with ``[base, base + size)``."""
        first = max(bisect_right(self._bases, base) - 1, 0)
        last = bisect_left(self._bases, base + size)
        return [self._at[one][1] for one in self._bases[first:last] if one + self._at[one][0] > base]

    def range_of(self, key: int) -> tuple[int, int]:
        """(base, size in bytes) of a live allocation."""
        base = self._base_of[key]
        return base, self._at[base][0]

    def pointed_to(self, data: bytes | memoryview) -> list[int]:
        """Keys that the 8-byte aligned words of ``data`` point into, each once, in order of first mention."""
        if not self._bases:
            return []
        first, last = self._bases[0], self._bases[-1]
        end = last + self._at[last][0]
        words = memoryview(data)[: len(data) // 8 * 8].cast("B").cast("Q")
        # Most words are no addresses at all; this comparison is what a large buffer costs.
        found = (self.find(word) for word in words if first <= word < end)
        return list(dict.fromkeys(key for key in found if key is not None))


def reachable(
    parameters: bytes,
    spans: LiveSpans,
    read: Callable[[int], bytes | memoryview],
    roots: Iterable[int] = (),
    named: Callable[[bytes | memoryview], Iterable[int]] = lambda data: (),
) -> list[int]:
    """Keys of the allocations that a launch reaches, each once, direct ones first.

    ``parameters`` is the packed parameter buffer; ``read(key)`` gives the contents of an allocation before
    the launch and is only asked for allocations below :data:`NESTED_LIMIT`; ``roots`` are the keys of the
    module's globals; ``named(data)`` those that objects reach whose handles are words of ``data``.
    """
    direct = dict.fromkeys(spans.pointed_to(parameters))
    direct.update(dict.fromkeys(roots))
    direct.update(dict.fromkeys(named(parameters)))
    found = dict(direct)
    for key in direct:
        if key in spans and spans.range_of(key)[1] < NESTED_LIMIT:
            contents = read(key)
            found.update(dict.fromkeys(spans.pointed_to(contents)))
            found.update(dict.fromkeys(named(contents)))
    return list(found)
