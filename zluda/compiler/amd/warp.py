"""Across lanes on AMD GPUs: shuffles, votes, reductions, barriers, traps.

A warp is a wave of 32 lanes, or the half of a wave of 64 that a thread is in: nothing here looks across.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from zluda.compiler.amd.atomics import AtomicOps
from zluda.compiler.amd.machine import SHARED, one
from zluda.compiler.amd.unit import BARRIERS, VOTES
from zluda.compiler.ir import Builder, Value, constant
from zluda.compiler.lower.tensor_warp import linear
from zluda.compiler.lower.warp import source_lane
from zluda.compiler.target import WARP, Lanes
from zluda.errors import UnsupportedError
from zluda.ptx.types import ScalarType

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen

_TRAPS = ("trap", "brkpt", "call", "assert")


class WarpOps(AtomicOps):
    """The cross-lane part of AMD's TargetOps."""

    def shuffle(
        self, f: FunctionCodegen, mode: str, value: Lanes, lane: Lanes, clamp: Lanes
    ) -> tuple[Lanes, Lanes]:
        """See :class:`~zluda.compiler.target.TargetOps`. A lane that does not execute gives 0."""
        chosen, in_range = source_lane(f.b, mode, self.lane(f), lane.parts[0], clamp.parts[0])
        return one(self.from_lane(f, value.parts[0], chosen)), one(in_range)

    def lane_numbers(self, b: Builder) -> tuple[Value, ...]:
        """See :class:`~zluda.compiler.target.TargetOps`."""
        return (b.and_(self.counted_lane(b), 31),)

    def permute(self, b: Builder, parts: tuple[Value, ...], sources: Sequence[int]) -> tuple[Value, ...]:
        """See :class:`~zluda.compiler.target.TargetOps`."""
        hardware = self.counted_lane(b)
        source = linear(b, b.and_(hardware, 31), sources)
        return (self.from_hardware_lane(b, parts[0], b.or_(b.and_(hardware, 32), source)),)

    def ballot(self, f: FunctionCodegen, predicate: Lanes, members: Lanes | None) -> Lanes:
        """See :class:`~zluda.compiler.target.TargetOps`."""
        bits = self.vote(f, predicate.parts[0])
        return one(bits if members is None else f.b.and_(bits, members.parts[0]))

    def first_active(self, f: FunctionCodegen, lanes: Lanes) -> Value:
        """The value of the warp's lowest executing lane."""
        return self._first(f, lanes.parts[0], self.executing(f))

    def _first(self, f: FunctionCodegen, value: Value, among: Value) -> Value:
        lane = f.b.and_(f.b.intrinsic("cttz", among, False), 31)
        return self.from_lane(f, value, lane)

    def match(self, f: FunctionCodegen, op: str, value: Lanes, members: Lanes) -> tuple[Lanes, Lanes]:
        """See :class:`~zluda.compiler.target.TargetOps`."""
        b, held = f.b, value.parts[0]
        active = b.and_(self.executing(f), members.parts[0])
        if op == "all":
            first = self._first(f, held, active)
            equal = self.vote(f, b.icmp("eq", held, first))
            same = b.icmp("eq", b.and_(equal, active), active)
            return one(b.select(same, active, 0)), one(same)
        return one(b.and_(self._equals(f, held), active)), one(constant("i1", 1))

    def _equals(self, f: FunctionCodegen, value: Value) -> Value:
        """The executing lanes with this lane's value: one round a distinct value, which its lanes leave."""
        b = f.b
        result = b.alloca("i32", align=4)
        again, done = b.fresh("match"), b.fresh("matched")
        b.branch(again)
        b.label(again)
        first = self._first(f, value, self.executing(f))
        mine = b.icmp("eq", value, first)
        b.store(self.vote(f, mine), result, align=4)
        b.cond_branch(mine, done, again)
        b.label(done)
        return b.load("i32", result, align=4)

    def reduce(self, f: FunctionCodegen, op: str, type: ScalarType, value: Lanes, members: Lanes) -> Lanes:
        """See :class:`~zluda.compiler.target.TargetOps`. Member after member."""
        b, held = f.b, value.parts[0]
        prefix = ("s" if type.kind == "s" else "u") if op in ("min", "max") else ""
        neutral = {"umin": -1, "smin": 0x7FFFFFFF, "smax": -0x80000000, "and": -1}.get(prefix + op, 0)
        total, remaining = b.alloca("i32", align=4), b.alloca("i32", align=4)
        b.store(constant("i32", neutral), total, align=4)
        b.store(b.and_(self.executing(f), members.parts[0]), remaining, align=4)
        head, body, done = b.fresh("reduce"), b.fresh("member"), b.fresh("reduced")
        b.branch(head)
        b.label(head)
        left = b.load("i32", remaining, align=4)
        b.cond_branch(b.icmp("eq", left, 0), done, body)
        b.label(body)
        b.store(b.and_(left, b.sub(left, 1)), remaining, align=4)
        part = self._first(f, held, left)
        before = b.load("i32", total, align=4)
        b.store(
            b.intrinsic(prefix + op, before, part) if prefix else b.binary(op, before, part), total, align=4
        )
        b.branch(head)
        b.label(done)
        return one(b.load("i32", total, align=4))

    # --- barriers, traps -------------------------------------------------------------------------------

    def require_whole_warp(self, f: FunctionCodegen) -> None:
        """Lanes that reach a barrier apart arrive apart: the wave counts them once each time."""

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
        if threads is not None or not wait:
            if reduce or threads is None or self.two_warps:
                raise UnsupportedError(
                    "a barrier for some of a block's threads, with a vote or at two warps a wave"
                )
            self._named_barrier(f, identifier.parts[0], threads.parts[0], wait=wait)
            return None
        self._synchronise(f)
        if not reduce:
            return None
        assert predicate is not None
        return one(self._count(f, reduce, predicate.parts[0]))

    def _named_barrier(self, f: FunctionCodegen, identifier: Value, threads: Value, *, wait: bool) -> None:
        """Arrivals and generation in LDS; whose arrival completes the barrier begins the next generation.

        A warp counts as 32 threads (PTX ISA 9.7.13.1). Who waits, polls.
        """
        b = f.b
        base = b.add(b.shl(b.and_(identifier, 15), 3), f.unit.shared.offsets[BARRIERS])
        arrivals = b.cast("inttoptr", base, SHARED)
        generation = b.gep(arrivals, 4)
        b.emit('fence syncscope("workgroup") release')
        before = b.define("i32", 1, f"load volatile i32, {generation.typed}, align 4")
        leads = b.icmp("eq", self.lane(f), b.intrinsic("cttz", self.executing(f), False))
        lead, last, poll, done = (b.fresh(n) for n in ("arrive", "complete", "await", "past"))
        after = poll if wait else done
        b.cond_branch(leads, lead, after)
        b.label(lead)
        text = f'atomicrmw add {arrivals.typed}, i32 {WARP} syncscope("workgroup") acq_rel'
        arrived = b.add(b.define("i32", 1, text), WARP)
        b.cond_branch(b.icmp("uge", arrived, threads), last, after)
        b.label(last)
        b.emit(f"store volatile i32 0, {arrivals.typed}, align 4")
        b.emit('fence syncscope("workgroup") release')
        b.emit(f"store volatile {b.add(before, 1).typed}, {generation.typed}, align 4")
        b.branch(after)
        if wait:
            b.label(poll)
            now = b.define("i32", 1, f"load volatile i32, {generation.typed}, align 4")
            b.cond_branch(b.icmp("eq", now, before), poll, done)
        b.label(done)
        b.emit('fence syncscope("workgroup") acquire')

    def clear_barriers(self, f: FunctionCodegen) -> None:
        """At a kernel's start, where it has barriers in LDS."""
        start = f.unit.shared.offsets.get(BARRIERS)
        if start is None:
            return
        b = f.b
        slot = b.add(b.shl(b.and_(self.hardware_lane(f), 31), 2), start)
        b.emit(f"store i32 0, {b.cast('inttoptr', slot, SHARED).typed}, align 4")
        self._synchronise(f)

    def _synchronise(self, f: FunctionCodegen) -> None:
        f.b.emit('fence syncscope("workgroup") release')
        f.b.call("llvm.amdgcn.s.barrier", [])
        f.b.emit('fence syncscope("workgroup") acquire')

    def _count(self, f: FunctionCodegen, reduce: str, predicate: Value) -> Value:
        """``bar.red``: votes and voters, 16 bits each, summed in LDS between two more barriers."""
        b = f.b
        cell = b.cast("inttoptr", constant("i32", f.unit.shared.offsets[VOTES]), SHARED)
        b.emit(f"store volatile i32 0, {cell.typed}, align 4")
        self._synchronise(f)
        ballot = b.zext(predicate, "i32")
        mine = b.add(ballot, 1 << 16)
        b.define("i32", 1, f'atomicrmw add {cell.typed}, {mine.typed} syncscope("workgroup") monotonic')
        self._synchronise(f)
        sums = b.define("i32", 1, f"load volatile i32, {cell.typed}, align 4")
        self._synchronise(f)
        ayes, voters = b.and_(sums, 0xFFFF), b.lshr(sums, 16)
        return {
            "popc": lambda: ayes,
            "and": lambda: b.icmp("eq", ayes, voters),
            "or": lambda: b.icmp("ne", ayes, 0),
        }[reduce]()

    def trap(self, f: FunctionCodegen, kind: str) -> None:
        """The wave stops, and with it the launch."""
        if kind not in _TRAPS:
            raise UnsupportedError(kind)
        f.b.call("llvm.trap", [])
