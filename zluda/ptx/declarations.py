"""Variables and parameters (PTX ISA 5.4, 11.6)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from zluda.ptx.initializers import initialise
from zluda.ptx.module import Variable
from zluda.ptx.tokens import Tokens
from zluda.ptx.types import BY_SPELLING, ScalarType
from zluda.records import dataclass

LINKAGES = ("extern", "visible", "weak", "common")
SPACES = ("global", "const", "shared", "local", "param", "reg", "tex")
_POINTER_SPACES = ("global", "const", "shared", "local", "generic")


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
    return initialise(tokens, variable) if tokens.accept("=") else variable


def natural_alignment(kind: ScalarType, vector: int = 1) -> int:
    """The alignment in bytes of a variable without ``.align``: its (vector) type's size."""
    return max(kind.bits // 8, 1) * vector


def element_bytes(variable: Variable) -> int:
    """How many bytes ``v[1]`` lies behind ``v``: a scalar's, also where rows or vectors are counted, as ptxas
    has it. 0 for what is no array.
    """
    return max(variable.type.bits // 8, 1) if variable.shape else 0
