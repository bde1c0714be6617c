"""The operands of ``call`` (PTX ISA 9.7.12.5): ``(returns), function, (arguments), prototype``."""

from __future__ import annotations

from collections.abc import Callable

from zluda.ptx.module import Address, Label, Negated, Operand, Register, Symbol, Vector
from zluda.ptx.scope import split_operands

Resolve = Callable[[str, int], Operand]
"""Operand text and its offset in the source to the operand."""


class CallError(Exception):
    """A call without a form; ``offset`` is the place in the source."""

    def __init__(self, offset: int, message: str, text: str, expected: str) -> None:
        super().__init__(message)
        self.offset, self.message, self.text, self.expected = offset, message, text, expected


def parse_call(text: str, offset: int, resolve: Resolve) -> tuple[Operand, ...]:
    """(returns, callee, arguments[, prototype or table]); absent lists are empty vectors.

    ``offset`` is where ``text`` stands in the source. Raises :class:`CallError`, and
    :class:`~zluda.ptx.scope.OperandError` for unbalanced brackets.
    """
    pieces = [piece.strip() for piece in split_operands(text)]
    returns = _list(pieces.pop(0), text, offset, resolve) if pieces[0].startswith("(") else Vector(())
    if not pieces or not pieces[0]:
        raise CallError(offset, "call without a function", text.strip(), "a function")
    name = pieces.pop(0)
    callee = resolve(name, offset + text.find(name))
    if not isinstance(callee, Symbol | Register):
        raise CallError(offset + text.find(name), "cannot be called", name, "a function or a register")
    has_list = bool(pieces) and pieces[0].startswith("(")
    arguments = _list(pieces.pop(0), text, offset, resolve) if has_list else Vector(())
    if not pieces:
        return returns, callee, arguments
    prototype = resolve(pieces[0], offset + text.rfind(pieces[0]))
    if len(pieces) > 1 or not isinstance(prototype, Label | Symbol):
        raise CallError(offset, "malformed call", text.strip(), "(returns), name, (arguments), label")
    return returns, callee, arguments, prototype


def _list(piece: str, text: str, offset: int, resolve: Resolve) -> Vector:
    """``(a, b)``: parameters, registers or constants."""
    start = offset + text.find(piece)
    if not piece.endswith(")"):
        raise CallError(start, "unbalanced bracket", piece, "')' at its end")
    inner = piece[1:-1].strip()
    if not inner:
        return Vector(())
    words = [word.strip() for word in split_operands(inner)]
    operands = tuple(resolve(word, start + piece.find(word)) for word in words)
    for word, operand in zip(words, operands, strict=True):
        if isinstance(operand, Address | Label | Negated):
            raise CallError(start, "cannot be passed to a call", word, "a parameter, register or constant")
    return Vector(operands)
