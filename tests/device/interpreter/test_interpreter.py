"""The interpreter: threads that part, meet, wait and call; memory; and what it refuses, by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import zluda
from zluda.device.interpreter import InterpreterDevice
from zluda.device.interpreter.registry import load
from zluda.device.ptxas import sources
from zluda.errors import LaunchError, UnsupportedError
from zluda.ptx import parse_module

_KERNEL = """\
.version 8.3
.target sm_90
.address_size 64
{functions}
.visible .entry k(.param .u64 p)
{{
    .reg .pred %p<4>;
    .reg .b32 %r<12>;
    .reg .f32 %f<4>;
    .reg .b64 %d<8>;
    .shared .align 8 .b8 tile[512];
    .local .align 8 .b8 mine[64];
    .param .b32 given, got;
    ld.param.u64 %d1, [p];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %d2, %r1, 4;
    add.s64 %d2, %d1, %d2;
{body}
    st.global.u32 [%d2], %r2;
    ret;
}}
"""


def run(body: str, threads: int = 64, *, functions: str = "", **options: Any) -> np.ndarray[Any, Any]:
    """What ``%r2`` is in each thread at the end."""
    with zluda.open_device("interpreter", **options) as device:
        kernel = device.load_module(_KERNEL.format(functions=functions, body=body)).kernel("k")
        out = device.array(np.zeros(threads, np.uint32))
        kernel.launch(grid=1, block=threads, args=[out])
        return out.numpy()


def test_loops_of_different_length_end_together() -> None:
    body = """
    mov.u32 %r2, 0;
    and.b32 %r3, %r1, 7;
AGAIN:
    setp.eq.u32 %p1, %r3, 0;
    @%p1 bra DONE;
    add.u32 %r2, %r2, %r3;
    sub.u32 %r3, %r3, 1;
    bra AGAIN;
DONE:
    activemask.b32 %r4;
    setp.ne.u32 %p2, %r4, -1;
    @%p2 mov.u32 %r2, 999;"""
    assert run(body).tolist() == [(t & 7) * ((t & 7) + 1) // 2 for t in range(64)]


def test_a_shuffle_waits_for_the_lanes_that_it_names() -> None:
    body = """
    and.b32 %r3, %r1, 1;
    setp.eq.u32 %p1, %r3, 0;
    mov.u32 %r2, %r1;
    @%p1 bra EVEN;
    add.u32 %r2, %r2, 100;
    bra MEET;
EVEN:
    nanosleep.u32 1;
MEET:
    shfl.sync.bfly.b32 %r2, %r2, 1, 31, -1;"""
    assert run(body).tolist() == [t - 1 if t & 1 else t + 101 for t in range(64)]


def test_a_thread_that_spins_does_not_keep_the_other_from_going_on() -> None:
    body = """
    mov.u32 %r3, tile;
    st.shared.u32 [%r3], 0;
    bar.sync 0;
    setp.eq.u32 %p1, %r1, 63;
    @%p1 bra TELL;
WAIT:
    ld.volatile.shared.u32 %r2, [%r3];
    setp.eq.u32 %p2, %r2, 0;
    @%p2 bra WAIT;
    bra DONE;
TELL:
    st.volatile.shared.u32 [%r3], 7;
    mov.u32 %r2, 7;
DONE:"""
    assert run(body).tolist() == [7] * 64


def test_a_barrier_goes_on_without_who_has_ended() -> None:
    body = """
    setp.ge.u32 %p1, %r1, 32;
    @%p1 exit;
    mov.u32 %r3, tile;
    shl.b32 %r4, %r1, 2;
    add.u32 %r4, %r3, %r4;
    st.shared.u32 [%r4], %r1;
    bar.sync 0;
    xor.b32 %r5, %r4, 4;
    ld.shared.u32 %r2, [%r5];"""
    assert run(body).tolist() == [t ^ 1 for t in range(32)] + [0] * 32


_FACTORIAL = """
.func (.param .b32 r) factorial(.param .b32 n) {
    .reg .b32 %v<4>;
    .reg .pred %q;
    .param .b32 s, t;
    ld.param.b32 %v1, [n];
    setp.le.u32 %q, %v1, 1;
    @%q st.param.b32 [r], 1;
    @%q ret;
    sub.u32 %v2, %v1, 1;
    st.param.b32 [s], %v2;
    call (t), factorial, (s);
    ld.param.b32 %v3, [t];
    mul.lo.u32 %v3, %v3, %v1;
    st.param.b32 [r], %v3;
    ret;
}
.func (.reg .b32 r) twice(.reg .b32 x) { add.u32 r, x, x; ret; }
"""


def test_calls_return_to_where_each_thread_came_from() -> None:
    body = """
    and.b32 %r3, %r1, 7;
    st.param.b32 [given], %r3;
    call (got), factorial, (given);
    ld.param.b32 %r2, [got];
    call (%r2), twice, (%r2);"""
    products = [1, 1, 2, 6, 24, 120, 720, 5040]
    assert run(body, functions=_FACTORIAL).tolist() == [2 * products[t & 7] for t in range(64)]


def test_generic_addresses_reach_shared_and_local_memory() -> None:
    body = """
    mov.u64 %d3, tile;
    cvta.shared.u64 %d3, %d3;
    mul.wide.u32 %d4, %r1, 4;
    add.u64 %d3, %d3, %d4;
    st.u32 [%d3], %r1;
    mov.u64 %d5, mine;
    cvta.local.u64 %d5, %d5;
    st.u32 [%d5+8], 5;
    ld.u32 %r4, [%d3];
    ld.u32 %r5, [%d5+8];
    isspacep.shared %p1, %d3;
    isspacep.shared %p2, %d5;
    add.u32 %r2, %r4, %r5;
    @!%p1 mov.u32 %r2, 0;
    @%p2 mov.u32 %r2, 0;"""
    assert run(body).tolist() == [t + 5 for t in range(64)]


def test_contraction_is_what_it_is_told() -> None:
    body = """
    mov.f32 %f1, 0f3F800003;
    cvt.rn.f32.u32 %f2, %r1;
    add.rn.f32 %f1, %f1, %f2;
    mul.f32 %f3, %f1, %f1;
    add.f32 %f3, %f3, 0fBF800000;
    mov.b32 %r2, %f3;"""
    one, two = run(body, contract="auto"), run(body, contract="off")
    with zluda.open_device("cpu") as device:
        kernel = device.load_module(_KERNEL.format(functions="", body=body)).kernel("k")
        out = device.array(np.zeros(64, np.uint32))
        kernel.launch(grid=1, block=64, args=[out])
        assert (out.numpy() == one).all() and (one != two).any()


def test_a_stray_access_is_told_with_its_thread_and_address() -> None:
    body = """
    setp.eq.u32 %p1, %r1, 37;
    @%p1 mov.u64 %d2, 4096;"""
    with pytest.raises(LaunchError, match=r"illegal address") as caught:
        run(body)
    assert caught.value.thread == (37, 0, 0) and caught.value.address == 4096


def test_an_access_that_is_not_aligned_is_told() -> None:
    with pytest.raises(LaunchError, match="misaligned address: 4 bytes"):
        run("    add.u64 %d2, %d2, 2;")


def test_what_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match=r"wgmma\.fence\.sync\.aligned.*interpreter"):
        text = _KERNEL.format(functions="", body="wgmma.fence.sync.aligned;").replace("sm_90", "sm_90a")
        with zluda.open_device("interpreter") as device:
            kernel = device.load_module(text).kernel("k")
            kernel.launch(grid=1, block=32, args=[device.array(np.zeros(32, np.uint32))])


def test_a_launch_that_takes_too_long_is_given_up_as_unsupported() -> None:
    device = InterpreterDevice(sources("auto"), seconds=0.2)
    code = device.load(parse_module(_KERNEL.format(functions="", body="FOREVER: bra FOREVER;")))
    with pytest.raises(UnsupportedError, match=r"interpreting 64 threads in 0\.2 s"):
        device.launch(code.kernel("k"), (1, 1, 1), (64, 1, 1), bytes(8))
    device.close()


def test_threads_that_wait_for_ever_are_told() -> None:
    body = """
    setp.lt.u32 %p1, %r1, 32;
    @%p1 bra FIRST;
    bar.sync 1, 96;
FIRST:"""
    with pytest.raises(LaunchError, match="wait at a barrier"):
        run(body)


def test_every_opcode_says_which_section_it_follows() -> None:
    for name, opcode in load().items():
        assert opcode.execute.__doc__ and "9.7." in opcode.execute.__doc__, name


def test_blocks_of_a_grid_have_shared_memory_of_their_own() -> None:
    body = """
    mov.u32 %r3, %ctaid.x;
    setp.eq.u32 %p1, %r1, 0;
    mov.u32 %r4, tile;
    @%p1 st.shared.u32 [%r4], %r3;
    bar.sync 0;
    ld.shared.u32 %r2, [%r4];
    mul.wide.u32 %d4, %r3, 128;
    add.s64 %d2, %d2, %d4;"""
    with zluda.open_device("interpreter") as device:
        kernel = device.load_module(_KERNEL.format(functions="", body=body)).kernel("k")
        out = device.array(np.zeros(5 * 32, np.uint32))
        kernel.launch(grid=5, block=32, args=[out])
        assert out.numpy().tolist() == [t // 32 for t in range(160)]
