"""NVIDIA's approximate units bit for bit, over numpy arrays of bit patterns: the reference to read first.

Functions take and return ``uint32`` arrays: f32 bits, 16-bit values in the low half, or high words of f64.
:data:`FUNCTIONS` has them under their PTX names. Checked on all 2^32 inputs against an H200.

*The datapath.* The top bits of the reduced argument pick a row (C0, C1, C2) of ``tables``; ``d`` is the rest:

    v = (C0 << s0) + C1*d + (C2*sq(d) << s2) + bias,    mantissa = v >> t

in exact integers. The shift truncates; the bias does the rounding. ``sq`` is a truncated squarer. NaN
results are 0x7fffffff whatever the input's payload. Subnormal arguments count as zero in MUFU itself;
forms without ``.ftz`` scale around it, as ptxas does.

Algorithm after envytools' nvhw/sfu.c (see NOTICE); sqrt, tanh, the f64 and 16-bit forms, the range reduction
and the full-range behaviour are not in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zluda.numerics import tables

Bits = NDArray[np.uint32]
Wide = NDArray[np.int64]
Function = Callable[[Bits], Bits]

NAN, INFINITY, MANTISSA = 0x7FFFFFFF, 0x7F800000, 0x7FFFFF


# --- pieces ------------------------------------------------------------------------------------------


def square(x: Wide) -> Wide:
    """The truncated squarer: 17 bits to about ``x*x / 2^19``; partial products below 2^18 are dropped."""
    total = np.zeros_like(x)
    for bit in range(10, 17):
        below = (x & ((1 << bit) - 1)) >> (18 - bit)
        total += ((x >> bit) & 1) * (below + (1 << (2 * bit - 19)))
    return total


def _row(rows: tuple[tables.Row, ...], index: Wide) -> tuple[Wide, Wide, Wide]:
    table = np.array(rows, dtype=np.int64)[index]
    return table[..., 0], table[..., 1], table[..., 2]


def _fields(x: Bits) -> tuple[Wide, Wide, Wide]:
    """Sign bit, exponent field and mantissa of f32 bits."""
    wide = x.astype(np.int64)
    return wide >> 31, (wide >> 23) & 255, wide & MANTISSA


def _select(default: Any, *cases: tuple[Any, Any]) -> Bits:
    """``default`` with special cases put over it, later ones winning."""
    result = default
    for condition, value in cases:
        result = np.where(condition, value, result)
    return np.asarray(result).astype(np.uint32)


def _normalise(v: Wide, scale: int) -> Wide:
    """A non-negative integer below 2^53 in units of ``2^-scale`` as f32 bits, truncated to 24 bits."""
    bits = v.astype(np.float64).view(np.int64)
    exponent = (bits >> 52) - 1023
    return np.where(v == 0, 0, ((exponent + 127 - scale) << 23) | ((bits >> 29) & MANTISSA))


def _fixed(exponent: Wide, mantissa: Wide, extra: int) -> Wide:
    """``trunc(|x| * 2^(23 + extra))``, correct in its low 31 bits."""
    shift = exponent - 127 + extra
    hidden = mantissa | 0x800000
    left, right = hidden << np.clip(shift, 0, 31), hidden >> np.clip(-shift, 0, 31)
    return np.where((exponent == 0) | (shift >= 32), 0, np.where(shift >= 0, left, right))


def _float(x: Bits) -> NDArray[np.float32]:
    return np.asarray(x, dtype=np.uint32).view(np.float32)


def _bits(x: NDArray[np.float32]) -> Bits:
    """Bits of an f32 result, with NVIDIA's one NaN."""
    bits = x.view(np.uint32)
    return np.where(np.isnan(x), np.uint32(NAN), bits)


def _multiply(x: Bits, factor: Any) -> Bits:
    with np.errstate(all="ignore"):
        return _bits(_float(x) * np.asarray(factor, dtype=np.float32))


# --- MUFU --------------------------------------------------------------------------------------------


def _rcp_core(fraction: Wide) -> Wide:
    c0, c1, c2 = _row(tables.RCP, fraction >> 16)
    d = fraction & 0xFFFF
    return (c0 << 13) + c1 * d + c2 * square(d << 1) + 0x47E7


def _rsqrt_core(argument: Wide) -> Wide:
    c0, c1, c2 = _row(tables.RSQRT, argument >> 17)
    d = argument & 0x1FFFF
    return (c0 << 14) + c1 * d + (c2 * square(d) << 2) + 0x7FFF


def rcp(x: Bits) -> Bits:
    """MUFU.RCP: no subnormal results."""
    sign, e, f = _fields(x)
    sign = sign << 31
    mantissa = _rcp_core(f) >> 15
    carry = mantissa >> 24
    exponent = 253 - e + carry
    result = sign | (exponent << 23) | ((mantissa >> carry) & MANTISSA)
    special = np.where(f != 0, NAN, sign)
    return _select(result, (exponent <= 0, sign), (e == 0, sign | INFINITY), (e == 255, special))


def rsqrt(x: Bits) -> Bits:
    """MUFU.RSQ: even powers of two are exact; zeros of either sign give infinity of that sign."""
    sign, e, f = _fields(x)
    q = e - 127
    argument = f | ((q & 1) << 23)
    exponent = 126 - (q >> 1)
    mantissa = _rsqrt_core(argument) >> 16
    carry = mantissa >> 24
    result = ((exponent + carry) << 23) | ((mantissa >> carry) & MANTISSA)
    return _select(
        result,
        (argument == 0, (exponent + 1) << 23),
        (e == 255, 0),
        (sign == 1, NAN),
        (e == 0, (sign << 31) | INFINITY),
        ((e == 255) & (f != 0), NAN),
    )


def sqrt(x: Bits) -> Bits:
    """MUFU.SQRT: C1*d is doubled in the rows of odd exponents."""
    sign, e, f = _fields(x)
    q = e - 127
    argument = f | ((q & 1) << 23)
    c0, c1, c2 = _row(tables.SQRT, argument >> 17)
    d = argument & 0x1FFFF
    v = (c0 << 15) + (c1 * d << (argument >> 23)) + (c2 * square(d) << 1) + 0xFFFF
    result = ((127 + (q >> 1)) << 23) | ((v >> 17) & MANTISSA)
    special = ((e == 255) & (f != 0), NAN)
    return _select(result, (e == 255, INFINITY), (sign == 1, NAN), (e == 0, sign << 31), special)


def ex2(x: Bits) -> Bits:
    """MUFU.EX2: a negative argument's fraction is a one's complement; no subnormal results."""
    sign, e, f = _fields(x)
    v = np.where(e >= 134, 0, _fixed(e, f, 0))
    integral, fraction = v >> 23, v & MANTISSA
    complement = (sign == 1) & (fraction != 0)
    integral = np.where(sign == 1, -integral - complement, integral)
    fraction = np.where(complement, fraction ^ MANTISSA, fraction)
    c0, c1, c2 = _row(tables.EX2, fraction >> 17)
    d = fraction & 0x1FFFF
    mantissa = ((c0 << 13) + c1 * d + c2 * square(d) + 0x77E2) >> 15
    exponent = integral + 127
    result = (exponent << 23) | (mantissa & MANTISSA)
    overflow = (e >= 134, (1 - sign) * INFINITY)
    special = ((e == 255) & (f != 0), NAN)
    return _select(result, (exponent <= 0, 0), (exponent >= 255, INFINITY), overflow, special)


def lg2(x: Bits) -> Bits:
    """MUFU.LG2: the table gives log2(1.f) in units of 2^-36; a negative sum is a one's complement."""
    sign, e, f = _fields(x)
    c0, c1, c2 = _row(tables.LG2, f >> 17)
    d = f & 0x1FFFF
    total = ((c0 << 12) + c1 * d + (c2 * square(d) << 1) + 0x3345) >> 2
    total = np.where(x == 0x3F800000, 0, total + ((e - 127) << 36))
    negative = total < 0
    size = np.where(negative, ~total, total)
    result = ((negative & (size > 0)).astype(np.int64) << 31) | _normalise(size, 36)
    special = ((e == 255) & (f != 0), NAN)
    return _select(result, (e == 255, INFINITY), (sign == 1, NAN), (e == 0, 0xFF800000), special)


def _sine(y: Bits, quadrant_offset: int) -> Bits:
    sign, e, f = _fields(y)
    fixed = _fixed(e, f, 2) & 0x1FFFFFF
    quadrant = (fixed >> 23) + quadrant_offset
    sign = sign * (1 - quadrant_offset)
    fraction = np.where(quadrant & 1, (fixed & MANTISSA) ^ MANTISSA, fixed & MANTISSA)
    c0, c1, c2 = _row(tables.SIN, fraction >> 17)
    d = fraction & 0x1FFFF
    v = np.maximum((c0 << 11) + c1 * d + c2 * square(d), 0)
    return _select(((sign ^ ((quadrant >> 1) & 1)) << 31) | _normalise(v, 37), (e == 255, NAN))


def sin_turns(y: Bits) -> Bits:
    """MUFU.SIN: the argument in turns, to 2^-25 of one."""
    return _sine(y, 0)


def cos_turns(y: Bits) -> Bits:
    """MUFU.COS: the sine a quadrant on, the argument's sign dropped."""
    return _sine(y, 1)


def tanh(x: Bits) -> Bits:
    """MUFU.TANH: eleven binades from 2^-8 on, each cut into 2^log segments."""
    sign, e, f = _fields(x)
    first, log = np.array(tables.TANH_SEGMENTS, dtype=np.int64)[np.clip(e - 119, 0, 10)].T
    c0, c1, c2 = _row(tables.TANH, first + (f >> (23 - log)))
    d = (f >> (6 - log)) & 0x1FFFF
    result = (sign << 31) | _normalise((c0 << 16) + c1 * d + c2 * square(d), 42)
    special = ((e == 255) & (f != 0), NAN)
    return _select(result, (e < 119, x), (e >= 130, (sign << 31) | 0x3F800000), special)


def rcp64h(x: Bits) -> Bits:
    """MUFU.RCP64H: high word of an f64 in and out; the low word is not read."""
    wide = x.astype(np.int64)
    sign, e, f = wide >> 31 << 31, (wide >> 20) & 2047, wide & 0xFFFFF
    mantissa = _rcp_core(f << 3) >> 18
    carry = mantissa >> 21
    exponent = 2045 - e + carry
    result = sign | (exponent << 20) | ((mantissa >> carry) & 0xFFFFF)
    special = np.where(f != 0, NAN, sign)
    return _select(result, (exponent <= 0, sign), (e == 0, sign | 0x7FF00000), (e == 2047, special))


def rsqrt64h(x: Bits) -> Bits:
    """MUFU.RSQ64H: high word of an f64 in and out; the low word is not read."""
    wide = x.astype(np.int64)
    sign, e, f = wide >> 31, (wide >> 20) & 2047, wide & 0xFFFFF
    q = e - 1023
    argument = (f << 3) | ((q & 1) << 23)
    exponent = 1022 - (q >> 1)
    mantissa = _rsqrt_core(argument) >> 19
    carry = mantissa >> 21
    result = ((exponent + carry) << 20) | ((mantissa >> carry) & 0xFFFFF)
    return _select(
        result,
        (argument == 0, (exponent + 1) << 20),
        (e == 2047, 0),
        (sign == 1, NAN),
        (e == 0, (sign << 31) | 0x7FF00000),
        ((e == 2047) & (f != 0), NAN),
    )


# --- as PTX has them ---------------------------------------------------------------------------------


def _is_subnormal(x: Bits) -> NDArray[np.bool_]:
    return np.asarray((x & NAN) < 0x00800000)


def _scaled(unit: Function, after: Function) -> Function:
    """``unit`` with subnormal arguments brought up by 2^24, and ``after`` to undo that."""

    def function(x: Bits) -> Bits:
        small = _is_subnormal(x)
        result = unit(np.where(small, _multiply(x, 2.0**24), x))
        return np.where(small, after(result), result)

    return function


def _add(x: Bits, addend: float) -> Bits:
    with np.errstate(all="ignore"):
        return _bits(_float(x) + np.float32(addend))


def rcp_full(x: Bits) -> Bits:
    """``rcp.approx.f32``: arguments near either end of the range scaled, the result likewise."""
    size = x & NAN
    large = (size > 0x7E800000) & (size <= INFINITY)
    scale = np.where(_is_subnormal(x), 2.0**24, np.where(large, 0.25, 1.0))
    return _multiply(rcp(_multiply(x, scale)), scale)


def ex2_full(x: Bits) -> Bits:
    """``ex2.approx.f32``: below -126 the square of half the argument's power."""
    small = (x > 0xC2FC0000) & (x <= 0xFF800000)
    result = ex2(np.where(small, _multiply(x, 0.5), x))
    return np.where(small, _multiply(result, _float(result)), result)


def turns(x: Bits) -> Bits:
    """FMUL.RZ by 0x3e22f983, about 1/(2 pi), subnormals kept: ptxas puts it before MUFU.SIN and COS."""
    sign, e, f = _fields(x)
    sign = sign << 31
    product = (f | 0x800000) * 0xA2F983
    carry = product >> 47
    exponent = e - 3 + carry
    mantissa = product >> (23 + carry)
    small = sign | (mantissa >> np.clip(1 - exponent, 0, 31))
    result = np.where(exponent <= 0, small, sign | (exponent << 23) | (mantissa & MANTISSA))
    subnormal = sign | ((f * 0xA2F983) >> 26)
    return _select(result, (e == 0, subnormal), (e == 255, np.where(f != 0, NAN, x)))


def _from_half(h: Bits) -> Bits:
    half = np.asarray(h, dtype=np.uint32).astype(np.uint16).view(np.float16)
    return half.astype(np.float32).view(np.uint32)


def _to_half(x: Bits) -> Bits:
    """f32 truncated to f16; values of 2^16 and more become infinite."""
    sign, e, f = _fields(x)
    exponent = e - 112
    normal, subnormal = (exponent << 10) | (f >> 13), (f | 0x800000) >> np.clip(14 - exponent, 0, 40)
    size = np.where(exponent > 0, normal, subnormal)
    size = np.where(e == 0, 0, np.where(exponent >= 31, 0x7C00, size))
    return _select((sign << 15) | size, ((e == 255) & (f != 0), 0x7FFF))


def _to_bfloat(x: Bits) -> Bits:
    return _select(x >> 16, ((x & NAN) > INFINITY, 0x7FFF))


def _half(unit: Function) -> Function:
    return lambda h: _to_half(unit(_from_half(h)))


def _bfloat(unit: Function) -> Function:
    return lambda h: _to_bfloat(unit(np.left_shift(h & 0xFFFF, 16, dtype=np.uint32)))


FUNCTIONS: dict[str, Function] = {
    "rcp.approx.ftz.f32": rcp,
    "rcp.approx.f32": rcp_full,
    "rsqrt.approx.ftz.f32": rsqrt,
    "rsqrt.approx.f32": _scaled(rsqrt, lambda r: _multiply(r, 2.0**12)),
    "sqrt.approx.ftz.f32": sqrt,
    "sqrt.approx.f32": _scaled(sqrt, lambda r: _multiply(r, 2.0**-12)),
    "ex2.approx.ftz.f32": ex2,
    "ex2.approx.f32": ex2_full,
    "lg2.approx.ftz.f32": lg2,
    "lg2.approx.f32": _scaled(lg2, lambda r: _add(r, -24.0)),
    "sin.approx.ftz.f32": lambda x: sin_turns(turns(x)),
    "sin.approx.f32": lambda x: sin_turns(turns(x)),
    "cos.approx.ftz.f32": lambda x: cos_turns(turns(x)),
    "cos.approx.f32": lambda x: cos_turns(turns(x)),
    "tanh.approx.f32": tanh,
    "raw.sin": sin_turns,
    "raw.cos": cos_turns,
    "rcp.approx.ftz.f64": rcp64h,
    "rsqrt.approx.ftz.f64": rsqrt64h,
    "ex2.approx.f16": _half(ex2),
    "tanh.approx.f16": _half(tanh),
    "ex2.approx.ftz.bf16": _bfloat(ex2),
    "tanh.approx.bf16": _bfloat(tanh),
}
"""Every function by its PTX name; ``raw.sin`` and ``raw.cos`` are MUFU's own, the argument in turns."""
