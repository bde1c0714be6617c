"""Element types as kernels' loads and stores show them."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from trace_builder import TraceBuilder

from zluda.compiler.tensor_map import Tensor, encode_tiled
from zluda.diff.types.launches import Find, KernelTypes, launch_outputs
from zluda.diff.types.layout import BYTES, Confidence
from zluda.diff.types.outputs import written_only
from zluda.diff.types.override import parse_overrides
from zluda.diff.types.places import Origin
from zluda.diff.types.signature import pointee_types
from zluda.errors import Error
from zluda.ptx import Function, parse_module
from zluda.tracefile import SIGNATURES, ModuleKind, open_trace
from zluda.tracefile.stripping import Part, strip

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


# --- structures, halves, pointers, shared memory, calls ----------------------------------------------------


def layouts(body: str, **options: object) -> dict[str, str]:
    """Each origin's layout in words, with the confidence where it is not certain."""
    found = KernelTypes.of(kernel(body, **options))  # type: ignore[arg-type]
    told = {}
    for origin in found.origins:
        layout = found.layout(origin)
        assert layout is not None
        sure = "" if layout.confidence is Confidence.CERTAIN else f" {layout.confidence}"
        told[origin.name] = f"{layout}{sure}"
    return told


INDEX = "mov.u32 %r1, %tid.x; mul.wide.u32 %rd10, %r1, 24; add.s64 %rd11, %rd0, %rd10;"


def test_a_field_of_a_structure_is_known_by_its_place_in_the_period() -> None:
    body = f"""{INDEX}
        ld.global.f64 %fd1, [%rd11];
        ld.global.f32 %f1, [%rd11+8];
        ld.global.u32 %r2, [%rd11+12];
        add.s32 %r3, %r2, 1;
        ld.global.u64 %rd12, [%rd11+16];
        ld.global.f32 %f2, [%rd12];
    """
    assert layouts(body) == {"p0": "{f64, f32, s32, pointer}"}


def test_a_loop_that_is_unrolled_and_strides_by_structures_has_the_same_period() -> None:
    body = """
        mov.u64 %rd9, %rd0;
    AGAIN:
        ld.global.f32 %f1, [%rd9];
        ld.global.u32 %r2, [%rd9+4];
        add.s32 %r3, %r2, 1;
        ld.global.f32 %f2, [%rd9+8];
        ld.global.u32 %r4, [%rd9+12];
        add.s32 %r5, %r4, 1;
        add.s64 %rd9, %rd9, 16;
        @%p1 bra AGAIN;
    """
    assert layouts(body) == {"p0": "{f32, s32}"}


def test_what_lies_between_known_fields_is_said_to_be_unknown() -> None:
    body = f"{INDEX} ld.global.f64 %fd1, [%rd11]; st.global.f32 [%rd11+20], %f1;"
    assert layouts(body) == {"p0": "{f64 @0, f32 @20; 24 bytes}"}


@pytest.mark.parametrize(
    ("body", "layout"),
    [
        # bf16 widened to f32, as compilers do: the upper half of one
        ("ld.global.b16 %rs1, [%rd0]; mov.b32 %f1, {0, %rs1}; add.f32 %f2, %f1, %f1;", "bf16"),
        (
            "ld.global.u16 %rs1, [%rd0]; cvt.u32.u16 %r1, %rs1; shl.b32 %r2, %r1, 16; add.f32 %f2, %r2, %r2;",
            "bf16",
        ),
        (
            "ld.global.b32 %r1, [%rd0]; shl.b32 %r2, %r1, 16; and.b32 %r3, %r1, 0xffff0000;"
            "add.f32 %f1, %r2, %r3;",
            "bf16",
        ),
        ("add.f32 %f1, %f2, %f3; mov.b32 {%rs1, %rs2}, %f1; st.global.b16 [%rd0], %rs2;", "bf16"),
        # halves in words, vectors of words, words in pairs
        ("ld.global.b32 %r1, [%rd0]; mov.b32 {%rs1, %rs2}, %r1; add.f16 %rs3, %rs1, %rs2;", "f16"),
        ("ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd0]; fma.rn.bf16x2 %r5, %r3, %r3, %r3;", "bf16"),
        ("ld.global.b64 %rd9, [%rd0]; mov.b64 {%f1, %f2}, %rd9; add.f32 %f3, %f1, %f2;", "f32"),
        ("ld.global.b32 %r1, [%rd0]; prmt.b32 %r2, %r1, 0, 0x5432; cvt.f32.f16 %f1, %rs1;", "u32 guess"),
        (
            "ld.global.b32 %r1, [%rd0]; shr.u32 %r2, %r1, 16; cvt.u16.u32 %rs1, %r2; cvt.f32.f16 %f1, %rs1;",
            "f16",
        ),
        # formats of a byte and less
        ("ld.global.b16 %rs1, [%rd0]; cvt.rn.f16x2.e5m2x2 %r1, %rs1;", "e5m2"),
        ("cvt.rn.satfinite.e4m3x2.f32 %rs1, %f1, %f2; st.global.b16 [%rd0], %rs1;", "e4m3"),
        # integers
        ("ld.global.b32 %r1, [%rd0]; dp4a.s32.u32 %r2, %r1, %r3, %r4;", "s8"),
        ("ld.global.u8 %rs1, [%rd0]; add.s16 %rs2, %rs1, 1;", "u8"),
        ("ld.global.s16 %rs1, [%rd0]; cvt.s32.s16 %r1, %rs1; mul.lo.s32 %r2, %r1, 3;", "s16"),
        ("mul.wide.s32 %rd9, %r1, %r2; st.global.u64 [%rd0], %rd9;", "s64"),
        ("ld.global.u64 %rd9, [%rd0]; ld.global.f32 %f1, [%rd9];", "pointer"),
        ("ld.global.u32 %r1, [%rd0]; st.global.u32 [%rd0+4], %r1;", "u32 guess"),
        # a zero for floats and integers does not make them one
        (
            "mov.b32 %r1, 0; mov.b32 %r2, %r1; add.s32 %r3, %r2, 1; mov.b32 %f1, %r1;"
            "st.global.b32 [%rd0], %f1;",
            "f32",
        ),
    ],
)
def test_first_consumers(body: str, layout: str) -> None:
    assert layouts(body) == {"p0": layout}


def test_an_address_that_is_stored_is_a_pointer() -> None:
    assert layouts("st.global.u64 [%rd0], %rd1; ld.global.f32 %f1, [%rd1];") == {"p0": "pointer", "p1": "f32"}


def test_shared_memory_passes_types_on_in_their_direction() -> None:
    """Half-precision tiles in, single-precision results out, through one array of bytes."""
    body = f"""
        .shared .align 16 .b8 tile[4096];
        mov.u32 %r20, tile;
        ld.global.v4.b32 {{%r1, %r2, %r3, %r4}}, [%rd0];
        st.shared.v4.b32 [%r20], {{%r1, %r2, %r3, %r4}};
        ldmatrix.sync.aligned.m8n8.x2.shared.b16 {{%r5, %r6}}, [%r20];
        ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r7}}, [%r20+256];
        {PRODUCT.replace("%r1, %r2, %r3, %r4", "%f1, %f2, %f3, %f4")}
        st.shared.f32 [%r20+64], %f1;
        ld.shared.b32 %r8, [%r20+128];
        st.global.b32 [%rd1], %r8;
    """
    assert layouts(body) == {"p0": "f16 likely", "p1": "f32 likely"}


def test_asynchronous_copies_take_the_type_of_what_reads_the_shared_side() -> None:
    body = """
        .shared .align 16 .b8 tile[256];
        mov.u32 %r20, tile;
        cp.async.cg.shared.global [%r20], [%rd0], 16;
        ld.shared.f64 %fd1, [tile+8];
    """
    assert layouts(body) == {"p0": "f64 likely"}


CALLED = """
.func (.param .b32 result) first_of(.param .b64 where, .param .b32 scale)
{
    .reg .b64 %rd<3>; .reg .b32 %r<3>; .reg .f32 %f<3>;
    ld.param.b64 %rd1, [where];
    ld.param.b32 %r1, [scale];
    ld.b32 %r2, [%rd1+4];
    mul.f32 %f1, %r2, %r1;
    st.param.f32 [result], %f1;
    ret;
}
"""


def test_calls_pass_addresses_in_and_values_out() -> None:
    body = """
        ld.global.b32 %r3, [%rd1];
        { .param .b64 a; .param .b32 s; .param .b32 r;
        st.param.b64 [a], %rd0;
        st.param.b32 [s], %r3;
        call (r), first_of, (a, s);
        ld.param.b32 %r4, [r]; }
        st.global.b32 [%rd2], %r4;
    """
    declared = ", ".join(f".param .u64 p{i}" for i in range(3))
    loads = " ".join(f"ld.param.u64 %rd{i}, [p{i}];" for i in range(3))
    own = f".visible .entry k({declared}) {{ .reg .b32 %r<9>; .reg .b64 %rd<9>; {loads}{body} ret; }}"
    module = parse_module(HEADER + CALLED + own)
    found = KernelTypes.of(module.function("k"), module)
    assert [str(found.layout(Origin(name))) for name in ("p0", "p1", "p2")] == ["f32", "f32", "f32"]


# --- sources beside instructions, and places in allocations ------------------------------------------------


def named(name: str, body: str) -> KernelTypes:
    text = f"{HEADER}.visible .entry {name}(.param .u64 p0, .param .u64 p1) {{ .reg .b64 %rd<9>;"
    text += (
        f".reg .b32 %r<9>; .reg .f32 %f<9>; ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; {body} ret; }}"
    )
    return KernelTypes.of(parse_module(text).function(name))


COPY = "ld.global.u32 %r1, [%rd0]; st.global.u32 [%rd1], %r1;"


@pytest.mark.parametrize(
    ("name", "body", "expected"),
    [
        ("_Z1kPKfPf", COPY, ("f32 likely", "f32 likely")),
        ("_Z1kPK6__halfP13__nv_bfloat16", COPY, ("f16 likely", "bf16 likely")),
        ("_Z1kPK6float4Pj", COPY, ("f32 likely", "u32 certain")),
        ("_Z1kPKhPv", COPY, ("u32 guess", "u32 guess")),  # bytes of no type in particular
        ("_Z1kPKfPi", "ld.global.u32 %r1, [%rd0]; add.u32 %r2, %r1, 1;", ("u32 certain", "s32 likely")),
        ("_Z1kPKjPi", "ld.global.u32 %r1, [%rd0]; add.s32 %r2, %r1, 1;", ("u32 certain", "s32 likely")),
        ("k", COPY, ("u32 guess", "u32 guess")),
    ],
)
def test_names_of_kernels_are_a_second_source(name: str, body: str, expected: tuple[str, str]) -> None:
    found = named(name, body)
    told = [found.layout(Origin(parameter)) for parameter in ("p0", "p1")]
    assert tuple(f"{one} {one.confidence}" for one in told if one is not None) == expected


def test_an_allocation_of_several_tensors_is_typed_part_by_part() -> None:
    function = kernel("ld.global.f32 %f1, [%rd0]; ld.global.f64 %fd1, [%rd1];")
    packed = struct.pack("<QQ", 0x1000, 0x1400)
    (types,) = KernelTypes.of(function).place(packed, within({0x1000: "pool"}), {}).values()
    assert types.single == BYTES
    assert [
        (start, stop, str(region.layout), region.label) for start, stop, region in types.pieces(0, 0x800)
    ] == [
        (0, 0x400, "f32", "parameter 0"),
        (0x400, 0x800, "f64", "parameter 1"),
    ]


def test_two_pointers_into_one_structure_are_one_layout() -> None:
    step = "mov.u32 %r1, %tid.x; mul.wide.u32 %rd9, %r1, 16;"
    step += "add.s64 %rd10, %rd0, %rd9; add.s64 %rd11, %rd1, %rd9;"
    function = kernel(f"{step} ld.global.f32 %f1, [%rd10]; ld.global.f64 %fd1, [%rd11];")
    packed = struct.pack("<QQ", 0x1010, 0x1018)
    (types,) = KernelTypes.of(function).place(packed, within({0x1000: "x"}), {}).values()
    assert str(types.at(0).layout) == "{f32 @0, f64 @8; 16 bytes}"


def test_a_row_and_a_column_are_told_by_the_parameter_that_indices_are_multiplied_with() -> None:
    text = f"""{HEADER}
.visible .entry k(.param .u64 p, .param .u32 columns)
{{
    .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<3>;
    ld.param.u64 %rd1, [p];
    ld.param.u32 %r1, [columns];
    mov.u32 %r2, %tid.y;
    mov.u32 %r3, %tid.x;
    mad.lo.s32 %r4, %r2, %r1, %r3;
    mul.wide.s32 %rd2, %r4, 4;
    add.s64 %rd3, %rd1, %rd2;
    st.global.f32 [%rd3], %f1;
    ret;
}}
"""
    types = KernelTypes.of(parse_module(text).function("k"))
    placed = types.place(struct.pack("<QI", 0x1100, 30), within({0x1000: "x"}), {})
    region = placed["x"].at(0x100)
    assert region.pitches == (120,)
    assert region.place(0x100 + 4 * (7 * 30 + 11)) == (7, 11)


def test_a_tensor_map_says_what_its_tensor_holds() -> None:
    tensor = Tensor(9, 0x2000, (64, 32), (128,), (1, 1))  # CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
    text = f"{HEADER}.visible .entry k(.param .align 64 .b8 map[128]) {{ ret; }}"
    types = KernelTypes.of(parse_module(text).function("k"))
    (placed,) = types.place(encode_tiled(tensor, (8, 8)), within({0x2000: "x"}), {}).values()
    assert str(placed.at(0).layout) == "bf16"
    assert placed.at(0).place(3 * 128 + 10) == (3, 5)


# --- what the user says ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("k:0=bf16", {"p0": "bf16", "p1": "f32"}),
        ("^k$:p1={f64, f32, u32}", {"p0": "f32", "p1": "{f64, f32, u32}"}),
        ("other:0=bf16", {"p0": "f32", "p1": "f32"}),
    ],
)
def test_a_given_type_outweighs_what_was_found(text: str, expected: dict[str, str]) -> None:
    function = kernel("ld.global.f32 %f1, [%rd0]; st.global.f32 [%rd1], %f1;")
    overrides = [one for one in parse_overrides([text]) if one.names(function.name)]
    found = KernelTypes.of(function, None, overrides)
    assert {origin.name: str(found.layout(origin)) for origin in found.origins} == expected


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("bf16", "expected KERNEL:PARAMETER=TYPE"),
        ("k:0=float", "'float' is no type"),
        ("(:0=f32", "no regular expression"),
    ],
)
def test_what_is_no_override_is_named(text: str, complaint: str) -> None:
    with pytest.raises(Error, match=complaint):
        parse_overrides([text])


@pytest.mark.parametrize(
    ("parameter", "origin"),
    [("1", Origin("p1")), ("p1", Origin("p1")), ("p0+8", Origin("p0", 8)), ("7", None), ("q", None)],
)
def test_overrides_name_parameters_by_number_or_name(parameter: str, origin: Origin | None) -> None:
    (override,) = parse_overrides([f"k:{parameter}=f32"])
    assert override.origin_in(kernel("")) == origin


# --- what frameworks say -----------------------------------------------------------------------------------


def copied(framework: tuple[str, ...]) -> list[tuple[str, str]]:
    """(type, confidence) of a kernel's two pointers whose words are only copied."""
    text = f"{HEADER}.visible .entry k(.param .u64 p0, .param .u64 p1) {{ .reg .b64 %rd<9>; .reg .b32 %r<9>;"
    text += f"ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; {COPY} ret; }}"
    found = KernelTypes.of(parse_module(text).function("k"), framework=framework)
    layouts = [found.layout(Origin(name)) for name in ("p0", "p1")]
    return [(str(one), one.fields[0].confidence.name) for one in layouts if one is not None]


def test_tritons_signature_is_a_source_beside_instructions() -> None:
    assert {kind for kind, _ in copied(())} == {"u32"}
    assert copied(("*f32", "*bf16")) == [("f32", "LIKELY"), ("bf16", "LIKELY")]
    assert {kind for kind, _ in copied(("i32", "f32"))} == {"u32"}  # scalars, and no pointers


def test_arrays_of_numbas_tell_their_dtype() -> None:
    """numba-cuda flattens an array: owner, parent, items, size of one, data, shape, strides."""
    name = "_ZN6cudapy8__main__5saxpyB2v1Ef5ArrayIfLi1E1C7mutable7alignedE5ArrayIdLi2E1A7mutable7alignedEx"
    assert pointee_types(name) == {1 + 4: "f32", 1 + 7 + 4: "f64"}


def test_signatures_are_read_from_a_trace(tmp_path: Path) -> None:
    """Through a strip, which leaves them; and what is there in their place is not taken for one."""
    path, part = tmp_path / "t.bin", tmp_path / "s.bin"
    with TraceBuilder(path) as record:
        record.start()
        record.module(HEADER + ".visible .entry k() { ret; }")
        call = record.sequence - 1
        for number, data in ((2, b'{"k": ["*f32", "i32"], "bad": 7}'), (3, b"[1, 2"), (4, b"[1]")):
            module = record._writer.add_module(call, ModuleKind.CUBIN, number, image=b"x", origin="memory")
            record._writer.add_image(module, ModuleKind.OTHER, data, architecture=SIGNATURES)
            record._writer.add_image(module, ModuleKind.PTX, b".version 8.0")
    with open_trace(path) as trace:
        strip(trace, part, [Part.MACHINE_CODE])
    for file in (path, part):
        with open_trace(file) as trace:
            found = [trace.kernel_signatures(module) for module in trace.module_list]
        assert found == [{}, {"k": ["*f32", "i32"]}, {}, {}]
