"""Data across lanes, SDWA, packed halves, exact division: what the instruction table does not show."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from zluda.device.amd.emulator.device import EmulatedDevice
from zluda.isolate.opinion.assembly import Kernel, code_object

TARGETS = ("gfx1030", "gfx1100", "gfx90a")
LOAD = """k:
 s_load_dwordx4 s[4:7], s[0:1], 0x0
 v_and_b32 v0, 0x3ff, v0
 v_lshlrev_b32 v1, 4, v0
 s_waitcnt lgkmcnt(0)
 global_load_dwordx4 v[4:7], v1, s[4:5]
 v_mov_b32 v12, 0
 v_mov_b32 v13, 0
 s_waitcnt vmcnt(0)
"""
STORE = """
 s_mov_b64 exec, -1
 v_lshlrev_b32 v1, 3, v0
 global_store_dwordx2 v1, v[12:13], s[6:7]
 s_endpgm
"""


def run(target: str, text: str, sources: np.ndarray) -> np.ndarray:
    """(64, 2) words that the instructions leave in v[12:13], from four words a lane in v[4:7]."""
    device = EmulatedDevice(target, threads=1)
    kernel = Kernel("k", wave32=target != "gfx90a", lds_bytes=256)
    code = device.load_code_object(code_object(target, LOAD + text + STORE, [kernel]))
    words = np.ascontiguousarray(sources).view("u4").reshape(64, 4)
    result = np.zeros((64, 2), np.uint32)
    arguments = struct.pack("<QQ", words.ctypes.data, result.ctypes.data)
    device.launch(code.kernel("k"), (1, 1, 1), (64, 1, 1), arguments)
    device.close()
    return result


def numbered() -> np.ndarray:
    words = np.zeros((64, 4), "u4")
    words[:, 0] = np.arange(64) + 100
    words[:, 1] = (np.arange(64) * 7 + 3) % 64 * 4
    return words


LANE = np.arange(64)
DPP = {
    "quad_perm:[3,0,2,1]": (LANE & ~3) + np.array([3, 0, 2, 1])[LANE & 3],
    "row_shl:3": np.where(LANE % 16 + 3 < 16, LANE + 3, -1),
    "row_shr:5": np.where(LANE % 16 >= 5, LANE - 5, -1),
    "row_ror:4": (LANE & ~15) + (LANE - 4) % 16,
    "row_mirror": (LANE & ~15) + 15 - LANE % 16,
    "row_half_mirror": (LANE & ~7) + 7 - LANE % 8,
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("control", list(DPP))
def test_dpp_reads_the_lane_that_the_manual_says(target: str, control: str) -> None:
    source = DPP[control]
    value = np.where(source >= 0, source + 100, 0)
    got = run(
        target,
        f" v_mov_b32 v12, 7\n s_nop 1\n v_mov_b32_dpp v12, v4 {control} row_mask:0xf bank_mask:0xf",
        numbered(),
    )
    assert got[:, 0].tolist() == np.where(source >= 0, value, 7).tolist()
    got = run(target, f" v_mov_b32_dpp v12, v4 {control} row_mask:0x5 bank_mask:0xf bound_ctrl:1", numbered())
    rows = (LANE // 16 % (4 if target == "gfx90a" else 2)) % 2 == 0
    assert got[:, 0].tolist() == np.where(rows, value, 0).tolist()


@pytest.mark.parametrize("target", TARGETS)
def test_lanes_exchange_through_the_crossbar(target: str) -> None:
    wave = 64 if target == "gfx90a" else 32
    index = numbered()[:, 1] // 4 % wave + LANE // wave * wave
    got = run(
        target, " ds_bpermute_b32 v12, v5, v4\n ds_permute_b32 v13, v5, v4\n s_waitcnt lgkmcnt(0)", numbered()
    )
    assert got[:, 0].tolist() == (index + 100).tolist()
    pushed = np.zeros(64, int)
    pushed[index] = LANE + 100
    assert got[:, 1].tolist() == pushed.tolist()
    text = (
        ' ds_swizzle_b32 v12, v4 offset:swizzle(BITMASK_PERM,"0pipi")\n'
        " ds_swizzle_b32 v13, v4 offset:swizzle(QUAD_PERM,1,1,3,0)"
    )
    got = run(target, text + "\n s_waitcnt lgkmcnt(0)", numbered())
    assert got[:, 0].tolist() == ((LANE & ~31 | (LANE & 15) ^ 5) + 100).tolist()
    assert got[:, 1].tolist() == ((LANE & ~3) + np.array([1, 1, 3, 0])[LANE & 3] + 100).tolist()


@pytest.mark.parametrize("target", TARGETS)
def test_lane_reads_and_writes(target: str) -> None:
    wave = 64 if target == "gfx90a" else 32
    text = (
        " v_readlane_b32 s10, v4, 9\n"
        " s_mov_b32 exec_lo, 0xf0\n"
        " s_mov_b32 exec_hi, 0\n"
        " v_readfirstlane_b32 s11, v4\n"
        " s_mov_b64 exec, -1\n"
    )
    text += " v_mov_b32 v12, s10\n v_mov_b32 v13, s11\n v_writelane_b32 v13, s10, 3"
    got = run(target, text, numbered())
    first = LANE // wave * wave
    assert got[:, 0].tolist() == (first + 109).tolist()
    assert got[:, 1].tolist() == np.where(LANE % wave == 3, first + 109, first + 104).tolist()


def test_permlanes_pick_within_a_row_and_across_rows() -> None:
    text = (
        " s_mov_b32 s10, 0x76543210\n"
        " s_mov_b32 s11, 0xfedcba98\n"
        " v_permlane16_b32 v12, v4, s11, s10\n"
        " v_permlanex16_b32 v13, v4, s10, s11"
    )
    got = run("gfx1030", text, numbered())
    assert got[:, 0].tolist() == ((LANE ^ 8) + 100).tolist()
    assert got[:, 1].tolist() == ((LANE ^ 16) + 100).tolist()


def test_sdwa_selects_bytes_and_words() -> None:
    words = np.zeros((64, 4), "u4")
    words[:, 0] = np.random.default_rng(2).integers(0, 1 << 32, 64)
    words[:, 1] = np.random.default_rng(3).integers(0, 1 << 32, 64)
    text = (
        " v_mov_b32 v12, -1\n"
        " v_add_u32_sdwa v12, v4, v5 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE"
        " src0_sel:BYTE_2 src1_sel:WORD_0\n"
    )
    text += " v_mov_b32_sdwa v13, sext(v4) dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1"
    got = run("gfx90a", text, words)
    sums = (words[:, 0] >> 16 & 255) + (words[:, 1] & 0xFFFF)
    assert got[:, 0].tolist() == ((sums & 0xFFFF) << 16 | 0xFFFF).tolist()
    byte = (words[:, 0] >> 8 & 255).astype("i8")
    assert got[:, 1].tolist() == (np.where(byte > 127, byte - 256, byte) & 0xFFFFFFFF).tolist()


@pytest.mark.parametrize("target", TARGETS)
def test_packed_halves_obey_op_sel_and_neg(target: str) -> None:
    halves = np.random.default_rng(4).uniform(-4, 4, (64, 8)).astype("f2")
    text = (
        " v_pk_add_f16 v12, v4, v5 op_sel:[1,0] op_sel_hi:[0,1] neg_lo:[0,1]\n"
        " v_pk_mul_f16 v13, v4, v5 neg_hi:[1,0]"
    )
    got = run(target, text, halves).view("f2").reshape(64, 4)
    x, y = halves[:, 0:2], halves[:, 2:4]
    np.testing.assert_array_equal(got[:, 0], x[:, 1] - y[:, 0])
    np.testing.assert_array_equal(got[:, 1], x[:, 0] + y[:, 1])
    np.testing.assert_array_equal(got[:, 2], x[:, 0] * y[:, 0])
    np.testing.assert_array_equal(got[:, 3], -x[:, 1] * y[:, 1])


@pytest.mark.parametrize("target", TARGETS)
def test_output_modifiers_and_clamped_integers(target: str) -> None:
    values = np.zeros((64, 4), "f4")
    values[:, 0] = np.linspace(-3, 3, 64)
    got = run(target, " v_add_f32 v12, v4, 1.0 mul:2\n v_add_f32 v13, |v4|, -v4 clamp", values).view("f4")
    np.testing.assert_array_equal(got[:, 0], (values[:, 0] + np.float32(1)) * 2)
    np.testing.assert_array_equal(got[:, 1], np.clip(np.abs(values[:, 0]) - values[:, 0], 0, 1))
    words = np.random.default_rng(5).integers(0, 1 << 32, (64, 4)).astype("u4")
    names = ("v_add_u32", "v_sub_u32") if target == "gfx90a" else ("v_add_nc_u32", "v_sub_nc_u32")
    got = run(target, f" {names[0]} v12, v4, v5 clamp\n {names[1]} v13, v4, v5 clamp", words)
    x, y = words[:, 0].astype("i8"), words[:, 1].astype("i8")
    assert got[:, 0].tolist() == np.minimum(x + y, 0xFFFFFFFF).tolist()
    assert got[:, 1].tolist() == np.maximum(x - y, 0).tolist()


DIVISION = {
    "f32": """ v_div_scale_f32 v8, vcc, v5, v5, v4
 v_div_scale_f32 v9, vcc, v4, v5, v4
 v_rcp_f32 v10, v8
 v_fma_f32 v11, -v8, v10, 1.0
 v_fma_f32 v10, v11, v10, v10
 v_mul_f32 v11, v9, v10
 v_fma_f32 v14, -v8, v11, v9
 v_fma_f32 v11, v14, v10, v11
 v_fma_f32 v14, -v8, v11, v9
 v_div_fmas_f32 v12, v14, v10, v11
 v_div_fixup_f32 v12, v12, v5, v4""",
    "f64": """ v_div_scale_f64 v[8:9], vcc, v[6:7], v[6:7], v[4:5]
 v_div_scale_f64 v[16:17], vcc, v[4:5], v[6:7], v[4:5]
 v_rcp_f64 v[10:11], v[8:9]
 v_fma_f64 v[14:15], -v[8:9], v[10:11], 1.0
 v_fma_f64 v[10:11], v[10:11], v[14:15], v[10:11]
 v_fma_f64 v[14:15], -v[8:9], v[10:11], 1.0
 v_fma_f64 v[10:11], v[10:11], v[14:15], v[10:11]
 v_mul_f64 v[14:15], v[16:17], v[10:11]
 v_fma_f64 v[18:19], -v[8:9], v[14:15], v[16:17]
 v_div_fmas_f64 v[12:13], v[18:19], v[10:11], v[14:15]
 v_div_fixup_f64 v[12:13], v[12:13], v[6:7], v[4:5]""",
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_the_division_sequence_is_exact_over_the_whole_range(target: str, kind: str) -> None:
    """LLVM's expansion of an IEEE division, whose scaling the manual's printed pseudo-code gets wrong."""
    dtype = np.dtype(kind.replace("f32", "f4").replace("f64", "f8"))
    reach = 140 if kind == "f32" else 1060
    choose = np.random.default_rng(6)
    with np.errstate(all="ignore"):
        x, y = (
            np.ldexp(choose.uniform(1, 2, 64), choose.integers(-reach, reach - 20, 64)).astype(dtype)
            for _ in range(2)
        )
        x[:6], y[:6] = [0, 1, np.inf, np.nan, 3, -1], [3, 0, np.inf, 1, np.inf, 0]
        expected = x / y
    sources = np.zeros((64, 16 // dtype.itemsize), dtype)
    sources[:, 0], sources[:, 1] = x, y
    text = DIVISION[kind] if target == "gfx90a" else DIVISION[kind].replace("vcc", "vcc_lo")
    got = run(target, text, sources).view(dtype).reshape(64, -1)[:, 0]
    np.testing.assert_array_equal(got, expected)
