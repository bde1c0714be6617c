"""A few drawn programs on the CPU and on emulated AMD GPUs; more of them by ``make fuzz``."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import NoReturn

import pytest
import trial
from drawing import Drawer
from launches import DEVICES
from probe import probe
from programs import Call, If, Loop, Program, walk
from shrink import shrink
from statements import LEFT_OUT, Statement, all_rows, drawn
from trial import apart
from writing import ptx

from zluda.ptx import parse_module
from zluda.ptx.instructions import opcode_names, rows

DRAWER = Drawer(all_rows(), probe(), largest=40)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_devices_agree_on_drawn_programs(seed: int) -> None:
    program = DRAWER.program(seed)
    fault = apart(program, DEVICES, 300)
    assert fault is None, f"seed {seed}: {fault} (python tests/fuzz/fuzz.py --seed {seed} --count 1)"


def test_every_opcode_is_drawn_or_says_why_not() -> None:
    left_out = {word.partition(".")[0] for words in LEFT_OUT for word in words.split()}
    reached = {row.opcode for row in all_rows()}
    assert set(opcode_names()) - reached <= left_out
    assert sum(drawn(row) for name in opcode_names() for row in rows(name)) > 250


def test_a_seed_draws_one_program() -> None:
    accepts: Callable[[Statement], bool] = lambda statement: True  # noqa: E731
    first, second = (Drawer(all_rows(), accepts).program(7) for _ in range(2))
    assert ptx(first) == ptx(second)


def test_programs_have_all_kinds_of_structure() -> None:
    programs = [DRAWER.program(seed) for seed in range(6)]
    kinds = {type(node) for p in programs for body in (p.body, *p.functions) for node in walk(body)}
    assert {If, Loop, Call, Statement} <= kinds
    assert not any(parse_module(ptx(p)).errors() for p in programs)


def _endless(*_: object) -> NoReturn:
    while True:
        pass


def _crashes(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(("does", "kind"), [(_endless, "hang"), (_crashes, "crash")])
def test_what_never_ends_and_what_crashes_is_told(
    monkeypatch: pytest.MonkeyPatch, does: Callable[..., None], kind: str
) -> None:
    monkeypatch.setattr(trial, "_caught", does)
    fault = apart(Program((), (), 32, 1, 0), ("cpu",), 0.1)
    assert fault is not None and fault.kind == kind


def test_a_fault_is_cut_down_to_what_it_needs() -> None:
    program = DRAWER.program(3)
    guilty = [node for node in walk(program.body) if isinstance(node, Statement)][-1]

    def fails(candidate: Program) -> bool:
        return any(node is guilty for node in walk(candidate.body))

    smallest = shrink(program, fails)
    assert smallest.body == (guilty,)
    assert (smallest.functions, smallest.threads, smallest.blocks) == ((), 32, 1)
