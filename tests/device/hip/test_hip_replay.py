"""Whole replays on ``hip:0``: relocated pointers, what HIP 5 lacks, and kernels that fail."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from bad_kernels import BAD, Program
from kernels import ADD, HEADER, LAYOUT, added, parameters, ramp
from trace_builder import TraceBuilder

import zluda
from zluda.diff.results import ReplayResult, Verdict

COUNT = 200
SIZE = 4 * COUNT

# Follows `head → next → next`, adds 1 to each value, and writes the last node's address.
WALK = """
.visible .entry walk(.param .u64 walk_param_0, .param .u64 walk_param_1)
{
    .reg .pred %p<2>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [walk_param_0];
    ld.param.u64 %rd2, [walk_param_1];
NEXT:
    ld.global.u64 %rd3, [%rd1+8];
    add.u64 %rd3, %rd3, 1;
    st.global.u64 [%rd1+8], %rd3;
    ld.global.u64 %rd4, [%rd1];
    setp.eq.u64 %p1, %rd4, 0;
    @%p1 bra DONE;
    mov.u64 %rd1, %rd4;
    bra NEXT;
DONE:
    st.global.u64 [%rd2], %rd1;
    ret;
}
"""


def replay(path: Path) -> ReplayResult:
    return zluda.replay(path, device="hip:0", numerics="nvidia", time_limit=8.0)  # type: ignore[no-any-return]


@pytest.mark.parametrize("gpu", ["gfx1030", "gfx90a"], indirect=True)
def test_pointers_in_memory_are_relocated_both_ways(gpu: str, tmp_path: Path) -> None:
    """A list whose nodes are in two allocations; a kernel follows it and stores a pointer."""
    path = tmp_path / "trace.bin"
    with TraceBuilder(path) as record:
        record.start()
        module = record.module(HEADER + WALK)
        walk = record.function(module, "walk", ((0, 8), (8, 8)))
        nodes, last, out = record.allocate(64), record.allocate(16), record.allocate(8)
        record.copy_in(nodes, struct.pack("<QQQQ", nodes + 16, 10, last, 20))
        record.copy_in(last, struct.pack("<QQ", 0, 30))
        record.copy_in(out, bytes(8))
        writes = {
            nodes: struct.pack("<QQQQ", nodes + 16, 11, last, 21),
            last: struct.pack("<QQ", 0, 31),
            out: last.to_bytes(8, "little"),
        }
        record.launch(walk, nodes.to_bytes(8, "little") + out.to_bytes(8, "little"), writes, block=(1, 1, 1))
        record.copy_out(out, 8)
    result = replay(path)
    assert [(one.verdict, one.reason) for one in result.results] == [(Verdict.IDENTICAL, "")] * 2
    moved = {one["recorded"] for one in result.relocated}
    assert moved == {f"{address:#x}" for address in (nodes, last, out)}


@pytest.mark.parametrize("kind", BAD)
def test_one_bad_kernel_costs_one_verdict(gpu: str, tmp_path: Path, kind: str) -> None:
    text, verdict, word = BAD[kind]
    path = tmp_path / "trace.bin"
    Program(path, text).run_among_others()
    result = replay(path)
    expected = [Verdict.IDENTICAL, verdict, Verdict.IDENTICAL, Verdict.IDENTICAL]
    assert [one.verdict for one in result.results] == expected
    assert {"trap": "aborting with error"}.get(kind, word) in result.results[1].reason  # HIP's own words


def test_what_hip_5_lacks_is_a_gap(gpu: str, tmp_path: Path) -> None:
    """A cooperative launch; those around it are compared."""
    path = tmp_path / "trace.bin"
    # CUlaunchAttribute: the id (2: COOPERATIVE), padding, and 64 bytes of a value
    cooperative = struct.pack("<I4xI60x", 2, 1)
    with TraceBuilder(path) as record:
        record.start()
        add = record.function(record.module(HEADER + ADD), "add", LAYOUT)
        x, y = record.allocate(SIZE), record.allocate(SIZE)
        record.copy_in(x, ramp(COUNT))
        record.copy_in(y, ramp(COUNT, 0.25))
        for attributes in (b"", cooperative, b""):
            total = added(record.read(x, SIZE), record.read(y, SIZE))
            packed = parameters(x, y, COUNT)
            shape = {"grid": (2, 1, 1), "block": (128, 1, 1), "attributes": attributes}
            record.launch(add, packed, {x: total}, **shape)  # type: ignore[arg-type]
    result = replay(path)
    assert [one.verdict for one in result.results] == [Verdict.IDENTICAL, Verdict.GAP, Verdict.IDENTICAL]
    assert "needs HIP 6 or later: hipModuleLaunchCooperativeKernel" in result.results[1].reason
    assert result.exit_status() == 2
