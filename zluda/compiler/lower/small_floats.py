"""``cvt`` to and from floating types of 8, 6 and 4 bits, two to a register (PTX ISA 9.7.9.21).

All round to nearest even and saturate. The 8-bit types have a NaN; a 6- or 4-bit result of NaN is the largest
number. ``ue8m0`` is a power of two and rounds to zero or up.
"""

from __future__ import annotations

from zluda.compiler.ir import Builder, Value
from zluda.compiler.lower.floating import rectify
from zluda.compiler.lower.formats import load_float
from zluda.compiler.lower.lanewise import as_bits
from zluda.compiler.lower.packed import join_halves, split_halves
from zluda.ptx.module import Instruction
from zluda.ptx.types import ScalarType
from zluda.records import dataclass

T = ScalarType


@dataclass(frozen=True, slots=True)
class Small:
    """Bits of mantissa, exponent bias, the largest number's code, what NaN becomes, and bits of a code.

    ``bits`` is the distance from one element of a pair to the other.
    """

    mantissa: int
    bias: int
    largest: int
    nan: int
    bits: int
    sign: int
    infinity: int = -1


SMALL = {
    T.E4M3X2: Small(3, 7, 0x7E, 0x7F, 8, 7),
    T.E5M2X2: Small(2, 15, 0x7B, 0x7F, 8, 7, infinity=0x7C),
    T.E2M3X2: Small(3, 1, 0x1F, 0x1F, 8, 5),
    T.E3M2X2: Small(2, 3, 0x1F, 0x1F, 8, 5),
    T.E2M1X2: Small(1, 1, 0x7, 0x7, 4, 3),
}


def convert(b: Builder, inst: Instruction, operands: list[Value]) -> Value | None:
    """The conversion's result; None for a form that is not known here."""
    destination, source = inst.types[0], inst.types[1]
    if source in SMALL and destination is T.F16X2:
        return _widen_pair(b, inst, SMALL[source], operands[0])
    if source is T.UE8M0X2 and destination is T.BF16X2:
        return _powers(b, operands[0])
    high, low = _pair(b, source, operands)
    if destination is T.UE8M0X2 and inst.slots["rnd"] in ("rz", "rp"):
        codes = [_exponent(b, inst, x) for x in (high, low)]
        return b.trunc(b.or_(b.shl(codes[0], 8), codes[1]), "i16")
    if destination not in SMALL or inst.slots["rnd"] != "rn":
        return None
    kind = SMALL[destination]
    if inst.has("relu"):
        high, low = rectify(b, high), rectify(b, low)
    both = b.or_(b.shl(_narrow(b, kind, high), kind.bits), _narrow(b, kind, low))
    return b.trunc(both, f"i{destination.bits}")


def _pair(b: Builder, source: ScalarType, operands: list[Value]) -> tuple[Value, Value]:
    """The upper and the lower element as ``float``: two operands, or the halves of one."""
    if source is T.F32:
        return load_float(b, operands[0], T.F32), load_float(b, operands[1], T.F32)
    low, high = split_halves(b, operands[0])
    element = T.F16 if source is T.F16X2 else T.BF16
    return load_float(b, high, element), load_float(b, low, element)


def code_of(b: Builder, kind: Small, x: Value) -> Value:
    """A ``float`` as a code (``i32``), what the type cannot hold dropped; NaN as :func:`convert` has it."""
    bits = b.bitcast(x, "i32")
    size = b.and_(bits, 0x7FFFFFFF)
    lowest = 1 - kind.bias
    finite = b.intrinsic("minnum", b.bitcast(size, "float"), 2.0**lowest)
    count = b.cast("fptoui", b.fmul(finite, 2.0 ** (kind.mantissa - lowest)), "i32")
    normal = b.sub(b.lshr(size, 23 - kind.mantissa), (127 - kind.bias) << kind.mantissa)
    is_normal = b.icmp("uge", size, (127 + lowest) << 23)
    code = b.intrinsic("umin", b.select(is_normal, normal, count), kind.largest)
    code = b.or_(code, b.shl(b.lshr(bits, 31), kind.sign))
    return b.select(b.icmp("ugt", size, 0x7F800000), kind.nan, code)


def _narrow(b: Builder, kind: Small, x: Value) -> Value:
    """A ``float`` as a code (``i32``).

    A number below the smallest normal is counted in quanta: added to a power of two whose last bit is worth
    one, so that the addition rounds. Above, bits below the mantissa are rounded off in place.
    """
    bits = b.bitcast(x, "i32")
    size = b.and_(bits, 0x7FFFFFFF)
    lowest = 1 - kind.bias  # the exponent of the smallest normal
    one = 2.0 ** (lowest - kind.mantissa + 23)
    count = b.sub(
        b.bitcast(b.fadd(b.bitcast(size, "float"), one), "i32"), b.bitcast(b.const("float", one), "i32")
    )
    cut = 23 - kind.mantissa
    odd = b.and_(b.lshr(size, cut), 1)
    rounded = b.lshr(b.add(size, b.add(odd, (1 << (cut - 1)) - 1)), cut)
    normal = b.sub(rounded, (127 - kind.bias) << kind.mantissa)
    is_normal = b.icmp("uge", size, (127 + lowest) << 23)
    code = b.intrinsic("umin", b.select(is_normal, normal, count), kind.largest)
    code = b.or_(code, b.shl(b.lshr(bits, 31), kind.sign))
    return b.select(b.icmp("ugt", size, 0x7F800000), kind.nan, code)


def _widen_pair(b: Builder, inst: Instruction, kind: Small, operand: Value) -> Value:
    """Two codes as f16, which holds all of them."""
    both = as_bits(b, operand, 2 * kind.bits)
    halves = []
    for at in (0, kind.bits):
        code = b.zext(b.trunc(b.lshr(both, at), f"i{kind.bits}"), "i32")
        halves.append(_widen(b, inst, kind, code))
    return join_halves(b, *halves)


def _widen(b: Builder, inst: Instruction, kind: Small, code: Value) -> Value:
    size = b.and_(code, (1 << kind.sign) - 1)
    # As an f32 with the code's fields in place it is the number divided by 2^(127 - bias), subnormals too.
    small = b.bitcast(b.shl(size, 23 - kind.mantissa), "float")
    number = b.cast("fptrunc", b.fmul(small, 2.0 ** (127 - kind.bias)), "half")
    bits = b.bitcast(number, "i16")
    if kind.infinity >= 0:
        bits = b.select(b.icmp("eq", size, kind.infinity), 0x7C00, bits)
    negative = b.icmp("ne", b.and_(code, 1 << kind.sign), 0)
    turned = b.const("i16", 0) if inst.has("relu") else b.or_(bits, 0x8000)
    bits = b.select(negative, turned, bits)
    if kind.nan > kind.largest:
        first = kind.nan if kind.infinity < 0 else kind.infinity + 1
        bits = b.select(b.icmp("uge", size, first), 0x7FFF, bits)
    return bits


# --- ue8m0 -------------------------------------------------------------------------------------------


def _exponent(b: Builder, inst: Instruction, x: Value) -> Value:
    """The power of two not above (``.rz``) or not below (``.rp``) a magnitude, as a code (``i32``)."""
    size = b.and_(b.bitcast(x, "i32"), 0x7FFFFFFF)
    code = b.lshr(size, 23)
    if inst.slots["rnd"] == "rp":
        inexact = b.icmp("ne", b.and_(size, 0x7FFFFF), 0)
        at_least_half = b.icmp("ugt", size, 0x400000)  # 2^-127, the smallest, has the code 0
        code = b.add(code, b.zext(b.and_(inexact, at_least_half), "i32"))
    limit = 0xFE if inst.has("satfinite") else 0xFF
    code = b.intrinsic("umin", code, limit)
    return b.select(b.icmp("ugt", size, 0x7F800000), 0xFF, code)


def _powers(b: Builder, operand: Value) -> Value:
    both = as_bits(b, operand, 16)
    halves = []
    for at in (0, 8):
        code = b.zext(b.trunc(b.lshr(both, at), "i8"), "i16")
        bits = b.select(b.icmp("eq", code, 0), 0x0040, b.shl(code, 7))
        halves.append(b.select(b.icmp("eq", code, 0xFF), 0x7FFF, bits))
    return join_halves(b, *halves)
