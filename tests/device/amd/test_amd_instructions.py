"""Every vector instruction of the emulator's table against numpy, on each target that has it."""

from __future__ import annotations

import re

import amd_reference
import numpy as np
import pytest

from zluda.device.amd.emulator.table import Row, rows
from zluda.isolate.opinion.instructions import (
    BATCH,
    CARRY_MASK,
    ELSEWHERE,
    THREADS,
    accepted,
    kind_of,
    operands,
    run,
    wave_of,
)

TARGETS = ("gfx1030", "gfx1100", "gfx90a")


def _carry(wave: int) -> np.ndarray:
    lane = np.arange(THREADS) % wave
    return np.array([CARRY_MASK >> int(i) & 1 for i in lane], np.uint32)


def _check(name: str, row: Row, words: np.ndarray, data: np.ndarray, wave: int) -> str:
    """What differs, or nothing."""
    amd_reference.REFERENCE_NAME[0] = name
    expected = amd_reference.REFERENCE[name](amd_reference.Inputs(data, _carry(wave), wave))
    value, condition = expected if isinstance(expected, tuple) else (expected, None)
    if condition is not None:
        lane = np.arange(THREADS) % wave
        mask = words[:, 2].astype(np.uint64) | words[:, 3].astype(np.uint64) << np.uint64(32)
        got = (mask >> lane.astype(np.uint64) & np.uint64(1)).astype(bool)
        wrong = np.flatnonzero(got != condition)
        if len(wrong):
            i = wrong[0]
            return f"{name}: mask of {len(wrong)} lanes; {data[:3, i]} gave {got[i]}"
    if value is None:
        return ""
    statement = row.statements[0]
    bits = int(statement.type[1:])
    got64 = words[:, 0].astype(np.uint64) | words[:, 1].astype(np.uint64) << np.uint64(32)
    got_bits = (got64 & np.uint64((1 << bits) - 1)).astype(f"u{bits // 8}")
    if statement.type[0] == "f":
        kind = np.dtype(f"f{bits // 8}")
        with np.errstate(all="ignore"):
            wanted = np.asarray(value).astype(kind)
        got_f = got_bits.view(kind)
        wrong = np.flatnonzero(
            ~((got_bits == wanted.view(got_bits.dtype)) | (np.isnan(got_f) & np.isnan(wanted)))
        )
        shown: tuple[np.ndarray, np.ndarray] = (got_f, wanted)
    else:
        wanted_bits = (
            np.asarray(value).astype("i8" if bits < 64 else "u8").view("u8") & np.uint64((1 << bits) - 1)
        ).astype(got_bits.dtype)
        wrong, shown = np.flatnonzero(got_bits != wanted_bits), (got_bits, wanted_bits)
    if len(wrong):
        i = wrong[0]
        got_one, wanted_one = (values[i] for values in shown)
        sources = [hex(v) for v in data[:, i]]
        return f"{name}: {len(wrong)} lanes; {sources} gave {got_one!r}, expected {wanted_one!r}"
    return ""


def _tested() -> list[str]:
    return [n for n in rows() if n.startswith("v_") and not ELSEWHERE.fullmatch(n)]


# gfx12's names for, and relatives of, instructions that are tested: no target above has them
GFX12 = re.compile(
    r"v_(.*_num_f(16|32|64)|m(in|ax)imum3?_f(16|32|64)|(add|sub)(_nc)?_u64|mul_u64|swap_b16|dot2_f16_f16)"
)


def test_every_row_has_a_reference_or_a_test_of_its_own() -> None:
    assert [n for n in _tested() if n not in amd_reference.REFERENCE and not GFX12.fullmatch(n)] == []


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ["int", "f16", "f32", "f64"])
def test_instructions_agree_with_numpy(target: str, kind: str) -> None:
    wave = wave_of(target)
    names = [n for n in _tested() if n in amd_reference.REFERENCE and kind_of(rows()[n]) == kind]
    names = [n for n in names if accepted(target, n) is not None]
    assert len(names) > 15
    data, problems = operands(kind), []
    for start in range(0, len(names), BATCH):
        batch = names[start : start + BATCH]
        results = run(target, [accepted(target, n) or "" for n in batch], data)
        for name, words in zip(batch, results, strict=True):
            problems.append(_check(name, rows()[name], words, data, wave))
    assert [p for p in problems if p] == []
