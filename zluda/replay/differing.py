"""The elements of a buffer in which replay and record part, as bits of an element type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from zluda.diff.grid import Grid
from zluda.diff.kinds import ElementType
from zluda.diff.results import BufferComparison
from zluda.records import dataclass
from zluda.replay.judge import known_mask
from zluda.replay.memory import LiveAllocation, ReplayMemory

if TYPE_CHECKING:
    import numpy.typing

    Array = numpy.typing.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Explained:
    """Whether a launch's differences are all accounted for, and the reason in words."""

    within: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Differing:
    """Those of one range [start, stop) of an allocation, in bytes of it, that lie on a grid.

    ``where`` are their numbers in the range, ``recorded`` and ``replayed`` their bits; ``whole`` says whether
    the record knows all of an element's bytes.
    """

    one: LiveAllocation
    grid: Grid
    start: int
    stop: int
    where: Array
    recorded: Array
    replayed: Array
    whole: Array


def differing(memory: ReplayMemory, buffer: BufferComparison, call: int, grid: Grid) -> Iterator[Differing]:
    """The elements of a compared buffer on a grid that differ after ``call``, range by range."""
    import numpy as np

    assert buffer.allocation is not None
    one = memory.live[buffer.allocation]
    last_start = -1
    for first, last in one.differing.within(buffer.offset, buffer.offset + buffer.size):
        start, stop = grid.span(first, last)
        start, stop = max(start, last_start, 0), min(stop, one.size)
        if start >= stop:
            continue
        last_start = stop
        left, right, known = (grid.take(side, start) for side in both_sides(memory, one, call, start, stop))
        where = np.flatnonzero(left != right)
        if len(where):
            whole = known[where] == known.max()
            yield Differing(one, grid, start, stop, where, left[where], right[where], whole)


def both_sides(
    memory: ReplayMemory, one: LiveAllocation, call: int, start: int, stop: int
) -> tuple[bytes, bytes, bytes]:
    """Record and replay after ``call``, zero where the record does not know; and where it knows, ones."""
    size = stop - start
    mask = known_mask(one.known, start, stop) or b"\1" * size
    recorded, replayed = memory.recorded(one, call, start, size), bytes(memory.read(one, start, size))
    return _masked(recorded, mask), _masked(replayed, mask), _masked(b"\xff" * size, mask)


def elements(data: bytes, kind: ElementType) -> Array:
    """Bytes as bit patterns of elements; the last may be cut off and is filled with zeros."""
    return Grid.of(kind).take(data, 0)


def _masked(data: bytes, mask: bytes) -> bytes:
    """Zeros where the mask has zeros."""
    import numpy as np

    return np.where(np.frombuffer(mask, np.uint8) != 0, np.frombuffer(data, np.uint8), np.uint8(0)).tobytes()
