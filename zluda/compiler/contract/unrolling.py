"""Loops that ptxas unrolls before it contracts: whole, or some rounds at a time.

What one round makes is then read by the next in one block of code, and what is made before the loop by the
first round. A loop is a stretch of text from a label to the only branch back to it, with no loop inside that
is left. Of few rounds, known when it compiles, it is unrolled whole; of many, as many are taken at a time as
come to 350 instructions, those that are over before the loop; if it is short and counts by one to a limit,
and the rounds are not known, by four: then two and one are left (``copies.py`` writes all three).
"""

from __future__ import annotations

import operator
from collections.abc import Callable

from zluda.compiler.contract.copies import FOUR, Copier, Counter, Loop, Unrolled
from zluda.compiler.contract.kinds import has_effect, is_quotient
from zluda.compiler.contract.values import Values
from zluda.ptx.module import (
    BranchTargets,
    Function,
    Guard,
    Immediate,
    Instruction,
    Label,
    LabelStatement,
    Operand,
    Register,
    Statement,
)

MOST_ROUNDS = 10_000
_LIMITS = ((7, 3500), (13, 1950), (17, 1360), (25, 1000), (35, 700), (45, 540), (65, 455), (95, 380))
"""Instructions a round, and how many all rounds together may have: measured with ptxas 13.0 for sm_90."""
_LIMIT = 310
_TOGETHER, _LONGEST = 350, 72
"""Instructions that rounds taken at a time may come to, if there are too many of them to take all, and one
round of those: without the three that count. Measured like the others, and to the instruction."""
_QUOTIENTS = {("approx", False): 7, ("approx", True): 2, ("full", False): 12, ("full", True): 8}
"""Instructions that ``div`` counts for there, by its kind and ``.ftz``."""
_SHORT = 21
"""Instructions that a round may have for four to be taken at a time, if their number is not known."""
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
_OPPOSITE = {"lt": "ge", "lo": "hs", "le": "gt", "ls": "hi", "gt": "le", "hi": "ls", "ge": "lt", "hs": "lo"}
_OPPOSITE |= {"eq": "ne", "ne": "eq"}


def unroll(function: Function, values: Values, live: set[int]) -> Unrolled | None:
    """The function with its innermost loops unrolled as ptxas does; None where it unrolls none of them."""
    body = function.body or []
    text = _Text(body)
    loops = [loop for region in text.innermost() if (loop := _find(function, text, region, values, live))]
    if not loops:
        return None
    copier = Copier(function, text.numbers)
    at = 0
    for loop in loops:
        copier.copy(range(at, loop.first))
        copier.unroll(loop)
        at = loop.last + 1
    copier.copy(range(at, len(body)))
    return copier.result()


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

    def stays(self, first: int, last: int, leaves: int | None) -> bool:
        """Whether no branch but ``leaves`` goes out of the stretch."""
        return all(
            statement.opcode != "bra"
            or at == leaves
            or (isinstance(target := statement.operands[-1], Label) and self._is_within(target, first, last))
            for at, statement in enumerate(self.body[first : last + 1], first)
            if isinstance(statement, Instruction)
        )

    def _is_within(self, label: Label, first: int, last: int) -> bool:
        return first <= self.labels.get(label.name, -1) <= last

    def straight(self, first: int, last: int) -> tuple[range, range]:
        """The statements that every round begins with, and those that it ends with."""
        cuts = [at for at in range(first + 1, last) if self._parts(self.body[at])]
        return range(first, cuts[0] if cuts else last), range(cuts[-1] + 1 if cuts else first, last)

    def _parts(self, statement: Statement) -> bool:
        return not isinstance(statement, Instruction) or statement.opcode in ("bra", "ret", "exit")


def _find(
    function: Function, text: _Text, region: tuple[int, int], values: Values, live: set[int]
) -> Loop | None:
    """The loop of a stretch of text if ptxas unrolls it."""
    first, last = region
    if not text.is_closed(first, last):
        return None
    numbers = range(text.numbers[first], text.numbers[last] + 1)
    begins, ends = text.straight(first, last)
    header = range(numbers.start, text.numbers[begins.stop])
    if any(p.text == "nounroll" and p.ordinal in header and not p.before_label for p in function.pragmas):
        return None
    always = {text.numbers[at] for part in (begins, ends) for at in part}
    leaves = _exit(text, first, last)
    jump = text.body[last if leaves is None else leaves]
    assert isinstance(jump, Instruction)
    if jump.guard is None:
        return None
    at = text.numbers[last if leaves is None else leaves]
    counter = _Counter(values, numbers, always).find(at, jump.guard)
    size = sum(1 for i in numbers if i in live and i not in values.copies)
    if counter is None:
        return None
    if _is_idle(values, numbers, live) and text.stays(first, last, leaves):
        return Loop(first, last, leaves, 0, None)
    if counter.start is not None and counter.limit is not None:
        count = rounds(counter, jump.guard, tested_first=leaves is not None)
        if count is None:
            return None
        if count * size <= _most(size):
            return Loop(first, last, leaves, count, None)
        taken = _taken_together(text, values, numbers, live, begins, leaves, count)
        return Loop(first, last, leaves, count, None, taken) if taken > 1 else None
    fours = size - (leaves is not None) <= _SHORT and _is_taken_by_four(text, counter, jump, begins, leaves)
    return Loop(first, last, leaves, None, counter) if fours else None


def _exit(text: _Text, first: int, last: int) -> int | None:
    """The branch out of a loop that branches back in any case: the first that a round comes to."""
    back = text.body[last]
    assert isinstance(back, Instruction)
    at = text.straight(first, last)[0].stop
    leaving = text.body[at]
    if back.guard is not None or not isinstance(leaving, Instruction) or leaving.opcode != "bra":
        return None
    target = leaving.operands[-1]
    outside = isinstance(target, Label) and not first <= text.labels.get(target.name, first) <= last
    return at if outside and leaving.guard is not None else None


def _is_idle(values: Values, inside: range, live: set[int]) -> bool:
    """Whether a loop does nothing but count its rounds."""
    code = [i for i in inside if i in live]
    if any(has_effect(values.instructions[i]) and values.instructions[i].opcode != "bra" for i in code):
        return False
    made = {register.name for i in inside for register in values.definitions[i]}
    return not any(
        place in inside
        for i in live
        if i not in inside
        for register in values.uses[i]
        if register.name in made
        for place in values.definitions_at(i, register.name)
    )


def _is_taken_by_four(
    text: _Text, counter: Counter, jump: Instruction, begins: range, leaves: int | None
) -> bool:
    """Whether the rounds left are the difference of limit and counter, and the loop was not yet taken so."""
    label = text.body[begins.start]
    assert isinstance(label, LabelStatement) and jump.guard is not None
    if FOUR in label.name or (leaves is not None and begins.stop - begins.start > 2):
        return False
    goes_on = jump.guard.negated == (leaves is not None)
    compare = counter.compare if goes_on else _OPPOSITE[counter.compare]
    up = compare in ("lt", "lo", "ne") and counter.step == 1
    down = compare in ("gt", "hi", "ne") and counter.step == -1
    return (up or down) and counter.tests_next == (leaves is None) and counter.type.bits >= 32


def _taken_together(
    text: _Text, values: Values, inside: range, live: set[int], begins: range, leaves: int | None, count: int
) -> int:
    """How many of so many rounds are taken at a time: the most with which those that are over fit in, too."""
    label = text.body[begins.start]
    assert isinstance(label, LabelStatement)
    header = 0 if leaves is None else leaves - begins.start - 2  # but for the label and the comparison
    branches = sum(1 for i in inside if values.instructions[i].opcode in ("bra", "ret", "exit"))
    if FOUR in label.name or header > 0 or branches > (1 if leaves is None else 2):
        return 1
    size = sum(_weight(values.instructions[i]) for i in inside if i in live and i not in values.copies)
    size -= 3 if leaves is None else 4
    if not 0 < size <= _LONGEST:
        return 1
    most = min(_TOGETHER // size, count - 1)
    return next((taken for taken in range(most, 1, -1) if taken + count % taken <= _TOGETHER // size), 1)


def _weight(instruction: Instruction) -> int:
    if not is_quotient(instruction):
        return 1
    return _QUOTIENTS["full" if instruction.has("full") else "approx", instruction.has("ftz")]


def _most(size: int) -> int:
    """The instructions that the rounds of a loop of this size may come to."""
    return next((limit for longest, limit in _LIMITS if size <= longest), _LIMIT)


class _Counter:
    """Looks for what a loop counts with: added a constant to once a round, and compared with a limit."""

    def __init__(self, values: Values, inside: range, always: set[int]) -> None:
        self.values, self.inside, self.always = values, inside, always
        self.instructions = values.instructions

    def find(self, branch: int, guard: Guard) -> Counter | None:
        """What the branch that leaves the loop or goes back is decided by; None for another decision."""
        places = self.values.definitions_at(branch, guard.register.name)
        if len(places) != 1 or places[0] not in self.always:
            return None
        at = places[0]
        test = self.instructions[at]
        if test.opcode != "setp" or "boolop" in test.slots or test.guard or test.type.kind not in "usb":
            return None
        register, limit = test.operands[1], test.operands[2]
        if not isinstance(register, Register) or test.slots["cmp"] not in _COMPARE:
            return None
        read = self.values.definitions_at(at, register.name)
        steps = [i for i in read if i in self.inside]
        step = self._step(steps[0], register) if len(steps) == 1 and len(read) <= 2 else None
        if step is None or not self._is_constant(at, limit):
            return None
        bound = self.values.of(at, limit, test.type)
        start = self._start(steps[0], register)
        return Counter(
            register,
            limit,
            test.type,
            test.slots["cmp"],
            step,
            len(read) == 1,
            start,
            bound.bits if bound.kind == "const" else None,
        )

    def _is_constant(self, at: int, limit: Operand) -> bool:
        """Whether the limit is the same in all rounds."""
        if isinstance(limit, Immediate):
            return True
        if not isinstance(limit, Register) or limit.special:
            return False
        return not any(i in self.inside for i in self.values.definers.get(limit.name, []))

    def _start(self, step: int, counter: Register) -> int | None:
        """The constant that the counter is before the first round; None if it is not one."""
        outside = [i for i in self.values.definitions_at(step, counter.name) if i not in self.inside]
        value = self.values.made_by(outside[0]) if len(outside) == 1 else None
        return value.bits if value is not None and value.kind == "const" else None

    def _step(self, at: int, counter: Register) -> int | None:
        """What is added once a round, to nothing but what the last round left or the loop began with."""
        instruction = self.instructions[at]
        if at not in self.always or instruction.guard or instruction.opcode not in ("add", "sub"):
            return None
        amount = instruction.operands[2]
        places = self.values.definitions_at(at, counter.name)
        if any(i in self.inside and i != at for i in places) or at not in places:
            return None
        if instruction.operands[1] != counter or not isinstance(amount, Immediate):
            return None
        return amount.value if instruction.opcode == "add" else -amount.value


def rounds(counter: Counter, guard: Guard, *, tested_first: bool) -> int | None:
    """How often a loop goes round whose counter starts and ends at constants; None for MOST_ROUNDS or more.

    ``guard`` is that of the branch out of the loop if ``tested_first``, else of that back.
    """
    assert counter.start is not None and counter.limit is not None
    bits, signed = counter.type.bits, counter.type.kind == "s"
    compare = _COMPARE[counter.compare]
    value, last = (_wrapped(v, bits, signed) for v in (counter.start, counter.limit))
    for count in range(MOST_ROUNDS):
        after = _wrapped(value + counter.step, bits, signed)
        holds = compare(after if counter.tests_next else value, last) != guard.negated
        if tested_first and holds:
            return count
        if not tested_first and not holds:
            return count + 1
        value = after
    return None


def _wrapped(value: int, bits: int, signed: bool) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> (bits - 1) else value
