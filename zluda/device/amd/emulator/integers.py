"""Integer and bit functions of table rows."""

from __future__ import annotations

from zluda.device.amd.emulator.functions import call, constant, larger, select, smaller
from zluda.device.amd.emulator.values import Typed


def mul_hi(x: Typed, y: Typed) -> Typed:
    """The high half of the double-width product."""
    return x.like(x.context.builder.mul_high(x.value, y.value, signed=x.kind == "i"))


def concat(high: Typed, low: Typed) -> Typed:
    """``{high, low}`` as an unsigned number of twice the width."""
    wide = f"u{2 * low.width}"
    return high.bits(f"u{high.width}").convert(wide) << low.width | low.bits(f"u{low.width}").convert(wide)


def pack(low: Typed, high: Typed) -> Typed:
    """Two 16-bit values as u32, the first in the low half."""
    return concat(high.bits("u16"), low.bits("u16"))


def popcount(x: Typed) -> Typed:
    return call("ctpop", x)


def reverse(x: Typed) -> Typed:
    """The bits in opposite order."""
    return call("bitreverse", x)


def find_first(x: Typed) -> Typed:
    """The lowest set bit's number as i32; -1 for none."""
    return _count_zeros("cttz", x)


def leading_zeros(x: Typed) -> Typed:
    """Zeros above the highest set bit, as i32; -1 for none set."""
    return _count_zeros("ctlz", x)


def _count_zeros(name: str, x: Typed) -> Typed:
    b = x.context.builder
    count = x.like(b.intrinsic(name, x.value, False), "u").convert("u32").bits("i32")
    return select(x == 0, constant(count, -1), count)


def sign_run(x: Typed) -> Typed:
    """Bits below the sign bit that equal it, plus one; -1 where all do (V_CLS_I32)."""
    return leading_zeros((x ^ (x >> x.width - 1)).bits(f"u{x.width}"))


def bit_field(x: Typed, offset: Typed | int, width: Typed) -> Typed:
    """V_BFE: ``width`` bits (modulo 32) from ``offset``; an i32 is sign-extended from the field's top bit."""
    size = width & x.width - 1
    shift = constant(size, x.width) - size
    empty = size == 0
    moved = (x >> offset).bits(f"u{x.width}") << shift
    return select(empty, constant(x, 0), moved.bits(x.type_name) >> shift)


def wide_bit_field(x: Typed, control: Typed) -> Typed:
    """S_BFE: offset in bits 4:0 (5:0), width in bits 22:16 of ``control``; one past the end ends there."""
    offset = control & x.width - 1
    size = smaller(control >> 16 & 127, x.width)
    shift = constant(size, x.width) - size
    moved = (x >> offset).bits(f"u{x.width}") << shift
    return select(size == 0, constant(x, 0), moved.bits(x.type_name) >> shift)


def mask_of(width: Typed, offset: Typed) -> Typed:
    """BFM: ``width`` ones from ``offset``."""
    return ((constant(width, 1) << width) - 1) << offset


def byte(x: Typed, index: int) -> Typed:
    """Byte ``index`` of u32 or u64, as u32."""
    return (x >> 8 * index & 0xFF).convert("u32")


def signed_byte(x: Typed, index: int) -> Typed:
    """Byte ``index`` sign-extended to i32."""
    return byte(x, index).bits("i32") << 24 >> 24


def perm(high: Typed, low: Typed, selector: Typed) -> Typed:
    """V_PERM_B32: four bytes of ``{high, low}``, sign bytes, 0x00 or 0xff."""
    data = concat(high, low)
    result = constant(selector, 0)
    for i in range(4):
        chosen = byte(selector, i)
        picked = (data >> (chosen & 7).convert("u64") * 8).convert("u32") & 0xFF
        source = ((chosen - 8 & 3) * 16 + 15).convert("u64")  # selectors 8..11: top bits of bytes 1, 3, 5, 7
        sign = constant(chosen, 0) - ((data >> source).convert("u32") & 1) & 0xFF
        value = select(chosen >= 8, sign, picked)
        value = select(chosen == 12, constant(value, 0), value)
        value = select(chosen > 12, constant(value, 0xFF), value)
        result = result | value << 8 * i
    return result


def sad_u8(x: Typed, y: Typed, accumulator: Typed, *, masked: bool = False) -> Typed:
    """The sum of four absolute byte differences; ``masked`` leaves out those where y's byte is 0."""
    total = accumulator
    for i in range(4):
        p, q = byte(x, i), byte(y, i)
        difference = larger(p, q) - smaller(p, q)
        total = total + (select(q == 0, constant(difference, 0), difference) if masked else difference)
    return total


def quad_sad(x: Typed, y: Typed, accumulators: list[Typed], *, masked: bool) -> list[Typed]:
    """V_QSAD and V_MQSAD: sad_u8 of four byte offsets of the 64-bit ``x``."""
    windows = [(x >> 8 * i).convert("u32") for i in range(4)]
    return [sad_u8(w, y, a, masked=masked) for w, a in zip(windows, accumulators, strict=True)]


def quad_sad_u16(x: Typed, y: Typed, accumulator: Typed, *, masked: bool) -> Typed:
    """Four 16-bit results in a u64."""
    fields = [(accumulator >> 16 * i & 0xFFFF).convert("u32") for i in range(4)]
    sums = [s & 0xFFFF for s in quad_sad(x, y, fields, masked=masked)]
    return concat(sums[3] << 16 | sums[2], sums[1] << 16 | sums[0])


def lerp_u8(x: Typed, y: Typed, carry: Typed) -> Typed:
    """Four byte averages, rounded up where the byte of ``carry`` is odd."""
    result = constant(x, 0)
    for i in range(4):
        result = result | (byte(x, i) + byte(y, i) + (byte(carry, i) & 1)) >> 1 << 8 * i
    return result


def quad_mask(x: Typed) -> Typed:
    """S_QUADMASK: one bit for each four, set where any is."""
    result = constant(x, 0)
    for i in range(x.width // 4):
        some = ((x >> 4 * i & 15) != 0).convert(x.type_name)
        result = result | some << i
    return result


def whole_quads(x: Typed) -> Typed:
    """S_WQM: every bit of a group of four where any is set."""
    some = x | x >> 1 | x >> 2 | x >> 3
    ones = int("1" * (x.width // 4), 16)
    return (some & ones) * 15


def replicate(x: Typed) -> Typed:
    """S_BITREPLICATE_B64_B32: every bit twice."""
    wide = x.convert("u64")
    for shift, mask in ((16, 0x0000FFFF0000FFFF), (8, 0x00FF00FF00FF00FF), (4, 0x0F0F0F0F0F0F0F0F),
                        (2, 0x3333333333333333), (1, 0x5555555555555555)):  # fmt: skip
        wide = (wide | wide << shift) & mask
    return wide | wide << 1


def bit_op3(x: Typed, y: Typed, z: Typed, table: int) -> Typed:
    """V_BITOP3: bit ``4x + 2y + z`` of ``table``."""
    result = constant(x, 0)
    for i in range(8):
        if table >> i & 1:
            terms = [v if i >> s & 1 else ~v for v, s in ((x, 2), (y, 1), (z, 0))]
            result = result | (terms[0] & terms[1] & terms[2])
    return result
