"""Literals and constant expressions (PTX ISA 4.5).

Integer arithmetic is done on 64 bits, signed unless an operand is unsigned (suffix ``U``, or a literal
above 2⁶³-1). Floating-point expressions are evaluated in f64.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from zluda.patterns import pattern
from zluda.ptx.module import Immediate

WARP_SIZE = 32

_MASK = (1 << 64) - 1
_DECIMAL = pattern(r"-?[1-9]\d{0,17}|0")
_FLOAT_BITS = pattern(r"0([fF])([0-9a-fA-F]{8})|0([dD])([0-9a-fA-F]{16})")
_TOKEN = pattern(
    r"\s*(?:(0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16})"
    r"|(\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+(?:[eE][+-]?\d+)?)"
    r"|(0[xX][0-9a-fA-F]+U?|0[bB][01]+U?|\d+U?)"
    r"|(\.[su]64\b|WARP_SZ|<<|>>|<=|>=|==|!=|&&|\|\||[-+!~*/%<>&^|?:()])|(\S))"
)
_DEPTH = 64

Number = tuple[int, bool] | float
"""A 64-bit integer with whether it is unsigned, or a float."""


class ConstantError(Exception):
    """Text that is no constant; ``text`` is the offending piece."""

    def __init__(self, message: str, text: str) -> None:
        super().__init__(message)
        self.message, self.text = message, text


def parse_immediate(text: str) -> Immediate:
    """A literal or constant expression as an operand; raises :class:`ConstantError`."""
    if _DECIMAL.fullmatch(text):
        return Immediate(int(text))
    match = _FLOAT_BITS.fullmatch(text)
    if match:
        if match.group(1):
            return Immediate(int(match.group(2), 16), 32)
        return Immediate(int(match.group(4), 16), 64)
    value = evaluate(text)
    if isinstance(value, float):
        return Immediate(int.from_bytes(struct.pack("<d", value), "little"), 64)
    return Immediate(value[0])


def parse_integer(text: str) -> int:
    """A constant expression that must be an integer; raises :class:`ConstantError`."""
    value = evaluate(text)
    if isinstance(value, float):
        raise ConstantError("not an integer", text.strip())
    return value[0]


def evaluate(text: str) -> Number:
    """The value of a constant expression; raises :class:`ConstantError`."""
    return _Evaluator(text).whole()


def _literal(text: str) -> Number:
    unsigned = text.endswith("U")
    digits = text.rstrip("U")
    if digits[:2] in ("0x", "0X", "0b", "0B"):
        value = int(digits, 0)
    elif digits[0] == "0" and len(digits) > 1:
        if set(digits) - set("01234567"):
            raise ConstantError("not an octal literal", text)
        value = int(digits, 8)
    else:
        value = int(digits) if len(digits) < 25 else _MASK + 1
    if value > _MASK:
        raise ConstantError("integer literal exceeds 64 bits", text)
    return value, unsigned or value >> 63 != 0


def _wrap(value: int, unsigned: bool) -> Number:
    value &= _MASK
    return (value if unsigned or value < 1 << 63 else value - (1 << 64)), unsigned


def _divide(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


_PRECEDENCE: dict[str, int] = {
    **dict.fromkeys(("*", "/", "%"), 10),
    **dict.fromkeys(("+", "-"), 9),
    **dict.fromkeys(("<<", ">>"), 8),
    **dict.fromkeys(("<", ">", "<=", ">="), 7),
    **dict.fromkeys(("==", "!="), 6),
    "&": 5,
    "^": 4,
    "|": 3,
    "&&": 2,
    "||": 1,
}

_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "*": lambda a, b: a * b,
    "/": _divide,
    "%": lambda a, b: a - b * _divide(a, b),
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "<<": lambda a, b: a << min(b & _MASK, 64),
    ">>": lambda a, b: a >> min(b & _MASK, 64),
    "&": lambda a, b: a & b,
    "^": lambda a, b: a ^ b,
    "|": lambda a, b: a | b,
}

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "&&": lambda a, b: bool(a) and bool(b),
    "||": lambda a, b: bool(a) or bool(b),
}

_FLOATING: dict[str, Callable[[float, float], float]] = {
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
}


class _Evaluator:
    """Precedence climbing over the tokens of one expression."""

    def __init__(self, text: str) -> None:
        self.text = text.strip()
        self.tokens = [m for m in _TOKEN.finditer(self.text)]
        self.at = 0
        self.depth = 0

    def whole(self) -> Number:
        value = self.choice()
        if self.at < len(self.tokens):
            raise ConstantError("not a constant expression", self.text)
        return value

    def peek(self) -> str:
        return self.tokens[self.at].group().strip() if self.at < len(self.tokens) else ""

    def take(self, expected: str) -> None:
        if self.peek() != expected:
            raise ConstantError(f"constant expression lacks {expected!r}", self.text)
        self.at += 1

    def choice(self) -> Number:
        self.depth += 1
        if self.depth > _DEPTH:
            raise ConstantError("constant expression nested too deeply", self.text)
        condition = self.binary(1)
        if self.peek() == "?":
            self.at += 1
            yes = self.choice()
            self.take(":")
            no = self.choice()
            condition = yes if _truth(condition) else no
        self.depth -= 1
        return condition

    def binary(self, lowest: int) -> Number:
        left = self.unary()
        while (level := _PRECEDENCE.get(self.peek(), 0)) >= lowest:
            operator = self.peek()
            self.at += 1
            left = self.apply(operator, left, self.binary(level + 1))
        return left

    def apply(self, operator: str, left: Number, right: Number) -> Number:
        if operator in _COMPARE:
            a = left if isinstance(left, float) else left[0]
            b = right if isinstance(right, float) else right[0]
            return int(_COMPARE[operator](a, b)), False
        try:
            if isinstance(left, float) or isinstance(right, float):
                if operator not in _FLOATING:
                    raise ConstantError(f"{operator!r} needs integers", self.text)
                a = left if isinstance(left, float) else float(left[0])
                b = right if isinstance(right, float) else float(right[0])
                return float(_FLOATING[operator](a, b))
            unsigned = left[1] if operator in ("<<", ">>") else left[1] or right[1]
            a_int, b_int = (v & _MASK if unsigned else v for v in (left[0], right[0]))
            return _wrap(_ARITHMETIC[operator](a_int, b_int), unsigned)
        except ZeroDivisionError:
            raise ConstantError("division by zero in a constant expression", self.text) from None

    def unary(self) -> Number:
        self.depth += 1
        if self.depth > _DEPTH:
            raise ConstantError("constant expression nested too deeply", self.text)
        value = self.primary()
        self.depth -= 1
        return value

    def primary(self) -> Number:
        if self.at >= len(self.tokens):
            raise ConstantError("constant expression ends early", self.text)
        match = self.tokens[self.at]
        self.at += 1
        bits, decimal, integer, operator, other = match.groups()
        if bits:
            code, raw = ("<f", 4) if bits[1] in "fF" else ("<d", 8)
            return float(struct.unpack(code, int(bits[2:], 16).to_bytes(raw, "little"))[0])
        if decimal:
            return float(decimal)
        if integer:
            return _literal(integer)
        if other or operator not in _UNARY:
            raise ConstantError("not a constant expression", self.text)
        return _UNARY[operator](self)

    def parenthesis(self) -> Number:
        if self.peek() in (".s64", ".u64"):
            unsigned = self.peek() == ".u64"
            self.at += 1
            self.take(")")
            value = self.unary()
            return _wrap(_integer(value, self.text), unsigned)
        value = self.choice()
        self.take(")")
        return value

    def negate(self) -> Number:
        value = self.unary()
        return -value if isinstance(value, float) else _wrap(-value[0], value[1])

    def invert(self) -> Number:
        value = self.unary()
        if isinstance(value, float):
            raise ConstantError("'~' needs an integer", self.text)
        return _wrap(~value[0], value[1])


def _truth(value: Number) -> bool:
    return bool(value) if isinstance(value, float) else bool(value[0])


def _integer(value: Number, text: str) -> int:
    if not isinstance(value, float):
        return value[0]
    try:
        return int(value)
    except (OverflowError, ValueError):
        raise ConstantError("not an integer", text) from None


_UNARY: dict[str, Callable[[_Evaluator], Number]] = {
    "-": _Evaluator.negate,
    "+": lambda e: e.unary(),
    "!": lambda e: (int(not _truth(e.unary())), False),
    "~": _Evaluator.invert,
    "(": _Evaluator.parenthesis,
    "WARP_SZ": lambda e: (WARP_SIZE, False),
}
