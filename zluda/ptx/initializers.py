"""Initial values of variables (PTX ISA 5.4.4): numbers, nested arrays, addresses of symbols."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace

from zluda.patterns import pattern
from zluda.ptx.constants import ConstantError, parse_immediate, parse_integer
from zluda.ptx.module import Immediate, Symbol, Variable
from zluda.ptx.source import Source
from zluda.ptx.tokens import Tokens
from zluda.ptx.types import ScalarType

_MASKED = pattern(r"mask\s*\((.*?)\)\s*\(\s*(.*)\s*\)", re.DOTALL)
_GENERIC = pattern(r"generic\s*\(\s*([\w$%.]+)\s*\)\s*(.*)", re.DOTALL)
_SYMBOLIC = pattern(r"([A-Za-z_$%][\w$]*)\s*([+-].*)?", re.DOTALL)

MAX_INITIALISED = 1 << 28
"""Largest variable with an initialiser, in bytes: what a text can ask the parser to allocate."""


def initialise(tokens: Tokens, variable: Variable) -> Variable:
    """The variable with the value that follows ``=``; raises :class:`zluda.errors.PtxError`."""
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
