"""The reference: tensor-core arithmetic over numpy arrays of bit patterns.

An element is its bits in an unsigned array of its width (tf32 32, s4 and u4 the low half of 8, b1 words of
32). A is (…, M, K), B is given by columns, (…, N, K); C and D are (…, M, N).

*A step* computes one element from n products and C. Operands are ``±sig * 2^(exp - mantissa bits)``, a
subnormal with the smallest exponent; every product is exact; all terms, C included, are cut toward zero to a
multiple of ``2^(top - fraction)``, where ``top`` is the largest exponent among the non-zero terms (of a
product: the sum of its operands'), but not below that of C's smallest normal less 7; the sum is exact and
rounded once, toward zero to f32, to nearest even to f16. A zero result is +0.

Scales of blocks belong to the operands: a product is that of two elements and two scales, and its exponent
the sum of all four.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zluda.numerics.tensor_cores.formats import FLOATS, INTEGERS, SCALES, FloatFormat
from zluda.numerics.tensor_cores.operations import Operation

Bits = NDArray[Any]

_FAR = -(1 << 20)  # the exponent of a zero term: below all others
_NAN16, _NAN32 = 0x7FFF, 0x7FFFFFFF


class Numbers(NamedTuple):
    """``±significand * 2^(exponent - mantissa bits)``; ``kind`` 0 finite, 1 infinite, 2 NaN."""

    significand: Bits
    exponent: Bits
    negative: Bits
    kind: Bits

    @property
    def zero(self) -> Bits:
        """Finite, and nothing."""
        return np.asarray((self.kind == 0) & (self.significand == 0))


def decode(name: str, bits: Bits) -> Numbers:
    """Elements of a floating format taken apart; subnormals are not normalised."""
    return _decode(FLOATS[name], bits)


def _decode(f: FloatFormat, bits: Bits) -> Numbers:
    x = np.asarray(bits).astype(np.int64) >> f.unread
    field, fraction = (x >> f.mantissa) & ((1 << f.exponent) - 1), x & ((1 << f.mantissa) - 1)
    last, full = (1 << f.exponent) - 1, (1 << f.mantissa) - 1
    if f.infinity:
        kind = np.where(field == last, np.where(fraction != 0, 2, 1), 0)
    else:
        kind = np.where((field == last) & (fraction == full) & f.nan, 2, 0)
    significand = np.where(field > 0, fraction | (1 << f.mantissa), fraction)
    return Numbers(
        significand, np.maximum(field, 1) - f.bias, (x >> (f.exponent + f.mantissa)) & 1 == 1, kind
    )


def scaled(x: Numbers, scale: str, bits: Bits) -> Numbers:
    """Numbers times their scales, whose codes ``bits`` are; a NaN for a scale makes NaN of anything."""
    f = SCALES[scale]
    code = np.asarray(bits).astype(np.int64)
    if not f.mantissa:  # a power of two
        significand, exponent, nan = np.ones_like(code), code - f.bias, code == 0xFF
    else:
        s = _decode(f, code & 0x7F)
        significand, exponent, nan = s.significand, s.exponent, s.kind == 2
    return Numbers(x.significand * significand, x.exponent + exponent, x.negative, np.where(nan, 2, x.kind))


def _shifted(x: Bits, places: Bits) -> Bits:
    """``x * 2^places`` toward zero, for x >= 0."""
    moved = np.where(places >= 0, x << np.clip(places, 0, 62), x >> np.clip(-places, 0, 62))
    return np.asarray(moved)


def _log2(x: Bits) -> Bits:
    return np.asarray(np.frexp(x.astype(np.float64))[1].astype(np.int64) - 1)  # exact below 2^53


def to_f32(negative: Bits, size: Bits, unit: Bits, fraction_bits: int = 23) -> Bits:
    """``±size * 2^unit`` toward zero; 2^128 and more is infinite."""
    exponent = unit + _log2(np.maximum(size, 1))
    kept = _shifted(size, unit + fraction_bits - np.maximum(exponent, -126))
    padding = 23 - fraction_bits
    normal = ((exponent + 127) << 23) | ((kept << padding) & 0x7FFFFF)
    found = np.where(exponent < -126, kept << padding, normal)
    found = np.where(exponent > 127, 0x7F800000, found) | np.where(negative, 0x80000000, 0)
    nothing = (size == 0) | ((kept == 0) & (exponent <= 127))
    return np.where(nothing, 0, found).astype(np.uint32)


def to_f16(negative: Bits, size: Bits, unit: Bits) -> Bits:
    """``±size * 2^unit`` to nearest, ties to even."""
    exponent = unit + _log2(np.maximum(size, 1))
    dropped = np.clip(np.maximum(exponent, -14) - 10 - unit, -62, 62)
    kept, rest = _shifted(size, -dropped), size & ((1 << np.maximum(dropped, 0)) - 1)
    half = 1 << np.maximum(dropped - 1, 0)
    kept = kept + ((dropped > 0) & ((rest > half) | ((rest == half) & (kept & 1 == 1))))
    found = kept + np.where(exponent >= -14, (exponent + 14) << 10, 0)  # kept carries the hidden bit
    found = np.where(exponent > 15, 0x7C00, found) | np.where(negative, 0x8000, 0)
    nothing = (size == 0) | ((kept == 0) & (exponent <= 15))
    return np.asarray(np.where(nothing, 0, found).astype(np.uint16))


class Scales(NamedTuple):
    """Codes of the scales of A's rows, (…, M, chunks), and of B's columns, (…, N, chunks)."""

    a: Bits
    b: Bits


def step(
    op: Operation,
    d: str,
    a: Bits,
    b: Bits,
    c: Bits,
    *,
    types: tuple[str, str, str],
    scales: Scales | None = None,
) -> Bits:
    """One step over all of the given K, to an f16 or f32 ``d``; ``types`` are those of a, b and c."""
    x, y, z = (decode(name, bits) for name, bits in zip(types, (a, b, c), strict=True))
    product_bits = FLOATS[types[0]].mantissa + FLOATS[types[1]].mantissa
    if scales is not None:
        chunk = np.arange(a.shape[-1]) * op.chunks // a.shape[-1]
        x, y = (scaled(v, op.scale, s[..., chunk]) for v, s in zip((x, y), scales, strict=True))
        product_bits += 2 * SCALES[op.scale].mantissa
    return _sum(
        Numbers(*(v[..., :, None, :] for v in x)),
        Numbers(*(v[..., None, :, :] for v in y)),
        z,
        (product_bits, types[2]),
        op,
        d,
    )


def _sum(x: Numbers, y: Numbers, z: Numbers, formats: tuple[int, str], op: Operation, d: str) -> Bits:
    """:func:`step` on decoded operands, x and y broadcast to (…, M, N, K)."""
    product_bits, c_format = formats
    product, exponent, negative = (
        x.significand * y.significand,
        x.exponent + y.exponent,
        x.negative ^ y.negative,
    )
    special = (x.kind | y.kind) > 0
    invalid = special & ((x.kind == 2) | (y.kind == 2) | x.zero | y.zero)
    infinite = special & ~invalid
    plus = (infinite & ~negative).any(-1) | ((z.kind == 1) & ~z.negative)
    minus = (infinite & negative).any(-1) | ((z.kind == 1) & z.negative)
    nan = invalid.any(-1) | (z.kind == 2) | (plus & minus)

    top = np.where((product != 0) & ~special, exponent, _FAR).max(-1)
    top = np.maximum(top, np.where((z.significand != 0) & (z.kind == 0), z.exponent, _FAR))
    top = np.maximum(top, FLOATS[c_format].smallest_exponent - 7)
    terms = _shifted(np.where(special, 0, product), op.fraction - product_bits - (top[..., None] - exponent))
    total = np.where(negative, -terms, terms).sum(-1)
    addend = _shifted(
        np.where(z.kind > 0, 0, z.significand), op.fraction - FLOATS[c_format].mantissa - (top - z.exponent)
    )
    total = total + np.where(z.negative, -addend, addend)

    if d == "f16":
        found = to_f16(total < 0, np.abs(total), top - op.fraction)
        found = np.where(plus, 0x7C00, np.where(minus, 0xFC00, found))
        return np.where(nan, _NAN16, found).astype(np.uint16)
    found = to_f32(total < 0, np.abs(total), top - op.fraction, 13 if op.short else 23)
    found = np.where(plus, 0x7F800000, np.where(minus, 0xFF800000, found))
    return np.where(nan, _NAN32, found).astype(np.uint32)


# --- IEEE arithmetic around the steps ----------------------------------------------------------------


def _bits32(x: Bits) -> Bits:
    bits = np.asarray(x, np.float32).view(np.uint32)
    return np.where(np.isnan(x), np.uint32(_NAN32), bits)


def _bits16(x: Bits) -> Bits:
    with np.errstate(all="ignore"):
        bits = np.asarray(x).astype(np.float16).view(np.uint16)
    return np.where(np.isnan(x), np.uint16(_NAN16), bits)


def _f32(bits: Bits) -> Bits:
    return np.asarray(bits).astype(np.uint32).view(np.float32)


def _f16(bits: Bits) -> Bits:
    return np.asarray(bits).astype(np.uint16).view(np.float16)


def widen_f16(bits: Bits) -> Bits:
    """f16 to f32, exactly; NaN is canonical."""
    return _bits32(_f16(bits).astype(np.float32))


def narrow_f32(bits: Bits) -> Bits:
    """f32 to f16, to nearest even; NaN is canonical."""
    return _bits16(_f32(bits))


def _add(type_name: str, x: Bits, y: Bits) -> Bits:
    """IEEE addition to nearest; of f16 exact in f64 and rounded once."""
    with np.errstate(all="ignore"):
        if type_name == "f16":
            return _bits16(_f16(x).astype(np.float64) + _f16(y).astype(np.float64))
        return _bits32(_f32(x) + _f32(y))


def _fma(x: Bits, y: Bits, z: Bits) -> Bits:
    """``x * y + z`` in f32 for f16 x and y: exact product in f64, sum rounded to odd, then to f32."""
    with np.errstate(all="ignore"):
        product, addend = x.astype(np.float64) * y.astype(np.float64), z.astype(np.float64)
        total = product + addend
        back = total - product
        error = (product - (total - back)) + (addend - back)
        even = total.view(np.uint64) & 1 == 0
        toward = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
        total = np.where(np.isfinite(total) & (error != 0) & even, toward, total)
        return total.astype(np.float32)


def _quad_fma(op: Operation, a: Bits, b: Bits, c: Bits) -> Bits:
    """m8n8k4 of f16, which is scalar code."""
    x, y = np.broadcast_arrays(_f16(a)[..., :, None, :], _f16(b)[..., None, :, :])
    start = _f32(widen_f16(c) if op.c == "f16" else c)
    zero = np.zeros(x.shape[:-1], np.float32)
    with np.errstate(all="ignore"):
        if op.d == "f32":
            for k in range(4):
                zero = _fma(x[..., k], y[..., k], zero)
            return _bits32(start + zero)
        pairs = [
            _fma(x[..., k + 1], y[..., k + 1], x[..., k].astype(np.float32) * y[..., k].astype(np.float32))
            for k in (0, 2)
        ]
        return _bits16((start + pairs[0]) + pairs[1])


def widen_fp8(name: str, bits: Bits) -> Bits:
    """e4m3 or e5m2 to f16, exactly; NaN is canonical."""
    x = decode(name, bits)
    value = x.significand.astype(np.float64) * np.exp2(x.exponent - FLOATS[name].mantissa)
    value = np.where(x.kind == 1, np.inf, np.where(x.kind == 2, np.nan, value))
    return _bits16(np.where(x.negative, -value, value))


# --- whole operations --------------------------------------------------------------------------------


def _integers(name: str, bits: Bits) -> Bits:
    width, signed = INTEGERS[name]
    x = np.asarray(bits).astype(np.int64) & ((1 << width) - 1)
    sign = 1 << (width - 1) if signed else 0
    return np.asarray((x ^ sign) - sign)


def _whole_numbers(op: Operation, a: Bits, b: Bits, c: Bits) -> Bits:
    total = np.asarray(c).astype(np.uint32).view(np.int32).astype(np.int64)
    if op.rule in ("and", "xor"):
        x, y = np.asarray(a)[..., :, None, :], np.asarray(b)[..., None, :, :]
        total = total + np.bitwise_count(x & y if op.rule == "and" else x ^ y).astype(np.int64).sum(-1)
    else:
        total = total + (_integers(op.a, a)[..., :, None, :] * _integers(op.b, b)[..., None, :, :]).sum(-1)
    if op.rule == "saturated":
        total = np.clip(total, -(1 << 31), (1 << 31) - 1)
    return np.asarray((total & 0xFFFFFFFF).astype(np.uint32))


def _steps(op: Operation, a: Bits, b: Bits, c: Bits, scales: Scales | None) -> Bits:
    """The steps in turn, from C on; for fp8 of ``mma`` from +0, with C added at the end."""
    types = (op.a, op.b, op.d)
    if scales is not None:
        return step(op, op.d, a, b, c, types=types, scales=scales)
    total = c
    if op.rule == "split":
        a, b, types = widen_fp8(op.a, a), widen_fp8(op.b, b), ("f16", "f16", op.d)
        total = np.zeros_like(c)
    for ks in op.steps:
        total = step(op, op.d, a[..., list(ks)], b[..., list(ks)], total, types=types)
    return _add(op.c, total, c) if op.rule == "split" else total


def dot(op: Operation, a: Bits, b: Bits, c: Bits, scales: Scales | None = None) -> Bits:
    """D of a whole operation with a dense A, f64 left out (:mod:`.double`)."""
    if op.rule == "quad_fma":
        return _quad_fma(op, a, b, c)
    if op.rule == "widened":
        return step(op, "f32", a, b, widen_f16(c), types=(op.a, op.b, "f32"))
    if op.rule == "narrowed":
        return narrow_f32(step(op, "f32", a, b, c, types=(op.a, op.b, "f32")))
    if op.a in FLOATS:
        return _steps(op, a, b, c, scales)
    return _whole_numbers(op, a, b, c)


def sparse_dot(
    op: Operation, a: Bits, b: Bits, c: Bits, metadata: Bits, scales: Scales | None = None
) -> Bits:
    """D of ``mma.sp``: ``a`` holds the stored elements, (…, M, K/2); ``metadata`` a chunk's 4 bits.

    A chunk is two stored elements of four, of tf32 one of two, of four bits two pairs of four.
    """
    stored, unit = np.arange(a.shape[-1]), op.together
    if op.a == "tf32":
        chosen = stored * 2 + (metadata == 0xE)
    else:
        number = (metadata[..., stored // (2 * unit)] >> (2 * (stored // unit & 1))) & 3
        chosen = stored // (2 * unit) * (4 * unit) + number * unit + stored % unit
    met = np.take_along_axis(b[..., None, :, :], chosen[..., :, None, :].astype(np.int64), -1)
    rows = []
    for i in range(a.shape[-2]):
        one = slice(i, i + 1)
        own = None if scales is None else Scales(scales.a[..., one, :], scales.b)
        rows.append(dot(op, a[..., one, :], met[..., i, :, :], c[..., one, :], own))
    return np.concatenate(rows, -2)
