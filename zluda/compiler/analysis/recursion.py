"""Which functions may be on the stack more than once."""

from __future__ import annotations

from collections.abc import Mapping


def recursive(calls: Mapping[str, set[str]]) -> frozenset[str]:
    """Functions on a cycle of calls, and those between two cycles. ``calls`` is who calls whom."""
    left = {name: called & calls.keys() for name, called in calls.items()}
    while True:
        called = set().union(*left.values())
        ends = [name for name, callees in left.items() if not callees or name not in called]
        if not ends:
            return frozenset(left)
        for name in ends:
            del left[name]
        left = {name: callees & left.keys() for name, callees in left.items()}
