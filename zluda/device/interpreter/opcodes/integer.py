"""Integer arithmetic (PTX ISA 9.7.1). Numbers wrap as the width of their type has it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from zluda.device.interpreter.registry import lane
from zluda.device.interpreter.step import Step
from zluda.device.interpreter.values import (
    Bits,
    high_product,
    high_signed_product,
    resize,
    signed,
    unsigned,
    width,
)
from zluda.ptx.types import ScalarType

T = ScalarType
PACKED = (T.U16X2, T.S16X2)


def is_signed(type: ScalarType) -> bool:
    """Whether arithmetic of a type is signed."""
    return type.kind == "s"


def typed(x: Bits, type: ScalarType) -> Bits:
    """Bits as numbers of a type."""
    return signed(x) if is_signed(type) else x


def by_halves(function: Callable[..., Bits], *operands: Bits) -> Bits:
    """A function of 16-bit values, on both halves of 32-bit ones."""
    low = function(*(x.astype(np.uint16) for x in operands))
    high = function(*((x >> np.uint32(16)).astype(np.uint16) for x in operands))
    return np.asarray(unsigned(low).astype(np.uint32) | unsigned(high).astype(np.uint32) << np.uint32(16))


def clamp(x: Bits, bits: int) -> Bits:
    """Numbers of 64 bits, into the range of signed ones of ``bits`` bits."""
    return unsigned(np.clip(x, -(1 << (bits - 1)), (1 << (bits - 1)) - 1).astype(np.int64)).astype(
        {32: np.uint32, 16: np.uint16}[bits]
    )


def integer_add(s: Step) -> None:
    """9.7.1.1: ``add``; ``.sat`` of s32 clamps instead of wrapping."""
    x, y = s.reads(2)
    if s.type in PACKED:
        s.write(by_halves(lambda a, b: a + b, x, y))
    elif s.has("sat"):
        s.write(clamp(signed(x).astype(np.int64) + signed(y), 32))
    else:
        s.write(x + y)


def integer_sub(s: Step) -> None:
    """9.7.1.2: ``sub``."""
    x, y = s.reads(2)
    if s.has("sat"):
        s.write(clamp(signed(x).astype(np.int64) - signed(y), 32))
    else:
        s.write(x - y)


def product(s: Step, x: Bits, y: Bits) -> Bits:
    """9.7.1.3: the low half, the high half, or all of a product."""
    mode = s.slot("mode", "lo")
    if mode == "wide":
        wide = 2 * width(x)
        return resize(x, wide, sign=is_signed(s.type)) * resize(y, wide, sign=is_signed(s.type))
    if mode == "hi":
        return high_signed_product(x, y) if is_signed(s.type) else high_product(x, y)
    return x * y


def integer_mul(s: Step) -> None:
    """9.7.1.3: ``mul``."""
    s.write(product(s, *s.reads(2)))


def _addend(s: Step, like: Bits) -> Bits:
    return s.value(s.inst.operands[3], {16: T.B16, 32: T.B32, 64: T.B64}[width(like)])


def integer_mad(s: Step) -> None:
    """9.7.1.4: ``mad``; ``mad.hi.sat.s32`` clamps the sum."""
    found = product(s, *s.reads(2))
    addend = _addend(s, found)
    if s.has("sat"):
        s.write(clamp(signed(found).astype(np.int64) + signed(addend), 32))
    else:
        s.write(found + addend)


def _product24(s: Step) -> Bits:
    """9.7.1.5: bits 31 to 0, or 47 to 16, of the product of the low 24 bits."""
    cut = [x << np.uint32(8) for x in s.reads(2)]
    x, y = (typed(c, s.type).astype(np.int64) >> 8 for c in cut)
    return np.asarray(((x * y) >> (16 if s.slot("mode") == "hi" else 0)) & 0xFFFFFFFF).astype(np.uint32)


@lane("mul24")
def mul24(s: Step) -> None:
    """9.7.1.5."""
    s.write(_product24(s))


@lane("mad24")
def mad24(s: Step) -> None:
    """9.7.1.6."""
    found, addend = _product24(s), s.read(3)
    if s.has("sat"):
        s.write(clamp(signed(found).astype(np.int64) + signed(addend), 32))
    else:
        s.write(found + addend)


@lane("sad")
def sad(s: Step) -> None:
    """9.7.1.7: ``c`` plus the difference of ``a`` and ``b`` without its sign."""
    x, y, z = s.reads(3)
    s.write(z + np.where(typed(x, s.type) < typed(y, s.type), y - x, x - y))


def _divided(s: Step) -> tuple[Bits, Bits, Bits, Bits]:
    """Dividend, divisor, the quotient cut towards zero, and where the divisor is 0."""
    x, y = s.reads(2)
    zero = y == 0
    one = x.dtype.type(1)
    if not is_signed(s.type):
        return x, y, x // np.where(zero, one, y), zero
    negative = (signed(x) < 0) != (signed(y) < 0)
    sizes = [np.where(signed(v) < 0, ~v + one, v) for v in (x, y)]
    size = sizes[0] // np.where(zero, one, sizes[1])
    return x, y, np.where(negative, ~size + one, size), zero


def integer_div(s: Step) -> None:
    """9.7.1.8: ``div``. By zero, which PTX leaves open, an H200 gives all ones."""
    x, _, quotient, zero = _divided(s)
    s.write(np.where(zero, ~x.dtype.type(0), quotient))


@lane("rem")
def rem(s: Step) -> None:
    """9.7.1.9. By zero, which PTX leaves open, an H200 gives all ones."""
    x, y, quotient, zero = _divided(s)
    s.write(np.where(zero, ~x.dtype.type(0), x - quotient * y))


def integer_abs(s: Step) -> None:
    """9.7.1.10: ``abs``; the most negative number stays."""
    (x,) = s.reads(1)
    s.write(np.where(signed(x) < 0, ~x + x.dtype.type(1), x))


def integer_neg(s: Step) -> None:
    """9.7.1.11: ``neg``."""
    (x,) = s.reads(1)
    s.write(~x + x.dtype.type(1))


def integer_extreme(s: Step) -> None:
    """9.7.1.12, 9.7.1.13: ``min`` and ``max``; ``.relu`` makes of a negative result 0."""
    pick = np.minimum if s.inst.opcode == "min" else np.maximum

    def best(a: Bits, b: Bits) -> Bits:
        found = pick(typed(a, s.type), typed(b, s.type))
        return unsigned(np.maximum(found, 0) if s.has("relu") else found)

    x, y = s.reads(2)
    s.write(by_halves(best, x, y) if s.type in PACKED else best(x, y))


@lane("dp4a")
def dp4a(s: Step) -> None:
    """9.7.1.23: four bytes times four bytes, summed onto ``c``."""
    _dot(s, range(4), range(4), 8)


@lane("dp2a")
def dp2a(s: Step) -> None:
    """9.7.1.24: two half-words times the two low, or high, bytes, summed onto ``c``."""
    _dot(s, range(2), range(2, 4) if s.slot("mode") == "hi" else range(2), 16)


def _dot(s: Step, first: range, second: range, bits: int) -> None:
    x, y, total = (s.value(operand, T.B32) for operand in s.inst.operands[1:4])
    for i, j in zip(first, second, strict=True):
        total = total + _piece(x, i, bits, s.inst.types[0]) * _piece(y, j, 8, s.inst.types[1])
    s.write(total)


def _piece(x: Bits, index: int, bits: int, type: ScalarType) -> Bits:
    cut = (x >> np.uint32(index * bits)).astype({8: np.uint8, 16: np.uint16}[bits])
    return resize(cut, 32, sign=is_signed(type))
