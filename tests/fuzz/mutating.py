"""Changes to a kernel that leave its meaning as it is: each of :data:`KINDS` rewrites one place.

A kind is given the function's statements and a place, and says how many statements to replace by which, or
None where it has nothing to do. Roundings must be explicit (``mutants.py`` sees to it): contraction pairs the
products and sums of a text, and another text may be paired otherwise.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterable, Sequence

from zluda.compiler.analysis.operands import definitions, uses
from zluda.compiler.lower import families  # noqa: F401  (fills LANEWISE)
from zluda.compiler.lower.lanewise import LANEWISE, reads_carry, writes_carry
from zluda.ptx.module import (
    Address,
    Function,
    Guard,
    Immediate,
    Instruction,
    Label,
    LabelStatement,
    Location,
    Negated,
    Operand,
    Register,
    Statement,
    Vector,
)
from zluda.ptx.types import ScalarType

T = ScalarType
Changed = tuple[int, Sequence[Statement]]
_NOWHERE = Location(0, 0)
_BITS = {16: T.B16, 32: T.B32, 64: T.B64, 128: T.B128, 1: T.PRED}
_SIGNED = {32: T.S32, 64: T.S64}
_LONGEST = 40
"""Statements of a loop or a tail that is written twice."""


class Body:
    """A function that is being changed: its statements, names that are free, and what is drawn."""

    def __init__(self, function: Function, rng: random.Random) -> None:
        self.function, self.rng = function, rng
        self.statements = list(function.body or ())
        self._labels = {s.name for s in self.statements if isinstance(s, LabelStatement)}

    def register(self, of: ScalarType) -> Register:
        """A register that nobody has."""
        n = len(self.function.registers)
        while f"%mutant{n}" in self.function.registers:
            n += 1
        self.function.registers[f"%mutant{n}"] = of
        return Register(f"%mutant{n}", of)

    def label(self) -> LabelStatement:
        """A label that nobody has."""
        n = len(self._labels)
        while f"$mutant{n}" in self._labels:
            n += 1
        self._labels.add(f"$mutant{n}")
        return LabelStatement(f"$mutant{n}", _NOWHERE)

    def at(self, place: int) -> Statement | None:
        """A statement; None past the end."""
        return self.statements[place] if place < len(self.statements) else None

    def branches_to(self, name: str) -> list[int]:
        """Places that name a label."""
        return [n for n, s in enumerate(self.statements) if isinstance(s, Instruction) and name in _labels(s)]


def mutate(function: Function, seed: int) -> tuple[str, Function]:
    """The name of a kind, and the function with one place changed by it; "" where none found a place."""
    rng = random.Random(seed)
    changed = dataclasses.replace(function, registers=dict(function.registers), debug_lines=(), pragmas=())
    body = Body(changed, rng)
    kinds = list(KINDS)
    rng.shuffle(kinds)
    for kind in kinds:
        places = list(range(len(body.statements)))
        rng.shuffle(places)
        for place in places:
            found = KINDS[kind](body, place)
            if found is not None:
                count, statements = found
                body.statements[place : place + count] = statements
                changed.body = body.statements
                return kind, changed
    return "", function


# --- instructions ------------------------------------------------------------------------------------------


def _make(opcode: str, of: Sequence[ScalarType], operands: Iterable[Operand], **slots: str) -> Instruction:
    destinations = 0 if opcode in ("bra", "st") else 1
    return Instruction(opcode, slots, tuple(of), tuple(operands), None, _NOWHERE, 0, 1, destinations)


def _move(to: Operand, source: Operand, of: ScalarType) -> Instruction:
    return _make("mov", [of], [to, source])


def _branch(to: LabelStatement, guard: Guard | None = None) -> Instruction:
    return dataclasses.replace(_make("bra", [], [Label(to.name)]), guard=guard)


def _as(instruction: Instruction, *operands: Operand) -> Instruction:
    return dataclasses.replace(instruction, operands=operands)


def _labels(instruction: Instruction) -> set[str]:
    return {o.name for o in instruction.operands if isinstance(o, Label)}


def _plain(operand: Operand | None) -> bool:
    """A register of a scalar that a program declares."""
    return isinstance(operand, Register) and not operand.special and "." not in operand.name


def _pure(statement: Statement | None) -> bool:
    """What does nothing but give registers values, whenever and however often it is executed."""
    if not isinstance(statement, Instruction) or statement.guard is not None:
        return False
    if statement.opcode == "mov":
        return all(_plain(o) for o in statement.operands[:1])
    carry = reads_carry(statement) or writes_carry(statement)
    return statement.opcode in LANEWISE and not carry and _plain(statement.operands[0])


def _integer(body: Body, place: int, opcode: str, operands: int) -> Instruction | None:
    """An instruction on 32 or 64-bit integers, without guard, carry and saturation."""
    found = body.at(place)
    if not _pure(found) or not isinstance(found, Instruction) or found.opcode != opcode:
        return None
    fits = len(found.operands) == operands and len(found.types) == 1
    kind = fits and found.types[0].kind in "usb" and found.types[0].bits in (32, 64)
    return found if kind and not found.has("sat") and found.vector == 1 else None


# --- kinds -------------------------------------------------------------------------------------------------

_COMMUTE = frozenset({"add", "mul", "and", "or", "xor", "min", "max", "mul24", "fma", "mad", "mad24"})
_MIRRORED = {"lt": "gt", "le": "ge", "lo": "hi", "ls": "hs", "ltu": "gtu", "leu": "geu"}
_MIRRORED |= {b: a for a, b in _MIRRORED.items()} | {
    same: same for same in ("eq", "ne", "equ", "neu", "num", "nan")
}


def commute(body: Body, place: int) -> Changed | None:
    """``a + b`` as ``b + a``."""
    found = body.at(place)
    if not isinstance(found, Instruction) or found.opcode not in _COMMUTE or len(found.types) != 1:
        return None
    to, *sources = found.operands
    if len(sources) < 2 or not (_plain(sources[0]) and _plain(sources[1])) or sources[0] == sources[1]:
        return None
    return 1, [_as(found, to, sources[1], sources[0], *sources[2:])]


def mirror(body: Body, place: int) -> Changed | None:
    """``a < b`` as ``b > a``."""
    found = body.at(place)
    if not isinstance(found, Instruction) or found.opcode != "setp" or len(found.types) != 1:
        return None
    to, left, right, *rest = found.operands
    compare = _MIRRORED.get(found.slots["cmp"])
    if compare is None or not (_plain(left) and _plain(right)) or found.vector != 1:
        return None
    turned = _as(found, to, right, left, *rest)
    return 1, [dataclasses.replace(turned, slots={**found.slots, "cmp": compare})]


def copy_source(body: Body, place: int) -> Changed | None:
    """A register read through a copy of it."""
    found = body.at(place)
    if not isinstance(found, Instruction) or found.opcode in ("call", "mov"):
        return None
    places = [n for n, o in enumerate(found.operands) if n >= found.destinations and _copied(o) is not None]
    if not places:
        return None
    n = body.rng.choice(places)
    source = _copied(found.operands[n])
    assert source is not None
    copy = body.register(source.type)
    operands = list(found.operands)
    operands[n] = _with(operands[n], source, copy)
    return 1, [_move(copy, source, _BITS[source.type.bits]), _as(found, *operands)]


def _copied(operand: Operand) -> Register | None:
    """The register of an operand that can be copied."""
    match operand:
        case Register() if _plain(operand) and operand.type.bits in _BITS:
            return operand
        case Address(base=Register() as base) if _plain(base):
            return base
        case Vector(elements=elements):
            return next((e for e in elements if isinstance(e, Register) and e.type.bits in (32, 64)), None)
    return None


def _with(operand: Operand, source: Register, copy: Register) -> Operand:
    match operand:
        case Address():
            return dataclasses.replace(operand, base=copy)
        case Vector(elements=elements):
            return Vector(tuple(copy if e == source else e for e in elements))
    return copy


def copy_result(body: Body, place: int) -> Changed | None:
    """A result that goes through another register."""
    found = body.at(place)
    if not _pure(found) or not isinstance(found, Instruction):
        return None
    to = found.operands[0]
    if not isinstance(to, Register) or to.type.bits not in _BITS:
        return None
    between = body.register(to.type)
    return 1, [_as(found, between, *found.operands[1:]), _move(to, between, _BITS[to.type.bits])]


def compute_twice(body: Body, place: int) -> Changed | None:
    """The same once more, into a register that nobody reads."""
    found = body.at(place)
    weak = isinstance(found, Instruction) and found.opcode == "ld" and _weak(found) and found.guard is None
    if not (_pure(found) or weak) or not isinstance(found, Instruction):
        return None
    if not _plain(found.operands[0]):
        return None
    assert isinstance(found.operands[0], Register)
    unread = body.register(found.operands[0].type)
    return 1, [_as(found, unread, *found.operands[1:]), found]


def exchange(body: Body, place: int) -> Changed | None:
    """Two neighbours that do not need each other, the other way round."""
    first, second = body.at(place), body.at(place + 1)
    if not (_pure(first) and _pure(second)):
        return None
    assert isinstance(first, Instruction) and isinstance(second, Instruction)
    writes = [set(definitions(i)) for i in (first, second)]
    if writes[0] & (writes[1] | set(uses(second))) or writes[1] & set(uses(first)):
        return None
    return 2, [second, first]


def negate_guard(body: Body, place: int) -> Changed | None:
    """``@p`` as ``@!q`` of ``q = !p``."""
    found = body.at(place)
    if not isinstance(found, Instruction) or found.guard is None:
        return None
    opposite = body.register(T.PRED)
    inverse = _make("not", [T.PRED], [opposite, found.guard.register])
    guard = Guard(opposite, not found.guard.negated)
    return 1, [inverse, dataclasses.replace(found, guard=guard)]


def negate_choice(body: Body, place: int) -> Changed | None:
    """``selp a, b, p`` as ``selp b, a, !p``."""
    found = body.at(place)
    if not isinstance(found, Instruction) or found.opcode != "selp":
        return None
    to, yes, no, predicate = found.operands
    if isinstance(predicate, Negated) or not _plain(predicate):
        return None
    opposite = body.register(T.PRED)
    return 1, [_make("not", [T.PRED], [opposite, predicate]), _as(found, to, no, yes, opposite)]


def branch_over(body: Body, place: int) -> Changed | None:
    """``@p bra L`` as ``@!p bra next; bra L; next:``."""
    found = body.at(place)
    if not isinstance(found, Instruction) or found.opcode != "bra" or found.guard is None:
        return None
    following = body.label()
    skip = _branch(following, Guard(found.guard.register, not found.guard.negated))
    return 1, [skip, dataclasses.replace(found, guard=None), following]


def choose_by_branch(body: Body, place: int) -> Changed | None:
    """``selp`` as a branch around a ``mov``."""
    found = body.at(place)
    if not isinstance(found, Instruction) or found.opcode != "selp" or found.guard is not None:
        return None
    to, yes, no, predicate = found.operands
    if not isinstance(to, Register) or not isinstance(predicate, Register) or found.type.bits < 16:
        return None
    chosen, over = body.register(to.type), body.label()
    first, second = (_move(chosen, source, found.type) for source in (yes, no))
    return 1, [first, _branch(over, Guard(predicate, False)), second, over, _move(to, chosen, found.type)]


def guard_to_branch(body: Body, place: int) -> Changed | None:
    """``@p i`` as ``@!p bra over; i; over:``."""
    found = body.at(place)
    if not isinstance(found, Instruction) or found.guard is None:
        return None
    alone = dataclasses.replace(found, guard=None)
    if not (_pure(alone) or (found.opcode in ("ld", "st", "red", "atom"))):
        return None
    over = body.label()
    return 1, [_branch(over, Guard(found.guard.register, not found.guard.negated)), alone, over]


def branch_to_guard(body: Body, place: int) -> Changed | None:
    """``@p bra L`` over some statements as guards of theirs."""
    found = body.at(place)
    if not isinstance(found, Instruction) or found.opcode != "bra" or found.guard is None:
        return None
    guard = Guard(found.guard.register, not found.guard.negated)
    skipped: list[Statement] = []
    while _pure(body.at(place + 1 + len(skipped))) and len(skipped) < 6:
        following = body.at(place + 1 + len(skipped))
        assert isinstance(following, Instruction)
        if guard.register in definitions(following):
            return None
        skipped.append(dataclasses.replace(following, guard=guard))
    end = body.at(place + 1 + len(skipped))
    meets = skipped and isinstance(end, LabelStatement) and end.name in _labels(found)
    return (1 + len(skipped), skipped) if meets else None


def multiply_by_shift(body: Body, place: int) -> Changed | None:
    """A product with a constant as a shift, and a smaller product."""
    found = _integer(body, place, "mul", 3)
    if found is None or found.slots.get("mode") != "lo":
        return None
    to, value, factor = found.operands
    if not isinstance(factor, Immediate) or factor.value < 2:
        return None
    of, power = found.types[0], factor.value.bit_length() - 1
    if power >= of.bits:
        return None
    words = _BITS[of.bits]
    if factor.value == 1 << power:
        return 1, [_make("shl", [words], [to, value, Immediate(power)])]
    high, low = body.register(words), body.register(words)
    return 1, [
        _make("shl", [words], [high, value, Immediate(power)]),
        _as(found, low, value, Immediate(factor.value - (1 << power))),
        _make("add", [of], [to, high, low]),
    ]


def shift_by_multiply(body: Body, place: int) -> Changed | None:
    """``shl`` by a constant as a product."""
    found = _integer(body, place, "shl", 3)
    if found is None:
        return None
    to, value, by = found.operands
    if not isinstance(by, Immediate) or not 0 <= by.value < 31:
        return None
    return 1, [_make("mul", [_SIGNED[found.types[0].bits]], [to, value, Immediate(1 << by.value)], mode="lo")]


def multiply_then_add(body: Body, place: int) -> Changed | None:
    """``mad.lo`` as ``mul.lo`` and ``add``."""
    found = _integer(body, place, "mad", 4)
    if found is None or found.slots.get("mode") != "lo":
        return None
    to, x, y, z = found.operands
    of, product = found.types[0], body.register(_BITS[found.types[0].bits])
    return 1, [_make("mul", [of], [product, x, y], mode="lo"), _make("add", [of], [to, product, z])]


def widen_then_multiply(body: Body, place: int) -> Changed | None:
    """``mul.wide`` as conversions and a product of 64 bits."""
    found = body.at(place)
    if not _pure(found) or not isinstance(found, Instruction) or found.opcode != "mul":
        return None
    if found.slots.get("mode") != "wide" or found.types[0].bits != 32:
        return None
    to, x, y = found.operands
    wide = {"s": T.S64, "u": T.U64}[found.types[0].kind]
    parts: list[Statement] = []
    factors: list[Operand] = []
    for operand in (x, y):
        if isinstance(operand, Immediate):
            word = operand.value % (1 << 32)
            signed = found.types[0].kind == "s" and word >> 31
            factors.append(Immediate(word - (1 << 32) if signed else word))
            continue
        factors.append(body.register(T.B64))
        parts.append(_make("cvt", [wide, found.types[0]], [factors[-1], operand]))
    return 1, [*parts, _make("mul", [wide], [to, *factors], mode="lo")]


def add_in_two(body: Body, place: int) -> Changed | None:
    """A sum with a constant in two steps."""
    found = _integer(body, place, "add", 3)
    if found is None:
        return None
    to, value, constant = found.operands
    if not isinstance(constant, Immediate) or not -(1 << 20) < constant.value < 1 << 20:
        return None
    first, half = body.rng.randrange(1 << 20), body.register(_BITS[found.types[0].bits])
    return 1, [
        _as(found, half, value, Immediate(constant.value - first)),
        _as(found, to, half, Immediate(first)),
    ]


def subtract_by_add(body: Body, place: int) -> Changed | None:
    """``a - b`` as ``a + -b``."""
    found = _integer(body, place, "sub", 3)
    if found is None:
        return None
    to, x, y = found.operands
    of, negative = _SIGNED[found.types[0].bits], body.register(_BITS[found.types[0].bits])
    return 1, [_make("neg", [of], [negative, y]), _make("add", [of], [to, x, negative])]


def _weak(access: Instruction) -> bool:
    return not {"volatile", "sem", "relaxed", "mmio"} & {*access.slots, *access.slots.values()}


def split_vector(body: Body, place: int) -> Changed | None:
    """A vector access as accesses of its elements."""
    found = body.at(place)
    if not isinstance(found, Instruction) or found.opcode not in ("ld", "st") or found.vector == 1:
        return None
    vector, access = found.operands[:2] if found.opcode == "ld" else found.operands[1::-1]
    if not isinstance(vector, Vector) or not isinstance(access, Address) or not _weak(found):
        return None
    if not all(_plain(e) for e in vector.elements) or (
        found.opcode == "ld" and access.base in vector.elements
    ):
        return None
    parts: list[Statement] = []
    for n, element in enumerate(vector.elements):
        at = dataclasses.replace(access, offset=access.offset + n * found.types[0].bits // 8)
        operands = (element, at) if found.opcode == "ld" else (at, element)
        parts.append(dataclasses.replace(found, operands=operands, vector=1))
    return 1, parts


# --- loops and tails ---------------------------------------------------------------------------------------


def _again(body: Body, statements: Sequence[Statement]) -> list[Statement]:
    """Statements with labels of their own."""
    fresh = {s.name: body.label() for s in statements if isinstance(s, LabelStatement)}
    copied: list[Statement] = []
    for statement in statements:
        if isinstance(statement, LabelStatement):
            copied.append(fresh[statement.name])
        elif isinstance(statement, Instruction) and _labels(statement) & fresh.keys():
            operands = [
                Label(fresh[o.name].name) if isinstance(o, Label) and o.name in fresh else o
                for o in statement.operands
            ]
            copied.append(_as(statement, *operands))
        else:
            copied.append(statement)
    return copied


def _copyable(statements: Sequence[Statement]) -> bool:
    """Whether statements may stand at two places."""
    return all(
        isinstance(s, LabelStatement) or (isinstance(s, Instruction) and s.opcode not in ("brx", "call"))
        for s in statements
    )


def peel(body: Body, place: int) -> Changed | None:
    """The first round of a loop written before it."""
    head = body.at(place)
    if not isinstance(head, LabelStatement):
        return None
    backward = [n for n in body.branches_to(head.name) if n > place]
    if len(backward) != 1 or body.branches_to(head.name) != backward or backward[0] - place > _LONGEST:
        return None
    closing = body.at(backward[0])
    round_ = body.statements[place + 1 : backward[0]]
    if not isinstance(closing, Instruction) or closing.opcode != "bra" or closing.guard is None:
        return None
    inner = {s.name for s in round_ if isinstance(s, LabelStatement)}
    outside = [*body.statements[:place], *body.statements[backward[0] + 1 :]]
    if not _copyable(round_) or any(isinstance(s, Instruction) and _labels(s) & inner for s in outside):
        return None
    after = body.label()
    first = [*_again(body, round_), closing, _branch(after)]
    return backward[0] - place + 1, [*first, head, *round_, closing, after]


_TOGETHER = (
    "bar",
    "barrier",
    "shfl",
    "vote",
    "match",
    "redux",
    "elect",
    "mma",
    "wmma",
    "wgmma",
    "activemask",
)


def double_tail(body: Body, place: int) -> Changed | None:
    """``bra L`` as a copy of what stands at L, up to where it branches away or returns."""
    found = body.at(place)
    if not isinstance(found, Instruction) or found.opcode != "bra" or found.guard is not None:
        return None
    (name,) = _labels(found)
    start = next(n for n, s in enumerate(body.statements) if isinstance(s, LabelStatement) and s.name == name)
    tail: list[Statement] = []
    for statement in body.statements[start + 1 : start + 1 + _LONGEST]:
        if isinstance(statement, LabelStatement):
            return 1, [*tail, _branch(statement)]
        if not isinstance(statement, Instruction) or not _copyable([statement]):
            return None
        if statement.opcode in _TOGETHER or "matrix" in statement.opcode:
            return None
        tail.append(statement)
        if statement.guard is None and statement.opcode in ("bra", "ret", "exit"):
            return 1, tail
    return None


KINDS: dict[str, Callable[[Body, int], Changed | None]] = {
    kind.__name__: kind
    for kind in (
        commute,
        mirror,
        copy_source,
        copy_result,
        compute_twice,
        exchange,
        negate_guard,
        negate_choice,
        branch_over,
        choose_by_branch,
        guard_to_branch,
        branch_to_guard,
        multiply_by_shift,
        shift_by_multiply,
        multiply_then_add,
        widen_then_multiply,
        add_in_two,
        subtract_by_add,
        split_vector,
        peel,
        double_tail,
    )
}
