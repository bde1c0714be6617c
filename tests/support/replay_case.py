"""A trace that a test writes and then replays over Python kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from python_device import PythonKernel, PythonSession
from trace_builder import TraceBuilder

import zluda
from zluda.diff.results import ReplayResult


class Case:
    """A trace being written, and its replay."""

    def __init__(self, path: Path, use: Callable[[Mapping[str, PythonKernel]], list[PythonSession]]) -> None:
        self.path, self._use = path, use
        self.record = TraceBuilder(path)
        self.sessions: list[PythonSession] = []

    def replay(self, kernels: Mapping[str, PythonKernel], **options: object) -> ReplayResult:
        """Close the trace and replay it."""
        self.record.__exit__()
        self.sessions = self._use(kernels)
        return zluda.replay(self.path, device="cpu", **options)  # type: ignore[no-any-return, operator]
