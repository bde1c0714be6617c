"""ZLUDA_OPTIMIZATION_LEVEL=0: the same results from code that LLVM has hardly touched."""

from __future__ import annotations

import numpy as np
import pytest

import zluda
from zluda.compiler import compile_kernel
from zluda.ptx import parse_module

PTX = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 p)
{
    .reg .b32 %r<20>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [p];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.u32 %r2, [%rd3];
    mul.lo.u32 %r3, %r2, 3;
    mul.lo.u32 %r4, %r2, 3;
    add.u32 %r5, %r3, %r4;
    sub.u32 %r6, %r5, %r4;
    xor.b32 %r7, %r6, 0;
    st.global.u32 [%rd3], %r7;
    ret;
}
"""


@pytest.mark.parametrize("target", ["cpu", "gfx1030"])
def test_code_is_other_and_results_are_the_same(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def code() -> bytes:
        return compile_kernel(parse_module(PTX), "k", target, block=(32, 1, 1)).code

    usual = code()
    monkeypatch.setenv("ZLUDA_OPTIMIZATION_LEVEL", "0")
    assert code() != usual
    device = zluda.open_device(target)
    x = device.array(np.arange(32, dtype=np.uint32))
    device.load_module(PTX).kernel("k").launch(grid=(1, 1, 1), block=(32, 1, 1), args=[x])
    assert (x.numpy() == 3 * np.arange(32)).all()


def test_another_level_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZLUDA_OPTIMIZATION_LEVEL", "2")
    with pytest.raises(zluda.Error, match="ZLUDA_OPTIMIZATION_LEVEL is '2'"):
        zluda.open_device("cpu")
