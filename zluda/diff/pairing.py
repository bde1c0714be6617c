"""What of one trace goes with what of another: launches and copies in order, allocations by birth."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from heapq import merge
from operator import attrgetter

from zluda.tracefile import Allocation, Call, Launch, Trace

Event = Launch | Call
"""A launch, or a copy to the host."""

Span = tuple[int, int]
"""[start, end) of an allocation."""


def events(trace: Trace, start: int = 0) -> Iterator[Event]:
    """Launches and copies to the host from call ``start`` on, in call order."""
    copies = (copy for copy in trace.iter_copies() if copy.sequence >= start)
    return merge(trace.iter_launches(start), copies, key=call_of)


def call_of(event: Event) -> int:
    return event.call if isinstance(event, Launch) else event.sequence


def name_of(event: Event) -> str:
    """The kernel of a launch, the driver function of a copy."""
    return event.kernel if isinstance(event, Launch) else event.function


def pair_allocations(left: Trace, right: Trace) -> dict[int, int]:
    """Left allocation id → right allocation id: the n-th of a kind, name and size with the n-th."""
    waiting: dict[tuple[str, str, int], list[int]] = defaultdict(list)
    for allocation in reversed(_by_birth(right)):
        waiting[_pair_key(allocation)].append(allocation.id)
    return {
        allocation.id: waiting[_pair_key(allocation)].pop()
        for allocation in _by_birth(left)
        if waiting[_pair_key(allocation)]
    }


def _by_birth(trace: Trace) -> list[Allocation]:
    return sorted(trace.allocations, key=attrgetter("born", "id"))


def _pair_key(allocation: Allocation) -> tuple[str, str, int]:
    return allocation.kind.value, allocation.name, allocation.size


def union(first: dict[int, list[Span]], second: dict[int, list[Span]]) -> dict[int, list[Span]]:
    """Spans of both, by allocation, joined where they meet."""
    found: dict[int, list[Span]] = {}
    for key in first.keys() | second.keys():
        spans: list[Span] = []
        for start, end in sorted([*first.get(key, []), *second.get(key, [])]):
            if spans and start <= spans[-1][1]:
                spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
            else:
                spans.append((start, end))
        found[key] = spans
    return found


def both_known(first: bytes | None, second: bytes | None) -> bytes | None:
    """Known on both sides."""
    if first is None or second is None:
        return second if first is None else first
    size = len(first)
    return (int.from_bytes(first, "little") & int.from_bytes(second, "little")).to_bytes(size, "little")
