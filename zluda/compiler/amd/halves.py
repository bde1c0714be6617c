"""Whether the two warps of a wave of 64 lanes may get into each other's way.

The hardware executes a wave's branches one side after the other, and a wave meets a barrier as one. Two warps
that share a wave are not two warps to it where

* a barrier counts threads, or threads only arrive at it;
* they may meet different barriers, or one of them meets more;
* one may leave while others wait at a cluster's barrier, which counts who has left;
* one may wait in a loop for what the other writes (a lock, a flag).

Such a kernel is built with one warp a wave. The answer errs towards that: what is said of a branch is said of
any that depends on the thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from zluda.compiler.amd.unit import meets_cluster, names_threads
from zluda.compiler.analysis.barriers import Meets, is_barrier, meets
from zluda.compiler.analysis.cfg import EXIT, Branch, Graph, Leave, Switch, build_graph
from zluda.compiler.analysis.dominators import post_dominators
from zluda.compiler.analysis.operands import definitions, registers, uses
from zluda.compiler.analysis.order import Component, weak_topological_order
from zluda.compiler.unit import Unit, symbols_in
from zluda.ptx.module import Address, Element, Function, Immediate, Instruction, Register, Symbol
from zluda.records import dataclass

# What differs between the warps of a wave, beside what is computed from it.
_VARYING_REGISTERS = ("%tid", "%laneid", "%warpid", "%lanemask", "%clock", "%globaltimer")
_VARYING_RESULTS = frozenset({"atom", "shfl", "vote", "match", "redux", "activemask", "elect", "call"})
_POLLING = frozenset({"volatile", "relaxed", "acquire"})
_WRITES = frozenset({"st", "mbarrier", "atom", "red", "call"})


def may_disturb(unit: Unit) -> str:
    """Why a kernel needs one warp a wave, and where; nothing where it does not."""
    functions = (unit.kernel, *unit.functions.values())
    meeting = meets(unit.barriers()[0])
    for function in functions:
        halves = _Halves(function, build_graph(function, unit.file), meeting)
        for found, what in (
            (halves.counted_barrier(), "a barrier for some of a block's threads"),
            (
                halves.early_exit() if meets_cluster(unit) else None,
                "warps that may leave ahead of a cluster's barrier",
            ),
            (halves.divergent_barrier(), "warps that may meet different barriers"),
            (halves.waiting(), "warps that may wait for each other"),
        ):
            if found is not None:
                return f"{what} ({unit.place(function, found)})"
    return ""


@dataclass(slots=True)
class _Halves:
    """One function: which registers may differ between the warps of a wave, and what follows."""

    function: Function
    graph: Graph
    meeting: Meets
    varying: set[str] = field(default_factory=set)
    _meets: dict[int, int] = field(default_factory=dict)
    _blocks: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._meets = post_dominators(self.graph)
        self._blocks = self.graph.reachable()
        while self._spread():
            pass

    # --- the three reasons -----------------------------------------------------------------------------

    def counted_barrier(self) -> Instruction | None:
        """A barrier with a thread count."""
        return next((i for i in self._instructions() if is_barrier(i) and names_threads(i)), None)

    def early_exit(self) -> Instruction | None:
        """What stands in front of the first of several places at which threads leave the kernel."""
        leaves = [n for n in self._blocks if isinstance(self.graph.blocks[n].terminator, Leave)]
        instructions = [i for n in leaves for i in self.graph.blocks[n].instructions] or [
            *self._instructions()
        ]
        return instructions[0] if len(leaves) > 1 and instructions else None

    def divergent_barrier(self) -> Instruction | None:
        """A barrier that warps may come to while others of their wave are on the way to another."""
        for sides in self._divergent():
            for n in sorted(set().union(*sides)):
                found = next((i for i in self.graph.blocks[n].instructions if self.meeting(i)), None)
                if found is not None:
                    return found
        return None

    def waiting(self) -> Instruction | None:
        """What a loop waits on that another warp of the wave may yet have to write."""
        for loop in weak_topological_order(self.graph).components:
            found = self._polled(loop)
            if found is not None and (found.opcode == "atom" or self._written_later(loop)):
                return found
        return None

    # --- data flow -------------------------------------------------------------------------------------

    def _instructions(self) -> Iterator[Instruction]:
        for n in self._blocks:
            yield from self.graph.blocks[n].instructions

    def _spread(self) -> bool:
        """One more round of what is varying; whether there was anything new."""
        before = len(self.varying)
        for instruction in self._instructions():
            if self._differs(instruction):
                self.varying |= {r.name for r in definitions(instruction)}
        for sides in self._divergent():
            for n in set().union(*sides):
                for instruction in self.graph.blocks[n].instructions:
                    self.varying |= {r.name for r in definitions(instruction)}
        return len(self.varying) > before

    def _differs(self, instruction: Instruction) -> bool:
        """Whether an instruction's results may differ, executed by both warps at once."""
        if instruction.opcode in _VARYING_RESULTS:
            return True
        if is_barrier(instruction):
            return False
        if any(r.name in self.varying for r in uses(instruction)):
            return True
        return any(self._names_varying(o) for o in instruction.operands)

    def _names_varying(self, operand: object) -> bool:
        """Special registers of a thread, and memory of a thread's own."""
        match operand:
            case Register(special=True, name=name):
                return name.startswith(_VARYING_REGISTERS)
            case Address(base=Register() as base):
                return self._names_varying(base)
            case Symbol() | Element() | Address():
                return any(map(self._of_thread, symbols_in(operand)))
        return False

    def _of_thread(self, name: str) -> bool:
        variable = self.function.variables.get(name)
        if variable is not None:
            return variable.space in ("local", "param")
        return not self.function.is_entry and name in {v.name for v in self.function.parameters}

    # --- control flow ----------------------------------------------------------------------------------

    def _divergent(self) -> Iterator[list[set[int]]]:
        """The sides of each branch at which a wave's warps may part and both still have a barrier to meet."""
        for n in self._blocks:
            block = self.graph.blocks[n]
            if not self._decides_apart(n):
                continue
            if sum(self._meets_barrier(s) for s in block.successors) > 1:
                yield [self._reach(s, self._meets[n]) for s in block.successors]

    def _decides_apart(self, n: int) -> bool:
        match self.graph.blocks[n].terminator:
            case Branch(predicate=operand, taken=taken, otherwise=otherwise) if taken != otherwise:
                return operand.name in self.varying
            case Switch(index=index):
                return any(r.name in self.varying for r in registers(index)) or self._names_varying(index)
        return False

    def _reach(self, start: int, until: int) -> set[int]:
        """Blocks that can be come to from ``start``, short of ``until``."""
        seen: set[int] = set()
        stack = [start]
        while stack:
            n = stack.pop()
            if n in seen or n in (until, EXIT):
                continue
            seen.add(n)
            stack += self.graph.blocks[n].successors
        return seen

    def _meets_barrier(self, start: int) -> bool:
        reached = self._reach(start, EXIT)
        return any(self.meeting(i) for n in reached for i in self.graph.blocks[n].instructions)

    # --- loops that wait -------------------------------------------------------------------------------

    def _polled(self, loop: Component) -> Instruction | None:
        """What decides whether a loop goes on, and changes only when others write."""
        inside = [i for n in loop.blocks for i in self.graph.blocks[n].instructions]
        deciding = _behind({r.name for n in loop.blocks for r in self._exit_condition(n, loop)}, inside)
        return next((i for i in inside if _defines(i, deciding) and _polls(i, inside)), None)

    def _exit_condition(self, n: int, loop: Component) -> Iterator[Register]:
        block = self.graph.blocks[n]
        if all(s in loop.blocks for s in block.successors):
            return
        match block.terminator:
            case Branch(predicate=predicate):
                yield predicate
            case Switch(index=index):
                yield from registers(index)

    def _written_later(self, loop: Component) -> bool:
        """Whether warps that are past a loop, or went around it, write before all meet at a barrier."""
        starts = {s for n in loop.blocks for s in self.graph.blocks[n].successors} - set(loop.blocks)
        for n in self._blocks:
            if self._decides_apart(n):
                sides = {s: self._reach(s, self._meets[n]) for s in self.graph.blocks[n].successors}
                if any(loop.head in side for side in sides.values()):
                    starts |= {s for s, side in sides.items() if loop.head not in side}
        return any(self._writes_before_barrier(s) for s in starts)

    def _writes_before_barrier(self, start: int) -> bool:
        seen: set[int] = set()
        stack = [start]
        while stack:
            n = stack.pop()
            if n in seen or n == EXIT:
                continue
            seen.add(n)
            for instruction in self.graph.blocks[n].instructions:
                if is_barrier(instruction) and not names_threads(instruction):
                    break
                if instruction.opcode in _WRITES and instruction.slots.get("space") not in ("local", "param"):
                    return True
            else:
                stack += self.graph.blocks[n].successors
        return False


def _defines(instruction: Instruction, names: set[str]) -> bool:
    return any(r.name in names for r in definitions(instruction))


def _behind(names: set[str], instructions: list[Instruction]) -> set[str]:
    """The registers, and those they are computed from by these instructions."""
    found = set(names)
    while True:
        more = {r.name for i in instructions if _defines(i, found) for r in uses(i)} - found
        if not more:
            return found
        found |= more


def _polls(instruction: Instruction, loop: list[Instruction]) -> bool:
    """Whether an instruction of a loop gives another result only when another thread has written.

    A compare-and-swap that expects what the loop has read goes on by itself; any other takes a lock, or waits
    for its turn.
    """
    if instruction.opcode == "ld":
        return instruction.slots.get("sem") in _POLLING
    if instruction.opcode == "mbarrier":
        return instruction.has("test_wait") or instruction.has("try_wait")
    if instruction.opcode != "atom":
        return False
    operation, value = instruction.slots.get("op"), instruction.operands[2]
    if operation == "cas":
        expected = _behind({r.name for r in registers(value)}, loop)
        return not any(i.opcode in ("ld", "atom") and _defines(i, expected) for i in loop)
    return operation == "exch" or (isinstance(value, Immediate) and value.value == 0)
