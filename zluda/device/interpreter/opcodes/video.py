"""Video instructions (PTX ISA 9.7.18), computed in 64 bits; where the manual's words and an H200 part, the
H200 is followed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from zluda.device.interpreter.registry import lane
from zluda.device.interpreter.step import Step
from zluda.device.interpreter.values import Bits, signed
from zluda.ptx.module import Minus, Operand, Selected
from zluda.ptx.types import ScalarType

T = ScalarType
_WIDTHS = {"b": 8, "h": 16}
_HIGHEST = {True: (1 << 31) - 1, False: (1 << 32) - 1}
_WORD = np.int64(0xFFFFFFFF)


def _selector(operand: Operand) -> str:
    return operand.selector.lstrip("-") if isinstance(operand, Selected) else ""


def _cut(word: Bits, start: int, width: int, *, sign: bool) -> Bits:
    """Bits of a word as numbers of 64 bits."""
    field = word.astype(np.int64) >> start & ((1 << width) - 1)
    return np.where(sign & (field >> (width - 1) == 1), field - (1 << width), field)


def _source(s: Step, index: int, type: ScalarType) -> Bits:
    """An operand, or the byte or half-word of it that its selector names."""
    operand = s.inst.operands[index]
    selector = _selector(operand)
    width = _WIDTHS[selector[0]] if selector else 32
    start = int(selector[1]) * width if selector else 0
    return _cut(s.value(operand, T.B32), start, width, sign=type.kind == "s")


_OPERATIONS: dict[str, Callable[[Bits, Bits], Bits]] = {
    "vadd": np.add,
    "vsub": np.subtract,
    "vabsdiff": lambda x, y: np.abs(x - y),
    "vmin": np.minimum,
    "vmax": np.maximum,
    "vavrg": lambda x, y: (x + y + (x + y >= 0)) >> 1,  # away from zero
}
_COMPARISONS = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def _finish(s: Step, x: Bits, *, sign: bool) -> None:
    """Write the word, combined with ``c`` by the second operation, or merged into ``c`` (9.7.18.1)."""
    word = (x & _WORD).astype(np.uint32)
    if len(s.inst.operands) < 4:
        s.write(word)
        return
    c = s.value(s.inst.operands[3], T.B32)
    secop, selector = s.slot("secop"), _selector(s.inst.operands[0])
    if secop == "add":
        s.write(word + c)
    elif secop:
        pick = np.minimum if secop == "min" else np.maximum
        if sign:
            s.write(pick(signed(word), signed(c)).view(np.uint32))
        else:  # a negative result is above every word
            s.write(pick(x.view(np.uint64), c.astype(np.uint64)).astype(np.uint32))
    elif selector:
        width, part = _WIDTHS[selector[0]], int(selector[1])
        mask = np.uint32(((1 << width) - 1) << (part * width))
        moved = word if selector == "h1" else word << np.uint32(part * width)
        s.write((c & ~mask) | (moved & mask))
    else:
        s.write(word)


def _saturated(s: Step, x: Bits, *, sign: bool) -> Bits:
    """``.sat``: unsigned words only from below; what is merged into a part only from above."""
    selector = _selector(s.inst.operands[0])
    if selector:
        most = (1 << (_WIDTHS[selector[0]] - sign)) - 1
        return np.minimum(x.view(np.uint64), np.uint64(most)).view(np.int64)
    return np.clip(x, -(1 << 31), (1 << 31) - 1) if sign else np.maximum(x, 0)


@lane("vadd", "vsub", "vabsdiff", "vmin", "vmax")
def scalar(s: Step) -> None:
    """9.7.18.1.1."""
    sign = s.inst.types[0].kind == "s"
    found = _OPERATIONS[s.inst.opcode](_source(s, 1, s.inst.types[1]), _source(s, 2, s.inst.types[2]))
    _finish(s, _saturated(s, found, sign=sign) if s.has("sat") else found, sign=sign)


@lane("vshl", "vshr")
def shift(s: Step) -> None:
    """9.7.18.1.2; ``.sat`` sees 34 bits of the shifted word."""
    sign = s.inst.types[0].kind == "s"
    x, amount = _source(s, 1, s.inst.types[1]), _source(s, 2, s.inst.types[2])
    amount = np.clip(amount, 0, 32) if s.slot("mode") == "clamp" else amount & 31
    found = x << amount if s.inst.opcode == "vshl" else x >> amount
    if s.has("sat"):
        low, high = (-(1 << 31), (1 << 31) - 1) if sign else (0, (1 << 32) - 1)
        found = np.clip(found << 30 >> 30, low, high)
    _finish(s, found, sign=sign)


@lane("vmad")
def multiply_add(s: Step) -> None:
    """9.7.18.1.3: words taken as signed, whatever their types; a sum of unsigned ones is shifted as such."""
    minus = [isinstance(operand, Minus) for operand in s.inst.operands[1:4]]
    turned = minus[0] != minus[1]
    sign = any(type.kind == "s" for type in s.inst.types[1:3]) or turned or minus[2]
    x, y = (_cut(_source(s, i, s.inst.types[i]), 0, 32, sign=True) for i in (1, 2))
    c = signed(s.value(s.inst.operands[3], T.B32)).astype(np.int64)
    total = (-(x * y) if turned else x * y) + (-c if minus[2] else c) + (1 if s.has("po") else 0)
    scale = s.slot("scale")
    if scale:
        places = int(scale.removeprefix("shr"))
        total = total >> places if sign else (total.view(np.uint64) >> np.uint64(places)).view(np.int64)
    if s.has("sat"):
        low, high = (-(1 << 31), (1 << 31) - 1) if sign else (0, (1 << 32) - 1)
        total = np.clip(total, low, high)
    s.write((total & _WORD).astype(np.uint32))


@lane("vset")
def compare(s: Step) -> None:
    """9.7.18.1.4."""
    holds = _COMPARISONS[s.slot("cmp")](_source(s, 1, s.inst.types[0]), _source(s, 2, s.inst.types[1]))
    _finish(s, holds.astype(np.int64), sign=s.inst.types[0].kind == "s")


# --- SIMD (9.7.18.2) -----------------------------------------------------------------------------------


def _parts(s: Step, number: int, count: int, type: ScalarType) -> list[Bits]:
    """A source's parts, lowest first: of ``b:a`` those that its selector names, highest first, else its
    own."""
    digits = _selector(s.inst.operands[1 + number])[1:][::-1]
    chosen = [int(digit) for digit in digits] or [number * count + i for i in range(count)]
    words = [s.value(operand, T.B32) for operand in s.inst.operands[1:3]]
    width = 32 // count
    return [_cut(words[c // count], c % count * width, width, sign=type.kind == "s") for c in chosen]


def _simd(s: Step, operation: Callable[[Bits, Bits], Bits]) -> None:
    """In each part that the destination's selector names: put into ``c``, or with ``.add`` summed onto it."""
    count = int(s.inst.opcode[-1])
    width = 32 // count
    types = s.inst.types[-2:]
    first, second = (_parts(s, number, count, types[number]) for number in (0, 1))
    chosen = {int(digit) for digit in _selector(s.inst.operands[0])[1:]} or set(range(count))
    found = s.value(s.inst.operands[3], T.B32).astype(np.int64)
    mask = (1 << width) - 1
    for part in sorted(chosen):
        value = operation(first[part], second[part])
        if s.has("add"):
            found = found + value
        else:
            found = (found & ~(mask << part * width)) | (value & mask) << part * width
    s.write((found & _WORD).astype(np.uint32))


@lane(*(f"{name}{count}" for name in _OPERATIONS for count in (2, 4)))
def simd(s: Step) -> None:
    """9.7.18.2.1 to 9.7.18.2.5."""
    width = 32 // int(s.inst.opcode[-1])
    sign = s.inst.types[0].kind == "s"
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if sign else (0, (1 << width) - 1)
    operation = _OPERATIONS[s.inst.opcode[:-1]]
    _simd(s, lambda x, y: np.clip(operation(x, y), low, high) if s.has("sat") else operation(x, y))


@lane("vset2", "vset4")
def simd_compare(s: Step) -> None:
    """9.7.18.2.6."""
    _simd(s, lambda x, y: _COMPARISONS[s.slot("cmp")](x, y).astype(np.int64))
