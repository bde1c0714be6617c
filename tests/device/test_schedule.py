"""Seeded schedules: races that repeat, and programs that wait for others, on the CPU and emulated GPUs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import zluda

CORPUS = Path(__file__).parents[2] / "corpus"
DEVICES = ("cpu", "gfx1030")
HEAD = ".version 9.0\n.target sm_90\n.address_size 64\n"
REGISTERS = ".reg .b64 %p, %a; .reg .b32 %r<9>; .reg .pred %q<4>;"

LOST = """
again: ld.global.u32 %r1, [%p]; add.u32 %r1, %r1, 1; st.global.u32 [%p], %r1;
    add.u32 %r2, %r2, 1; setp.lt.u32 %q0, %r2, 10; @%q0 bra again;"""
"""Each warp adds 1 ten times without an atomic: what others add in between is lost."""

ORDER = """
    atom.global.add.u32 %r1, [%p], 1; mul.wide.u32 %a, %r1, 4; add.s64 %a, %a, %p;
    shr.u32 %r2, %r0, 5; st.global.u32 [%a+4], %r2;"""
"""The warps in the order in which they came."""

LOCK = """
    setp.ne.u32 %q0, %r3, 0; @%q0 bra done;
take: atom.acquire.gpu.global.cas.b32 %r1, [%p], 0, 1; setp.ne.u32 %q1, %r1, 0; @%q1 bra take;
    ld.global.u32 %r1, [%p+4]; add.u32 %r1, %r1, 3; st.global.u32 [%p+4], %r1;
    fence.acq_rel.gpu; atom.release.gpu.global.exch.b32 %r1, [%p], 0;
done:"""
"""A lock between blocks: the first thread of each adds 3."""

NEIGHBOUR = """
    mul.wide.u32 %a, %r0, 4; add.s64 %a, %a, %p; setp.eq.u32 %q0, %r3, 0; @%q0 bra give;
wait: ld.relaxed.gpu.global.u32 %r1, [%a]; setp.eq.u32 %q1, %r1, 0; @%q1 bra wait;
give: mov.u32 %r2, 1; st.relaxed.gpu.global.u32 [%a+4], %r2;"""
"""Each lane waits for the one before it."""

LAST = """
    red.global.add.u32 [%p], %r0; bar.sync 0; setp.ne.u32 %q0, %r3, 0; @%q0 bra done;
    fence.acq_rel.gpu; atom.global.inc.u32 %r1, [%p+4], 1000; mov.u32 %r2, %nctaid.x; sub.u32 %r2, %r2, 1;
    setp.ne.u32 %q1, %r1, %r2; @%q1 bra done;
    ld.relaxed.gpu.global.u32 %r1, [%p]; add.u32 %r1, %r1, 7; st.global.u32 [%p+8], %r1;
done:"""
"""The last block to come has the sum of all (as the threadFenceReduction sample)."""

BARRIER = """
    setp.ne.u32 %q0, %r3, 0; @%q0 bra past;
    fence.acq_rel.gpu; atom.global.add.u32 %r1, [%p], 1; mov.u32 %r2, %nctaid.x;
wait: ld.acquire.gpu.global.u32 %r1, [%p]; setp.lt.u32 %q1, %r1, %r2; @%q1 bra wait;
past: bar.sync 0; red.global.add.u32 [%p+4], %r1;"""
"""A barrier of the grid: no first thread goes on before all have come."""


def left(
    device: str, body: str, *, schedule: int = 0, blocks: int = 4, threads: int = 64, isolate: bool = False
) -> list[int]:
    """The words at ``[%p]``, zeros at first; ``%r0`` is a thread's number, ``%r3`` that in its block."""
    text = f"""{HEAD}.visible .entry k(.param .u64 p) {{ {REGISTERS}
        ld.param.u64 %p, [p]; mov.u32 %r3, %tid.x; mov.u32 %r4, %ctaid.x; mov.u32 %r5, %ntid.x;
        mad.lo.u32 %r0, %r4, %r5, %r3; mov.u32 %r2, 0;
        {body}
        ret; }}"""
    with zluda.open_device(device, schedule=schedule, isolate=isolate) as opened:
        words = opened.array(np.zeros(blocks * threads + 1, np.uint32))
        opened.load_module(text).kernel("k").launch(grid=blocks, block=threads, args=[words])
        return [int(word) for word in words.numpy()]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("body", [LOST, ORDER])
def test_a_seed_gives_one_result_and_others_give_others(device: str, body: str) -> None:
    found = {seed: left(device, body, schedule=seed) for seed in range(1, 5)}
    assert len({tuple(words) for words in found.values()}) > 1
    assert all(left(device, body, schedule=seed) == words for seed, words in found.items())


@pytest.mark.parametrize("device", DEVICES)
def test_updates_are_lost_in_a_seeded_schedule_only(device: str) -> None:
    """Between a load and its store others may come: on AMD, where a wave waits for memory."""
    assert left(device, LOST, blocks=1)[0] == 2 * 10
    assert min(left(device, LOST, blocks=1, schedule=seed)[0] for seed in range(1, 5)) < 2 * 10


def test_a_runner_draws_the_same() -> None:
    assert left("cpu", ORDER, schedule=3, isolate=True) == left("cpu", ORDER, schedule=3)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("schedule", [0, 5])
@pytest.mark.parametrize(
    ("body", "expected"),
    [(LOCK, [0, 4 * 3]), (LAST, [sum(range(256)), 4, sum(range(256)) + 7])],
)
def test_blocks_that_wait_for_each_other_finish(
    device: str, schedule: int, body: str, expected: list[int]
) -> None:
    assert left(device, body, schedule=schedule)[: len(expected)] == expected


@pytest.mark.parametrize("schedule", [0, 5])
def test_blocks_pass_a_barrier_of_the_grid_together(schedule: int) -> None:
    assert left("cpu", BARRIER, schedule=schedule, threads=1)[:2] == [4, 4 * 4]


@pytest.mark.parametrize("schedule", [0, 5])
def test_lanes_that_wait_for_their_neighbours_finish(schedule: int) -> None:
    assert left("cpu", NEIGHBOUR, schedule=schedule, blocks=1)[1:65] == [1] * 64


def test_programs_without_races_replay_alike_whatever_the_seed() -> None:
    result = zluda.replay(CORPUS / "reduction" / "trace.bin", "cpu", schedule=1)
    assert result.verdict.value == "identical"
