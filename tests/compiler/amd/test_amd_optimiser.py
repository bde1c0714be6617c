"""What the short list of passes must keep of the full pipeline's work."""

from __future__ import annotations

import pytest

from zluda.compiler import compile_kernel
from zluda.compiler.amd.code_object import CodeObject
from zluda.compiler.amd.inputs import unread_inputs
from zluda.compiler.amd.linker import link
from zluda.compiler.amd.report import report
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
