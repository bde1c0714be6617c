"""The instructions of a module told apart by form, without parsing it; and samples that hold one of each.

A library's PTX is hundreds of megabytes of a few thousand forms: the same opcode, modifiers and kinds of
operands, over other registers and with other numbers. What a compiler can do with an instruction depends on
its form (nearly always), so one of each form stands for all.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from zluda.ptx.parse import Module, parse_module

_STATEMENT = re.compile(
    r"""(?:
      [A-Za-z_$%][\w$]*\s*:(?!:)                                    # a label
    | (?:@\s*!?\s*[\w$%.]+\s+)?([a-z][\w.:]*+)\s*([^;]*+);          # 1 opcode, 2 operands
    | \.loc\b[^\n]*
    | \.(?:[^;"]|"[^"\n]*")*;
    | [{}]
    )""",
    re.VERBOSE,
)
_OPERAND = re.compile(
    r"%[A-Za-z_]\w*\.[xyzw]"  # a special register's part
    r"|(?P<register>%[A-Za-z_$][A-Za-z_$]*)\d+(?![\w.])"
    r"|(?P<float>\b0[fFdD][0-9A-Fa-f]{8,16}\b|\b\d+\.\d*(?:[eE][-+]?\d+)?)"
    r"|(?P<integer>-?\b(?:0[xX][0-9A-Fa-f]+|\d+)U?\b)"
    r"|(?P<name>(?<![%\w$.])[A-Za-z_$][\w$]*)"
)
_DIGITS = str.maketrans("", "", "0123456789")

# Their operands' integers do not decide whether they are supported.
_PLAIN = frozenset(
    word
    for line in (
        "abs add addc and atom bfe bfi brev clz cnot copysign cos cvt cvta div dp2a dp4a ex2 fma fns ld ldu",
        "lg2 lop3 mad mad24 madc max min mov mul mul24 neg not or popc prefetch prmt rcp red rem rsqrt sad",
        "selp set setp shf shfl shl shr sin slct sqrt st sub subc szext tanh testp vote xor",
    )
    for word in line.split()
)
_CONTROL = frozenset(("bra", "ret", "exit"))

Form = tuple[str, str]
"""(opcode with its modifiers, operands with neither registers' numbers nor literals)"""


class Sample(NamedTuple):
    """A module of a few instructions, and where each was: function → offsets, in the order of its body."""

    module: Module
    places: Mapping[str, Sequence[int]]


class FormTable:
    """Tells forms of any number of modules; remembers what it has seen of operands' texts."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Form] = {}

    def forms_of(self, module: Module, name: str) -> dict[Form, int]:
        """How many instructions of each form a function has; branches and returns are left out."""
        _, body, end = module.span(name)
        if body is None:
            return {}
        found = [pair for pair in _STATEMENT.findall(module.code, body, end) if pair[0]]
        # All texts at once, and counted by a loop that is not Python's: an instruction at a time takes twice
        # as long.
        brief = "\0".join([operands for _, operands in found]).translate(_DIGITS).split("\0")
        plain = {opcode: _first_word(opcode) in _PLAIN for opcode in {opcode for opcode, _ in found}}
        keys = [
            (pair[0], text) if plain[pair[0]] else pair
            for pair, text in zip(found, brief, strict=bool(found))
        ]
        examples = dict(zip(keys, found, strict=True))
        forms: dict[Form, int] = {}
        for key, count in Counter(keys).items():
            if _first_word(key[0]) not in _CONTROL:
                form = self._form(key, examples[key][1])
                forms[form] = forms.get(form, 0) + count
        return forms

    def _form(self, key: tuple[str, str], operands: str) -> Form:
        form = self._known.get(key)
        if form is None:
            form = self._known[key] = (key[0], shape(key[0], operands))
        return form


def places_of(module: Module, name: str, wanted: Collection[Form]) -> dict[Form, int]:
    """The offset in the module's code of a function's first instruction of each of some forms."""
    _, body, end = module.span(name)
    opcodes, found = {opcode for opcode, _ in wanted}, {}
    for match in _STATEMENT.finditer(module.code, body or 0, end if body is not None else 0):
        opcode = match.group(1)
        if opcode in opcodes:
            form = (opcode, shape(opcode, match.group(2)))
            if form in wanted and form not in found:
                found[form] = match.start()
                if len(found) == len(wanted):
                    break
    return found


def _first_word(opcode: str) -> str:
    return opcode.partition(".")[0]


def shape(opcode: str, operands: str) -> str:
    """Operands without what does not decide whether they are supported: registers' numbers, names but those
    of functions that are called, values of floats, and of integers where those do not matter either.
    """
    word = _first_word(opcode)
    literal, named = word not in _PLAIN, word == "call"

    def kept(match: re.Match[str]) -> str:
        if match["register"]:
            return match["register"]
        if match["float"]:
            return "0.0"
        if match["integer"]:
            return match["integer"] if literal else "0"
        return "$" if match["name"] and match["name"] != "_" and not named else match.group()

    return "".join(_OPERAND.sub(kept, operands).split())


# --- samples -----------------------------------------------------------------------------------------------


def sample(module: Module, chosen: Mapping[str, Iterable[int]]) -> Sample:
    """A module with the instructions that begin at these offsets, by function, and with all declarations.

    Functions keep their names, headers, registers, variables and labels; branches are gone. Of functions
    that are not ``chosen`` there is nothing in the body.
    """
    places = {name: sorted(set(offsets)) for name, offsets in chosen.items()}
    parts, position = [], 0
    for name in sorted(module.function_names, key=lambda one: module.span(one)[0]):
        _, body, end = module.span(name)
        parts.append(module.code[position : end if body is None else body])
        if body is not None:
            parts += _thinned(module.code, body, end, places.get(name, ()))
        position = end
    parts.append(module.code[position:])
    return Sample(parse_module("".join(parts), file=module.file), places)


def _thinned(code: str, body: int, end: int, offsets: Sequence[int]) -> Iterator[str]:
    """A body's declarations, labels and braces, and the instructions that begin at ``offsets``."""
    if offsets:
        wanted = set(offsets)
        for match in _STATEMENT.finditer(code, body, end):
            if not match.group(1) or match.start() in wanted:
                yield match.group() + "\n"
    yield "ret;\n"
