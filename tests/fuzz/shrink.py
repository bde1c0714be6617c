"""Cuts a program down to the part that a fault needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from programs import Call, If, Loop, Node, Program, children, with_children

Nodes = tuple[Node, ...]


def shrink(program: Program, fails: Callable[[Program], bool], tries: int = 400) -> Program:
    """A smaller program for which ``fails`` still holds; asks at most ``tries`` times."""
    left = tries
    progress = True
    while progress and left > 0:
        progress = False
        for smaller in _smaller(program):
            left -= 1
            if left < 0:
                break
            if fails(smaller):
                program, progress = smaller, True
                break
    return program


def _smaller(program: Program) -> Iterator[Program]:
    """Programs with less in them, the much smaller ones first."""
    for body in _less(program.body):
        yield replace(program, body=body)
    used = {node.function for node in _all(program) if isinstance(node, Call)}
    for number, function in enumerate(program.functions):
        if function and number not in used:
            yield _with_function(program, number, ())
        else:
            for nodes in _less(function):
                yield _with_function(program, number, nodes)
    if program.functions and not used:
        yield replace(program, functions=())
    if program.blocks > 1:
        yield replace(program, blocks=1)
    if program.threads > 32:
        yield replace(program, threads=32)


def _with_function(program: Program, number: int, nodes: Nodes) -> Program:
    functions = list(program.functions)
    functions[number] = nodes
    return replace(program, functions=tuple(functions))


def _all(program: Program) -> Iterator[Node]:
    pending = [*program.body, *(n for f in program.functions for n in f)]
    while pending:
        node = pending.pop()
        yield node
        pending += [n for part in children(node) for n in part]


def _less(nodes: Nodes) -> Iterator[Nodes]:
    """Halves, quarters, … left out; then structures for their bodies, or with less in them."""
    size = len(nodes)
    while size:
        for at in range(0, len(nodes), size):
            yield nodes[:at] + nodes[at + size :]
        size //= 2
    for at, node in enumerate(nodes):
        for other in _simpler(node):
            yield nodes[:at] + other + nodes[at + 1 :]


def _simpler(node: Node) -> Iterator[Nodes]:
    parts = children(node)
    for part in parts:
        if part:
            yield part
    if isinstance(node, Loop) and node.rounds > 1:
        yield (replace(node, rounds=1),)
        if node.until:
            yield (replace(node, until=""),)
    if isinstance(node, If) and node.otherwise:
        yield (replace(node, otherwise=()),)
    for at, part in enumerate(parts):
        for less in _less(part):
            yield (with_children(node, (*parts[:at], less, *parts[at + 1 :])),)
