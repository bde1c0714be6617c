"""Warp-wide operations, barriers and faults on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from zluda.compiler.analysis.uniformity import polls
from zluda.compiler.cpu.special import context_pointer, warp_number
from zluda.compiler.ir import Builder, Value, constant
from zluda.compiler.lanes import narrow, uniform, varying
from zluda.compiler.lower.warp import source_lane
from zluda.compiler.stops import FAULT_CODES
from zluda.compiler.target import VARYING, WARP, Geometry, Lanes, Refusal
from zluda.errors import UnsupportedError
from zluda.ptx.instructions import spell
from zluda.ptx.types import ScalarType

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen


def shuffle_source(mode: str, lane: int, by: int, clamp: int) -> tuple[int, bool]:
    """The lane a lane reads from, and whether it was in range (the instruction's pseudo-code)."""
    by, limit, segment = by & 31, clamp & 31, (clamp >> 8) & 31
    highest, lowest = (lane & segment) | (limit & ~segment), lane & segment
    source = {"up": lane - by, "down": lane + by, "bfly": lane ^ by, "idx": lowest | (by & ~segment)}[mode]
    in_range = source >= highest if mode == "up" else source <= highest
    return (source if in_range else lane) & 31, in_range


class WarpOps:
    """The cross-lane part of the CPU's TargetOps."""

    geometry: Geometry

    # --- shuffles --------------------------------------------------------------------------------------

    def shuffle(
        self, f: FunctionCodegen, mode: str, value: Lanes, lane: Lanes, clamp: Lanes
    ) -> tuple[Lanes, Lanes]:
        """See :class:`~zluda.compiler.target.TargetOps`. With literal operands it is a fixed permutation."""
        if lane.shape.constant is not None and clamp.shape.constant is not None:
            return self._fixed(f, mode, value, lane.shape.constant, clamp.shape.constant)
        b, width = f.b, self.geometry.width
        spot = self._spill(f, value)
        results, ranges = [], []
        for g in range(self.geometry.groups):
            by = b.splat(narrow(lane, g, b, self.geometry), width)
            limits = b.splat(narrow(clamp, g, b, self.geometry), width)
            chosen, in_range = source_lane(b, mode, f.lane_numbers(g), by, limits)
            results.append(b.gather(value.type, b.gep(spot, chosen, value.type), align=4))
            ranges.append(in_range)
        return Lanes(VARYING, tuple(results)), Lanes(VARYING, tuple(ranges))

    def _fixed(self, f: FunctionCodegen, mode: str, value: Lanes, by: int, clamp: int) -> tuple[Lanes, Lanes]:
        b, width = f.b, self.geometry.width
        sources = [shuffle_source(mode, lane, by, clamp) for lane in range(WARP)]
        first, second = f.vectors(value)
        results, ranges = [], []
        for g in range(self.geometry.groups):
            own = sources[g * width : (g + 1) * width]
            results.append(b.shuffle(first, second, [s for s, _ in own]))
            ranges.append(b.vector("i1", [int(ok) for _, ok in own]))
        return varying(results, self.geometry, b), varying(ranges, self.geometry, b)

    def lane_numbers(self, b: Builder) -> tuple[Value, ...]:
        """See :class:`~zluda.compiler.target.TargetOps`."""
        width = self.geometry.width
        return tuple(b.vector("i32", range(g * width, (g + 1) * width)) for g in range(self.geometry.groups))

    def permute(self, b: Builder, parts: tuple[Value, ...], sources: Sequence[int]) -> tuple[Value, ...]:
        """See :class:`~zluda.compiler.target.TargetOps`."""
        width = self.geometry.width
        first, second = parts
        return tuple(
            b.shuffle(first, second, sources[g * width : (g + 1) * width])
            for g in range(self.geometry.groups)
        )

    def _spill(self, f: FunctionCodegen, value: Lanes) -> Value:
        """All lanes side by side in memory."""
        width = self.geometry.width
        spot = f.b.alloca(value.type, width, count=self.geometry.groups)
        size = width * value.parts[0].width // 8
        for g, part in enumerate(f.vectors(value)):
            f.b.store(part, f.b.gep(spot, g * size), align=64)
        return spot

    # --- votes -----------------------------------------------------------------------------------------

    def ballot(self, f: FunctionCodegen, predicate: Lanes, members: Lanes | None) -> Lanes:
        """See :class:`~zluda.compiler.target.TargetOps`."""
        b = f.b
        voters = f.mask_bits()
        if predicate.shape.uniform:
            bits = b.and_(b.sext(predicate.parts[0], "i32"), voters)
        else:
            bits = b.and_(f.pack_bits(f.vectors(predicate)), voters)
        if members is None:
            return uniform(bits)
        if members.shape.uniform:
            return uniform(b.and_(members.parts[0], bits))
        return Lanes(VARYING, tuple(b.and_(m, bits) for m in f.vectors(members)))

    def first_active(self, f: FunctionCodegen, lanes: Lanes) -> Value:
        """The value of the lowest active lane, as a scalar."""
        if lanes.shape.uniform:
            return lanes.parts[0]
        lane = f.b.zext(f.b.intrinsic("cttz", f.mask_bits(), False), "i64")
        size = max(lanes.parts[0].width // 8, 1)
        return f.b.load(lanes.type, f.b.gep(self._spill(f, lanes), lane, lanes.type), align=size)

    def match(self, f: FunctionCodegen, op: str, value: Lanes, members: Lanes) -> tuple[Lanes, Lanes]:
        """See :class:`~zluda.compiler.target.TargetOps`."""
        b = f.b
        apart = not members.shape.uniform  # lanes name members of their own: tiles of a warp, say
        active = f.mask_bits() if apart else b.and_(members.parts[0], f.mask_bits())
        if op == "all" and not apart:
            first = self.first_active(f, value)
            equal = f.pack_bits([b.icmp("eq", v, first) for v in f.vectors(value)])
            same = b.icmp("eq", b.and_(equal, active), active)
            return uniform(b.select(same, active, 0)), uniform(same)
        name = f.unit.ir.function(
            f"match.any.{value.type}",
            [(value.type, self.geometry.width)] * self.geometry.groups + [("i32", 1)],
            _match_any,
        )
        whole = b.call(name, [*f.vectors(value), active], "i32", WARP)
        parts = self._split(b, whole)
        if apart:
            parts = [b.and_(p, m) for p, m in zip(parts, f.vectors(members), strict=True)]
        if op == "any":
            return varying(parts, self.geometry, b), uniform(constant("i1", 1))
        own = [b.and_(m, active) for m in f.vectors(members)]
        agree = [b.icmp("eq", p, o) for p, o in zip(parts, own, strict=True)]
        masks = [b.select(a, o, 0) for a, o in zip(agree, own, strict=True)]
        return varying(masks, self.geometry, b), varying(agree, self.geometry, b)

    def _split(self, b: Builder, whole: Value) -> list[Value]:
        """A vector of all lanes as one a group."""
        width = self.geometry.width
        return [
            b.shuffle(whole, None, range(g * width, (g + 1) * width)) for g in range(self.geometry.groups)
        ]

    def reduce(self, f: FunctionCodegen, op: str, type: ScalarType, value: Lanes, members: Lanes) -> Lanes:
        """See :class:`~zluda.compiler.target.TargetOps`."""
        b = f.b
        reduction = (("s" if type.kind == "s" else "u") if op in ("min", "max") else "") + op
        if members.shape.uniform:
            active = f.unpack_bits(b.and_(members.parts[0], f.mask_bits()))
            return uniform(_fold(b, reduction, f.vectors(value), active))
        vector = ("i32", self.geometry.width)
        name = f.unit.ir.function(
            f"reduce.{reduction}",
            [*[vector] * (2 * self.geometry.groups), ("i32", 1)],
            lambda inner, arguments: _reduce_groups(inner, reduction, arguments),
        )
        whole = b.call(name, [*f.vectors(value), *f.vectors(members), f.mask_bits()], "i32", WARP)
        return varying(self._split(b, whole), self.geometry, b)

    # --- barriers, fences, faults ----------------------------------------------------------------------

    def fence(self, f: FunctionCodegen, scope: str) -> None:
        """Every fence is the strongest one."""
        f.b.emit("fence seq_cst")

    def require_whole_warp(self, f: FunctionCodegen) -> None:
        """Lanes that reach a barrier on another path would have to run while these wait."""
        if f.lanes_elsewhere is not None:
            refuse_apart(f, f.lanes_elsewhere())

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
        """The warp arrives; the runtime suspends it until the barrier is complete."""
        b = f.b
        if f.unit.warps == 1 and not reduce:
            return None  # the only warp there is
        f.unit.uses_fibers = True
        zero = constant("i32", 0)
        expected = self.first_active(f, threads) if threads is not None else zero
        votes = voters = zero
        if predicate is not None:
            yes = self.ballot(f, predicate, None).parts[0]
            votes, voters = b.intrinsic("ctpop", yes), b.intrinsic("ctpop", f.mask_bits())
        arguments = [context_pointer(), self.first_active(f, identifier), expected, votes, voters]
        both = b.call("zluda_barrier", [*arguments, constant("i32", int(wait))], "i64")
        if not reduce:
            return None
        ayes, all_votes = b.trunc(both, "i32"), b.trunc(b.lshr(both, 32), "i32")
        return uniform(
            {
                "popc": lambda: ayes,
                "and": lambda: b.icmp("eq", ayes, all_votes),
                "or": lambda: b.icmp("ne", ayes, 0),
            }[reduce]()
        )

    def trap(self, f: FunctionCodegen, kind: str) -> None:
        """Stop the launch at the first active lane."""
        b = f.b
        if kind not in FAULT_CODES:
            raise UnsupportedError(kind)
        stop(b, f.mask_bits(), kind)
        b.label(b.fresh("stopped"))

    def refuse(self, f: FunctionCodegen, refusal: Refusal) -> None:
        """Stop the launch at the first active lane, saying what cannot be done."""
        stop(f.b, f.mask_bits(), "unsupported", f.unit.refusal_index(refusal))
        f.b.label(f.b.fresh("stopped"))

    def loop_head(self, f: FunctionCodegen, blocks: Sequence[int]) -> None:
        """In a loop that waits for memory to change, let other warps and blocks run each time round."""
        waited = polls(f.graph, blocks)
        if waited - {"shared"}:
            f.unit.waits_for_blocks = True
        elif f.unit.warps == 1 and not f.unit.clustered:
            return
        if waited:
            f.unit.uses_fibers = True
            f.b.call("zluda_yield", [context_pointer()])

    def cluster_arrive(self, f: FunctionCodegen) -> None:
        """See :class:`~zluda.compiler.target.TargetOps`. A warp counts as one, however many lanes execute."""
        if f.unit.warps > 1 or f.unit.clustered:
            f.unit.uses_fibers = True
            f.b.call("zluda_cluster_arrive", [context_pointer()])

    def cluster_wait(self, f: FunctionCodegen) -> None:
        """See :class:`~zluda.compiler.target.TargetOps`."""
        if f.unit.warps > 1 or f.unit.clustered:
            f.unit.uses_fibers = True
            f.b.call("zluda_cluster_wait", [context_pointer()])


def stop(b: Builder, active: Value, kind: str, detail: int = 0) -> None:
    """End the block for the launch's first fault: ``kind`` at the first of the ``active`` lanes."""
    thread = b.add(b.shl(warp_number(), 5), b.intrinsic("cttz", active, False))
    code = constant("i32", FAULT_CODES[kind])
    b.call("zluda_fault", [context_pointer(), code, thread, constant("i64", detail)])
    b.unreachable()


def refuse_apart(f: FunctionCodegen, condition: Value) -> None:
    """Stop the launch where lanes come apart to an instruction in which the block meets."""
    apart, whole = f.b.fresh("apart"), f.b.fresh("whole")
    f.b.cond_branch(condition, apart, whole)
    f.b.label(apart)
    assert f.instruction is not None
    what = f"{spell(f.instruction)} reached by a part of a warp"
    f.ops.refuse(f, Refusal(what, f.place(f.instruction)))
    f.b.branch(whole)
    f.b.label(whole)


_NEUTRAL = {"umin": -1, "smin": 0x7FFFFFFF, "smax": -0x80000000, "and": -1}


def _fold(b: Builder, reduction: str, parts: list[Value], active: Sequence[Value]) -> Value:
    """One value from those of the active lanes."""
    total: Value | None = None
    for part, mask in zip(parts, active, strict=True):
        chosen = b.select(mask, part, _NEUTRAL.get(reduction, 0))
        found = b.call(f"llvm.vector.reduce.{reduction}.v{part.lanes}i32", [chosen], "i32")
        if total is None:
            total = found
        elif reduction.endswith(("min", "max")):
            total = b.intrinsic(reduction, total, found)
        else:
            total = b.binary(reduction, total, found)
    assert total is not None
    return total


def _reduce_groups(b: Builder, reduction: str, arguments: list[Value]) -> Value:
    """Each set of lanes that name the same members reduced by itself, one round a set; all lanes in a row."""
    *vectors, active = arguments
    values, members = vectors[: len(vectors) // 2], vectors[len(vectors) // 2 :]
    width = values[0].lanes
    names = b.alloca("i32", width, count=len(members))
    for g, part in enumerate(members):
        b.store(part, b.gep(names, g * width * 4), align=64)
    result = b.alloca("i32", WARP)
    b.store(b.splat(constant("i32", 0), WARP), result, align=64)
    remaining = b.alloca("i32", align=4)
    b.store(active, remaining, align=4)
    b.branch("next")
    b.label("next")
    left = b.load("i32", remaining, align=4)
    b.cond_branch(b.icmp("eq", left, 0), "out", "round")
    b.label("round")
    lane = b.intrinsic("cttz", left, False)
    named = b.load("i32", b.gep(names, b.zext(lane, "i64"), "i32"), align=4)
    chosen = b.or_(b.and_(named, left), b.shl(constant("i32", 1), lane))
    bits = b.reshape(chosen, "i1", WARP)
    masks = [b.shuffle(bits, None, range(g * width, (g + 1) * width)) for g in range(len(values))]
    total = b.splat(_fold(b, reduction, values, masks), WARP)
    b.store(b.select(bits, total, b.load("i32", result, WARP, align=64)), result, align=64)
    b.store(b.and_(left, b.not_(chosen)), remaining, align=4)
    b.branch("next")
    b.label("out")
    return b.load("i32", result, WARP, align=64)


def _match_any(b: Builder, arguments: list[Value]) -> Value:
    """For each active lane the active lanes that hold its value: one round a distinct value."""
    *groups, active = arguments
    width = groups[0].lanes
    element = groups[0].type
    values = b.alloca(element, width, count=len(groups))
    for g, group in enumerate(groups):
        b.store(group, b.gep(values, g * width * group.width // 8), align=64)
    result = b.alloca("i32", WARP)
    b.store(b.splat(constant("i32", 0), WARP), result, align=64)
    remaining = b.alloca("i32", align=4)
    b.store(active, remaining, align=4)
    b.branch("next")
    b.label("next")
    left = b.load("i32", remaining, align=4)
    b.cond_branch(b.icmp("eq", left, 0), "out", "round")
    b.label("round")
    lane = b.zext(b.intrinsic("cttz", left, False), "i64")
    one = b.load(element, b.gep(values, lane, element), align=1)
    whole = b.shuffle(groups[0], groups[1], range(WARP))
    equal = b.and_(b.reshape(b.icmp("eq", whole, one), "i32", 1), active)
    b.store(b.and_(left, b.not_(equal)), remaining, align=4)
    before = b.load("i32", result, WARP, align=64)
    b.store(b.select(b.reshape(equal, "i1", WARP), equal, before), result, align=64)
    b.branch("next")
    b.label("out")
    return b.load("i32", result, WARP, align=64)
