"""Names inside a function body, and operand text to operands.

A ``{ … }`` block is a scope. Names declared in it are made unique in the whole function when they are
first met (``%r1`` of an inner block becomes ``%r1$1`` where the function has a ``%r1`` already), so that
no reader of the typed form needs to know of scopes. Within a scope, operand text maps to one operand
object, remembered in ``cache``: nearly every operand is found there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from zluda.patterns import pattern
from zluda.ptx.constants import ConstantError, parse_immediate, parse_integer
from zluda.ptx.module import (
    Address,
    Element,
    Immediate,
    Indexed,
    Label,
    Minus,
    Negated,
    Operand,
    Pair,
    Register,
    Selected,
    Sink,
    Symbol,
    Vector,
)
from zluda.ptx.special import SPECIAL_REGISTERS
from zluda.ptx.types import ScalarType

_NAME = pattern(r"[A-Za-z_$%][\w$]*")
_NAME_OFFSET = pattern(r"([A-Za-z_$%][\w$.]*)\s*([+-].*)?", re.DOTALL)
_INDEXED_NAME = pattern(r"([A-Za-z_$%][\w$]*)\s*\[(.*)\]", re.DOTALL)
_INDEX = pattern(r"\s*([A-Za-z_$%][\w$]*)\s*(?:\+(.*))?", re.DOTALL)
_SELECTOR = pattern(r"([A-Za-z_$%][\w$]*)\.(b[0-7]{1,4}|h[0-3]{1,2})")
_PIECE = pattern(r"\s*((?:\{[^{}]*\}|\[(?:[^\[\]{}]|\{[^{}]*\})*\]|\((?:[^()]|\([^()]*\))*\)|[^,{}\[\]])*)")

_DIGITS = "0123456789"
_COMPONENTS = {"x": 0, "y": 1, "z": 2, "w": 3, "r": 0, "g": 1, "b": 2, "a": 3}

SINK = Sink()


class OperandError(Exception):
    """Operand text that names nothing or has no form; ``text`` is the offending piece."""

    def __init__(self, message: str, text: str, expected: str) -> None:
        super().__init__(message)
        self.message, self.text, self.expected = message, text, expected


def split_operands(text: str) -> list[str]:
    """Split at the commas that stand outside brackets."""
    pieces: list[str] = []
    position = 0
    while True:
        match = _PIECE.match(text, position)
        assert match is not None  # the pattern accepts the empty string
        position = match.end()
        if position < len(text) and text[position] != ",":
            raise OperandError("unbalanced bracket", text[position:].strip(), "matching brackets")
        pieces.append(match.group(1))
        if position >= len(text):
            return pieces
        position += 1


class Names:
    """What one function has declared so far: unique names and the finished registers of all scopes.

    ``module_symbol`` gives the size in bytes of an element of a variable of the module (0 for a function),
    None for a name that the module does not declare; ``element_bytes`` the same of the function's own, and
    ``spaces`` the state spaces of those.
    """

    def __init__(self, module_symbol: Callable[[str], int | None]) -> None:
        self.module_symbol = module_symbol
        self.element_bytes: dict[str, int] = {}
        self.spaces: dict[str, str] = {}
        self.used: set[str] = set()
        self.odd_ranges = False
        self.registers: dict[str, ScalarType] = {}

    def unique(self, name: str) -> str:
        """``name``, or ``name$1``, ``name$2``, … where the function has it already."""
        candidate, n = name, 0
        while candidate in self.used:  # mostly not
            n += 1
            candidate = f"{name}${n}"
        self.used.add(candidate)
        return candidate

    def register(self, name: str, kind: ScalarType) -> Register:
        if name in self.used:
            name = self.unique(name)
        else:
            self.used.add(name)
        self.registers[name] = kind
        return Register(name, kind)


class Scope:
    """One block: its own names, and the enclosing scope's behind them."""

    def __init__(self, names: Names, parent: Scope | None = None) -> None:
        self.names, self.parent = names, parent
        self.cache: dict[str, Operand] = {}
        self.declared: dict[str, Operand] = {}
        self.ranges: dict[str, tuple[int, ScalarType, int]] = {}
        if parent is None:
            self.cache["_"] = SINK

    # --- declarations

    def declare_label(self, name: str) -> None:
        self.declared[name] = Label(self.names.unique(name))

    def declare_symbol(self, name: str, space: str, element_bytes: int) -> str:
        """Declare a variable or parameter; returns its unique name."""
        symbol = Symbol(self.names.unique(name))
        self.names.spaces[symbol.name] = space
        self.names.element_bytes[symbol.name] = element_bytes
        self._forget(name)
        self.declared[name] = symbol
        return symbol.name

    def declare_register(self, name: str, kind: ScalarType, vector: int = 1) -> None:
        self._forget(name)
        self.declared[name] = self._make(name, kind, vector)

    def declare_range(self, prefix: str, count: int, kind: ScalarType, vector: int = 1) -> None:
        """``prefix<count>``: registers prefix0 … prefix(count-1), made when first used."""
        if any(prefix in outer.ranges for outer in self._chain()):
            self.cache.clear()
            self.cache["_"] = SINK
        self.ranges[prefix] = (count, kind, vector)
        self.names.odd_ranges |= prefix[-1].isdecimal()

    def _forget(self, name: str) -> None:
        """Operands already resolved to an outer ``name`` are resolved anew."""
        if self.find(name) is not None:
            self.cache.clear()
            self.cache["_"] = SINK

    def _make(self, name: str, kind: ScalarType, vector: int) -> Operand:
        if vector == 1:
            return self.names.register(name, kind)
        base = self.names.unique(name)
        return Vector(tuple(self.names.register(f"{base}.{c}", kind) for c in "xyzw"[:vector]))

    # --- look-up

    def _chain(self) -> Iterable[Scope]:
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    def find(self, name: str) -> Operand | None:
        """What a name stands for, innermost scope first; None when nothing has declared it."""
        for scope in self._chain():
            found = scope.declared.get(name)
            if found is None and scope.ranges:
                found = scope._from_range(name)
            if found is not None:
                return found
        special = SPECIAL_REGISTERS.get(name)
        if special is not None:
            return special
        return None if self.names.module_symbol(name) is None else Symbol(name)

    def _from_range(self, name: str) -> Operand | None:
        digits = len(name)
        while digits > 0 and name[digits - 1].isdecimal():
            digits -= 1
        for cut in range(digits, len(name)):
            entry = self.ranges.get(name[:cut])
            if entry is not None:
                made = self._indexed_register(name, name[cut:], entry)
                if made is not None:
                    return made
        return None

    # --- operands

    def operand(self, text: str) -> Operand:
        """The operand of a piece of text (white space around it allowed); raises :class:`OperandError`."""
        cache = self.cache
        found = cache.get(text)
        if found is None:
            name = text.strip()
            found = cache.get(name) or self._register(name) or self._parse(name)
            cache[name] = cache[text] = found
        return found

    def _register(self, name: str) -> Operand | None:
        """The usual case, quickly: a register of a range such as ``%r<100>`` met for the first time."""
        prefix = name.rstrip(_DIGITS)
        scope: Scope | None = None if self.names.odd_ranges else self
        while scope is not None:
            found = scope.declared.get(name)
            if found is not None:
                return found
            entry = scope.ranges.get(prefix)
            if entry is not None:
                return scope._indexed_register(name, name[len(prefix) :], entry)
            scope = scope.parent
        return None

    def _indexed_register(self, name: str, index: str, entry: tuple[int, ScalarType, int]) -> Operand | None:
        count, kind, vector = entry
        if not index or (index[0] == "0" and len(index) > 1) or len(index) > 9 or int(index) >= count:
            return None
        made = self.names.register(name, kind) if vector == 1 else self._make(name, kind, vector)
        self.declared[name] = made
        return made

    def _parse(self, text: str) -> Operand:
        if not text:
            raise OperandError("missing operand", "", "an operand")
        handler = _BRACKETS.get(text[0])
        if handler is not None:
            return handler(self, text)
        if text == "_":
            return SINK
        if "|" in text and _NAME.match(text):
            first, _, second = text.partition("|")
            return Pair(self.operand(first), self.operand(second))
        if text[0].isalpha() or text[0] in "_$%":
            named = self._named(text)
            if named is not None:
                return named
        return self._immediate(text)

    def _immediate(self, text: str) -> Immediate:
        try:
            return parse_immediate(text)
        except ConstantError as error:
            name = _NAME.fullmatch(text)
            if name:
                raise OperandError(
                    "undeclared name", text, "a declared register, variable or label"
                ) from None
            raise OperandError(error.message, text, "an operand") from None

    def _named(self, text: str) -> Operand | None:
        found = self.find(text)
        if found is not None:
            return found
        match = _NAME_OFFSET.fullmatch(text)
        if match:
            base = self.find(match.group(1)) or self._component(match.group(1))
            if base is not None:
                return base if match.group(2) is None else self._displaced(base, match.group(2), text)
        match = _INDEXED_NAME.fullmatch(text)
        if match:
            return self._element(match.group(1), match.group(2), text)
        return None

    def _component(self, text: str) -> Operand | None:
        """``v.x`` of a vector register, ``a.b0`` of a video operand."""
        name, _, component = text.rpartition(".")
        base = self.find(name) if name else None
        if isinstance(base, Vector) and _COMPONENTS.get(component, 9) < len(base.elements):
            return base.elements[_COMPONENTS[component]]
        if isinstance(base, Register) and _SELECTOR.fullmatch(text):
            return Selected(base, component)
        return None

    def _displaced(self, base: Operand, offset: str, text: str) -> Operand:
        if not isinstance(base, Symbol):
            raise OperandError("only an address may have an offset", text, "a register without offset")
        return Symbol(base.name, base.offset + self._offset(offset, text))

    def _element(self, name: str, index: str, text: str) -> Operand | None:
        """``v[2]``, ``v[%r1+2]``: the address of an element, counted in elements (PTX ISA 6.4.2)."""
        base = self.find(name)
        if not isinstance(base, Symbol):
            return None
        own = self.names.element_bytes.get(base.name)
        size = self.names.module_symbol(name) if own is None else own
        if not size:
            raise OperandError("not an array", text, "an array before [index]")
        match = _INDEX.fullmatch(index)
        register = self.find(match.group(1)) if match else None
        if match and isinstance(register, Register):
            if register.type.kind not in "bus" or register.type.bits > 64 or "x" in register.type.spelling:
                raise OperandError("not an index", text, "an integer register of 8 to 64 bits")
            first = self._offset(match.group(2), text) if match.group(2) else 0
            return Element(base, register, size, first)
        return Symbol(base.name, base.offset + size * self._offset(index, text))

    def _offset(self, text: str, whole: str) -> int:
        try:
            return parse_integer(text)
        except ConstantError as error:
            raise OperandError(error.message, whole, "an integer offset") from None

    def _address(self, text: str) -> Operand:
        inner = self._inside(text, "]")
        pieces = split_operands(inner)
        if len(pieces) > 1:
            *objects, coordinates = (self.operand(piece) for piece in pieces)
            return Indexed(tuple(objects), coordinates)
        match = _NAME_OFFSET.fullmatch(inner)
        base: Operand | None = None
        if match:
            base = self.find(match.group(1)) or self._component(match.group(1))
        if match and base is not None:
            offset = self._offset(match.group(2), text) if match.group(2) else 0
            if isinstance(base, Symbol):
                return Address(Symbol(base.name), base.offset + offset)
            if isinstance(base, Register):
                return Address(base, offset)
            raise OperandError("not an address", text, "a register, variable or constant")
        return Address(self._immediate(inner))

    def _vector(self, text: str) -> Operand:
        vector, bar, predicate = text.rpartition("|")
        if bar and vector.rstrip().endswith("}"):  # tex's residence predicate
            return Pair(self.operand(vector), self.operand(predicate))
        inner = self._inside(text, "}")
        if not inner:
            raise OperandError("empty vector", text, "{a, b, …}")
        return Vector(tuple(self.operand(piece) for piece in split_operands(inner)))

    def _negated(self, text: str) -> Operand:
        found = self.operand(text[1:])
        if isinstance(found, Register):
            return Negated(found)
        return self._immediate(text)

    def _minus(self, text: str) -> Operand:
        """``-a`` of a video operand, or a negative constant."""
        found = self._named(text[1:].lstrip()) if text[1:2] not in "0123456789.(" else None
        if isinstance(found, Register):
            return Minus(found, "-")
        if isinstance(found, Selected):
            return Minus(found.operand, "-" + found.selector)
        return self._immediate(text)

    def _inside(self, text: str, close: str) -> str:
        if text[-1] != close:
            raise OperandError("unbalanced bracket", text, f"{close!r} at its end")
        return text[1:-1].strip()


_BRACKETS: dict[str, Callable[[Scope, str], Operand]] = {
    "[": Scope._address,
    "{": Scope._vector,
    "!": Scope._negated,
    "-": Scope._minus,
}
