"""A function with loops unrolled: copies of their rounds, one behind the other."""

from __future__ import annotations

from dataclasses import replace

from zluda.ptx.module import (
    Function,
    Guard,
    Immediate,
    Instruction,
    Label,
    LabelStatement,
    Location,
    Operand,
    Register,
    Statement,
)
from zluda.ptx.types import ScalarType
from zluda.records import dataclass

T = ScalarType
FOUR = "$four"
"""In the name of a label that four rounds of a loop stand behind."""


@dataclass(frozen=True, slots=True)
class Counter:
    """What a loop counts with.

    ``register`` is added ``step`` to once a round, and compared as ``compare`` says, as a ``type``, with
    ``bound``: behind the step if ``tests_next``. ``start`` and ``limit`` are what it begins with and what
    ``bound`` is, where they are constants.
    """

    register: Register
    bound: Operand
    type: ScalarType
    compare: str
    step: int
    tests_next: bool
    start: int | None
    limit: int | None


@dataclass(frozen=True, slots=True)
class Loop:
    """Statements ``first``, its label, to ``last``, which branches back.

    ``leaves`` is the branch out of a loop that is tested at its top, else None. ``rounds`` are all, or None:
    then four are taken at a time, as often as ``counter`` says. Of known ones ``together``, if not 0, are
    taken at a time, and those that are over before.
    """

    first: int
    last: int
    leaves: int | None
    rounds: int | None
    counter: Counter | None
    together: int = 0


@dataclass(frozen=True, slots=True)
class Unrolled:
    """``origins[i]`` is the instruction of the function before that instruction ``i`` is a copy of.

    -1: none; it counts rounds.
    """

    function: Function
    origins: list[int]


class Copier:
    """Writes the function anew. ``numbers`` are the instructions before each of its statements."""

    def __init__(self, function: Function, numbers: list[int]) -> None:
        self.function, self.statements, self.numbers = function, function.body or [], numbers
        self.registers: dict[str, ScalarType] = {}
        self.body: list[Statement] = []
        self.origins: list[int] = []
        self.copies = 0
        self.location = Location(0, 0)

    def copy(self, places: range, skipped: frozenset[int] = frozenset(), suffix: str = "") -> None:
        """Copies of statements; the labels among them, and branches to those, get ``suffix``."""
        own = set()
        if suffix:
            labels = (self.statements[at] for at in places)
            own = {label.name for label in labels if isinstance(label, LabelStatement)}
        for at in places:
            if at not in skipped:
                self.put(self._renamed(self.statements[at], own, suffix), self.numbers[at])

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

    def unroll(self, loop: Loop) -> None:
        """All rounds of a loop."""
        if loop.counter is not None:
            self.by_four(loop, loop.counter)
            return
        rounds = loop.rounds or 0
        self.whole_rounds(loop, rounds % loop.together if loop.together else rounds)
        if loop.together:
            self.some_together(loop)
        elif loop.leaves is not None:  # one tested at its top goes there once more
            self.copy(range(loop.first + 1, loop.leaves))
            self.go(loop.leaves)

    def whole_rounds(self, loop: Loop, count: int) -> None:
        """Rounds without their label and branches."""
        left_out = frozenset(p for p in (loop.first, loop.last, loop.leaves) if p is not None)
        for _ in range(count):
            self.copies += 1
            self.copy(range(loop.first, loop.last + 1), left_out, f"$round{self.copies}")

    def some_together(self, loop: Loop) -> None:
        """A loop of rounds that are a multiple of ``together``: as many at a time, then a test."""
        label, back = self.statements[loop.first], self.instruction(loop.last)
        assert isinstance(label, LabelStatement)
        self.copies += 1
        name = f"{label.name}{FOUR}{self.copies}"
        self.put(replace(label, name=name), -1)
        if loop.leaves is not None:
            self.copy(range(loop.first + 1, loop.leaves + 1))
            self.copy(range(loop.leaves + 1, loop.last))
        self.whole_rounds(loop, loop.together - (loop.leaves is not None))
        self.put(replace(back, operands=(*back.operands[:-1], Label(name))), self.numbers[loop.last])

    def go(self, leaves: int) -> None:
        """Leave a loop in any case."""
        self.put(replace(self.instruction(leaves), guard=None), self.numbers[leaves])

    def instruction(self, at: int) -> Instruction:
        found = self.statements[at]
        assert isinstance(found, Instruction)
        return found

    def by_four(self, loop: Loop, counter: Counter) -> None:
        """Four rounds at a time, then two, then one."""
        self.copies += 1
        label = self.statements[loop.first]
        assert isinstance(label, LabelStatement)
        name = f"{label.name}{FOUR}{self.copies}"
        labels = {count: f"{name}$take{count}" for count in (4, 2, 1)}
        behind = f"{name}$behind"
        self.location = self.instruction(loop.last).location
        if loop.leaves is not None:
            self.copy(range(loop.first + 1, loop.leaves + 1))
        more = self.rounds_left(counter)
        few = self.new(T.PRED)
        for count, following in ((4, 2), (2, 1), (1, 0)):
            self.put(LabelStatement(labels[count], self.location), -1)
            if following:
                self.add("setp", {"cmp": "lt"}, more.type, few, more, Immediate(count - 1))
                self.branch(labels[following], Guard(few, False))
            for _ in range(count):
                self.round(loop)
            if count == 4:
                self.leave(loop, behind)
                self.add("sub", {}, more.type, more, more, Immediate(count))
                self.branch(labels[4], None)
            elif count == 2:
                self.leave(loop, behind)
        if loop.leaves is not None:
            self.go(loop.leaves)
        self.put(LabelStatement(behind, self.location), -1)

    def rounds_left(self, counter: Counter) -> Register:
        """How many more rounds than one there are: none if the limit is passed before the loop."""
        unsigned = T.U64 if counter.type.bits == 64 else T.U32
        more, passed = self.new(unsigned), self.new(T.PRED)
        up = counter.step == 1
        first, second = (counter.bound, counter.register) if up else (counter.register, counter.bound)
        self.add("sub", {}, unsigned, more, first, second)
        self.add("sub", {}, unsigned, more, more, Immediate(1))
        if counter.compare not in ("eq", "ne"):
            compare = "ge" if up else "le"
            self.add("setp", {"cmp": compare}, counter.type, passed, counter.register, counter.bound)
            bits = T.B64 if unsigned is T.U64 else T.B32
            self.add("selp", {}, bits, more, Immediate(0), more, passed)
        return more

    def round(self, loop: Loop) -> None:
        """One round without its branch back; that of a loop tested at its top ends with the test."""
        self.copies += 1
        suffix = f"$round{self.copies}"
        if loop.leaves is None:
            self.copy(range(loop.first, loop.last), frozenset((loop.first,)), suffix)
            return
        self.copy(range(loop.leaves + 1, loop.last), suffix=suffix)
        self.copy(range(loop.first + 1, loop.leaves))

    def leave(self, loop: Loop, behind: str) -> None:
        """Leave where the last round of some was the last of all."""
        if loop.leaves is not None:
            self.put(self.instruction(loop.leaves), self.numbers[loop.leaves])
            return
        back = self.instruction(loop.last)
        assert back.guard is not None
        guard = replace(back.guard, negated=not back.guard.negated)
        self.put(replace(back, operands=(*back.operands[:-1], Label(behind)), guard=guard), -1)

    # --- instructions that count rounds ------------------------------------------------------------------

    def new(self, type: ScalarType) -> Register:
        name = f"%unroll{len(self.registers)}"
        while name in self.function.registers:
            name += "_"
        self.registers[name] = type
        return Register(name, type)

    def add(self, opcode: str, slots: dict[str, str], type: ScalarType, *operands: Operand) -> None:
        self.put(Instruction(opcode, slots, (type,), operands, None, self.location, 0), -1)

    def branch(self, label: str, guard: Guard | None) -> None:
        branch = Instruction("bra", {}, (), (Label(label),), guard, self.location, 0, destinations=0)
        self.put(branch, -1)

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
            registers={**self.function.registers, **self.registers},
            debug_lines=tuple(sorted(lines, key=lambda line: line.ordinal)),
            pragmas=tuple(pragmas),
        )
        return Unrolled(function, self.origins)
