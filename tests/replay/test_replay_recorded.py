"""Records of an H200 that the corpus has no program for: frameworks' kernels, graphs, kinds of memory.

All of 2026-11-30, driver 580.159; machine code and names taken out with ``zluda strip``.

* ``triton_add``, ``triton_dot``: PyTorch 2.11 with Triton 3.6, recorded with ``zluda trace --preset triton
  python3 …``, one launch cut out with ``zluda extract``. A masked ``x + 2 * y``; a ``tl.dot`` of two 64x64
  f16 matrices, which Triton makes ``wgmma`` of for sm_90a. Their PTX was found beside the machine code.
* ``graph_captured``: ``tests/trace/gpu/graphs.cu captured``: graphs captured from streams and launched.
* ``memory_managed``, ``memory_mapped``: ``tests/trace/gpu/memory_kinds.cu``: managed memory that the host
  writes without a call; ``cuMemMap`` with a launch over a seam.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import zluda
from zluda.diff.results import Verdict
from zluda.tracefile import Fidelity, open_trace

DATA = Path(__file__).parent / "data"

# name → launches, copies, and of these how many deliver what is not on record
RECORDS = {
    "triton_add": (1, 0, 0),
    "triton_dot": (1, 0, 0),
    "graph_captured": (14, 9, 4),
    "memory_managed": (7, 3, 0),
    "memory_mapped": (3, 3, 0),
}


@pytest.mark.parametrize("device", ["cpu", pytest.param("gfx1030", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", RECORDS)
def test_a_record_is_identical(name: str, device: str) -> None:
    launches, copies, unknown = RECORDS[name]
    result = zluda.replay(DATA / f"{name}.bin", device=device, numerics="nvidia")
    kinds = [one.kind for one in result.results]
    assert (kinds.count("launch"), kinds.count("copy")) == (launches, copies)
    verdicts = [one.verdict for one in result.results]
    assert verdicts.count(Verdict.NOT_COMPARED) == unknown
    assert verdicts.count(Verdict.IDENTICAL) == launches + copies - unknown
    assert {one.fidelity for one in result.results if one.kind == "launch"} == {Fidelity.SAME_PTX}
    assert all(one.buffers for one in result.results if one.verdict is Verdict.IDENTICAL)


def test_the_dot_is_of_the_tensor_cores_kind() -> None:
    with open_trace(DATA / "triton_dot.bin") as trace:
        (module,) = trace.module_list
        assert b"wgmma.mma_async" in (trace.ptx(module) or b"")
