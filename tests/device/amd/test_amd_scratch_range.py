"""Local memory beyond a thread's own is a fault, whichever way the target reaches it."""

import numpy as np
import pytest

import zluda
from zluda.errors import LaunchError

TARGETS = ("gfx1030", "gfx1100", "gfx90a")

# Buffer instructions (scratch ones from gfx11 on), whole and in bytes; and flat ones.
BODIES = {
    "word": "st.local.u32 [%r1], %r2; ld.local.u32 %r3, [%r1];",
    "byte": "st.local.u8 [%r1], %r2; ld.local.u8 %r3, [%r1];",
    "flat": "cvt.u64.u32 %d1, %r1; cvta.local.u64 %d1, %d1; st.u32 [%d1], %r2; ld.u32 %r3, [%d1];",
    "atomic": """cvt.u64.u32 %d1, %r1; cvta.local.u64 %d1, %d1; st.local.u32 [l], 0; st.local.u32 [l+12], 0;
                 atom.add.u32 %r3, [%d1], %r2; ld.u32 %r3, [%d1];""",
}


def _run(target: str, body: str, offset: int) -> list[int]:
    """What each of 64 threads reads back of the 7 that it stored at an offset of its 16 bytes."""
    text = f""".version 8.0
.target sm_70
.address_size 64
.visible .entry k(.param .u64 p, .param .u32 q)
{{
    .reg .b64 %d<4>;
    .reg .b32 %r<5>;
    .local .align 4 .b8 l[16];
    ld.param.u64 %d0, [p];
    ld.param.u32 %r0, [q];
    mov.u32 %r1, l;
    add.u32 %r1, %r1, %r0;
    mov.u32 %r2, 7;
    {body}
    mov.u32 %r4, %tid.x;
    mad.wide.u32 %d0, %r4, 4, %d0;
    st.global.u32 [%d0], %r3;
    ret;
}}
"""
    with zluda.open_device(target) as device:
        out = device.array(np.zeros(64, np.uint32))
        kernel = device.load_module(text).kernel("k")
        kernel.launch(grid=1, block=64, args=[out, np.uint32(offset)])
        return [int(x) for x in out.numpy()]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("how", BODIES)
def test_the_last_word_of_local_memory_is_inside(target: str, how: str) -> None:
    assert _run(target, BODIES[how], 12) == [7] * 64


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("how", BODIES)
@pytest.mark.parametrize("offset", [1000, 1 << 27, (1 << 32) - 64])
def test_an_offset_outside_is_a_fault_that_says_where(target: str, how: str, offset: int) -> None:
    with pytest.raises(LaunchError, match=r"scratch access out of range \((buffer|scratch|flat)_") as caught:
        _run(target, BODIES[how], offset)
    assert caught.value.kernel == "k"
    assert caught.value.block == (0, 0, 0)
