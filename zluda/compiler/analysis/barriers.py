"""Where threads of a block meet, and which lanes of a warp may come to a barrier apart.

A barrier takes a warp as a whole (PTX ISA 9.7.13.1): the executing thread waits for all threads of its warp
that have not exited, and with ``.aligned``, as ``bar`` always is, all must execute the same instruction.
Neither device can let lanes of a warp wait at different ones, so both stop where that happens: the CPU where
lanes at a barrier find others on the way to one (:mod:`zluda.compiler.cpu.apart`), AMD GPUs at branches
whose sides come to different barriers for certain (:func:`certain_partings`). At a warp's own barrier the
CPU has lanes wait for others wherever they are; AMD GPUs stop where it names lanes that went another way
(:func:`possible_partings`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import permutations

from zluda.compiler.analysis.cfg import EXIT, Graph, build_graph
from zluda.compiler.analysis.dominators import post_dominators
from zluda.ptx.module import Function, Instruction, Symbol, Vector
from zluda.records import dataclass

Meets = Callable[[Instruction], bool]
"""Whether threads of a block may meet in an instruction: a barrier, or a call of who has one."""


def is_barrier(instruction: Instruction) -> bool:
    """Whether threads of a block meet here."""
    return instruction.opcode in ("bar", "barrier") and not instruction.has("warp")


def is_warp_barrier(instruction: Instruction) -> bool:
    """Whether lanes of a warp wait for each other here, wherever they do so (PTX ISA 9.7.13.2)."""
    return instruction.opcode in ("bar", "barrier") and instruction.has("warp")


def callee_name(call: Instruction) -> str:
    """The function that is called; nothing where that is in a register."""
    first, *rest = call.operands
    callee = rest[0] if isinstance(first, Vector) else first
    return callee.name if isinstance(callee, Symbol) else ""


def synchronising(functions: Iterable[Function], addressed: Iterable[str] | None = None) -> set[str]:
    """Functions in which a barrier may be met, by name; ``""`` for some call through a pointer.

    ``addressed`` are those that can be called so (None: all but the first).
    """
    first, *others = list(functions)
    pointed = {f.name for f in others} if addressed is None else set(addressed)
    found = {f.name for f in (first, *others) if any(is_barrier(i) for i in f.instructions)}
    while True:
        found |= {""} if found & pointed else set()
        more = {
            f.name
            for f in (first, *others)
            if f.name not in found
            and any(i.opcode == "call" and callee_name(i) in found for i in f.instructions)
        }
        if not more:
            return found
        found |= more


def meets(names: set[str]) -> Meets:
    """Whether an instruction is a barrier, or calls one of the functions named."""
    return lambda i: is_barrier(i) or (i.opcode == "call" and callee_name(i) in names)


def returning(
    functions: Sequence[Function], names: set[str], addressed: Iterable[str], file: str
) -> set[str]:
    """Functions behind whose return a barrier may be met; ``names`` are those that have one."""
    found: set[str] = set()
    if not any(i.opcode == "call" for f in functions for i in f.instructions) or not names:
        return found
    graphs = {f.name: build_graph(f, file) for f in functions}
    meeting, pointed = meets(names), set(addressed)
    while True:
        more: set[str] = set()
        for name, graph in graphs.items():
            behind = before_barriers(graph, meeting, returning=name in found)
            for callee in _called_before(graph, meeting, behind, returns=name in found):
                more |= {callee} if callee else pointed
        if more <= found:
            return found
        found |= more


def _called_before(graph: Graph, meeting: Meets, behind: set[int], *, returns: bool) -> Iterator[str]:
    """Callees (``""``: through a pointer) after whose return a barrier may be met."""
    for n in graph.reachable():
        block = graph.blocks[n]
        ahead = any(s in behind or (s == EXIT and returns) for s in block.successors)
        for instruction in reversed(block.instructions):
            if instruction.opcode == "call" and ahead:
                yield callee_name(instruction)
            ahead = ahead or meeting(instruction)


def before_barriers(graph: Graph, meeting: Meets, *, returning: bool = False) -> set[int]:
    """Blocks from which a barrier can be reached; ``returning``: one may be met behind the function's end."""
    predecessors = graph.predecessors()
    stack = [
        n
        for n in graph.reachable()
        if any(map(meeting, graph.blocks[n].instructions))
        or (returning and EXIT in graph.blocks[n].successors)
    ]
    found: set[int] = set()
    while stack:
        n = stack.pop()
        if n not in found:
            found.add(n)
            stack += predecessors[n]
    return found


@dataclass(frozen=True, slots=True)
class Conflict:
    """Lanes that take one successor of a block (``one``, by position) come to ``barrier``; those that take
    the ``other`` never do so with them."""

    one: int
    other: int
    barrier: Instruction


def certain_partings(graph: Graph, meeting: Meets) -> dict[int, list[Conflict]]:
    """Blocks whose successors come to different barriers, whatever follows.

    ``meeting`` says what a barrier is.

    Lanes that part there could never be at one barrier together. Where a side may leave the kernel without a
    barrier nothing is said: lanes that exit are waited for by nobody.
    """
    first = _first_barriers(graph, meeting)
    together = post_dominators(graph) if first else {}
    found: dict[int, list[Conflict]] = {}
    for n, successors in _partings(graph) if first else ():
        until = [_barriers_met(graph, first, s, together[n]) for s in successors]
        ever = [_barriers_met(graph, first, s, EXIT) for s in successors]
        conflicts = [
            Conflict(one, other, first[min(until[one])])
            for one, other in permutations(range(len(successors)), 2)
            if until[one] and ever[other] and until[one].isdisjoint(ever[other])
        ]
        if conflicts:
            found[n] = conflicts
    return found


@dataclass(frozen=True, slots=True)
class Sides:
    """A block at whose end lanes part. By its successors' positions: the blocks with a barrier to which lanes
    may come on the way to where all meet again (``together``), and the other successors whose lanes come to
    some barrier for certain, and so may be waited for there."""

    together: int
    barriers: dict[int, frozenset[int]]
    others: dict[int, tuple[int, ...]]


def possible_partings(graph: Graph, meeting: Meets) -> dict[int, Sides]:
    """Blocks behind which lanes may come to a barrier while others are on the way to another for certain."""
    first = _first_barriers(graph, meeting)
    together = post_dominators(graph) if first else {}
    found: dict[int, Sides] = {}
    for n, successors in _partings(graph) if first else ():
        inside = [_reached(graph, s, together[n]) & first.keys() for s in successors]
        ever = [_barriers_met(graph, first, s, EXIT) for s in successors]
        others = {
            one: tuple(other for other, met in enumerate(ever) if other != one and met and inside[one] - met)
            for one in range(len(successors))
        }
        waiting = {one: of for one, of in others.items() if of}
        if waiting:
            found[n] = Sides(together[n], {one: frozenset(inside[one]) for one in waiting}, waiting)
    return found


def _first_barriers(graph: Graph, meeting: Meets) -> dict[int, Instruction]:
    """By block its first barrier."""
    return {
        n: next(i for i in graph.blocks[n].instructions if meeting(i))
        for n in graph.reachable()
        if any(map(meeting, graph.blocks[n].instructions))
    }


def _partings(graph: Graph) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Blocks with several successors."""
    for n in graph.reachable():
        successors = graph.blocks[n].successors
        if len(successors) > 1:
            yield n, successors


def _reached(graph: Graph, start: int, until: int) -> set[int]:
    """The blocks that can be come to before ``until``."""
    found: set[int] = set()
    stack = [start]
    while stack:
        n = stack.pop()
        if n not in (until, EXIT) and n not in found:
            found.add(n)
            stack += graph.blocks[n].successors
    return found


def _barriers_met(graph: Graph, barriers: Iterable[int], start: int, until: int) -> set[int]:
    """The blocks with a barrier that are come to first; none if some way to ``until`` or out has none."""
    found: set[int] = set()
    seen: set[int] = set()
    stack = [start]
    while stack:
        n = stack.pop()
        if n in (until, EXIT):
            return set()
        if n in seen:
            continue
        seen.add(n)
        if n in barriers:
            found.add(n)
        else:
            stack += graph.blocks[n].successors
    return found
