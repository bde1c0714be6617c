"""The shape of every register, and which blocks a warp executes with lanes missing.

The two depend on each other: a branch on a varying predicate diverges, and what is defined under divergent
control may differ between lanes. The analysis starts from "everything is uniform, nothing diverges" and
widens until nothing changes.

A register defined under divergent control may still be one scalar: lanes that execute its definition
together agree. It must be held per lane only where lanes with *another* value of it wait elsewhere at that
moment. That is the case when it is live into a block of the branch's other side, or into the point where both
sides meet (:meth:`Uniformity._clobbered`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field

from zluda.compiler.analysis.cfg import EXIT, Branch, Graph, Switch
from zluda.compiler.analysis.dominators import post_dominators
from zluda.compiler.analysis.liveness import Liveness
from zluda.compiler.analysis.operands import CARRY, definitions, split
from zluda.compiler.analysis.order import Component, Order
from zluda.compiler.analysis.rounds import waited_for
from zluda.compiler.analysis.shapes import combine, constant_shape, group_uniform, join
from zluda.compiler.lower.lanewise import LANEWISE, reads_carry
from zluda.compiler.target import UNIFORM, VARYING, Geometry, Shape
from zluda.ptx.module import (
    Address,
    Element,
    Immediate,
    Instruction,
    Negated,
    Operand,
    Register,
    Symbol,
    Vector,
)
from zluda.records import dataclass

SymbolShape = Callable[[str], Shape]
SpecialShape = Callable[[str], Shape]

_UNIFORM_RESULTS = {"activemask"}
"""Instructions without lane operands whose result all active lanes share."""

_COMPUTED = {"mov", "cvta"}

_POLLING_LOADS = {"volatile", "relaxed", "acquire"}


def polls(graph: Graph, blocks: Sequence[int]) -> set[str]:
    """The state spaces in which a loop of these blocks may wait for memory to change: a lock, or a flag."""
    return {
        "shared" if i.opcode == "mbarrier" else i.slots.get("space", "").split("::")[0]
        for n in blocks
        for i in graph.blocks[n].instructions
        if may_poll(i)
    }


def may_poll(instruction: Instruction) -> bool:
    """Whether a loop with this instruction may wait for what another thread writes."""
    if instruction.opcode == "ld":
        return instruction.slots.get("sem") in _POLLING_LOADS
    if instruction.opcode == "atom":
        return instruction.slots.get("op") in ("cas", "exch") or _reads_only(instruction)
    return instruction.opcode == "mbarrier" and (instruction.has("test_wait") or instruction.has("try_wait"))


def _reads_only(atomic: Instruction) -> bool:
    """Whether an atomic operation leaves memory as it is: ``atomicAdd(flag, 0)``, an older way to read."""
    operand = atomic.operands[2]
    neutral = {"add": 0, "or": 0, "xor": 0, "and": -1}.get(atomic.slots.get("op", ""))
    if not isinstance(operand, Immediate) or operand.float_bits is not None:
        return False
    return neutral is not None and operand.value == neutral


@dataclass(slots=True)
class Zone:
    """Blocks executed under masks, in order; all lanes leave it to ``exit`` (:data:`EXIT`: the end)."""

    blocks: list[int]
    exit: int


@dataclass(slots=True)
class Uniformity:
    """The analysis; read ``shapes``, ``masked``, ``zones`` and ``first_parts`` after :meth:`run`.

    ``partial`` says that lanes may be missing from the start (a tail warp, a function called divergently).
    ``apart`` says that lanes may be executed in any order: then nothing defined may be shared between them.
    """

    graph: Graph
    order: Order
    live: Liveness
    geometry: Geometry
    special: SpecialShape
    symbol: SymbolShape
    is_entry: bool
    partial: bool
    apart: bool = False
    shapes: dict[str, Shape] = field(default_factory=dict)
    masked: set[int] = field(default_factory=set)
    zones: list[Zone] = field(default_factory=list)
    first_parts: list[Component] = field(default_factory=list)
    _post: dict[int, int] = field(default_factory=dict)
    _waited: dict[int, Component] = field(default_factory=dict)
    _forced: set[str] = field(default_factory=set)
    _meets: dict[int, int] = field(default_factory=dict)
    _defined: list[set[str]] = field(default_factory=list)
    _successors: list[tuple[int, ...]] = field(default_factory=list)

    def run(self) -> Uniformity:
        self._post = post_dominators(self.graph)
        self._meets = dict(self._post)
        self._waited = waited_for(self.graph, self.order)
        self._successors = [b.successors if b.end is not None else () for b in self.graph.blocks]
        self._defined = [{r.name for i in b.instructions for r in definitions(i)} for b in self.graph.blocks]
        if self.apart:
            self._forced = set().union(*self._defined)
        while True:
            self._shapes()
            self._find_first_parts()
            undefined = self._undefined()
            forced = self._forced | self._clobbered() | undefined
            if forced == self._forced:
                break
            self._forced = forced
        self._lay_out_zones()
        return self

    def polling_loops(self) -> list[Component]:
        """Loops that lanes leave one by one and in which they may wait for each other's writes."""
        return [c for c in self.order.components if c.head in self.masked and polls(self.graph, c.blocks)]

    def part_at(self, branches: Iterable[int]) -> bool:
        """Whether lanes may go different ways at one of these blocks' ends."""
        return not set(branches).isdisjoint(self._diverging())

    # --- shapes ----------------------------------------------------------------------------------------

    def shape(self, operand: Operand) -> Shape | None:
        """An operand's shape; None for a register not defined yet."""
        if isinstance(operand, Register):  # most are
            return self.special(operand.name) if operand.special else self.shapes.get(operand.name)
        match operand:
            case Negated(operand=inner):
                return self.shapes.get(inner.name)
            case Immediate(value=value, float_bits=None):
                return constant_shape(value)
            case Symbol(name=name, offset=offset):
                base = self.symbol(name)
                return base if not offset else Shape(base.pattern, base.bases)
            case Element(array=array, index=index):
                parts = (self.shape(array), self.shape(index))
                if None in parts:
                    return None
                return UNIFORM if all(s is not None and s.uniform for s in parts) else VARYING
            case Address(base=base_operand, offset=offset):
                found = self.shape(base_operand)
                return found if found is None or not offset else Shape(found.pattern, found.bases)
            case Immediate():
                return UNIFORM
            case Vector(elements=elements):
                shapes = [self.shape(e) for e in elements]
                if any(s is None for s in shapes):
                    return None
                found = UNIFORM
                for s in shapes:
                    found = join(found, s if s is not None else UNIFORM, self.geometry)
                uniform = found.pattern is not None and not any(found.pattern)
                return Shape(found.pattern, found.bases) if uniform else VARYING
            case _:
                return VARYING

    def _shapes(self) -> None:
        self.shapes = dict.fromkeys(self._forced, VARYING)
        changed = True
        while changed:
            changed = False
            for index in self.order.sequence:
                for instruction in self.graph.blocks[index].instructions:
                    changed |= self._visit(instruction)

    def _visit(self, instruction: Instruction) -> bool:
        found = self.result_shape(instruction)
        if found is None:
            return False
        if instruction.guard is not None:
            guard = self.shapes.get(instruction.guard.register.name)
            if guard is None:
                return False
            if not guard.uniform:
                found = VARYING
        changed = False
        for register in definitions(instruction):
            before = self.shapes.get(register.name)
            after = join(before, found, self.geometry)
            if after != before:
                self.shapes[register.name] = after
                changed = True
        return changed

    def result_shape(self, instruction: Instruction) -> Shape | None:
        """The shape of all results of an instruction; None while an operand is unknown."""
        opcode = instruction.opcode
        sources = split(instruction)[1]
        if opcode in LANEWISE or opcode in _COMPUTED:
            carry = (CARRY,) if reads_carry(instruction) else ()
            shapes = [self.shape(o) for o in (*sources, *carry)]
            known = [s for s in shapes if s is not None]
            return combine(instruction, known, self.geometry)[1] if len(known) == len(shapes) else None
        if opcode in ("ld", "ldu"):
            return self._loaded(sources[0])
        if opcode == "mbarrier" and (instruction.has("test_wait") or instruction.has("try_wait")):
            return self._asked(sources[:2])
        if opcode in _UNIFORM_RESULTS or (opcode in ("vote", "redux") and instruction.has("sync")):
            return self._agreed(sources)
        if opcode in ("bar", "barrier"):
            return UNIFORM
        return VARYING

    def _loaded(self, address: Operand) -> Shape | None:
        shape = self.shape(address)
        if shape is None:
            return None
        if shape.uniform:
            return UNIFORM
        return (
            Shape(UNIFORM.pattern, self.geometry.groups) if group_uniform(shape, self.geometry) else VARYING
        )

    def _asked(self, sources: tuple[Operand, ...]) -> Shape | None:
        """One question about one barrier has one answer: it is loaded once for all lanes."""
        shapes = [self.shape(s) for s in sources]
        known = [s for s in shapes if s is not None]
        if len(known) < len(shapes):
            return None
        return UNIFORM if all(s.uniform for s in known) else VARYING

    def _agreed(self, sources: tuple[Operand, ...]) -> Shape | None:
        """A vote's result is one value when all active lanes name the same members (the last operand)."""
        if not sources:
            return UNIFORM
        members = self.shape(sources[-1])
        if members is None:
            return None
        return UNIFORM if members.uniform else VARYING

    def _undefined(self) -> set[str]:
        """Registers read but never given a value."""
        names = set(self.live.live_in[0])
        for index in self.order.sequence:
            names |= {r.name for i in self.graph.blocks[index].instructions for r in definitions(i)}
        return {n for n in names if n not in self.shapes}

    # --- divergence ------------------------------------------------------------------------------------

    def _diverging(self) -> list[int]:
        """Blocks whose lanes may go different ways."""
        found = []
        for index in self.order.sequence:
            match self.graph.blocks[index].terminator:
                case Branch(predicate):
                    decides = self.shapes.get(predicate.name, VARYING)
                case Switch(operand):
                    decides = self.shape(operand) or VARYING
                case _:
                    continue
            if not decides.uniform and len(self.graph.blocks[index].successors) > 1:
                found.append(index)
        return found

    def _side(self, start: int, meeting: int) -> set[int]:
        """Blocks reachable from a branch's successor before the sides meet."""
        seen: set[int] = set()
        stack = [start]
        while stack:
            n = stack.pop()
            if n in seen or n in (meeting, EXIT):
                continue
            seen.add(n)
            stack += self._successors[n]
        return seen

    def _find_first_parts(self) -> None:
        """``do { if (c) continue; …; } while (d)`` whose test of ``d`` is skipped by ``continue``: two loops
        with one head. Lanes that part at ``c`` meet behind it, inside the loop, though some go to its head
        before.

        The part of the loop from its head to that place is a loop in the loop: while lanes wait at the head,
        those at the place wait too. Where the blocks do not stand in such an order, lanes are whole again
        only behind the loop.
        """
        self.first_parts = []
        if self.apart:  # there nobody waits, and nothing defined is shared
            return
        found: dict[tuple[int, int], Component] = {}
        for branch in self._diverging():
            while loops := self._going_round(branch):
                parts = [self._first_part(branch, loop) for loop in loops]
                if None not in parts:
                    found |= {(part.head, len(part.blocks)): part for part in parts if part is not None}
                    break
                meeting = self._meets[branch]
                while meeting in loops[0].blocks:
                    meeting = self._post[meeting]
                self._meets[branch] = meeting
        self.first_parts = sorted(found.values(), key=lambda part: len(part.blocks))

    def _regions(self) -> set[int]:
        """Blocks that lanes may execute while others are elsewhere."""
        if self.partial:
            return set(self.order.sequence)
        return set().union(*(self._sides(branch) for branch in self._diverging()))

    def _sides(self, branch: int) -> set[int]:
        meeting = self._meets[branch]
        return set().union(*(self._side(s, meeting) for s in self.graph.blocks[branch].successors))

    def _going_round(self, branch: int) -> list[Component]:
        """The loops, outermost first, to whose head lanes may go between a branch and the place in the same
        loop where they meet."""
        meeting = self._meets[branch]
        if meeting == EXIT or meeting not in self._regions():
            return []
        sides = self._sides(branch) | {branch}
        return [
            loop
            for loop in self.order.around(meeting)
            if loop.head != meeting
            and any(loop.head in self._successors[n] for n in sides if n in loop.blocks)
        ]

    def _first_part(self, branch: int, loop: Component) -> Component | None:
        """The blocks of a loop before the place where a branch's lanes meet, if all before it do."""
        meeting = self._meets[branch]
        blocks = loop.blocks[: loop.blocks.index(meeting)]
        outside = (self._sides(branch) & set(loop.blocks)) - set(blocks)
        around = self.order.around(meeting)
        cut = [inner for inner in around[around.index(loop) + 1 :] if inner.head != meeting]
        inside = [one for one in self.order.components if one.head in blocks]
        late = [one for one in inside if self._waited[one.head].head != one.head]
        return None if outside or cut or late else Component(loop.head, blocks)

    def _clobbered(self) -> set[str]:
        """Registers that lanes may hold with different values at one time (see the module's docstring)."""
        forced: set[str] = set()
        for branch in self._diverging():
            meeting = self._meets[branch]
            sides = [self._side(s, meeting) for s in self.graph.blocks[branch].successors]
            for i, side in enumerate(sides):
                waiting = set().union(*sides[:i], *sides[i + 1 :])
                if meeting != EXIT:
                    waiting.add(meeting)
                once, more = set[str](), set[str]()  # live into one waiting block, into several
                for n in waiting:
                    more |= once & self.live.live_in[n]
                    once |= self.live.live_in[n]
                for n in side:
                    elsewhere = once - (self.live.live_in[n] - more) if n in waiting else once
                    forced |= self._defined[n] & elsewhere
        return forced

    # --- zones -----------------------------------------------------------------------------------------

    def _lay_out_zones(self) -> None:
        """Join overlapping divergent regions; each union has one place where its lanes are whole again."""
        if self.partial:
            self.masked = set(self.order.sequence)
            self.zones = [Zone(list(self.order.sequence), EXIT)]
            return
        regions: list[tuple[set[int], int]] = []
        for branch in self._diverging():
            meeting = self._meets[branch]
            blocks = set().union(*(self._side(s, meeting) for s in self.graph.blocks[branch].successors))
            if blocks:
                regions.append((blocks, meeting))
        self.masked = set().union(*(blocks for blocks, _ in regions)) if regions else set()
        merged: list[set[int]] = []
        for blocks, meeting in regions:
            joined = blocks | ({meeting} & self.masked)
            apart = []
            for other in merged:
                if other & joined:
                    joined = joined | other
                else:
                    apart.append(other)
            merged = [*apart, joined]
        for blocks in merged:
            exits = {m for b, m in regions if b <= blocks and m not in self.masked}
            sequence = [n for n in self.order.sequence if n in blocks]
            self.zones.append(Zone(sequence, exits.pop() if exits else EXIT))
