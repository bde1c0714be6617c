"""Accesses that are out of range or misaligned are the same error on every device."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from kernels import HEADER
from trace_builder import TraceBuilder

import zluda
from zluda.device.faults import outside
from zluda.diff.results import Verdict
from zluda.errors import LaunchError, UnsupportedError

DEVICES = ("cpu", "gfx1030", "gfx90a")
BYTES = 4096

TEXT = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 p, .param .u32 q)
{{
    .reg .b64 %d<8>;
    .reg .b32 %r<8>;
    .reg .pred %p;
    .shared .align 8 .b8 s[256];
    .local .align 8 .b8 l[16];
    ld.param.u64 %d0, [p];
    ld.param.u32 %r0, [q];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %d1, %r1, 4;
    add.s64 %d2, %d0, %d1;
    {body}
    ret;
}}
"""

# What each thread does: within bounds where q is 0. Thread 24 is the first that is outside where q is 160.
GLOBAL = {
    "consecutive": "cvt.u64.u32 %d3, %r0; add.s64 %d2, %d2, %d3; st.global.u32 [%d2+3840], %r1;",
    "masked": """setp.ne.u32 %p, %r1, 0; cvt.u64.u32 %d3, %r0; add.s64 %d2, %d2, %d3;
                 @%p st.global.u32 [%d2+3840], %r1;""",
    "scattered": """xor.b32 %r2, %r1, 1; mad.wide.u32 %d2, %r2, 4, %d0; cvt.u64.u32 %d3, %r0;
                    add.s64 %d2, %d2, %d3; st.global.u32 [%d2+3840], %r1;""",
    "generic": "cvt.u64.u32 %d3, %r0; add.s64 %d2, %d2, %d3; st.u32 [%d2+3840], %r1;",
    "atomic": "cvt.u64.u32 %d3, %r0; add.s64 %d2, %d2, %d3; red.global.add.u32 [%d2+3840], %r1;",
}


def _launch(
    device: str, body: str, q: int, *, check: str = "memory", block: int = 64, isolate: bool = False
) -> str:
    """The error of a launch over 4096 bytes, "" where it went well."""
    with zluda.open_device(device, check=check, isolate=isolate) as opened:
        kernel = opened.load_module(TEXT.format(body=body)).kernel("k")
        out = opened.array(np.zeros(BYTES, np.uint8))
        try:
            kernel.launch(grid=1, block=block, args=[out, np.uint32(q)])
        except LaunchError as error:
            assert error.kernel == "k" and error.block == (0, 0, 0)
            return str(error)
        return ""


@pytest.mark.parametrize("how", GLOBAL)
@pytest.mark.parametrize("device", DEVICES)
def test_a_global_access_past_the_end_names_thread_address_size_and_allocation(device: str, how: str) -> None:
    assert _launch(device, GLOBAL[how], 0) == ""
    message = _launch(device, GLOBAL[how], 160)
    thread = 25 if how == "scattered" else 24  # the first to reach the end
    found = re.search(
        r"thread \((\d+), 0, 0\), address 0x(\w+): access to memory that is not allocated", message
    )
    assert found is not None, message
    beyond = int(found[1]) - 24 if how != "scattered" else (int(found[1]) ^ 1) - 24
    assert int(found[1]) in (thread, 24) and beyond >= 0
    end = re.search(
        r"the nearest allocation is 4096 bytes at 0x(\w+), which ends (\d+) bytes before", message
    )
    assert end is not None and f"4 bytes at 0x{found[2]}" in message
    assert int(found[2], 16) == int(end[1], 16) + BYTES + int(end[2]) and int(end[2]) == 4 * beyond


@pytest.mark.parametrize("device", DEVICES)
def test_an_access_far_from_everything(device: str) -> None:
    body = "mov.u64 %d3, 4096; st.global.u32 [%d3], %r1;"
    assert "bytes further on" in _launch(device, body, 0)


@pytest.mark.parametrize("device", DEVICES)
def test_generic_addresses_of_windows_are_inside(device: str) -> None:
    body = """mov.u64 %d3, l; cvta.local.u64 %d3, %d3; st.u32 [%d3+12], %r1; ld.u32 %r3, [%d3+12];
              mov.u64 %d3, s; cvta.shared.u64 %d3, %d3; st.u32 [%d3+252], %r3; st.u32 [%d2], %r3;"""
    assert _launch(device, body, 0) == ""


SHARED = "mov.u32 %r2, s; mad.lo.u32 %r3, %r1, 4, %r2; add.u32 %r3, %r3, %r0; st.shared.u32 [%r3], %r1;"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("check", ["none", "memory"])
def test_shared_memory_out_of_range_is_always_an_error(device: str, check: str) -> None:
    assert _launch(device, SHARED, 0, check=check) == ""
    message = _launch(device, SHARED, 160, check=check)
    assert "thread (24, 0, 0), address 0x100: " in message and "access out of range" in message
    assert message.endswith(": 4 bytes")


def test_lanes_that_are_off_may_be_out_of_range() -> None:
    body = f"setp.lt.u32 %p, %r1, 24; @!%p bra DONE; {SHARED} DONE:"
    assert _launch("cpu", body, 160) == ""
    body = f"setp.lt.u32 %p, %r1, 24; @!%p bra DONE; {GLOBAL['consecutive']} DONE:"
    assert _launch("cpu", body, 160) == ""


def test_shared_memory_by_scattered_addresses_on_the_cpu() -> None:
    body = "mov.u32 %r2, s; mul.lo.u32 %r4, %r1, %r1; mad.lo.u32 %r3, %r4, 4, %r2; st.shared.u32 [%r3], %r1;"
    assert _launch("cpu", body, 0, check="none", block=8) == ""
    assert "thread (8, 0, 0), address 0x100" in _launch("cpu", body, 0, check="none", block=9)


@pytest.mark.parametrize("check", ["none", "memory"])
def test_local_memory_out_of_range_is_always_an_error_on_the_cpu(check: str) -> None:
    """A thread's neighbour on the stack is not its own."""
    body = """mov.u64 %d3, l; cvt.s64.s32 %d4, %r0; add.s64 %d3, %d3, %d4; st.local.u32 [%d3], %r1;
              ld.local.u32 %r3, [%d3]; st.global.u32 [%d2], %r3;"""
    assert _launch("cpu", body, 12, check=check) == ""
    for beyond in (16, 1 << 30, 2**32 - 4):
        message = _launch("cpu", body, beyond, check=check)
        assert "thread (0, 0, 0)" in message and "local memory access out of range: 4 bytes" in message
    by_thread = """mov.u64 %d3, l; add.s64 %d3, %d3, %d1; st.local.u32 [%d3], %r1;"""
    assert _launch("cpu", by_thread, 0, block=4, check=check) == ""
    assert "thread (4, 0, 0)" in _launch("cpu", by_thread, 0, block=5, check=check)
    some = f"setp.lt.u32 %p, %r1, 4; @!%p bra DONE; {by_thread} DONE:"
    assert _launch("cpu", some, 0, check=check) == ""


def test_local_memory_far_out_of_range_where_there_are_many_variables() -> None:
    """Of them only the whole is known: what is on stacks."""
    more = "".join(f".local .align 8 .b8 l{n}[16];" for n in range(6))
    body = f"{more} mov.u64 %d3, l5; cvt.s64.s32 %d4, %r0; add.s64 %d3, %d3, %d4; st.local.u32 [%d3], %r1;"
    assert _launch("cpu", body, 12, check="none") == ""
    for beyond in (1 << 30, 2**32 - (1 << 30)):
        assert "local memory access out of range" in _launch("cpu", body, beyond, check="none")


@pytest.mark.parametrize("device", DEVICES)
def test_eight_and_sixteen_bytes_at_a_multiple_of_four(device: str) -> None:
    for body in (
        "cvt.u64.u32 %d3, %r0; add.s64 %d3, %d0, %d3; ld.global.u64 %d4, [%d3]; st.global.u64 [%d0], %d4;",
        """cvt.u64.u32 %d3, %r0; add.s64 %d3, %d0, %d3; mov.u64 %d4, 1;
           st.global.v2.u64 [%d3], {%d4, %d4};""",
    ):
        assert _launch(device, body, 16) == ""
        assert "misaligned address" in _launch(device, body, 4)


def test_in_a_runner() -> None:
    message = _launch("cpu", GLOBAL["consecutive"], 160, isolate=True)
    assert "thread (24, 0, 0)" in message and "not allocated" in message


def test_a_replay_names_the_launch_that_strays(tmp_path: Path) -> None:
    """It writes behind its buffer, to where nothing was allocated but is memory all the same."""
    path = tmp_path / "trace.bin"
    with TraceBuilder(path) as record:
        record.start()
        module = record.module(
            TEXT.replace(".version 8.0\n.target sm_80\n.address_size 64\n", HEADER).format(
                body="st.global.u32 [%d2+4096], %r1; st.global.u32 [%d2], %r1;"
            )
        )
        function = record.function(module, "k", ((0, 8), (8, 4)))
        buffer = record.allocate(BYTES)
        record.copy_in(buffer, bytes(BYTES))
        written = np.arange(64, dtype=np.uint32).tobytes() + bytes(BYTES - 256)
        packed = buffer.to_bytes(8, "little") + bytes(4)
        record.launch(function, packed, {buffer: written}, grid=(1, 1, 1), block=(64, 1, 1))
    unchecked = zluda.replay(path, device="cpu")
    assert unchecked.verdict is not Verdict.CRASH
    checked = zluda.replay(path, device="cpu", check="memory")
    assert checked.verdict is Verdict.CRASH
    assert "not allocated" in checked.results[-1].reason and "kernel k" in checked.results[-1].reason


def test_a_device_without_it_refuses() -> None:
    for device, check in (("cuda:0", "memory"), ("hip:0", "memory"), ("gfx1030", "race"), ("cpu", "init")):
        with pytest.raises(UnsupportedError, match=f"check='{check}'.*device {device}; expected"):
            zluda.open_device(device, check=check)


def test_words_of_an_access() -> None:
    assert outside(64, 4, []) == "4 bytes at 0x40; nothing is allocated"
    two = [(0x1000, 0x100), (0x2000, 0x100)]
    assert outside(0x10FE, 4, two).endswith("256 bytes at 0x1000, which ends within the access")
    assert outside(0x1FF0, 4, two).endswith("256 bytes at 0x2000, 16 bytes further on")
    assert outside(0x1110, 4, two).endswith("256 bytes at 0x1000, which ends 16 bytes before")


TOGETHER = """.version 8.0
.target sm_90
.address_size 64
.shared .align 8 .b8 s[256];
.visible .entry neighbours(.param .u64 p, .param .u32 q)
{
    .reg .b64 %d<8>;
    .reg .b32 %r<8>;
    ld.param.u64 %d0, [p];
    ld.param.u32 %r0, [q];
    mov.u64 %d1, s;
    cvta.shared.u64 %d1, %d1;
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %d2, %r1, 4;
    add.s64 %d1, %d1, %d2;
    mov.u32 %r2, %cluster_ctarank;
    st.u32 [%d1], %r2;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    xor.b32 %r2, %r2, 1;
    mapa.u64 %d3, %d1, %r2;
    cvt.u64.u32 %d4, %r0;
    add.s64 %d3, %d3, %d4;
    ld.u32 %r3, [%d3];
    mov.u32 %r4, %ctaid.x;
    mad.lo.u32 %r4, %r4, 64, %r1;
    mul.wide.u32 %d5, %r4, 4;
    add.s64 %d5, %d0, %d5;
    st.global.u32 [%d5], %r3;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    ret;
}
.visible .entry workspace(.param .u64 p, .param .u32 q)
{
    .reg .b64 %d<8>;
    .reg .b32 %r<8>;
    ld.param.u64 %d0, [p];
    mov.u32 %r0, %envreg2;
    mov.u32 %r1, %envreg1;
    mov.b64 %d1, {%r0, %r1};
    ld.u32 %r2, [%d1+4];
    atom.add.acq_rel.gpu.u32 %r3, [%d1+4], 0;
    st.global.u32 [%d0], %r3;
    ret;
}
"""


@pytest.mark.parametrize("device", DEVICES[:2])
def test_what_blocks_of_one_launch_share_is_inside(device: str) -> None:
    """Generic addresses of a cluster's other blocks, and what a cooperative grid synchronises by."""
    with zluda.open_device(device, check="memory") as opened:
        module = opened.load_module(TOGETHER)
        out = opened.array(np.full(128, 9, np.uint32))
        neighbours = module.kernel("neighbours")
        neighbours.launch(grid=2, block=64, args=[out, 0], cluster=2)
        assert out.numpy().tolist() == [1] * 64 + [0] * 64
        with pytest.raises(LaunchError, match="access to memory that is not allocated"):
            neighbours.launch(grid=2, block=64, args=[out, 1 << 30], cluster=2)
    with zluda.open_device(device, check="memory") as opened:
        out = opened.array(np.full(1, 9, np.uint32))
        opened.load_module(TOGETHER).kernel("workspace").launch(
            grid=2, block=64, args=[out, 0], cooperative=True
        )


def test_a_cluster_reaches_no_further_than_its_blocks() -> None:
    with zluda.open_device("cpu", check="memory") as opened:
        out = opened.array(np.zeros(128, np.uint32))
        kernel = opened.load_module(TOGETHER).kernel("neighbours")
        for beyond in (256, 2 << 24):  # behind a block's 256 bytes; behind the second block
            with pytest.raises(LaunchError, match="4 bytes at"):
                kernel.launch(grid=2, block=64, args=[out, beyond], cluster=2)


@pytest.mark.parametrize("device", DEVICES[:2])
def test_a_cooperative_grid_without_room_is_refused(device: str) -> None:
    with zluda.open_device(device) as opened:
        out = opened.array(np.zeros(1, np.uint32))
        kernel = opened.load_module(TOGETHER).kernel("workspace")
        with pytest.raises(LaunchError, match=r"grid of 265 blocks; there is room for 264 at once"):
            kernel.launch(grid=265, block=1024, args=[out, 0], cooperative=True)
