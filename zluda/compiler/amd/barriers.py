"""Barriers of a block on AMD GPUs (PTX ISA 9.7.13.1): the workgroup's own, and others built in LDS.

The hardware has one barrier a workgroup, for all its waves. It serves every barrier without a thread count,
whatever its number. One with a count has two words in LDS, threads arrived and generation; who completes it
begins the next generation, who waits polls. A warp counts as 32 threads, and must have its wave to itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from zluda.compiler.amd.atomics import AtomicOps
from zluda.compiler.amd.unit import BARRIERS, CLUSTER_BARRIER, TALLIES, VOTES
from zluda.compiler.analysis.barriers import certain_partings, is_warp_barrier, meets, possible_partings
from zluda.compiler.gpu.thread import SHARED, one
from zluda.compiler.ir import Builder, Value, address_space, constant
from zluda.compiler.target import WARP, Lanes, Refusal
from zluda.errors import UnsupportedError
from zluda.ptx.instructions import spell
from zluda.ptx.module import Instruction

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen

_WORKGROUP = 'syncscope("workgroup")'
_NUMBERS = 16
_VOTER = 1 << 16
"""Votes and voters are summed in one word, 16 bits each: a block has at most 1024 threads."""
_DELIVERED = 1 << 31


class Together:
    """What a function's control flow asks the warp (:class:`~zluda.compiler.native.Warp`)."""

    def __init__(self, f: FunctionCodegen, ops: BarrierOps) -> None:
        names = f.unit.barriers()[0]
        self.f, self.ops = f, ops
        self.partings = certain_partings(f.graph, meets(names)) if names else {}
        self.sides = possible_partings(f.graph, is_warp_barrier)
        self._elsewhere = {n: f.b.alloca("i32", align=4) for n in self.sides}
        for slot in self._elsewhere.values():
            f.b.entry.append(f"store i32 0, ptr{address_space(slot.type)} {slot.ref}, align 4")
        self._block_of = {
            id(i): n
            for n in f.graph.reachable()
            for i in f.graph.blocks[n].instructions
            if is_warp_barrier(i)
        }
        f.warp_barrier = self.warp_barrier

    def some(self, condition: Value) -> Value:
        """Whether a condition holds for a lane that executes this."""
        return self.f.b.icmp("ne", self.ops.vote(self.f, condition), 0)

    def meet(self, index: int) -> None:
        """Lanes that went different ways are all here again."""
        for n, sides in self.sides.items():
            if sides.together == index:
                self.f.b.store(constant("i32", 0), self._elsewhere[n], align=4)

    def part(self, index: int, sides: Callable[[], Sequence[Value]]) -> None:
        """A warp must not part to different barriers: its wave would be counted at both. Lanes that part
        where a warp's own barrier may come note who went where somebody may wait for them."""
        if index not in self.partings and index not in self.sides:
            return
        taken = sides()
        lanes = [self.ops.vote(self.f, side) for side in taken]
        for conflict in self.partings.get(index, ()):
            present = [self.f.b.icmp("ne", lanes[n], 0) for n in (conflict.one, conflict.other)]
            self._refuse(self.f.b.and_(*present), conflict.barrier)
        if index in self.sides:
            self._note(index, taken, lanes)

    def _note(self, index: int, taken: Sequence[Value], lanes: Sequence[Value]) -> None:
        b, slot = self.f.b, self._elsewhere[index]
        noted = b.load("i32", slot, align=4)  # in a loop those who left it before
        for side, others in self.sides[index].others.items():
            gone = noted
            for other in others:
                gone = b.or_(gone, lanes[other])
            noted = b.select(taken[side], gone, noted)
        b.store(noted, slot, align=4)

    def warp_barrier(self, barrier: Instruction) -> None:
        """``bar.warp.sync``: lanes of a wave that are here are here together, and wait for nobody else."""
        f, b, block = self.f, self.f.b, self._block_of[id(barrier)]
        elsewhere: Value = constant("i32", 0)
        for n, sides in self.sides.items():
            if any(block in barriers for barriers in sides.barriers.values()):
                elsewhere = b.or_(b.load("i32", self._elsewhere[n], align=4), elsewhere)
        if elsewhere.bits == 0:
            return
        absent = b.and_(elsewhere, b.not_(self.ops.executing(f)))
        named = f.read_bits(barrier.operands[-1], 32).parts[0]
        self._refuse(self.some(b.icmp("ne", b.and_(absent, named), 0)), barrier)

    def _refuse(self, condition: Value, barrier: Instruction) -> None:
        f, b = self.f, self.f.b
        apart, together = b.fresh("apart"), b.fresh("together")
        b.cond_branch(condition, apart, together)
        b.label(apart)
        self.ops.refuse(f, Refusal(f"{spell(barrier)} reached by a part of a warp", f.place(barrier)))
        b.branch(together)
        b.label(together)


class BarrierOps(AtomicOps):
    """The part of AMD's TargetOps about barriers."""

    def require_whole_warp(self, f: FunctionCodegen) -> None:
        """Nobody knows where the others are: :class:`Together` stops those that part for certain."""

    def loop_head(self, f: FunctionCodegen, blocks: Sequence[int]) -> None:
        """The hardware runs other waves meanwhile."""

    def barrier(
        self,
        f: FunctionCodegen,
        identifier: Lanes,
        threads: Lanes | None,
        *,
        wait: bool,
        reduce: str = "",
        predicate: Lanes | None = None,
    ) -> Lanes | None:
        """The workgroup's own barrier for all threads of a block, whatever its number; else one in LDS."""
        vote = predicate.parts[0] if predicate is not None else None
        if threads is None:
            self._synchronise(f)
            return None if vote is None else one(_outcome(f.b, reduce, self._count(f, vote)))
        if self.two_warps:
            raise UnsupportedError("a barrier for some of a block's threads, at two warps a wave")
        number, count = f.b.and_(identifier.parts[0], _NUMBERS - 1), threads.parts[0]
        if vote is not None:
            return one(_outcome(f.b, reduce, self._tally(f, number, count, vote)))
        self._named_barrier(f, number, count, wait=wait)
        return None

    def clear_barriers(self, f: FunctionCodegen) -> None:
        """At a kernel's start, where it has barriers in LDS."""
        starts = [
            f.unit.shared.offsets[name]
            for name in (BARRIERS, TALLIES, CLUSTER_BARRIER)
            if name in f.unit.shared.offsets
        ]
        if not starts:
            return
        b = f.b
        for start in starts:  # 32 words of each, by as many lanes
            slot = b.add(b.shl(b.and_(self.hardware_lane(f), WARP - 1), 2), start)
            b.emit(f"store i32 0, {b.cast('inttoptr', slot, SHARED).typed}, align 4")
        self._synchronise(f)

    # --- for all threads -------------------------------------------------------------------------------

    def _synchronise(self, f: FunctionCodegen) -> None:
        f.b.emit(f"fence {_WORKGROUP} release")
        f.b.call("llvm.amdgcn.s.barrier", [])
        f.b.emit(f"fence {_WORKGROUP} acquire")

    def _count(self, f: FunctionCodegen, vote: Value) -> Value:
        """Votes and voters of the block, summed in LDS between two more barriers."""
        b = f.b
        cell = b.cast("inttoptr", constant("i32", f.unit.shared.offsets[VOTES]), SHARED)
        b.emit(f"store volatile i32 0, {cell.typed}, align 4")
        self._synchronise(f)
        _update(b, "add", cell, b.add(b.zext(vote, "i32"), _VOTER), "monotonic")
        self._synchronise(f)
        sums = _read(b, cell)
        self._synchronise(f)
        return sums

    # --- for some --------------------------------------------------------------------------------------

    def _leads(self, f: FunctionCodegen) -> Value:
        """Whether this is the lowest executing lane, which acts for its warp."""
        return f.b.icmp("eq", self.lane(f), f.b.intrinsic("cttz", self.executing(f), False))

    def _words(self, f: FunctionCodegen, variable: str, number: Value, first: int = 0) -> Value:
        """Two words of a variable in LDS for a barrier's number, or one for a warp's from ``first`` on."""
        b, shift = f.b, 2 if first else 3
        return b.cast(
            "inttoptr", b.add(b.shl(number, shift), f.unit.shared.offsets[variable] + first), SHARED
        )

    def _named_barrier(self, f: FunctionCodegen, number: Value, threads: Value, *, wait: bool) -> None:
        b = f.b
        arrivals = self._words(f, BARRIERS, number)
        generation = b.gep(arrivals, 4)
        b.emit(f"fence {_WORKGROUP} release")
        before = _read(b, generation)
        lead, last, poll, done = (b.fresh(n) for n in ("arrive", "complete", "await", "past"))
        after = poll if wait else done
        b.cond_branch(self._leads(f), lead, after)
        b.label(lead)
        arrived = b.add(_update(b, "add", arrivals, constant("i32", WARP)), WARP)
        b.cond_branch(b.icmp("uge", arrived, threads), last, after)
        b.label(last)
        b.emit(f"store volatile i32 0, {arrivals.typed}, align 4")
        b.emit(f"fence {_WORKGROUP} release")
        b.emit(f"store volatile {b.add(before, 1).typed}, {generation.typed}, align 4")
        b.branch(after)
        if wait:
            b.label(poll)
            b.cond_branch(b.icmp("eq", _read(b, generation), before), poll, done)
        b.label(done)
        b.emit(f"fence {_WORKGROUP} acquire")

    def _tally(self, f: FunctionCodegen, number: Value, threads: Value, vote: Value) -> Value:
        """Votes and voters at a barrier with a count.

        Each warp has a letter box: who completes the barrier puts the sums into those of all that are noted
        to have come. The barrier may so be met again while others have not yet read.
        """
        b = f.b
        arrivals, sums = self._words(f, BARRIERS, number), self._words(f, TALLIES, number)
        guests = b.gep(sums, 4)
        warp = self.special(f, "%warpid").parts[0]
        box = self._words(f, TALLIES, warp, 8 * _NUMBERS)
        ayes, voters = (b.intrinsic("ctpop", bits) for bits in (self.vote(f, vote), self.executing(f)))
        lead, last, poll, done = (b.fresh(n) for n in ("vote", "tally", "await", "told"))
        b.emit(f"fence {_WORKGROUP} release")
        leads = self._leads(f)
        b.emit(f"store volatile i32 0, {box.typed}, align 4")
        b.cond_branch(leads, lead, poll)
        b.label(lead)
        _update(b, "add", sums, b.add(ayes, b.mul(voters, _VOTER)))
        _update(b, "or", guests, b.shl(constant("i32", 1), warp))
        arrived = b.add(_update(b, "add", arrivals, constant("i32", WARP)), WARP)
        b.cond_branch(b.icmp("uge", arrived, threads), last, poll)
        b.label(last)
        zero = constant("i32", 0)
        total, came = _update(b, "xchg", sums, zero), _update(b, "xchg", guests, zero)
        b.emit(f"store volatile i32 0, {arrivals.typed}, align 4")
        self._deliver(f, b.or_(total, _DELIVERED), came)
        b.branch(poll)
        b.label(poll)
        told = _read(b, box)
        b.cond_branch(b.icmp("eq", told, 0), poll, done)
        b.label(done)
        b.emit(f"fence {_WORKGROUP} acquire")
        return b.and_(told, _DELIVERED - 1)

    def _deliver(self, f: FunctionCodegen, letter: Value, warps: Value) -> None:
        """Put a letter into the box of every warp of a mask."""
        b = f.b
        remaining = b.alloca("i32", align=4)
        b.store(warps, remaining, align=4)
        b.emit(f"fence {_WORKGROUP} release")
        head, body, done = b.fresh("boxes"), b.fresh("box"), b.fresh("delivered")
        b.branch(head)
        b.label(head)
        left = b.load("i32", remaining, align=4)
        b.cond_branch(b.icmp("eq", left, 0), done, body)
        b.label(body)
        b.store(b.and_(left, b.sub(left, 1)), remaining, align=4)
        box = self._words(f, TALLIES, b.intrinsic("cttz", left, False), 8 * _NUMBERS)
        b.emit(f"store volatile {letter.typed}, {box.typed}, align 4")
        b.branch(head)
        b.label(done)


def _outcome(b: Builder, reduce: str, sums: Value) -> Value:
    """What ``bar.red`` makes of the votes and voters."""
    ayes, voters = b.and_(sums, _VOTER - 1), b.lshr(sums, 16)
    return {
        "popc": lambda: ayes,
        "and": lambda: b.icmp("eq", ayes, voters),
        "or": lambda: b.icmp("ne", ayes, 0),
    }[reduce]()


def _read(b: Builder, cell: Value) -> Value:
    return b.define("i32", 1, f"load volatile i32, {cell.typed}, align 4")


def _update(b: Builder, operation: str, cell: Value, value: Value, order: str = "acq_rel") -> Value:
    return b.define("i32", 1, f"atomicrmw {operation} {cell.typed}, {value.typed} {_WORKGROUP} {order}")
