"""Random kernels as trees, so that one can be cut down: any part left out, it is still a kernel.

Every register has a value before the first statement and is written out after the last. Statements keep to
memory of the thread's own; what threads tell each other goes between barriers, through warps' instructions
under a mask of the lanes that are there, or into sums whose order does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from statements import Statement


@dataclass(frozen=True)
class If:
    """``then`` for the threads whose predicate holds, ``otherwise`` for the others; ``guard`` is the text of
    a ``setp`` into ``%c``. ``uniform``: the whole block goes one way."""

    guard: str
    then: tuple[Node, ...]
    otherwise: tuple[Node, ...] = ()
    uniform: bool = False


@dataclass(frozen=True)
class Loop:
    """The body at most ``rounds`` times; with ``until``, a thread leaves when that holds (``%c``)."""

    rounds: int
    body: tuple[Node, ...]
    until: str = ""


@dataclass(frozen=True)
class Switch:
    """``brx.idx`` on two bits of a register."""

    index: str
    cases: tuple[tuple[Node, ...], ...]


@dataclass(frozen=True)
class Call:
    """A function of a value and a word, and where its result goes."""

    function: int
    word: str
    wide: str
    result: str


Node = Statement | If | Loop | Switch | Call


@dataclass(frozen=True)
class Program:
    """A kernel with functions, and how it is launched."""

    body: tuple[Node, ...]
    functions: tuple[tuple[Node, ...], ...] = ()
    threads: int = 64
    blocks: int = 1
    seed: int = 0

    def size(self) -> int:
        """Statements and structures."""
        return sum(1 for _ in walk(self.body)) + sum(1 for f in self.functions for _ in walk(f))


def walk(nodes: tuple[Node, ...]) -> Iterator[Node]:
    """All nodes, parents first."""
    for node in nodes:
        yield node
        for part in children(node):
            yield from walk(part)


def children(node: Node) -> tuple[tuple[Node, ...], ...]:
    """The node's bodies."""
    match node:
        case If():
            return (node.then, node.otherwise)
        case Loop():
            return (node.body,)
        case Switch():
            return node.cases
    return ()


def with_children(node: Node, parts: tuple[tuple[Node, ...], ...]) -> Node:
    """The node with other bodies."""
    match node:
        case If():
            return replace(node, then=parts[0], otherwise=parts[1])
        case Loop():
            return replace(node, body=parts[0])
        case Switch():
            return replace(node, cases=parts)
    return node
