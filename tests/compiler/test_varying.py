"""Which kernels may compute something else each time."""

from __future__ import annotations

import pytest

from zluda.compiler.analysis.varying import varying
from zluda.compiler.unit import kernel_unit
from zluda.ptx import parse_module

TEXT = """
.version 8.6
.target sm_90a
.address_size 64
.extern .func (.param .b64 r) malloc(.param .b64 n);
.func called(.param .b64 p)
{{
    .reg .b64 %rd<3>;
    .reg .f32 %f<2>;
    ld.param.u64 %rd1, [p];
    red.global.add.f32 [%rd1], %f1;
    ret;
}}
.visible .entry k(.param .u64 p)
{{
    .reg .b64 %rd<5>;
    .reg .b32 %r<9>;
    .reg .f32 %f<4>;
    .reg .f64 %fd<4>;
    .reg .pred %p<2>;
    ld.param.u64 %rd1, [p];
    {}
    ret;
}}
"""


BULK = "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd1], [%r1], 16;"


def found(body: str) -> list[str]:
    module = parse_module(TEXT.format(body))
    return varying(kernel_unit(module, "k", (32, 1, 1)))


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("atom.global.add.f32 %f1, [%rd1], %f2;", ["atom.add.f32"]),
        ("red.shared.add.f64 [%rd1], %fd1;", ["red.add.f64"]),
        ("red.relaxed.gpu.global.add.noftz.f16x2 [%rd1], %r2;", ["red.add.f16x2"]),
        (BULK, ["cp.reduce.add.f32"]),
        ("multimem.red.relaxed.sys.global.add.f32 [%rd1], %f1;", ["multimem.add.f32"]),
        ("atom.global.add.u32 %r1, [%rd1], 1; st.global.u32 [%rd1+4], %r1;", ["atom.add.u32"]),
        ("atom.global.add.u64 %rd2, [%rd1], 1; st.global.u32 [%rd2], 0;", ["atom.add.u64"]),
        ("atom.global.exch.b32 %r1, [%rd1], 1;", ["atom.exch.b32"]),
        ("atom.global.cas.b32 %r1, [%rd1], %r2, %r3;", ["atom.cas.b32"]),
        ("ld.acquire.gpu.global.u32 %r3, [%rd1];", ["ld.acquire"]),
        ("ld.volatile.u32 %r3, [%rd1];", ["ld.volatile"]),
        ("mov.u64 %rd2, %clock64; mov.u32 %r1, %smid;", ["%clock64", "%smid"]),
        ("activemask.b32 %r5;", ["activemask"]),
        ("{ .param .b64 a; st.param.b64 [a], %rd1; call called, (a); }", ["red.add.f32"]),
    ],
)  # fmt: skip
def test_what_depends_on_the_order_is_named(body: str, names: list[str]) -> None:
    assert found(body) == names


@pytest.mark.parametrize(
    "body",
    [
        "atom.global.add.u32 %r1, [%rd1], 1;",  # as nvcc writes a reduction
        "red.global.max.s32 [%rd1], %r1;",
        "atom.global.or.b32 _, [%rd1], %r2;",
        "ld.volatile.shared.u32 %r3, [%r1];",  # of the warp's own block
        "ld.global.nc.u32 %r3, [%rd1];",
        "mov.u32 %r1, %laneid; bar.sync 0;",
        "add.rn.f32 %f1, %f2, %f3;",
    ],
)
def test_what_does_not_is_not(body: str) -> None:
    assert found(body) == []
