"""What the agent counts in the control page, on record at the end: what was lost, and what capturing cost."""

from __future__ import annotations

from zluda.tracefile.ring import Control
from zluda.tracefile.writer import TraceWriter

_LOSSES = {
    "LOST_CALLS": ("recorder", "the recorder did not keep up, or was gone; calls after that are lost"),
    "LOST_THREADS": (
        "thread",
        "threads without a ring (no space or no descriptor for it); their calls are lost",
    ),
    "CHILDRENS_CALLS": ("child", "calls of forked children that are not followed"),
}
_COSTS = {
    "STALL_NS": "stall_ns",
    "LOOKED_BYTES": "bytes_looked_at",
    "MOVED_BYTES": "bytes_moved",
    "WAIT_NS": "wait_ns",
    "LOOK_NS": "look_ns",
    "WRITE_NS": "write_ns",
}


def note_counts(control: Control, writer: TraceWriter) -> None:
    """Write them: of a recording that ended, or whose recorder was killed."""
    for name, (kind, text) in _LOSSES.items():
        if control[name]:
            writer.add_gap(None, kind, text, control[name])
    writer.set_meta({key: control[name] for name, key in _COSTS.items()})
    if control["FLOWED"]:
        writer.set_meta({"launches_not_waited_for": control["FLOWED"]})
    if control["UNTIMED"]:
        writer.set_meta({"launches_not_timed": control["UNTIMED"]})
