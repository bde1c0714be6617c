"""Matching instructions against the table: a dotted opcode to its rows, and back to text.

The rows of an opcode are compiled when that opcode is first met; a dotted opcode is matched once and then
remembered, so parsing an instruction costs two dictionary look-ups here.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace

from zluda.patterns import pattern
from zluda.ptx import combinations, shorthands
from zluda.ptx.fragments import Fragment, fragment
from zluda.ptx.module import (
    Address,
    Element,
    Immediate,
    Indexed,
    Instruction,
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
from zluda.ptx.operand_types import Shape, accepted, addresses, describe, of_size, of_vector, shape_of, suits
from zluda.ptx.table import FAMILIES, SLOTS, TYPE_GROUPS
from zluda.ptx.types import BY_SPELLING, ScalarType
from zluda.records import dataclass

Classes = frozenset[type]

_DESTINATION: Classes = frozenset({Register, Sink})
_SOURCE: Classes = frozenset({Register, Immediate})
_VECTOR: Classes = frozenset({Vector})
_STORED: Classes = frozenset({Register, Immediate, Symbol})
_MOVED: Classes = frozenset({Register, Immediate, Symbol, Element, Vector})
_VIDEO: Classes = frozenset({Register, Immediate, Selected})
_SIMD_VIDEO: Classes = frozenset({Register, Selected})
_SIGNED: Classes = _VIDEO | {Minus}
_PREDICATE: Classes = frozenset({Register, Immediate, Negated})
_OWN_LENGTH = ("xe", "xb", "xg")  # tex's offsets and gradients: as long as its coordinates, not as .vec says
_ANYTHING: Classes = frozenset({Register, Immediate, Symbol, Vector, Address, Indexed, Label, Negated})

_CLASS_NAMES: dict[type, str] = {
    Register: "a register",
    Sink: "_",
    Immediate: "a constant",
    Symbol: "a symbol",
    Element: "an array's element",
    Vector: "a {…} vector",
    Selected: "a register with a selector",
    Minus: "a register with a sign",
    Negated: "!predicate",
    Address: "an [address]",
    Indexed: "[object, {coordinates}]",
    Pair: "a pair d|p",
    Label: "a label",
}


@dataclass(frozen=True, slots=True)
class Modifier:
    """One dotted position of a row. ``role`` is ``"slot"``, ``"type"`` or ``"vector"``."""

    name: str
    words: frozenset[str]
    optional: bool
    role: str


@dataclass(frozen=True, slots=True)
class OperandKind:
    """One operand position of a row: the classes it accepts, without and with ``.vec`` written.

    ``rule`` is the word of :mod:`zluda.ptx.operand_types` that says which types it takes.
    """

    name: str
    classes: Classes
    vector_classes: Classes
    destination: bool
    rule: str = "any"


@dataclass(frozen=True, slots=True)
class Row:
    """A compiled row. ``shapes`` are the operand lists it accepts, optional operands resolved."""

    text: str
    opcode: str
    modifiers: tuple[Modifier, ...]
    shapes: tuple[tuple[OperandKind, ...], ...]


@dataclass(frozen=True, slots=True)
class Form:
    """What one row says of one dotted opcode."""

    row: Row
    slots: dict[str, str]
    types: tuple[ScalarType, ...]
    vector: int
    named_types: dict[str, ScalarType]

    def fragment(self, kind: OperandKind) -> Fragment | None:
        """What a ``{…}`` operand of a matrix, texture or surface instruction must be."""
        return fragment(self.row.opcode, kind.name, self.slots, self.named_types)

    def elements(self, kind: OperandKind) -> int | None:
        """How many elements a vector must have, as :func:`~zluda.ptx.operand_types.suits` takes it."""
        if self.vector > 1:
            return None if kind.name in _OWN_LENGTH else self.vector
        if kind.name in ("d", "s") and self.row.opcode in shorthands.OPCODES:
            return 1
        of = self.fragment(kind)
        return None if of is None else of.count

    def takes(self, kind: OperandKind) -> frozenset[Shape] | None:
        """The shapes of operands that suit a position, given this form's types; None: any."""
        if kind.name.startswith("["):
            least = 32 if self.row.opcode in _MATRIX_MEMORY else 8
            return addresses(least, constant=self.slots.get("space") == "local")  # as ptxas has it
        whole = self.fragment(kind)
        if whole is not None:
            stored = "store" in self.slots or self.row.opcode == "stmatrix"
            return of_size(whole.bits, kind.destination and not stored)
        word = kind.rule.rstrip("+%*")
        of = self.named_types.get(word) or BY_SPELLING.get(word)
        if self.vector > 1 and of is not None and kind.name[0] in "ds":
            return of_vector(of, kind.destination)
        if word == "double":
            of = self.types[0]
        return accepted(of, kind.rule, kind.destination)


@dataclass(frozen=True, slots=True)
class Choice:
    """The form that fits an instruction's operand classes, and how many operands are destinations.

    ``spaces`` are the positions of addresses, each with the state spaces of the variables it may name.
    """

    form: Form
    destinations: int
    spaces: tuple[tuple[int, frozenset[str]], ...] = ()


@dataclass(slots=True)
class Opcode:
    """A dotted opcode with every form it may be; which one, the operands decide (``accepted`` remembers).

    ``architecture`` is the least that a module's target must be, where this parser tells.
    """

    name: str
    forms: tuple[Form, ...]
    architecture: int = 0
    accepted: dict[tuple[Shape, ...], Choice] = field(default_factory=dict)

    def choose(self, operands: Sequence[Operand]) -> Choice:
        """The first form that accepts these operands; raises :class:`OperandMismatch`."""
        shapes = tuple(
            [o.type if o.__class__ is Register and not o.special else shape_of(o) for o in operands]
        )
        choice = self.accepted.get(shapes)
        if choice is None:
            choice = self.accepted[shapes] = _choose(self.forms, tuple(map(type, operands)), shapes)
        return choice


class OpcodeMismatch(Exception):
    """No row takes this word; ``offset`` is its place in the dotted opcode."""

    def __init__(self, message: str, text: str, offset: int, expected: str) -> None:
        super().__init__(message)
        self.message, self.text, self.offset, self.expected = message, text, offset, expected


class OperandMismatch(Exception):
    """No form takes these operands; ``position`` is the first that does not fit (None: their number)."""

    def __init__(self, position: int | None, expected: str) -> None:
        super().__init__(expected)
        self.position, self.expected = position, expected


# --- rows from text --------------------------------------------------------------------------------

_ROW_HEAD = pattern(r"(\w+)((?:\{?\.\w+(?:::\w+)*\}?)*)\s*(.*)")
_MODIFIER = pattern(r"(\{?)\.([\w:]+)\}?")
_OPERAND = pattern(r"\{,|\}|,|(!?\w+(?:\{\|\w+\}|\|\w+)?|\[[^\]]*\]|\([^)]*\))")


@functools.cache
def _row_texts() -> dict[str, list[str]]:
    """Opcode to the text of its rows."""
    index: dict[str, list[str]] = {}
    for text in FAMILIES.values():
        for line in text.splitlines():
            line = line.partition("#")[0].strip()
            if line:
                opcode = line.partition(" ")[0].partition(".")[0].partition("{")[0]
                index.setdefault(opcode, []).append(line)
    return index


def opcode_names() -> tuple[str, ...]:
    """Every opcode of the table (the word before the first dot)."""
    return tuple(_row_texts())


@functools.cache
def rows(opcode: str) -> tuple[Row, ...]:
    """The compiled rows of an opcode; empty when the table has none."""
    return tuple(_compile(text) for text in _row_texts().get(opcode, ()))


def _compile(text: str) -> Row:
    head, *clauses = (part.strip() for part in text.split(";"))
    words = dict(SLOTS)
    rules: dict[str, str] = {}
    for clause in clauses:
        name, _, value = clause.partition("=")
        if name.strip() == "as":
            rules = dict(item.split(":") for item in value.split())
        else:
            words[name.strip()] = value
    match = _ROW_HEAD.fullmatch(head)
    if match is None:
        raise ValueError(f"instruction table: cannot read row {text!r}")
    opcode, modifiers, operands = match.groups()
    positions = tuple(_modifier(name, bool(brace), words) for brace, name in _MODIFIER.findall(modifiers))
    type_names = [m.name for m in positions if m.role == "type"]
    shapes = tuple(
        tuple(
            replace(kind, rule=rules.get(kind.name) or rules.get("*") or _default_rule(kind.name, type_names))
            for kind in shape
        )
        for shape in _shapes(operands)
    )
    return Row(text, opcode, positions, shapes)


def _default_rule(operand: str, types: Sequence[str]) -> str:
    """Which type modifier an operand follows: the one of its letter, else the first (``d``) or the last."""
    if operand[0] == "!":
        return "pred"
    if not types or not ("a" <= operand[0] <= "z") or operand[0] == "x":
        return "any"
    own = f"{operand[0]}type"
    return own if own in types else types[0 if operand[0] == "d" else -1]


def _modifier(name: str, optional: bool, words: dict[str, str]) -> Modifier:
    if name == "vec":
        role = "vector"
    elif name.endswith("type") or (name not in words and name in BY_SPELLING):
        role = "type"
    else:
        role = "slot"
    return Modifier(name, frozenset(_expand(words.get(name, name))), optional, role)


def _expand(words: str) -> Iterator[str]:
    for word in words.split():
        if word.startswith("<"):
            yield from TYPE_GROUPS[word[1:-1]].split()
        else:
            yield word


def _shapes(operands: str) -> Iterator[tuple[OperandKind, ...]]:
    """Every operand list a row's operand text stands for: ``d, a{, b}`` is (d, a) and (d, a, b)."""
    kinds: list[tuple[OperandKind, bool]] = []
    optional = False
    for match in _OPERAND.finditer(operands):
        if match.group(1):
            kinds.append((_operand_kind(match.group(1)), optional))
        elif match.group() != ",":
            optional = match.group() == "{,"
    lists: list[tuple[OperandKind, ...]] = [()]
    for kind, may_miss in kinds:
        longer = [(*shape, kind) for shape in lists]
        lists = lists + longer if may_miss else longer
    yield from lists


def _operand_kind(name: str) -> OperandKind:
    classes, vector_classes, destination = _SOURCE, _SOURCE, False
    if name.startswith("["):
        classes = vector_classes = frozenset({Indexed if "," in name else Address})
    elif "|" in name:
        classes = vector_classes = frozenset({Pair})
        if "{" in name:
            classes = vector_classes = classes | (_VECTOR if name[0] == "D" else _DESTINATION)
        destination = True
    elif name == "label":
        classes = vector_classes = frozenset({Label})
    elif name in ("xd", "yd"):
        classes, vector_classes, destination = _DESTINATION | _VECTOR, _DESTINATION | _VECTOR, True
    elif name == "vd":
        classes, vector_classes, destination = _VIDEO, _VIDEO, True
    elif name[0] in _KINDS:
        classes, vector_classes, destination = _KINDS[name[0]]
    elif name[0].isupper():
        classes = vector_classes = _VECTOR
        destination = name == "D"
    return OperandKind(name, classes, vector_classes, destination)


_KINDS: dict[str, tuple[Classes, Classes, bool]] = {
    "d": (_DESTINATION, _VECTOR, True),
    "s": (_STORED, _VECTOR, False),
    "m": (_MOVED, _MOVED, False),
    "x": (_ANYTHING, _ANYTHING, False),
    "y": (_SOURCE | _VECTOR, _SOURCE | _VECTOR, False),
    "u": (_SIMD_VIDEO, _SIMD_VIDEO, False),
    "v": (_VIDEO, _VIDEO, False),
    "w": (_SIGNED, _SIGNED, False),
    "n": (_SOURCE | {Minus}, _SOURCE | {Minus}, False),
    "!": (_PREDICATE, _PREDICATE, False),
}


# --- a dotted opcode to its forms ------------------------------------------------------------------

_OPCODES: dict[str, Opcode] = {}


def find_opcode(dotted: str) -> Opcode:
    """The forms of a dotted opcode (``"add.rn.f32"``); raises :class:`OpcodeMismatch`."""
    opcode = _OPCODES.get(dotted)
    if opcode is None:
        opcode = _match(dotted)
        _OPCODES[dotted] = opcode
    return opcode


def _match(dotted: str) -> Opcode:
    name, *words = re.split(r"\s*\.\s*", dotted)
    candidates = rows(name)
    if not candidates:
        closest = _close(name, opcode_names(), 5) or ["an instruction of the PTX ISA"]
        raise OpcodeMismatch("unknown instruction", name, 0, " or ".join(closest))
    late = combinations.misplaced(name, words)
    if late:
        raise OpcodeMismatch("word in the wrong place", f".{late}", dotted.rfind(late) - 1, f"{name}.{late}")
    placed = [(row, _place(row, words)) for row in candidates]
    forms = tuple(_form(row, words, at) for row, at in placed if len(at) == len(words) and _complete(row, at))
    if not forms:
        raise _mismatch(dotted, words, placed)
    clashes = [combinations.refused(name, f.slots, f.types, f.vector) for f in forms]
    if all(clashes):
        word = clashes[0]
        raise OpcodeMismatch(
            "words that do not go together", "." + word, dotted.find(word) - 1, "another word"
        )
    forms = tuple(form for form, clash in zip(forms, clashes, strict=True) if not clash)
    if all(map(_too_wide, forms)):
        word = f".v{forms[0].vector}"
        raise OpcodeMismatch("vector too large", word, dotted.find(word), "at most 128 bits, 256 in .global")
    return Opcode(name, forms, 100 if all(map(_wide, forms)) else 0)


def _wide(form: Form) -> bool:
    """Whether a load or store of global memory moves 256 bits, as GPUs do from sm_100 on."""
    return form.row.opcode in ("ld", "st") and form.vector * (form.types[-1].bits if form.types else 0) > 128


def _too_wide(form: Form) -> bool:
    """Whether a vector is wider than one access: 16 bytes, in global memory 32 (PTX ISA 9.7.9).

    As ptxas 13.0 judges; ``.b128`` is no vector's element.
    """
    if form.vector == 1 or form.row.opcode not in ("ld", "ldu", "st"):
        return False
    wide = form.row.opcode != "ldu" and form.slots.get("space", "global") == "global"
    bits = form.types[-1].bits
    return bits > 64 or bits * form.vector > (256 if wide else 128)


def _place(row: Row, words: Sequence[str]) -> list[int]:
    """The row position of each word, up to the first that has none.

    Words stand in any order (ptxas takes ``max.s32.relu`` and ``atom.add.release.gpu.u32``), except that
    types keep theirs.
    """
    at: list[int] = []
    last_type = -1
    for word in words:
        for i, modifier in enumerate(row.modifiers):
            if word in modifier.words and i not in at and (modifier.role != "type" or i > last_type):
                at.append(i)
                if modifier.role == "type":
                    last_type = i
                break
        else:
            break
    return at


def _complete(row: Row, at: Sequence[int]) -> bool:
    return all(m.optional or i in at for i, m in enumerate(row.modifiers))


def _form(row: Row, words: Sequence[str], at: Sequence[int]) -> Form:
    slots: dict[str, str] = {}
    types: dict[str, ScalarType] = {}
    vector = 1
    for word, i in zip(words, at, strict=True):
        modifier = row.modifiers[i]
        if modifier.role == "vector":
            vector = int(word[1:])
        elif modifier.role == "type" and word in BY_SPELLING:
            types[modifier.name] = BY_SPELLING[word]
        else:
            slots[modifier.name] = word
    return Form(row, slots, tuple(types.values()), vector, types)


def _mismatch(dotted: str, words: list[str], placed: list[tuple[Row, list[int]]]) -> OpcodeMismatch:
    longest = max(len(at) for _, at in placed)
    nearest = [(row, at) for row, at in placed if len(at) == longest]
    free = [m for row, at in nearest for i, m in enumerate(row.modifiers) if i not in at]
    if longest == len(words):
        wanted = {word for m in free if not m.optional for word in m.words}
        return OpcodeMismatch("missing modifier", dotted, len(dotted), _list(sorted(wanted)))
    word = words[longest]
    starts = [m.end() for m in re.finditer(r"\.\s*", dotted)]
    wanted = {w for m in free for w in m.words}
    return OpcodeMismatch("unknown modifier", "." + word, starts[longest] - 1, _list(_closest(word, wanted)))


def _close(word: str, choices: Sequence[str], most: int, least: float = 0.6) -> list[str]:
    import difflib  # for messages alone

    return difflib.get_close_matches(word, choices, most, least)


def _closest(word: str, wanted: Iterable[str]) -> list[str]:
    choices = sorted(wanted)
    first = _close(word, choices, 3, 0.5)
    return first + [w for w in choices if w not in first]


def _list(words: Sequence[str], limit: int = 12) -> str:
    if not words:
        return "no further modifier"
    return " ".join("." + w for w in words[:limit]) + (" …" if len(words) > limit else "")


# --- operands --------------------------------------------------------------------------------------


def _choose(forms: Sequence[Form], classes: tuple[type, ...], shapes: tuple[Shape, ...]) -> Choice:
    best, best_expected = -1, list[str]()
    counts: set[int] = set()
    for form in forms:
        for kinds in form.row.shapes:
            counts.add(len(kinds))
            if len(kinds) != len(classes):
                continue
            misfit = _first_misfit(form, kinds, classes, shapes)
            if misfit is None:
                return Choice(form, sum(kind.destination for kind in kinds), _spaces(form, kinds))
            if misfit[0] > best:
                best, best_expected = misfit[0], []
            if misfit[0] == best and misfit[1] not in best_expected:
                best_expected.append(misfit[1])
    if best < 0:
        raise OperandMismatch(None, f"{' or '.join(map(str, sorted(counts)))} operands")
    raise OperandMismatch(best, " or ".join(best_expected))


_MATRIX_MEMORY = frozenset(("ldmatrix", "stmatrix", "wmma"))
_NAMES_MEMORY = _MATRIX_MEMORY | {"ld", "ldu", "st", "atom", "red", "prefetch", "mbarrier", "cp"}
_GENERIC = frozenset(("global", "shared", "local"))


def _spaces(form: Form, kinds: Sequence[OperandKind]) -> tuple[tuple[int, frozenset[str]], ...]:
    """Where variables may be that the addresses name: in the instruction's space (PTX ISA 9.7.9.8)."""
    slots = form.slots
    if form.row.opcode not in _NAMES_MEMORY or "tensormap" in slots or slots.get("dst") == "shared::cluster":
        return ()
    words = {"[a]": slots.get("src", slots.get("space", "")), "[d]": slots.get("dst", "")}
    return tuple(
        (i, frozenset((word.partition("::")[0],)) if word else _GENERIC)
        for i, kind in enumerate(kinds)
        if (word := words.get(kind.name)) is not None
    )


def _first_misfit(
    form: Form, kinds: Sequence[OperandKind], classes: Sequence[type], shapes: Sequence[Shape]
) -> tuple[int, str] | None:
    """The first operand that the form does not take, and what it would have taken; operands' classes are
    looked at before their types, so that the error names the coarser fault."""
    for i, (kind, cls) in enumerate(zip(kinds, classes, strict=True)):
        allowed = kind.vector_classes if form.vector > 1 else kind.classes
        if kind.name in ("d", "s") and form.row.opcode in shorthands.OPCODES:
            allowed |= _VECTOR
        if cls not in allowed:
            return i, " or ".join(name for known, name in _CLASS_NAMES.items() if known in allowed)
    for i, (kind, shape) in enumerate(zip(kinds, shapes, strict=True)):
        takes = form.takes(kind)
        elements = form.elements(kind)
        if not suits(shape, takes, elements):
            return i, describe(shape, takes, elements)
    return None


# --- back to text ----------------------------------------------------------------------------------


def spell(instruction: Instruction) -> str:
    """The dotted opcode of an instruction, modifiers in the order of its row; ValueError if no row fits."""
    for row in rows(instruction.opcode):
        words = _words(row, instruction)
        if words is not None:
            return ".".join([instruction.opcode, *words])
    raise ValueError(f"no row of the instruction table for {instruction}")


def _words(row: Row, instruction: Instruction) -> list[str] | None:
    slots, types = dict(instruction.slots), list(instruction.types)
    vector = f"v{instruction.vector}" if instruction.vector > 1 else ""
    words: list[str] = []
    for modifier in row.modifiers:
        word = ""
        if modifier.role == "vector":
            word, vector = vector, ""
        elif modifier.name in slots:
            word = slots.pop(modifier.name)
        elif modifier.role == "type" and types and types[0].spelling in modifier.words:
            word = types.pop(0).spelling
        if word and word in modifier.words:
            words.append(word)
        elif word or not modifier.optional:
            return None
    return None if slots or types or vector else words
