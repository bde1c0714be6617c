"""What the short list of passes must keep of the full pipeline's work."""

from __future__ import annotations

import numpy
import pytest

from zluda import open_device
from zluda.compiler import compile_kernel
from zluda.compiler.amd.code_object import CodeObject
from zluda.compiler.amd.inputs import unread_inputs
from zluda.compiler.amd.linker import link
from zluda.compiler.amd.report import report
from zluda.errors import LaunchError
from zluda.ptx import parse_module

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"
KERNEL = """.visible .entry k(.param .u64 p)
{{
    .reg .b64 %rd<9>;
    .reg .b32 %r<9>;
    .reg .f32 %f<9>;
    ld.param.u64 %rd1, [p];
    mov.u32 %r1, %tid.x;
    {body}
    st.global.u32 [%rd1], %r1;
    ret;
}}
"""
TARGETS = ("gfx1030", "gfx1100", "gfx90a")
_WORKGROUP_ID_Y = 1 << 8  # of COMPUTE_PGM_RSRC2


def code(target: str, body: str, before: str = "") -> CodeObject:
    module = parse_module(HEAD + before + KERNEL.format(body=body))
    return CodeObject(link(compile_kernel(module, "k", target).code))


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_not_read_is_not_prepared(target: str) -> None:
    plain = code(target, "").kernel("k").descriptor.rsrc2
    reading = code(target, "mov.u32 %r2, %ctaid.y; add.u32 %r1, %r1, %r2;").kernel("k").descriptor.rsrc2
    assert not plain & _WORKGROUP_ID_Y
    assert reading & _WORKGROUP_ID_Y


def test_what_a_function_reads_counts_for_its_kernel() -> None:
    text = "call i32 @llvm.amdgcn.workgroup.id.y()"
    assert '"amdgpu-no-workgroup-id-y"' not in unread_inputs(text)
    assert '"amdgpu-no-workgroup-id-z"' in unread_inputs(text)


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_of_ours_stays_a_call(target: str) -> None:
    body = "cvt.rn.f32.u32 %f1, %r1; " + " ".join(
        f"{op}.f32 %f1, %f1;" for op in ("sin.approx", "lg2.approx", "ex2.approx", "sqrt.rn", "rcp.rn") * 3
    )
    module = parse_module(HEAD + KERNEL.format(body=body + " cvt.rni.u32.f32 %r1, %f1;"))
    found = report(link(compile_kernel(module, "k", target, numerics="nvidia").code), "k")
    assert found.scratch_bytes == 0  # a call would need a stack


TRAPS = """.visible .entry k(.param .u64 p)
{
    .reg .b64 %rd<6>;
    .reg .b32 %r<4>;
    .reg .pred %p<4>;
    ld.param.u64 %rd1, [p];
    mov.u32 %r1, %tid.x;
    ld.global.u32 %r2, [%rd1];
    setp.ne.u32 %p1, %r2, 1;
    @%p1 bra FIRST;
    trap;
FIRST:
    ld.global.u32 %r3, [%rd1+4];
    setp.ne.u32 %p2, %r3, %r1;
    @%p2 bra SECOND;
    trap;
SECOND:
    mul.wide.u32 %rd2, %r1, 8;
    add.u64 %rd3, %rd1, %rd2;
    ld.global.u64 %rd4, [%rd3+8];
    add.u64 %rd4, %rd4, %rd3;
    st.global.u64 [%rd3+8], %rd4;
    ret;
}
"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("first", "second", "traps"), [(0, 99, False), (1, 99, True), (0, 5, True)])
def test_traps_are_written_with_all_that_follows(target: str, first: int, second: int, traps: bool) -> None:
    """gfx11's are of several blocks (``faults.fence_traps``). The first is all lanes', the second one's."""
    device = open_device(target)
    kernel = device.load_module(HEAD + TRAPS).kernel("k")
    given = numpy.array([first | second << 32, *range(32)], dtype=numpy.uint64)
    x = device.array(given)
    if traps:
        with pytest.raises(LaunchError, match="s_trap"):
            kernel.launch(grid=(1, 1, 1), block=(32, 1, 1), args=[x])
        return
    kernel.launch(grid=(1, 1, 1), block=(32, 1, 1), args=[x])
    places = numpy.uint64(x.address) + 8 * numpy.arange(32, dtype=numpy.uint64)
    assert (x.numpy()[1:] == given[1:] + places).all()
