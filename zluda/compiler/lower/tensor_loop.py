"""The elements of D one after another, by one piece of code where that is better.

Written out element by element for vectors of lanes an instruction is thousands of LLVM instructions, which
take long to compile and gain nothing: more values would be alive than there are registers. So rows of A and
columns of B, as their elements have been fetched, lie side by side in stack memory, and a loop goes over
elements and groups. A GPU has registers for all of it, and its stack memory is far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from zluda.compiler.ir import Builder, Value, constant
from zluda.compiler.lower.tensor_warp import Parts, Warp
from zluda.records import dataclass

_NO_UNROLL = "!9000"  # metadata numbers are a module's; nothing else of this compiler's is numbered so high
_METADATA = f'{_NO_UNROLL} = distinct !{{{_NO_UNROLL}, !9001}}\n!9001 = !{{!"llvm.loop.unroll.disable"}}'

Line = tuple[Parts, ...]
Combine = Callable[[Builder, list[tuple[Value, Value]], Value], Value]


@dataclass(frozen=True, slots=True)
class Job:
    """An element of D: its C, and the words of A and of B that meet each other."""

    c: Parts
    a: Line
    b: Line


@contextmanager
def repeated(b: Builder, count: int) -> Iterator[Value]:
    """What is written inside runs ``count`` times, and is not unrolled; gives the round (``i64``, from 0)."""
    each, done = b.fresh("each"), b.fresh("done")
    counter = b.alloca("i64", align=8)
    b.store(constant("i64", 0), counter, align=8)
    b.branch(each)
    b.label(each)
    i = b.load("i64", counter, align=8)
    yield i
    following = b.add(i, 1)
    b.store(following, counter, align=8)
    b.module.globals[_NO_UNROLL] = _METADATA
    again = b.icmp("ult", following, count)
    b.emit(f"br {again.typed}, label %{each}, label %{done}, !llvm.loop {_NO_UNROLL}")
    b.label(done)


class Registers:
    """Registers of a warp in stack memory, found by number while running."""

    def __init__(self, warp: Warp, values: Sequence[Parts]) -> None:
        self.warp, first = warp, values[0][0]
        self.kind, self.lanes, self.element = first.type, first.lanes, first.ir_type
        self.groups = len(values[0])
        self.memory = warp.b.alloca(first.type, first.lanes, count=len(values) * self.groups)
        for n, parts in enumerate(values):
            self.store(constant("i64", n), parts)

    def _place(self, number: Value, group: int) -> Value:
        b = self.warp.b
        return b.gep(self.memory, b.add(b.mul(number, self.groups), group), self.element)

    def load(self, number: Value) -> Parts:
        """A register."""
        b = self.warp.b
        return tuple(
            b.load(self.kind, self._place(number, g), self.lanes, align=4) for g in range(self.groups)
        )

    def store(self, number: Value, parts: Parts) -> None:
        """Give a register its value."""
        for g, value in enumerate(parts):
            self.warp.b.store(value, self._place(number, g), align=4)


class _Lines:
    """Stack memory of lines of words, each line once; a group's lines lie together."""

    def __init__(self, warp: Warp, lines: Sequence[Line]) -> None:
        self.warp = warp
        self.length = len(lines[0])
        self.places = {line: i * self.length for i, line in enumerate(dict.fromkeys(lines))}
        self.group = len(self.places) * self.length
        b, first = warp.b, lines[0][0][0]
        self.element = first.ir_type
        self.kind, self.lanes = first.type, first.lanes
        self.memory = b.alloca(first.type, first.lanes, count=self.group * len(lines[0][0]))
        for line, place in self.places.items():
            for k, parts in enumerate(line):
                for g, value in enumerate(parts):
                    b.store(value, b.gep(self.memory, g * self.group + place + k, self.element), align=4)

    def place(self, line: Line, group: int) -> int:
        """Where a group's line begins, counted in words."""
        return group * self.group + self.places[line]

    def load(self, place: Value) -> list[Value]:
        """A line's words."""
        b = self.warp.b
        start = b.gep(self.memory, place, self.element)
        return [
            b.load(self.kind, b.gep(start, k, self.element), self.lanes, align=4) for k in range(self.length)
        ]


def _one(warp: Warp, job: Job, combine: Combine) -> Parts:
    return tuple(
        combine(warp.b, [(x[g], y[g]) for x, y in zip(job.a, job.b, strict=True)], c)
        for g, c in enumerate(job.c)
    )


def each_element(warp: Warp, name: str, jobs: Sequence[Job], combine: Combine) -> list[Parts]:
    """``combine(b, pairs, c)`` for each job and group; the results, one a job. ``name`` is the function's."""
    if warp.ops.many_registers:
        return [_one(warp, job, combine) for job in jobs]
    b, groups = warp.b, len(jobs[0].c)
    a_lines, b_lines = _Lines(warp, [j.a for j in jobs]), _Lines(warp, [j.b for j in jobs])
    values = _Lines(warp, [tuple(j.c for j in jobs)])
    rounds = [(job, g) for g in range(groups) for job in jobs]
    tables = [
        b.module.table(f"{name}.{letter}", "i64", [lines.place(getattr(job, letter), g) for job, g in rounds])
        for letter, lines in (("a", a_lines), ("b", b_lines))
    ]
    with repeated(b, len(rounds)) as i:
        x, y = (
            lines.load(b.load("i64", b.gep(table, i, "i64"), align=8))
            for lines, table in zip((a_lines, b_lines), tables, strict=True)
        )
        # Jobs are C's places in order, group after group: D takes C's place.
        own = b.gep(values.memory, i, values.element)
        c = b.load(values.kind, own, values.lanes, align=4)
        b.store(combine(b, list(zip(x, y, strict=True)), c), own, align=4)
    results = [values.load(constant("i64", g * len(jobs))) for g in range(groups)]
    return list(zip(*results, strict=True))
