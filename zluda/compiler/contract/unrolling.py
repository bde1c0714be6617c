"""Loops that ptxas unrolls whole before it contracts: of few rounds, known, and one block long.

Only what follows for blocks is modelled: the loop, what stands before it and what stands behind it are one.
A product that one round makes and the next one uses is not seen.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

from zluda.ptx.module import Immediate, Instruction, Register

MOST_ROUNDS = 500
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


def rounds(before: list[Instruction], body: list[Instruction]) -> int | None:
    """How often a loop's body runs whose last instruction jumps back; None where that is not known, or often.

    ``before`` is the straight code in front of the loop. The counter starts there from a constant, is added a
    constant to once a round, and is compared with a constant at the end.
    """
    jump = body[-1]
    if jump.opcode != "bra" or jump.guard is None:
        return None
    test = _last(body, jump.guard.register)
    if test is None or test.opcode != "setp" or "boolop" in test.slots or test.type.kind not in "us":
        return None
    counter, limit = test.operands[1], test.operands[2]
    if not isinstance(counter, Register) or not isinstance(limit, Immediate):
        return None
    steps = [i for i in body if counter in i.operands[: i.destinations]]
    start = _last(before, counter)
    if (
        len(steps) != 1
        or start is None
        or start.opcode != "mov"
        or not isinstance(start.operands[1], Immediate)
    ):
        return None
    step = _step(steps[0], counter)
    if step is None or body.index(steps[0]) > body.index(test):
        return None
    compare = _COMPARE[test.slots["cmp"]]
    value, count = start.operands[1].value, 0
    while count <= MOST_ROUNDS:
        value, count = value + step, count + 1
        if compare(value, limit.value) == jump.guard.negated:
            return count if count * len(body) <= _most(len(body)) else None
    return None


def _most(size: int) -> int:
    """The instructions that the rounds of a loop of this size may come to."""
    return next((limit for longest, limit in _LIMITS if size <= longest), _LIMIT)


def _last(code: list[Instruction], register: Register) -> Instruction | None:
    """The last instruction that gives a register its value, if it always does."""
    found = next((i for i in reversed(code) if register in i.operands[: i.destinations]), None)
    return found if found is not None and found.guard is None else None


def _step(instruction: Instruction, counter: Register) -> int | None:
    if instruction.opcode != "add" or instruction.guard is not None or instruction.operands[1] != counter:
        return None
    amount = instruction.operands[2]
    return amount.value if isinstance(amount, Immediate) else None
