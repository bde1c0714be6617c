"""Lanes that go round different loops and meet at one block: which of them go first.

``outer: …; inner: bar.sync; …; @p bra outer; bra inner;`` is one loop in a loop, but what was written is one
loop: its lanes part at the end, and all meet at ``inner``. A compiler writes so where it has put a loop's
begin behind its end too. Lanes at such an outer head must go first, or those at the inner one execute a
barrier without them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from zluda.compiler.analysis.cfg import CONVERGENCE, EXIT, Graph
from zluda.compiler.analysis.dominators import post_dominators
from zluda.compiler.analysis.order import Component, Order, strongly_connected


def meet_inside(
    graph: Graph, together: Mapping[int, int], outer: int, inner: Iterable[int], blocks: Iterable[int]
) -> bool:
    """Whether lanes that part in ``blocks``, some of them to ``outer``, meet at one of the ``inner`` heads.

    ``together`` are the graph's immediate post-dominators.
    """
    heads = set(inner)
    return any(
        together[n] in heads
        and any(_comes_to(graph, s, outer, together[n]) for s in graph.blocks[n].successors)
        for n in blocks
    )


def waited_for(graph: Graph, order: Order) -> dict[int, Component]:
    """By its head, for each loop the one at whose end its next round begins: mostly its own."""
    together = post_dominators(graph) if len(order.components) > 1 else {}
    found = {loop.head: loop for loop in order.components}
    for inner in order.components:
        around = order.around(inner.head)
        for at, outer in enumerate(around[:-1]):
            if meet_inside(graph, together, outer.head, (inner.head,), inner.blocks):
                found |= {loop.head: found[outer.head] for loop in around[at + 1 :]}
                break
    return found


def in_turn(loops: Sequence[Component], waited: Mapping[int, Component]) -> list[Component]:
    """Loops whose next rounds begin at one block, given outermost first, in the order in which they may.

    The innermost goes first, but among those that wait for one loop that one.
    """
    ordered: list[Component] = []
    for _, group in groupby(reversed(loops), key=lambda loop: waited[loop.head].head):
        ordered += reversed(list(group))
    return ordered


def several_entries(graph: Graph) -> list[list[int]]:
    """The heads of what goes round together: the entries of each loop that has more than one, loops in loops
    too, and of loops with a barrier or the like those outer heads whose lanes meet others inside."""
    found: list[set[int]] = []
    predecessors, together = graph.predecessors(), post_dominators(graph)
    work: list[tuple[list[int], frozenset[int]]] = [(graph.reachable(), frozenset())]
    while work:
        nodes, cut = work.pop()
        outside = set(nodes)
        edges = {n: [s for s in graph.blocks[n].successors if s != EXIT and s not in cut] for n in nodes}
        for members in strongly_connected(nodes, edges.__getitem__):
            inside = set(members)
            if len(members) == 1 and members[0] not in edges[members[0]]:
                continue
            entries = {
                m
                for m in members
                if m == 0 or any(p in outside and p not in inside and m in edges[p] for p in predecessors[m])
            } or {members[0]}
            work.append((members, cut | entries))
            if converges(graph, members):
                entries |= {h for h in cut if meet_inside(graph, together, h, entries, members)}
            if len(entries) > 1:
                _join(found, entries)
    return [sorted(entries) for entries in found]


def converges(graph: Graph, blocks: Iterable[int]) -> bool:
    """Whether lanes execute something together in one of the blocks, as far as one can see."""
    return any(
        i.opcode in CONVERGENCE or i.opcode == "call" for n in blocks for i in graph.blocks[n].instructions
    )


def _join(found: list[set[int]], entries: set[int]) -> None:
    """Add a set to those that share nothing."""
    for other in [o for o in found if o & entries]:
        found.remove(other)
        entries = entries | other
    found.append(entries)


def _comes_to(graph: Graph, start: int, place: int, until: int) -> bool:
    seen: set[int] = set()
    stack = [start]
    while stack:
        n = stack.pop()
        if n == place:
            return True
        if n not in seen and n not in (until, EXIT):
            seen.add(n)
            stack += graph.blocks[n].successors
    return False
