"""The order in which a warp executes the blocks of a graph, and the loops it closes.

Bourdoncle's weak topological order: strongly connected components are laid out contiguously, each behind a
head, recursively; every edge that goes backwards goes to the head of a component around its source. Any
graph has one, irreducible or not. Executing blocks in this order, repeating a component while lanes wait at
its head, brings all lanes of a warp together again as early as the graph allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field

from zluda.compiler.analysis.cfg import EXIT, Graph
from zluda.records import dataclass


@dataclass(slots=True)
class Component:
    """A loop: ``head`` and all its blocks in order (nested loops' blocks too)."""

    head: int
    blocks: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Order:
    """``sequence`` is block indices in execution order; ``components`` are outermost first."""

    sequence: list[int]
    components: list[Component]
    _around: dict[int, list[Component]] | None = None

    def around(self, block: int) -> list[Component]:
        """The loops a block is in, outermost first."""
        if self._around is None:
            self._around = {}
            for component in self.components:
                for n in component.blocks:
                    self._around.setdefault(n, []).append(component)
        return self._around.get(block, [])


def strongly_connected(nodes: Sequence[int], successors: Callable[[int], Iterable[int]]) -> list[list[int]]:
    """Tarjan's components of a subgraph, in topological order of the condensation; iterative."""
    inside = set(nodes)
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: list[list[int]] = []
    for root in nodes:
        if root in index:
            continue
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        work = [(root, iter([s for s in successors(root) if s in inside]))]
        while work:
            node, remaining = work[-1]
            for s in remaining:
                if s not in index:
                    index[s] = low[s] = len(index)
                    stack.append(s)
                    on_stack.add(s)
                    work.append((s, iter([t for t in successors(s) if t in inside])))
                    break
                if s in on_stack:
                    low[node] = min(low[node], index[s])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component = []
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        component.append(member)
                        if member == node:
                            break
                    found.append(component)
    return found[::-1]


def weak_topological_order(graph: Graph) -> Order:
    """The order of the reachable blocks."""
    order = Order([], [])
    predecessors = graph.predecessors()

    def lay_out(nodes: list[int], cut: frozenset[int]) -> list[int]:
        """``nodes`` in order, edges into ``cut`` (heads laid out already) ignored."""

        def successors(n: int) -> list[int]:
            return [s for s in graph.blocks[n].successors if s != EXIT and s not in cut]

        laid: list[int] = []
        for members in strongly_connected(nodes, successors):
            if len(members) == 1 and members[0] not in successors(members[0]):
                laid += members
                continue
            head = _head(members, predecessors)
            component = Component(head)
            order.components.append(component)
            rest = lay_out(sorted(m for m in members if m != head), cut | {head})
            component.blocks = [head, *rest]
            laid += component.blocks
        return laid

    order.sequence = lay_out(graph.reachable(), frozenset())
    return order


def _head(members: list[int], predecessors: list[list[int]]) -> int:
    """The first member in the text that is entered from outside; the function's entry, if it is one.

    Of several entries (an irreducible loop) the lanes at a later one wait for those that come from the first:
    so they meet at a barrier behind the later one.
    """
    inside = set(members)
    return min(members, key=lambda m: (m != 0, not any(p not in inside for p in predecessors[m]), m))
