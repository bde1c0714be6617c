"""Every opcode form seen in real PTX becomes a typed instruction, and prints back."""

from __future__ import annotations

import random
import re
import subprocess
from pathlib import Path

import needs
import ptx_forms
import pytest
from ptx_text import canonical

from zluda.errors import PtxError
from zluda.ptx import Instruction, parse_module, print_module
from zluda.ptx.instructions import OpcodeMismatch, find_opcode, opcode_names, rows

FORMS = (Path(__file__).parent / "data" / "opcode_forms.txt").read_text().split()


def test_there_are_754_forms() -> None:
    assert len(set(FORMS)) == 754


def test_every_form_is_a_typed_instruction() -> None:
    statements = [ptx_forms.statement(form) for form in FORMS]
    function = parse_module(ptx_forms.module(statements)).function("kernel")
    parsed = function.instructions[: len(FORMS)]
    for form, instruction in zip(FORMS, parsed, strict=True):
        assert isinstance(instruction, Instruction)
        assert instruction.opcode == form.partition(".")[0]
        words = sorted(form.split(".")[1:])
        vector = [f"v{instruction.vector}"] if instruction.vector > 1 else []
        assert (
            sorted([*instruction.slots.values(), *(t.spelling for t in instruction.types), *vector]) == words
        )


def test_every_form_prints_and_parses_to_itself() -> None:
    module = parse_module(ptx_forms.module([ptx_forms.statement(form) for form in FORMS]))
    again = parse_module(print_module(module))
    assert canonical(again.function("kernel")) == canonical(module.function("kernel"))


def test_every_row_of_the_table_compiles_and_names_its_slots() -> None:
    for opcode in opcode_names():
        for row in rows(opcode):
            names = [modifier.name for modifier in row.modifiers]
            assert len(set(names)) == len(names), row.text
            assert all(modifier.words for modifier in row.modifiers), row.text
            assert len(set(map(len, row.shapes))) >= 1, row.text


def test_modifiers_may_stand_in_any_order_but_types_may_not() -> None:
    assert find_opcode("max.s32.relu").forms[0].slots == find_opcode("max.relu.s32").forms[0].slots
    assert [t.spelling for t in find_opcode("cvt.rzi.s32.f32").forms[0].types] == ["s32", "f32"]
    assert [t.spelling for t in find_opcode("cvt.rn.f32.s32").forms[0].types] == ["f32", "s32"]


@pytest.mark.slow
@needs.ptxas
def test_ptxas_accepts_the_same_statements(tmp_path: Path) -> None:
    """The generated statements are real PTX: what this parser accepts of them, ptxas accepts too."""
    text = ptx_forms.module([ptx_forms.statement(form) for form in FORMS], version="8.7")
    file = tmp_path / "forms.ptx"
    file.write_text(text)
    result = subprocess.run(
        ["ptxas", "-O0", "-arch=sm_90", str(file), "-o", str(tmp_path / "out")],
        capture_output=True,
        text=True,
    )
    lines = text.split("\n")
    refused = [lines[int(n) - 1] for n in re.findall(r"line (\d+); (?:error|fatal)", result.stderr)]
    assert (result.returncode, refused) == (0, []), result.stderr


VARIATIONS = [
    ("add.s32.sat %r1, %r2, 3;", True),
    ("mov .u32 %r1, 5;", True),
    ("add.f32.rn.ftz %f1, %f2, %f2;", True),
    ("shfl.bfly.sync.b32 %r1, %r2, 1, 31, -1;", True),
    ("ld.shared.u32 %r3, place_shared[1];", True),
    ("mov.u32 %r1, (3+4)*2;", True),
    ("mov.f32 %f1, .5;", True),
    ("mov.f32 %f1, 1e3;", True),
    ("add.f32 %f1, (1.0+2.0)*3.0, 2.0;", True),
    ("selp.b32 %r1, %r2, %r3, !%p1;", True),
    ("and.pred %p1, 1, %p3;", True),
    ("mov.v2.u32 {%r1, %r2}, {%r3, %r4};", True),
    ("mov.b64 {%r1, _}, %l1;", True),
    ("setp.eq.u32 _|%p1, %r1, 0;", True),
    ("{ .reg .b32 %r1; mov.b32 %r1, 0; }", True),
    ("add.u32 %r1, %r2, %nosuch;", False),
    ("add.u33 %r1, %r2, %r3;", False),
    ("add.rn.s32 %r1, %r2, %r3;", False),
    ("add.u32 %r1, %r2;", False),
    ("add.u32 %r1, %r2, %r3, %r4;", False),
    ("cvt.f32.s32 %f1, %r1;", False),
    ("div.f32.approx.full %f1, %f2, %f3;", False),
    ("ld.shared.u32 %r3, place_shared;", False),
    ("ld.global.b32 { %r1 }, [%l1];", True),
    ("ld.global.u8 {%r1}, [%l1];", True),
    ("ld.global.nc.b32 {%r1}, [%l1];", True),
    ("ldu.global.b32 {%r1}, [%l1];", True),
    ("st.global.b32 [%l1], {%r1};", True),
    ("st.global.b32 [%l1], {4};", True),
    ("st.global.b32 [%l1], {%laneid};", True),
    ("st.global.b32 [%l1], %laneid;", False),
    ("ld.global.b32 {_}, [%l1];", False),
    ("ld.global.b32 {%r1, %r2}, [%l1];", False),
    ("st.global.u32 [%l1], {%f1};", False),
    ("atom.global.add.u32 {%r1}, [%l1], %r2;", False),
    ("red.global.add.u32 [%l1], {%r2};", False),
    ("add.u32 {%r1}, %r2, %r3;", False),
    ("atom.shared.add.u32 %r1, place_shared[1], %r2;", False),
    ("ld.global.relaxed.u32 %r3, [%l1];", False),
    ("mov.u32 %r1, 08;", False),
    ("setp.lt.f16 %p1|%p2, %h2, %h3;", False),
    ("bra %r1;", False),
    ("st.global.v2.u32 [%l1], %r1;", False),
    ("mov.u32 %r1, %r2", False),
    ("ret;;", False),
    ("frobnicate.u32 %r1;", False),
]


@pytest.mark.parametrize(("text", "valid"), VARIATIONS)
def test_statements_near_the_border(text: str, valid: bool) -> None:
    lost = parse_module(ptx_forms.module([text])).errors()
    assert (not lost) == valid, lost


@pytest.mark.slow
@needs.ptxas
@pytest.mark.parametrize(("text", "valid"), VARIATIONS)
def test_ptxas_draws_the_border_there(text: str, valid: bool, tmp_path: Path) -> None:
    file = tmp_path / "border.ptx"
    file.write_text(ptx_forms.module([text]))
    command = ["ptxas", "-O0", "-arch=sm_90", str(file), "-o", str(tmp_path / "out")]
    assert (subprocess.run(command, capture_output=True).returncode == 0) == valid


def variation(choose: random.Random) -> str:
    """A form with one modifier dropped, replaced, doubled or moved."""
    words = choose.choice([form for form in FORMS if "." in form and "mma" not in form]).split(".")
    others = choose.choice(FORMS).split(".")[1:] or ["ftz"]
    at = choose.randrange(1, len(words))
    match choose.randrange(4):
        case 0:
            del words[at]
        case 1:
            words[at] = choose.choice(others)
        case 2:
            words.insert(at, choose.choice(others))
        case _:
            other = choose.randrange(1, len(words))
            words[at], words[other] = words[other], words[at]
    return ".".join(words)


@pytest.mark.slow
@needs.ptxas
def test_what_ptxas_accepts_of_varied_forms_parses(tmp_path: Path) -> None:
    choose = random.Random(20)
    refused = []
    for _ in range(300):
        form = variation(choose)
        try:
            text = ptx_forms.module([ptx_forms.statement(form)])
        except OpcodeMismatch:
            text = ptx_forms.module([f"{form} %r1, %r2, %r3;"])
        if parse_module(text).errors():
            file = tmp_path / "varied.ptx"
            file.write_text(text)
            command = ["ptxas", "-O0", "-arch=sm_90", str(file), "-o", str(tmp_path / "out")]
            if subprocess.run(command, capture_output=True).returncode == 0:
                refused.append(form)
    assert refused == []


@pytest.mark.parametrize(
    ("statement", "word"),
    [
        ("ld.shared.L2::cache_hint.b32 %r0, [%rd0], %rd1;", ".L2::cache_hint"),
        ("ld.const.L2::64B.b32 %r0, [%rd0];", ".L2::64B"),
        ("st.global.wb.L1::evict_first.b32 [%rd0], %r0;", ".wb"),
        ("ld.global.L2::evict_last.v4.b32 {%r0,%r1,%r2,%r3}, [%rd0];", ".L2::evict_last"),
        ("st.volatile.global.L1::evict_first.b32 [%rd0], %r0;", ".L1::evict_first"),
        ("cvt.sat.s64.u32 %rd0, %r0;", ".sat"),
    ],
)
def test_words_that_do_not_go_together_are_named(statement: str, word: str) -> None:
    body = f".reg .b32 %r<4>; .reg .b64 %rd<2>;\n{statement}"
    ptx = f".version 9.0\n.target sm_100a\n.address_size 64\n.visible .entry k() {{\n{body}\nret;\n}}\n"
    with pytest.raises(PtxError) as error:
        parse_module(ptx).function("k")
    assert any(one in str(error.value) for one in word.split("|"))
    assert "<ptx>:6:" in str(error.value)
