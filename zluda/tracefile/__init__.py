"""The trace file: schema, writer, reader, rings and their recovery. The only package that knows the format.

May import ``errors`` and ``config`` only. A recorder writes with :class:`TraceWriter`; everything else
reads with :func:`open_trace`, which gives a :class:`Trace`. Values pass as the named tuples of
``records``; memory and images pass as bytes. ``docs/trace-format.md`` is the format as prose.
"""

from __future__ import annotations

from zluda.tracefile.reader import MemoryAt, Trace, open_trace
from zluda.tracefile.records import (
    META_KEYS,
    NOT_REPLAYED,
    PAGE_BYTES,
    SIGNATURES,
    Allocation,
    AllocationKind,
    Call,
    Counts,
    Dim3,
    Direction,
    Fidelity,
    Function,
    Gap,
    Image,
    Launch,
    LeftOut,
    LoadedModule,
    ModuleKind,
    Noise,
    NoiseKind,
    Page,
    Parameter,
    Payload,
    Shape,
    Signature,
    Unproved,
)
from zluda.tracefile.selection import Selection
from zluda.tracefile.writer import CallRow, FinishRow, LaunchRow, TraceWriter

__all__ = [
    "META_KEYS",
    "NOT_REPLAYED",
    "PAGE_BYTES",
    "SIGNATURES",
    "Allocation",
    "AllocationKind",
    "Call",
    "CallRow",
    "Counts",
    "Dim3",
    "Direction",
    "Fidelity",
    "FinishRow",
    "Function",
    "Gap",
    "Image",
    "Launch",
    "LaunchRow",
    "LeftOut",
    "LoadedModule",
    "MemoryAt",
    "ModuleKind",
    "Noise",
    "NoiseKind",
    "Page",
    "Parameter",
    "Payload",
    "Selection",
    "Shape",
    "Signature",
    "Trace",
    "TraceWriter",
    "Unproved",
    "open_trace",
]
