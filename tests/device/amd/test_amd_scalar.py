"""Scalar instructions of the table against Python's integers."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from zluda.device.amd.emulator.device import EmulatedDevice
from zluda.isolate.opinion.assembly import Kernel, code_object

M32, M64 = (1 << 32) - 1, (1 << 64) - 1
VALUES = [0, 1, 2, 31, 33, 0x7FFFFFFF, 0x80000000, M32, 0x00050003, 0x1234_5678_9ABC_DEF0, M64, 1 << 63]
PAIRS = [(x, y) for x in VALUES for y in (0, 1, 5, 0x80000001, M32, 0x00070004, 0x8000_0000_0000_0000)]


def _signed(x: int, bits: int = 32) -> int:
    x &= (1 << bits) - 1
    return x - (1 << bits) if x >> bits - 1 else x


def _first(x: int) -> int:
    return (x & -x).bit_length() - 1 if x else -1


def _bfe(x: int, y: int, bits: int, signed: bool) -> int:
    offset, width = y & bits - 1, min(y >> 16 & 127, bits)
    field = (_signed(x, bits) if signed else x) >> offset & (1 << width) - 1
    return field - (1 << width) if signed and width and field >> width - 1 else field


def _overflows(x: int) -> bool:
    return not -(1 << 31) <= x < 1 << 31


Reference = Callable[[int, int, int], tuple[int, bool | None]]
# name → (operand width, result width, function of (S0, S1, SCC) giving the result and the new SCC)
REFERENCE: dict[str, tuple[int, int, Reference]] = {
    "s_add_u32": (32, 32, lambda x, y, c: (x + y, x + y > M32)),
    "s_sub_u32": (32, 32, lambda x, y, c: (x - y, x < y)),
    "s_addc_u32": (32, 32, lambda x, y, c: (x + y + c, x + y + c > M32)),
    "s_subb_u32": (32, 32, lambda x, y, c: (x - y - c, x < y + c)),
    "s_add_i32": (32, 32, lambda x, y, c: (x + y, _overflows(_signed(x) + _signed(y)))),
    "s_sub_i32": (32, 32, lambda x, y, c: (x - y, _overflows(_signed(x) - _signed(y)))),
    "s_min_i32": (32, 32, lambda x, y, c: (min(_signed(x), _signed(y)), _signed(x) < _signed(y))),
    "s_max_i32": (32, 32, lambda x, y, c: (max(_signed(x), _signed(y)), _signed(x) >= _signed(y))),
    "s_min_u32": (32, 32, lambda x, y, c: (min(x, y), x < y)),
    "s_max_u32": (32, 32, lambda x, y, c: (max(x, y), x >= y)),
    "s_cselect_b32": (32, 32, lambda x, y, c: (x if c else y, None)),
    "s_cselect_b64": (64, 64, lambda x, y, c: (x if c else y, None)),
    "s_lshl_b32": (32, 32, lambda x, y, c: (x << (y & 31), (x << (y & 31)) & M32 != 0)),
    "s_lshr_b32": (32, 32, lambda x, y, c: (x >> (y & 31), x >> (y & 31) != 0)),
    "s_ashr_i32": (32, 32, lambda x, y, c: (_signed(x) >> (y & 31), _signed(x) >> (y & 31) != 0)),
    "s_bfm_b32": (32, 32, lambda x, y, c: (((1 << (x & 31)) - 1) << (y & 31), None)),
    "s_mul_i32": (32, 32, lambda x, y, c: (x * y, None)),
    "s_mul_hi_u32": (32, 32, lambda x, y, c: (x * y >> 32, None)),
    "s_mul_hi_i32": (32, 32, lambda x, y, c: (_signed(x) * _signed(y) >> 32, None)),
    "s_bfe_u32": (32, 32, lambda x, y, c: (_bfe(x, y, 32, False), _bfe(x, y, 32, False) != 0)),
    "s_bfe_i32": (32, 32, lambda x, y, c: (_bfe(x, y, 32, True), _bfe(x, y, 32, True) != 0)),
    "s_absdiff_i32": (32, 32, lambda x, y, c: (abs(_signed(x - y)), x != y)),
    "s_lshl2_add_u32": (32, 32, lambda x, y, c: ((x << 2) + y, (x << 2) + y > M32)),
    "s_pack_ll_b32_b16": (32, 32, lambda x, y, c: (x & 0xFFFF | y << 16, None)),
    "s_pack_lh_b32_b16": (32, 32, lambda x, y, c: (x & 0xFFFF | y & 0xFFFF0000, None)),
    "s_pack_hh_b32_b16": (32, 32, lambda x, y, c: (x >> 16 | y & 0xFFFF0000, None)),
}
for _bits, _mask in ((32, M32), (64, M64)):
    for _name, _op in {
        "and": lambda x, y: x & y,
        "or": lambda x, y: x | y,
        "xor": lambda x, y: x ^ y,
        "andn2": lambda x, y: x & ~y,
        "orn2": lambda x, y: x | ~y,
        "nand": lambda x, y: ~(x & y),
        "nor": lambda x, y: ~(x | y),
        "xnor": lambda x, y: ~(x ^ y),
    }.items():
        REFERENCE[f"s_{_name}_b{_bits}"] = (
            _bits,
            _bits,
            lambda x, y, c, f=_op, m=_mask: (f(x, y) & m, f(x, y) & m != 0),
        )
ONE: dict[str, tuple[int, int, Callable[[int], tuple[int, bool | None]]]] = {
    "s_mov_b32": (32, 32, lambda x: (x, None)),
    "s_mov_b64": (64, 64, lambda x: (x, None)),
    "s_not_b32": (32, 32, lambda x: (~x, ~x & M32 != 0)),
    "s_not_b64": (64, 64, lambda x: (~x, ~x & M64 != 0)),
    "s_brev_b32": (32, 32, lambda x: (int(f"{x:032b}"[::-1], 2), None)),
    "s_brev_b64": (64, 64, lambda x: (int(f"{x:064b}"[::-1], 2), None)),
    "s_bcnt0_i32_b32": (32, 32, lambda x: (32 - x.bit_count(), x != M32)),
    "s_bcnt1_i32_b32": (32, 32, lambda x: (x.bit_count(), x != 0)),
    "s_bcnt1_i32_b64": (64, 32, lambda x: (x.bit_count(), x != 0)),
    "s_ff0_i32_b32": (32, 32, lambda x: (_first(~x & M32), None)),
    "s_ff1_i32_b32": (32, 32, lambda x: (_first(x), None)),
    "s_ff1_i32_b64": (64, 32, lambda x: (_first(x), None)),
    "s_flbit_i32_b32": (32, 32, lambda x: (32 - x.bit_length() if x else -1, None)),
    "s_flbit_i32_b64": (64, 32, lambda x: (64 - x.bit_length() if x else -1, None)),
    "s_sext_i32_i8": (32, 32, lambda x: (_signed(x, 8), None)),
    "s_sext_i32_i16": (32, 32, lambda x: (_signed(x, 16), None)),
    "s_abs_i32": (32, 32, lambda x: (abs(_signed(x)), x != 0)),
    "s_bitreplicate_b64_b32": (32, 64, lambda x: (int("".join(b * 2 for b in f"{x:032b}"), 2), None)),
    "s_quadmask_b32": (
        32,
        32,
        lambda x: (sum(bool(x >> 4 * i & 15) << i for i in range(8)), x != 0),
    ),
    "s_wqm_b32": (32, 32, lambda x: (sum(15 * bool(x >> 4 * i & 15) << 4 * i for i in range(8)), x != 0)),
}
COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda x, y: x == y,
    "lg": lambda x, y: x != y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
}
# Each pair of sources comes from memory; D (s[16:17]) and SCC go back to it.
PROGRAM = """k:
 s_load_dwordx4 s[4:7], s[0:1], 0x0
 v_mov_b32 v1, 0
 s_mov_b32 s19, {pairs}
 s_waitcnt lgkmcnt(0)
loop:
 s_load_dwordx4 s[8:11], s[4:5], 0x0
 s_mov_b64 s[16:17], 0
 s_waitcnt lgkmcnt(0)
 s_cmp_eq_u32 s16, 0
 {text}
 s_cselect_b32 s18, 1, 0
 v_mov_b32 v2, s16
 v_mov_b32 v3, s17
 v_mov_b32 v4, s18
 global_store_dwordx3 v1, v[2:4], s[6:7]
 s_add_u32 s4, s4, 16
 s_addc_u32 s5, s5, 0
 s_add_u32 s6, s6, 12
 s_addc_u32 s7, s7, 0
 s_sub_u32 s19, s19, 1
 s_cmp_lg_u32 s19, 0
 s_cbranch_scc1 loop
 s_endpgm
"""


@pytest.fixture(scope="module")
def device() -> Iterator[EmulatedDevice]:
    device = EmulatedDevice("gfx1030", threads=1)
    yield device
    device.close()


def _run(device: EmulatedDevice, text: str) -> np.ndarray:
    """(pairs, 3): the result's halves and SCC, which was 1 before."""
    code = code_object(device.name, PROGRAM.format(pairs=len(PAIRS), text=text), [Kernel("k")])
    source = np.array(PAIRS, np.uint64)
    result = np.zeros((len(PAIRS), 3), np.uint32)
    arguments = struct.pack("<QQ", source.ctypes.data, result.ctypes.data)
    device.launch(device.load_code_object(code).kernel("k"), (1, 1, 1), (1, 1, 1), arguments)
    return result


def _register(first: int, bits: int) -> str:
    return f"s[{first}:{first + 1}]" if bits == 64 else f"s{first}"


def _compare(device: EmulatedDevice, text: str, bits: int, out: int, function: Reference) -> None:
    mask = (1 << bits) - 1
    result = _run(device, text)
    for (x, y), row in zip(PAIRS, result, strict=True):
        value, condition = function(x & mask, y & mask, 1)
        if out:
            got = int(row[0]) | (int(row[1]) << 32 if out == 64 else 0)
            assert got == value & (1 << out) - 1, (hex(x), hex(y))
        assert bool(row[2]) == (True if condition is None else condition), (hex(x), hex(y))


@pytest.mark.parametrize("name", list(REFERENCE))
def test_two_operands(device: EmulatedDevice, name: str) -> None:
    bits, out, function = REFERENCE[name]
    text = f"{name} {_register(16, out)}, {_register(8, bits)}, {_register(10, bits)}"
    _compare(device, text, bits, out, function)


@pytest.mark.parametrize("name", list(ONE))
def test_one_operand(device: EmulatedDevice, name: str) -> None:
    bits, out, function = ONE[name]
    text = f"{name} {_register(16, out)}, {_register(8, bits)}"
    _compare(device, text, bits, out, lambda x, y, c: function(x))


@pytest.mark.parametrize("kind", ["i32", "u32", "u64"])
def test_comparisons(device: EmulatedDevice, kind: str) -> None:
    bits = int(kind[1:])
    for name, function in COMPARISONS.items():
        if bits == 32 or name in ("eq", "lg"):
            text = f"s_cmp_{name}_{kind} {_register(8, bits)}, {_register(10, bits)}"

            def reference(x: int, y: int, c: int, f=function) -> tuple[int, bool]:  # type: ignore[no-untyped-def]
                return 0, f(_signed(x), _signed(y)) if kind == "i32" else f(x, y)

            _compare(device, text, bits, 0, reference)
