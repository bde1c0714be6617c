"""Which registers are live where, by the classical backward data flow."""

from __future__ import annotations

from collections.abc import Set

from zluda.compiler.analysis.cfg import EXIT, Branch, Graph, Switch
from zluda.compiler.analysis.operands import definitions, registers, uses
from zluda.records import dataclass


@dataclass(frozen=True, slots=True)
class Liveness:
    """Register names live at the start and the end of each block."""

    live_in: list[set[str]]
    live_out: list[set[str]]


def liveness(graph: Graph, results: Set[str] = frozenset()) -> Liveness:
    """Live registers of every block; ``results`` are live at the end.

    A guarded definition keeps the old value alive.
    """
    count = len(graph.blocks)
    used: list[set[str]] = [set() for _ in range(count)]
    defined: list[set[str]] = [set() for _ in range(count)]
    for block in graph.blocks:
        u, d = used[block.index], defined[block.index]
        for instruction in block.instructions:
            u |= {r.name for r in uses(instruction)} - d
            written = {r.name for r in definitions(instruction)}
            if instruction.guard is not None:
                u |= written - d
            d |= written
        match block.terminator:
            case Branch(predicate):
                u |= {predicate.name} - d
            case Switch(index):
                u |= {r.name for r in registers(index)} - d
            case _:
                pass
    live_in = [set(u) for u in used]
    live_out: list[set[str]] = [set() for _ in range(count)]
    changed = True
    while changed:
        changed = False
        for i in range(count - 1, -1, -1):
            out: set[str] = set()
            for s in graph.blocks[i].successors:
                out |= results if s == EXIT else live_in[s]
            into = used[i] | (out - defined[i])
            if out != live_out[i] or into != live_in[i]:
                live_out[i], live_in[i], changed = out, into, True
    return Liveness(live_in, live_out)
