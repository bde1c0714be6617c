"""Static classes: what a kernel's instructions say of the bound that it is held to."""

from __future__ import annotations

import pytest

from zluda.diff.kernel_class import KernelClass, StaticClass, bound, static_class
from zluda.ptx import parse_module

HEADER = ".version 8.6\n.target sm_90a\n.address_size 64\n"
REGISTERS = ".reg .pred %p<9>; .reg .b16 %rs<9>; .reg .b32 %r<19>; .reg .b64 %rd<9>;"
REGISTERS += ".reg .f32 %f<19>; .reg .f64 %fd<9>;"
PRODUCT = "{%r1, %r2, %r3, %r4}, {%r5, %r6}, {%r7}, {%r1, %r2, %r3, %r4};"


def classed(body: str, before: str = "") -> StaticClass:
    module = parse_module(f"{HEADER}{before}.visible .entry k(.param .u64 p) {{ {REGISTERS} {body} ret; }}")
    return static_class(module.function("k"), module)


FREE, ROUNDED = "mul.f32 %f1, %f2, %f3;", "mul.rn.f32 %f1, %f2, %f3;"
USED = "ld.param.u64 %rd1, [p]; st.global.f32 [%rd1], %f9;"


@pytest.mark.parametrize(
    ("body", "kind", "names"),
    [
        ("add.s32 %r1, %r2, 1;", KernelClass.INTEGER, ()),
        ("ld.global.f32 %f1, [%rd1]; st.global.f32 [%rd1], %f1;", KernelClass.INTEGER, ()),
        ("red.global.add.u32 [%rd1], 1;", KernelClass.INTEGER, ()),
        ("bar.sync 0;", KernelClass.INTEGER, ()),
        ("fma.rn.f32 %f1, %f2, %f3, %f4;", KernelClass.IEEE_EXACT, ("fma.f32",)),
        ("cvt.rn.f16.f32 %rs1, %f1;", KernelClass.IEEE_EXACT, ("cvt.f16",)),
        ("sqrt.rn.f64 %fd1, %fd2;", KernelClass.IEEE_EXACT, ("sqrt.f64",)),
        (f"mul.f32 %f1, %f2, %f3; add.f32 %f9, %f1, %f4; {USED}", KernelClass.CONTRACTIBLE, ("add.f32",)),
        (f"{ROUNDED} add.f32 %f9, %f1, %f4; {USED}", KernelClass.IEEE_EXACT, ("add.f32", "mul.f32")),
        (f"{FREE} add.rn.f32 %f9, %f1, %f4; {USED}", KernelClass.IEEE_EXACT, ("add.f32", "mul.f32")),
        (
            "ex2.approx.ftz.f32 %f1, %f2; div.full.f32 %f3, %f1, %f2;",
            KernelClass.APPROXIMATE,
            ("div.full.f32", "ex2.approx.ftz.f32"),
        ),
        ("div.rn.f32 %f1, %f2, %f3;", KernelClass.IEEE_EXACT, ("div.f32",)),
        (
            "red.global.add.f32 [%rd1], %f1; rsqrt.approx.f32 %f1, %f2;",
            KernelClass.FLOAT_ATOMICS,
            ("red.add.f32",),
        ),
        (
            f"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {PRODUCT}",
            KernelClass.TENSOR_CORE,
            ("mma.f32.f16.f16.f32",),
        ),
        (f"mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {PRODUCT}", KernelClass.INTEGER, ()),
    ],
)
def test_classes(body: str, kind: KernelClass, names: tuple[str, ...]) -> None:
    found = classed(body)
    assert (found.kind, found.names) == (kind, names)


def test_a_kernel_is_of_the_loosest_class_that_it_or_what_it_calls_has() -> None:
    called = f".func g() {{ {REGISTERS} sin.approx.f32 %f1, %f2; ret; }}\n"
    found = classed("add.rn.f32 %f1, %f2, %f3; call g;", called)
    assert found.kind is KernelClass.APPROXIMATE
    assert found.causes[KernelClass.IEEE_EXACT] == ("add.f32",)


def test_a_product_in_one_block_and_its_sum_in_another_may_be_fused() -> None:
    body = f"mul.f32 %f1, %f2, %f3; @%p1 bra L; mov.f32 %f2, %f1; L: add.f32 %f9, %f1, %f2; {USED}"
    assert classed(body).kind is KernelClass.CONTRACTIBLE


@pytest.mark.parametrize(
    ("body", "numerics", "words"),
    [
        ("add.s32 %r1, %r2, 1;", "native", "0 ULP: integers and moves"),
        ("add.rn.f32 %f1, %f2, %f3;", "native", "0 ULP: every operation is rounded as IEEE 754 says"),
        (f"{FREE} add.f32 %f9, %f1, %f4; {USED}", "native", "0 ULP: fused as NVIDIA's assembler does"),
        ("lg2.approx.f32 %f1, %f2;", "native", "the envelope of lg2.approx.f32"),
        ("lg2.approx.f32 %f1, %f2;", "nvidia", "0 ULP: approximated bit for bit as on NVIDIA"),
        (
            "red.global.add.f32 [%rd1], %f1;",
            "nvidia",
            "what NVIDIA's own runs vary, for the order of red.add.f32",
        ),
        (
            f"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {PRODUCT}",
            "native",
            "0 ULP: summed in the order and width of NVIDIA's tensor cores",
        ),
        (
            f"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {PRODUCT} ex2.approx.f32 %f1, %f2;",
            "native",
            "the envelope of ex2.approx.f32",
        ),
    ],
)
def test_bounds(body: str, numerics: str, words: str) -> None:
    assert bound(classed(body), numerics=numerics) == words


def test_a_bound_by_another_rule_of_contraction_says_so() -> None:
    found = classed(f"mul.f32 %f1, %f2, %f3; add.f32 %f9, %f1, %f4; {USED}")
    assert bound(found, numerics="nvidia", contract="on") == "0 ULP where ptxas fuses as --contract on does"


def test_exact_classes() -> None:
    assert [one.exact for one in KernelClass] == [True, True, True, False, False, False]
