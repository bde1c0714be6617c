"""Replays over Python kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from python_device import PythonKernel, PythonSession
from replay_case import Case

import zluda.replay.envelope  # noqa: F401  (what imports a session by name must not find the stand-in)


@pytest.fixture
def sessions(
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[[Mapping[str, PythonKernel]], list[PythonSession]]]:
    """Makes replays run these Python kernels; gives the sessions that were started."""

    def use(kernels: Mapping[str, PythonKernel]) -> list[PythonSession]:
        started: list[PythonSession] = []

        def start(device: str, plan: object, **options: object) -> PythonSession:
            started.append(PythonSession(kernels))
            return started[-1]

        monkeypatch.setattr("zluda.replay.session.Session", start)
        return started

    yield use


@pytest.fixture
def case(tmp_path: Path, sessions: Callable[[Mapping[str, PythonKernel]], list[PythonSession]]) -> Case:
    return Case(tmp_path / "trace.bin", sessions)
