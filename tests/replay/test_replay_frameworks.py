"""Launches of frameworks' kernels, recorded on an H200, whose PTX was found beside the machine code that ran.

``data/triton_*.bin``: PyTorch 2.11 with Triton 3.6, recorded with ``zluda trace --preset triton python3 …``
on 2026-11-30; cut out with ``zluda extract``, machine code and names taken out with ``zluda strip``.
``triton_add`` is a masked ``x + 2 * y``; ``triton_dot`` a ``tl.dot`` of two 64x64 f16 matrices, which Triton
makes ``wgmma`` of for sm_90a.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import zluda
from zluda.diff.results import Verdict
from zluda.tracefile import Fidelity, open_trace

DATA = Path(__file__).parent / "data"


@pytest.mark.parametrize("device", ["cpu", pytest.param("gfx1030", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", ["triton_add", "triton_dot"])
def test_a_launch_of_triton_is_identical(name: str, device: str) -> None:
    result = zluda.replay(DATA / f"{name}.bin", device=device, numerics="nvidia")
    (launch,) = result.results
    assert launch.verdict is Verdict.IDENTICAL
    assert launch.written_share == 1.0
    assert launch.fidelity is Fidelity.SAME_PTX


def test_the_dot_is_of_the_tensor_cores_kind() -> None:
    with open_trace(DATA / "triton_dot.bin") as trace:
        (module,) = trace.module_list
        assert b"wgmma.mma_async" in (trace.ptx(module) or b"")
