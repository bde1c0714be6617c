"""Across lanes on AMD GPUs: shuffles, votes, reductions, traps.

A warp is a wave of 32 lanes, or the half of a wave of 64 that a thread is in: nothing here looks across.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from zluda.compiler.amd.cluster_barrier import ClusterBarrierOps
from zluda.compiler.gpu.thread import one
from zluda.compiler.ir import Builder, Value, constant
from zluda.compiler.lower.warp import source_lane
from zluda.compiler.target import Lanes
from zluda.ptx.types import ScalarType

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen


def _quad_permutation(sources: Sequence[int]) -> int | None:
    """DPP's ``quad_perm`` control, two bits a lane, where all groups of four lanes exchange alike."""
    if any(source != (lane & ~3) | (sources[lane % 4] & 3) for lane, source in enumerate(sources)):
        return None
    return sum((source & 3) << 2 * lane for lane, source in enumerate(sources[:4]))


class WarpOps(ClusterBarrierOps):
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
        """See :class:`~zluda.compiler.target.TargetOps`. Among groups of four lanes by DPP."""
        control = _quad_permutation(sources)
        if control is not None and parts[0].width <= 32:
            wide = b.zext(parts[0], "i32")
            fixed = [constant("i32", n) for n in (control, 15, 15)] + [constant("i1", 1)]
            found = b.call("llvm.amdgcn.update.dpp.i32", [wide, wide, *fixed], "i32")
            return (b.trunc(found, parts[0].type),)
        hardware = self.counted_lane(b)
        from zluda.compiler.lower.tensor_warp import linear

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
