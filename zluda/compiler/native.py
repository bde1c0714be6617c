"""Control flow of one thread: PTX's own graph.

LLVM's back end for AMD GPUs turns divergent branches into EXEC masks. It gives some loops with several
entries wrong masks (LLVM 22; two of 25 such random graphs). These are written with one entry there: edges to
what were entries note which, and go to a switch. Where lanes execute something together in the loop, those at
the first entry go on first, and the others wait for them; there outer loops' heads are entries too whose
lanes meet others inside (:mod:`zluda.compiler.analysis.rounds`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from zluda.compiler.analysis.cfg import EXIT, Branch, Jump, Leave, Switch
from zluda.compiler.analysis.rounds import converges, several_entries
from zluda.compiler.codegen import FunctionCodegen
from zluda.compiler.ir import Value

DONE, LEAVE = "done", "leave"
"""Where ``ret`` goes, and ``exit``."""


class Warp(Protocol):
    """What threads of a warp know of each other."""

    def meet(self, index: int) -> None:
        """At a block's begin."""
        ...

    def part(self, index: int, sides: Callable[[], Sequence[Value]]) -> None:
        """At a block's end: ``sides`` gives for each successor whether the lane goes there (``i1``)."""
        ...

    def some(self, condition: Value) -> Value:
        """Whether a condition holds for one of those who execute this."""
        ...


class NativeControl:
    """Writes blocks and branches, up to the label ``done``; what stands there is the caller's.

    ``leave`` writes what threads do before they leave the kernel. ``warp``: LLVM makes EXEC masks of it
    (None: for one thread).
    """

    def __init__(self, f: FunctionCodegen, leave: Callable[[], None], warp: Warp | None = None) -> None:
        self.f, self.b, self.leave, self.warp = f, f.b, leave, warp
        self.loops = several_entries(f.graph) if warp is not None else []
        self._loop_of = {entry: n for n, entries in enumerate(self.loops) for entry in entries}
        self._chosen: dict[int, Value] = {n: f.b.alloca("i32", align=4) for n in range(len(self.loops))}
        self._pending: list[tuple[str, int]] = []  # edges to entries: label, block

    def write(self) -> None:
        order = self.f.order.sequence
        self.b.branch(self._to(order[0]))
        self._write_edges()
        for index in order:
            self.b.label(_label(index))
            if self.warp is not None:
                self.warp.meet(index)
            self.f.block(index, None)
            self.end(index)
            self._write_edges()
        for n, entries in enumerate(self.loops):
            self.b.label(f"loop.{n}")
            self._enter(n, entries)
        self.b.label(DONE)

    def _enter(self, n: int, entries: list[int]) -> None:
        """From a loop's one entry to what was noted."""
        b = self.b
        chosen = b.load("i32", self._chosen[n], align=4)
        if self.warp is None or not self._meets_in(entries):
            b.switch(chosen, _label(entries[-1]), [(e, _label(e)) for e in entries[:-1]])
            return
        *others, last = sorted(entries, key=self.f.order.sequence.index)
        for entry in others:
            first, later = b.fresh("first"), b.fresh("later")
            here = b.icmp("eq", chosen, entry)
            b.cond_branch(self.warp.some(here), first, later)
            b.label(first)
            b.cond_branch(here, _label(entry), f"loop.{n}")
            b.label(later)
        b.branch(_label(last))

    def _meets_in(self, entries: list[int]) -> bool:
        """Whether lanes execute something together in the innermost loop around these blocks."""
        around = self.f.order.around(entries[0])
        innermost = next(c.blocks for c in reversed(around) if set(entries) <= set(c.blocks))
        return converges(self.f.graph, innermost)

    def end(self, index: int) -> None:
        """Write a block's end."""
        match self.f.graph.blocks[index].terminator:
            case Jump(target):
                self.b.branch(self._to(target))
            case Leave(exits):
                if exits or self.f.function.is_entry:
                    self.leave()
                self.b.branch(LEAVE if exits else DONE)
            case Branch() as branch:
                predicate = self.f.predicate(branch.predicate, branch.negated).parts[0]
                if self.warp is not None and branch.taken != branch.otherwise:
                    self.warp.part(index, lambda: (predicate, self.b.not_(predicate)))
                self.b.cond_branch(predicate, self._to(branch.taken), self._to(branch.otherwise))
            case Switch(operand, targets):
                chosen = self.f.read_bits(operand, 32).parts[0]
                if self.warp is not None:
                    self.warp.part(index, lambda: self._ways(chosen, targets))
                self.b.switch(
                    chosen, self._to(targets[-1]), [(i, self._to(t)) for i, t in enumerate(targets)]
                )

    def _ways(self, chosen: Value, targets: Sequence[int]) -> list[Value]:
        """For each distinct target whether an index chooses it; one out of range chooses the last."""
        b = self.b
        ways: dict[int, Value] = {}
        for at, target in enumerate(targets):
            here = b.icmp("eq" if at < len(targets) - 1 else "uge", chosen, at)
            ways[target] = b.or_(ways[target], here) if target in ways else here
        return list(ways.values())

    def _to(self, index: int) -> str:
        """The label of a block, or of an edge to it that is yet to be written."""
        if index not in self._loop_of:
            return _label(index)
        label = self.b.fresh("edge")
        self._pending.append((label, index))
        return label

    def _write_edges(self) -> None:
        """Note the entry, so that LLVM cannot follow it and take the switch apart, and go to the loop."""
        for label, index in self._pending:
            self.b.label(label)
            entry = self.b.define("i32", 1, f'call i32 asm "", "=v,0"(i32 {index})')
            self.b.store(entry, self._chosen[self._loop_of[index]], align=4)
            self.b.branch(f"loop.{self._loop_of[index]}")
        self._pending = []


def _label(index: int) -> str:
    return DONE if index == EXIT else f"block.{index}"
