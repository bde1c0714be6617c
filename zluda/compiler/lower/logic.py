"""Logic, shifts (PTX ISA 9.7.8) and bit-field instructions of integers (9.7.1, 9.7.9)."""

from __future__ import annotations

from collections.abc import Callable

from zluda.compiler.ir import Builder, Value
from zluda.compiler.lower.integer import is_signed
from zluda.compiler.lower.lanewise import Result, as_bits, lanewise, unsupported
from zluda.ptx.module import Instruction, Pair


def _sources(b: Builder, inst: Instruction, operands: list[Value]) -> list[Value]:
    return [as_bits(b, v, inst.type.bits) for v in operands]


@lanewise("and", "or", "xor")
def bitwise(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """``and``, ``or``, ``xor`` on bits and predicates: LLVM has them under the same names."""
    return b.binary(inst.opcode, *_sources(b, inst, operands))


@lanewise("not")
def not_(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """PTX ISA 9.7.8.4."""
    (x,) = _sources(b, inst, operands)
    return b.not_(x)


@lanewise("cnot")
def cnot(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """C's ``!``: 1 for zero, else 0."""
    (x,) = _sources(b, inst, operands)
    return b.zext(b.icmp("eq", x, 0), x.type)


# --- lop3 --------------------------------------------------------------------------------------------


def _two_input(b: Builder, table: int, x: Value, y: Value) -> Value:
    """The function of two inputs whose truth table's bit ``2x + y`` is in ``table``."""
    forms: dict[int, Callable[[], Value]] = {
        0b0000: lambda: b.splat(b.const(x.type, 0), x.lanes),
        0b1111: lambda: b.splat(b.const(x.type, -1), x.lanes),
        0b1100: lambda: x,
        0b1010: lambda: y,
        0b1000: lambda: b.and_(x, y),
        0b1110: lambda: b.or_(x, y),
        0b0110: lambda: b.xor(x, y),
        0b0100: lambda: b.and_(x, b.not_(y)),
        0b0010: lambda: b.and_(b.not_(x), y),
    }
    return forms[table]() if table in forms else b.not_(forms[table ^ 0b1111]())


def lookup3(b: Builder, table: int, x: Value, y: Value, z: Value) -> Value:
    """The function of three inputs whose truth table's bit ``4x + 2y + z`` is in ``table``."""
    when_set, when_clear = table >> 4, table & 0xF
    y, z = b.unify(y, z)
    if when_set == when_clear:
        return _two_input(b, when_set, y, z)
    if when_set == when_clear ^ 0xF:
        return b.xor(x, _two_input(b, when_clear, y, z))
    chosen = b.and_(x, _two_input(b, when_set, y, z))
    return b.or_(chosen, b.and_(b.not_(x), _two_input(b, when_clear, y, z)))


@lanewise("lop3")
def lop3(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """PTX ISA 9.7.8.6; ``lop3.BoolOp d|p, a, b, c, table, q`` also gives ``p = (d != 0) BoolOp q``."""
    x, y, z = (as_bits(b, v, 32) for v in operands[:3])
    table = operands[3].bits
    if table is None:
        raise unsupported(inst)
    result = lookup3(b, table & 0xFF, x, y, z)
    boolop = inst.slots.get("boolop")
    if boolop is None:
        return result
    predicate = b.binary(boolop, b.icmp("ne", result, 0), operands[4])
    return (result, predicate) if isinstance(inst.operands[0], Pair) else result


# --- shifts ------------------------------------------------------------------------------------------


@lanewise("shl", "shr")
def shift(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """PTX ISA 9.7.8.7, 9.7.8.8: amounts beyond the width act as the width; ``.s`` fills with the sign."""
    x = as_bits(b, operands[0], inst.type.bits)
    amount, width = as_bits(b, operands[1], 32), x.width
    arithmetic = inst.opcode == "shr" and is_signed(inst.type)
    op = "shl" if inst.opcode == "shl" else "ashr" if arithmetic else "lshr"
    if amount.bits is not None:
        return _shift_by_constant(b, op, x, amount.bits)
    clamped = b.resize(b.intrinsic("umin", amount, width - 1), x.type)
    shifted = b.binary(op, x, clamped)
    return shifted if arithmetic else b.select(b.icmp("ult", amount, width), shifted, 0)


def _shift_by_constant(b: Builder, op: str, x: Value, amount: int) -> Value:
    if amount >= x.width and op != "ashr":
        return b.splat(b.const(x.type, 0), x.lanes)
    return b.binary(op, x, min(amount, x.width - 1))


@lanewise("shf")
def shf(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """PTX ISA 9.7.8.9: the funnel shift of ``b:a`` by ``c``, clamped to 32 or taken modulo 32."""
    low, high, amount = (as_bits(b, v, 32) for v in operands)
    left = inst.slots["dir"] == "l"
    if inst.slots["mode"] == "wrap":
        return b.intrinsic("fshl" if left else "fshr", high, low, amount)
    clamped = b.zext(b.intrinsic("umin", amount, 32), "i64")
    both = b.or_(b.shl(b.zext(high, "i64"), 32), b.zext(low, "i64"))
    if left:
        return b.trunc(b.lshr(b.shl(both, clamped), 32), "i32")
    return b.trunc(b.lshr(both, clamped), "i32")


# --- counting and finding ----------------------------------------------------------------------------


@lanewise("popc")
def popc(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """PTX ISA 9.7.1.15; the result is 32 bits wide."""
    (x,) = _sources(b, inst, operands)
    return b.resize(b.intrinsic("ctpop", x), "i32")


@lanewise("clz")
def clz(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """PTX ISA 9.7.1.16; zero has as many leading zeros as bits."""
    (x,) = _sources(b, inst, operands)
    return b.resize(b.intrinsic("ctlz", x, False), "i32")


@lanewise("bfind")
def bfind(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """PTX ISA 9.7.1.17: the highest bit that differs from the sign; all ones when there is none."""
    (x,) = _sources(b, inst, operands)
    if is_signed(inst.type):
        x = b.xor(x, b.ashr(x, x.width - 1))
    leading = b.resize(b.intrinsic("ctlz", x, False), "i32")
    position = leading if inst.has("shiftamt") else b.sub(x.width - 1, leading)
    return b.select(b.icmp("eq", x, 0), -1, position)


@lanewise("brev")
def brev(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """PTX ISA 9.7.1.19."""
    (x,) = _sources(b, inst, operands)
    return b.intrinsic("bitreverse", x)


@lanewise("fns")
def fns(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """PTX ISA 9.7.1.18; out of line, since it looks at every bit."""
    mask, base, offset = b.unify(*(as_bits(b, v, 32) for v in operands))
    name = f"zluda.fns.v{mask.lanes}"
    b.module.function(name, [(v.type, v.lanes) for v in (mask, base, offset)], _emit_fns)
    return b.call(name, [mask, base, offset], "i32", mask.lanes)


def _emit_fns(b: Builder, arguments: list[Value]) -> Value:
    """The n-th set bit of ``mask`` from ``base`` on, upwards for n > 0, downwards for n < 0.

    The bit of rank r is the one with exactly r set bits below it. ``base`` itself counts, and for n = 0 the
    result is ``base`` if that bit is set.
    """
    mask, base, offset = arguments
    inside = b.icmp("ult", base, 32)
    base = b.and_(base, 31)
    below = b.intrinsic("ctpop", b.and_(mask, b.sub(b.shl(1, base), 1)))
    at_base = b.and_(b.lshr(mask, base), 1)
    upward = b.icmp("sgt", offset, 0)
    rank = b.add(b.add(below, offset), b.select(upward, -1, b.select(b.icmp("eq", offset, 0), 0, at_base)))
    exists = b.select(b.icmp("eq", offset, 0), b.icmp("ne", at_base, 0), b.icmp("sge", rank, 0))
    found, seen = b.splat(b.const("i32", -1), mask.lanes), b.splat(b.const("i32", 0), mask.lanes)
    for position in range(32):
        bit = b.and_(b.lshr(mask, position), 1)
        hit = b.and_(b.icmp("ne", bit, 0), b.icmp("eq", seen, rank))
        found = b.select(hit, position, found)
        seen = b.add(seen, bit)
    return b.select(b.and_(exists, inside), found, -1)


# --- bit fields --------------------------------------------------------------------------------------


def _field_mask(b: Builder, length: Value, element: str) -> Value:
    """``length`` low bits set; ``length`` is of the element type, beyond the width all are set."""
    width = int(element[1:])
    ones = b.sub(b.shl(1, b.intrinsic("umin", length, width - 1)), 1)
    return b.select(b.icmp("ult", length, width), ones, -1)


def _byte(b: Builder, value: Value, element: str) -> Value:
    """The low byte, which is all that 32-bit ``bfe`` and ``bfi`` read of position and length.

    The 64-bit forms are code sequences that read the whole word, whatever PTX ISA 9.7.1.20 says.
    """
    word = as_bits(b, value, 32)
    return b.resize(b.and_(word, 0xFF) if element == "i32" else word, element)


def _right_shift(b: Builder, x: Value, amount: Value) -> Value:
    """A logical right shift that gives zero for amounts beyond the width."""
    shifted = b.lshr(x, b.intrinsic("umin", amount, x.width - 1))
    return b.select(b.icmp("ult", amount, x.width), shifted, 0)


@lanewise("bfe")
def bfe(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """PTX ISA 9.7.1.20: bits beyond the top and beyond the field are the field's sign (0 if unsigned)."""
    x = as_bits(b, operands[0], inst.type.bits)
    position, length = (_byte(b, v, x.type) for v in operands[1:3])
    field = b.and_(_right_shift(b, x, position), _field_mask(b, length, x.type))
    if not is_signed(inst.type):
        return field
    last = b.intrinsic("umin", b.sub(b.add(position, length), 1), x.width - 1)
    sign = b.icmp("ne", b.and_(b.lshr(x, last), 1), 0)
    # The field's bits end at its length or at the top of the register, whichever comes first.
    available = b.sub(x.width, b.intrinsic("umin", position, x.width))
    used = _field_mask(b, b.intrinsic("umin", length, available), x.type)
    extended = b.select(sign, b.or_(field, b.not_(used)), field)
    return b.select(b.icmp("eq", length, 0), 0, extended)


@lanewise("bfi")
def bfi(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """PTX ISA 9.7.1.21: ``a``'s low bits over ``b``'s field."""
    x, y = (as_bits(b, v, inst.type.bits) for v in operands[:2])
    position, length = (_byte(b, v, x.type) for v in operands[2:4])
    amount = b.intrinsic("umin", position, x.width - 1)
    mask = b.shl(_field_mask(b, length, x.type), amount)
    inserted = b.or_(b.and_(b.shl(x, amount), mask), b.and_(y, b.not_(mask)))
    return b.select(b.icmp("ult", position, x.width), inserted, y)


@lanewise("bmsk")
def bmsk(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """PTX ISA 9.7.1.23: ``b`` ones from bit ``a`` on; both clamped to 32 or taken modulo 32."""
    position, length = (as_bits(b, v, 32) for v in operands)
    if inst.slots["mode"] == "wrap":
        position, length = b.and_(position, 31), b.and_(length, 31)
    ones = _field_mask(b, length, "i32")
    shifted = b.shl(ones, b.intrinsic("umin", position, 31))
    return b.select(b.icmp("ult", position, 32), shifted, 0)


@lanewise("szext")
def szext(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """PTX ISA 9.7.1.22: the low ``b`` bits of ``a``, sign- or zero-extended."""
    x, length = (as_bits(b, v, 32) for v in operands)
    length = b.and_(length, 31) if inst.slots["mode"] == "wrap" else b.intrinsic("umin", length, 32)
    amount = b.sub(32, b.intrinsic("umax", length, 1))
    shift_back = b.ashr if is_signed(inst.type) else b.lshr
    return b.select(b.icmp("eq", length, 0), 0, shift_back(b.shl(x, amount), amount))


# --- prmt --------------------------------------------------------------------------------------------

# Byte picked for result byte i at selector s, of the eight bytes {b, a} (PTX ISA 9.7.9.7).
_PRMT_MODES = {
    "f4e": [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 6]],
    "b4e": [[0, 7, 6, 5], [1, 0, 7, 6], [2, 1, 0, 7], [3, 2, 1, 0]],
    "rc8": [[0] * 4, [1] * 4, [2] * 4, [3] * 4],
    "ecl": [[0, 1, 2, 3], [1, 1, 2, 3], [2, 2, 2, 3], [3, 3, 3, 3]],
    "ecr": [[0, 0, 0, 0], [0, 1, 1, 1], [0, 1, 2, 2], [0, 1, 2, 3]],
    "rc16": [[0, 1, 0, 1], [2, 3, 2, 3], [0, 1, 0, 1], [2, 3, 2, 3]],
}


def _selector_of_mode(b: Builder, mode: str, control: Value) -> Value:
    """The general selector (a nibble a byte) that a named mode's two control bits stand for."""
    packed = [sum(byte << 4 * i for i, byte in enumerate(row)) for row in _PRMT_MODES[mode]]
    control = b.and_(control, 3)
    if control.bits is not None:
        return b.const("i32", packed[control.bits])
    chosen: Value | int = packed[3]
    for number in (2, 1, 0):
        chosen = b.select(b.icmp("eq", control, number), b.const("i32", packed[number]), chosen)
    assert isinstance(chosen, Value)
    return chosen


@lanewise("prmt")
def prmt(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """PTX ISA 9.7.9.7: any four of the eight bytes of ``{b, a}``; a selector's top bit spreads the sign."""
    x, y, selector = (as_bits(b, v, 32) for v in operands)
    if "mode" in inst.slots:
        selector = _selector_of_mode(b, inst.slots["mode"], selector)
    both = b.or_(b.shl(b.zext(y, "i64"), 32), b.zext(x, "i64"))
    result = b.const("i32", 0)
    for i in range(4):
        nibble = b.lshr(selector, 4 * i)
        position = b.shl(b.and_(nibble, 7), 3)
        byte = b.and_(b.trunc(b.lshr(both, b.zext(position, "i64")), "i32"), 0xFF)
        if "mode" not in inst.slots:
            byte = _replicate_sign(b, byte, nibble)
        result = b.or_(b.shl(byte, 8 * i), result)
    return result


def _replicate_sign(b: Builder, byte: Value, nibble: Value) -> Value:
    flag = b.and_(nibble, 8)
    if flag.bits == 0:
        return byte
    signs = b.and_(b.ashr(b.shl(byte, 24), 31), 0xFF)
    return b.select(b.icmp("ne", flag, 0), signs, byte)
