"""Bits: counting and finding (PTX ISA 9.7.1.14 to 9.7.1.22), logic and shifts (9.7.8), ``prmt`` (9.7.9.7)."""

from __future__ import annotations

import numpy as np

from zluda.device.interpreter.opcodes.integer import is_signed
from zluda.device.interpreter.registry import lane
from zluda.device.interpreter.step import Step
from zluda.device.interpreter.values import UNSIGNED, Bits, resize, signed, unsigned, width
from zluda.ptx.module import Immediate
from zluda.ptx.types import ScalarType

T = ScalarType


# --- logic (9.7.8.1 to 9.7.8.6) ------------------------------------------------------------------------


@lane("and")
def and_(s: Step) -> None:
    """9.7.8.1."""
    x, y = s.reads(2)
    s.write(x & y)


@lane("or")
def or_(s: Step) -> None:
    """9.7.8.2."""
    x, y = s.reads(2)
    s.write(x | y)


@lane("xor")
def xor(s: Step) -> None:
    """9.7.8.3."""
    x, y = s.reads(2)
    s.write(x ^ y)


@lane("not")
def not_(s: Step) -> None:
    """9.7.8.4."""
    s.write(~s.read(1))


@lane("cnot")
def cnot(s: Step) -> None:
    """9.7.8.5: 1 of zero, 0 of anything else."""
    x = s.read(1)
    s.write((x == 0).astype(x.dtype))


@lane("lop3")
def lop3(s: Step) -> None:
    """9.7.8.6: the table's bit ``4a + 2b + c`` in every place; ``p`` is ``(d != 0) BoolOp q``."""
    a, b, c = s.reads(3)
    table = s.inst.operands[4]
    if not isinstance(table, Immediate):
        raise s.unsupported()
    found = np.zeros_like(a)
    for row in range(8):
        if table.value >> row & 1:
            found |= (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
    if not s.has("boolop"):
        s.write(found)
        return
    q = s.read(5, T.PRED)
    s.write_both(found, (found != 0) & q if s.slot("boolop") == "and" else (found != 0) | q)


# --- shifts (9.7.8.7 to 9.7.8.9) -----------------------------------------------------------------------


@lane("shl")
def shl(s: Step) -> None:
    """9.7.8.7: amounts above the width are the width."""
    x, amount = s.read(1), s.read(2, T.B32)
    s.write(left(x, amount))


@lane("shr")
def shr(s: Step) -> None:
    """9.7.8.8: signed types fill with the sign."""
    x, amount = s.read(1), s.read(2, T.B32)
    s.write(right(x, amount, sign=is_signed(s.type)))


def left(x: Bits, amount: Bits) -> Bits:
    """Shifted left; nothing is left at the width and above."""
    amount = amount.astype(np.uint64)
    most = width(x) - 1
    moved = x << np.minimum(amount, most).astype(x.dtype)
    return np.asarray(np.where(amount > most, x.dtype.type(0), moved))


def right(x: Bits, amount: Bits, *, sign: bool = False) -> Bits:
    """Shifted right, filled with zeros or the sign."""
    most = width(x) - 1
    if sign:
        return unsigned(signed(x) >> np.minimum(amount.astype(np.uint64), most).astype(signed(x).dtype))
    amount = amount.astype(np.uint64)
    moved = x >> np.minimum(amount, most).astype(x.dtype)
    return np.asarray(np.where(amount > most, x.dtype.type(0), moved))


@lane("shf")
def shf(s: Step) -> None:
    """9.7.8.9: 32 bits out of ``b:a``, shifted by ``c``, clamped to 32 or modulo 32."""
    a, b, c = s.read(1), s.read(2), s.read(3, T.B32)
    n = (c & np.uint32(31) if s.slot("mode") == "wrap" else np.minimum(c, 32)).astype(np.uint64)
    both = b.astype(np.uint64) << np.uint64(32) | a
    both = both << n >> np.uint64(32) if s.slot("dir") == "l" else both >> n
    s.write(both.astype(np.uint32))


# --- counting and finding (9.7.1.14 to 9.7.1.18) ---------------------------------------------------------


@lane("popc")
def popc(s: Step) -> None:
    """9.7.1.14."""
    s.write(np.bitwise_count(s.read(1)).astype(np.uint32))


def highest(x: Bits) -> Bits:
    """The place of the highest bit that is set, -1 where none is."""
    found: Bits = np.full(len(x), -1, np.int64)
    for bit in range(width(x)):
        found = np.where(x >> x.dtype.type(bit) & x.dtype.type(1), bit, found)
    return found


@lane("clz")
def clz(s: Step) -> None:
    """9.7.1.15."""
    x = s.read(1)
    s.write((width(x) - 1 - highest(x)).astype(np.uint32))


@lane("bfind")
def bfind(s: Step) -> None:
    """9.7.1.16: the highest bit that is not the sign; ``.shiftamt`` how far it is from the top."""
    x = s.read(1)
    if is_signed(s.type):
        x = np.where(signed(x) < 0, ~x, x)
    found = highest(x)
    if s.has("shiftamt"):
        found = np.where(found < 0, -1, width(x) - 1 - found)
    s.write((found & 0xFFFFFFFF).astype(np.uint32))


@lane("fns")
def fns(s: Step) -> None:
    """9.7.1.17: the n-th bit that is set, from ``base`` upwards, or downwards for n < 0."""
    mask, base, count = (s.read(i) for i in (1, 2, 3))
    rows = zip(mask.tolist(), base.tolist(), signed(count).tolist(), strict=True)
    s.write(np.array([_nth(*row) for row in rows], np.uint32))


def _nth(mask: int, base: int, count: int) -> int:
    if base > 31:
        return 0xFFFFFFFF
    if count == 0:
        return base if mask >> base & 1 else 0xFFFFFFFF
    way = range(base, 32) if count > 0 else range(base, -1, -1)
    found = [place for place in way if mask >> place & 1]
    return found[abs(count) - 1] if abs(count) <= len(found) else 0xFFFFFFFF


@lane("brev")
def brev(s: Step) -> None:
    """9.7.1.18."""
    x = s.read(1)
    found = np.zeros_like(x)
    for bit in range(width(x)):
        found |= (x >> x.dtype.type(bit) & x.dtype.type(1)) << x.dtype.type(width(x) - 1 - bit)
    s.write(found)


# --- fields (9.7.1.19 to 9.7.1.22) ---------------------------------------------------------------------


def _position(s: Step, index: int) -> Bits:
    """A position or length: of 32-bit forms the low byte, of 64-bit forms the word, as an H200 reads them."""
    x = s.read(index, T.B32)
    return (x & np.uint32(0xFF) if s.type.bits == 32 else x).astype(np.int64)


def ones(length: Bits, bits: int) -> Bits:
    """So many low bits set, at most all."""
    everything = np.full(len(length), (1 << bits) - 1, UNSIGNED[bits])
    return np.asarray(~left(everything, np.minimum(length, bits)))


@lane("bfe")
def bfe(s: Step) -> None:
    """9.7.1.19: the field's bits; above them zeros, or its sign, which is at the register's top at most."""
    x, position, length = s.read(1), _position(s, 2), _position(s, 3)
    bits = width(x)
    field = right(x, position) & ones(length, bits)
    if is_signed(s.type):
        sign = right(x, np.minimum(position + length - 1, bits - 1) % 2**32) & x.dtype.type(1)
        used = np.maximum(np.minimum(length, bits - position), 0)
        field = np.where((sign != 0) & (length > 0), field | ~ones(used, bits), field)
    s.write(field)


@lane("bfi")
def bfi(s: Step) -> None:
    """9.7.1.20: the low bits of ``a`` in the place of a field of ``b``."""
    x, y, position, length = s.read(1), s.read(2), _position(s, 3), _position(s, 4)
    mask = left(ones(length, width(x)), position)
    s.write((left(x, position) & mask) | (y & ~mask))


@lane("szext")
def szext(s: Step) -> None:
    """9.7.1.21: the low ``b`` bits, extended by their sign or by zeros."""
    x, length = s.read(1), s.read(2, T.B32)
    length = (length & np.uint32(31) if s.slot("mode") == "wrap" else np.minimum(length, 32)).astype(np.int64)
    field = x & ones(length, 32)
    if is_signed(s.type):
        sign = right(x, np.maximum(length - 1, 0)) & np.uint32(1)
        field = np.where((sign != 0) & (length > 0), field | ~ones(length, 32), field)
    s.write(field)


@lane("bmsk")
def bmsk(s: Step) -> None:
    """9.7.1.22: ``b`` ones from bit ``a`` on, both clamped to 32 or modulo 32."""
    position, length = s.read(1, T.B32), s.read(2, T.B32)
    if s.slot("mode") == "wrap":
        position, length = position & np.uint32(31), length & np.uint32(31)
    s.write(left(ones(length.astype(np.int64), 32), position))


# --- bytes (9.7.9.7) -----------------------------------------------------------------------------------

# Which of the eight bytes of b:a stands in each place of the result, lowest first, for c of 0 to 3.
_MODES = {
    "f4e": ("0123", "1234", "2345", "3456"),
    "b4e": ("0765", "1076", "2107", "3210"),
    "rc8": ("0000", "1111", "2222", "3333"),
    "ecl": ("0123", "1123", "2223", "3333"),
    "ecr": ("0000", "0111", "0122", "0123"),
    "rc16": ("0101", "2323", "0101", "2323"),
}


@lane("prmt")
def prmt(s: Step) -> None:
    """9.7.9.7: four of the eight bytes of ``b:a``; the top bit of a selector spreads the byte's sign."""
    a, b, c = (s.read(i, T.B32) for i in (1, 2, 3))
    both = (b.astype(np.uint64) << np.uint64(32) | a).view(np.uint8).reshape(-1, 8)
    found = np.zeros((s.count, 4), np.uint8)
    threads = np.arange(s.count)
    for place in range(4):
        if s.has("mode"):
            rows = np.array([int(row[place]) for row in _MODES[s.slot("mode")]])
            found[:, place] = both[threads, rows[c & np.uint32(3)]]
            continue
        selector = c >> np.uint32(4 * place) & np.uint32(15)
        byte = both[threads, selector & np.uint32(7)]
        spread = np.where(byte & 0x80, np.uint8(0xFF), np.uint8(0))
        found[:, place] = np.where(selector & np.uint32(8), spread, byte)
    s.write(resize(np.ascontiguousarray(found).view(np.uint32).reshape(-1), 32))
