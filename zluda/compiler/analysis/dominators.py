"""Immediate post-dominators: where all paths from a branch meet again."""

from __future__ import annotations

from zluda.compiler.analysis.cfg import EXIT, Graph


def post_dominators(graph: Graph) -> dict[int, int]:
    """The immediate post-dominator of every reachable block (:data:`EXIT`: only leaving the function).

    A block from which the function cannot be left is given EXIT.
    """
    predecessors = graph.predecessors()
    reachable = graph.reachable()
    leaving = [i for i in reachable if EXIT in graph.blocks[i].successors]
    order = _post_order(leaving, predecessors)
    position = {n: i for i, n in enumerate(order)}
    position[EXIT] = len(order)
    immediate = {EXIT: EXIT}

    def meet(a: int, b: int) -> int:
        while a != b:
            while position[a] < position[b]:
                a = immediate[a]
            while position[b] < position[a]:
                b = immediate[b]
        return a

    changed = True
    while changed:
        changed = False
        for n in reversed(order):
            known = [s for s in graph.blocks[n].successors if s in immediate]
            if not known:
                continue
            found = known[0]
            for s in known[1:]:
                found = meet(found, s)
            if immediate.get(n) != found:
                immediate[n], changed = found, True
    return {n: immediate.get(n, EXIT) for n in reachable}


def _post_order(roots: list[int], predecessors: list[list[int]]) -> list[int]:
    """Post-order of the reversed graph from the leaving blocks."""
    seen: set[int] = set()
    order: list[int] = []
    for root in roots:
        if root in seen:
            continue
        seen.add(root)
        work = [(root, iter(predecessors[root]))]
        while work:
            node, remaining = work[-1]
            for p in remaining:
                if p not in seen:
                    seen.add(p)
                    work.append((p, iter(predecessors[p])))
                    break
            else:
                work.pop()
                order.append(node)
    return order
