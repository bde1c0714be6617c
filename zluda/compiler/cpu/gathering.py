"""Lanes that run apart, and the instructions that they execute together.

In a function whose lanes run apart (:mod:`zluda.compiler.cpu.masked`) they wait at blocks all over it. An
instruction that lanes execute together stands first in its block, and the block is skipped while a lane
that must take part waits elsewhere: one that the member mask names (PTX ISA, ``shfl.sync``: it waits until
all threads of ``membermask`` have executed it), or, for barriers and matrices, any lane that is there. Lanes
that wait at other barriers do not come: the barrier itself says what is wrong with that. Those that wait at
another ``bar.warp.sync`` are there too: the first group that goes on lets them go, whichever comes next.

When the function's end is reached and lanes still wait, control goes back to its begin. If no block has
executed on the way, none ever will.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from zluda.compiler.analysis.barriers import Meets, is_barrier, is_warp_barrier
from zluda.compiler.analysis.cfg import CONVERGENCE
from zluda.compiler.codegen import FunctionCodegen
from zluda.compiler.cpu.warp import stop
from zluda.compiler.ir import Value, constant
from zluda.ptx.module import Instruction

_NAMED = ("shfl", "vote", "match", "redux", "elect")


class Gathering:
    """Writes the tests; ``mask_at`` loads the lanes that wait at a block, ``heads`` are polling loops'."""

    def __init__(
        self, f: FunctionCodegen, mask_at: Callable[[int], list[Value]], heads: Sequence[int]
    ) -> None:
        self.f, self.b, self._mask_at, self._heads = f, f.b, mask_at, heads
        self._waiting = f.b.alloca("i32", align=4)
        self._progress = f.b.alloca("i1", align=1)
        f.b.entry.append(f"store i32 0, ptr {self._waiting.ref}, align 4")
        f.b.entry.append(f"store i1 0, ptr {self._progress.ref}, align 1")
        self._barriers = self._begun_by(is_barrier)
        self._warp_barriers = self._begun_by(is_warp_barrier)
        self._released = f.b.alloca("i32", align=4)  # lanes at a bar.warp.sync that is over for them
        f.b.entry.append(f"store i32 0, ptr {self._released.ref}, align 4")
        self._releases: Value = constant("i32", 0)

    def arrive(self, mask: Sequence[Value]) -> None:
        """These lanes wait at some block from now on."""
        self._set(self.b.or_(self._all(), self.f.pack_bits(list(mask))))

    def depart(self, index: int, mask: Sequence[Value]) -> None:
        """These lanes execute their block now: what :meth:`may_run` was asked about last."""
        if index in self._warp_barriers:
            self.b.store(self._releases, self._released, align=4)
        self._set(self.b.and_(self._all(), self.b.not_(self.f.pack_bits(list(mask)))))
        self.b.store(constant("i1", 1), self._progress, align=1)

    def may_run(self, index: int) -> Value:
        """Whether all lanes are at a block that have to be for its first instruction."""
        first = self._first(index)
        if first is None:
            return constant("i1", 1)
        here = self._mask_at(index)
        absent = self.b.and_(self._all(), self.b.not_(self.f.pack_bits(here)))
        if is_warp_barrier(first):
            return self._may_pass(index, first, here)
        if is_barrier(first):
            for other in self._barriers:
                absent = self.b.and_(absent, self.b.not_(self.f.pack_bits(self._mask_at(other))))
        elif first.opcode in _NAMED and not first.has("sync"):  # the forms before sm_70 name no lanes
            return self._nobody_polls(index)
        elif first.opcode in _NAMED:
            self.f.enter_block(index)  # as registers are at its start
            absent = self.b.and_(absent, self._members(first, here))
        return self.b.icmp("eq", absent, 0)

    def resume(self, begin: str) -> None:
        """At the function's end: back to ``begin`` while lanes wait; stop the launch if none can go on."""
        b = self.b
        some, again, never, on = (b.fresh(name) for name in ("some", "again", "never", "over"))
        b.cond_branch(b.icmp("ne", self._all(), 0), some, on)
        b.label(some)
        moved = b.load("i1", self._progress, align=1)
        b.store(constant("i1", 0), self._progress, align=1)
        b.cond_branch(moved, again, never)
        b.label(never)
        stop(b, self._all(), "deadlock")
        b.label(again)
        b.branch(begin)
        b.label(on)

    def _all(self) -> Value:
        return self.b.load("i32", self._waiting, align=4)

    def _set(self, lanes: Value) -> None:
        self.b.store(lanes, self._waiting, align=4)

    def _first(self, index: int) -> Instruction | None:
        """The instruction that lanes execute together, if the block begins with one."""
        instructions = self.f.graph.blocks[index].instructions
        return instructions[0] if instructions and instructions[0].opcode in CONVERGENCE else None

    def _begun_by(self, kind: Meets) -> list[int]:
        """The blocks that begin with a kind of barrier."""
        firsts = ((block.index, self._first(block.index)) for block in self.f.graph.blocks)
        return [index for index, first in firsts if first is not None and kind(first)]

    def _may_pass(self, index: int, first: Instruction, here: Sequence[Value]) -> Value:
        """Whether the lanes at a ``bar.warp.sync`` have been let go, or all that they name are at one."""
        b = self.b
        self.f.enter_block(index)
        named, own = self._members(first, here), self.f.pack_bits(list(here))
        released = b.load("i32", self._released, align=4)
        others: Value = constant("i32", 0)
        for other in self._warp_barriers:
            if other != index:
                others = b.or_(others, self.f.pack_bits(self._mask_at(other)))
        others = b.and_(b.and_(others, named), b.not_(released))
        absent = b.and_(b.and_(self._all(), named), b.not_(b.or_(own, others)))
        passed = b.icmp("eq", b.and_(own, b.not_(released)), 0)
        let_go = b.select(passed, released, b.or_(released, others))
        self._releases = b.and_(let_go, b.not_(own))
        return b.or_(passed, b.icmp("eq", absent, 0))

    def _members(self, first: Instruction, here: Sequence[Value]) -> Value:
        """The lanes that the lanes at a block name, by the last operand."""
        members = self.f.read_bits(first.operands[-1], 32)
        if members.shape.uniform:
            return members.parts[0]
        b, found = self.b, constant("i32", 0)
        for part, mask in zip(self.f.vectors(members), here, strict=True):
            named = b.select(mask, part, 0)
            found = b.or_(found, b.call(f"llvm.vector.reduce.or.v{part.lanes}i32", [named], "i32"))
        return found

    def _nobody_polls(self, index: int) -> Value:
        """Whether no lane is left in a polling loop before the block."""
        sequence = self.f.order.sequence
        found: Value = constant("i1", 0)
        for head in self._heads:
            if sequence.index(head) < sequence.index(index):
                lanes = self.f.pack_bits(self._mask_at(head))
                found = self.b.or_(self.b.icmp("ne", lanes, 0), found)
        return self.b.not_(found)
