"""Which AMD instructions a line of PTX becomes."""

from __future__ import annotations

import pytest

from zluda.compiler.amd.compile import kernel_ir
from zluda.compiler.amd.lines import amd_lines, located
from zluda.compiler.amd.llvm import Options, emit
from zluda.compiler.amd.targets import target_id
from zluda.compiler.amd.unit import build_unit
from zluda.ptx import parse_module

PTX = """\
.version 8.0
.target sm_80
.address_size 64
.func (.reg .b32 %out) twice(.reg .b32 %in)
{
    shl.b32 %out, %in, 1;
    ret;
}
.visible .entry k(.param .u64 p)
{
    .reg .b32 %r<9>;
    .reg .pred %p;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [p];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.u32 %r2, [%rd3];
    call (%r3), twice, (%r2);
    setp.lt.u32 %p, %r1, 7;
    @%p bra DONE;
    min.u32 %r4, %r3, %r1;
    st.global.u32 [%rd3], %r4;
DONE:
    ret;
}
"""


@pytest.mark.parametrize("target", ["gfx1030", "gfx90a"])
def test_each_line_has_its_instructions(target: str) -> None:
    found = amd_lines(parse_module(PTX), "k", target)
    load, shift, compare, store = (
        1 + PTX.split("\n").index(line)
        for line in (
            "    ld.global.u32 %r2, [%rd3];",
            "    shl.b32 %out, %in, 1;",
            "    setp.lt.u32 %p, %r1, 7;",
            "    st.global.u32 [%rd3], %r4;",
        )
    )
    assert any("load_dword" in one for one in found[load])
    assert any("store_dword" in one for one in found[store])
    assert any("v_cmp" in one for one in found[compare])
    assert any("v_lshl" in one for one in found[shift])  # inlined


def test_locations_change_no_code() -> None:
    """Instructions with and without are the same ones, in the same order."""
    chosen = target_id("gfx1030").target

    def code(*, marks: bool) -> list[str]:
        unit = build_unit(parse_module(PTX), "k")
        unit.ir.marks = marks
        text = kernel_ir(unit, chosen)
        assembly = emit(located(text) if marks else text, Options("gfx1030", 32, "asm")).decode()
        lines = (line.partition(";")[0].strip() for line in assembly.split("\n") if line.startswith("\t"))
        return [line for line in lines if line and not line.startswith(".")]

    plain = code(marks=False)
    assert len(plain) > 8
    assert code(marks=True) == plain
