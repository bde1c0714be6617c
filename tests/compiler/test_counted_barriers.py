"""Barriers for some of a block's threads (PTX ISA 9.7.13.1)."""

from __future__ import annotations

import numpy as np
import pytest

import zluda

DEVICES = ("cpu", "gfx1030", "gfx1100", "gfx90a")

# Warps in pairs, each pair at a barrier of its own, round after round; then one pair after the other at one
# barrier. A thread votes by a bit of a word that it is given.
VOTES = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out)
{
    .reg .b32 %r<12>; .reg .b64 %rd<8>; .reg .pred %p<8>;
    ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out];
    mov.u32 %r1, %tid.x; mad.wide.u32 %rd3, %r1, 4, %rd1; mad.wide.u32 %rd4, %r1, 16, %rd2;
    ld.global.u32 %r2, [%rd3];
    shr.u32 %r3, %r1, 6; add.u32 %r3, %r3, 3;
    mov.u32 %r4, 8; mov.u32 %r5, 0; mov.u32 %r6, 0; mov.u32 %r7, 0;
again:
    and.b32 %r8, %r2, 1; setp.ne.u32 %p1, %r8, 0; shr.u32 %r2, %r2, 1;
    barrier.cta.red.popc.aligned.u32 %r9, %r3, 64, %p1; mad.lo.u32 %r5, %r5, 65, %r9;
    barrier.cta.red.and.aligned.pred %p2, %r3, 64, %p1; selp.u32 %r9, 1, 0, %p2; mad.lo.u32 %r6, %r6, 2, %r9;
    barrier.cta.red.or.aligned.pred %p2, %r3, 64, !%p1; selp.u32 %r9, 1, 0, %p2; mad.lo.u32 %r7, %r7, 2, %r9;
    sub.u32 %r4, %r4, 1; setp.ne.u32 %p3, %r4, 0;
    @%p3 bra again;
    mov.u32 %r10, 2;
turns:
    sub.u32 %r8, %r10, 2; add.u32 %r9, %r3, -3; setp.ne.u32 %p4, %r9, %r8;
    @%p4 bra next;
    and.b32 %r8, %r2, 1; setp.ne.u32 %p1, %r8, 0;
    barrier.cta.red.popc.aligned.u32 %r11, 9, 64, %p1;
next:
    bar.sync 0;
    add.u32 %r10, %r10, 1; setp.lt.u32 %p3, %r10, 4;
    @%p3 bra turns;
    st.global.v4.u32 [%rd4], {%r5, %r6, %r7, %r11};
    ret;
}
"""


@pytest.mark.parametrize("name", DEVICES)
def test_votes_among_some_warps(name: str) -> None:
    words = np.random.default_rng(3).integers(0, 1 << 20, 128, dtype=np.uint32)
    words[:64] |= 0b1010
    words[64:] &= ~np.uint32(0b0110)
    with zluda.open_device(name) as device:
        votes, out = device.array(words), device.array(np.zeros((128, 4), np.uint32))
        device.load_module(VOTES).kernel("k").launch(grid=3, block=128, args=[votes, out])
        expected = np.zeros((128, 4), np.uint64)
        for half in (slice(0, 64), slice(64, 128)):
            for round in range(8):
                ayes = int((words[half] >> round & 1).sum())
                expected[half, 0] = (expected[half, 0] * 65 + ayes) % (1 << 32)
                expected[half, 1] = expected[half, 1] * 2 + (ayes == 64)
                expected[half, 2] = expected[half, 2] * 2 + (ayes < 64)
            expected[half, 3] = int((words[half] >> 8 & 1).sum())
        assert np.array_equal(out.numpy(), expected)
