"""Results as a pandas frame, for people."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas

from zluda.diff.results import LaunchResult

_COLUMNS = (
    *("call", "kind", "kernel", "grid", "block", "verdict", "reason", "bytes_compared", "differing"),
    *("max_ulp", "seconds", "recorded_seconds", "written_share", "fidelity"),
)


def launch_frame(results: Iterable[LaunchResult]) -> pandas.DataFrame:
    """One row a launch or copy, indexed by call number."""
    frame = pandas.DataFrame([_row(result) for result in results], columns=list(_COLUMNS))
    return frame.set_index("call")


def _row(result: LaunchResult) -> dict[str, Any]:
    ulps = [buffer.max_ulp for buffer in result.buffers if buffer.max_ulp is not None]
    return {
        "call": result.call,
        "kind": result.kind,
        "kernel": result.kernel,
        "grid": result.grid,
        "block": result.block,
        "verdict": result.verdict.value,
        "reason": result.reason,
        "bytes_compared": sum(buffer.bytes_compared for buffer in result.buffers),
        "differing": sum(buffer.differing for buffer in result.buffers),
        "max_ulp": max(ulps, default=None),
        "seconds": result.seconds,
        "recorded_seconds": result.recorded_seconds,
        "written_share": result.written_share,
        "fidelity": result.fidelity.value,
    }
