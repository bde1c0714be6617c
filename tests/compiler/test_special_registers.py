"""Every special register of the PTX ISA can be read on every target, and those that nobody sets are zero."""

from __future__ import annotations

import numpy as np
import pytest

import zluda
from zluda.compiler import compile_kernel
from zluda.compiler.idle import IDLE
from zluda.ptx import Register, parse_module
from zluda.ptx.special import SPECIAL_REGISTERS

SCALARS = sorted(name for name, kind in SPECIAL_REGISTERS.items() if isinstance(kind, Register))


def reading(names: list[str]) -> str:
    """A kernel that adds up registers of any width."""
    lines = []
    for name in names:
        register = SPECIAL_REGISTERS[name]
        assert isinstance(register, Register)
        if register.type.bits == 1:
            lines.append(f"mov.pred %p0, {name}; selp.u64 %l1, 1, 0, %p0;")
        elif register.type.bits == 64:
            lines.append(f"mov.u64 %l1, {name};")
        else:
            lines.append(f"mov.u32 %r0, {name}; cvt.u64.u32 %l1, %r0;")
        lines.append("add.u64 %l0, %l0, %l1;")
    body = "\n".join(lines)
    return f""".version 9.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out)
{{ .reg .pred %p<1>; .reg .b32 %r<1>; .reg .b64 %l<3>; mov.u64 %l0, 0;
{body}
ld.param.u64 %l2, [out]; st.global.u64 [%l2], %l0; ret; }}"""


@pytest.mark.parametrize("target", ["cpu", "gfx1030", "gfx1100", "gfx90a"])
def test_all_can_be_read(target: str) -> None:
    compiled = compile_kernel(parse_module(reading(SCALARS)), "k", target, block=(32, 1, 1))
    assert compiled.refusals == ()


@pytest.mark.parametrize("target", ["cpu", "gfx1030"])
def test_what_nobody_sets_is_zero(target: str) -> None:
    with zluda.open_device(target) as device:
        out = device.array(np.full(1, 7, np.uint64))
        device.load_module(reading(sorted(IDLE))).kernel("k").launch(grid=1, block=1, args=[out])
        assert out.numpy()[0] == 0
