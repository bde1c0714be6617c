"""f64 arithmetic in every rounding mode, with Python's integers (IEEE 754-2019, 4.3, 5.4.1, 6.3, 7).

A finite number is ``(negative, significand, exponent)``: significand times 2^exponent, both integers.
Results of invalid operations and operands that are NaN are the caller's (:func:`with_nan`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from zluda.device.interpreter.values import Bits

_INFINITY, _MAGNITUDE, _SIGN, _QUIET = 0x7FF << 52, (1 << 63) - 1, 1 << 63, 1 << 51
INVALID = 0xFFF8 << 48
"""What an invalid operation gives on an H200."""

Number = tuple[bool, int, int]


def _parts(bits: int) -> Number:
    field, fraction = bits >> 52 & 0x7FF, bits & ((1 << 52) - 1)
    return bool(bits >> 63), fraction | (1 << 52 if field else 0), max(field, 1) - 1075


def _finite(*numbers: int) -> bool:
    return all(bits & _MAGNITUDE < _INFINITY for bits in numbers)


def rounded(negative: bool, value: int, exponent: int, mode: str) -> int:
    """``±value * 2^exponent`` as f64 bits; a value whose last bit is set because it is inexact needs two bits
    more than f64 has."""
    sign = _SIGN if negative else 0
    if not value:
        return sign
    scale = max(value.bit_length() + exponent - 53, -1074)  # the weight of the result's last bit
    shift = scale - exponent
    if shift <= 0:
        kept, rest, half = value << -shift, 0, 1
    else:
        kept, rest, half = value >> shift, value & ((1 << shift) - 1), 1 << (shift - 1)
    outward = mode == ("rm" if negative else "rp")
    if (mode == "rn" and (rest > half or (rest == half and kept & 1))) or (outward and rest):
        kept += 1
    code = kept + ((scale + 1074) << 52)  # the hidden bit counts as one exponent more
    if code >= _INFINITY:
        code = _INFINITY if mode == "rn" or outward else _INFINITY - 1
    return sign | code


def _sum(x: Number, y: Number, mode: str) -> int:
    exponent = min(x[2], y[2])
    terms = [(-m if negative else m) << (e - exponent) for negative, m, e in (x, y)]
    total = sum(terms)
    if not total:  # IEEE 754-2019, 6.3
        negative = x[0] if x[0] == y[0] else mode == "rm"
        return _SIGN if negative else 0
    return rounded(total < 0, abs(total), exponent, mode)


def _special(function: Callable[..., Any], *operands: int) -> int:
    """Where infinities or zeros decide: what the host's own operation gives, whatever the mode."""
    with np.errstate(all="ignore"):
        xs = [np.uint64(bits).view(np.float64) for bits in operands]
        result = function(*xs)
    return INVALID if np.isnan(result) else int(np.float64(result).view(np.uint64))


def fma(x: int, y: int, z: int, mode: str) -> int:
    """``x * y + z`` of bits."""
    if not _finite(x, y):
        return _special(lambda a, b, c: a * b + c, x, y, z)
    if not _finite(z):
        return z
    (s, m, e), (t, n, f) = _parts(x), _parts(y)
    return _sum((s != t, m * n, e + f), _parts(z), mode)


def add(x: int, y: int, mode: str) -> int:
    """``x + y`` of bits."""
    if not _finite(x, y):
        return _special(lambda a, b: a + b, x, y)
    return _sum(_parts(x), _parts(y), mode)


def multiply(x: int, y: int, mode: str) -> int:
    """``x * y`` of bits."""
    if not _finite(x, y):
        return _special(lambda a, b: a * b, x, y)
    (s, m, e), (t, n, f) = _parts(x), _parts(y)
    return rounded(s != t, m * n, e + f, mode)


def divide(x: int, y: int, mode: str) -> int:
    """``x / y`` of bits."""
    (s, m, e), (t, n, f) = _parts(x), _parts(y)
    if not _finite(x, y) or not m or not n:
        return _special(lambda a, b: a / b, x, y)
    shift = 64 + n.bit_length()
    quotient, rest = divmod(m << shift, n)
    return rounded(s != t, quotient << 1 | (rest != 0), e - f - shift - 1, mode)


def root(x: int, mode: str) -> int:
    """The square root of bits."""
    negative, m, e = _parts(x)
    if not _finite(x) or not m or negative:
        return _special(np.sqrt, x)
    shift = 128 + (e & 1)
    found = math.isqrt(m << shift)
    inexact = found * found != m << shift
    return rounded(False, found << 1 | inexact, (e - shift) // 2 - 1, mode)


def each(function: Callable[..., int], mode: str, *operands: Bits) -> Bits:
    """A function of bits and mode for every thread."""
    columns = [operand.tolist() for operand in operands]
    found = (function(*row, mode) for row in zip(*columns, strict=True))
    return np.fromiter(found, np.uint64, len(operands[0]))


def with_nan(result: Bits, *operands: Bits) -> Bits:
    """``result``, but the first operand that is NaN, quieted, where one is: its payload and sign are kept.

    PTX leaves payloads open; so an H200 has them.
    """
    for operand in reversed(operands):
        nan = (operand & np.uint64(_MAGNITUDE)) > np.uint64(_INFINITY)
        result = np.where(nan, operand | np.uint64(_QUIET), result)
    return result
