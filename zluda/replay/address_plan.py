"""Which addresses a replay needs (D4): the union of the record's allocations, in 2 MiB steps.

CUDA sub-allocates at 512-byte steps inside larger mappings; mapping each allocation by itself would fail with
EINVAL. So the rounded union is reserved, and allocations are placed inside it.
"""

from __future__ import annotations

from collections.abc import Iterable

from zluda.records import dataclass
from zluda.runner.near import GRANULE, merged
from zluda.tracefile import Allocation, AllocationKind

ADDRESS_LIMIT = 1 << 47
"""User addresses of x86-64 end here."""

# Memory that a driver call makes, as opposed to the host's own.
PLACED_KINDS = frozenset(
    (AllocationKind.DEVICE, AllocationKind.POOL, AllocationKind.MANAGED, AllocationKind.VIRTUAL)
)


@dataclass(frozen=True, slots=True)
class AddressPlan:
    """``reservations``: sorted, disjoint (address, size) ranges; ``unplaceable``: allocation id → why not."""

    reservations: tuple[tuple[int, int], ...]
    unplaceable: dict[int, str]


def plan_addresses(allocations: Iterable[Allocation], *, place_globals: bool) -> AddressPlan:
    """Plan for ``allocations``; ``place_globals`` where the device can put globals at given addresses."""
    kinds = PLACED_KINDS | ({AllocationKind.GLOBAL} if place_globals else frozenset())
    wanted: list[tuple[int, int]] = []
    unplaceable: dict[int, str] = {}
    for allocation in allocations:
        if allocation.kind not in kinds:
            continue
        if allocation.base < GRANULE or allocation.end > ADDRESS_LIMIT:
            kind, base = allocation.kind.value, allocation.base
            unplaceable[allocation.id] = (
                f"the {kind} allocation at {base:#x} cannot be mapped at that address"
            )
        elif allocation.size:
            wanted.append((allocation.base, allocation.size))
    return AddressPlan(tuple(merged(wanted)), unplaceable)
