"""Texture and surface instructions (PTX ISA 9.7.10, 9.7.11) as calls of functions in PTX.

Sampling is software: ``textures.cu``, compiled to ``textures.ptx`` by ``make services``, is put behind the
text of a module that uses textures (:data:`INSTRUCTION`), and :mod:`~zluda.compiler.textures.expand` makes
each such instruction a call. So they are compiled like any other function, for every target, and the compiler
below never sees them. May import ``ptx`` and ``errors``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zluda.patterns import pattern

if TYPE_CHECKING:
    from zluda.ptx.module import Function

INSTRUCTION = pattern(r"\b(?:tex|tld4|txq|suld|sust|sured|suq|istypep)\s*\.")
"""What the text of a module that uses textures or surfaces has in it."""

OPCODES = frozenset({"tex", "tld4", "suld", "sust", "sured", "txq", "suq", "istypep"})
"""What is made a call."""


def expanded(function: Function) -> Function:
    """The function without texture and surface instructions; itself where it has none.

    Raises UnsupportedError, with the line, for forms without a meaning here.
    """
    if not any(instruction.opcode in OPCODES for instruction in function.instructions):
        return function
    from zluda.compiler.textures.expand import expand_textures  # most programs need none of it

    return expand_textures(function)
