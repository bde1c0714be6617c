"""`ZLUDA_CACHE_POLICY=aggressive`: a trace's kernels are compiled while it is replayed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from zluda.replay.ahead import compile_ahead

TRACE = Path(__file__).parents[2] / "corpus/saxpy/trace.bin"


@pytest.mark.parametrize(("policy", "expected"), [("normal", 0), ("aggressive", 3)])
def test_the_policy_says_whether_kernels_are_compiled_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, expected: int
) -> None:
    monkeypatch.setenv("ZLUDA_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("ZLUDA_CACHE_POLICY", policy)
    found: list[Path] = []
    with compile_ahead(TRACE, "cpu", None):
        deadline = time.monotonic() + (60 if expected else 0)
        while time.monotonic() < deadline and len(found) < expected:
            time.sleep(0.05)
            found = list((tmp_path / "kernels").glob("*.code"))
    assert len(found) == expected


def test_it_ends_with_the_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZLUDA_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("ZLUDA_CACHE_POLICY", "aggressive")
    before = _children()
    with compile_ahead(TRACE, "gfx1030", "nvidia"):
        assert _children() > before
    assert _children() <= before


def _children() -> set[int]:
    """This process's children, ended ones that nobody has waited for among them."""
    tasks = Path("/proc/self/task").iterdir()
    return {int(pid) for task in tasks for pid in (task / "children").read_text().split()}
