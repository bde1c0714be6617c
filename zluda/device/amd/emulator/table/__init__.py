"""The semantic table: what each arithmetic instruction computes, a line an instruction.

A line is ``names | statements``. Names of one instruction in several generations are separated by ``/``.
A statement assigns an expression over the sources to the destination:

=============  ==========================================================================================
``S0`` …       the sources in order, read as a type: ``S0.f32``, ``S1.u16``; ``.u24`` and ``.i24`` are the low
               24 bits, ``.lo`` and ``.hi`` the 16-bit halves that op_sel chooses, ``.mix`` fma_mix's operand
``D.f32``      the destination; to the right of ``=`` its old contents
``CARRY``      the mask destination of a VOP3B instruction (or VCC), one bit a lane
``CIN``        the mask source, one bit a lane
``VCC, EXEC``  as conditions, one bit a lane
``SCC``        the scalar condition code
=============  ==========================================================================================

All sources are read before anything is written. Functions are those of ``scope.py``; operators follow the operands' type. Modifiers (neg, abs, clamp, omod, SDWA, DPP, op_sel)
are not the table's business.
"""

from __future__ import annotations

import functools
import importlib
import re
from types import CodeType

from zluda.records import dataclass

_MODULES = ("vector_float", "vector_integer", "vector_packed", "scalar")
_TARGET = re.compile(r"(?P<place>D|S0|CARRY|SCC|EXEC)(?:\.(?P<type>[a-z]+\d+))?")


@dataclass(frozen=True, slots=True)
class Statement:
    """``place.type = expression``."""

    place: str
    type: str
    code: CodeType
    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class Row:
    """One instruction: its first name, the manual's section, its statements."""

    name: str
    section: str
    text: str
    statements: tuple[Statement, ...]

    @property
    def names(self) -> frozenset[str]:
        """Every name that the expressions mention."""
        return frozenset().union(*(s.names for s in self.statements))

    def writes(self, place: str) -> bool:
        return any(s.place == place for s in self.statements)


def _statement(text: str) -> Statement:
    target, expression = text.split(" = ", 1)
    match = _TARGET.fullmatch(target.strip())
    if match is None:
        raise ValueError(f"not an assignment: {text}")
    code = compile(expression.strip(), f"<{text.strip()}>", "eval")
    return Statement(match["place"], match["type"] or "b1", code, frozenset(code.co_names))


def parse(text: str) -> dict[str, Row]:
    """The rows of a table's text, by every name."""
    rows: dict[str, Row] = {}
    section = ""
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("#"):
            section = line.lstrip("# ")
        elif line:
            names, body = (part.strip() for part in line.split(" | ", 1))
            aliases = names.split("/")
            row = Row(aliases[0], section, body, tuple(_statement(s) for s in body.split(" ; ")))
            for alias in aliases:
                if alias in rows:
                    raise ValueError(f"{alias} stands in the table twice")
                rows[alias] = row
    return rows


@functools.cache
def rows() -> dict[str, Row]:
    """The whole table, by mnemonic without its encoding's suffix."""
    table: dict[str, Row] = {}
    for module in _MODULES:
        for name, row in parse(importlib.import_module(f"{__name__}.{module}").TABLE).items():
            if name in table:
                raise ValueError(f"{name} stands in the table twice")
            table[name] = row
    return table
