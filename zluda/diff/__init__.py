"""Values against values: verdicts, result types, comparison of buffers and of whole traces.

May import ``tracefile``, ``ptx`` and what stands below ``diff``. ``results`` holds the types that replay
fills and report prints; ``values`` compares two byte ranges as numbers (numpy, imported where used);
``traces`` compares two traces call by call; ``element_type`` infers what a buffer holds from the PTX that
touches it.
"""

from __future__ import annotations

from zluda.diff.results import (
    BufferComparison,
    CountsAs,
    Element,
    FirstDivergence,
    LaunchResult,
    ReplayResult,
    Verdict,
    exit_status,
    worst,
)

__all__ = [
    "BufferComparison",
    "CountsAs",
    "Element",
    "FirstDivergence",
    "LaunchResult",
    "ReplayResult",
    "Verdict",
    "exit_status",
    "worst",
]
