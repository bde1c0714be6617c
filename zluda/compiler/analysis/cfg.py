"""The control-flow graph of a PTX function.

Guards on anything but plain computation become branches around the instruction, so that lowering of memory,
warp and call instructions never sees one: the block's mask says who executes.
"""

from __future__ import annotations

from dataclasses import field, replace

from zluda.compiler.analysis.operands import definitions
from zluda.compiler.lower.lanewise import LANEWISE
from zluda.errors import PtxError
from zluda.ptx.module import BranchTargets, Function, Instruction, Label, LabelStatement, Operand, Register
from zluda.records import dataclass

EXIT = -1
"""Successor index of leaving the function."""

_GUARDED_IN_PLACE = {"mov", "cvta"}
"""Computation without effects, beside the lane-wise opcodes: a guard on it selects."""


@dataclass(frozen=True, slots=True)
class Jump:
    """To one block."""

    target: int


@dataclass(frozen=True, slots=True)
class Branch:
    """To ``taken`` where the predicate (negated or not) holds, else to ``otherwise``."""

    predicate: Register
    negated: bool
    taken: int
    otherwise: int


@dataclass(frozen=True, slots=True)
class Switch:
    """``brx.idx``: to ``targets[index]``."""

    index: Operand
    targets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Leave:
    """``ret`` or ``exit``: the lanes are done with this function, or with the kernel (``exits``)."""

    exits: bool = False


Terminator = Jump | Branch | Switch | Leave


@dataclass(slots=True)
class Block:
    """Straight-line code and how it ends."""

    index: int
    instructions: list[Instruction] = field(default_factory=list)
    end: Terminator | None = None

    @property
    def terminator(self) -> Terminator:
        assert self.end is not None
        return self.end

    @property
    def successors(self) -> tuple[int, ...]:
        """Distinct successors; :data:`EXIT` for leaving."""
        match self.terminator:
            case Jump(target):
                return (target,)
            case Branch(_, _, taken, otherwise):
                return (taken,) if taken == otherwise else (taken, otherwise)
            case Switch(_, targets):
                return tuple(dict.fromkeys(targets))
            case _:
                return (EXIT,)


@dataclass(slots=True)
class Graph:
    """Blocks by index; block 0 is the entry. Only reachable blocks have predecessors."""

    blocks: list[Block]
    _definers: dict[str, list[Instruction]] = field(default_factory=dict, init=False)

    def definers(self) -> dict[str, list[Instruction]]:
        """For each register that is written, by whom; the blocks are not to change any more."""
        if not self._definers:
            for block in self.blocks:
                for instruction in block.instructions:
                    for register in definitions(instruction):
                        self._definers.setdefault(register.name, []).append(instruction)
        return self._definers

    def predecessors(self) -> list[list[int]]:
        """For each block, who jumps there (from reachable blocks)."""
        result: list[list[int]] = [[] for _ in self.blocks]
        for i in self.reachable():
            for s in self.blocks[i].successors:
                if s != EXIT:
                    result[s].append(i)
        return result

    def reachable(self) -> list[int]:
        """Indices of blocks that can be reached from the entry."""
        seen, stack = {0}, [0]
        while stack:
            for s in self.blocks[stack.pop()].successors:
                if s != EXIT and s not in seen:
                    seen.add(s)
                    stack.append(s)
        return sorted(seen)


_MATRIX = frozenset({"mma", "wmma", "wgmma", "ldmatrix", "stmatrix", "movmatrix"})

CONVERGENCE = frozenset({"bar", "barrier", "shfl", "vote", "match", "redux", "elect"}) | _MATRIX
"""Instructions that lanes of a warp execute together."""


class _Builder:
    """Walks statements, cutting blocks at labels, branches, guarded effects and before ``cut`` opcodes."""

    def __init__(self, function: Function, file: str, cut: frozenset[str]) -> None:
        self.function, self.file, self.cut = function, file, cut
        self.blocks = [Block(0)]
        self.labels: dict[str, int] = {}
        self.tables = {s.name: s.targets for s in function.body or () if isinstance(s, BranchTargets)}
        self.fixups: list[tuple[Block, Instruction]] = []

    @property
    def current(self) -> Block:
        return self.blocks[-1]

    def open(self) -> Block:
        """Begin a block; the one before falls through unless it has ended."""
        block = Block(len(self.blocks))
        if self.current.end is None:
            self.current.end = Jump(block.index)
        self.blocks.append(block)
        return block

    def build(self) -> Graph:
        for statement in self.function.body or ():
            if isinstance(statement, LabelStatement):
                self.labels[statement.name] = self.open().index
            elif isinstance(statement, Instruction):
                self.instruction(statement)
        if self.current.end is None:
            self.current.end = Leave()
        for block, instruction in self.fixups:
            block.end = self.resolve(block, instruction)
        return Graph(self.blocks)

    def instruction(self, instruction: Instruction) -> None:
        if self.current.end is not None:
            self.open()
        if instruction.opcode in ("bra", "brx"):
            self.fixups.append((self.current, instruction))
            self.current.end = Jump(len(self.blocks))  # where it falls through, until labels are known
            self.open()
            return
        guarded = instruction.guard is not None and not (
            instruction.opcode in LANEWISE or instruction.opcode in _GUARDED_IN_PLACE
        )
        before = self.current
        if guarded or (instruction.opcode in self.cut and before.instructions):
            self.open()
        if guarded:
            instruction = self.unguard(before, instruction)
        if instruction.opcode in ("ret", "exit"):
            self.current.end = Leave(exits=instruction.opcode == "exit")
        else:
            self.current.instructions.append(instruction)
        if guarded:
            self.open()

    def unguard(self, before: Block, instruction: Instruction) -> Instruction:
        """End ``before`` with a branch into the current block or past it."""
        guard = instruction.guard
        assert guard is not None
        inside = self.current.index
        before.end = Branch(guard.register, guard.negated, inside, inside + 1)
        return replace(instruction, guard=None)

    def resolve(self, block: Block, instruction: Instruction) -> Terminator:
        """A branch's end, now that all labels are known."""
        if instruction.opcode == "brx":
            return self.switch(instruction)
        target = self.label(instruction, instruction.operands[0])
        guard = instruction.guard
        if guard is None:
            return Jump(target)
        return Branch(guard.register, guard.negated, target, block.index + 1)

    def switch(self, instruction: Instruction) -> Terminator:
        index, table = instruction.operands
        names = self.tables.get(table.name, ()) if isinstance(table, Label) else ()
        if not names:
            raise self.error(instruction, "a .branchtargets name")
        return Switch(index, tuple(self.label(instruction, Label(name)) for name in names))

    def label(self, instruction: Instruction, operand: Operand) -> int:
        if not isinstance(operand, Label) or operand.name not in self.labels:
            raise self.error(instruction, "a label of this function")
        return self.labels[operand.name]

    def error(self, instruction: Instruction, expected: str) -> PtxError:
        place = instruction.location
        return PtxError(
            "branch to an unknown label",
            file=self.file,
            line=place.line,
            column=place.column,
            expected=expected,
        )


def build_graph(function: Function, file: str = "<ptx>", *, cut: frozenset[str] = frozenset()) -> Graph:
    """The graph of a function with a body; ``cut`` opcodes begin blocks.

    Raises PtxError for a branch to nowhere.
    """
    return _Builder(function, file, cut).build()
