"""What AMD's vector instructions compute, in numpy and Python's integers: independent of the emulator.

``REFERENCE`` maps a mnemonic to a function of :class:`Inputs`; it returns the destination, and for
instructions with a mask result a pair (destination or None, condition a lane).
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_FLOATS = {16: np.float16, 32: np.float32, 64: np.float64}


class Inputs:
    """The sources of one instruction, 64 bits a lane; ``x.f32(0)`` is source 0 as f32. Source 3 is old D."""

    def __init__(self, raw: Array, carry: Array, lanes: int) -> None:
        self.raw, self.carry, self.lanes = raw, carry, lanes  # raw: (4, n) uint64

    def _low(self, i: int, bits: int) -> Array:
        return (self.raw[i] & np.uint64((1 << bits) - 1)).astype(f"u{bits // 8}")

    def __getattr__(self, name: str) -> Callable[[int], Array]:
        bits = int(name[1:])
        kind = {"u": f"u{bits // 8}", "i": f"i{bits // 8}", "f": f"f{bits // 8}"}[name[0]]
        return lambda i: self._low(i, bits).view(kind)

    def half(self, i: int, high: int, kind: str) -> Array:
        return (self.u32(i) >> (16 * high) & 0xFFFF).astype("u2").view(kind)

    @property
    def lane(self) -> Array:
        return np.arange(self.raw.shape[1]) % self.lanes


Reference = Callable[[Inputs], Any]
REFERENCE: dict[str, Reference] = {}


def rounded(value: Fraction, kind: type) -> Any:
    """The nearest number of a float type, ties to even."""
    return kind(float(value)) if kind is np.float64 else _round_short(value, kind)


def _round_short(value: Fraction, kind: type) -> Any:
    """f32 or f16: the double nearest is right unless it lies on a tie that the value does not."""
    wide = float(value)
    short = kind(wide)
    if Fraction(wide) != value and np.isfinite(short):
        other = np.nextafter(short, kind(np.inf if value > Fraction(float(short)) else -np.inf))
        if np.isfinite(other):
            here, there = abs(Fraction(float(short)) - value), abs(Fraction(float(other)) - value)
            return other if there < here else short
    return short


def fma(x: Array, y: Array, z: Array) -> Array:
    """Fused multiply-add, exactly."""
    kind = x.dtype.type
    with np.errstate(all="ignore"):
        result = (x.astype(np.float64) * y + z).astype(kind)
    for i, (a, b, c) in enumerate(zip(x, y, z, strict=True)):
        if np.isfinite(a) and np.isfinite(b) and np.isfinite(c):
            exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
            if exact:
                try:
                    result[i] = rounded(exact, kind)
                except OverflowError:
                    result[i] = np.inf if exact > 0 else -np.inf
    return result


def _flush(x: Array) -> Array:
    return np.where(np.abs(x) < np.finfo(x.dtype).tiny, np.copysign(x.dtype.type(0), x), x).astype(x.dtype)


def _minimum(x: Array, y: Array) -> Array:
    result = np.fmin(x, y)
    zero = (x == 0) & (y == 0)
    return np.where(
        zero, np.where(np.signbit(x) | np.signbit(y), x.dtype.type(-0.0), x.dtype.type(0.0)), result
    )


def _maximum(x: Array, y: Array) -> Array:
    return -_minimum(-x, -y)


def _median(x: Array, y: Array, z: Array) -> Array:
    if x.dtype.kind != "f":
        return np.maximum(np.minimum(x, y), np.minimum(np.maximum(x, y), z))
    most = _maximum(_maximum(x, y), z)
    middle = np.where(most == x, _maximum(y, z), np.where(most == y, _maximum(x, z), _maximum(x, y)))
    return np.where(np.isnan(x) | np.isnan(y) | np.isnan(z), _minimum(_minimum(x, y), z), middle)


def _to_int(x: Array, kind: str) -> Array:
    info = np.iinfo(kind)
    values = [0 if np.isnan(v) else min(max(float(v), float(info.min) - 1), float(info.max) + 1) for v in x]
    return np.array([min(max(int(v), info.min), info.max) for v in values], dtype=kind)


def _clamped(x: Array, kind: str) -> Array:
    info = np.iinfo(kind)
    return np.clip(x.astype(np.int64), info.min, info.max).astype(kind)


def _packed(low: Array, high: Array) -> Array:
    return low.view("u2").astype("u4") | high.view("u2").astype("u4") << 16


def _half_toward_zero(x: Array) -> Array:
    near = x.astype(np.float16)
    with np.errstate(all="ignore"):
        over = np.isfinite(x) & (np.abs(near.astype(np.float64)) > np.abs(x))
    return np.where(over, np.nextafter(near, np.float16(0)), near).astype(np.float16)


def _bytes(x: Array) -> list[Array]:
    return [x >> 8 * i & 0xFF for i in range(4)]


def _sad(x: Array, y: Array, z: Array, masked: bool = False) -> Array:
    total = z.astype(np.int64)
    for p, q in zip(_bytes(x), _bytes(y), strict=True):
        difference = np.abs(p.astype(np.int64) - q.astype(np.int64))
        total = total + np.where((q == 0) & masked, 0, difference)
    return total.astype("u4")


def _quad_sad(x: Inputs, masked: bool) -> Array:
    result = np.zeros(x.raw.shape[1], "u8")
    for i in range(4):
        window = (x.u64(0) >> np.uint64(8 * i)).astype("u4")
        field = (x.u64(2) >> np.uint64(16 * i)).astype("u4") & 0xFFFF
        part = (_sad(window, x.u32(1), field, masked) & 0xFFFF).astype("u8")
        result |= part << np.uint64(16 * i)
    return result


def _perm(x: Inputs) -> Array:
    data = x.u32(0).astype("u8") << np.uint64(32) | x.u32(1)
    out = []
    for d, s in zip(data, x.u32(2), strict=True):
        source, value = [int(d) >> 8 * i & 0xFF for i in range(8)], 0
        for i in range(4):
            k = int(s) >> 8 * i & 0xFF
            if k >= 13:
                byte = 0xFF
            elif k == 12:
                byte = 0
            elif k >= 8:
                byte = 0xFF if source[2 * (k - 8) + 1] & 0x80 else 0
            else:
                byte = source[k]
            value |= byte << 8 * i
        out.append(value)
    return np.array(out, "u4")


def _count(function: Callable[[int], int]) -> Reference:
    return lambda x: np.array([function(int(v)) for v in x.u32(0)], "i4")


def _bfe(x: Inputs, signed: bool) -> Array:
    out = []
    for value, offset, width in zip(x.u32(0), x.u32(1) & 31, x.u32(2) & 31, strict=True):
        w = int(width)
        field = int(value) >> int(offset) & (1 << w) - 1
        if signed and int(offset) + w > 32:  # the shift is arithmetic
            field = (int(np.int32(value)) >> int(offset)) & (1 << w) - 1
        if signed and w and field >> w - 1:
            field -= 1 << w
        out.append(field & 0xFFFFFFFF)
    return np.array(out, "u4")


def _frexp(kind: str, part: int) -> Reference:
    def run(x: Inputs) -> Array:
        value = getattr(x, kind)(0)
        mantissa, exponent = np.frexp(value)
        special = (value == 0) | ~np.isfinite(value)
        if part:
            return np.where(special, 0, exponent).astype("i2" if kind == "f16" else "i4")
        return np.where(special, value, mantissa).astype(value.dtype)

    return run


def _fract(value: Array) -> Array:
    below = np.nextafter(value.dtype.type(1), value.dtype.type(0))
    with np.errstate(all="ignore"):
        return np.minimum(value - np.floor(value), below).astype(value.dtype)


def _ldexp(x: Array, n: Array) -> Array:
    out = []
    kind = x.dtype.type
    for value, power in zip(x, n, strict=True):
        if np.isfinite(value) and value != 0:
            scaled = Fraction(float(value)) * Fraction(2) ** max(min(int(power), 4000), -4000)
            try:
                out.append(rounded(scaled, kind))
            except OverflowError:
                out.append(np.copysign(kind(np.inf), value))
        else:
            out.append(value)
    return np.array(out, x.dtype)


def _unit(function: Callable[[Array], Array], kind: str) -> Reference:
    """An approximate unit: f32 inputs and results below the normal range are flushed."""

    def run(x: Inputs) -> Array:
        value = getattr(x, kind)(0)
        value = _flush(value) if kind == "f32" else value
        with np.errstate(all="ignore"):
            result = function(value.astype(np.float64)).astype(value.dtype)
        return _flush(result) if kind == "f32" else result

    return run


def _turns(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    def run(x: Array) -> Array:
        turn = x - np.round(x)
        exact = {0.25: 1, 0.5: 2, -0.25: 3, -0.5: 2}  # quarters, where numpy's pi is not exact
        table = {np.sin: [0, 1, 0, -1], np.cos: [1, 0, -1, 0]}[function]
        result = function(2 * np.pi * turn)
        for place, quarter in exact.items():
            value = np.copysign(table[quarter], place) if function is np.sin else float(table[quarter])
            result = np.where(turn == place, value, result)
        return result

    return run


def _class(kind: str) -> Reference:
    def run(x: Inputs) -> tuple[None, Array]:
        value = getattr(x, kind)(0)
        bits = value.view(f"u{value.dtype.itemsize}")
        mantissa = {2: 10, 4: 23, 8: 52}[value.dtype.itemsize]
        quiet = (bits >> np.array(mantissa - 1, bits.dtype) & np.array(1, bits.dtype)).astype(bool)
        negative, tiny = np.signbit(value), np.abs(value) < np.finfo(value.dtype).tiny
        nan, infinite, zero = np.isnan(value), np.isinf(value), value == 0
        subnormal = tiny & ~zero
        normal = ~(nan | infinite | tiny)
        classes = [nan & ~quiet, nan & quiet]
        for sign in (True, False):
            kinds = [infinite, normal, subnormal, zero]
            classes += [k & (negative == sign) for k in (kinds if sign else kinds[::-1])]
        mask = x.u32(1)
        return None, np.any([c & (mask >> i & 1).astype(bool) for i, c in enumerate(classes)], axis=0)

    return run


# --- the table ----------------------------------------------------------------------------------------


def _define(names: str, function: Reference) -> None:
    for name in names.split():
        REFERENCE[f"v_{name}"] = function


_I32: dict[str, Callable[[Inputs], Any]] = {
    "mov_b32 accvgpr_read_b32 accvgpr_write_b32 accvgpr_mov_b32": lambda x: x.u32(0),
    "mov_b16": lambda x: x.u16(0),
    "mov_b64": lambda x: x.u64(0),
    "swap_b32": lambda x: x.u32(0),
    "not_b32": lambda x: ~x.u32(0),
    "not_b16": lambda x: ~x.u16(0),
    "bfrev_b32": lambda x: np.array([int(f"{v:032b}"[::-1], 2) for v in x.u32(0)], "u4"),
    "ffbh_u32 clz_i32_u32": _count(lambda v: 32 - v.bit_length() if v else -1),
    "ffbl_b32 ctz_i32_b32": _count(lambda v: (v & -v).bit_length() - 1),
    "ffbh_i32 cls_i32": _count(
        lambda v: -1 if v in (0, 0xFFFFFFFF) else 32 - (v ^ (0xFFFFFFFF if v >> 31 else 0)).bit_length()
    ),
    "cvt_i32_i16": lambda x: x.i16(0).astype("i4"),
    "cvt_u32_u16": lambda x: x.u16(0).astype("u4"),
    "sat_pk_u8_i16": lambda x: (
        _clamped(x.half(0, 0, "i2"), "u1").astype("u2") | _clamped(x.half(0, 1, "i2"), "u1").astype("u2") << 8
    ),
    "add_nc_u32 add_u32": lambda x: x.u32(0) + x.u32(1),
    "sub_nc_u32 sub_u32": lambda x: x.u32(0) - x.u32(1),
    "subrev_nc_u32 subrev_u32": lambda x: x.u32(1) - x.u32(0),
    "add_nc_i32 add_i32": lambda x: x.u32(0) + x.u32(1),
    "sub_nc_i32 sub_i32": lambda x: x.u32(0) - x.u32(1),
    "add_co_u32": lambda x: (x.u32(0) + x.u32(1), x.u32(0).astype("u8") + x.u32(1) >= 1 << 32),
    "sub_co_u32": lambda x: (x.u32(0) - x.u32(1), x.u32(0) < x.u32(1)),
    "subrev_co_u32": lambda x: (x.u32(1) - x.u32(0), x.u32(1) < x.u32(0)),
    "add_co_ci_u32 addc_co_u32": lambda x: (
        x.u32(0) + x.u32(1) + x.carry,
        x.u32(0).astype("u8") + x.u32(1) + x.carry >= 1 << 32,
    ),
    "sub_co_ci_u32 subb_co_u32": lambda x: (
        x.u32(0) - x.u32(1) - x.carry,
        x.u32(0).astype("i8") - x.u32(1) - x.carry < 0,
    ),
    "subrev_co_ci_u32 subbrev_co_u32": lambda x: (
        x.u32(1) - x.u32(0) - x.carry,
        x.u32(1).astype("i8") - x.u32(0) - x.carry < 0,
    ),
    "mul_i32_i24": lambda x: _i24(x, 0) * _i24(x, 1),
    "mul_hi_i32_i24": lambda x: (_i24(x, 0) * _i24(x, 1)) >> 32,
    "mul_u32_u24": lambda x: _u24(x, 0) * _u24(x, 1),
    "mul_hi_u32_u24": lambda x: (_u24(x, 0) * _u24(x, 1)) >> 32,
    "mad_i32_i24": lambda x: _i24(x, 0) * _i24(x, 1) + x.i32(2),
    "mad_u32_u24": lambda x: _u24(x, 0) * _u24(x, 1) + x.u32(2),
    "mad_u32_u16": lambda x: x.u16(0).astype("i8") * x.u16(1) + x.u32(2),
    "mad_i32_i16": lambda x: x.i16(0).astype("i8") * x.i16(1) + x.i32(2),
    "mad_u64_u32 mad_co_u64_u32": lambda x: _wide_mad(x, signed=False),
    "mad_i64_i32 mad_co_i64_i32": lambda x: _wide_mad(x, signed=True),
    "mul_lo_u32 mul_lo_i32": lambda x: x.u32(0) * x.u32(1),
    "mul_hi_u32": lambda x: x.u32(0).astype("u8") * x.u32(1) >> np.uint64(32),
    "mul_hi_i32": lambda x: x.i32(0).astype("i8") * x.i32(1) >> 32,
    "min_i32": lambda x: np.minimum(x.i32(0), x.i32(1)),
    "max_i32": lambda x: np.maximum(x.i32(0), x.i32(1)),
    "min_u32": lambda x: np.minimum(x.u32(0), x.u32(1)),
    "max_u32": lambda x: np.maximum(x.u32(0), x.u32(1)),
    "lshrrev_b32": lambda x: x.u32(1) >> (x.u32(0) & 31),
    "ashrrev_i32": lambda x: x.i32(1) >> (x.i32(0) & 31),
    "lshlrev_b32": lambda x: x.u32(1) << (x.u32(0) & 31),
    "and_b32": lambda x: x.u32(0) & x.u32(1),
    "or_b32": lambda x: x.u32(0) | x.u32(1),
    "xor_b32": lambda x: x.u32(0) ^ x.u32(1),
    "xnor_b32": lambda x: ~(x.u32(0) ^ x.u32(1)),
    "cndmask_b32": lambda x: np.where(x.carry, x.u32(1), x.u32(0)),
    "cndmask_b16": lambda x: np.where(x.carry, x.u16(1), x.u16(0)),
    "bfe_u32": lambda x: _bfe(x, False),
    "bfe_i32": lambda x: _bfe(x, True),
    "bfi_b32": lambda x: x.u32(0) & x.u32(1) | ~x.u32(0) & x.u32(2),
    "bfm_b32": lambda x: ((np.uint32(1) << (x.u32(0) & 31)) - np.uint32(1)) << (x.u32(1) & 31),
    "alignbit_b32": lambda x: _pair(x) >> (x.u64(2) & np.uint64(31)),
    "alignbyte_b32": lambda x: _pair(x) >> (x.u64(2) & np.uint64(3)) * np.uint64(8),
    "perm_b32": _perm,
    "add3_u32": lambda x: x.u32(0) + x.u32(1) + x.u32(2),
    "xad_u32": lambda x: (x.u32(0) ^ x.u32(1)) + x.u32(2),
    "lshl_add_u32": lambda x: (x.u32(0) << (x.u32(1) & 31)) + x.u32(2),
    "add_lshl_u32": lambda x: (x.u32(0) + x.u32(1)) << (x.u32(2) & 31),
    "lshl_or_b32": lambda x: (x.u32(0) << (x.u32(1) & 31)) | x.u32(2),
    "and_or_b32": lambda x: (x.u32(0) & x.u32(1)) | x.u32(2),
    "or3_b32": lambda x: x.u32(0) | x.u32(1) | x.u32(2),
    "xor3_b32": lambda x: x.u32(0) ^ x.u32(1) ^ x.u32(2),
    "sad_u8": lambda x: _sad(x.u32(0), x.u32(1), x.u32(2)),
    "msad_u8": lambda x: _sad(x.u32(0), x.u32(1), x.u32(2), masked=True),
    "sad_hi_u8": lambda x: (_sad(x.u32(0), x.u32(1), x.u32(2) * 0) << 16) + x.u32(2),
    "sad_u16": lambda x: (
        sum(np.abs(x.half(0, h, "u2").astype("i8") - x.half(1, h, "u2")) for h in (0, 1)) + x.u32(2)
    ),
    "sad_u32": lambda x: np.abs(x.u32(0).astype("i8") - x.u32(1)) + x.u32(2),
    "qsad_pk_u16_u8": lambda x: _quad_sad(x, False),
    "mqsad_pk_u16_u8": lambda x: _quad_sad(x, True),
    "lerp_u8": lambda x: sum(
        (a + b + (c & 1)) >> 1 << 8 * i
        for i, (a, b, c) in enumerate(zip(*(_bytes(x.u32(k)) for k in range(3)), strict=True))
    ),
    "bcnt_u32_b32": lambda x: np.array([int(v).bit_count() for v in x.u32(0)], "u4") + x.u32(1),
    "mbcnt_lo_u32_b32": lambda x: _mbcnt(x, 0),
    "mbcnt_hi_u32_b32": lambda x: _mbcnt(x, 32),
    "cvt_pk_u16_u32": lambda x: _packed(_clamped(x.u32(0), "u2"), _clamped(x.u32(1), "u2")),
    "cvt_pk_i16_i32": lambda x: _packed(_clamped(x.i32(0), "i2"), _clamped(x.i32(1), "i2")),
    "lshlrev_b64": lambda x: x.u64(1) << (x.u64(0) & np.uint64(63)),
    "lshrrev_b64": lambda x: x.u64(1) >> (x.u64(0) & np.uint64(63)),
    "ashrrev_i64": lambda x: x.i64(1) >> (x.i64(0) & 63),
    "lshl_add_u64": lambda x: (x.u64(0) << (x.u64(1) & np.uint64(7))) + x.u64(2),
    "add_nc_u16 add_u16": lambda x: x.u16(0) + x.u16(1),
    "sub_nc_u16 sub_u16": lambda x: x.u16(0) - x.u16(1),
    "subrev_u16": lambda x: x.u16(1) - x.u16(0),
    "add_nc_i16 add_i16": lambda x: x.u16(0) + x.u16(1),
    "sub_nc_i16 sub_i16": lambda x: x.u16(0) - x.u16(1),
    "mul_lo_u16": lambda x: x.u16(0) * x.u16(1),
    "mad_u16 mad_legacy_u16": lambda x: x.u16(0) * x.u16(1) + x.u16(2),
    "mad_i16 mad_legacy_i16": lambda x: x.u16(0) * x.u16(1) + x.u16(2),
    "lshlrev_b16": lambda x: x.u16(1) << (x.u16(0) & 15),
    "lshrrev_b16": lambda x: x.u16(1) >> (x.u16(0) & 15),
    "ashrrev_i16": lambda x: x.i16(1) >> (x.i16(0) & 15),
    "and_b16": lambda x: x.u16(0) & x.u16(1),
    "or_b16": lambda x: x.u16(0) | x.u16(1),
    "xor_b16": lambda x: x.u16(0) ^ x.u16(1),
    "dot4_i32_i8 dot4c_i32_i8": lambda x: _dot(x, 8, True),
    "dot4_u32_u8": lambda x: _dot(x, 8, False),
    "dot8_i32_i4 dot8c_i32_i4": lambda x: _dot(x, 4, True),
    "dot8_u32_u4": lambda x: _dot(x, 4, False),
    "dot4_i32_iu8": lambda x: _dot(x, 8, False),
    "dot8_i32_iu4": lambda x: _dot(x, 4, False),
    "dot2_i32_i16": lambda x: (
        sum(x.half(0, h, "i2").astype("i8") * x.half(1, h, "i2") for h in (0, 1)) + x.i32(2)
    ),
    "dot2_u32_u16": lambda x: (
        sum(x.half(0, h, "u2").astype("i8") * x.half(1, h, "u2") for h in (0, 1)) + x.u32(2)
    ),
    "pk_mov_b32": lambda x: x.u32(0).astype("u8") | x.u64(1) >> np.uint64(32) << np.uint64(32),
}


def _i24(x: Inputs, i: int) -> Array:
    return (x.u32(i) << 8).view("i4").astype("i8") >> 8


def _u24(x: Inputs, i: int) -> Array:
    return (x.u32(i) & 0xFFFFFF).astype("i8")


def _pair(x: Inputs) -> Array:
    return x.u32(0).astype("u8") << np.uint64(32) | x.u32(1)


def _mbcnt(x: Inputs, first: int) -> Array:
    below = [((1 << int(lane)) - 1) >> first & 0xFFFFFFFF for lane in x.lane]
    return np.array([(int(v) & m).bit_count() for v, m in zip(x.u32(0), below, strict=True)], "u4") + x.u32(1)


def _wide_mad(x: Inputs, signed: bool) -> tuple[Array, Array]:
    results, carries = [], []
    kind = ("i32", "i64") if signed else ("u32", "u64")
    a, b, c = getattr(x, kind[0])(0), getattr(x, kind[0])(1), getattr(x, kind[1])(2)
    for p, q, r in zip(a, b, c, strict=True):
        total = int(p) * int(q) + int(r)
        results.append(total & (1 << 64) - 1)
        carries.append(bool(total >> 64 & 1))
    return np.array(results, "u8"), np.array(carries)


def _dot(x: Inputs, bits: int, signed: bool) -> Array:
    accumulator = x.u32(2 if REFERENCE_NAME[0].find("c_") < 0 else 3).astype("i8")
    for i in range(32 // bits):
        fields = []
        for k in (0, 1):
            field = (x.u32(k) >> bits * i & (1 << bits) - 1).astype("i8")
            fields.append(np.where(field >> bits - 1, field - (1 << bits), field) if signed else field)
        accumulator = accumulator + fields[0] * fields[1]
    return accumulator


REFERENCE_NAME = [""]  # the instruction being looked up: some names share a function

for _names, _function in _I32.items():
    _define(_names, _function)
for _t in ("i16", "u16", "i32", "u32"):
    _define(
        f"min3_{_t}",
        lambda x, t=_t: np.minimum(np.minimum(*(getattr(x, t)(i) for i in (0, 1))), getattr(x, t)(2)),
    )
    _define(
        f"max3_{_t}",
        lambda x, t=_t: np.maximum(np.maximum(*(getattr(x, t)(i) for i in (0, 1))), getattr(x, t)(2)),
    )
    _define(f"med3_{_t}", lambda x, t=_t: _median(*(getattr(x, t)(i) for i in range(3))))
    _define(f"min_{_t}", lambda x, t=_t: np.minimum(getattr(x, t)(0), getattr(x, t)(1)))
    _define(f"max_{_t}", lambda x, t=_t: np.maximum(getattr(x, t)(0), getattr(x, t)(1)))
    _define(
        f"minmax_{_t}",
        lambda x, t=_t: np.maximum(np.minimum(getattr(x, t)(0), getattr(x, t)(1)), getattr(x, t)(2)),
    )
    _define(
        f"maxmin_{_t}",
        lambda x, t=_t: np.minimum(np.maximum(getattr(x, t)(0), getattr(x, t)(1)), getattr(x, t)(2)),
    )

_ORDERS: dict[str, Callable[[Array, Array], Array]] = {
    "lt": lambda a, b: a < b,
    "eq": lambda a, b: a == b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ne": lambda a, b: a != b,
    "ge": lambda a, b: a >= b,
    "f": lambda a, b: np.zeros(a.shape, bool),
    "t": lambda a, b: np.ones(a.shape, bool),
}
for _t in ("i16", "u16", "i32", "u32", "i64", "u64"):
    for _op, _compare in _ORDERS.items():
        _define(f"cmp_{_op}_{_t}", lambda x, t=_t, f=_compare: (None, f(getattr(x, t)(0), getattr(x, t)(1))))
_FLOAT_ORDERS: dict[str, Callable[[Array, Array], Array]] = {
    "f": _ORDERS["f"],
    "lt": _ORDERS["lt"],
    "eq": _ORDERS["eq"],
    "le": _ORDERS["le"],
    "gt": _ORDERS["gt"],
    "lg": lambda a, b: (a < b) | (a > b),
    "ge": _ORDERS["ge"],
    "o": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    "u": lambda a, b: np.isnan(a) | np.isnan(b),
    "nge": lambda a, b: ~(a >= b),
    "nlg": lambda a, b: ~((a < b) | (a > b)),
    "ngt": lambda a, b: ~(a > b),
    "nle": lambda a, b: ~(a <= b),
    "neq": lambda a, b: ~(a == b),
    "nlt": lambda a, b: ~(a < b),
    "tru": _ORDERS["t"],
    "t": _ORDERS["t"],
}


def _quiet(function: Reference) -> Reference:
    def run(x: Inputs) -> Any:
        with np.errstate(all="ignore"):
            return function(x)

    return run


def _float_table(t: str) -> dict[str, Reference]:
    def s(x: Inputs, i: int) -> Array:
        return getattr(x, t)(i)  # type: ignore[no-any-return]

    integer = "i16" if t == "f16" else "i32"
    return {
        "add": lambda x: s(x, 0) + s(x, 1),
        "sub": lambda x: s(x, 0) - s(x, 1),
        "subrev": lambda x: s(x, 1) - s(x, 0),
        "mul": lambda x: s(x, 0) * s(x, 1),
        "min": lambda x: _minimum(s(x, 0), s(x, 1)),
        "max": lambda x: _maximum(s(x, 0), s(x, 1)),
        "min_num": lambda x: _minimum(s(x, 0), s(x, 1)),
        "max_num": lambda x: _maximum(s(x, 0), s(x, 1)),
        "minimum": lambda x: np.where(
            np.isnan(s(x, 0)) | np.isnan(s(x, 1)), np.nan, _minimum(s(x, 0), s(x, 1))
        ),
        "maximum": lambda x: np.where(
            np.isnan(s(x, 0)) | np.isnan(s(x, 1)), np.nan, _maximum(s(x, 0), s(x, 1))
        ),
        "fma": lambda x: fma(s(x, 0), s(x, 1), s(x, 2)),
        "fma_legacy" if t == "f16" else "fma_": lambda x: fma(s(x, 0), s(x, 1), s(x, 2)),
        "fmac": lambda x: fma(s(x, 0), s(x, 1), s(x, 3)),
        "min3": lambda x: _minimum(_minimum(s(x, 0), s(x, 1)), s(x, 2)),
        "max3": lambda x: _maximum(_maximum(s(x, 0), s(x, 1)), s(x, 2)),
        "med3": lambda x: _median(s(x, 0), s(x, 1), s(x, 2)),
        "minmax": lambda x: _maximum(_minimum(s(x, 0), s(x, 1)), s(x, 2)),
        "maxmin": lambda x: _minimum(_maximum(s(x, 0), s(x, 1)), s(x, 2)),
        "ldexp": lambda x: _ldexp(s(x, 0), getattr(x, integer)(1)),
        "fract": lambda x: _fract(s(x, 0)),
        "trunc": lambda x: np.trunc(s(x, 0)),
        "ceil": lambda x: np.ceil(s(x, 0)),
        "rndne": lambda x: np.rint(s(x, 0)),
        "floor": lambda x: np.floor(s(x, 0)),
        "frexp_mant": _frexp(t, 0),
        "rcp": _unit(lambda v: 1 / v, t),
        "sqrt": _unit(np.sqrt, t),
        "rsq": _unit(lambda v: 1 / np.sqrt(v), t),
    }


for _t in ("f16", "f32", "f64"):
    for _name, _function in _float_table(_t).items():
        _define(f"{_name}_{_t}", _quiet(_function))
    for _op, _compare in _FLOAT_ORDERS.items():
        _define(
            f"cmp_{_op}_{_t}",
            _quiet(lambda x, t=_t, f=_compare: (None, f(getattr(x, t)(0), getattr(x, t)(1)))),
        )
    _define(f"cmp_class_{_t}", _quiet(_class(_t)))
for _t in ("f16", "f32"):
    _define(f"exp_{_t}", _unit(np.exp2, _t))
    _define(f"log_{_t}", _unit(np.log2, _t))
    _define(f"sin_{_t}", _unit(_turns(np.sin), _t))
    _define(f"cos_{_t}", _unit(_turns(np.cos), _t))

_CONVERSIONS: dict[str, Reference] = {
    "rcp_iflag_f32": REFERENCE["v_rcp_f32"],
    "mul_legacy_f32 mul_dx9_zero_f32": lambda x: np.where(
        (x.f32(0) == 0) | (x.f32(1) == 0), np.float32(0), x.f32(0) * x.f32(1)
    ),
    "frexp_exp_i32_f32": _frexp("f32", 1),
    "frexp_exp_i32_f64": _frexp("f64", 1),
    "frexp_exp_i16_f16": _frexp("f16", 1),
    "cvt_f32_i32": lambda x: x.i32(0).astype("f4"),
    "cvt_f32_u32": lambda x: x.u32(0).astype("f4"),
    "cvt_i32_f32": lambda x: _to_int(x.f32(0), "i4"),
    "cvt_u32_f32": lambda x: _to_int(x.f32(0), "u4"),
    "cvt_flr_i32_f32 cvt_floor_i32_f32": lambda x: _to_int(np.floor(x.f32(0)), "i4"),
    "cvt_rpi_i32_f32 cvt_nearest_i32_f32": lambda x: _to_int(np.floor(x.f32(0) + np.float32(0.5)), "i4"),
    "cvt_f64_i32": lambda x: x.i32(0).astype("f8"),
    "cvt_f64_u32": lambda x: x.u32(0).astype("f8"),
    "cvt_i32_f64": lambda x: _to_int(x.f64(0), "i4"),
    "cvt_u32_f64": lambda x: _to_int(x.f64(0), "u4"),
    "cvt_f32_f64": lambda x: x.f64(0).astype("f4"),
    "cvt_f64_f32": lambda x: x.f32(0).astype("f8"),
    "cvt_f16_f32": lambda x: x.f32(0).astype("f2"),
    "cvt_f32_f16": lambda x: x.f16(0).astype("f4"),
    "cvt_f16_u16": lambda x: x.u16(0).astype("f2"),
    "cvt_f16_i16": lambda x: x.i16(0).astype("f2"),
    "cvt_u16_f16": lambda x: _to_int(x.f16(0), "u2"),
    "cvt_i16_f16": lambda x: _to_int(x.f16(0), "i2"),
    "cvt_off_f32_i4": lambda x: (
        ((x.u32(0) & 15).astype("i4") - ((x.u32(0) & 8).astype("i4") << 1)).astype("f4") / 16
    ),
    "cvt_pkrtz_f16_f32 cvt_pk_rtz_f16_f32": lambda x: _packed(
        _half_toward_zero(x.f32(0)), _half_toward_zero(x.f32(1))
    ),
    "cvt_pk_i16_f32": lambda x: _packed(_to_int(x.f32(0), "i2"), _to_int(x.f32(1), "i2")),
    "cvt_pk_u16_f32": lambda x: _packed(_to_int(x.f32(0), "u2"), _to_int(x.f32(1), "u2")),
    "cvt_pk_u8_f32": lambda x: (
        x.u32(2) & ~(np.uint32(255) << (x.u32(1) & 3) * 8)
        | _to_int(x.f32(0), "u1").astype("u4") << (x.u32(1) & 3) * 8
    ),
    "pack_b32_f16": lambda x: _packed(x.f16(0), x.f16(1)),
    "dot2_f32_f16": lambda x: _dot_f16(x, x.f32(2)),
    "dot2c_f32_f16 dot2acc_f32_f16": lambda x: _dot_f16(x, x.f32(3)),
}


def _dot_f16(x: Inputs, start: Array) -> Array:
    total = start
    for half in (0, 1):
        total = fma(x.half(0, half, "f2").astype("f4"), x.half(1, half, "f2").astype("f4"), total)
    return total


for _k in range(4):
    _CONVERSIONS[f"cvt_f32_ubyte{_k}"] = lambda x, k=_k: (x.u32(0) >> 8 * k & 0xFF).astype("f4")
for _names, _function in _CONVERSIONS.items():
    _define(_names, _quiet(_function))
