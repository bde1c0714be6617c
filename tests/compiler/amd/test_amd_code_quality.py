"""Code from PTX against what Debian's clang makes of the same kernels in OpenCL C: ``bench/amd_code.py``."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
MOST = 1.15


@pytest.mark.parametrize(
    "target", ["gfx1030", *(pytest.param(t, marks=pytest.mark.slow) for t in ("gfx1100", "gfx90a"))]
)
def test_as_few_instructions_and_registers_as_clang(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from bench import amd_code

    monkeypatch.setattr(amd_code, "CLANG", "no compiler")  # the figures recorded, whatever is installed
    outcomes = list(amd_code.compare(target))
    assert len(outcomes) == 12
    found = amd_code.ratios(outcomes)
    assert all(mean <= MOST for mean in found.values()), found
