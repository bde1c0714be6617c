"""Texts of a function with less in it, that still are PTX in which every register is written before it is
read.

What is cut away may have defined a register that is still read: such a register is set to zero at the
function's start, since a register that nobody wrote holds anything (and on each device another thing).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from zluda.compiler.analysis.cfg import build_graph
from zluda.compiler.analysis.liveness import liveness
from zluda.compiler.analysis.operands import definitions, uses
from zluda.errors import Error
from zluda.isolate.alone import Part, part_of
from zluda.ptx import parse_module
from zluda.ptx.module import Function, Instruction, LabelStatement, Statement
from zluda.ptx.printer import print_statement
from zluda.ptx.types import ScalarType

Lines = list[str]

_EFFECTS = frozenset(
    (
        *("st", "red", "atom", "call", "bra", "brx", "ret", "exit", "trap", "bar", "barrier", "membar"),
        *("fence", "cp", "mbarrier", "wgmma", "tcgen05", "sust", "sured", "stmatrix", "griddepcontrol"),
    )
)
"""Instructions that stay although nobody reads a register that they write."""

_ENDS = frozenset(("ret", "exit", "trap"))


def lines_of(function: Function) -> Lines:
    """A function's statements, one a line."""
    return [print_statement(statement) for statement in function.body or ()]


def without(part: Part, function: Function, keeps: Callable[[Statement], bool]) -> str:
    """The part's text with only those statements of a function that ``keeps`` holds of."""
    return whole(part, {function.name: [print_statement(s) for s in function.body or () if keeps(s)]})


def whole(part: Part, bodies: dict[str, Lines]) -> str:
    """The part with other bodies, made whole again: no dead instruction, no label that nobody goes to, no
    register read that was not written. Raises :class:`zluda.errors.PtxError` where that is no PTX.
    """
    text = part.text({name: "\n".join(lines) for name, lines in bodies.items()})
    now = part_of(parse_module(text), part.kernel)
    tidy = {f.name: _tidy(f) for f in now.functions if f.body is not None}
    text = now.text({name: "\n".join(lines) for name, lines in tidy.items()})
    now = part_of(parse_module(text), part.kernel)
    written = {f.name: [*_missing(f), *lines_of(f)] for f in now.functions if f.body is not None}
    return now.text({name: "\n".join(lines) for name, lines in written.items()})


def _tidy(function: Function) -> Lines:
    body = list(function.body or ())
    while True:
        read = {r.name for s in body if isinstance(s, Instruction) for r in uses(s)}
        kept = [s for s in body if not _is_dead(s, read)]
        if len(kept) == len(body):
            break
        body = kept
    words = " ".join(print_statement(s) for s in body if not isinstance(s, LabelStatement))
    named = set(re.findall(r"[\w$%]+", words))
    body = [s for s in body if not (isinstance(s, LabelStatement) and s.name not in named)]
    lines = [print_statement(s) for s in body]
    last = body[-1] if body else None
    ended = isinstance(last, Instruction) and last.opcode in (*_ENDS, "bra") and last.guard is None
    return lines if ended else [*lines, "ret;"]


def _is_dead(statement: Statement, read: Iterable[str]) -> bool:
    if not isinstance(statement, Instruction) or statement.opcode in _EFFECTS:
        return False
    written = [r.name for r in definitions(statement)]
    return not any(name in read for name in written)


def _missing(function: Function) -> Lines:
    """Zeros for registers that may be read before they are written."""
    graph = build_graph(function)
    live = liveness(graph).live_in
    own = {v.name for v in (*function.parameters, *function.returns)}
    names = sorted(live[0] - own) if live else []
    return [line for name in names if (line := zero(name, function.registers.get(name)))]


def zero(name: str, type: ScalarType | None) -> str:
    """Sets a register to zero; empty for what is no register of the function (the carry flag)."""
    if type is None:
        return ""
    if type is ScalarType.PRED:
        return f"setp.ne.u32 {name}, 0, 0;"
    if type.bits == 128:
        return f"mov.b128 {name}, {{0, 0}};"
    if type.bits == 8:
        return f"cvt.u8.u32 {name}, 0;"
    return f"mov.b{type.bits} {name}, {_ZEROS.get(type, '0')};"


_ZEROS = {ScalarType.F32: "0f00000000", ScalarType.F64: "0d0000000000000000"}


def renamed(part: Part, function: Function, at: int, old: str, new: str) -> str:
    """The text without instruction ``at``, ``new`` standing in place of its result ``old``."""
    pattern = re.compile(re.escape(old) + r"(?![\w$])")
    lines = [
        pattern.sub(lambda _: new, print_statement(s))
        for s in function.body or ()
        if not (isinstance(s, Instruction) and s.ordinal == at)
    ]
    return whole(part, {function.name: lines})


def attempt(make: Callable[[], str]) -> str | None:
    """A text, None where what was cut leaves no PTX."""
    try:
        return make()
    except Error:
        return None
