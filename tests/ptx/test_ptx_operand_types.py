"""Operands' types against ptxas's verdicts, recorded for sm_90 (PTX ISA 9.4)."""

from __future__ import annotations

import gzip
import re
import subprocess
from pathlib import Path

import needs
import ptx_forms
import pytest
from ptx_text import function_of

from zluda.errors import PtxError
from zluda.ptx import parse_module
from zluda.ptx.operand_types import EXACT, REGISTER_TYPES, WIDE
from zluda.ptx.types import BY_SPELLING, ScalarType

RECORDED = Path(__file__).parent / "data" / "operand_types_sm90.txt.gz"
TYPED = "".join(f".reg .{kind} %z_{kind}_<4>; " for kind in REGISTER_TYPES)


def recorded() -> list[tuple[bool, str]]:
    lines = gzip.decompress(RECORDED.read_bytes()).decode().splitlines()
    return [(line[0] == "+", line[2:]) for line in lines]


def kernel(name: str, statements: list[str]) -> str:
    body = "\n".join(map(ptx_forms.in_call_block, statements))
    parameters = "(.param .align 16 .b8 parameter[64])"
    return f".entry {name} {parameters} {{ {ptx_forms.PROLOGUE} {TYPED}\n{body}\nTARGET: ret;\n}}\n"


def head() -> str:
    return ptx_forms.MODULE_PROLOGUE.format(version="8.7", target="sm_90")


def test_statements_are_judged_as_ptxas_judges_them() -> None:
    verdicts = recorded()
    text = head() + "".join(kernel(f"k{i}", [statement]) for i, (_, statement) in enumerate(verdicts))
    lost = parse_module(text).errors()
    judged = [(valid, f"k{i}" not in lost, statement) for i, (valid, statement) in enumerate(verdicts)]
    assert [statement for valid, ours, statement in judged if valid and not ours] == []
    wrongly_accepted = [statement for valid, ours, statement in judged if ours and not valid]
    # Left are values out of range, 32-bit addresses with offsets, and quirks of single instructions.
    assert len(wrongly_accepted) / len(judged) < LOOSE, wrongly_accepted[:20]


LOOSE = 0.009


@pytest.mark.slow
@needs.ptxas
def test_ptxas_still_says_so(tmp_path: Path) -> None:
    file = tmp_path / "accepted.ptx"
    file.write_text(head() + kernel("k", [statement for valid, statement in recorded() if valid]))
    command = ["ptxas", "-O0", "-arch=sm_90", str(file), "-o", str(tmp_path / "out")]
    result = subprocess.run(command, capture_output=True, text=True)
    assert re.findall(r"line \d+; error.*", result.stderr) == []


REFUSED = [
    ("add.s32 %rd1, %r2, 1;", 9, "%rd1", ".b32 .u32 .s32"),
    ("add.s32 %r1, %f2, 1;", 14, "%f2", ".s32"),
    ("add.f32 %f1, %f2, 1;", 19, "1", "floating-point constant"),
    ("add.s32 %r1, %r2, 1.0;", 19, "1.0", "integer constant"),
    ("add.u32 %r1, %tid.x, 1;", 14, "%tid.x", "register of type"),
    ("shl.b64 %rd1, %rd2, %rd3;", 21, "%rd3", ".u32"),
    ("ld.global.u32 %h1, [%rd1];", 15, "%h1", ".b64"),
    ("ld.global.u32 %r1, [%f1];", 20, "[%f1]", "an address"),
    ("setp.eq.s32 %r1, %r2, 0;", 13, "%r1", ".pred"),
    ("selp.b32 %r1, %r2, %r3, %r4;", 25, "%r4", ".pred"),
    ("mul.wide.s32 %r1, %r2, 4;", 14, "%r1", ".s64"),
    ("mov.u32 %r1, %clock64;", 14, "%clock64", ".u32"),
    ("ld.global.v2.u32 {%r1}, [%rd1];", 18, "{%r1}", "2 elements"),
    ("shfl.sync.up.b32 %r1|%r2, %r3, 1, 0, -1;", 18, "%r1|%r2", ""),
]


@pytest.mark.parametrize(("text", "column", "shown", "expected"), REFUSED)
def test_the_error_names_the_operand_and_what_was_expected(
    text: str, column: int, shown: str, expected: str
) -> None:
    with pytest.raises(PtxError) as caught:
        function_of(text)
    error = caught.value
    assert (error.line, error.column, error.text.strip()) == (6, column, shown)
    assert expected in error.expected


def test_special_registers_may_stand_in_a_stored_vector() -> None:
    (stored,) = function_of("st.global.v2.u32 [%rd1], {%tid.x, %r1};").instructions[:1]
    assert stored.vector == 2


def test_every_type_agrees_with_itself_and_wide_holds_exact() -> None:
    for kind in REGISTER_TYPES:
        assert kind in EXACT[kind]
        assert EXACT[kind] <= WIDE[kind]
    assert ScalarType.F32 not in EXACT[BY_SPELLING["u32"]]
    assert ScalarType.F32 in EXACT[BY_SPELLING["b32"]]
    assert ScalarType.U64 in WIDE[BY_SPELLING["s16"]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0,%f1,%f2,%f3}, {%r0,%r1}, {%r4,%r5}, "
         "{%f4,%f5,%f6,%f7};", "4 elements"),
        ("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r1,%r2,%r3}, [%rd1];", "2 elements"),
        ("ld.shared.u32 %r1, [g];", ".shared"),
        ("ld.u32 %r1, [k];", ".global or .local or .shared"),
        ("ld.global.v2.u16 {%r1, %h2}, [%rd1];", ".u16"),
        ("st.global.v2.u32 [%rd1], {_, %r2};", ".u32"),
        ("call.uni %rd1;", "a function"),
    ],
)  # fmt: skip
def test_fragments_spaces_and_vectors_are_looked_at(text: str, expected: str) -> None:
    with pytest.raises(PtxError) as caught:
        function_of(text, before=".global .b32 g;")
    assert expected in caught.value.expected
