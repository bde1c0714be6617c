"""Single vector instructions in the emulator, held against what AMD's pseudo-code makes of the same operands.

Each instruction is run by 256 threads: special values against each other (zeros, NaN, subnormal numbers,
powers of two, largest and smallest integers), then random ones. Of :data:`LANES` threads the pseudo-code is
interpreted. An instruction that disagrees is emulated wrongly, but for what :data:`KNOWN` says, where the
pseudo-code is known not to be all.
"""

from __future__ import annotations

import importlib
import re
import struct
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zluda.device.amd.emulator.device import EmulatedDevice
from zluda.device.amd.emulator.table import Row, rows
from zluda.errors import Error, UnsupportedError
from zluda.isolate.opinion.assembly import AssemblyError, Kernel, assemble, code_object
from zluda.isolate.opinion.pseudocode import NotInterpretedError, Number, Program

BLOCKS, BLOCK = 4, 64
THREADS = BLOCKS * BLOCK
LANES = 112
CARRY_MASK = 0xA5F0_3C69_5A0F_C396
"""What a mask operand holds."""

BATCH = 24  # instructions of a kernel
_MANUALS = (("gfx12", "rdna4"), ("gfx11", "rdna3"), ("gfx10", "rdna3"), ("gfx9", "cdna"))
"""Generation → the manual whose pseudo-code tinygrad has; RDNA 2's instructions are held against RDNA 3's."""

_SOURCES = ("v[4:5]", "v[6:7]", "v[8:9]")
_SINGLE = ("v4", "v6", "v8")

ELSEWHERE = re.compile(
    r"v_(div_.*|fma_mix.*|mad_mix.*|trig_preop_f64|mac_.*|madmk.*|madak.*|mad_f(16|32)|mad_legacy_f16|fma[ak][ak]?k_.*|"
    r"fmaak_.*|fmamk_.*|bitop3.*|.*norm.*|.*_dx9_zero_.*|fma_legacy_f32|fmac_legacy_f32|mul_legacy_f32|s_.*)"
)
"""What reads or writes more than a kernel here sets up."""

# AMD does not publish the bits of these units; the pseudo-code names the function only.
APPROXIMATE = re.compile(r"v_(rcp|rcp_iflag|sqrt|rsq|exp|log|sin|cos)_f(16|32|64)")
# What the pseudo-code does not say: the table of v_cvt_off, which operands op_sel chooses.
UNSAID = re.compile(r"v_cvt_off_f32_i4|v_pk_mov_b32")

_SUFFIX = re.compile(r"_(e32|e64|sdwa|dpp|e64_dpp|dpp8)$")

Words = NDArray[Any]
"""Bits of operands or results, of some width."""


def plain_name(instruction: str) -> str:
    """The name of an instruction as it is written in assembly, without its encoding."""
    return _SUFFIX.sub("", instruction.split()[0])


def manual_of(target: str) -> str:
    """The manual for a target. Raises UnsupportedError for a generation without one."""
    found = next((manual for prefix, manual in _MANUALS if target.startswith(prefix)), None)
    if found is None:
        raise UnsupportedError(f"pseudo-code of {target}", "isolate")
    return found


@cache
def pseudocode(manual: str) -> dict[str, str]:
    """Instruction → pseudo-code; an encoding's suffix is not part of the name.

    Raises Error where tinygrad is not installed.
    """
    try:
        module = importlib.import_module(f"tinygrad.runtime.autogen.amd.{manual}.str_pcode")
    except ImportError as error:
        raise Error(f"AMD's pseudo-code is not at hand ({error}): pip install 'zluda[isolate]'") from error
    texts: dict[str, str] = {}
    for key, text in module.PCODE.items():
        texts.setdefault(key.name.lower().removesuffix("_e32").removesuffix("_e64"), text)
    return texts


# --- where the pseudo-code does not say all ----------------------------------------------------------------


def _floats(bits: int, *values: int) -> Words:
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
    signed = got - (got >> 15 << 16 if got < 1 << 16 else got >> 31 << 32)
    return bool(small and np.frexp(np.float64(given))[1] == signed)


def _dot(source: int, got: int, told: int, bits: int) -> bool:
    return abs(got - told) <= 2


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
"""Where the pseudo-code is not what the hardware does, or does not say: instruction → (width of the source,
what must hold of (source, emulated result, pseudo-code's result), reason)."""


# --- kernels of single instructions ------------------------------------------------------------------------


def _operands(row: Row, text: str = "") -> list[tuple[int, str]]:
    """(index, type) of the sources that a row reads, and of others that its pseudo-code does: a row may be
    wrong in just that.
    """
    found: dict[int, str] = {}
    for index, kind in re.findall(r"S(\d)\.(\w+)", row.text):
        kind = {"lo": "u32", "hi": "u32", "dot": "u32", "word": "u64", "u24": "u32", "i24": "u32"}.get(
            kind, kind
        )
        bits = max(int(kind[1:]), int(found.get(int(index), "u0")[1:]))
        found[int(index)] = f"{kind[0]}{bits}"
    for index in {int(one) for one in re.findall(r"\bS(\d)\b", text)} - found.keys():
        wide = re.search(rf"\bS{index}\.[uifb]64", text)
        found[index] = "u64" if wide else "u32"
    return sorted(found.items())


def wave_of(target: str) -> int:
    """The wave size in which a target's instructions are run here."""
    return 64 if target.startswith("gfx9") else 32


def _register(index: int, kind: str) -> str:
    return _SOURCES[index] if kind.endswith("64") else _SINGLE[index]


def _written(name: str, row: Row, wave: int, text: str) -> list[str]:
    """Ways to write the instruction; the assembler takes the one that its encoding has."""
    sources = [_register(i, kind) for i, kind in _operands(row, text)]
    mask = "vcc" if wave == 64 else "vcc_lo"
    kind = row.statements[0].type
    destination = "v[12:13]" if kind.endswith("64") else "v12"
    if name.startswith("v_cmp_"):
        return [f"{name} {mask}, {', '.join(sources)}"]
    if name == "v_accvgpr_write_b32":
        return ["v_accvgpr_write_b32 a0, v4\n s_nop 4\n v_accvgpr_read_b32 v12, a0"]
    if name in ("v_accvgpr_read_b32", "v_accvgpr_mov_b32"):
        moves = ("v_accvgpr_write_b32 a1, v4", "v_accvgpr_mov_b32 a0, a1", "v_accvgpr_read_b32 v12, a0")
        return ["\n s_nop 4\n ".join(moves)]
    if name.startswith("v_swap"):
        return [f"{name} v12, v4"]
    operands = [destination]
    operands += [mask] if row.writes("CARRY") else []
    operands += sources
    operands += [mask] if "CIN" in row.names else []
    plain = f"{name} {', '.join(operands)}"
    return [plain, f"{plain} op_sel:[0,1]"] if name == "v_pk_mov_b32" else [plain]


@cache
def accepted(target: str, name: str, told: str = "") -> str | None:
    """An instruction as assembly has it, None where the target does not; ``told`` is its pseudo-code."""
    for text in reversed(_written(name, rows()[name], wave_of(target), told)):
        try:
            assemble(target, text)
        except AssemblyError:
            continue
        return text
    return None


def kind_of(row: Row) -> str:
    """Which operands suit a row: those of its widest floating source, else integers."""
    kinds = [k for _, k in _operands(row)]
    floats = [k for k in kinds if k[0] == "f"]
    return max(floats, key=lambda k: int(k[1:])) if floats else "int"


_SPECIAL_INTEGERS = (0, 1, 0xFFFFFFFF, 1 << 31, 1 << 63, (1 << 64) - 1, 0x7FFFFFFF, 0x8000_8000, 31, 33)
_SPECIAL_FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -3.5, np.inf, -np.inf, np.nan)


@cache
def operands(kind: str) -> Words:
    """(4, threads) 64-bit sources: special values against each other, then random ones; the fourth is what
    the destination held.
    """
    choose = np.random.default_rng(len(kind) + int(kind[1:]) if kind != "int" else 7)
    raw: Words = choose.integers(0, 1 << 64, (4, THREADS), dtype=np.uint64)
    bits = 64 if kind == "int" else int(kind[1:])
    if kind == "int":
        special = np.array(_SPECIAL_INTEGERS, np.uint64)
    else:
        float_kind, word = np.dtype(f"f{bits // 8}"), np.dtype(f"u{bits // 8}")
        tiny, most = np.finfo(float_kind).tiny, np.finfo(float_kind).max
        values = [*_SPECIAL_FLOATS, tiny, tiny / 4, -tiny / 8, most, 127.5, 65504.0]
        special = np.array(values).astype(float_kind).view(word).astype(np.uint64)
        with np.errstate(all="ignore"):
            usual = (
                choose.standard_normal((4, THREADS)) * 2.0 ** choose.integers(-6, 12, (4, THREADS))
            ).astype(float_kind)
        raw = np.where(choose.random((4, THREADS)) < 0.75, _with_low(raw, usual.view(word), bits), raw)
    n = len(special)
    for i in range(3):
        pattern = special[np.arange(n * n) // n ** (i % 2) % n][: THREADS // 2]
        raw[i, : len(pattern)] = _with_low(raw[i, : len(pattern)], pattern, bits)
    if kind == "f16":  # both halves are numbers
        raw = raw & np.uint64(0xFFFF) | (raw & np.uint64(0xFFFF)) << np.uint64(16)
    return raw


def _with_low(raw: Words, low: Words, bits: int) -> Words:
    mask = np.uint64((1 << bits) - 1)
    return raw & ~mask | low.astype(np.uint64) & mask


def _kernel(target: str, label: str, texts: list[str]) -> str:
    """A kernel that runs instructions one after the other and stores v[12:13] and the mask of each."""
    wave64 = wave_of(target) == 64
    wait, block = ("s_wait_idle", "ttmp9") if target.startswith("gfx12") else ("s_waitcnt 0", "s2")
    lines = [
        f"{label}:",
        "s_load_dwordx4 s[4:7], s[0:1], 0x0",
        f"v_and_b32 v0, 0x3ff, v0\n v_lshl_add_u32 v0, {block}, 6, v0",
        "v_lshlrev_b32 v1, 5, v0\n v_lshlrev_b32 v2, 4, v0",
        wait,
        "global_load_dwordx4 v[20:23], v1, s[4:5]\n global_load_dwordx4 v[24:27], v1, s[4:5] offset:16",
        wait,
    ]
    for text in texts:
        lines += [f"v_mov_b32 v{4 + i}, v{20 + i}" for i in range(6)]
        lines += ["v_mov_b32 v12, v26\n v_mov_b32 v13, v27"]
        lines += [f"s_mov_b32 vcc_lo, {CARRY_MASK & 0xFFFFFFFF:#x}\n s_mov_b32 vcc_hi, {CARRY_MASK >> 32:#x}"]
        lines += [
            text,
            "s_nop 4",
            "v_mov_b32 v14, vcc_lo",
            "v_mov_b32 v15, vcc_hi" if wave64 else "v_mov_b32 v15, 0",
        ]
        lines += ["global_store_dwordx4 v2, v[12:15], s[6:7]"]
        lines += [f"s_add_u32 s6, s6, {THREADS * 16}\n s_addc_u32 s7, s7, 0"]
    return "\n".join([*lines, "s_endpgm"])


def run(target: str, texts: list[str], data: Words) -> Words:
    """(instructions, threads, 4) words: v12, v13, mask low, mask high."""
    wave32 = wave_of(target) == 32
    device = EmulatedDevice(target, threads=1)
    try:
        code = device.load_code_object(
            code_object(target, _kernel(target, "k", texts), [Kernel("k", wave32=wave32)])
        )
        source = np.ascontiguousarray(data.T)
        result = np.zeros((len(texts), THREADS, 4), np.uint32)
        arguments = struct.pack("<QQ", source.ctypes.data, result.ctypes.data)
        device.launch(code.kernel("k"), (BLOCKS, 1, 1), (BLOCK, 1, 1), arguments)
        return result
    finally:
        device.close()


# --- the comparison ----------------------------------------------------------------------------------------


def lane_result(program: Program, data: Words, lane: int, wave: int) -> dict[str, Number]:
    """The pseudo-code's variables after it ran on a lane's operands."""
    sources = {f"S{i}": Number("B", 64, int(data[i, lane])) for i in range(3)}
    return program.run(
        {
            **sources,
            "D0": Number("B", 64, int(data[3, lane])),
            "VCC": Number("B", 64, CARRY_MASK & (1 << wave) - 1),
            "EXEC": Number("B", 64, (1 << wave) - 1),
            "laneId": Number("U", 32, lane % wave),
            "OPSEL": Number("U", 4, 0),
            "WAVE_MODE.IEEE": Number("U", 1, 0),
            "WAVE32": Number("U", 1, int(wave == 32)),
            "ROUND_MODE": Number("U", 2, 0),
            "ROUND_TOWARD_ZERO": Number("U", 2, 3),
        }
    )


def disagreement(name: str, row: Row, program: Program, words: Words, data: Words, wave: int) -> str:
    """The first lane in which the emulator gave something else, in words; empty where none did.

    Raises NotInterpretedError.
    """
    place, kind, bits = row.statements[0].place, row.statements[0].type[0], int(row.statements[0].type[1:])
    for lane in np.linspace(0, THREADS - 1, LANES).astype(int).tolist():
        after = lane_result(program, data, lane, wave)
        given = f"of {', '.join(hex(v) for v in data[:, lane])} in lane {lane % wave}"
        if row.writes("CARRY"):
            mask = int(words[lane, 2]) | int(words[lane, 3]) << 32
            told = after["D0" if name.startswith("v_cmp") else "VCC"].raw >> lane % wave & 1
            told = after["D1"].raw & 1 if "D1" in after else told
            if mask >> lane % wave & 1 != told:
                return f"{name} gives mask {1 - told}, not {told}, {given}"
        if place != "D":
            continue
        got = (int(words[lane, 0]) | int(words[lane, 1]) << 32) & (1 << bits) - 1
        told = after["D0"].raw & (1 << bits) - 1
        both_nan = kind == "f" and np.isnan(_floats(bits, got, told)).all()
        width, excused, _ = KNOWN.get(name, (0, None, ""))
        if got != told and not both_nan and not (excused and excused(int(data[0, lane]), got, told, width)):
            return f"{name} gives {got:#x}, not {told:#x}, {given}"
    return ""


def told_of(target: str, names: Iterable[str]) -> list[str]:
    """Those of some instructions (without encoding) that can be held against the pseudo-code.

    Raises Error where tinygrad is not installed, UnsupportedError for a generation without a manual.
    """
    told = pseudocode(manual_of(target))
    return [
        name
        for name in sorted(set(names))
        if name.startswith("v_")
        and name in rows()
        and name in told
        and not any(pattern.fullmatch(name) for pattern in (ELSEWHERE, APPROXIMATE, UNSAID))
        and accepted(target, name, told[name]) is not None
    ]


def disagreements(target: str, names: Iterable[str]) -> list[str]:
    """What the emulator does otherwise than AMD's pseudo-code says, an instruction an entry.

    Of ``names`` those that :func:`told_of` gives are tried. Raises what it raises.
    """
    told, wave = pseudocode(manual_of(target)), wave_of(target)
    chosen = told_of(target, names)
    problems = []
    for kind in ("int", "f16", "f32", "f64"):
        of_kind = [name for name in chosen if kind_of(rows()[name]) == kind]
        data = operands(kind)
        for start in range(0, len(of_kind), BATCH):
            batch = of_kind[start : start + BATCH]
            results = run(target, [accepted(target, name, told[name]) or "" for name in batch], data)
            for name, words in zip(batch, results, strict=True):
                try:
                    problem = disagreement(
                        name, rows()[name], Program(told[name], told.get), words, data, wave
                    )
                except NotInterpretedError:
                    continue  # nothing is known of this one
                problems += [problem] if problem else []
    return problems
