"""Control flow of one thread: PTX's own graph.

LLVM's back end for AMD GPUs turns divergent branches into EXEC masks. It gives some loops with several
entries wrong masks (LLVM 22; two of 25 such random graphs). These are written with one entry there: edges to
what were entries note which, and go to a switch.
"""

from __future__ import annotations

from collections.abc import Callable

from zluda.compiler.analysis.cfg import EXIT, Branch, Graph, Jump, Leave, Switch
from zluda.compiler.analysis.order import strongly_connected
from zluda.compiler.codegen import FunctionCodegen
from zluda.compiler.ir import Value

DONE, LEAVE = "done", "leave"
"""Where ``ret`` goes, and ``exit``."""


class NativeControl:
    """Writes blocks and branches, up to the label ``done``; what stands there is the caller's.

    ``leave`` writes what threads do before they leave the kernel, ``part`` what they do at a block's branch
    on a predicate. ``masks``: LLVM makes EXEC masks of it.
    """

    def __init__(
        self,
        f: FunctionCodegen,
        leave: Callable[[], None],
        part: Callable[[int, Value], None] | None = None,
        *,
        masks: bool = True,
    ) -> None:
        self.f, self.b, self.leave, self.part = f, f.b, leave, part
        self.loops = several_entries(f.graph) if masks else []
        self._loop_of = {entry: n for n, entries in enumerate(self.loops) for entry in entries}
        self._chosen: dict[int, Value] = {n: f.b.alloca("i32", align=4) for n in range(len(self.loops))}
        self._pending: list[tuple[str, int]] = []  # edges to entries: label, block

    def write(self) -> None:
        order = self.f.order.sequence
        self.b.branch(self._to(order[0]))
        self._write_edges()
        for index in order:
            self.b.label(_label(index))
            self.f.block(index, None)
            self._end(index)
            self._write_edges()
        for n, entries in enumerate(self.loops):
            self.b.label(f"loop.{n}")
            chosen = self.b.load("i32", self._chosen[n], align=4)
            self.b.switch(chosen, _label(entries[-1]), [(e, _label(e)) for e in entries[:-1]])
        self.b.label(DONE)

    def _end(self, index: int) -> None:
        match self.f.graph.blocks[index].terminator:
            case Jump(target):
                self.b.branch(self._to(target))
            case Leave(exits):
                if exits or self.f.function.is_entry:
                    self.leave()
                self.b.branch(LEAVE if exits else DONE)
            case Branch() as branch:
                predicate = self.f.predicate(branch.predicate, branch.negated).parts[0]
                if self.part is not None:
                    self.part(index, predicate)
                self.b.cond_branch(predicate, self._to(branch.taken), self._to(branch.otherwise))
            case Switch(operand, targets):
                chosen = self.f.read_bits(operand, 32).parts[0]
                self.b.switch(
                    chosen, self._to(targets[-1]), [(i, self._to(t)) for i, t in enumerate(targets)]
                )

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


def several_entries(graph: Graph) -> list[list[int]]:
    """The entries of each loop that has more than one, loops in loops too."""
    found: list[list[int]] = []
    predecessors = graph.predecessors()
    work: list[tuple[list[int], frozenset[int]]] = [(graph.reachable(), frozenset())]
    while work:
        nodes, cut = work.pop()
        outside = set(nodes)
        edges = {n: [s for s in graph.blocks[n].successors if s != EXIT and s not in cut] for n in nodes}
        for members in strongly_connected(nodes, edges.__getitem__):
            inside = set(members)
            if len(members) == 1 and members[0] not in edges[members[0]]:
                continue
            entries = [
                m
                for m in members
                if m == 0 or any(p in outside and p not in inside and m in edges[p] for p in predecessors[m])
            ]
            if len(entries) > 1:
                found.append(sorted(entries))
            work.append((members, cut | set(entries or members[:1])))
    return found


def _label(index: int) -> str:
    return DONE if index == EXIT else f"block.{index}"
