"""Control flow on the CPU: blocks in weak topological order, lanes waiting under masks.

Where no lane can be missing, branches are branches. In a *zone* (:mod:`zluda.compiler.analysis.uniformity`)
every block has a mask of the lanes that wait to execute it. The zone's blocks stand in order, each behind a
test that skips it while nobody waits. A block takes its mask, executes, and adds its lanes to its successors'
masks. At the last block of a loop, lanes that wait at the loop's head start the next round; so a round is
finished by all its lanes, `continue`d ones included, before the next begins, and lanes that left wait until
the loop is over. Where lanes that went back to the head and lanes that did not meet inside the loop, the
former go first (``Uniformity.first_parts``). No block before the one that executes ever has lanes waiting,
except a loop's head.

Lanes that leave a loop one by one may hold what the others wait for (locks inside a warp are legal since
sm_70). In a function with such *polling* loops (``Uniformity.apart``) no lane waits for a polling loop to be
over: once lanes have left, they go on, and the function's end sends control back to the lanes that still
poll. So it is where lanes that part wait for each other at different ``bar.warp.sync``. Only instructions
that lanes execute together, a barrier or a shuffle, wait for those that take part
(:mod:`zluda.compiler.cpu.gathering`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from zluda.compiler.analysis.cfg import EXIT, Branch, Jump, Leave, Switch
from zluda.compiler.analysis.order import Component
from zluda.compiler.analysis.rounds import in_turn, waited_for
from zluda.compiler.analysis.uniformity import Zone
from zluda.compiler.codegen import FunctionCodegen
from zluda.compiler.cpu.apart import Absentees
from zluda.compiler.cpu.gathering import Gathering
from zluda.compiler.ir import Value, constant
from zluda.compiler.registers import Mask
from zluda.compiler.target import Lanes

DONE = "done"


class MaskedControl:
    """Writes a function's control flow around its blocks' code. ``entry_mask``: who enters (None: all)."""

    def __init__(self, f: FunctionCodegen, entry_mask: Mask | None) -> None:
        self.f, self.b = f, f.b
        self.entry_mask = entry_mask
        self.zone_of = {n: zone for zone in f.uniformity.zones for n in zone.blocks}
        self.polling = f.uniformity.polling_loops() if f.uniformity.apart else []
        self._ends: dict[int, list[Component]] = {}  # by block: masked loops whose rounds end there
        waited = waited_for(f.graph, f.order)
        for loop in f.order.components:
            zone = self.zone_of.get(loop.head)
            if zone is not None:
                blocks = waited[loop.head].blocks
                last = next(n for n in reversed(blocks) if self.zone_of.get(n) is zone)
                self._ends.setdefault(last, []).append(loop)
        self._ends = {n: in_turn(loops, waited) for n, loops in self._ends.items()}
        for part in f.uniformity.first_parts:  # innermost first, and inside any loop that ends later
            zone = self.zone_of[part.head]
            last = next(n for n in reversed(part.blocks) if self.zone_of.get(n) is zone)
            self._ends.setdefault(last, []).append(part)
        self._masks: dict[int, tuple[Value, ...]] = {}
        self._stubs: list[tuple[str, int]] = []
        heads = [loop.head for loop in self.polling]
        self._gathering = Gathering(f, self._load_mask, heads) if f.uniformity.apart else None
        self._absentees = Absentees(f, self._load_mask, entry_mask)

    def write(self) -> None:
        """Write everything from the function's entry to the label ``done``."""
        entry = self.f.order.sequence[0]
        if entry in self.zone_of:
            self._wait(entry, self._full(self.entry_mask))
        self.b.branch(self._label(entry))
        for index in self.f.order.sequence:
            zone = self.zone_of.get(index)
            if zone is None:
                self._write_native(index)
            else:
                self._write_masked(index, zone)
        for stub, target in self._stubs:
            self.b.label(stub)
            self._wait(target, self._full(None))
            self.b.branch(self._label(target))
        self.b.label(DONE)

    # --- masks -----------------------------------------------------------------------------------------

    def _full(self, mask: Mask | None) -> list[Value]:
        ones = self.b.splat(constant("i1", 1), self.f.geometry.width)
        return list(mask) if mask is not None else [ones] * self.f.geometry.groups

    def _mask_slots(self, index: int) -> tuple[Value, ...]:
        found = self._masks.get(index)
        if found is None:
            width = self.f.geometry.width
            found = tuple(self.b.alloca("i1", width) for _ in range(self.f.geometry.groups))
            for slot in found:
                self.b.entry.append(f"store <{width} x i1> zeroinitializer, ptr {slot.ref}, align 64")
            self._masks[index] = found
        return found

    def _load_mask(self, index: int) -> list[Value]:
        return [self.b.load("i1", s, self.f.geometry.width, align=64) for s in self._mask_slots(index)]

    def _store_mask(self, index: int, mask: Sequence[Value]) -> None:
        for slot, value in zip(self._mask_slots(index), mask, strict=True):
            self.b.store(self.b.splat(value, self.f.geometry.width), slot, align=64)

    def _wait(self, index: int, mask: Sequence[Value]) -> None:
        """Add lanes to those that wait at a block."""
        waiting = self._load_mask(index)
        self._store_mask(index, [self.b.or_(w, m) for w, m in zip(waiting, mask, strict=True)])
        if self._gathering is not None:
            self._gathering.arrive(mask)

    def _any(self, mask: Sequence[Value]) -> Value:
        found = mask[0]
        for m in mask[1:]:
            found = self.b.or_(found, m)
        return self.b.any(found)

    def _label(self, index: int) -> str:
        return DONE if index == EXIT else f"block.{index}"

    def _begin_round(self, index: int) -> None:
        for loop in self.f.order.components:
            if loop.head == index:
                self.f.ops.loop_head(self.f, loop.blocks)

    # --- blocks all lanes execute ----------------------------------------------------------------------

    def _write_native(self, index: int) -> None:
        self.b.label(self._label(index))
        self.f.lanes_elsewhere = None
        self._begin_round(index)
        self.f.block(index, None)
        match self.f.graph.blocks[index].terminator:
            case Jump(target):
                self.b.branch(self._native_target(target))
            case Leave():
                self.b.branch(DONE)
            case Branch() as branch:
                self._native_branch(branch)
            case Switch(operand, targets):
                self._native_switch(self.f.read_bits(operand, 32), targets)

    def _native_target(self, target: int) -> str:
        """The label all lanes together go to; a masked block is told that everybody comes."""
        if target not in self.zone_of:
            return self._label(target)
        stub = self.b.fresh("all")
        self._stubs.append((stub, target))
        return stub

    def _native_branch(self, branch: Branch) -> None:
        predicate = self.f.predicate(branch.predicate, branch.negated)
        if branch.taken == branch.otherwise:
            self.b.branch(self._native_target(branch.taken))
        elif predicate.shape.uniform:
            taken, otherwise = self._native_target(branch.taken), self._native_target(branch.otherwise)
            self.b.cond_branch(predicate.parts[0], taken, otherwise)
        else:
            taken_mask = self.f.vectors(predicate)
            ways = [(branch.taken, taken_mask), (branch.otherwise, [self.b.not_(m) for m in taken_mask])]
            self._diverge(ways)

    def _native_switch(self, index: Lanes, targets: tuple[int, ...]) -> None:
        if index.shape.uniform or len(set(targets)) == 1:
            labels = {t: self._native_target(t) for t in dict.fromkeys(targets)}
            if len(labels) == 1:
                self.b.branch(labels[targets[0]])
                return
            cases = [(i, labels[t]) for i, t in enumerate(targets)]
            self.b.switch(index.parts[0], labels[targets[-1]], cases)
        else:
            self._diverge(self._switch_ways(index, targets, self._full(None)))

    def _switch_ways(
        self, index: Lanes, targets: tuple[int, ...], mask: list[Value]
    ) -> list[tuple[int, list[Value]]]:
        """For each target, the lanes whose index names it (PTX ISA 9.7.12.3)."""
        chosen = self.f.vectors(index)
        return [
            (t, [self.b.and_(self.b.icmp("eq", c, i), m) for c, m in zip(chosen, mask, strict=True)])
            for i, t in enumerate(targets)
        ]

    def _diverge(self, ways: list[tuple[int, list[Value]]]) -> None:
        """From a block of all lanes into a zone, in several ways."""
        inside = [t for t, _ in ways if t in self.zone_of]
        for target, mask in ways:
            if target in self.zone_of:
                self._wait(target, mask)
        zone = self.zone_of[inside[0]]
        self.b.branch(self._label(min(inside, key=zone.blocks.index)))

    # --- blocks under masks ----------------------------------------------------------------------------

    def _write_masked(self, index: int, zone: Zone) -> None:
        run, after = f"run.{index}", f"after.{index}"
        self.b.label(self._label(index))
        mask = self._ready(index)
        self.b.cond_branch(self._any(mask), run, after)
        self.b.label(run)
        self._take(index, mask)
        self.f.after_label = after
        self.f.lanes_elsewhere = lambda: self._absentees.elsewhere(index, zone)
        self._begin_round(index)
        self.f.block(index, tuple(mask))
        assert self.f.mask is not None
        self._leave_block(index, list(self.f.mask))
        self.b.branch(after)
        self.b.label(after)
        self._follow(index, zone)

    def _waiting(self, blocks: Iterable[int]) -> Value:
        """Whether lanes wait at one of these blocks."""
        found: Value = constant("i1", 0)
        for n in sorted(blocks):
            found = self.b.or_(self._any(self._load_mask(n)), found)
        return found

    def _ready(self, index: int) -> list[Value]:
        """The lanes that wait at a block and need not wait for others there."""
        return self._load_mask(index) if self._gathering is None else self._gathering.ready(index)

    def _take(self, index: int, mask: list[Value]) -> None:
        """Lanes that are ready wait at their block no more."""
        if self._gathering is None:
            nobody = self.b.splat(constant("i1", 0), self.f.geometry.width)
            self._store_mask(index, [nobody] * len(mask))
            return
        waiting = zip(self._load_mask(index), mask, strict=True)
        self._store_mask(index, [self.b.and_(all_, self.b.not_(lanes)) for all_, lanes in waiting])
        self._gathering.depart(mask)

    def _leave_block(self, index: int, mask: list[Value]) -> None:
        """Hand the block's lanes to its successors."""
        match self.f.graph.blocks[index].terminator:
            case Jump(target):
                self._send(target, mask)
            case Branch() as branch:
                predicate = self.f.predicate(branch.predicate, branch.negated)
                spread = (
                    [predicate.parts[0]] * len(mask) if predicate.shape.uniform else self.f.vectors(predicate)
                )
                self._send(branch.taken, [self.b.and_(m, p) for m, p in zip(mask, spread, strict=True)])
                self._send(
                    branch.otherwise,
                    [self.b.and_(m, self.b.not_(p)) for m, p in zip(mask, spread, strict=True)],
                )
            case Switch(operand, targets):
                for target, lanes in self._switch_ways(self.f.read_bits(operand, 32), targets, mask):
                    self._send(target, lanes)
            case Leave(exits):
                self._absentees.leave(mask, exits=exits)
                if exits:
                    self.f.record_exit(mask)

    def _send(self, target: int, mask: list[Value]) -> None:
        if target in self.zone_of:  # else the zone's exit, where everybody goes
            self._wait(target, mask)

    def _follow(self, index: int, zone: Zone) -> None:
        """Another round of each loop that ends here, while lanes wait at its head; else the next block."""
        for loop in self._ends.get(index, []):
            on = self.b.fresh("left")
            again = self._any(self._ready(loop.head))
            if loop in self.polling:
                again = self.b.and_(again, self.b.not_(self._waiting(set(zone.blocks) - set(loop.blocks))))
            self.b.cond_branch(again, self._label(loop.head), on)
            self.b.label(on)
        position = zone.blocks.index(index) + 1
        if position == len(zone.blocks) and self._gathering is not None:
            self._gathering.resume(self._label(zone.blocks[0]))
        following = zone.blocks[position] if position < len(zone.blocks) else zone.exit
        self.b.branch(self._native_target(following) if following == zone.exit else self._label(following))
