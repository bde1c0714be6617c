"""What makes two kernels one to the cache, and what does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from zluda.compiler.amd.unit import build_unit
from zluda.compiler.cache import key as keys
from zluda.compiler.cache.entry import decode, encode
from zluda.compiler.cache.key import kernel_key
from zluda.compiler.cpu.compile import compile_unit
from zluda.compiler.target import Refusal
from zluda.compiler.unit import Unit, kernel_unit
from zluda.ptx import parse_module

HEADER = ".version 8.0\n.target sm_90\n.address_size 64\n"
KERNEL = """
.global .align 4 .u32 counter;
.global .align 4 .u32 elsewhere;
.shared .align 4 .b8 tile[64];
.func (.param .b32 out) twice(.param .b32 in)
{
    .reg .b32 %r<3>;
    ld.param.b32 %r1, [in];
    add.s32 %r2, %r1, %r1;
    st.param.b32 [out], %r2;
    ret;
}
.visible .entry k(.param .u64 p)
{
    .local .align 4 .b8 depot[16];
    .reg .pred %p<2>;
    .reg .b64 %rd<4>;
    .reg .b32 %r<5>;
    ld.param.u64 %rd1, [p];
    mov.u32 %r1, %tid.x;
    mov.u32 %r3, depot;
    mov.u64 %rd3, elsewhere;
    st.local.u32 [%r3], %r1;
    { .param .b32 a; .param .b32 b;
      st.param.b32 [a], %r1;
      call (b), twice, (a);
      ld.param.b32 %r2, [b]; }
    setp.eq.s32 %p1, %r2, 7;
    @%p1 bra done;
    st.global.u32 [%rd1], %r2;
    st.shared.u32 [tile], %r2;
    atom.global.add.u32 %r4, [counter], 1;
done:
    ret;
}
"""


def unit(text: str, name: str = "k", block: tuple[int, int, int] = (64, 1, 1)) -> Unit:
    return kernel_unit(parse_module(HEADER + text, file="a.ptx"), name, block)


def key(text: str, name: str = "k", **options: object) -> str:
    return kernel_key(unit(text, name), "cpu", {"block": (64, 1, 1), **options})


SAME = {
    "a comment": ("mov.u32 %r1, %tid.x;", "mov.u32 /* who */ %r1, %tid.x; // am I"),
    "a line": ("mov.u32 %r1, %tid.x;", "\n.loc 1 7 9\n\n mov.u32 %r1, %tid.x;"),
    "register names": ("%r", "%number"),
    "a label's name": ("done", "$L__BB0_2"),
    "a local variable's name": ("depot", "__local_depot7"),
    "an unrelated function": (".visible .entry k", ".func other() { ret; }\n.visible .entry k"),
    "an unrelated kernel that is wrong": (
        ".visible .entry k",
        ".entry other() { nonsense; }\n.visible .entry k",
    ),
    "an unrelated function before what it calls": (".func (.param", ".func other() { ret; }\n.func (.param"),
    "an unrelated variable": (".global .align 4", ".global .u64 other;\n.global .align 4"),
    "spacing": ("add.s32 %r2, %r1, %r1;", "add.s32\t%r2,%r1,%r1  ;"),
}


@pytest.mark.parametrize("what", SAME)
def test_is_found_in_spite_of(what: str) -> None:
    old, new = SAME[what]
    assert key(KERNEL.replace(old, new)) == key(KERNEL)


OTHER = {
    "a literal": ("%r2, 7;", "%r2, 8;"),
    "an opcode in a function that it calls": ("add.s32 %r2, %r1, %r1;", "sub.s32 %r2, %r1, %r1;"),
    "a type": ("setp.eq.s32", "setp.eq.u32"),
    "a register's type": (".reg .b32 %r<5>", ".reg .u32 %r<5>"),
    "which register is read": ("[%rd1], %r2;", "[%rd1], %r1;"),
    "a guard's sense": ("@%p1 bra", "@!%p1 bra"),
    "a guard": ("@%p1 bra", "bra"),
    "an offset": ("st.global.u32 [%rd1]", "st.global.u32 [%rd1+4]"),
    "a state space": ("st.global.u32 [%rd1]", "st.u32 [%rd1]"),
    "the size of a shared variable": ("tile[64]", "tile[128]"),
    "the size of a local variable": ("depot[16]", "depot[32]"),
    "which variable is meant": ("[counter]", "[elsewhere]"),
    "a variable's state space": (".global .align 4 .u32 elsewhere", ".const .align 4 .u32 elsewhere"),
    "a parameter's type": (".entry k(.param .u64 p)", ".entry k(.param .u32 p)"),
    "a launch bound": (".entry k(.param .u64 p)", ".entry k(.param .u64 p) .maxntid 32, 1, 1"),
    "a pragma": ("    mov.u32 %r1, %tid.x;", '    .pragma "nounroll";\n    mov.u32 %r1, %tid.x;'),
    "a special register": ("%tid.x", "%tid.y"),
}


@pytest.mark.parametrize("what", OTHER)
def test_is_another_with_another(what: str) -> None:
    old, new = OTHER[what]
    assert old in KERNEL
    assert key(KERNEL.replace(old, new, 1)) != key(KERNEL)


def test_labels_swapped_are_another_kernel() -> None:
    text = ".entry k() {{ .reg .pred %p; setp.eq.u32 %p, 1, 1; @%p bra {}; bra {}; {}: trap; {}: ret; }}"
    assert key(text.format("a", "b", "a", "b")) != key(text.format("b", "a", "a", "b"))
    assert key(text.format("a", "b", "a", "b")) == key(text.format("b", "a", "b", "a"))


def test_a_parameter_s_name_does_not_matter() -> None:
    assert key(KERNEL.replace("u64 p)", "u64 k_param_0)").replace("[p]", "[k_param_0]")) == key(KERNEL)


def test_target_options_block_compiler_and_processor_are_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    module = parse_module(HEADER + KERNEL)
    amd = build_unit(module, "k")
    found = {
        key(KERNEL),
        key(KERNEL, block=(32, 1, 1)),
        kernel_key(amd, "gfx1030", {"wave_size": 0}),
        kernel_key(amd, "gfx1100", {"wave_size": 0}),
        kernel_key(amd, "gfx1030", {"wave_size": 64}),
    }
    with monkeypatch.context() as patch:
        patch.setattr(keys, "compiler_version", lambda: "another")
        found |= {key(KERNEL), kernel_key(amd, "gfx1030", {"wave_size": 0})}
    on_amd = kernel_key(amd, "gfx1030", {"wave_size": 0})
    monkeypatch.setattr(keys, "host_version", lambda: "another")
    found.add(key(KERNEL))
    assert len(found) == 8
    assert kernel_key(amd, "gfx1030", {"wave_size": 0}) == on_amd  # no host code in it


def test_a_function_whose_address_is_taken_counts_by_its_handle() -> None:
    body = ".reg .b64 %a, %f; ld.param.u64 %a, [p]; mov.u64 %f, f; st.global.u64 [%a], %f; ret;"
    text = f".func f() {{ ret; }} .entry k(.param .u64 p) {{ {body} }}"
    assert key(".func other() { ret; } " + text) != key(text)  # handles are positions in the module


def test_the_compiler_s_version_is_its_sources() -> None:
    assert keys.source_digest("zluda.ptx") == keys.source_digest("zluda.ptx")
    assert keys.source_digest("zluda.ptx") != keys.source_digest("zluda.numerics")
    assert "LLVM" in keys.compiler_version()


def test_an_entry_takes_names_and_lines_from_the_module_at_hand() -> None:
    text = ".extern .func missing;\n.visible .entry k(.param .u64 p)\n{\n    call missing;\n    ret;\n}\n"
    first = unit(text)
    compiled = compile_unit(first)
    assert [r.where for r in compiled.refusals] == ["kernel k, a.ptx:7"]
    payload = encode(compiled, first)
    assert payload is not None
    second = kernel_unit(
        parse_module(HEADER + "\n\n" + text.replace("p)", "q)"), file="b.ptx"), "k", (64, 1, 1)
    )
    found = decode(payload, second)
    assert [r.where for r in found.refusals] == ["kernel k, b.ptx:9"]
    assert [slot.name for slot in found.parameters] == ["q"]
    assert replace(found, refusals=compiled.refusals, parameters=compiled.parameters) == compiled


def test_a_refusal_that_stands_at_no_instruction_is_not_kept() -> None:
    found = unit(KERNEL)
    compiled = replace(compile_unit(found), refusals=(Refusal("something", "nowhere"),))
    assert encode(compiled, found) is None
