"""Properties of the parser over generated modules and over damaged text."""

from __future__ import annotations

from pathlib import Path

import ptx_forms
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ptx_text import HEAD, canonical_module

from zluda.errors import PtxError
from zluda.ptx import Module, parse_module, print_module

DATA = Path(__file__).parent / "data"
FORMS = (DATA / "opcode_forms.txt").read_text().split()
SMALL = (DATA / "data_sm100.ptx").read_text()
EXAMPLES = settings(max_examples=60, deadline=None)

names = st.from_regex(r"[A-Za-z_$%][A-Za-z0-9_$]{0,6}", fullmatch=True).filter(
    lambda n: (
        n != "_"
        and n not in ("WARP_SZ",)
        and not n.startswith(("%p", "%h", "%r", "%l", "%q", "%f", "%d", "%b"))
    )
)
integers = st.integers(-(2**63), 2**64 - 1)


@st.composite
def variables(draw: st.DrawFn, name: str) -> str:
    kind, bits = draw(
        st.sampled_from([("b8", 8), ("u16", 16), ("s32", 32), ("b64", 64), ("f32", 32), ("f64", 64)])
    )
    shape = draw(st.lists(st.integers(1, 4), max_size=2))
    space = draw(st.sampled_from([".global", ".const", ".visible .global"]))
    align = draw(st.sampled_from(["", ".align 16", f".align {bits // 8}"]))
    text = f"{space} {align} .{kind} {name}" + "".join(f"[{n}]" for n in shape)
    count = 1
    for n in shape:
        count *= n
    if draw(st.booleans()):
        if kind[0] == "f":
            digits = bits // 4
            cells = [
                f"0{'f' if bits == 32 else 'd'}{draw(st.integers(0, 2**bits - 1)):0{digits}X}"
                for _ in range(count)
            ]
        else:
            cells = [
                str(draw(integers)) for _ in range(draw(st.integers(1, count)) if len(shape) == 1 else count)
            ]
        for n in reversed(shape[1:]):
            cells = [f"{{{', '.join(cells[i : i + n])}}}" for i in range(0, len(cells), n)]
        text += f" = {{{', '.join(cells)}}}" if shape else f" = {cells[0]}"
    return text + ";"


@st.composite
def bodies(draw: st.DrawFn) -> str:
    labels = draw(st.lists(names, max_size=3, unique=True))
    lines = [ptx_forms.PROLOGUE, "TARGET:"]
    for label in labels:
        lines.append(f"{label}:")
        if draw(st.booleans()):
            lines.append(f"@{draw(st.sampled_from(['', '!']))}%p1 bra {draw(st.sampled_from(labels))};")
    for form in draw(st.lists(st.sampled_from(FORMS), max_size=12)):
        guard = draw(st.sampled_from(["", "", "@%p3 ", "@!%p4 "]))
        statement = ptx_forms.in_call_block(ptx_forms.statement(form))
        lines.append(statement if statement.startswith("{") else guard + statement)
    if draw(st.booleans()):
        lines.append("{ .reg .b32 %r<4>; .reg .v2 .f32 %vv; mov.b32 %r1, %r2; mov.f32 %vv.x, %vv.y;")
        lines.append("INNER: bra INNER; { INNER: @%p1 bra INNER; } }")
    lines.append(f"mov.b64 %l1, {draw(integers)};")
    lines.append(f'.pragma "nounroll"; .loc 1 {draw(st.integers(1, 99))} 3')
    return "\n".join([*lines, "ret;"])


@st.composite
def modules(draw: st.DrawFn) -> str:
    head = ptx_forms.MODULE_PROLOGUE.format(
        version="8.7", target=draw(st.sampled_from(["sm_90", "sm_75, debug"]))
    )
    globals_ = [draw(variables(name)) for name in draw(st.lists(names, max_size=3, unique=True))]
    kernels = [
        f".visible .entry kernel{i}(.param .align 16 .b8 parameter[64])"
        f"{draw(st.sampled_from(['', '.maxntid 64, 1, 1']))}\n{{{draw(bodies())}}}\n"
        for i in range(draw(st.integers(1, 2)))
    ]
    return "\n".join([head, *globals_, *kernels])


@EXAMPLES
@given(modules())
def test_print_then_parse_is_the_identity(text: str) -> None:
    module = parse_module(text)
    assert module.errors() == {}
    printed = print_module(module)
    again = parse_module(printed)
    assert canonical_module(again) == canonical_module(module)
    assert print_module(again) == printed


@st.composite
def damaged(draw: st.DrawFn, text: str) -> str:
    """The text after a few cuts, insertions, swaps and duplications."""
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        length = draw(st.integers(0, 30))
        piece = draw(
            st.one_of(
                st.just(""),
                st.sampled_from([*"{}()[]<>;:,.|!@%$\"'+-*/?_=0", "/*", "//", "\n", "::", "\0", "é"]),
                st.text(max_size=6),
                st.sampled_from(
                    [".reg", ".entry", ".func", "0f", "0x", "call ", "{ .reg .b32 %r<9>;", "%r<", "mask("]
                ),
                st.just(text[at : at + 40]),
            )
        )
        text = text[:at] + piece + text[at + length :]
    return text


def parse_all(text: str) -> None:
    """Parse everything; only PtxError may come out."""
    try:
        module = parse_module(text)
        lost = module.errors()
    except PtxError as error:
        assert str(error)
        return
    assert isinstance(module, Module)
    assert all(isinstance(error, PtxError) for error in lost.values())


@settings(max_examples=300, deadline=None)
@given(damaged(SMALL))
def test_damaged_text_ends_in_a_module_or_a_ptx_error(text: str) -> None:
    parse_all(text)


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet=st.sampled_from(list('abr.%{}()[];:,|<>0fx12 \n"/*@!_+-'))))
def test_noise_in_a_body_ends_in_a_module_or_a_ptx_error(text: str) -> None:
    parse_all(f"{HEAD}.entry k(.param .u64 a) {{ .reg .b32 %r<9>; {text} }}")


@pytest.mark.slow
@settings(max_examples=800, deadline=None)
@given(st.sampled_from(sorted(DATA.glob("*.ptx"))).flatmap(lambda path: damaged(path.read_text())))
def test_damaged_text_at_length(text: str) -> None:
    parse_all(text)
