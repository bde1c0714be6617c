"""Scalar and SIMD video instructions (PTX ISA 9.7.18).

Operands are bytes or half-words picked by selectors. The scalar ones compute in 64 bits, wide enough for any
intermediate result, and are then saturated, combined with the third operand, or merged into it. The SIMD ones
do the same in each half-word or byte. Where an H200's results differ from the manual's words, the results are
what is followed.
"""

from __future__ import annotations

from collections.abc import Callable

from zluda.compiler.ir import Builder, Value
from zluda.compiler.lower.lanewise import Result, as_bits, lanewise
from zluda.ptx.module import Instruction, Minus, Operand, Selected

_SIMD = {"2": (2, "h"), "4": (4, "b")}  # lanes of a SIMD instruction, letter of its selectors
_PARTS = {"b": 8, "h": 16}


def _selector(operand: Operand) -> str:
    return operand.selector.lstrip("-") if isinstance(operand, Selected) else ""


def _limits(width: int, *, signed: bool) -> tuple[int, int]:
    return (-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else (0, (1 << width) - 1)


def _part(b: Builder, word: Value, start: int, width: int, element: str, *, signed: bool) -> Value:
    """``width`` bits of a 32-bit word from ``start`` on, extended to ``element``."""
    piece = b.trunc(b.lshr(word, start), f"i{width}")
    return b.resize(piece, element, signed=signed)


def _selected(b: Builder, value: Value, operand: Operand, element: str, *, signed: bool) -> Value:
    """A source of a scalar instruction: the word, or the byte or half-word its selector names."""
    selector = _selector(operand)
    width = _PARTS[selector[0]] if selector else 32
    start = int(selector[1]) * width if selector else 0
    return _part(b, as_bits(b, value, 32), start, width, element, signed=signed)


# --- scalar instructions ---------------------------------------------------------------------------------


def _difference(b: Builder, x: Value, y: Value) -> Value:
    return b.intrinsic("abs", b.sub(x, y), False)


_OPERATIONS: dict[str, Callable[[Builder, Value, Value], Value]] = {
    "vadd": lambda b, x, y: b.add(x, y),
    "vsub": lambda b, x, y: b.sub(x, y),
    "vabsdiff": _difference,
    "vmin": lambda b, x, y: b.intrinsic("smin", x, y),
    "vmax": lambda b, x, y: b.intrinsic("smax", x, y),
}


def _clamp(b: Builder, x: Value, width: int, *, signed: bool) -> Value:
    """``x`` brought into the range of ``width`` bits."""
    low, high = _limits(width, signed=signed)
    return b.intrinsic("smin", b.intrinsic("smax", x, low), high)


def _finish(b: Builder, inst: Instruction, operands: list[Value], x: Value, *, signed: bool) -> Value:
    """The 32-bit result combined with, or merged into, the third operand where there is one."""
    result = b.trunc(x, "i32")
    if len(operands) < 3:
        return result
    other = as_bits(b, operands[2], 32)
    secop = inst.slots.get("secop")
    if secop == "add":
        return b.add(result, other)
    if secop is not None and signed:
        return b.intrinsic("s" + secop, result, other)
    if secop is not None:  # a negative result is above every word
        return b.trunc(b.intrinsic("u" + secop, x, b.zext(other, "i64")), "i32")
    selector = _selector(inst.operands[0])
    return _merge(b, result, other, selector) if selector else result


def _merge(b: Builder, result: Value, other: Value, selector: str) -> Value:
    """A byte or half-word put into ``other``: the result's lowest, but for ``.h1`` its own upper half."""
    width = _PARTS[selector[0]]
    start = int(selector[1]) * width
    mask = ((1 << width) - 1) << start
    moved = result if selector == "h1" else b.shl(result, start)
    return b.or_(b.and_(other, mask ^ 0xFFFFFFFF), b.and_(moved, mask))


def _saturate(b: Builder, inst: Instruction, x: Value, *, signed: bool) -> Value:
    """``.sat``: an unsigned result only from below, its overflow wraps; one that is merged into a byte or
    half-word only from above, negative ones being above all."""
    selector = _selector(inst.operands[0])
    if selector:
        return b.intrinsic("umin", x, _limits(_PARTS[selector[0]], signed=signed)[1])
    return _clamp(b, x, 32, signed=True) if signed else b.intrinsic("smax", x, 0)


def _sources(b: Builder, inst: Instruction, operands: list[Value]) -> tuple[Value, Value]:
    types = inst.types[-2:]
    x, y = (
        _selected(b, v, o, "i64", signed=t.kind == "s")
        for v, o, t in zip(operands, inst.operands[1:3], types, strict=False)
    )
    return x, y


@lanewise("vadd", "vsub", "vabsdiff", "vmin", "vmax")
def arithmetic(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """PTX ISA 9.7.18.1.1."""
    signed = inst.type.kind == "s"
    result = _OPERATIONS[inst.opcode](b, *_sources(b, inst, operands))
    if inst.has("sat"):
        result = _saturate(b, inst, result, signed=signed)
    return _finish(b, inst, operands, result, signed=signed)


@lanewise("vshl", "vshr")
def shift(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """PTX ISA 9.7.18.1.2, as an H200 has it: see :func:`_saturated_shift`."""
    signed, signed_source = (t.kind == "s" for t in inst.types[:2])
    x, amount = _sources(b, inst, operands)
    clamps = inst.slots["mode"] == "clamp"
    amount = b.intrinsic("umin", amount, 32) if clamps else b.and_(amount, 31)
    right = b.ashr if signed_source else b.lshr
    result = b.shl(x, amount) if inst.opcode == "vshl" else right(x, amount)
    if inst.has("sat"):
        result = _saturated_shift(b, result, signed=signed)
    return _finish(b, inst, operands, result, signed=signed)


def _saturated_shift(b: Builder, x: Value, *, signed: bool) -> Value:
    """``x`` cut to the signed 34 bits of an intermediate result, then to the whole word's range.

    So a shift to the left that loses more may saturate to the wrong end, or not at all; the range of a byte
    or half-word that is merged plays no part.
    """
    return _clamp(b, b.ashr(b.shl(x, 30), 30), 32, signed=signed)


@lanewise("vmad")
def multiply_add(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """PTX ISA 9.7.18.1.3: ``a * b + c``, ``.po`` one more, shifted right, saturated.

    The factors are 32-bit words taken as signed, whatever their types; so is the addend, and the sum, but for
    a logical shift of unsigned ones.
    """
    negated = [isinstance(o, Minus) for o in inst.operands[1:4]]
    signed = any(t.kind == "s" for t in inst.types[1:3]) or negated[0] != negated[1] or negated[2]
    x, y = (b.resize(b.trunc(v, "i32"), "i64", signed=True) for v in _sources(b, inst, operands))
    product = b.mul(x, y)
    addend = b.resize(as_bits(b, operands[2], 32), "i64", signed=True)
    if negated[0] != negated[1]:
        product = b.neg(product)
    if negated[2]:
        addend = b.neg(addend)
    total = b.add(b.add(product, addend), 1 if inst.has("po") else 0)
    scale = inst.slots.get("scale")
    if scale:
        total = (b.ashr if signed else b.lshr)(total, int(scale[3:]))
    if inst.has("sat"):
        total = _clamp(b, total, 32, signed=signed)
    return b.trunc(total, "i32")


@lanewise("vset")
def compare(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """PTX ISA 9.7.18.1.4: 1 where the comparison holds, always unsigned."""
    x, y = _sources(b, inst, operands)
    holds = b.zext(_compare(b, inst, x, y), "i64")
    return _finish(b, inst, operands, holds, signed=inst.type.kind == "s")


def _compare(b: Builder, inst: Instruction, x: Value, y: Value) -> Value:
    """Both are wide enough that their signed order is their order."""
    cmp = inst.slots["cmp"]
    return b.icmp(cmp if cmp in ("eq", "ne") else f"s{cmp}", x, y)


# --- SIMD instructions -----------------------------------------------------------------------------------


def _average(b: Builder, x: Value, y: Value) -> Value:
    """Rounded away from zero."""
    total = b.add(x, y)
    return b.ashr(b.add(total, b.zext(b.icmp("sge", total, 0), total.type)), 1)


_LANE_OPERATIONS = {**_OPERATIONS, "vavrg": _average}


def _lane_sources(
    b: Builder, inst: Instruction, operands: list[Value], lanes: int, letter: str
) -> list[list[Value]]:
    """For each of the two sources its lanes, lowest first.

    A selector names, highest first, which of the parts of both sources (``a``'s are 0 to lanes-1, then come
    ``b``'s) goes to each lane.
    """
    width = 32 // lanes
    words = [as_bits(b, v, 32) for v in operands[:2]]
    found: list[list[Value]] = []
    for number, operand in enumerate(inst.operands[1:3]):
        selector = _selector(operand)[1:][::-1]
        chosen = [int(digit) for digit in selector] or [number * lanes + i for i in range(lanes)]
        signed = inst.types[-2 + number].kind == "s"
        found.append(
            [_part(b, words[c // lanes], c % lanes * width, width, "i32", signed=signed) for c in chosen]
        )
    return found


def _simd(
    b: Builder, inst: Instruction, operands: list[Value], lane: Callable[[Value, Value], Value]
) -> Value:
    """``lane`` in each part that the destination's selector names: summed onto ``c``, or put into it."""
    lanes, letter = _SIMD[inst.opcode[-1]]
    width = 32 // lanes
    first, second = _lane_sources(b, inst, operands, lanes, letter)
    selector = _selector(inst.operands[0])
    chosen = {int(digit) for digit in selector[1:]} or set(range(lanes))
    result = as_bits(b, operands[2], 32)
    mask = (1 << width) - 1
    for i in sorted(chosen):
        value = lane(first[i], second[i])
        if inst.has("add"):
            result = b.add(result, value)
        else:
            kept = b.and_(result, ~(mask << i * width))
            result = b.or_(kept, b.shl(b.and_(value, mask), i * width))
    return result


def _simd_arithmetic(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    operation = _LANE_OPERATIONS[inst.opcode[:-1]]
    width = 32 // _SIMD[inst.opcode[-1]][0]
    signed = inst.type.kind == "s"

    def lane(x: Value, y: Value) -> Value:
        value = operation(b, x, y)
        return _clamp(b, value, width, signed=signed) if inst.has("sat") else value

    return _simd(b, inst, operands, lane)


def _simd_compare(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    return _simd(b, inst, operands, lambda x, y: b.zext(_compare(b, inst, x, y), "i32"))


for _width_letter in _SIMD:
    lanewise(*(f"{name}{_width_letter}" for name in _LANE_OPERATIONS))(_simd_arithmetic)
    lanewise(f"vset{_width_letter}")(_simd_compare)
