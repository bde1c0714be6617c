"""What of a trace's calls would not replay, by the table of handlers."""

from __future__ import annotations

from collections.abc import Iterator

from zluda.isolate.check.results import Finding, Kind
from zluda.replay.handlers import HANDLERS, UNIFIED_COPIES
from zluda.replay.names import changes_state, entry_name
from zluda.tracefile import Trace
from zluda.tracefile.libraries import library_of


def call_findings(trace: Trace) -> Iterator[Finding]:
    """Calls that succeeded on NVIDIA, have an effect, and have no handler; then what was not captured."""
    libraries = [number for number, one in trace.signatures.items() if library_of(one.function)]
    made: dict[str, int] = {}
    for number, count in trace.calls_made(libraries).items():
        function = trace.signatures[number].function
        made[function] = made.get(function, 0) + count
    for function, count in sorted(made.items()):
        if is_replayed(function):
            continue
        yield Finding(Kind.CALL, f"{function}: has an effect that is not replayed", count=count)
    gaps: dict[tuple[str, str], int] = {}
    functions = {one.function for one in trace.signatures.values()}
    for gap in trace.gaps:
        if gap.kind in functions:  # told above, where it matters
            continue
        gaps[gap.kind, gap.text] = gaps.get((gap.kind, gap.text), 0) + gap.times
    for (kind, text), count in gaps.items():
        yield Finding(Kind.GAP, f"{kind}: {text}", count=count)


def is_replayed(function: str) -> bool:
    """Whether a recorded function is issued again, or need not be."""
    base = entry_name(function).base
    return base in HANDLERS or base in UNIFIED_COPIES or not changes_state(function)
