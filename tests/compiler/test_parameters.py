"""Parameters of functions, whose memory a thread may address as it likes (PTX ISA 5.1.6.2)."""

from __future__ import annotations

import numpy as np
import pytest

import zluda

DEVICES = ("cpu", "gfx1030", "gfx1100", "gfx90a")
HEADER = ".version 8.0\n.target sm_90\n.address_size 64\n"

# A structure of 24 bytes comes in by value; the function changes its copy through generic and local
# addresses with an index that differs by lane, and hands it back by value.
BY_VALUE = (
    HEADER
    + """
.func (.param .align 8 .b8 result[24]) change(.param .align 8 .b8 s[24], .param .b32 i, .param .b32 v)
{
    .reg .b32 %r<8>; .reg .b64 %rd<12>;
    mov.b64 %rd1, s;
    cvta.local.u64 %rd2, %rd1;
    ld.param.u32 %r1, [i]; ld.param.u32 %r2, [v];
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd2, %rd3;
    ld.u32 %r3, [%rd4]; add.u32 %r3, %r3, %r2; st.u32 [%rd4], %r3;
    cvta.to.local.u64 %rd5, %rd2;
    add.s64 %rd6, %rd5, %rd3;
    ld.local.u32 %r4, [%rd6]; mul.lo.u32 %r4, %r4, 3; st.local.u32 [%rd6], %r4;
    ld.param.b64 %rd7, [s]; ld.param.v2.b32 {%r5, %r6}, [s+8]; ld.param.b64 %rd8, [s+16];
    st.param.b64 [result], %rd7; st.param.v2.b32 [result+8], {%r5, %r6}; st.param.b64 [result+16], %rd8;
    ret;
}
.visible .entry k(.param .align 8 .b8 s[24], .param .u64 out)
{
    .reg .b32 %r<4>; .reg .b64 %rd<12>;
    mov.u32 %r1, %tid.x; rem.u32 %r2, %r1, 6; mov.b64 %rd9, s;
    ld.param.b64 %rd1, [s]; ld.param.b64 %rd2, [%rd9+8]; ld.param.b64 %rd3, [s+16];
    {
        .param .align 8 .b8 a0[24]; .param .b32 a1; .param .b32 a2; .param .align 8 .b8 back[24];
        st.param.b64 [a0], %rd1; st.param.b64 [a0+8], %rd2; st.param.b64 [a0+16], %rd3;
        st.param.b32 [a1], %r2; st.param.b32 [a2], %r1;
        call (back), change, (a0, a1, a2);
        ld.param.b64 %rd4, [back]; ld.param.b64 %rd5, [back+8]; ld.param.b64 %rd6, [back+16];
    }
    ld.param.u64 %rd7, [out]; mad.wide.u32 %rd8, %r1, 24, %rd7;
    st.global.b64 [%rd8], %rd4; st.global.b64 [%rd8+8], %rd5; st.global.b64 [%rd8+16], %rd6;
    ret;
}"""
)


@pytest.mark.parametrize("name", DEVICES)
def test_a_function_changes_its_copy_of_a_structure(name: str) -> None:
    start = np.arange(100, 106, dtype=np.uint32)
    with zluda.open_device(name) as device:
        out = device.array(np.zeros((64, 6), np.uint32))
        kernel = device.load_module(BY_VALUE).kernel("k")
        kernel.launch(grid=1, block=64, args=[start.tobytes(), out])
        expected = np.tile(start, (64, 1))
        lanes = np.arange(64)
        expected[lanes, lanes % 6] = (expected[lanes, lanes % 6] + lanes) * 3
        assert np.array_equal(out.numpy(), expected)


NEIGHBOURS = (
    HEADER
    + """
.visible .entry k(.param .u64 out)
{
    .local .align 8 .b8 depot[64];
    .reg .b16 %h<4>; .reg .b32 %r<8>; .reg .b64 %rd<8>;
    mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [out]; mov.u64 %rd2, depot;
    and.b32 %r2, %r1, 15; mul.wide.u32 %rd3, %r2, 4; add.s64 %rd4, %rd2, %rd3;
    mov.u32 %r3, 0; st.local.v4.b32 [depot], {%r3, %r3, %r3, %r3}; st.local.v2.b32 [depot+16], {%r3, %r3};
    mov.b16 %h1, 20; mov.b16 %h2, 33; mov.b16 %h3, 46;
    st.local.b16 [depot+6], %h1; st.local.b16 [depot+8], %h2; st.local.b16 [depot+10], %h3;
    st.local.b16 [depot+12], %h1;
    min.u32 %r2, %r2, 5; mul.wide.u32 %rd3, %r2, 4; add.s64 %rd4, %rd2, %rd3;
    ld.local.b32 %r4, [%rd4];
    mad.wide.u32 %rd5, %r1, 4, %rd1; st.global.b32 [%rd5], %r4;
    ret;
}"""
)


@pytest.mark.parametrize("name", DEVICES)
def test_neighbours_in_scratch_that_no_dword_holds(name: str) -> None:
    """LLVM joins stores of two halves into one of a dword that is not aligned, and lies in two."""
    words = [0, 20 << 16, 46 << 16 | 33, 20, 0, 0]
    with zluda.open_device(name) as device:
        out = device.array(np.zeros(64, np.uint32))
        device.load_module(NEIGHBOURS).kernel("k").launch(grid=1, block=64, args=[out])
        assert out.numpy().tolist() == [words[min(t % 16, 5)] for t in range(64)]
