"""Fewer blocks, fewer threads, fewer bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from zluda.isolate.reduce.case import Case
from zluda.isolate.reduce.question import Progress, Question
from zluda.isolate.values.instrument import LANES
from zluda.isolate.values.sites import Reads, reads
from zluda.tracefile import Dim3

PIECE = 64
"""Bytes, of which the smallest piece of memory has so many that is set to zero on its own."""


def fewer_blocks(case: Case, question: Question, progress: Progress) -> Case:
    """One block, or half as many in some direction, again and again."""
    progress("blocks", case)
    return _smaller_shape(case, question, "grid")


def fewer_threads(case: Case, question: Question, progress: Progress) -> Case:
    """One thread, one warp, or half as many in some direction.

    Whole warps where lanes read each other's registers: what is read of a lane that is not there is undefined
    (PTX ISA, ``shfl.sync``).
    """
    progress("threads", case)
    return _smaller_shape(case, question, "block")


def _smaller_shape(case: Case, question: Question, which: str) -> Case:
    shape: Dim3 = getattr(case, which)
    for smaller in _shapes(shape):
        if question.over:
            break
        x, y, z = smaller
        if which == "block" and x * y * z % LANES and _reads_lanes(case):
            continue
        grid, block = (smaller, case.block) if which == "grid" else (case.grid, smaller)
        candidate = replace(case, grid=grid, block=block)
        if question.holds(candidate):
            return _smaller_shape(candidate, question, which)
    return case


def _reads_lanes(case: Case) -> bool:
    return any(reads(one) is Reads.LANES for f in case.part.functions for one in f.instructions)


def _shapes(shape: Dim3) -> Iterator[Dim3]:
    """Smaller ones, the much smaller first."""
    seen = {shape}
    for candidate in ((1, 1, 1), (32, 1, 1), *_halves(shape)):
        fits = all(n <= m for n, m in zip(candidate, shape, strict=True))
        if fits and candidate not in seen:
            seen.add(candidate)
            yield candidate


def _halves(shape: Dim3) -> Iterator[Dim3]:
    for axis in range(3):
        if shape[axis] > 1:
            x, y, z = (-(-n // 2) if i == axis else n for i, n in enumerate(shape))
            yield (x, y, z)


def fewer_bytes(case: Case, question: Question, progress: Progress) -> Case:
    """Zeros in place of what memory held before the launch: everywhere, or in halves, down to small pieces.

    The kernel's addresses stay, so buffers keep their size; a trace holds no zeros.
    """
    progress("memory", case)
    for allocation, data in question.right.before.items():
        now = case.memory.get(allocation, data)
        waiting = [(0, len(now))]
        while waiting and not question.over:
            start, stop = waiting.pop(0)
            if not any(now[start:stop]):
                continue
            candidate = now[:start] + bytes(stop - start) + now[stop:]
            smaller = case.with_memory(allocation, candidate)
            if question.holds(smaller):
                case, now = smaller, candidate
            elif stop - start > PIECE:
                middle = start + (stop - start) // 2 // 8 * 8
                waiting += [(start, middle), (middle, stop)]
    return case
