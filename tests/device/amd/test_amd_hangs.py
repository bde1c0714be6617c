"""Kernels that never end: found out, named with kernel and block, and told apart by what they wait for."""

from __future__ import annotations

import numpy as np
import pytest
from test_amd_scheduling import TARGETS, launch

import zluda
from zluda.diff.results import Verdict
from zluda.driver import CudaError
from zluda.errors import HangError, LaunchError
from zluda.replay.playback import why
from zluda.runner.messages import decode_error, encode_error

POLL = """k:
 s_load_dwordx2 s[4:5], s[0:1], 0x0
 v_mov_b32 v1, 0
 s_waitcnt lgkmcnt(0)
wait:
 global_load_dword v3, v1, s[4:5]
 s_waitcnt vmcnt(0)
 v_readfirstlane_b32 s9, v3
 s_cmp_eq_u32 s9, 0
 s_cbranch_scc1 wait
 s_endpgm
"""


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("target", TARGETS)
def test_waiting_for_memory_that_nobody_writes_is_a_hang(target: str, threads: int) -> None:
    with pytest.raises(HangError, match=r"hangs: waves wait at offset 0x.* no running wave writes") as caught:
        launch(target, POLL, [np.zeros(1)], grid=200, block=64, threads=threads)
    assert (caught.value.kernel, caught.value.block is None) == ("k", False)


def test_a_loop_that_does_nothing_is_a_hang() -> None:
    with pytest.raises(HangError, match="an endless loop at offset 0x0 that reads no memory"):
        launch("gfx1030", "k:\n s_branch k\n", [np.zeros(1)])


def test_a_loop_of_several_backward_branches_is_a_hang() -> None:
    """Budgets run out at another place each time: the state comes again after some rounds only."""
    text = "k:\n s_nop 0\na:\n s_branch b\nc:\n s_branch a\nd:\n s_branch c\nb:\n s_branch d\n s_endpgm\n"
    with pytest.raises(HangError, match="endless loop"):
        launch("gfx1030", text, [np.zeros(1)])


def test_a_loop_that_counts_is_no_hang_until_its_time_is_over() -> None:
    text = (
        "k:\n s_mov_b32 s4, 0\nl:\n s_add_u32 s4, s4, 1\n s_cmp_lg_u32 s4, -1\n s_cbranch_scc1 l\n s_endpgm\n"
    )
    with pytest.raises(HangError, match="no end within the time allowed"):
        launch("gfx1030", text, [np.zeros(1)], timeout_s=1.8)


def test_a_barrier_that_not_all_reach_is_a_hang() -> None:
    """gfx12's split barrier: a wave that waits without a signal of the others."""
    text = """k:
 s_barrier_wait -1
 s_endpgm
"""
    with pytest.raises(HangError, match="a barrier that others never reach"):
        launch("gfx1200", text, [np.zeros(1)], block=64)


def test_the_same_order_of_waves_is_found_to_hang_too() -> None:
    with pytest.raises(HangError, match="no running wave writes"):
        launch("gfx1030", POLL, [np.zeros(1)], grid=3, block=64, seed=7)


LOCK = """.version 8.0
.target sm_70
.address_size 64
.visible .entry lock(.param .u64 p)
{
    .reg .b64 %rd<3>;
    .reg .b32 %r<4>;
    .reg .pred %q<3>;
    ld.param.u64 %rd1, [p];
$again:
    atom.global.cas.b32 %r1, [%rd1], 0, 1;
    setp.ne.s32 %q1, %r1, 0;
    @%q1 bra $again;
    ld.global.u32 %r2, [%rd1+4];
    add.u32 %r2, %r2, 1;
    st.global.u32 [%rd1+4], %r2;
    membar.gl;
    atom.global.exch.b32 %r3, [%rd1], 0;
    ret;
}
"""


@pytest.mark.parametrize("isolate", [False, True])
def test_a_lock_among_lanes_of_a_warp_needs_independent_thread_scheduling(isolate: bool) -> None:
    with zluda.open_device("gfx1030", isolate=isolate) as device:
        kernel = device.load_module(LOCK).kernel("lock")
        words = device.array(np.zeros(2, np.uint32))
        kernel.launch(grid=1, block=1, args=[words])
        assert words.numpy().tolist() == [0, 1]
        with pytest.raises(HangError, match="needs independent thread scheduling") as caught:
            kernel.launch(grid=2, block=32, args=[words])
        assert caught.value.kernel == "lock"
        assert caught.value.block == (0, 0, 0)


def test_a_hang_crosses_the_channel_and_is_a_verdict_of_its_own() -> None:
    hang = HangError("hangs: because", kernel="k", block=(1, 0, 0))
    told = decode_error(encode_error(CudaError("CUDA_ERROR_LAUNCH_TIMEOUT", launch=hang)))
    assert why(told).verdict is Verdict.HANG
    assert "kernel k, block (1, 0, 0): hangs: because" in why(told).reason
    crash = CudaError("CUDA_ERROR_LAUNCH_FAILED", launch=LaunchError("out of range", kernel="k"))
    assert why(crash).verdict is Verdict.CRASH


# Each block takes a ticket when it runs.
ORDER = """.version 8.0
.target sm_70
.address_size 64
.visible .entry order(.param .u64 p)
{
    .reg .b64 %rd<4>;
    .reg .b32 %r<4>;
    ld.param.u64 %rd1, [p];
    atom.global.add.u32 %r1, [%rd1], 1;
    mov.u32 %r2, %ctaid.x;
    mul.wide.u32 %rd2, %r2, 4;
    add.s64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3+4], %r1;
    ret;
}
"""


def _order(schedule: int, *, isolate: bool) -> list[int]:
    with zluda.open_device("gfx1030", schedule=schedule, isolate=isolate) as device:
        words = device.array(np.zeros(33, np.uint32))
        device.load_module(ORDER).kernel("order").launch(grid=32, block=1, args=[words])
        return list(words.numpy()[1:].tolist())


def test_schedule_varies_the_order_and_repeats_it() -> None:
    found = [_order(seed, isolate=isolate) for seed in (0, 1, 2) for isolate in (False, True)]
    assert found[0] == found[1] == list(range(32))
    assert found[2] == found[3]
    assert found[4] == found[5]
    assert found[2] != found[4]
    assert sorted(found[2]) == sorted(found[4]) == list(range(32))


@pytest.mark.parametrize(("device", "schedule"), [("cpu", -1), ("gfx1030", -1)])
def test_a_schedule_that_a_device_does_not_have_is_refused(device: str, schedule: int) -> None:
    with pytest.raises(zluda.UnsupportedError, match=f"schedule={schedule} .device {device}"):
        zluda.open_device(device, schedule=schedule)
