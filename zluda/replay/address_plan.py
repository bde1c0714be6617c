"""Which addresses a replay needs (D4): the union of the record's allocations, in 2 MiB steps.

CUDA sub-allocates at 512-byte steps inside larger mappings; mapping each allocation by itself would fail with
EINVAL, so what is reserved is the rounded union, and allocations are placed inside.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from zluda.tracefile import Allocation, AllocationKind

GRANULARITY = 2 << 20
"""Bytes; the step in which GPUs and the runner reserve addresses."""

ADDRESS_LIMIT = 1 << 47
"""User addresses of x86-64 end here."""

# Memory that a driver call makes, as opposed to the host's own.
PLACED_KINDS = frozenset(
    (AllocationKind.DEVICE, AllocationKind.POOL, AllocationKind.MANAGED, AllocationKind.VIRTUAL)
)


@dataclass(frozen=True, slots=True)
class AddressPlan:
    """``reservations`` are sorted, disjoint (address, size) ranges; ``unplaceable`` says why an allocation is not in."""

    reservations: tuple[tuple[int, int], ...]
    unplaceable: dict[int, str]


def plan_addresses(allocations: Iterable[Allocation], *, place_globals: bool) -> AddressPlan:
    """Plan a replay of ``allocations``; ``place_globals`` where the device can put globals at given addresses."""
    wanted: list[tuple[int, int]] = []
    unplaceable: dict[int, str] = {}
    for allocation in allocations:
        if allocation.kind not in PLACED_KINDS and not (
            place_globals and allocation.kind is AllocationKind.GLOBAL
        ):
            continue
        why = _unplaceable(allocation)
        if why:
            unplaceable[allocation.id] = why
        elif allocation.size:
            start = allocation.base // GRANULARITY * GRANULARITY
            wanted.append((start, -(-allocation.end // GRANULARITY) * GRANULARITY))
    return AddressPlan(tuple(_merged(wanted)), unplaceable)


def _unplaceable(allocation: Allocation) -> str:
    if allocation.base < GRANULARITY or allocation.end > ADDRESS_LIMIT:
        return (
            f"the {allocation.kind.value} allocation at {allocation.base:#x} cannot be mapped at that address"
        )
    return ""


def _merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], stop))
        else:
            merged.append((start, stop))
    return [(start, stop - start) for start, stop in merged]
