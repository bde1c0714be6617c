"""A function's basic blocks as ptxas has them when it contracts.

Labels and unconditional branches do not part code: blocks without code are threaded through, chains are
merged. What does: a conditional branch, a guarded ``ret``, a call, and instructions that become a fast path
with a branch to a slow one (IEEE division and roots, 64-bit integer division).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import field

from zluda.ptx.module import BranchTargets, Function, Guard, Instruction, Label, LabelStatement, Register
from zluda.records import dataclass

_ENDS = frozenset(("bra", "brx", "ret", "exit", "trap"))


def parts(instruction: Instruction) -> bool:
    """Whether ptxas begins a block behind this instruction although it does not branch in PTX."""
    opcode = instruction.opcode
    if opcode == "call":
        return True
    if opcode in ("div", "rcp", "sqrt") and instruction.types[0].kind == "f":
        return not (instruction.has("approx") or instruction.has("full"))
    return opcode in ("div", "rem") and instruction.type.bits == 64


@dataclass(slots=True)
class Blocks:
    """``of[i]`` is the block of instruction ``i``; ``merged[b]`` names the block that ``b`` is merged into.

    ``spans[b]`` are the first instruction and the one after the last; ``successors`` and ``reachable`` are
    of the blocks before merging. ``idle`` are those that do nothing but go on to another. ``untaken`` are
    the branches that are never taken, by instruction.
    """

    spans: list[tuple[int, int]]
    of: list[int]
    successors: list[list[int]]
    reachable: set[int]
    merged: list[int]
    idle: set[int] = field(default_factory=set)
    untaken: frozenset[int] = frozenset()

    def home(self, i: int) -> int:
        """The merged block of an instruction."""
        return self.merged[self.of[i]]


def find_blocks(function: Function) -> Blocks:
    """Cut a function's body; nothing is merged yet."""
    instructions = function.instructions
    labels, tables = _labels(function)
    leaders = {0, *labels.values()}
    leaders |= {i + 1 for i, inst in enumerate(instructions) if inst.opcode in _ENDS or parts(inst)}
    starts = sorted(leaders | {len(instructions)})
    spans = list(itertools.pairwise(starts)) or [(0, 0)]
    of = [0] * (len(instructions) + 1)
    for number, (start, stop) in enumerate(spans):
        of[start:stop] = [number] * (stop - start)
    if len(of) > 1 and spans[-1][1] == len(instructions):
        of[-1] = len(spans)  # a label behind the last instruction: leaving
    successors = [
        _successors(instructions, span, number, len(spans), labels, tables, of)
        for number, span in enumerate(spans)
    ]
    untaken = frozenset(
        stop - 1
        for start, stop in spans
        if stop > start
        and (last := instructions[stop - 1]).opcode == "bra"
        and last.guard is not None
        and _never_holds(instructions, (start, stop), last.guard)
    )
    return Blocks(spans, of, successors, _reach(successors), list(range(len(spans))), untaken=untaken)


def _labels(function: Function) -> tuple[dict[str, int], dict[str, tuple[str, ...]]]:
    """Label to the instruction behind it, and branch tables."""
    labels: dict[str, int] = {}
    tables: dict[str, tuple[str, ...]] = {}
    position = 0
    for statement in function.body or ():
        if isinstance(statement, Instruction):
            position += 1
        elif isinstance(statement, LabelStatement):
            labels[statement.name] = position
        elif isinstance(statement, BranchTargets) and not statement.calls:
            tables[statement.name] = statement.targets
    return labels, tables


def _successors(
    instructions: list[Instruction],
    span: tuple[int, int],
    number: int,
    count: int,
    labels: dict[str, int],
    tables: dict[str, tuple[str, ...]],
    of: list[int],
) -> list[int]:
    start, stop = span
    last = instructions[stop - 1] if stop > start else None
    found: list[int] = []
    names: Iterable[str] = ()
    if last is not None and last.opcode in ("bra", "brx"):
        target = last.operands[-1]
        name = target.name if isinstance(target, Label) else ""
        names = (name,) if last.opcode == "bra" else tables.get(name, ())
    if last is None or last.guard is None or not _never_holds(instructions, span, last.guard):
        found += [of[labels[name]] for name in names if name in labels]
    ends = last is not None and last.opcode in _ENDS and last.guard is None
    if not ends and number + 1 < count:
        found.append(number + 1)
    return [b for b in dict.fromkeys(found) if b < count]


def _never_holds(instructions: list[Instruction], span: tuple[int, int], guard: Guard) -> bool:
    """Whether a branch at a block's end is by ``x < x``, which holds for no ``x``."""
    for i in range(span[1] - 2, span[0] - 1, -1):
        instruction = instructions[i]
        if guard.register in instruction.operands[: instruction.destinations]:
            return holds_never(instruction) and not guard.negated
    return False


def holds_never(instruction: Instruction) -> bool:
    """Whether what an instruction makes is the predicate ``x < x``, which ptxas knows to be false."""
    return (
        instruction.opcode == "setp"
        and instruction.guard is None
        and "boolop" not in instruction.slots
        and instruction.slots["cmp"] in ("lt", "gt")
        and instruction.operands[1] == instruction.operands[2]
        and isinstance(instruction.operands[0], Register)
    )


def _reach(successors: list[list[int]]) -> set[int]:
    seen, pending = {0}, [0]
    while pending:
        for after in successors[pending.pop()]:
            if after not in seen:
                seen.add(after)
                pending.append(after)
    return seen


def merge(blocks: Blocks, instructions: list[Instruction], live: set[int]) -> None:
    """Thread jumps through blocks without live code, join each block to its only successor's only entry."""
    blocks.idle = {b for b in blocks.reachable if _is_idle(blocks, instructions, b, live)}
    threaded = [_threaded(blocks, after) for after in blocks.successors]
    entries: dict[int, int] = {}
    # Who comes through others that do nothing comes from one block, not from each of those too.
    kept = sorted(n for n in blocks.reachable if n == 0 or n not in blocks.idle)
    for number in kept:
        for after in threaded[number]:
            entries[after] = entries.get(after, 0) + 1
    for number in kept:
        stop = blocks.spans[number][1]
        last = instructions[stop - 1] if stop else None
        cut = last is not None and (
            (stop - 1 in live and parts(last)) or (last.opcode in ("ret", "exit") and last.guard is not None)
        )
        targets = threaded[number]
        if len(targets) == 1 and entries[targets[0]] == 1 and targets[0] != 0 and not cut:
            a, b = _root(blocks.merged, number), _root(blocks.merged, targets[0])
            if a != b:
                blocks.merged[b] = a
    blocks.merged = [_root(blocks.merged, b) for b in range(len(blocks.merged))]


def _threaded(blocks: Blocks, targets: list[int]) -> list[int]:
    found: list[int] = []
    for target in targets:
        seen: set[int] = set()
        while target in blocks.idle and target not in seen:
            seen.add(target)
            target = blocks.successors[target][0]
        found.append(target)
    return list(dict.fromkeys(found))


def _is_idle(blocks: Blocks, instructions: list[Instruction], number: int, live: set[int]) -> bool:
    """Whether a block does nothing that counts but go on to another."""
    if len(blocks.successors[number]) != 1 or blocks.successors[number][0] == number:
        return False
    code = range(*blocks.spans[number])
    return all(i not in live or (instructions[i].opcode == "bra" and not instructions[i].guard) for i in code)


def _root(merged: list[int], number: int) -> int:
    while merged[number] != number:
        number = merged[number]
    return number
