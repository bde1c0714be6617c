"""Bits of registers as NumPy arrays: one element a thread, unsigned, as wide as the register.

Predicates are arrays of bool. A 128-bit register has two columns of 64 bits, the lower first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[Any]

UNSIGNED: dict[int, Any] = {1: np.bool_, 8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
SIGNED: dict[int, Any] = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}


def width(x: Bits) -> int:
    """Bits of an element."""
    return 1 if x.dtype == np.bool_ else x.dtype.itemsize * 8


def unsigned(x: Bits) -> Bits:
    """The same bits, without a sign."""
    return x if x.dtype.kind in "ub" else np.ascontiguousarray(x).view(UNSIGNED[width(x)])


def signed(x: Bits) -> Bits:
    """The same bits in two's complement."""
    return np.ascontiguousarray(x).view(SIGNED[width(x)])


def resize(x: Bits, bits: int, *, sign: bool = False) -> Bits:
    """Cut to so many bits, or extended to them by zeros, or by the sign."""
    if width(x) == bits:
        return x
    if sign and width(x) < bits:
        return unsigned(signed(x).astype(SIGNED[bits]))
    return x.astype(UNSIGNED[bits])


def high_product(x: Bits, y: Bits) -> Bits:
    """The upper half of the product of unsigned numbers."""
    bits = width(x)
    if bits < 64:
        wide = x.astype(np.uint64) * y.astype(np.uint64)
        return (wide >> np.uint64(bits)).astype(x.dtype)
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    (x0, x1), (y0, y1) = (x & low, x >> half), (y & low, y >> half)
    middle = x1 * y0 + (x0 * y0 >> half)
    other = x0 * y1 + (middle & low)
    return np.asarray(x1 * y1 + (middle >> half) + (other >> half))


def high_signed_product(x: Bits, y: Bits) -> Bits:
    """The upper half of the product of numbers in two's complement."""
    zero = x.dtype.type(0)
    correction = np.where(signed(x) < 0, y, zero) + np.where(signed(y) < 0, x, zero)
    return np.asarray(high_product(x, y) - correction)
