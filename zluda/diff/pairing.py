"""What of one trace goes with what of another: launches and copies in order, allocations by birth."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from heapq import merge
from itertools import groupby
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


def is_part(left: Trace, right: Trace) -> bool:
    """Whether one was cut from the other, or both from one recording: calls have the same numbers then."""
    recorded = [trace.meta.get("start_ns") for trace in (left, right)]
    cut = "cut_from" in left.meta or "cut_from" in right.meta
    return cut and recorded[0] is not None and recorded[0] == recorded[1]


def pairs_of_parts(left: Trace, right: Trace) -> Iterator[tuple[Event | None, Event | None]]:
    """What has one number goes together; None where the other has nothing of that number."""
    tagged = merge(
        ((call_of(event), 0, event) for event in events(left)),
        ((call_of(event), 1, event) for event in events(right)),
        key=lambda entry: entry[:2],
    )
    for _, group in groupby(tagged, key=lambda entry: entry[0]):
        sides: list[Event | None] = [None, None]
        for _, side, event in group:
            sides[side] = event
        yield sides[0], sides[1]


def pair_allocations(left: Trace, right: Trace) -> dict[int, int]:
    """Left allocation id → right allocation id: the n-th of a kind, name and size with the n-th; of parts of
    one recording, what lies at one place.
    """
    key = _place_key if is_part(left, right) else _pair_key
    waiting: dict[tuple[str, str | int, int], list[int]] = defaultdict(list)
    for allocation in reversed(_by_birth(right)):
        waiting[key(allocation)].append(allocation.id)
    return {
        allocation.id: waiting[key(allocation)].pop()
        for allocation in _by_birth(left)
        if waiting[key(allocation)]
    }


def _by_birth(trace: Trace) -> list[Allocation]:
    return sorted(trace.allocations, key=attrgetter("born", "id"))


def _place_key(allocation: Allocation) -> tuple[str, str | int, int]:
    return allocation.kind.value, allocation.base, allocation.born


def _pair_key(allocation: Allocation) -> tuple[str, str | int, int]:
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
