"""Two 16-bit values in one 32-bit register: the ``x2`` types."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from zluda.compiler.ir import Builder, Value
from zluda.compiler.lower.lanewise import as_bits


def split_halves(b: Builder, value: Value) -> tuple[Value, Value]:
    """The low and the high 16 bits of a 32-bit value, as ``i16``."""
    bits = as_bits(b, value, 32)
    return b.trunc(bits, "i16"), b.trunc(b.lshr(bits, 16), "i16")


def join_halves(b: Builder, low: Value, high: Value) -> Value:
    """Two ``i16`` as one ``i32``, the first in the low half."""
    return b.or_(b.zext(low, "i32"), b.shl(b.zext(high, "i32"), 16))


def by_halves(b: Builder, operands: Sequence[Value], operation: Callable[..., Value]) -> Value:
    """``operation`` on the ``i16`` halves of 32-bit operands; it returns an ``i16``."""
    lows, highs = zip(*(split_halves(b, v) for v in operands), strict=True)
    return join_halves(b, operation(*lows), operation(*highs))
