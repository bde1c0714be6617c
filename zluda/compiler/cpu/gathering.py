"""Lanes that run apart, and the instructions that they execute together.

In a function whose lanes run apart (:mod:`zluda.compiler.cpu.masked`) they wait at blocks all over it. An
instruction that lanes execute together stands first in its block, and lanes stay there while one that must
take part is elsewhere: one that the member mask names and that has not come with the same mask (PTX ISA,
``shfl.sync``: it waits until all threads of ``membermask`` have executed it "with the same membermask
value"; lanes that a loop has let go may name others than those that go round), or, for barriers and
matrices, any lane that is there. Lanes that wait at other barriers do not come: the barrier itself says what
is wrong with that. Who names the same at another ``bar.warp.sync`` is there too: the first that goes on lets
the others go.

When the function's end is reached and lanes still wait, control goes back to its begin. If no block has
executed on the way, none ever will.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from zluda.compiler.analysis.barriers import Meets, is_barrier, is_warp_barrier
from zluda.compiler.analysis.cfg import CONVERGENCE
from zluda.compiler.codegen import FunctionCodegen
from zluda.compiler.cpu.warp import stop
from zluda.compiler.ir import Builder, Value, constant
from zluda.compiler.target import Lanes
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
        self._come = f.b.alloca("i32", align=4)  # lanes at a bar.warp.sync, and by lane whom they name
        self._named = f.b.alloca("i32", f.geometry.width, count=f.geometry.groups)
        self._released = f.b.alloca("i32", align=4)  # lanes at a bar.warp.sync that is over for them
        for lanes in (self._come, self._released):
            f.b.entry.append(f"store i32 0, ptr {lanes.ref}, align 4")

    def arrive(self, mask: Sequence[Value]) -> None:
        """These lanes wait at some block from now on."""
        self._set(self.b.or_(self._all(), self.f.pack_bits(list(mask))))

    def depart(self, mask: Sequence[Value]) -> None:
        """These lanes execute their block now: those that :meth:`ready` gave."""
        gone = self.b.not_(self.f.pack_bits(list(mask)))
        self._set(self.b.and_(self._all(), gone))
        self.b.store(self.b.and_(self._load(self._released), gone), self._released, align=4)
        self.b.store(constant("i1", 1), self._progress, align=1)

    def ready(self, index: int) -> list[Value]:
        """Of the lanes that wait at a block those that need not wait for its first instruction."""
        first, here = self._first(index), self._mask_at(index)
        if first is None:
            return here
        if is_warp_barrier(first):
            return self._past_warp_barrier(index, first, here)
        if first.opcode in _NAMED and first.has("sync"):
            self.f.enter_block(index)  # as registers are at its start
            return self._with_all_they_name(self.f.read_bits(first.operands[-1], 32), here)
        if first.opcode in _NAMED:  # the forms before sm_70 name no lanes
            return self._if(self._nobody_polls(index), here)
        absent = self._absent(here)
        if is_barrier(first):
            for other in self._barriers:
                absent = self.b.and_(absent, self.b.not_(self.f.pack_bits(self._mask_at(other))))
        return self._if(self.b.icmp("eq", absent, 0), here)

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

    def _load(self, lanes: Value) -> Value:
        return self.b.load("i32", lanes, align=4)

    def _all(self) -> Value:
        return self._load(self._waiting)

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

    def _absent(self, here: Sequence[Value]) -> Value:
        """The lanes that wait elsewhere."""
        return self.b.and_(self._all(), self.b.not_(self.f.pack_bits(list(here))))

    def _if(self, condition: Value, here: Sequence[Value]) -> list[Value]:
        return [self.b.and_(lanes, condition) for lanes in here]

    def _with_all_they_name(self, members: Lanes, here: list[Value]) -> list[Value]:
        """The lanes at a block that name nobody but lanes there which name the same."""
        b, f = self.b, self.f
        if members.shape.uniform:
            absent = b.and_(members.parts[0], self._absent(here))
            return self._if(b.icmp("eq", absent, 0), here)
        named = b.alloca("i32", f.geometry.width, count=f.geometry.groups)
        self._note(named, members)
        lanes = f.pack_bits(here)
        return f.unpack_bits(self._complete(lanes, lanes, named))

    def _past_warp_barrier(self, index: int, first: Instruction, here: list[Value]) -> list[Value]:
        """The lanes at a ``bar.warp.sync`` for which it is over.

        Who is there is noted with whom it names, so that it is found from the others.
        """
        b, f = self.b, self.f
        f.enter_block(index)
        own, released = f.pack_bits(here), self._load(self._released)
        waiting = b.and_(own, b.not_(released))
        members = f.read_bits(first.operands[-1], 32)
        self._note(self._named, members, f.unpack_bits(waiting))
        come = self._load(self._come)
        new = b.icmp("ne", b.and_(waiting, b.not_(come)), 0)
        b.store(b.or_(b.load("i1", self._progress, align=1), new), self._progress, align=1)
        come = b.or_(come, waiting)
        passed = self._complete(waiting, come, self._named)
        b.store(b.and_(come, b.not_(passed)), self._come, align=4)
        released = b.or_(released, passed)
        b.store(released, self._released, align=4)
        return f.unpack_bits(b.and_(own, released))

    def _note(self, place: Value, members: Lanes, mask: Sequence[Value] | None = None) -> None:
        """By lane whom it names, of all lanes or those of a mask."""
        b, width = self.b, self.f.geometry.width
        for group, part in enumerate(self.f.vectors(members)):
            at, noted = b.gep(place, group * width * 4), b.splat(part, width)
            if mask is not None:
                noted = b.select(mask[group], noted, b.load("i32", at, width, align=64))
            b.store(noted, at, align=64)

    def _complete(self, lanes: Value, come: Value, named: Value) -> Value:
        """Of ``come`` those who name what one of ``lanes`` does, where all whom they name have come so."""
        geometry = self.f.geometry
        name = self.b.module.function(
            "gathering.complete",
            [("i32", 1), ("i32", 1), ("i32", 1), ("ptr", 1)],
            lambda b, a: _complete_groups(b, a, geometry.groups, geometry.width),
        )
        return self.b.call(name, [lanes, come, self._all(), named], "i32")

    def _nobody_polls(self, index: int) -> Value:
        """Whether no lane is left in a polling loop before the block."""
        sequence = self.f.order.sequence
        found: Value = constant("i1", 0)
        for head in self._heads:
            if sequence.index(head) < sequence.index(index):
                lanes = self.f.pack_bits(self._mask_at(head))
                found = self.b.or_(self.b.icmp("ne", lanes, 0), found)
        return self.b.not_(found)


def _complete_groups(b: Builder, arguments: list[Value], groups: int, width: int) -> Value:
    """(lanes, come, waiting, named): see :meth:`Gathering._complete`; group by group of equal masks."""
    lanes, come, waiting, named = arguments
    b.label("start")
    b.branch("next")
    b.label("next")
    rest = b.define("i32", 1, f"phi i32 [ {lanes.ref}, %start ], [ %others, %group ]")
    found = b.define("i32", 1, "phi i32 [ 0, %start ], [ %more, %group ]")
    b.cond_branch(b.icmp("eq", rest, 0), "over", "group")
    b.label("group")
    lane = b.zext(b.intrinsic("cttz", rest, True), "i64")
    members = b.load("i32", b.gep(named, lane, "i32"), align=4)
    same = constant("i32", 0)
    for group in range(groups):
        equal = b.icmp("eq", b.load("i32", b.gep(named, group * width * 4), width, align=64), members)
        same = b.or_(same, b.shl(b.zext(b.reshape(equal, f"i{width}", 1), "i32"), group * width))
    same = b.and_(same, come)
    absent = b.and_(b.and_(members, waiting), b.not_(same))
    b.emit(f"%more = or i32 {found.ref}, {b.select(b.icmp('eq', absent, 0), same, 0).ref}")
    b.emit(f"%others = and i32 {rest.ref}, {b.and_(b.not_(same), b.sub(rest, 1)).ref}")
    b.branch("next")
    b.label("over")
    return found
