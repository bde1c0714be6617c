"""What PTX text means in the typed form."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from ptx_text import HEAD, canonical_module, function_of, module_of

from zluda.errors import PtxError
from zluda.ptx import (
    Address,
    BranchTargets,
    CallPrototype,
    Element,
    Immediate,
    Indexed,
    Instruction,
    Label,
    LabelStatement,
    Module,
    Negated,
    Pair,
    Register,
    ScalarType,
    Selected,
    Sink,
    Symbol,
    Vector,
    parse_module,
    print_instruction,
    print_module,
)
from zluda.ptx.constants import ConstantError, parse_integer
from zluda.ptx.printer import print_function

DATA = Path(__file__).parent / "data"
REAL = sorted(DATA.glob("*.ptx"))


def one(text: str, before: str = "") -> Instruction:
    return function_of(text, before=before).instructions[0]


def failure(text: str, before: str = "") -> PtxError:
    with pytest.raises(PtxError) as caught:
        function_of(text, before=before)
    return caught.value


# --- real text -------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", REAL, ids=lambda p: p.stem)
def test_nvcc_output_parses_whole_and_prints_to_itself(path: Path) -> None:
    module = parse_module(path.read_bytes(), path.name)
    assert module.errors() == {}
    assert canonical_module(parse_module(print_module(module))) == canonical_module(module)


@pytest.mark.parametrize("path", REAL, ids=lambda p: p.stem)
def test_ordinals_number_the_instructions(path: Path) -> None:
    module = parse_module(path.read_bytes(), path.name)
    for name in module.kernel_names:
        instructions = module.function(name).instructions
        assert [i.ordinal for i in instructions] == list(range(len(instructions)))


@pytest.mark.parametrize("path", REAL, ids=lambda p: p.stem)
def test_locations_point_at_the_opcode(path: Path) -> None:
    text = path.read_text()
    lines = text.split("\n")
    module = parse_module(text, path.name)
    for name in module.kernel_names:
        for instruction in module.function(name).instructions:
            place = instruction.location
            assert lines[place.line - 1][place.column - 1 :].startswith(instruction.opcode)


def test_debug_information_is_kept() -> None:
    module = parse_module((DATA / "language_debug_sm90.ptx").read_text())
    assert module.files[1].endswith(".cu") or any(f.endswith(".cu") for f in module.files.values())
    assert {s.name for s in module.sections} >= {".debug_info", ".debug_abbrev"}
    lines = module.function(module.kernel_names[0]).debug_lines
    assert lines
    assert all(line.file in module.files for line in lines)
    inlined = parse_module((DATA / "data_lineinfo_sm90.ptx").read_text())
    assert any(
        line.inlined_at for name in inlined.kernel_names for line in inlined.function(name).debug_lines
    )


# --- module level ----------------------------------------------------------------------------------


def test_header() -> None:
    module = parse_module(".version 8.3\n.target sm_90a, debug\n.address_size 32\n")
    assert (module.version, module.target, module.address_size) == ((8, 3), ("sm_90a", "debug"), 32)


def test_functions_and_kernels_are_listed_without_parsing_bodies() -> None:
    module = parse_module(
        HEAD + ".extern .func ext (.param .b32 a);\n.func (.param .b32 r) f (.param .b32 a) { nonsense; }\n"
        ".weak .entry k2 { ret; }\n.visible .entry k1 () .maxntid 8, 2, 1 .minnctapersm 2 { ret; }"
    )
    assert module.function_names == ("ext", "f", "k2", "k1")
    assert module.kernel_names == ("k2", "k1")
    assert module.function("k1").directives == {"maxntid": (8, 2, 1), "minnctapersm": (2,)}
    assert module.function("k2").linkage == "weak"
    assert module.function("ext").body is None


def test_a_bad_function_does_not_lose_the_others_and_is_named() -> None:
    module = parse_module(
        HEAD + ".entry a { ret; }\n"
        '.entry b { add.u32 1; { ret; }\n.entry c { .pragma "}"; ret; }\n.entry d { bad; }'
    )
    lost = module.errors()
    assert set(lost) == {"b", "d"}
    assert "'}'" in lost["b"].expected
    assert module.function("a").body is not None
    assert module.function("c").pragmas[0].text == "}"


def test_comments_hide_nothing_else() -> None:
    module = parse_module(
        HEAD
        + '/* .entry no { */ .entry k // }\n{ /* ; } */ .pragma "// not a comment"; ret; /* multi\nline */ }'
    )
    assert module.kernel_names == ("k",)
    assert module.function("k").pragmas[0].text == "// not a comment"
    assert len(module.function("k").instructions) == 1


def test_variables() -> None:
    module = parse_module(
        HEAD + ".visible .global .align 8 .b8 s[12] = {1, 2, 0xff, -1};\n.const .f32 pi = 0f40490FDB;\n"
        ".global .v4 .f32 v[2];\n.extern .shared .align 16 .b8 dyn[];\n"
        ".global .u64 p[3] = {generic(s)+4, s, 5};\n"
        ".global .s16 m[2][3] = {{1}, {4, 5, 6}};\n.global .f64 d = 1.5;\n.global .texref t;\n"
        ".global .attribute(.managed) .u32 w = 7;\n.global .b32 many[] = {1, 2, 3};\n.global .f32 x, y;\n"
    )
    v = module.variables
    assert (v["s"].size, v["s"].align, v["s"].linkage) == (12, 8, "visible")
    assert v["s"].initializer == bytes([1, 2, 255, 255]) + bytes(8)
    assert v["pi"].initializer == struct.pack("<I", 0x40490FDB)
    assert (v["v"].size, v["v"].vector, v["v"].align) == (32, 4, 16)
    assert (v["dyn"].shape, v["dyn"].size, v["dyn"].linkage) == ((0,), 0, "extern")
    assert v["p"].relocations == ((0, Symbol("s", 4)), (8, Symbol("s")))
    assert v["p"].initializer == bytes(16) + struct.pack("<Q", 5)
    assert v["m"].initializer == struct.pack("<6h", 1, 0, 0, 4, 5, 6)
    assert v["d"].initializer == struct.pack("<d", 1.5)
    assert v["t"].type is ScalarType.TEXREF
    assert v["w"].attributes == ("managed",)
    assert v["many"].shape == (3,)
    assert {"x", "y"} <= set(v)


def test_masked_bytes_of_a_symbol_are_one_pointer() -> None:
    masks = ", ".join(f"mask({0xFF << 8 * i:#X})(t)" for i in range(8)).replace("0X", "0x")
    module = parse_module(HEAD + f".global .b32 t;\n.global .b8 s[16] = {{1,2,3,4,5,6,7,8, {masks}}};")
    assert module.variables["s"].relocations == ((8, Symbol("t")),)
    assert module.variables["s"].initializer == bytes(range(1, 9)) + bytes(8)


def test_a_bad_variable_is_lost_alone() -> None:
    module = parse_module(HEAD + ".global .b32 bad[2] = {1,2,3};\n.global .b32 good;\n.entry k { ret; }")
    assert set(module.errors()) == {"bad"}
    assert set(module.variables) == {"good"}


def test_alias() -> None:
    module = parse_module(HEAD + ".func f { ret; }\n.func g;\n.alias g, f;")
    assert module.aliases == {"g": "f"}
    assert module.function("g").name == "f"


def test_declaration_and_definition_are_one_function() -> None:
    module = parse_module(
        HEAD + ".func (.param .b32 r) f (.param .b32 a);\n.func (.param .b32 r) f (.param .b32 a) { ret; }"
    )
    assert module.function_names == ("f",)
    assert module.function("f").body is not None


def test_kernel_parameters() -> None:
    module = parse_module(
        HEAD + ".entry k(.param .u64 .ptr .global .align 4 a,"
        " .param .align 8 .b8 s[24], .param .v2 .f32 w) { ret; }"
    )
    a, s, w = module.function("k").parameters
    assert (a.type, a.size, a.align, a.attributes) == (
        ScalarType.U64,
        8,
        8,
        ("ptr", "ptr.global", "ptr.align(4)"),
    )
    assert (s.size, s.align) == (24, 8)
    assert (w.size, w.align) == (8, 8)


# --- statements ------------------------------------------------------------------------------------


def test_guards_labels_and_branches() -> None:
    function = function_of("L1: @!%p1 bra L2;\n@%p2 bra.uni L1;\nL2: ret;")
    first, second, _ = function.instructions
    assert first.guard is not None
    assert (first.guard.register.name, first.guard.negated) == ("%p1", True)
    assert first.operands == (Label("L2"),)
    assert second.has("uni")
    assert [s.name for s in function.body or [] if isinstance(s, LabelStatement)] == ["L1", "L2"]


def test_registers_and_special_registers() -> None:
    instruction = one("mov.u32 %r1, %tid.x;")
    assert instruction.operands == (
        Register("%r1", ScalarType.B32),
        Register("%tid.x", ScalarType.U32, special=True),
    )
    assert one("mov.u64 %rd1, %clock64;").operands[1] == Register("%clock64", ScalarType.U64, special=True)


def test_vector_registers_are_their_components() -> None:
    parts = tuple(Register(f"v.{c}", ScalarType.F32) for c in "xyzw")
    load, move = function_of(".reg .v4 .f32 v; ld.global.v4.f32 v, [%rd1]; mov.f32 %f1, v.y;").instructions
    assert load.operands[0] == Vector(parts)
    assert move.operands[1] == parts[1]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("42", Immediate(42)),
        ("-1", Immediate(-1)),
        ("0xFFFFFFFF", Immediate(0xFFFFFFFF)),
        ("017", Immediate(15)),
        ("0b101", Immediate(5)),
        ("7U", Immediate(7)),
        ("0f3F800000", Immediate(0x3F800000, 32)),
        ("0d3FF0000000000000", Immediate(0x3FF0000000000000, 64)),
        ("1.5", Immediate(0x3FF8000000000000, 64)),
        ("-2.0e0", Immediate(0xC000000000000000, 64)),
        ("WARP_SZ", Immediate(32)),
        ("(3+4)*2", Immediate(14)),
        ("1<<4|1", Immediate(17)),
        ("-7/2", Immediate(-3)),
        ("-7%2", Immediate(-1)),
        ("~0", Immediate(-1)),
        ("~0U", Immediate(0xFFFFFFFFFFFFFFFF)),
        ("!3 + 2", Immediate(2)),
        ("1 < 2 ? 10 : 20", Immediate(10)),
        ("(.s64)0xFFFFFFFFFFFFFFFF", Immediate(-1)),
        ("2 == 2 && 3 != 3", Immediate(0)),
        ("1.0/4", Immediate(0x3FD0000000000000, 64)),
    ],
)
def test_constants(text: str, value: Immediate) -> None:
    instruction = "mov.b32 %r1" if value.float_bits == 32 else "mov.b64 %rd1"
    assert one(f"{instruction}, {text};").operands[1] == value


@pytest.mark.parametrize(
    "text", ["", "1+", "08", "1/0", "0x1FFFFFFFFFFFFFFFF", "(1", "1.5", "foo", "9" * 5000, "(" * 5000]
)
def test_what_is_no_integer_constant(text: str) -> None:
    with pytest.raises(ConstantError):
        parse_integer(text)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("[%rd1]", Address(Register("%rd1", ScalarType.B64))),
        ("[%rd1+8]", Address(Register("%rd1", ScalarType.B64), 8)),
        ("[%rd1+-8]", Address(Register("%rd1", ScalarType.B64), -8)),
        ("[ %rd1 + (4*2) ]", Address(Register("%rd1", ScalarType.B64), 8)),
        ("[g]", Address(Symbol("g"))),
        ("[g+4+4]", Address(Symbol("g"), 8)),
        ("g[2]", Address(Symbol("g"), 8)),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    assert one(f"ld.global.u32 %r1, {text};", ".global .b32 g[4];").operands[1] == address


@pytest.mark.parametrize(
    ("text", "element"),
    [
        ("g[%r1]", Element(Symbol("g"), Register("%r1", ScalarType.B32), 4)),
        ("g[%rd1]", Element(Symbol("g"), Register("%rd1", ScalarType.B64), 4)),
        ("g[ %r1 + 0x10 ]", Element(Symbol("g"), Register("%r1", ScalarType.B32), 4, 16)),
        ("g[%r1+-1]", Element(Symbol("g"), Register("%r1", ScalarType.B32), 4, -1)),
    ],
)
def test_elements_with_an_index_in_a_register(text: str, element: Element) -> None:
    """Scalars are counted, as in ptxas's code, whatever rows or vectors are declared."""
    for before in (".global .b32 g[4];", ".global .v4 .b32 g[2];", ".global .b32 g[4][4];"):
        load = one(f"ld.global.u32 %r1, {text};", before)
        assert load.operands[1] == Address(element)
        assert one(print_instruction(load), before).operands == load.operands
        move = one(f"mov.u64 %rd1, {text};", before)
        assert move.operands[1] == element
        assert one(print_instruction(move), before).operands == move.operands
        assert one(f"st.global.u32 {text}, %r1;", before).operands[0] == Address(element)


@pytest.mark.parametrize(
    "statement",
    [
        "ld.global.u32 %r1, g[%f1];",
        "ld.global.u32 %r1, g[%p1];",
        "ld.global.u32 %r1, g[%tid.x];",
        "ld.global.u32 %r1, g[%r1-8];",
        "ld.global.u32 %r1, g[8+%r1];",
        "ld.global.u32 %r1, [g[%r1]];",
        "ld.global.u32 %r1, [g+%r1];",
        "ld.global.u32 %r1, one[%r1];",
        "ld.global.u32 %r1, one[1];",
        "ld.shared.u32 %r1, g[%r1];",
        "st.global.u64 [%rd1], g[%r1];",
        "add.u64 %rd1, g[%r1], 1;",
        "atom.global.add.u32 %r1, g[%r1], 1;",
        "red.global.add.u32 g[%r1], 1;",
        "prefetch.global.L1 g[%r1];",
    ],
)
def test_elements_that_ptxas_refuses(statement: str) -> None:
    failure(statement, ".global .b32 g[4]; .global .b32 one;")


def test_a_constant_is_an_address_in_local_memory_only() -> None:
    """As ptxas has it."""
    assert one("ld.local.u32 %r1, [16];").operands[1] == Address(Immediate(16))
    with pytest.raises(PtxError, match="does not suit"):
        one("ld.global.u32 %r1, [16];")


def test_a_vector_of_one_element_is_the_element() -> None:
    """ptxas takes one for ``ld``, ``ldu`` and ``st``, which Triton's inline PTX writes."""
    assert one("ld.global.b32 { %r1 }, [%rd1];") == one("ld.global.b32   %r1  , [%rd1];")
    assert one("st.global.b32 [%rd1], { 4 };") == one("st.global.b32 [%rd1], 4;")
    assert one("st.global.b32 [%rd1], {%laneid};").operands[1] == Vector(
        (Register("%laneid", ScalarType.U32, special=True),)
    )


def test_symbols_with_offset() -> None:
    assert one("mov.u64 %rd1, g+12;", ".global .b32 g[4];").operands[1] == Symbol("g", 12)
    assert one("mov.u64 %rd1, g[3];", ".global .b32 g[4];").operands[1] == Symbol("g", 12)


def test_setp_with_two_results_and_a_negated_predicate() -> None:
    instruction = one("setp.lt.and.s32 %p1|%p2, %r1, 5, !%p3;")
    predicates = [Register(f"%p{i}", ScalarType.PRED) for i in range(4)]
    assert instruction.operands[0] == Pair(predicates[1], predicates[2])
    assert instruction.operands[3] == Negated(predicates[3])
    assert instruction.slots == {"cmp": "lt", "boolop": "and"}
    assert instruction.destinations == 1


def test_sink_and_pack() -> None:
    unpack = one("mov.b64 {%r1, _}, %rd1;")
    assert unpack.operands[0] == Vector((Register("%r1", ScalarType.B32), Sink()))


def test_texture_coordinates() -> None:
    instruction = one("tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd1, {%f5, %f6}];")
    address = instruction.operands[1]
    assert isinstance(address, Indexed)
    assert address.objects == (Register("%rd1", ScalarType.B64),)
    assert isinstance(address.coordinates, Vector)
    assert instruction.slots["geom"] == "2d"


def test_video_selectors() -> None:
    assert one("vadd.u32.u32.u32 %r1, %r2.b1, %r3.h0;").operands[1] == Selected(
        Register("%r2", ScalarType.B32), "b1"
    )


def test_stores_and_barriers_have_no_destination() -> None:
    store, barrier, load = function_of(
        "st.global.u32 [%rd1], %r1; bar.sync 0; ld.global.u32 %r1, [%rd1];"
    ).instructions
    assert (store.destinations, barrier.destinations, load.destinations) == (0, 0, 1)


CALLEES = ".func (.param .b32 r) f (.param .b32 a) { ret; }\n.func g { ret; }\n"


def test_calls() -> None:
    function = function_of(
        "{ .param .b32 p0; .param .b32 r0; st.param.b32 [p0], %r1;\ncall.uni (r0), f, (p0);\n"
        "ld.param.b32 %r2, [r0]; }\ncall g;\ncall g, ();",
        before=CALLEES,
    )
    calls = [i for i in function.instructions if i.opcode == "call"]
    assert calls[0].operands == (Vector((Symbol("r0"),)), Symbol("f"), Vector((Symbol("p0"),)))
    assert calls[0].has("uni")
    assert calls[1].operands == calls[2].operands == (Vector(()), Symbol("g"), Vector(()))
    assert function.callees == ("f", "g")


def test_indirect_calls_and_branch_tables() -> None:
    function = function_of(
        "proto: .callprototype (.param .b32 _) _ (.param .b32 _, .param .b64 _);\n"
        "table: .branchtargets A, B;\n{ .param .b32 r0; .param .b32 p0; .param .b64 p1;\n"
        "call (r0), %rd1, (p0, p1), proto; }\nbrx.idx %r1, table;\nA: B: ret;"
    )
    body = function.body or []
    prototype, table = body[0], body[1]
    assert isinstance(prototype, CallPrototype)
    assert [p.type for p in prototype.parameters] == [ScalarType.B32, ScalarType.B64]
    assert isinstance(table, BranchTargets)
    assert table.targets == ("A", "B")
    call, branch = function.instructions[:2]
    assert call.operands[1:2] == (Register("%rd1", ScalarType.B64),)
    assert call.operands[3] == Label("proto")
    assert branch.operands[1] == Label("table")


def test_inner_names_are_renamed_apart() -> None:
    function = function_of(
        "mov.u32 %r1, 1;\n"
        "{ .reg .b32 %r<3>; mov.u32 %r1, 2; L: bra L; }\n{ .reg .b32 x; mov.u32 x, %r1; L: bra L; }\n"
        "{ .reg .u32 x; mov.u32 x, 3; }"
    )
    moves = [i.operands[0] for i in function.instructions if i.opcode == "mov"]
    names = [m.name for m in moves if isinstance(m, Register)]
    assert len(set(names)) == 4
    assert names[0] == "%r1"
    assert function.instructions[3].operands[1] == Register("%r1", ScalarType.B32)
    labels = [s.name for s in function.body or [] if isinstance(s, LabelStatement)]
    branches = [i.operands[0] for i in function.instructions if i.opcode == "bra"]
    assert branches == [Label(name) for name in labels]
    assert len(set(labels)) == 2
    assert all(function.registers[name].bits == 32 for name in names)


def test_inner_parameters_are_renamed_apart() -> None:
    block = "{ .param .b64 p; st.param.b64 [p], %rd1; }\n"
    function = function_of(block * 3)
    bases = {i.operands[0].base.name for i in function.instructions if isinstance(i.operands[0], Address)}
    assert len(bases) == 3
    assert bases == set(function.variables)


def test_forward_labels_of_an_outer_block_are_seen_inside() -> None:
    function = function_of("{ @%p1 bra DONE; }\nDONE: ret;")
    assert function.instructions[0].operands == (Label("DONE"),)


# --- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "line", "column", "text", "expected"),
    [
        ("  add.u33 %r1, %r2, %r3;", 6, 6, ".u33", ".u32"),
        ("  ad.u32 %r1, %r2, %r3;", 6, 3, "ad", "add"),
        ("mov.u32 %r1,\n  %q9;", 7, 3, "%q9", "declared"),
        ("add.u32 %r1, %r2;", 6, 1, "%r1, %r2", "3 operands"),
        ("cvt.f32.s32 %f1, %r1;", 6, 12, "cvt.f32.s32", ".rn"),
        ("ld.global.u32 %r1, %rd1;", 6, 20, "%rd1", "[address]"),
        ("bra NOWHERE;", 6, 5, "NOWHERE", "label"),
        ("@%r1 bra L; L: ret;", 6, 2, "%r1", ".pred"),
        ("setp.lt.u32 %p1, %r1, 1\nret;", 6, 24, "1", "';'"),
        ("mov.u32 %r1, 5", 6, 1, "mov.u32 %r1, 5", "';'"),
        (".frob x;", 6, 1, ".frob", ".reg"),
        (".reg .b33 x;", 6, 5, ".b33 x", ".b32"),
    ],
)
def test_errors_say_where_what_and_what_was_expected(
    body: str, line: int, column: int, text: str, expected: str
) -> None:
    error = failure(body)
    assert error.file == "t.ptx"
    assert error.line == line
    if text:
        assert (error.column, error.text) == (column, text)
    assert expected in error.expected
    assert str(error).startswith(f"t.ptx:{error.line}:{error.column}: ")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        ".version x",
        HEAD + "garbage",
        HEAD + ".global",
        HEAD + ".entry { }",
        HEAD + ".section .x {",
        "\0",
    ],
)
def test_module_level_errors(text: str) -> None:
    with pytest.raises(PtxError):
        parse_module(text)


def test_asking_for_a_function_that_is_not_there() -> None:
    with pytest.raises(PtxError, match="no such function"):
        module_of("ret;").function("other")


def test_errors_are_raised_again_for_the_same_function() -> None:
    module = module_of("bad;")
    for _ in range(2):
        with pytest.raises(PtxError):
            module.function("k")
    assert isinstance(module, Module)


def test_bytes_with_trailing_nuls() -> None:
    assert parse_module((HEAD + ".entry k { ret; }").encode() + b"\0\0\0").kernel_names == ("k",)


def test_a_pragma_is_printed_on_its_side_of_a_label() -> None:
    text = (
        '.entry k { .reg .pred %p; .pragma "nounroll"; L: @%p bra L; M: .pragma "nounroll"; @%p bra M; ret; }'
    )
    function = parse_module(HEAD + text).function("k")
    assert [p.before_label for p in function.pragmas] == [True, False]
    printed = print_function(function)
    again = parse_module(HEAD + printed).function("k")
    assert again.pragmas == function.pragmas
    assert printed.index("nounroll") < printed.index("L:") < printed.index("M:") < printed.rindex("nounroll")
