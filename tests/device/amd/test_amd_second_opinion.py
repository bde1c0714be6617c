"""The semantic table against AMD's own pseudo-code of each instruction, which PyPI's tinygrad carries."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import test_amd_instructions as harness
from amd_pseudocode import NotInterpretedError, Number, Program

from zluda.device.amd.emulator.table import Row, rows

MANUALS = {"gfx1100": "rdna3", "gfx1200": "rdna4", "gfx942": "cdna"}
LANES = 112  # of each instruction: special values against each other, and random ones

# AMD does not publish the bits of these units; the pseudo-code names the function only.
APPROXIMATE = re.compile(r"v_(rcp|rcp_iflag|sqrt|rsq|exp|log|sin|cos)_f(16|32|64)")
# What the pseudo-code does not say: the table of v_cvt_off, which operands op_sel chooses.
UNSAID = re.compile(r"v_cvt_off_f32_i4|v_pk_mov_b32")


def _floats(bits: int, *values: int) -> np.ndarray:
    return np.array([v & (1 << bits) - 1 for v in values], f"u{bits // 8}").view(f"f{bits // 8}")


def _fract(source: int, got: int, told: int, bits: int) -> bool:
    value, one = _floats(bits, got, told)
    return bool(one == 1.0 and value == np.nextafter(one, np.zeros_like(one)))


def _rounded(source: int, got: int, told: int, bits: int) -> bool:
    value, given = _floats(bits, got, source)
    return bool(np.rint(given) == value and np.signbit(given) == np.signbit(value))


def _exponent(source: int, got: int, told: int, bits: int) -> bool:
    [given] = _floats(bits, source)
    small = abs(given) < np.finfo(given.dtype).tiny
    return bool(
        small
        and np.frexp(np.float64(given))[1] == got - (got >> 15 << 16 if got < 1 << 16 else got >> 31 << 32)
    )


def _dot(source: int, got: int, told: int, bits: int) -> bool:
    return abs(got - told) <= 2


# Where the pseudo-code is not what the hardware does, or does not say: instruction → (width of the source,
# what must hold of (source, table's result, pseudo-code's result), reason).
KNOWN: dict[str, tuple[int, Callable[[int, int, int, int], bool], str]] = {
    **{
        f"v_fract_f{bits}": (
            bits,
            _fract,
            "a tiny negative number gives the largest number below one, as LLVM relies on",
        )
        for bits in (16, 32, 64)
    },
    **{
        f"v_rndne_f{bits}": (
            bits,
            _rounded,
            "floor(x + 0.5) loses the sign of zero; the text beside it says round to even",
        )
        for bits in (16, 32, 64)
    },
    **{
        f"v_frexp_exp_i{32 if bits > 16 else 16}_f{bits}": (
            bits,
            _exponent,
            "exponent() of zero and subnormal numbers is the field; with v_frexp_mant it must make them",
        )
        for bits in (16, 32, 64)
    },
    "v_dot2_f16_f16": (16, _dot, "whether products are rounded before they are added is not said"),
}


@cache
def pseudocode(manual: str) -> dict[str, str]:
    """Instruction → pseudo-code; an encoding's suffix is not part of the name."""
    module = importlib.import_module(f"tinygrad.runtime.autogen.amd.{manual}.str_pcode")
    texts: dict[str, str] = {}
    for key, text in module.PCODE.items():
        texts.setdefault(key.name.lower().removesuffix("_e32").removesuffix("_e64"), text)
    return texts


def lane_result(program: Program, data: np.ndarray, lane: int, wave: int) -> dict[str, Number]:
    """The pseudo-code's variables after it ran on a lane's operands."""
    sources = {f"S{i}": Number("B", 64, int(data[i, lane])) for i in range(3)}
    return program.run(
        {
            **sources,
            "D0": Number("B", 64, int(data[3, lane])),
            "VCC": Number("B", 64, harness.CARRY_MASK & (1 << wave) - 1),
            "EXEC": Number("B", 64, (1 << wave) - 1),
            "laneId": Number("U", 32, lane % wave),
            "OPSEL": Number("U", 4, 0),
            "WAVE_MODE.IEEE": Number("U", 1, 0),
            "WAVE32": Number("U", 1, int(wave == 32)),
            "ROUND_MODE": Number("U", 2, 0),
            "ROUND_TOWARD_ZERO": Number("U", 2, 3),
        }
    )


def disagreement(
    name: str, row: Row, program: Program, words: np.ndarray, data: np.ndarray, wave: int
) -> str:
    """The first lane in which the table gave something else, in words."""
    place, kind, bits = row.statements[0].place, row.statements[0].type[0], int(row.statements[0].type[1:])
    for lane in np.linspace(0, harness.THREADS - 1, LANES).astype(int).tolist():
        after = lane_result(program, data, lane, wave)
        shown = f"{name} lane {lane} of {[hex(v) for v in data[:, lane]]}"
        if row.writes("CARRY"):
            mask = int(words[lane, 2]) | int(words[lane, 3]) << 32
            told = after["D0" if name.startswith("v_cmp") else "VCC"].raw >> lane % wave & 1
            told = after["D1"].raw & 1 if "D1" in after else told
            if mask >> lane % wave & 1 != told:
                return f"{shown}: not the mask {told}"
        if place != "D":
            continue
        got = (int(words[lane, 0]) | int(words[lane, 1]) << 32) & (1 << bits) - 1
        told = after["D0"].raw & (1 << bits) - 1
        both_nan = kind == "f" and np.isnan(_floats(bits, got, told)).all()
        width, excused, _ = KNOWN.get(name, (0, None, ""))
        if got != told and not both_nan and not (excused and excused(int(data[0, lane]), got, told, width)):
            return f"{shown}: {got:#x}, not {told:#x}"
    return ""


def _said_before(target: str, name: str) -> bool:
    """Whether an earlier manual has the same words for the same row: it is held against them there."""
    text = pseudocode(MANUALS[target])[name]
    earlier = list(MANUALS)[: list(MANUALS).index(target)]
    return any(
        pseudocode(MANUALS[other]).get(name) == text
        and harness._accepted(other, name) is not None
        and harness._wave(other) == harness._wave(target)
        for other in earlier
    )


@pytest.mark.slow
@pytest.mark.parametrize("target", MANUALS)
def test_table_agrees_with_pseudocode(target: str) -> None:
    told, wave = pseudocode(MANUALS[target]), harness._wave(target)
    counts: Counter[str] = Counter()
    problems: list[str] = []
    names = [n for n in harness._tested() if n in told and harness._accepted(target, n) is not None]
    names = [n for n in names if not APPROXIMATE.fullmatch(n) and not UNSAID.fullmatch(n)]
    before = [n for n in names if _said_before(target, n)]
    names = [n for n in names if n not in before]
    for kind in ("int", "f16", "f32", "f64"):
        of_kind = [n for n in names if harness._kind(rows()[n]) == kind]
        data = harness._data(kind)
        for start in range(0, len(of_kind), harness.BATCH):
            batch = of_kind[start : start + harness.BATCH]
            results = harness._run(target, [harness._accepted(target, n) or "" for n in batch], data)
            for name, words in zip(batch, results, strict=True):
                try:
                    problem = disagreement(
                        name, rows()[name], Program(told[name], told.get), words, data, wave
                    )
                except NotInterpretedError as error:
                    problem = f"{name}: not interpreted: {error}"
                counts["no" if problem else "but for" if name in KNOWN else "agrees"] += 1
                problems += [problem] if problem else []
    assert problems == []
    assert counts["agrees"] + len(before) > 250
    assert counts["but for"] == len([n for n in KNOWN if n in names])
