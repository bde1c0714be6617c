"""Every vector instruction of the emulator's table against numpy, on each target that has it."""

from __future__ import annotations

import re
import struct
from functools import cache

import amd_reference
import numpy as np
import pytest
from amd_code import AssemblyError, Kernel, assemble, code_object

from zluda.device.amd.emulator.device import EmulatedDevice
from zluda.device.amd.emulator.table import Row, rows

TARGETS = ("gfx1030", "gfx1100", "gfx90a")
BLOCKS, LANES = 4, 64
THREADS = BLOCKS * LANES
CARRY_MASK = 0xA5F0_3C69_5A0F_C396
BATCH = 24
_SOURCES = ("v[4:5]", "v[6:7]", "v[8:9]")
_SINGLE = ("v4", "v6", "v8")
# tested by their own tests, for they read or write more than this harness sets up
ELSEWHERE = re.compile(
    r"v_(div_.*|fma_mix.*|mad_mix.*|trig_preop_f64|mac_.*|madmk.*|madak.*|mad_f(16|32)|mad_legacy_f16|fma[ak][ak]?k_.*|"
    r"fmaak_.*|fmamk_.*|bitop3.*|.*norm.*|.*_dx9_zero_.*|fma_legacy_f32|fmac_legacy_f32|mul_legacy_f32|s_.*)"
)


def _operands(row: Row) -> list[tuple[int, str]]:
    """(index, type) of the sources that a row reads."""
    found: dict[int, str] = {}
    for index, kind in re.findall(r"S(\d)\.(\w+)", row.text):
        kind = {"lo": "u32", "hi": "u32", "dot": "u32", "word": "u64", "u24": "u32", "i24": "u32"}.get(
            kind, kind
        )
        bits = max(int(kind[1:]), int(found.get(int(index), "u0")[1:]))
        found[int(index)] = f"{kind[0]}{bits}"
    return sorted(found.items())


def _wave(target: str) -> int:
    return 64 if target.startswith("gfx9") else 32


def _register(index: int, kind: str) -> str:
    return _SOURCES[index] if kind.endswith("64") else _SINGLE[index]


def _text(name: str, row: Row, wave: int) -> list[str]:
    """Ways to write the instruction; the assembler takes the one that its encoding has."""
    sources = [_register(i, kind) for i, kind in _operands(row)]
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
def _accepted(target: str, name: str) -> str | None:
    """The assembly text of an instruction, None where the target does not have it."""
    wave = _wave(target)
    for text in reversed(_text(name, rows()[name], wave)):
        try:
            assemble(target, text)
        except AssemblyError:
            continue
        return text
    return None


def _kind(row: Row) -> str:
    """Which data suits a row: that of its widest floating source, else integers."""
    kinds = [k for _, k in _operands(row)]
    floats = [k for k in kinds if k[0] == "f"]
    return max(floats, key=lambda k: int(k[1:])) if floats else "int"


@cache
def _data(kind: str) -> np.ndarray:
    """(4, threads) 64-bit sources: special values against each other, then random ones."""
    choose = np.random.default_rng(len(kind) + int(kind[1:]) if kind != "int" else 7)
    raw = choose.integers(0, 1 << 64, (4, THREADS), dtype=np.uint64)
    if kind == "int":
        special = np.array(
            [0, 1, 0xFFFFFFFF, 1 << 31, 1 << 63, (1 << 64) - 1, 0x7FFFFFFF, 0x8000_8000, 31, 33], np.uint64
        )
    else:
        bits = int(kind[1:])
        float_kind, word = np.dtype(f"f{bits // 8}"), np.dtype(f"u{bits // 8}")
        tiny, most = np.finfo(float_kind).tiny, np.finfo(float_kind).max
        values = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            2.5,
            -3.5,
            np.inf,
            -np.inf,
            np.nan,
            tiny,
            tiny / 4,
            -tiny / 8,
            most,
            127.5,
            65504.0,
        ]
        special = np.array(values).astype(float_kind).view(word).astype(np.uint64)
        with np.errstate(all="ignore"):
            usual = (
                choose.standard_normal((4, THREADS)) * 2.0 ** choose.integers(-6, 12, (4, THREADS))
            ).astype(float_kind)
        raw = np.where(choose.random((4, THREADS)) < 0.75, _with_low(raw, usual.view(word), bits), raw)
    n = len(special)
    for i in range(3):
        pattern = special[np.arange(n * n) // n ** (i % 2) % n][: THREADS // 2]
        raw[i, : len(pattern)] = _with_low(
            raw[i, : len(pattern)], pattern, 64 if kind in ("int", "f64") else bits
        )
    if kind == "f16":  # both halves are numbers
        raw = raw & np.uint64(0xFFFF) | (raw & np.uint64(0xFFFF)) << np.uint64(16)
    return raw


def _with_low(raw: np.ndarray, low: np.ndarray, bits: int) -> np.ndarray:
    mask = np.uint64((1 << bits) - 1)
    return raw & ~mask | low.astype(np.uint64) & mask


def _kernel(target: str, label: str, texts: list[str]) -> str:
    """A kernel that runs instructions one after the other and stores v[12:13] and the mask of each."""
    wave64 = _wave(target) == 64
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


def _run(target: str, texts: list[str], data: np.ndarray) -> np.ndarray:
    """(instructions, threads, 4) words: v12, v13, mask low, mask high."""
    wave32 = _wave(target) == 32
    device = EmulatedDevice(target, threads=1)
    try:
        code = device.load_code_object(
            code_object(target, _kernel(target, "k", texts), [Kernel("k", wave32=wave32)])
        )
        source = np.ascontiguousarray(data.T)
        result = np.zeros((len(texts), THREADS, 4), np.uint32)
        arguments = struct.pack("<QQ", source.ctypes.data, result.ctypes.data)
        device.launch(code.kernel("k"), (BLOCKS, 1, 1), (LANES, 1, 1), arguments)
        return result
    finally:
        device.close()


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
    wave = _wave(target)
    names = [n for n in _tested() if n in amd_reference.REFERENCE and _kind(rows()[n]) == kind]
    names = [n for n in names if _accepted(target, n) is not None]
    assert len(names) > 15
    data, problems = _data(kind), []
    for start in range(0, len(names), BATCH):
        batch = names[start : start + BATCH]
        results = _run(target, [_accepted(target, n) or "" for n in batch], data)
        for name, words in zip(batch, results, strict=True):
            problems.append(_check(name, rows()[name], words, data, wave))
    assert [p for p in problems if p] == []
