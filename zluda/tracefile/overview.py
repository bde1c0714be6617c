"""What a trace holds, as one object: what ``zluda info`` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zluda.tracefile.libraries import launches_inside, library_of
from zluda.tracefile.records import Allocation

if TYPE_CHECKING:
    from zluda.tracefile.reader import Trace


def overview(trace: Trace) -> dict[str, Any]:
    """The trace's file, `meta`, counts, and a row for each kernel, module and kind of gap; JSON can hold
    it.
    """
    counts = trace.counts()
    with_ptx = {module.id for module in trace.module_list if module.ptx_image is not None}
    kernels = trace.kernels()
    timed, gpu_time_ns = trace.gpu_total()
    clocks = trace.gpu_clocks.values()
    gaps: dict[tuple[str, str], int] = {}
    for gap in trace.gaps:
        gaps[gap.kind, gap.text] = gaps.get((gap.kind, gap.text), 0) + gap.times
    return {
        "trace": str(trace.path),
        "file_bytes": trace.path.stat().st_size,
        "meta": trace.meta,
        "counts": counts._asdict() | {"allocated_bytes": peak_bytes(trace.allocations)},
        "kernels": [
            {"kernel": name, "module": module, "launches": launches, "gpu_time_ns": time_ns}
            for name, module, launches, time_ns in kernels
        ],
        "gpu_times": {
            "timed": timed,
            "gpu_time_ns": gpu_time_ns,
            "clock_error_ns": max((clock.error_ns for clock in clocks), default=None),
        },
        "left_out": {kind.name.lower(): count for kind, count in trace.left_out().items()},
        "launches_with_ptx": sum(n for _, module, n, _ in kernels if module in with_ptx),
        "fidelity": trace.fidelities(),
        "libraries": _libraries(trace),
        "modules": [
            {
                "module": module.id,
                "kind": module.kind.value,
                "origin": module.origin,
                "load_call": module.load_call,
                "unload_call": module.unload_call,
                "image_bytes": module.images[0].size if module.images else 0,
                "ptx": None if module.ptx_image is None else module.ptx_image.architecture,
            }
            for module in trace.module_list
        ],
        "gaps": [
            {"kind": kind, "text": text, "count": count}
            for (kind, text), count in sorted(gaps.items(), key=lambda item: -item[1])
        ],
        "unproved": [
            {"call": row.call, "kernel": _name(trace, row.call), "verdict": row.verdict, "reason": row.reason}
            for row in trace.unproved
        ],
        "open_calls": [
            {"call": number, "function": trace.call(number).function} for number in trace.open_calls()
        ],
    }


def _name(trace: Trace, call: int) -> str:
    """The kernel that a call launched, else its function."""
    launch = next(trace.iter_launches(call, call + 1), None)
    return trace.call(call).function if launch is None else launch.kernel


def _libraries(trace: Trace) -> list[dict[str, Any]]:
    """A row for each library inside whose calls something was launched."""
    found: dict[str, dict[str, Any]] = {}
    for function, launches, time_ns in launches_inside(trace):
        name = str(library_of(function))
        row = found.setdefault(name, {"library": name, "functions": {}, "launches": 0, "gpu_time_ns": None})
        row["functions"][function] = launches
        row["launches"] += launches
        if time_ns is not None:
            row["gpu_time_ns"] = (row["gpu_time_ns"] or 0) + time_ns
    return list(found.values())


def peak_bytes(allocations: list[Allocation]) -> int:
    """The most bytes that were allocated at one time."""
    changes = [(a.born, a.size) for a in allocations]
    changes += [(a.died, -a.size) for a in allocations if a.died is not None]
    live = most = 0
    for _, change in sorted(changes):  # of one call, what it freed comes first
        live += change
        most = max(most, live)
    return most
