"""AMD's instruction pseudo-code (as its ISA manuals print it), run on one lane's operands.

    evaluate("D0.u32 = S0.u32 + S1.u32", {"S0": 1, "S1": 2}) == {"D0": (3, 32), …}

The language: typed readings of raw registers (``S0.f32``), bit ranges (``S0[15 : 0].f16``, reversed where the
first is the lower), sized literals (``16'1.0``, ``1'1U``), casts (``32'I(x)``), ``if``/``elsif``/``else``,
``for``, lambdas. Numbers are exact integers of a width, or NumPy's floats.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np


class NotInterpretedError(Exception):
    """Pseudo-code that describes something in words, or uses what is not part of an instruction's data."""


@dataclass(frozen=True)
class Number:
    """``kind`` U, I, B or F; ``raw`` the bits. A literal without a suffix takes the other operand's type."""

    kind: str
    width: int
    raw: int
    literal: bool = False

    @property
    def value(self) -> Any:
        if self.kind == "F":
            return np.array(self.raw, f"u{self.width // 8}").view(f"f{self.width // 8}")[()]
        if self.kind == "I" and self.raw >> self.width - 1:
            return self.raw - (1 << self.width)
        return self.raw

    def as_type(self, kind: str, width: int) -> Number:
        """The same number in another type; bits of a hexadecimal literal where floats are made of it."""
        if (kind, width) == (self.kind, self.width):
            return Number(kind, width, self.raw)
        if kind == "F":
            if self.kind in "UB" and not self.literal:
                return Number(kind, width, self.raw & (1 << width) - 1)
            return number("F", width, self.value)
        if self.kind == "F":
            if kind == "B":
                return Number(kind, width, self.raw & (1 << width) - 1)
            return number(kind, width, int(self.value) if np.isfinite(self.value) else 0)
        return number(kind, width, self.value if kind != "B" else self.raw)

    def as_bits(self, kind: str, width: int) -> Number:
        """The same bits read as another type; signed ones are extended by their sign."""
        raw = self.value if self.kind == "I" and kind == "I" else self.raw
        return Number(kind, width, raw & (1 << width) - 1)

    def __bool__(self) -> bool:
        return bool(self.value != 0)


def number(kind: str, width: int, value: Any, *, literal: bool = False) -> Number:
    if kind == "F":
        with np.errstate(all="ignore"):
            bits = np.array(value, "f8" if not isinstance(value, np.floating) else value.dtype)
            return Number("F", width, int(bits.astype(f"f{width // 8}").view(f"u{width // 8}")[()]), literal)
    return Number(kind, width, int(value) & (1 << width) - 1, literal)


TRUE, FALSE = Number("U", 1, 1), Number("U", 1, 0)
_TOKEN = re.compile(
    r"\s+|//[^\n]*|(?P<cast>\d+'[UIFB]\()|(?P<sized>\d+'-?(?:0x[0-9a-fA-F]+|\d+\.\d+|\d+)[UIF]?)"
    r"|(?P<declared>\d+'[UIFB])|(?P<number>0x[0-9a-fA-F]+(?:U?LL|U)?|\d+\.\d+F?|\d+(?:U?LL|U)?)|(?P<type>\.(?:bf16|[uifb]\d+)\b)"
    r"|(?P<name>[A-Za-z_][A-Za-z_0-9.]*?(?=\.(?:bf16|[uifb]\d+)\b)|[A-Za-z_][A-Za-z_0-9]*(?:\.IEEE|\.INVALID)?)"
    r"|(?P<op>\+:|\*\*|<<|>>|<>|<=|>=|==|!=|&&|\|\||[-+*|&]=|[-+*/%&|^~!?:=<>(){}\[\],;])"
)


def _tokens(text: str) -> list[tuple[str, str]]:
    found, place = [], 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise NotInterpretedError(text[place : place + 30])
        if match.lastgroup:
            found.append((match.lastgroup, match[0]))
        place = match.end()
    return found


class _Break(Exception):
    pass


class _Return(Exception):
    def __init__(self, value: Number) -> None:
        self.value = value


def _literal(text: str) -> Number:
    width, _, rest = text.rpartition("'")
    kind = "F" if "." in rest or (rest.endswith("F") and "x" not in rest) else "U" if "U" in rest else "I"
    digits = rest.rstrip("UL") if "x" in rest else rest.rstrip("UILF")
    if width:
        return number(kind, int(width), float(digits) if kind == "F" else int(digits, 0))
    if kind == "F":
        return number("F", 32 if rest.endswith("F") else 64, float(digits))
    wide = "LL" in rest
    if "x" in rest:
        return Number("U", 64 if wide else 32, int(digits, 0) & (1 << (64 if wide else 32)) - 1)
    return number(kind, 64 if wide else 32, int(digits), literal=rest[-1:] not in "UL")


@dataclass(frozen=True)
class Power(Number):
    """``2.0 ** exponent``, whatever the exponent: multiplied by, it scales."""

    exponent: int = 0

    def as_type(self, kind: str, width: int) -> Number:
        return Power(kind, width, 0, exponent=self.exponent)


class SignedZero(Number):
    """``+0.0`` or ``-0.0``: equal to that zero only."""


def _promoted(x: Number) -> Number:
    """Bits of no type are calculated with as 32-bit numbers at least."""
    return Number("U", max(x.width, 32), x.raw) if x.kind == "B" else x


def _common(x: Number, y: Number) -> tuple[Number, Number]:
    x, y = _promoted(x), _promoted(y)
    if x.literal and not y.literal:
        x = number(y.kind, y.width, x.value)
    elif y.literal and not x.literal:
        y = number(x.kind, x.width, y.value)
    if "F" in (x.kind, y.kind):
        width = max(n.width for n in (x, y) if n.kind == "F")
        return x.as_type("F", width), y.as_type("F", width)
    width = max(x.width, y.width)
    kind = "I" if x.kind == y.kind == "I" else "U"
    return x.as_type(kind, width), y.as_type(kind, width)


def _fma(x: Number, y: Number, z: Number) -> Number:
    values = [n.value for n in (x, y, z)]
    with np.errstate(all="ignore"):
        if not all(np.isfinite(v) for v in values):
            wide = [np.float64(v) for v in values]
            return number("F", x.width, wide[0] * wide[1] + wide[2])
        exact = Fraction(float(values[0])) * Fraction(float(values[1])) + Fraction(float(values[2]))
        if exact == 0:
            product = np.float64(values[0]) * np.float64(values[1])
            zero = product if product == 0 else np.float64(0.0)
            return number("F", x.width, zero + np.float64(values[2]) if product == 0 else zero)
    return number("F", x.width, _rounded(exact, x.width))


def _rounded(exact: Fraction, width: int) -> np.floating[Any]:
    """To nearest, ties to even."""
    kind = np.dtype(f"f{width // 8}")
    mantissa, tiny = np.finfo(kind).nmant, np.finfo(kind).minexp
    size = abs(exact)
    exponent = max(math.floor(math.log2(size.numerator) - math.log2(size.denominator)), tiny)
    while size >= Fraction(2) ** (exponent + 1):
        exponent += 1
    while exponent > tiny and size < Fraction(2) ** exponent:
        exponent -= 1
    step = Fraction(2) ** (exponent - mantissa)
    units = round(size / step)  # Python rounds halves to even
    scaled = Fraction(units) * step
    magnitude = math.inf if scaled > Fraction(float(np.finfo(kind).max)) else float(scaled)
    rounded: np.floating[Any] = kind.type(-magnitude if exact < 0 else magnitude)
    return rounded


def _float(name: str) -> Callable[..., Number]:
    return lambda x: number("F", x.width, getattr(np, name)(x.value))


def _ldexp(x: Number, n: Number) -> Number:
    with np.errstate(over="ignore", under="ignore"):
        return number("F", x.width, np.ldexp(x.value, int(n.value)))


_FIELDS = {16: (5, 10), 32: (8, 23), 64: (11, 52)}


def _exponent(x: Number) -> Number:
    bits, mantissa = _FIELDS[x.width]
    return number("I", 32, x.raw >> mantissa & (1 << bits) - 1)


def _frexp(x: Number) -> Number:
    return number("F", x.width, np.frexp(np.float64(x.value))[0] if x.width < 64 else np.frexp(x.value)[0])


def _clamped(x: Number, kind: str, width: int) -> Number:
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if kind == "I" else (0, (1 << width) - 1)
    value = x.value
    if x.kind == "F":
        value = float(value)
        value = 0 if math.isnan(value) else low if value < low else high if value > high else int(value)
    return number(kind, width, min(max(value, low), high))


def _norm(kind: str) -> Callable[..., Number]:
    def convert(x: Number) -> Number:
        low, scale = (-1.0, 32767.0) if kind == "I" else (0.0, 65535.0)
        value = 0.0 if np.isnan(x.value) else min(max(float(x.value), low), 1.0)
        return number(kind, 16, int(np.rint(np.dtype(f"f{x.width // 8}").type(value * scale))))

    return convert


def _is_signalling(x: Number) -> Number:
    mantissa = _FIELDS[x.width][1]
    return TRUE if np.isnan(x.value) and not x.raw >> mantissa - 1 & 1 else FALSE


def _truth(condition: Any) -> Number:
    return TRUE if condition else FALSE


def _round_even(x: Number) -> Number:
    return _truth(float(x.value) % 2 == 0)


FUNCTIONS: dict[str, Callable[..., Number]] = {
    "sqrt": _float("sqrt"),
    "floor": _float("floor"),
    "trunc": _float("trunc"),
    "fract": lambda x: number("F", x.width, x.value - np.floor(x.value)),
    "abs": lambda x: (
        Number(x.kind, x.width, x.raw & (1 << x.width - 1) - 1)
        if x.kind == "F"
        else number(x.kind, x.width, abs(x.value))
    ),
    "sign": lambda x: Number("U", 1, x.raw >> x.width - 1),
    "fma": _fma,
    "isNAN": lambda x: _truth(np.isnan(x.value)),
    "isSignalNAN": _is_signalling,
    "isQuietNAN": lambda x: _truth(np.isnan(x.value) and not _is_signalling(x)),
    "cvtToQuietNAN": lambda x: Number("F", x.width, x.raw | 1 << _FIELDS[x.width][1] - 1),
    "isEven": _round_even,
    "exponent": _exponent,
    "mantissa": _frexp,
    "ldexp": _ldexp,
    "signext_from_bit": lambda x, n: number(
        x.kind, x.width, Number("I", n.raw, x.raw & (1 << n.raw) - 1).value if n.raw else 0
    ),
    "signext": lambda x: number("I", 64, x.as_bits("I", x.width).value),
    "f16_to_snorm": _norm("I"),
    "f32_to_snorm": _norm("I"),
    "f16_to_unorm": _norm("U"),
    "f32_to_unorm": _norm("U"),
    "v_cvt_i16_f32": lambda x: _clamped(x, "I", 16),
    "v_cvt_u16_f32": lambda x: _clamped(x, "U", 16),
    "ABSDIFF": lambda x, y: number("U", 32, abs(x.raw - y.raw)),
}
_CONVERSION = re.compile(r"(?P<from>[uif])(\d+)_to_(?P<kind>[uif])(?P<width>\d+)")
_CONSTANTS = {
    "INF": math.inf,
    "PI": math.pi,
    "NAN": math.nan,
}


class Program:
    """One instruction's pseudo-code; ``others`` finds that of instructions it calls by name."""

    def __init__(self, text: str, others: Callable[[str], str | None]) -> None:
        self._tokens, self._others, self._at = _tokens(text), others, 0
        self.variables: dict[str, Number] = {}
        self._arrays: dict[str, list[Number]] = {}
        self._lambdas: dict[str, tuple[list[str], int]] = {}
        self._mode = "rn"

    # --- tokens ----------------------------------------------------------------------------------------

    def _peek(self) -> str:
        return self._tokens[self._at][1] if self._at < len(self._tokens) else ""

    def _next(self) -> tuple[str, str]:
        if self._at >= len(self._tokens):
            raise NotInterpretedError("ends early")
        self._at += 1
        return self._tokens[self._at - 1]

    def _take(self, text: str) -> bool:
        if self._peek() == text:
            self._at += 1
            return True
        return False

    def _need(self, text: str) -> None:
        if not self._take(text):
            raise NotInterpretedError(f"{text!r} expected, {self._peek()!r} found")

    # --- statements ------------------------------------------------------------------------------------

    def run(self, variables: Mapping[str, Number]) -> dict[str, Number]:
        """The variables after it."""
        self.variables, self._at = dict(variables), 0
        self._arrays.clear()
        self._statements(run=True)
        if self._at < len(self._tokens):
            raise NotInterpretedError(self._peek())
        return self.variables

    def _statements(self, *, run: bool) -> None:
        while self._peek() not in ("", "endif", "endfor", "else", "elsif", ")"):
            self._statement(run)
            self._take(";")

    def _statement(self, run: bool) -> None:
        if self._take("declare"):
            self._declaration()
        elif self._take("if"):
            self._if(run)
        elif self._take("for"):
            self._for(run)
        elif self._take("break"):
            if run:
                raise _Break
        elif self._take("return"):
            value = self._expression(run)
            if run:
                raise _Return(value)
        else:
            self._assignment(run)

    def _declaration(self) -> None:
        name = self._next()[1]
        self._need(":")
        width, kind = self._next()[1].split("'")
        if self._take("["):
            count = int(self._next()[1])
            self._need("]")
            self._arrays.setdefault(name, [Number(kind, int(width), 0)] * count)
        else:
            self.variables.setdefault(name, Number(kind, int(width), 0))

    def _if(self, run: bool) -> None:
        chosen = done = bool(self._expression(run))
        self._need("then")
        self._statements(run=run and chosen)
        while self._peek() in ("elsif", "else"):
            if self._take("elsif"):
                chosen = bool(self._expression(run and not done))
                self._need("then")
            else:
                self._need("else")
                chosen = True
            self._statements(run=run and not done and chosen)
            done = done or chosen
        self._need("endif")

    def _for(self, run: bool) -> None:
        name = self._next()[1]
        self._need("in")
        first = self._expression(run)
        self._need(":")
        last = self._expression(run)
        self._need("do")
        body = self._at
        self._statements(run=False)
        end = self._at
        if run:
            for i in range(first.value, last.value + 1):
                self.variables[name] = number("I", 32, i)
                self._at = body
                try:
                    self._statements(run=True)
                except _Break:
                    break
        self._at = end
        self._need("endfor")

    def _assignment(self, run: bool) -> None:
        if self._peek() == "{":
            self._concatenated(run)
            return
        kind, name = self._next()
        if kind != "name":
            raise NotInterpretedError(name)
        if self._peek() == "=" and self._tokens[self._at + 1][1] == "lambda":
            self._lambda(name)
            return
        place = self._place(run)
        operator = self._next()[1]
        if operator not in ("=", "+=", "-=", "|=", "&="):
            raise NotInterpretedError(operator)
        value = self._expression(run)
        if not run:
            return
        if operator != "=":
            old = self._read(name, place)
            value = self._binary(operator[0], old, value)
        self._write(name, place, value)

    def _concatenated(self, run: bool) -> None:
        self._need("{")
        targets = []
        while not self._take("}"):
            name = self._next()[1]
            targets.append((name, self._place(run)))
            self._take(",")
        self._need("=")
        value = self._expression(run)
        if run:
            for name, place in reversed(targets):
                kind, width = place[-1]
                self._write(name, place, value.as_bits(kind, width))
                value = Number("B", value.width, value.raw >> width)

    def _lambda(self, name: str) -> None:
        self._need("=")
        self._need("lambda")
        self._need("(")
        parameters = []
        while not self._take(")"):
            parameters.append(self._next()[1])
            self._take(",")
        self._need("(")
        self._lambdas[name] = (parameters, self._at)
        depth = 1
        while depth:
            token = self._next()
            depth += (token[1] == "(" or token[0] == "cast") - (token[1] == ")")

    # --- places: name[high : low].type -----------------------------------------------------------------

    def _place(self, run: bool) -> list[Any]:
        """What follows a name: (high, low) ranges and (kind, width) types, in order."""
        steps: list[Any] = []
        while True:
            if self._take("["):
                high = self._expression(run)
                width = self._expression(run) if self._take("+:") else None
                low = self._expression(run) if self._take(":") else None
                self._need("]")
                if run and width is not None:  # [low +: width]
                    steps.append(("range", high.value + width.value - 1, high.value))
                elif run:
                    steps.append(("range", high.value, low.value if low is not None else None))
                else:
                    steps.append(("range", 0, 0))
            elif self._at < len(self._tokens) and self._tokens[self._at][0] == "type":
                text = self._next()[1][1:]
                if text.startswith("bf"):
                    raise NotInterpretedError(text)
                steps.append((text[0].upper(), int(text[1:])))
            else:
                return steps

    def _variable(self, name: str) -> Number:
        if name in self.variables:
            return self.variables[name]
        if name.lstrip("+-") in _CONSTANTS:
            return number("F", 64, _CONSTANTS[name.lstrip("+-")])
        raise NotInterpretedError(name)

    def _read(self, name: str, steps: list[Any]) -> Number:
        value: Number
        if name in self._arrays and steps:
            index = steps[0][1]
            value, steps = self._arrays[name][index], steps[1:]
        elif name in _CONSTANTS and steps:
            return self._variable(name).as_type(*steps[0])
        else:
            value = self._variable(name)
        for step in steps:
            if step[0] == "range":
                high, low = step[1], step[2] if step[2] is not None else step[1]
                if high < low:
                    bits = [value.raw >> i & 1 for i in range(high, low + 1)]
                    value = Number("B", len(bits), sum(b << len(bits) - 1 - i for i, b in enumerate(bits)))
                else:
                    value = Number("B", high - low + 1, value.raw >> low & (1 << high - low + 1) - 1)
                    value = Number("U" if step[2] is None else "B", value.width, value.raw)
            else:
                value = value.as_bits(*step)
        return value

    def _write(self, name: str, steps: list[Any], value: Number) -> None:
        if name in self._arrays:
            old = self._arrays[name][steps[0][1]]
            self._arrays[name][steps[0][1]] = value.as_type(old.kind, old.width)
            return
        types = [step for step in steps if step[0] != "range"]
        ranges = [step for step in steps if step[0] == "range"]
        if types and not (types[-1][0] == "U" and types[-1][1] == 64 and ranges and ranges[0][2] is None):
            value = value.as_type(*types[-1])
        if not steps:
            old_type = self.variables.get(name)
            declared = old_type is not None and name not in ("D0", "tmp")
            if declared and old_type is not None:
                value = value.as_type(old_type.kind, old_type.width)
            self.variables[name] = value
            return
        if not ranges:
            self.variables[name] = value
            return
        high = ranges[0][1]
        low = ranges[0][2] if ranges[0][2] is not None else high
        low, high = min(low, high), max(low, high)
        old = self.variables.get(name, Number("B", 128, 0))
        field = (1 << high - low + 1) - 1
        raw = old.raw & ~(field << low) | (value.raw & field) << low
        self.variables[name] = Number(old.kind if old.kind != "F" else "B", max(old.width, high + 1), raw)

    # --- expressions -----------------------------------------------------------------------------------

    _LEVELS = (
        ("||",),
        ("&&",),
        ("|",),
        ("^",),
        ("&",),
        ("==", "!=", "<>"),
        ("<", "<=", ">", ">="),
        ("<<", ">>"),
        ("+", "-"),
        ("*", "/", "%"),
        ("**",),
    )

    def _expression(self, run: bool) -> Number:
        condition = self._level(0, run)
        if not self._take("?"):
            return condition
        chosen = self._expression(run and bool(condition))
        self._need(":")
        other = self._expression(run and not condition)
        return chosen if condition else other

    def _level(self, level: int, run: bool) -> Number:
        if level == len(self._LEVELS):
            return self._unary(run)
        value = self._level(level + 1, run)
        while self._peek() in self._LEVELS[level]:
            operator = self._next()[1]
            other = self._level(level + 1, run)
            value = self._binary(operator, value, other) if run else value
        return value

    def _binary(self, operator: str, x: Number, y: Number) -> Number:
        if operator in ("&&", "||"):
            return _truth(bool(x) and bool(y) if operator == "&&" else bool(x) or bool(y))
        if operator in ("<<", ">>"):
            x = _promoted(x)
            raw = x.value << y.raw if operator == "<<" else x.value >> y.raw
            return number(x.kind, x.width, raw)
        if operator == "**":
            return Power("F", x.width, 0, exponent=int(y.value))
        if operator == "*" and isinstance(y, Power):
            return FUNCTIONS["ldexp"](x, number("I", 32, y.exponent))
        zero = y
        x, y = _common(x, y)
        with np.errstate(all="ignore"):
            if operator == "==" and isinstance(zero, SignedZero):
                return _truth(x.raw == zero.raw)
            if operator in _COMPARE:
                return _truth(_COMPARE[operator](x.value, y.value))
            if operator in ("&", "|", "^"):
                return Number(
                    x.kind, x.width, {"&": x.raw & y.raw, "|": x.raw | y.raw, "^": x.raw ^ y.raw}[operator]
                )
            if operator == "/" and x.kind != "F":
                raise NotInterpretedError("integer division")
            result = {"+": lambda: x.value + y.value, "-": lambda: x.value - y.value,
                      "*": lambda: x.value * y.value, "/": lambda: x.value / y.value,
                      "%": lambda: x.value % y.value}[operator]()  # fmt: skip
        return number(x.kind, x.width, result)

    def _unary(self, run: bool) -> Number:
        if self._peek() in ("+", "-") and self._tokens[self._at + 1 : self._at + 2] == [("number", "0.0")]:
            sign = self._next()[1] == "-"
            self._next()
            return SignedZero("F", 64, int(sign) << 63)
        if self._take("-"):
            x = self._unary(run)
            if x.kind == "F":
                return Number("F", x.width, x.raw ^ 1 << x.width - 1)
            return number("I" if x.literal else x.kind, x.width, -x.value, literal=x.literal)
        if self._take("+"):
            return self._unary(run)
        if self._take("~"):
            x = self._unary(run)
            return Number(x.kind, x.width, ~x.raw & (1 << x.width) - 1)
        if self._take("!"):
            return _truth(not self._unary(run))
        return self._primary(run)

    def _primary(self, run: bool) -> Number:
        kind, text = self._next()
        if kind in ("number", "sized"):
            value = _literal(text)
        elif kind == "cast":
            width, letter = text[:-1].split("'")
            value = self._expression(run)
            self._need(")")
            value = value.as_type(letter, int(width)) if run else value
        elif text == "(":
            value = self._expression(run)
            self._need(")")
        elif text == "{":
            value = self._concatenation(run)
        elif kind == "name" and self._peek() == "(":
            value = self._call(text, run)
        elif kind == "name":
            place = self._place(run)
            return self._read(text, place) if run else FALSE
        else:
            raise NotInterpretedError(text)
        self.variables["$"] = value
        steps = self._place(run)
        return self._read("$", steps) if run and steps else value

    def _concatenation(self, run: bool) -> Number:
        raw, width = 0, 0
        while not self._take("}"):
            part = self._expression(run)
            raw, width = raw << part.width | part.raw, width + part.width
            self._take(",")
        return Number("B", width, raw)

    def _call(self, name: str, run: bool) -> Number:
        self._need("(")
        arguments = []
        while not self._take(")"):
            arguments.append(self._expression(run))
            self._take(",")
        if not run:
            return FALSE
        if name in self._lambdas:
            return self._call_lambda(name, arguments)
        conversion = _CONVERSION.fullmatch(name)
        with np.errstate(all="ignore"):
            if conversion is not None:
                return self._converted(arguments[0], conversion["kind"].upper(), int(conversion["width"]))
            if name in FUNCTIONS:
                return FUNCTIONS[name](*arguments)
        return self._instruction(name, arguments)

    def _converted(self, x: Number, kind: str, width: int) -> Number:
        if kind != "F":
            return _clamped(x, kind, width)
        if self.variables.get("ROUND_MODE") == Number("U", 2, 3) and width == 16:
            return _toward_zero(x)
        return number("F", width, x.value)

    def _call_lambda(self, name: str, arguments: list[Number]) -> Number:
        parameters, start = self._lambdas[name]
        back, outer = self._at, dict(self.variables)
        self.variables |= dict(zip(parameters, arguments, strict=True))
        self._at = start
        try:
            if self._tokens[start][1] in ("if", "declare", "for"):
                self._statements(run=True)
                raise NotInterpretedError(f"{name} returns nothing")
            return self._expression(True)
        except _Return as returned:
            return returned.value
        finally:
            self._at, self.variables = back, outer

    def _instruction(self, name: str, arguments: list[Number]) -> Number:
        text = self._others(name)
        if text is None:
            raise NotInterpretedError(name)
        sources = {f"S{i}": a.as_bits("B", max(a.width, 32)) for i, a in enumerate(arguments)}
        return Program(text, self._others).run(
            {k: v for k, v in self.variables.items() if k.isupper()} | sources
        )["D0"]


def _toward_zero(x: Number) -> Number:
    with np.errstate(all="ignore"):
        near = np.float16(x.value)
        if np.isfinite(x.value) and abs(np.float64(near)) > abs(np.float64(x.value)):
            near = np.nextafter(near, np.float16(0))
    return number("F", 16, near)


_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": lambda x, y: x == y,
    "!=": lambda x, y: x != y,
    "<>": lambda x, y: x < y or x > y,
    "<": lambda x, y: x < y,
    "<=": lambda x, y: x <= y,
    ">": lambda x, y: x > y,
    ">=": lambda x, y: x >= y,
}
