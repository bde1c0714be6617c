"""Integer arithmetic (PTX ISA 9.7.1) and extended-precision arithmetic (9.7.2)."""

from __future__ import annotations

from collections.abc import Callable

from zluda.compiler.ir import Builder, Value
from zluda.compiler.lower.lanewise import Result, as_bits, lanewise, unsupported
from zluda.compiler.lower.packed import by_halves
from zluda.ptx.module import Instruction
from zluda.ptx.types import ScalarType

SCALAR_KINDS = ("u", "s", "b")
PACKED = (ScalarType.U16X2, ScalarType.S16X2)


def is_signed(type: ScalarType) -> bool:
    """Whether arithmetic on the type is signed."""
    return type.kind == "s"


def typed_sources(b: Builder, inst: Instruction, operands: list[Value]) -> list[Value]:
    """The operands as integers of the instruction's type."""
    return [as_bits(b, v, inst.type.bits) for v in operands]


# --- add, sub, and the carry chain -------------------------------------------------------------------


def add_integer(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """``add``, ``add.sat``, ``add.cc``; packed 16-bit forms."""
    if inst.type in PACKED:
        return by_halves(b, operands, b.add)
    x, y = typed_sources(b, inst, operands[:2])
    if inst.has("sat"):
        return b.intrinsic("sadd.sat", x, y)
    total = b.add(x, y)
    return (total, b.icmp("ult", total, x)) if inst.has("cc") else total


def sub_integer(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """``sub``, ``sub.sat``, ``sub.cc``; packed 16-bit forms.

    PTX calls the flag a borrow (9.7.2.3), but what the machine keeps, and a following ``addc`` or ``madc``
    sees, is the carry of ``a + ~b + 1``: set where there is no borrow.
    """
    if inst.type in PACKED:
        return by_halves(b, operands, b.sub)
    x, y = typed_sources(b, inst, operands[:2])
    if inst.has("sat"):
        return b.intrinsic("ssub.sat", x, y)
    difference = b.sub(x, y)
    return (difference, b.icmp("uge", x, y)) if inst.has("cc") else difference


def _add_with_carry(b: Builder, x: Value, y: Value, carry: Value) -> tuple[Value, Value]:
    partial = b.add(x, y)
    total = b.add(partial, b.zext(carry, x.type))
    return total, b.or_(b.icmp("ult", partial, x), b.icmp("ult", total, partial))


def _with_flag(inst: Instruction, result: Value, flag: Value) -> Result:
    return (result, flag) if inst.has("cc") else result


@lanewise("addc")
def addc(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """PTX ISA 9.7.2.2."""
    x, y = typed_sources(b, inst, operands[:2])
    return _with_flag(inst, *_add_with_carry(b, x, y, operands[-1]))


@lanewise("subc")
def subc(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """PTX ISA 9.7.2.4: ``a + ~b + CC.CF``, see :func:`sub_integer`."""
    x, y = typed_sources(b, inst, operands[:2])
    return _with_flag(inst, *_add_with_carry(b, x, b.not_(y), operands[-1]))


# --- products ----------------------------------------------------------------------------------------


def _extend(b: Builder, value: Value, width: int, *, signed: bool) -> Value:
    return b.resize(value, f"i{width}", signed=signed)


def _product(b: Builder, inst: Instruction, x: Value, y: Value) -> Value:
    signed, mode = is_signed(inst.type), inst.slots.get("mode", "lo")
    if mode == "hi":
        return b.mul_high(x, y, signed=signed)
    if mode == "wide":
        x, y = (_extend(b, v, 2 * v.width, signed=signed) for v in (x, y))
    return b.mul(x, y)


def mul_integer(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """``mul.lo``, ``mul.hi``, ``mul.wide``."""
    x, y = typed_sources(b, inst, operands)
    return _product(b, inst, x, y)


def _multiply_add(b: Builder, inst: Instruction, product: Value, addend: Value) -> Result:
    if inst.has("sat"):
        return b.intrinsic("sadd.sat", product, addend)
    total = b.add(product, addend)
    return _with_flag(inst, total, b.icmp("ult", total, product)) if inst.has("cc") else total


def mad_integer(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """``mad.lo``, ``mad.hi`` (``.sat``, ``.cc``), ``mad.wide``."""
    product = _product(b, inst, *typed_sources(b, inst, operands[:2]))
    return _multiply_add(b, inst, product, as_bits(b, operands[2], product.width))


@lanewise("madc")
def madc(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """PTX ISA 9.7.2.6."""
    x, y, z = typed_sources(b, inst, operands[:3])
    return _with_flag(inst, *_add_with_carry(b, _product(b, inst, x, y), z, operands[-1]))


def _product24(b: Builder, inst: Instruction, operands: list[Value]) -> Value:
    """Bits 31..0 (``.lo``) or 47..16 (``.hi``) of the product of the operands' low 24 bits."""
    signed = is_signed(inst.type)
    shift = b.ashr if signed else b.lshr
    x, y = (shift(b.shl(v, 8), 8) for v in typed_sources(b, inst, operands[:2]))
    if inst.slots["mode"] == "lo":
        return b.mul(x, y)
    product = b.mul(_extend(b, x, 64, signed=signed), _extend(b, y, 64, signed=signed))
    return b.trunc(b.lshr(product, 16), "i32")


@lanewise("mul24")
def mul24(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """PTX ISA 9.7.1.5."""
    return _product24(b, inst, operands)


@lanewise("mad24")
def mad24(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """PTX ISA 9.7.1.6."""
    return _multiply_add(b, inst, _product24(b, inst, operands), as_bits(b, operands[2], 32))


# --- division ----------------------------------------------------------------------------------------


def _quotient_by_double(b: Builder, x: Value, y: Value, *, signed: bool) -> Value:
    """The quotient of integers of 32 bits or fewer, the divisor not 0, by way of f64.

    Vector units divide doubles, not integers. The quotient of two 32-bit numbers is either an integer or
    at least 2^-32 away from the next one, and rounding moves it by less: truncation is exact.
    """
    to_double, to_integer = ("sitofp", "fptosi") if signed else ("uitofp", "fptoui")
    quotient = b.fdiv(b.cast(to_double, x, "double"), b.cast(to_double, y, "double"))
    return b.trunc(b.cast(to_integer, quotient, "i64"), x.type)


def _quotient(b: Builder, x: Value, y: Value, *, signed: bool) -> Value:
    """``x / y`` for a divisor that is not 0, nor -1 where that would overflow."""
    if y.bits is not None or x.width == 64:
        return b.sdiv(x, y) if signed else b.udiv(x, y)
    return _quotient_by_double(b, x, y, signed=signed)


def _divide(b: Builder, inst: Instruction, operands: list[Value]) -> tuple[Value, Value, Value, Value]:
    """Dividend, divisor, quotient and the mask of zero divisors (whose quotient means nothing)."""
    signed = is_signed(inst.type)
    x, y = typed_sources(b, inst, operands)
    zero = b.icmp("eq", y, 0)
    divisor = b.select(zero, 1, y) if y.bits is None or y.bits == 0 else y
    negated = None
    if signed:  # -2^(n-1) / -1 wraps on NVIDIA and traps on x86
        minus_one = b.icmp("eq", y, -1)
        divisor, negated = b.select(minus_one, 1, divisor), minus_one
    quotient = _quotient(b, x, divisor, signed=signed)
    if negated is not None:
        quotient = b.select(negated, b.neg(x), quotient)
    return x, y, quotient, zero


def div_integer(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """Truncating division; a zero divisor gives all ones, as NVIDIA's code sequences do."""
    _, _, quotient, zero = _divide(b, inst, operands)
    return b.select(zero, -1, quotient)


@lanewise("rem")
def rem(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """PTX ISA 9.7.1.10; a zero divisor gives all ones, as NVIDIA's code sequences do."""
    x, y, quotient, zero = _divide(b, inst, operands)
    return b.select(zero, -1, b.sub(x, b.mul(quotient, y)))


# --- sign, order -------------------------------------------------------------------------------------


def abs_integer(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """The most negative number is its own absolute value."""
    (x,) = typed_sources(b, inst, operands)
    return b.intrinsic("abs", x, False)


def neg_integer(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """Wraps on the most negative number."""
    (x,) = typed_sources(b, inst, operands)
    return b.neg(x)


@lanewise("sad")
def sad(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """PTX ISA 9.7.1.7: ``c + |a - b|``."""
    x, y, z = typed_sources(b, inst, operands)
    less = b.icmp("slt" if is_signed(inst.type) else "ult", x, y)
    return b.add(z, b.select(less, b.sub(y, x), b.sub(x, y)))


def minmax_integer(name: str) -> Callable[[Builder, Instruction, list[Value]], Result]:
    """The lowering of ``min`` or ``max`` on integers and packed 16-bit integers, with ``.relu``."""

    def lower(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
        intrinsic = f"{'s' if is_signed(inst.type) else 'u'}{name}"

        def pick(x: Value, y: Value) -> Value:
            best = b.intrinsic(intrinsic, x, y)
            return b.intrinsic("smax", best, 0) if inst.has("relu") else best

        if inst.type in PACKED:
            return by_halves(b, operands, pick)
        x, y = typed_sources(b, inst, operands)
        return pick(x, y)

    return lower


# --- dot products ------------------------------------------------------------------------------------


def _piece(b: Builder, value: Value, index: int, bits: int, *, signed: bool) -> Value:
    """Piece ``index`` of ``bits`` bits of a 32-bit value, extended to 32."""
    top = b.shl(value, 32 - bits * (index + 1))
    return b.ashr(top, 32 - bits) if signed else b.lshr(top, 32 - bits)


@lanewise("dp4a")
def dp4a(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """PTX ISA 9.7.1.24: four bytes of ``a`` times four of ``b``, plus ``c``."""
    x, y, total = (as_bits(b, v, 32) for v in operands)
    signs = [is_signed(t) for t in inst.types]
    for i in range(4):
        factors = _piece(b, x, i, 8, signed=signs[0]), _piece(b, y, i, 8, signed=signs[1])
        total = b.add(total, b.mul(*factors))
    return total


@lanewise("dp2a")
def dp2a(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """PTX ISA 9.7.1.25: two halves of ``a`` times the low or high two bytes of ``b``, plus ``c``."""
    x, y, total = (as_bits(b, v, 32) for v in operands)
    signs = [is_signed(t) for t in inst.types]
    if "mode" not in inst.slots:
        raise unsupported(inst)
    first = 2 if inst.slots["mode"] == "hi" else 0
    for i in range(2):
        factors = _piece(b, x, i, 16, signed=signs[0]), _piece(b, y, first + i, 8, signed=signs[1])
        total = b.add(total, b.mul(*factors))
    return total
