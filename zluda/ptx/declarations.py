"""Variables, parameters and function headers (PTX ISA 5.4, 11)."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from zluda.ptx.constants import ConstantError, parse_immediate, parse_integer
from zluda.ptx.module import Immediate, Symbol, Variable
from zluda.ptx.source import Source
from zluda.ptx.types import BY_SPELLING, ScalarType

LINKAGES = ("extern", "visible", "weak", "common")
SPACES = ("global", "const", "shared", "local", "param", "reg", "tex")
_POINTER_SPACES = ("global", "const", "shared", "local", "generic")

_TOKEN = re.compile(r'\s*(\.[A-Za-z_]\w*(?:::\w+)*|[A-Za-z_$%][\w$]*|"[^"]*"|\d\w*(?:\.\d\w*)?|\S)')
_MASKED = re.compile(r"mask\s*\((.*?)\)\s*\(\s*(.*)\s*\)", re.DOTALL)
_GENERIC = re.compile(r"generic\s*\(\s*([\w$%.]+)\s*\)\s*(.*)", re.DOTALL)
_SYMBOLIC = re.compile(r"([A-Za-z_$%][\w$]*)\s*([+-].*)?", re.DOTALL)

MAX_INITIALISED = 1 << 28
"""Largest variable with an initialiser, in bytes: what a text can ask the parser to allocate."""


class Tokens:
    """The tokens of one declaration, with their places."""

    def __init__(self, source: Source, start: int, end: int) -> None:
        self.source, self.start, self.end = source, start, end
        self.at = start
        self.token, self.offset, self.after = "", start, start
        self.advance()

    def advance(self) -> str:
        """Move on; returns the token left behind."""
        previous = self.token
        match = _TOKEN.match(self.source.code, self.after, self.end)
        if match:
            self.token, self.offset, self.after = match.group(1), match.start(1), match.end(1)
        else:
            self.token, self.offset, self.after = "", self.end, self.end
        return previous

    def accept(self, token: str) -> bool:
        if self.token != token:
            return False
        self.advance()
        return True

    def expect(self, token: str) -> None:
        if not self.accept(token):
            self.fail(f"{token!r}")

    def name(self) -> str:
        if not re.match(r"[A-Za-z_$%]", self.token):
            self.fail("a name")
        return self.advance()

    def integer(self) -> int:
        """A constant up to the next ``,`` ``;`` ``)`` ``]`` ``>`` or directive."""
        start = self.offset
        while self.token and self.token not in ",;)]>" and not re.match(r"[.A-Za-z_$%]", self.token):
            self.advance()
        text = self.source.code[start : self.offset]
        try:
            value = parse_integer(text)
        except ConstantError as error:
            raise self.source.error(start, error.message, text or self.token, "an integer") from None
        return value

    def fail(self, expected: str, message: str = "unexpected text") -> None:
        """Raise at the present token."""
        shown = self.token or self.source.code[self.offset : self.offset + 20].strip()
        raise self.source.error(self.offset, message, shown, expected)


@dataclass(slots=True)
class _Prefix:
    """What stands before a variable's name."""

    space: str = ""
    align: int = 0
    vector: int = 1
    type: ScalarType | None = None
    linkage: str = ""
    attributes: list[str] = field(default_factory=list)
    pointer: bool = False


def parse_variables(tokens: Tokens, *, space: str = "", many: bool = True) -> list[Variable]:
    """``[.linkage] .space [.align n] [.attribute(…)] [.vN] .type name[dims] [= init], …`` to ``;`` or ``)``.

    ``space`` is the state space where the directive has been read already; ``many`` allows several names.
    """
    prefix = _prefix(tokens, space)
    variables = [_one_variable(tokens, prefix)]
    while many and tokens.accept(","):
        variables.append(_one_variable(tokens, prefix))
    return variables


def _prefix(tokens: Tokens, space: str) -> _Prefix:
    prefix = _Prefix(space=space)
    while tokens.token.startswith("."):
        _prefix_word(tokens, prefix)
    if prefix.type is None:
        tokens.fail("a type such as .u32")
    if not prefix.space:
        tokens.fail("a state space such as .global")
    return prefix


def _prefix_word(tokens: Tokens, prefix: _Prefix) -> None:
    word = tokens.token[1:]
    if word in LINKAGES and not prefix.linkage:
        prefix.linkage = word
        tokens.advance()
    elif prefix.pointer and word in _POINTER_SPACES:
        prefix.attributes.append(f"ptr.{word}")
        tokens.advance()
    elif word in SPACES and not prefix.space:
        prefix.space = "global" if word == "tex" else word
        tokens.advance()
        if tokens.accept("["):  # .const[bank], PTX ISA 5.1.2
            prefix.attributes.append(f"bank({tokens.integer()})")
            tokens.expect("]")
    elif word == "align":
        tokens.advance()
        _alignment(tokens, prefix)
    elif word == "ptr":
        prefix.pointer = True
        prefix.attributes.append("ptr")
        tokens.advance()
    elif word == "attribute":
        tokens.advance()
        prefix.attributes.extend(attribute_list(tokens))
    elif word in ("v2", "v4") and prefix.vector == 1:
        prefix.vector = int(word[1:])
        tokens.advance()
    elif word in BY_SPELLING and prefix.type is None:
        prefix.type = BY_SPELLING[word]
        tokens.advance()
    else:
        tokens.fail("a state space, .align, a type or a name")


def _alignment(tokens: Tokens, prefix: _Prefix) -> None:
    offset = tokens.offset
    value = tokens.integer()
    if value <= 0 or value & (value - 1):
        raise tokens.source.error(offset, "not an alignment", str(value), "a power of two")
    if prefix.pointer:
        prefix.attributes.append(f"ptr.align({value})")
    else:
        prefix.align = value


def attribute_list(tokens: Tokens) -> Iterator[str]:
    """``(.managed, .unified(1, 2))`` → ``"managed"``, ``"unified(1, 2)"``."""
    tokens.expect("(")
    while True:
        if not tokens.token.startswith("."):
            tokens.fail("an attribute such as .managed")
        word = tokens.advance()[1:]
        if tokens.accept("("):
            start = tokens.offset
            while tokens.token and tokens.token != ")":
                tokens.advance()
            arguments = " ".join(tokens.source.code[start : tokens.offset].split())
            tokens.expect(")")
            word = f"{word}({arguments})"
        yield word
        if not tokens.accept(","):
            break
    tokens.expect(")")


def _one_variable(tokens: Tokens, prefix: _Prefix) -> Variable:
    offset = tokens.offset
    name = tokens.name()
    shape: list[int] = []
    while tokens.accept("["):
        size_at = tokens.offset
        size = 0 if tokens.token == "]" else tokens.integer()
        if not 0 <= size < 1 << 48:
            raise tokens.source.error(size_at, "not an array size", str(size), "a size from 0")
        shape.append(size)
        tokens.expect("]")
    assert prefix.type is not None
    variable = Variable(
        name,
        prefix.space,
        prefix.type,
        prefix.align or natural_alignment(prefix.type, prefix.vector),
        tuple(shape),
        prefix.vector,
        prefix.linkage,
        attributes=tuple(prefix.attributes),
        location=tokens.source.location(offset),
    )
    return _initialise(tokens, variable) if tokens.accept("=") else variable


def natural_alignment(kind: ScalarType, vector: int = 1) -> int:
    """The alignment in bytes of a variable without ``.align``: its (vector) type's size."""
    return max(kind.bits // 8, 1) * vector


def element_bytes(variable: Variable) -> int:
    """Size in bytes of one (vector) element of a variable."""
    return natural_alignment(variable.type, variable.vector)


# --- initialisers ----------------------------------------------------------------------------------


def _initialise(tokens: Tokens, variable: Variable) -> Variable:
    start, end = tokens.offset, _initialiser_end(tokens)
    if variable.type.kind == "ref":
        text = " ".join(tokens.source.code[start:end].split())
        return replace(variable, attributes=(*variable.attributes, f"init({text})"))
    cells = _cells(tokens.source, start, end, variable)
    size = max(variable.type.bits // 8, 1)
    if variable.shape and variable.shape[0] == 0:
        row = max(replace(variable, shape=variable.shape[1:]).size // size, 1)
        variable = replace(variable, shape=(-(-len(cells) // row), *variable.shape[1:]))
    if len(cells) * size > variable.size:
        raise tokens.source.error(start, "too many initial values", variable.name, f"{variable.size // size}")
    if variable.size > MAX_INITIALISED:
        raise tokens.source.error(start, "initialised variable too large", variable.name)
    data, relocations = _encode(tokens.source, start, cells, variable)
    return replace(variable, initializer=data.ljust(variable.size, b"\0"), relocations=relocations)


def _initialiser_end(tokens: Tokens) -> int:
    """Move past the initialiser; its end is the next ``,`` or ``;`` outside braces and parentheses."""
    code, depth = tokens.source.code, 0
    for match in re.compile(r"[{}(),;]").finditer(code, tokens.offset, tokens.end):
        character = match.group()
        if character in "{(":
            depth += 1
        elif character in "})":
            depth -= 1
        if depth < 0 or (depth == 0 and character in ",;"):
            end = match.start()
            break
    else:
        end = tokens.end
    tokens.after = end
    tokens.advance()
    return end


def _cells(source: Source, start: int, end: int, variable: Variable) -> list[str]:
    """The scalar values in order, nested braces laid out by the shape (PTX ISA 5.4.4)."""
    text = source.code[start:end].strip()
    if not text.startswith("{"):
        return [text]
    if not text.endswith("}"):
        raise source.error(start, "initialiser without '}'", text[:40], "'}'")
    inner = text[1:-1]
    dimensions = list(variable.shape[1:]) + ([variable.vector] if variable.vector > 1 else [])
    return _flatten(source, start, inner, dimensions)


def _flatten(source: Source, start: int, text: str, dimensions: Sequence[int]) -> list[str]:
    if "{" not in text:
        cells = text.split(",") if "(" not in text else _split(text)
        if not cells[-1].strip():
            cells.pop()
        return cells
    if not dimensions:
        raise source.error(start, "initialiser nested deeper than the array", "{", "a value")
    row = 1
    for n in dimensions:
        row *= n
    if row > MAX_INITIALISED:
        raise source.error(start, "initialised variable too large", text[:20])
    cells = []
    for piece in _split(text):
        piece = piece.strip()
        if piece.startswith("{") and piece.endswith("}"):
            inner = _flatten(source, start, piece[1:-1], dimensions[1:])
            cells += inner + ["0"] * (row - len(inner))
        elif piece:
            cells.append(piece)
    return cells


def _split(text: str) -> list[str]:
    """Split at commas outside braces and parentheses."""
    pieces, depth, start = [], 0, 0
    for match in re.finditer(r"[{}(),]", text):
        character = match.group()
        if character in "{(":
            depth += 1
        elif character in "})":
            depth -= 1
        elif depth == 0:
            pieces.append(text[start : match.start()])
            start = match.end()
    pieces.append(text[start:])
    return pieces


def _encode(
    source: Source, start: int, cells: list[str], variable: Variable
) -> tuple[bytes, tuple[tuple[int, Symbol], ...]]:
    size = max(variable.type.bits // 8, 1)
    relocations: list[tuple[int, Symbol]] = []
    masked: dict[int, tuple[Symbol, int]] = {}
    data = bytearray()
    for i, cell in enumerate(cells):
        try:
            data += _encode_cell(cell.strip(), variable.type, size)
            continue
        except ConstantError as error:
            failure = error
        byte_mask = _MASKED.fullmatch(cell.strip())
        symbol = _symbol(byte_mask.group(2) if byte_mask else cell.strip())
        if symbol is None:
            raise source.error(start, failure.message, cell.strip(), f"a .{variable.type} value or a symbol")
        data += bytes(size)
        if byte_mask:
            masked[i * size] = (symbol, _shift_of(source, start, byte_mask.group(1)))
        else:
            relocations.append((i * size, symbol))
    relocations += _whole_pointers(source, start, masked, size)
    return bytes(data), tuple(sorted(relocations, key=lambda r: r[0]))


def _encode_cell(text: str, kind: ScalarType, size: int) -> bytes:
    if kind.kind != "f" and text.isdecimal() and (text[0] != "0" or text == "0") and len(text) < 20:
        return (int(text) & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    value = parse_immediate(text)
    if value.float_bits is None and (
        kind.kind != "f" or size not in _FLOAT_CODES or text[:2] in ("0x", "0X")
    ):
        return (value.value & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    if value.float_bits == 8 * size:
        return value.value.to_bytes(size, "little")
    if size not in _FLOAT_CODES:
        raise ConstantError(f"not a .{kind} value", text)
    return _encode_float(_as_float(value), size)


def _as_float(value: Immediate) -> float:
    if value.float_bits is None:
        return float(value.value)
    code, size = ("<f", 4) if value.float_bits == 32 else ("<d", 8)
    return float(struct.unpack(code, value.value.to_bytes(size, "little"))[0])


_FLOAT_CODES = {2: "<e", 4: "<f", 8: "<d"}


def _encode_float(value: float, size: int) -> bytes:
    try:
        return struct.pack(_FLOAT_CODES[size], value)
    except OverflowError:
        return struct.pack(_FLOAT_CODES[size], float("inf") if value > 0 else float("-inf"))


def _symbol(text: str) -> Symbol | None:
    """``name``, ``name+4``, ``generic(name)``, ``generic(name)+4``."""
    match = _GENERIC.fullmatch(text) or _SYMBOLIC.fullmatch(text)
    if match is None:
        return None
    offset = (match.group(2) or "").strip()
    try:
        return Symbol(match.group(1), parse_integer(offset) if offset else 0)
    except ConstantError:
        return None


def _shift_of(source: Source, start: int, mask: str) -> int:
    """Which byte of the address ``mask(0xFF00)`` takes."""
    try:
        value = parse_integer(mask)
    except ConstantError as error:
        raise source.error(start, error.message, mask, "a mask such as 0xFF00") from None
    for byte in range(8):
        if value & ((1 << 64) - 1) == 0xFF << 8 * byte:
            return byte
    raise source.error(start, "not a mask of one byte", mask, "0xFF shifted by whole bytes")


def _whole_pointers(
    source: Source, start: int, masked: dict[int, tuple[Symbol, int]], size: int
) -> Iterator[tuple[int, Symbol]]:
    """Eight ``mask(…)(symbol)`` bytes in a row are one pointer."""
    offsets = sorted(masked)
    for i in range(0, len(offsets), 8):
        group = offsets[i : i + 8]
        symbols = {masked[o][0] for o in group}
        if (
            size != 1
            or len(symbols) != 1
            or [masked[o][1] for o in group] != list(range(8))
            or group[-1] - group[0] != 7
        ):
            raise source.error(start, "masked symbol bytes that are no whole pointer", symbols.pop().name)
        yield group[0], symbols.pop()


# --- function headers ------------------------------------------------------------------------------


@dataclass(slots=True)
class Header:
    """Everything of a function before its body."""

    name: str
    is_entry: bool
    linkage: str
    parameters: tuple[Variable, ...]
    returns: tuple[Variable, ...]
    directives: dict[str, tuple[int, ...]]
    pragmas: list[str] = field(default_factory=list)
    attributes: list[str] = field(default_factory=list)


_DIRECTIVES = frozenset(
    {
        "maxntid",
        "reqntid",
        "minnctapersm",
        "maxnctapersm",
        "maxnreg",
        "maxclusterrank",
        "reqnctapercluster",
        "explicitcluster",
        "blocksareclusters",
        "noreturn",
        "abi_preserve",
        "abi_preserve_control",
    }
)


def parse_header(source: Source, start: int, end: int) -> Header:
    """``[.linkage] .entry|.func [(returns)] name [(parameters)] directives``."""
    tokens = Tokens(source, start, end)
    linkage = ""
    while tokens.token[1:] in LINKAGES:
        linkage = tokens.advance()[1:]
    is_entry = tokens.token == ".entry"
    if tokens.token not in (".entry", ".func"):
        tokens.fail(".entry or .func")
    tokens.advance()
    attributes = list(attribute_list(tokens)) if tokens.accept(".attribute") else []
    returns = parameter_list(tokens) if tokens.token == "(" else ()
    directives: dict[str, tuple[int, ...]] = {}
    if tokens.accept(".noreturn"):
        directives["noreturn"] = ()
    header = Header(tokens.name(), is_entry, linkage, (), returns, directives, [], attributes)
    if tokens.token == "(":
        header.parameters = parameter_list(tokens)
    while tokens.token:
        _directive(tokens, header)
    return header


def parameter_list(tokens: Tokens) -> tuple[Variable, ...]:
    """``(.param .u64 a, .reg .b32 b)``."""
    tokens.expect("(")
    parameters: list[Variable] = []
    while tokens.token != ")":
        parameters += parse_variables(tokens, many=False)
        if not tokens.accept(","):
            break
    tokens.expect(")")
    return tuple(parameters)


def _directive(tokens: Tokens, header: Header) -> None:
    word = tokens.token
    if word == ".pragma":
        tokens.advance()
        header.pragmas.append(tokens.advance().strip('"'))
        tokens.accept(";")
    elif word == ".attribute":
        tokens.advance()
        header.attributes += attribute_list(tokens)
    elif word[:1] == "." and word[1:] in _DIRECTIVES:
        tokens.advance()
        header.directives[word[1:]] = _integers(tokens)
        tokens.accept(";")
    else:
        tokens.fail("a directive such as .maxntid, or the body")


def _integers(tokens: Tokens) -> tuple[int, ...]:
    values: list[int] = []
    while tokens.token and tokens.token[0].isdigit():
        values.append(tokens.integer())
        if not tokens.accept(","):
            break
    return tuple(values)
