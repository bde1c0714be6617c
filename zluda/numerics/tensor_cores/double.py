"""f64 on tensor cores: a chain of fused multiply-adds, k ascending from C, each rounded in the mode.

Of NaN operands the first of B, the running sum and A comes out, made quiet; an invalid operation gives
0xfff8000000000000.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[Any]
_INFINITY, _QUIET, _SIGN = 0x7FF0000000000000, 0x0008000000000000, 1 << 63
_INVALID = 0xFFF8000000000000


def _parts(bits: int) -> tuple[int, int]:
    """A finite f64 as (n, e): ``n * 2^e``."""
    field, fraction = bits >> 52 & 0x7FF, bits & ((1 << 52) - 1)
    size = fraction | (1 << 52) if field else fraction
    return (-size if bits >> 63 else size), max(field, 1) - 1075


def _round(number: int, exponent: int, mode: str) -> int:
    """``number * 2^exponent``, other than 0, as f64 bits, rounded in the mode."""
    negative, size = number < 0, abs(number)
    # The unit of the result's last bit: of 53 bits, or of a subnormal.
    unit = max(exponent + size.bit_length() - 53, -1074)
    dropped = unit - exponent
    if dropped <= 0:
        kept = size << -dropped
    else:
        kept, rest, half = size >> dropped, size & ((1 << dropped) - 1), 1 << (dropped - 1)
        kept += {
            "rn": rest > half or (rest == half and kept & 1 == 1),
            "rz": False,
            "rm": negative and rest > 0,
            "rp": not negative and rest > 0,
        }[mode]
    sign = _SIGN if negative else 0
    # The hidden bit runs into the exponent field, and so does a carry.
    bits = ((unit + 1074) << 52) + kept
    if bits >= _INFINITY:
        outward = mode == "rn" or mode == ("rm" if negative else "rp")
        return sign | (_INFINITY if outward else _INFINITY - 1)
    return sign | bits


def fma(a: int, b: int, c: int, mode: str = "rn") -> int:
    """``a * b + c``, all f64 bits."""
    for operand in (b, c, a):
        if operand & ~_SIGN > _INFINITY:
            return operand | _QUIET
    sign = (a ^ b) & _SIGN
    infinite = [x & ~_SIGN == _INFINITY for x in (a, b, c)]
    nothing = [x & ~_SIGN == 0 for x in (a, b, c)]
    if infinite[0] or infinite[1]:
        if nothing[0] or nothing[1] or (infinite[2] and c & _SIGN != sign):
            return _INVALID
        return sign | _INFINITY
    if infinite[2]:
        return c
    (x, ex), (y, ey), (z, ez) = map(_parts, (a, b, c))
    exponent = min(ex + ey, ez)
    number = (x * y << ex + ey - exponent) + (z << ez - exponent)
    if number:
        return _round(number, exponent, mode)
    if (nothing[0] or nothing[1]) and nothing[2] and sign == c & _SIGN:
        return sign
    return _SIGN if mode == "rm" else 0


def dot(a: Bits, b: Bits, c: Bits, mode: str = "rn") -> Bits:
    """D of arrays of bits: A (…, M, K), B by columns (…, N, K), C and D (…, M, N)."""
    d = np.empty(c.shape, np.uint64)
    for at in np.ndindex(*c.shape):
        total = int(c[at])
        for x, y in zip(a[at[:-1]].tolist(), b[(*at[:-2], at[-1])].tolist(), strict=True):
            total = fma(x, y, total, mode)
        d[at] = total
    return d
