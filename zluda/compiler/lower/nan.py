"""Which NaN NVIDIA returns where it keeps payloads: f64 arithmetic, and conversions from f64.

Measured on an H200: a NaN operand comes back quieted, its sign untouched even by ``neg`` and ``abs``. Of
several, ``b`` wins in add, sub, mul, min and max; ``b``, then ``c``, in fma; ``a`` in div. An invalid
operation gives 0xfff8000000000000. f32 and 16-bit arithmetic have one NaN, see
:func:`zluda.compiler.lower.lanewise.canonical_nan`.

The host and AMD GPUs do the same for a single NaN operand, so as a rule only the order among several is
spelled out here. But LLVM, to whom any NaN is as good as another, turns signs and leaves operations out where
an operand is constant: :func:`propagate_rewritten`.
"""

from __future__ import annotations

from collections.abc import Sequence

from zluda.compiler.ir import Builder, Value

_QUIET = 1 << 51
_SIGN, _MANTISSA, _ONE = 1 << 63, (1 << 52) - 1, 0x3FF << 52


def is_nan(b: Builder, x: Value) -> Value:
    """Whether each lane is NaN."""
    return b.fcmp("uno", x, x)


def quieted(b: Builder, x: Value) -> Value:
    """An f64 with the quiet bit set."""
    return b.bitcast(b.or_(b.bitcast(x, "i64"), _QUIET), "double")


def propagate(b: Builder, result: Value, operands: Sequence[Value]) -> Value:
    """``result``, or the last NaN of ``operands`` (ordered by rising priority) where there is one."""
    for operand in operands:
        result = b.select(is_nan(b, operand), quieted(b, operand), result)
    return result


def _is_one_or_negative_power(b: Builder, bits: Value) -> Value:
    power = b.icmp("eq", b.and_(bits, _SIGN | _MANTISSA), _SIGN)
    return b.or_(power, b.icmp("eq", bits, _ONE))


def _is_zero(b: Builder, bits: Value) -> Value:
    return b.icmp("eq", b.and_(bits, _SIGN - 1), 0)


REWRITTEN = {"mul": _is_one_or_negative_power, "fma": _is_one_or_negative_power, "add": _is_zero}
"""Operations, and which second operands (their bits) LLVM makes something else of where it knows them.

A product with -1 becomes ``fneg``, with another negative power of two ``v_ldexp_f64 -x`` on AMD GPUs: the
sign of a NaN is turned. A product with 1 and a sum with 0 are left out: a signalling NaN stays one.
"""


def propagate_rewritten(b: Builder, op: str, result: Value, x: Value, y: Value) -> Value:
    """:func:`propagate` of ``x`` where LLVM may make something else of ``x op y``: where it knows ``y``.

    It is asked, for ``y`` may become a constant late: what it does not know is not asked of running code.
    """
    if b.module.any_nan:
        return result
    rewritten = REWRITTEN[op](b, b.bitcast(y, "i64"))
    known = b.is_constant(b.extract(rewritten, 0)) if not b.module.quick else b.const("i1", 1)
    kept = b.select(rewritten, propagate(b, result, [x]), result)
    return b.select(known, kept, result)


def keep_sign(b: Builder, x: Value, changed: Value) -> Value:
    """``changed`` (``x`` with another sign), but NaN as it was, quieted."""
    return b.select(is_nan(b, x), quieted(b, x), changed)


def shortened(b: Builder, x: Value, width: int, mantissa: int) -> Value:
    """An f64 NaN's bits in a shorter format: sign, and the top of the payload, quieted."""
    bits = b.bitcast(x, "i64")
    payload = b.trunc(b.and_(b.lshr(bits, 52 - mantissa), (1 << mantissa) - 1), f"i{width}")
    sign = b.shl(b.trunc(b.lshr(bits, 63), f"i{width}"), width - 1)
    exponent_and_quiet = (1 << (width - 1)) - (1 << (mantissa - 1))
    return b.or_(b.or_(payload, sign), exponent_and_quiet)
