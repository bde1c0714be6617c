"""Replays over Python kernels, and the PTX that their modules are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from python_device import PythonKernel, PythonSession
from trace_builder import TraceBuilder

import zluda
from zluda.diff.results import ReplayResult


@pytest.fixture
def sessions(
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[[Mapping[str, PythonKernel]], list[PythonSession]]]:
    """Makes replays run these Python kernels; gives the sessions that were started."""

    def use(kernels: Mapping[str, PythonKernel]) -> list[PythonSession]:
        started: list[PythonSession] = []

        def start(
            device: str, plan: object, *, numerics: str | None, time_limit: float | None
        ) -> PythonSession:
            started.append(PythonSession(kernels))
            return started[-1]

        monkeypatch.setattr("zluda.replay.session.Session", start)
        return started

    yield use


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


@pytest.fixture
def case(tmp_path: Path, sessions: Callable[[Mapping[str, PythonKernel]], list[PythonSession]]) -> Case:
    return Case(tmp_path / "trace.bin", sessions)
