"""Less PTX, by delta debugging: parts of functions are left out, large ones first, and what holds is kept.

Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input" (2002), on instructions; then
guards and results of single instructions give way to what they were made of. Where several threads run,
barriers and what stores' addresses are made of stay: without them threads would race, and devices differ
lawfully.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial

from zluda.compiler.analysis.operands import definitions, uses
from zluda.isolate.reduce.case import Case
from zluda.isolate.reduce.instructions import attempt, lines_of, renamed, whole, without
from zluda.isolate.reduce.question import Progress, Question
from zluda.isolate.values.sites import address_of
from zluda.ptx.module import Address, Function, Immediate, Instruction, Register, Statement
from zluda.ptx.printer import print_instruction, print_operand, print_statement

_BARRIERS = frozenset(("bar", "barrier", "membar", "fence", "mbarrier"))


def less_ptx(case: Case, question: Question, progress: Progress, seed: int = 0) -> Case:
    """The case with as little PTX as is found in the time there is."""
    rng = random.Random(seed)
    while not question.over:
        before = case.instructions
        for function in [f.name for f in case.part.functions]:
            case = _fewer_instructions(case, function, question, progress, rng)
        case = _simpler(case, question, progress)
        if case.instructions >= before:
            break
    return case


def _fewer_instructions(
    case: Case, name: str, question: Question, progress: Progress, rng: random.Random
) -> Case:
    function = _function(case, name)
    size = max(len(function.instructions) // 2, 1) if function is not None else 0
    while size >= 1 and not question.over:
        progress(f"PTX of {name}, {size} instructions at a time", case)
        case, cut = _pass(case, name, size, question, rng)
        if size > 1 or not cut:
            size //= 2
    return case


def _pass(case: Case, name: str, size: int, question: Question, rng: random.Random) -> tuple[Case, bool]:
    """Leave out pieces of so many instructions, from a random place on, each once."""
    cut = False
    offset = rng.randrange(size) if size > 1 else 0
    at = -offset
    while not question.over:
        function = _function(case, name)
        if function is None or at >= len(function.instructions):
            break
        candidate = _without_piece(case, function, at, at + size, question)
        if candidate is not None and question.holds(candidate):
            case, cut = candidate, True
        else:
            at += size
    return case, cut


def _function(case: Case, name: str) -> Function | None:
    return next((f for f in case.part.functions if f.name == name and f.body is not None), None)


def _without_piece(case: Case, function: Function, start: int, stop: int, question: Question) -> Case | None:
    instructions = function.instructions[max(start, 0) : stop]
    stays = _staying(case, function)
    gone = {
        one.ordinal
        for one in instructions
        if one.ordinal not in stays and print_instruction(one) != question.way.instruction
    }
    if not gone:
        return None

    def keeps(statement: Statement) -> bool:
        return not (isinstance(statement, Instruction) and statement.ordinal in gone)

    return _smaller(case, attempt(lambda: without(case.part, function, keeps)))


def _smaller(case: Case, text: str | None) -> Case | None:
    """The candidate of a text, if there is one and it is smaller."""
    if text is None:
        return None
    candidate = case.with_text(text)
    return candidate if _weight(candidate) < _weight(case) else None


def _weight(case: Case) -> tuple[int, int]:
    """Instructions; then how long they are, in characters."""
    lines = [line for f in case.part.functions for line in lines_of(f)]
    return case.instructions, sum(map(len, lines))


def _staying(case: Case, function: Function) -> frozenset[int]:
    """Ordinals of instructions without which threads would race; none where there is one thread."""
    if case.threads == 1:
        return frozenset()
    needed: set[str] = set()
    found: set[int] = set()
    for one in function.instructions:
        at = address_of(one)
        if one.opcode in _BARRIERS:
            found.add(one.ordinal)
        if one.opcode in ("st", "red", "atom") and at is not None and isinstance(at.base, Register):
            needed.add(at.base.name)
    while True:
        before = len(found), len(needed)
        for one in function.instructions:
            if any(r.name in needed for r in definitions(one)):
                found.add(one.ordinal)
                needed |= {r.name for r in uses(one)}
        if (len(found), len(needed)) == before:
            return frozenset(found)


def _simpler(case: Case, question: Question, progress: Progress) -> Case:
    """Single instructions give way to an operand, or a guard is taken off, wherever that holds."""
    again = True
    while again and not question.over:
        again = False
        progress("PTX, one instruction at a time", case)
        for text in _simplifications(case, question.way.instruction):
            candidate = _smaller(case, text)
            if candidate is not None and question.holds(candidate):
                case, again = candidate, True
                break
    return case


def _simplifications(case: Case, guilty: str) -> Iterator[str]:
    for function in case.part.functions:
        if function.body is None:
            continue
        stays = _staying(case, function)
        for one in function.instructions:
            if print_instruction(one) == guilty or one.ordinal in stays:
                continue
            yield from filter(None, _instead(case, function, one))


def _instead(case: Case, function: Function, one: Instruction) -> Iterator[str | None]:
    """Texts without an instruction, or without its guard."""
    written = definitions(one)
    times = sum(r.name == w.name for w in written for i in function.instructions for r in definitions(i))
    if len(written) == 1 and times == 1 and one.opcode not in ("ld", "atom", "call"):
        for new in _sources(one, written[0]):
            yield attempt(partial(renamed, case.part, function, one.ordinal, written[0].name, new))
    if one.guard is not None:
        lines = [
            print_statement(s).split(" ", 1)[1] if s is one else print_statement(s)
            for s in function.body or ()
        ]
        yield attempt(lambda: whole(case.part, {function.name: lines}))
    at = address_of(one)
    if at is not None and at.offset and isinstance(at.base, Register):
        plain = print_operand(Address(at.base))
        lines = [
            print_statement(s).replace(print_operand(at), plain) if s is one else print_statement(s)
            for s in function.body or ()
        ]
        yield attempt(lambda: whole(case.part, {function.name: lines}))


def _sources(one: Instruction, result: Register) -> Iterator[str]:
    """What of an instruction's operands may stand in place of its result."""
    for operand in one.operands[one.destinations :]:
        plain = isinstance(operand, Register) and not operand.special
        if plain and isinstance(operand, Register) and operand.type.bits == result.type.bits:
            yield operand.name
        elif isinstance(operand, Immediate) and one.opcode == "mov":
            yield print_operand(operand)
