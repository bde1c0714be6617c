"""Element types as kernels' loads and stores show them."""

from __future__ import annotations

import struct

import pytest

from zluda.diff.types.launches import Find, KernelTypes, launch_outputs
from zluda.diff.types.layout import BYTES
from zluda.diff.types.outputs import written_only
from zluda.diff.types.places import Origin
from zluda.ptx import Function, parse_module

HEADER = ".version 8.0\n.target sm_90\n.address_size 64\n"


def kernel(body: str, *, parameters: int = 2, before: str = "") -> Function:
    """An entry ``k`` whose u64 parameters p0, p1 … are in %rd0, %rd1 …, with other registers to use."""
    declared = ", ".join(f".param .u64 p{i}" for i in range(parameters))
    loads = "\n".join(f"ld.param.u64 %rd{i}, [p{i}];" for i in range(parameters))
    text = f"""{HEADER}{before}
.visible .entry k({declared})
{{
    .reg .pred %p<9>; .reg .b16 %rs<19>; .reg .b32 %r<29>; .reg .f32 %f<19>;
    .reg .f64 %fd<9>; .reg .b64 %rd<39>;
    {loads}
    {body}
    ret;
}}
"""
    return parse_module(text).function("k")


def types(body: str, **options: object) -> dict[str, str]:
    return {origin.name: element for origin, element in element_types(kernel(body, **options)).items()}  # type: ignore[arg-type]


def element_types(function: Function) -> dict[Origin, str]:
    """The one type of what each origin points to, or bytes."""
    found = KernelTypes.of(function)
    layouts = {origin: found.layout(origin) for origin in found.origins}
    return {origin: layout.single for origin, layout in layouts.items() if layout is not None}


def within(allocations: dict[int, str]) -> Find[str]:
    """Finds allocations of 4 KiB."""

    def find(address: int) -> tuple[str, int] | None:
        base = address & ~0xFFF
        return (allocations[base], address - base) if base in allocations else None

    return find


def launch_types(
    function: Function, packed: bytes, find: Find[str], variables: dict[str, str]
) -> dict[str, str]:
    placed = KernelTypes.of(function).place(packed, find, variables)
    return {key: types.single for key, types in placed.items()}


def test_typed_loads_and_stores_through_address_arithmetic() -> None:
    body = """
        cvta.to.global.u64 %rd10, %rd0;
        cvta.to.global.u64 %rd11, %rd1;
        mov.u32 %r1, %tid.x;
        mul.wide.s32 %rd12, %r1, 4;
        mul.wide.s32 %rd13, %r1, 8;
        add.s64 %rd14, %rd10, %rd12;
        mad.lo.s64 %rd15, %rd13, 2, %rd11;
        ld.global.nc.f32 %f1, [%rd14];
        cvt.f64.f32 %fd1, %f1;
        st.global.f64 [%rd15+8], %fd1;
    """
    assert types(body) == {"p0": "f32", "p1": "f64"}


@pytest.mark.parametrize(
    ("use", "element"),
    [
        ("add.f32 %r2, %r1, %r1;", "f32"),
        ("mov.b32 %f1, %r1; add.f32 %f2, %f1, %f1;", "f32"),
        ("add.s32 %r2, %r1, 1;", "s32"),
        ("add.u32 %r2, %r1, 1;", "u32"),
        ("add.f16x2 %r2, %r1, %r1;", "f16"),
        ("fma.rn.bf16x2 %r2, %r1, %r1, %r1;", "bf16"),
        ("cvt.rn.f64.s32 %fd1, %r1;", "s32"),
        ("xor.b32 %r2, %r1, 1;", "u32"),
        ("setp.lt.f32 %p1, %r1, %r1;", "f32"),
    ],
)
def test_an_untyped_load_takes_the_type_of_its_first_use(use: str, element: str) -> None:
    assert types(f"ld.global.b32 %r1, [%rd0]; {use}") == {"p0": element}


def test_an_untyped_store_takes_the_type_of_what_made_the_value() -> None:
    body = "cvt.rn.f32.s32 %f1, %r3; mov.b32 %r1, %f1; st.global.b32 [%rd0], %r1;"
    assert types(body) == {"p0": "f32"}


def test_values_keep_their_type_through_shuffles_and_selections() -> None:
    body = """
        ld.global.b32 %r1, [%rd0];
        shfl.sync.down.b32 %r2, %r1, 1, 31, -1;
        selp.b32 %r3, %r2, %r1, %p1;
        add.f32 %r4, %r3, %r3;
        st.global.b32 [%rd1], %r2;
    """
    assert types(body) == {"p0": "f32", "p1": "f32"}


def test_a_copy_through_integers_does_not_hide_floats() -> None:
    body = """
        ld.global.f32 %f1, [%rd0];
        ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd0+16];
        st.global.v4.u32 [%rd0+32], {%r1, %r2, %r3, %r4};
    """
    assert types(body) == {"p0": "f32"}


@pytest.mark.parametrize(
    ("body", "element"),
    [
        ("ld.global.f32 %f1, [%rd0]; ld.global.f64 %fd1, [%rd0+8];", BYTES),
        ("ld.global.f32 %f1, [%rd0]; ld.global.u8 %rs1, [%rd0+4];", BYTES),
        ("ld.global.f32 %f1, [%rd0]; ld.global.u32 %r1, [%rd0]; add.u32 %r2, %r1, 1;", BYTES),
        ("ld.global.u32 %r1, [%rd0]; add.s32 %r2, %r1, 1; add.u32 %r3, %r1, 1;", "s32"),
        ("ld.global.u8 %rs1, [%rd0]; add.s16 %rs2, %rs1, 1;", "u8"),
        ("ld.global.s8 %r1, [%rd0]; add.s32 %r2, %r1, 1;", "s8"),
        ("atom.global.add.u32 %r1, [%rd0], 1;", "u32"),
        ("red.global.add.f32 [%rd0], %f1;", "f32"),
        ("st.global.u32 [%rd0], 0;", "u32"),
        ("ld.global.v2.f64 {%fd1, %fd2}, [%rd0];", "f64"),
        ("ld.global.b16 %rs1, [%rd0]; cvt.rn.f16x2.e4m3x2 %r1, %rs1;", "e4m3"),
        ("wmma.load.c.sync.aligned.row.m8n8k4.f64 {%fd1, %fd2}, [%rd0];", "f64"),
        ("wmma.store.d.sync.aligned.row.m8n8k32.s32 [%rd0], {%r1, %r2};", "s32"),
        ("wmma.load.a.sync.aligned.row.m8n8k32.s4 {%r1}, [%rd0];", BYTES),
    ],
)
def test_votes(body: str, element: str) -> None:
    assert types(body) == {"p0": element}


PRODUCT = (
    "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
    "{%r1, %r2, %r3, %r4}, {%r5, %r6}, {%r7}, {%r1, %r2, %r3, %r4};"
)


def test_operands_of_a_matrix_product_have_its_types() -> None:
    body = f"ld.global.b32 %r5, [%rd0]; {PRODUCT} st.global.b32 [%rd1], %r1;"
    assert types(body) == {"p0": "f16", "p1": "f32"}
    body = "wmma.load.a.sync.aligned.row.m8n8k4.f64 {%fd1}, [%rd0];"
    body += "wmma.store.d.sync.aligned.row.m8n8k4.f64 [%rd1], {%fd2, %fd3};"
    assert written_only(kernel(body)) == {Origin("p1")}


def test_addresses_chosen_between_parameters_count_for_both() -> None:
    assert types("selp.b64 %rd9, %rd0, %rd1, %p1; ld.global.f32 %f1, [%rd9];") == {"p0": "f32", "p1": "f32"}


def test_loops_that_advance_a_pointer_are_followed() -> None:
    body = """
        mov.u64 %rd9, %rd0;
    AGAIN:
        ld.global.f32 %f1, [%rd9];
        add.s64 %rd8, %rd9, 4;
        mov.u64 %rd9, %rd8;
        @%p1 bra AGAIN;
    """
    assert types(body) == {"p0": "f32"}


def test_variables_by_symbol_and_by_register() -> None:
    before = ".global .align 4 .u32 counter;\n.const .align 4 .b8 table[16];"
    body = """
        ld.global.f32 %f1, [counter];
        mov.u64 %rd9, table;
        add.s64 %rd8, %rd9, %rd7;
        ld.const.f64 %fd1, [%rd8];
    """
    assert types(body, before=before) == {"counter": "f32", "table": "f64"}


def test_shared_memory_of_the_kernel_is_no_buffer() -> None:
    assert types(".shared .align 4 .f32 tile[32]; ld.shared.f32 %f1, [tile];") == {}


def test_pointers_inside_a_structure_parameter_have_their_own_offset() -> None:
    text = f"""{HEADER}
.visible .entry k(.param .align 8 .b8 s[24])
{{
    .reg .b64 %rd<9>; .reg .f32 %f<3>; .reg .f64 %fd<3>;
    ld.param.v2.u64 {{%rd1, %rd2}}, [s+8];
    ld.global.f32 %f1, [%rd1];
    ld.global.f64 %fd1, [%rd2];
    ret;
}}
"""
    found = element_types(parse_module(text).function("k"))
    assert found == {Origin("s", 8): "f32", Origin("s", 16): "f64"}


def test_a_launch_maps_types_to_allocations() -> None:
    before = ".global .align 4 .u32 counter;"
    body = """
        ld.global.f32 %f1, [%rd0];
        st.global.f64 [%rd1], %fd1;
        red.global.add.u32 [counter], 1;
    """
    function = kernel(body, before=before)
    allocations = {0x1000: "x", 0x2000: "y"}
    packed = struct.pack("<QQ", 0x1000, 0x2000)
    assert launch_types(function, packed, within(allocations), {"counter": "c"}) == {
        "x": "f32",
        "y": "f64",
        "c": "u32",
    }


def test_two_parameters_into_one_allocation_must_agree() -> None:
    function = kernel("ld.global.f32 %f1, [%rd0]; st.global.f64 [%rd1], %fd1;")
    packed = struct.pack("<QQ", 0x1000, 0x1040)
    assert launch_types(function, packed, within({0x1000: "pool"}), {}) == {"pool": BYTES}


def outputs(body: str, **options: object) -> set[str]:
    return {origin.name for origin in written_only(kernel(body, **options))}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("ld.global.f32 %f1, [%rd0]; st.global.f32 [%rd1], %f1;", {"p1"}),
        ("ld.global.f32 %f1, [%rd1]; st.global.f32 [%rd1], %f1;", set()),
        ("red.global.add.u32 [%rd0], 1; st.global.f32 [%rd1], %f1;", {"p1"}),
        ("add.s64 %rd9, %rd1, 16; st.global.f32 [%rd9], %f1;", {"p1"}),
        ("st.global.u64 [%rd0], %rd1; st.global.f32 [%rd1], %f1;", {"p0"}),  # p1's address gets out
        ("ld.global.u64 %rd9, [%rd0]; ld.global.f32 %f1, [%rd9]; st.global.f32 [%rd1], %f1;", set()),
        ("cp.async.ca.shared.global [%r1], [%rd0], 4; st.global.f32 [%rd0], %f1;", set()),
        ("setp.eq.u64 %p1, %rd1, 0; st.global.f32 [%rd1], %f1;", {"p1"}),
        ("ld.shared.f32 %f1, [%r1]; st.global.f32 [%rd1], %f1;", {"p1"}),
    ],
)
def test_pure_outputs(body: str, expected: set[str]) -> None:
    assert outputs(body) == expected


def test_an_allocation_is_an_output_only_if_no_parameter_reads_it() -> None:
    function = kernel("ld.global.f32 %f1, [%rd0]; st.global.f32 [%rd1], %f1;")
    apart, same = struct.pack("<QQ", 0x1000, 0x2000), struct.pack("<QQ", 0x2000, 0x2000)
    allocations = {0x1000: "x", 0x2000: "y"}
    assert launch_outputs(KernelTypes.of(function), apart, within(allocations), {}) == {"y"}
    assert launch_outputs(KernelTypes.of(function), same, within(allocations), {}) == set()
