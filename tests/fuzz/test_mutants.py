"""Mutants of the corpus's kernels; more of them by ``make fuzz``."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from mutants import PROGRAMS, Mutant, drawn, mutated, shrink, trial
from mutating import KINDS, Body, Changed, mutate

import zluda
from zluda.ptx import parse_module
from zluda.ptx.module import Instruction
from zluda.ptx.printer import print_function

HEAD = ".version 9.0\n.target sm_90\n.address_size 64\n"
KERNEL = """.visible .entry k(.param .u64 p) {
    .reg .b64 %p, %l<5>; .reg .b32 %r<9>; .reg .pred %q<3>; .reg .f32 %f<4>;
    ld.param.u64 %p, [p]; mov.u32 %r0, %tid.x; mul.wide.u32 %l0, %r0, 32; add.s64 %p, %p, %l0;
    ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%p];
    mul.lo.s32 %r5, %r1, 77; shl.b32 %r6, %r2, 3; mad.lo.s32 %r7, %r5, %r6, %r3; sub.s32 %r8, %r7, %r4;
    setp.lt.s32 %q0, %r8, %r1; selp.b32 %r5, %r6, %r8, %q0; @%q0 add.s32 %r5, %r5, 5;
    @%q0 bra past; xor.b32 %r6, %r5, %r7;
past:
    mov.b32 %r7, 0;
again:
    add.s32 %r7, %r7, 1; min.s32 %r6, %r6, %r5; add.s32 %r6, %r6, %r7;
    setp.lt.s32 %q1, %r7, 5; @%q1 bra again;
    setp.eq.s32 %q2, %r0, 3; @%q2 bra other; st.global.v2.b32 [%p+16], {%r5, %r6}; bra end;
other:
    st.global.v2.b32 [%p+16], {%r6, %r5};
end:
    st.global.b32 [%p+24], %r8; ret; }"""


def _left(text: str) -> bytes:
    values = np.random.default_rng(1).integers(0, 2**32, 32 * 8, dtype=np.uint32)
    with zluda.open_device("cpu") as device:
        array = device.array(values)
        device.load_module(text).kernel("k").launch(grid=1, block=32, args=[array])
        return bytes(array.numpy().tobytes())


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_leaves_a_kernel_s_meaning(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mutating.KINDS", {kind: KINDS[kind]})
    function = parse_module(HEAD + KERNEL).function("k")
    before = print_function(function)
    found, function = mutate(function, 7)
    assert found == kind and print_function(function) != before
    assert _left(HEAD + print_function(function)) == _left(HEAD + KERNEL)


@pytest.mark.parametrize("program", PROGRAMS)
def test_mutants_are_ptx(program: str) -> None:
    modules, changes = mutated(Mutant(program, tuple(range(40)), 1))
    assert len(changes) > 30 and modules != mutated(Mutant(program, (), 1))[0]
    assert not any(parse_module(text).errors() for text in modules)


def test_a_seed_draws_one_mutant() -> None:
    assert mutated(drawn(5)) == mutated(drawn(5)) != mutated(drawn(6))


@pytest.mark.slow
def test_devices_agree_on_mutants() -> None:
    fault = trial(Mutant("reduction", drawn(3).steps[:30], 3), ("cpu", "gfx1030"))
    assert fault is None, fault


def _product_and_addend_exchanged(body: Body, place: int) -> Changed | None:
    found = body.at(place)
    if not isinstance(found, Instruction) or found.opcode != "fma":
        return None
    to, x, y, z = found.operands
    return 1, [dataclasses.replace(found, operands=(to, z, y, x))]


def test_a_change_of_meaning_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mutating.KINDS", {"wrong": _product_and_addend_exchanged})
    mutant = Mutant("saxpy", (0, 1), 1)
    assert len(mutated(mutant)[1]) == 1
    fault = trial(mutant, ("cpu",))
    assert fault is not None and fault.kind == "differs"


def test_a_mutant_is_cut_down_to_the_changes_that_it_needs() -> None:
    mutant = Mutant("saxpy", tuple(range(16)), 1)
    assert shrink(mutant, lambda less: {3, 9} <= set(less.steps)).steps == (3, 9)
