"""Loops that ptxas unrolls whole before it contracts: those of few rounds, known when it compiles.

What one round makes is then read by the next in one block of code, and what is made before the loop by the
first round. A loop is a stretch of text from a label to the only branch back to it, with no loop inside that
is left.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace

from zluda.compiler.contract.values import Values
from zluda.ptx.module import (
    BranchTargets,
    Function,
    Guard,
    Immediate,
    Instruction,
    Label,
    LabelStatement,
    Register,
    Statement,
)
from zluda.records import dataclass

MOST_ROUNDS = 1000
_LIMITS = ((7, 3500), (13, 1950), (17, 1360), (25, 1000), (35, 700), (45, 540), (65, 455), (95, 380))
"""Instructions a round, and how many all rounds together may have: measured with ptxas 13.0 for sm_90."""
_LIMIT = 310
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "lt": operator.lt,
    "lo": operator.lt,
    "le": operator.le,
    "ls": operator.le,
    "gt": operator.gt,
    "hi": operator.gt,
    "ge": operator.ge,
    "hs": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
}


@dataclass(frozen=True, slots=True)
class Unrolled:
    """``origins[i]`` is the instruction of the function before that instruction ``i`` is a copy of."""

    function: Function
    origins: list[int]


@dataclass(frozen=True, slots=True)
class _Loop:
    """Statements ``first`` to ``last``, of which the last branches back; ``rounds`` times.

    ``leaves`` is the branch out of a loop that is tested at its top, as a statement; else None.
    """

    first: int
    last: int
    rounds: int
    leaves: int | None


def unroll(function: Function, values: Values, live: set[int]) -> Unrolled | None:
    """The function with its innermost loops unrolled as ptxas does; None where it unrolls none of them."""
    body = function.body or []
    text = _Text(body)
    loops = [loop for region in text.innermost() if (loop := _find(function, text, region, values, live))]
    if not loops:
        return None
    writer = _Copier(function, text)
    at = 0
    for loop in loops:
        writer.copy(range(at, loop.first))
        writer.unroll(loop)
        at = loop.last + 1
    writer.copy(range(at, len(body)))
    return writer.result()


class _Text:
    """Where labels stand, and who branches to them, by the statement's index."""

    def __init__(self, body: list[Statement]) -> None:
        self.body = body
        self.numbers: list[int] = []
        """Instructions before each statement."""
        self.labels: dict[str, int] = {}
        self.branches: dict[str, list[int]] = {}
        self.tabled: set[str] = set()
        count = 0
        for at, statement in enumerate(body):
            self.numbers.append(count)
            if isinstance(statement, Instruction):
                count += 1
                if statement.opcode == "bra" and isinstance(statement.operands[-1], Label):
                    self.branches.setdefault(statement.operands[-1].name, []).append(at)
            elif isinstance(statement, LabelStatement):
                self.labels[statement.name] = at
            elif isinstance(statement, BranchTargets):
                self.tabled |= set(statement.targets)

    def innermost(self) -> list[tuple[int, int]]:
        """Stretches from a label to a branch back to it that hold no other, in order."""
        backward = sorted(
            (branch, self.labels[name])
            for name, branches in self.branches.items()
            for branch in branches
            if self.labels.get(name, len(self.body)) < branch
        )
        found: list[tuple[int, int]] = []
        for last, first in backward:
            if not any(first <= other < last for other, _ in backward):
                found.append((first, last))
        return sorted(found)

    def is_closed(self, first: int, last: int) -> bool:
        """Whether the stretch is entered at its top only, and its last statement alone branches back."""
        for at in range(first, last + 1):
            statement = self.body[at]
            if isinstance(statement, LabelStatement):
                inside = range(last, last + 1) if at == first else range(first, last + 1)
                branches = self.branches.get(statement.name, [])
                if statement.name in self.tabled or any(branch not in inside for branch in branches):
                    return False
            elif not isinstance(statement, Instruction) or statement.opcode == "brx":
                return False
        return True

    def straight(self, first: int, last: int) -> tuple[range, range]:
        """The statements that every round begins with, and those that it ends with."""
        cuts = [at for at in range(first + 1, last) if self._parts(self.body[at])]
        return range(first, cuts[0] if cuts else last), range(cuts[-1] + 1 if cuts else first, last)

    def _parts(self, statement: Statement) -> bool:
        return not isinstance(statement, Instruction) or statement.opcode in ("bra", "ret", "exit")


def _find(
    function: Function, text: _Text, region: tuple[int, int], values: Values, live: set[int]
) -> _Loop | None:
    """The loop of a stretch of text if ptxas unrolls it."""
    first, last = region
    if not text.is_closed(first, last):
        return None
    numbers = range(text.numbers[first], text.numbers[last] + 1)
    if any(p.text == "nounroll" and p.ordinal == numbers.start for p in function.pragmas):
        return None
    jump, leaves = text.body[last], None
    assert isinstance(jump, Instruction)
    begins, ends = text.straight(first, last)
    always = {text.numbers[at] for part in (begins, ends) for at in part}
    if jump.guard is None:
        leaves = begins.stop
        jump = text.body[leaves] if leaves < last else jump
        if not isinstance(jump, Instruction) or jump.guard is None or jump.opcode != "bra":
            return None
        target = jump.operands[-1]
        if not isinstance(target, Label) or first <= text.labels.get(target.name, first) <= last:
            return None
    at = text.numbers[last if leaves is None else leaves]
    count = _Counter(values, numbers, always).rounds(at, jump.guard, tested_first=leaves is not None)
    size = sum(1 for i in numbers if i in live and i not in values.copies)
    if count is None or count * size > _most(size):
        return None
    return _Loop(first, last, count, leaves)


def _most(size: int) -> int:
    """The instructions that the rounds of a loop of this size may come to."""
    return next((limit for longest, limit in _LIMITS if size <= longest), _LIMIT)


class _Counter:
    """How often a loop goes round: a counter begins at a constant, is added one to it, compared with one."""

    def __init__(self, values: Values, inside: range, always: set[int]) -> None:
        self.values, self.inside, self.always = values, inside, always
        self.instructions = values.instructions

    def rounds(self, branch: int, guard: Guard, *, tested_first: bool) -> int | None:
        """How often; None where that is not known, or more than MOST_ROUNDS times.

        ``branch`` leaves the loop if ``tested_first``, else it goes back.
        """
        places = self.values.definitions_at(branch, guard.register.name)
        if len(places) != 1 or places[0] not in self.always:
            return None
        test = self.instructions[places[0]]
        if test.opcode != "setp" or "boolop" in test.slots or test.guard or test.type.kind not in "usb":
            return None
        limit = self.values.of(places[0], test.operands[2], test.type)
        counter = test.operands[1]
        if limit.kind != "const" or not isinstance(counter, Register) or test.slots["cmp"] not in _COMPARE:
            return None
        read = self.values.definitions_at(places[0], counter.name)
        steps = [i for i in read if i in self.inside]
        start = self._start(steps[0], counter) if len(steps) == 1 else None
        step = self._step(steps[0], counter) if start is not None else None
        if start is None or step is None or len(read) > 2:
            return None
        bits, signed = test.type.bits, test.type.kind == "s"
        compare, count = _COMPARE[test.slots["cmp"]], 0
        value, last = (_wrapped(v, bits, signed) for v in (start, limit.bits))
        while count <= MOST_ROUNDS:
            after = _wrapped(value + step, bits, signed)
            seen = after if len(read) == 1 else value
            holds = compare(seen, last) != guard.negated
            if tested_first and holds:
                return count
            value, count = after, count + 1
            if not tested_first and not holds:
                return count
        return None

    def _start(self, step: int, counter: Register) -> int | None:
        """The constant that the counter is before the first round."""
        places = self.values.definitions_at(step, counter.name)
        outside = [i for i in places if i not in self.inside]
        if len(places) != 2 or len(outside) != 1 or step not in places:
            return None
        value = self.values.made_by(outside[0])
        return value.bits if value.kind == "const" else None

    def _step(self, at: int, counter: Register) -> int | None:
        instruction = self.instructions[at]
        if at not in self.always or instruction.guard or instruction.opcode not in ("add", "sub"):
            return None
        amount = instruction.operands[2]
        if instruction.operands[1] != counter or not isinstance(amount, Immediate):
            return None
        return amount.value if instruction.opcode == "add" else -amount.value


def _wrapped(value: int, bits: int, signed: bool) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> (bits - 1) else value


class _Copier:
    """Writes the function that has a loop's rounds one behind the other."""

    def __init__(self, function: Function, text: _Text) -> None:
        self.function, self.text = function, text
        self.body: list[Statement] = []
        self.origins: list[int] = []
        self.copies = 0

    def copy(self, places: range, skipped: frozenset[int] = frozenset(), suffix: str = "") -> None:
        """Copies of statements; the labels among them, and branches to those, get ``suffix``."""
        own = set()
        if suffix:
            labels = (self.text.body[at] for at in places)
            own = {label.name for label in labels if isinstance(label, LabelStatement)}
        for at in places:
            if at not in skipped:
                self.put(self._renamed(self.text.body[at], own, suffix), self.text.numbers[at])

    def _renamed(self, statement: Statement, own: set[str], suffix: str) -> Statement:
        if isinstance(statement, LabelStatement) and statement.name in own:
            return replace(statement, name=statement.name + suffix)
        if isinstance(statement, Instruction) and statement.opcode == "bra":
            target = statement.operands[-1]
            if isinstance(target, Label) and target.name in own:
                return replace(statement, operands=(*statement.operands[:-1], Label(target.name + suffix)))
        return statement

    def put(self, statement: Statement, origin: int) -> None:
        if isinstance(statement, Instruction):
            if statement.ordinal != len(self.origins):
                statement = replace(statement, ordinal=len(self.origins))
            self.origins.append(origin)
        self.body.append(statement)

    def unroll(self, loop: _Loop) -> None:
        """All rounds of a loop; one tested at its top goes once more to the branch that leaves it."""
        left_out = frozenset(p for p in (loop.first, loop.last, loop.leaves) if p is not None)
        for _ in range(loop.rounds):
            self.copies += 1
            self.copy(range(loop.first, loop.last + 1), left_out, f"$round{self.copies}")
        if loop.leaves is not None:
            self.copy(range(loop.first + 1, loop.leaves))
            leaving = self.text.body[loop.leaves]
            assert isinstance(leaving, Instruction)
            self.put(replace(leaving, guard=None), self.text.numbers[loop.leaves])

    def result(self) -> Unrolled:
        places: dict[int, list[int]] = {}
        for i, origin in enumerate(self.origins):
            places.setdefault(origin, []).append(i)
        end = [len(self.origins)]
        lines = [
            replace(line, ordinal=i)
            for line in self.function.debug_lines
            for i in places.get(line.ordinal, end)
        ]
        pragmas = [replace(p, ordinal=places.get(p.ordinal, end)[0]) for p in self.function.pragmas]
        function = replace(
            self.function,
            body=self.body,
            debug_lines=tuple(sorted(lines, key=lambda line: line.ordinal)),
            pragmas=tuple(pragmas),
        )
        return Unrolled(function, self.origins)
