"""The semantic table against AMD's own pseudo-code of each instruction, which PyPI's tinygrad carries."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from seeding import run
from seeding.table import FAULTS
from test_amd_instructions import _tested

from zluda.errors import Error
from zluda.isolate.opinion import instructions
from zluda.isolate.opinion.instructions import (
    KNOWN,
    accepted,
    disagreements,
    manual_of,
    plain_name,
    pseudocode,
    told_of,
    wave_of,
)

TARGETS = ("gfx1100", "gfx1200", "gfx942")


def _said_before(target: str, name: str) -> bool:
    """Whether an earlier manual has the same words for the same row: it is held against them there."""
    text = pseudocode(manual_of(target))[name]
    return any(
        pseudocode(manual_of(other)).get(name) == text
        and accepted(other, name) is not None
        and wave_of(other) == wave_of(target)
        for other in TARGETS[: TARGETS.index(target)]
    )


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_table_agrees_with_pseudocode(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = told_of(target, _tested())
    new = [name for name in names if not _said_before(target, name)]
    assert disagreements(target, new) == []
    assert len(names) > 250
    known = [name for name in new if name in KNOWN]
    monkeypatch.setattr(instructions, "KNOWN", {})  # each of these is needed
    assert [problem.split()[0] for problem in disagreements(target, known)] == sorted(known, key=_order)


def _order(name: str) -> tuple[int, str]:
    kinds = ("int", "f16", "f32", "f64")
    return kinds.index(instructions.kind_of(instructions.rows()[name])), name


SCRIPT = """
import dataclasses, json
from zluda.isolate.opinion import opinion
names = ["v_bfrev_b32", "v_add_f32", "v_lshl_add_u32", "v_and_b32", "s_mov_b32", "v_rcp_f32"]
print(json.dumps(dataclasses.asdict(opinion("gfx1030", names))))
"""
TOLD = ["v_add_f32", "v_and_b32", "v_bfrev_b32", "v_lshl_add_u32"]


@pytest.mark.parametrize(
    ("fault", "wrong"),
    [
        ("nothing", ""),
        ("v_bfrev_b32_is_wrong_for_some", "v_bfrev_b32"),
        ("v_add_f32_subtracts", "v_add_f32"),
        ("v_and_b32_reads_one_source", "v_and_b32"),
    ],
)
def test_a_wrong_row_is_the_one_that_disagrees(fault: str, wrong: str) -> None:
    found: Any = run(FAULTS[fault], SCRIPT)
    assert found["told"] == TOLD
    assert [text.partition(" gives ")[0] for text in found["wrong"]] == ([wrong] if wrong else [])


def test_a_wrong_row_that_addresses_are_made_with_is_no_end_of_the_search() -> None:
    found: Any = run(FAULTS["v_lshl_add_u32_subtracts"], SCRIPT)
    assert found["wrong"]


def test_encodings_are_no_part_of_a_name() -> None:
    assert plain_name("v_add_f32_e64 v1, v2, |v3|") == "v_add_f32"
    assert plain_name("v_max_i32_dpp v1, v2, v3 row_shr:1") == "v_max_i32"
    assert plain_name("v_mad_u64_u32 v[0:1], s0, v2, v3, v[4:5]") == "v_mad_u64_u32"


def test_without_the_pseudo_code_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tinygrad.runtime.autogen.amd.rdna3.str_pcode", None)
    pseudocode.cache_clear()
    try:
        with pytest.raises(Error, match=r"pip install 'zluda\[isolate\]'"):
            told_of("gfx1030", ["v_add_f32"])
    finally:
        pseudocode.cache_clear()
