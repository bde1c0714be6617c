"""Which NaN NVIDIA returns where it keeps payloads: f64 arithmetic, and conversions from f64.

Measured on an H200: a NaN operand comes back quieted, its sign untouched even by ``neg`` and ``abs``. Of
several, ``b`` wins in add, sub, mul, min and max; ``b``, then ``c``, in fma; ``a`` in div. An invalid
operation gives 0xfff8000000000000. f32 and 16-bit arithmetic have one NaN, see
:func:`zluda.compiler.lower.lanewise.canonical_nan`.

The host does the same for a single NaN operand, so only the order among several is spelled out here.
"""

from __future__ import annotations

from collections.abc import Sequence

from zluda.compiler.ir import Builder, Value

_QUIET = 1 << 51


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
