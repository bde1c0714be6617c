"""Launches that differ, held against what NVIDIA itself varies; and learning that from runs on one GPU.

``noise`` is only said of a kernel whose results can depend on the order of threads or on the moment
(``compiler/analysis/varying.py``), or, in a graph, of one that comes after such a kernel: the record has no
memory between a graph's nodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from zluda.diff.grid import Grid
from zluda.diff.kinds import ElementType, element_type
from zluda.diff.noise import Bound, Differences, Seen, allowed, masked, outside, same_rows
from zluda.diff.results import BufferComparison
from zluda.diff.types.layout import BYTES, UNKNOWN
from zluda.replay.differing import Explained, both_sides, differing, elements
from zluda.replay.kernel_facts import KernelFacts
from zluda.replay.memory import LiveAllocation, ReplayMemory
from zluda.tracefile import Launch, Noise, NoiseKind, Trace

if TYPE_CHECKING:
    import numpy.typing

    Array = numpy.typing.NDArray[Any]

AGAIN = 4
"""How often a launch of a kernel that varies is run once more each time: the more, the more is seen."""

_AGAIN_WITHIN = 256 << 20  # bytes that a launch reaches, which are written anew before each
_FLOAT_SUM = re.compile(r"\.add\.b?f\d")
_ROW_GRID = 48  # what all sizes of rows divide
_ROWS_WITHIN = (
    256 << 20
)  # bytes from the first element that differs to the last, in which rows are looked for


class NoiseJudge(Protocol):
    """What a replay asks of launches that differ."""

    learning: bool
    """Whether the record's memory takes the place of what any launch left that differs."""

    def explain(
        self,
        call: int,
        launch: Launch,
        buffers: Iterable[BufferComparison],
        memory: ReplayMemory,
        earlier: Sequence[Launch],
    ) -> Explained | None:
        """Whether what differs is NVIDIA's own noise; None where nothing is known of the launch.

        ``call`` made the launch, and ``launch.call`` is where its memory is on record; ``earlier`` are the
        kernels before it in its graph.
        """

    def repeats(self, launch: Launch, reach: Iterable[LiveAllocation]) -> bool:
        """Whether a launch, just run, is to be run once more from its recorded inputs."""


class NoiseFloor:
    """What the trace says NVIDIA varies.

    Launches of one kernel share how far it varies: what few runs of one of them did not show, those of
    another did.
    """

    learning = False

    def __init__(self, trace: Trace, facts: KernelFacts) -> None:
        self._trace, self._facts = trace, facts

    def repeats(self, launch: Launch, reach: Iterable[LiveAllocation]) -> bool:
        return False

    def explain(
        self,
        call: int,
        launch: Launch,
        buffers: Iterable[BufferComparison],
        memory: ReplayMemory,
        earlier: Sequence[Launch],
    ) -> Explained | None:
        known = self._of.get(call, {})
        bounds = self._bounds.get((launch.module, launch.kernel))
        if bounds is None and not known:
            return None
        causes = _causes(self._facts, launch, earlier)
        if not causes.within:
            return Explained(False, f"it varies on NVIDIA too, but {causes.reason}")
        count = 0
        for buffer in whole_allocations(buffer for buffer in buffers if buffer.differing):
            if buffer.differing:
                assert buffer.allocation is not None
                noise = known.get(buffer.allocation)
                bad = self._bad(noise, bounds or {}, launch, buffer, memory, sums=_adds_floats(causes))
                if bad:
                    return Explained(False, f"it varies on NVIDIA too ({causes.reason}), but {bad}")
                count += buffer.differing
        noun = "element differs" if count == 1 else "elements differ"
        return Explained(True, f"{count} {noun} no further than on NVIDIA itself ({causes.reason})")

    def _bad(
        self,
        noise: Noise | None,
        bounds: Mapping[str, Bound],
        launch: Launch,
        buffer: BufferComparison,
        memory: ReplayMemory,
        *,
        sums: bool,
    ) -> str:
        """What of a buffer is no noise, in words; empty where all is."""
        import numpy as np

        type_name = single_type(buffer) if noise is None else noise.element_type
        bound, kind = bounds.get(type_name), element_type(type_name)
        if bound is None or (noise is None and not (sums and kind.kind == "float")):
            return f"{buffer.label} does not"
        assert buffer.allocation is not None
        found = _gathered(memory, buffer, launch.call, kind)
        if noise is not None and noise.kind is NoiseKind.SET:
            one = memory.live[noise.allocation]
            contents = _contents(memory, one, launch.call, noise.origin, found)
            same = contents is not None and same_rows(*contents, noise.row_bytes)
            return "" if same else f"{buffer.label} does not hold the same rows of {noise.row_bytes} bytes"
        seen = np.zeros(0, np.int64) if noise is None else masked(noise, self._trace.noise_mask(noise))
        changed = _changed(self._trace, launch.call, buffer.allocation, kind)
        bad = outside(found, allowed(seen, changed, sums=sums), bound)
        if bad is None:
            return ""
        others, first, how = bad
        more = f" (and {others - 1} more)" if others > 1 else ""
        return f"not as element {first} of {buffer.label}{more}, {how}"

    @cached_property
    def _of(self) -> dict[int, dict[int, Noise]]:
        """Call → allocation → what varied."""
        found: dict[int, dict[int, Noise]] = {}
        for one in self._trace.noise:
            found.setdefault(one.call, {})[one.allocation] = one
        return found

    @cached_property
    def _bounds(self) -> dict[tuple[int | None, str], dict[str, Bound]]:
        """(module, kernel) → element type → how far it varies in any launch."""
        found: dict[tuple[int | None, str], dict[str, Bound]] = {}
        calls = self._of.keys()
        for launch in self._trace.iter_launches(min(calls), max(calls) + 1) if calls else ():
            bounds = found.setdefault((launch.module, launch.kernel), {}) if launch.call in calls else {}
            for one in self._of.get(launch.call, {}).values():
                bounds.setdefault(one.element_type, Bound()).add(one)
        return found


class NoiseLearner:
    """Gathers what varies while the recording GPU runs its trace again.

    Each launch that differs is told apart from those after it: the record's memory takes its place.
    """

    learning = True

    def __init__(self, trace: Trace, *, keep: bool = False, again: int = AGAIN) -> None:
        """``keep``: go on from what the trace says. ``again``: how often a launch is run once more, each time
        the trace is, where one of its kernel has varied.
        """
        self._facts, self._again = KernelFacts(trace), again
        self._varying: set[tuple[int | None, str]] = set()  # (module, kernel)
        self._left = (-1, 0)  # the launch that was run last, and how often it is still to be run
        earlier = trace.noise if keep else []
        self._seen = {(one.call, one.allocation): Seen.of(one, trace.noise_mask(one)) for one in earlier}

    def explain(
        self,
        call: int,
        launch: Launch,
        buffers: Iterable[BufferComparison],
        memory: ReplayMemory,
        earlier: Sequence[Launch],
    ) -> Explained | None:
        parted = [buffer for buffer in buffers if buffer.differing]
        mixed = any(buffer.layout == UNKNOWN for buffer in parted)
        records = self._facts.records(launch, memory) if mixed else {}
        for buffer in whole_allocations(parted):
            assert buffer.allocation is not None
            self._saw(call, launch, buffer, memory, records.get(buffer.allocation, single_type(buffer)))
        causes = _causes(self._facts, launch, earlier)
        if causes.within and not earlier:
            self._varying.add((launch.module, launch.kernel))
        return causes

    def repeats(self, launch: Launch, reach: Iterable[LiveAllocation]) -> bool:
        varies = launch.captured and (launch.module, launch.kernel) in self._varying
        if not varies or sum(one.size for one in reach) > _AGAIN_WITHIN:
            return False
        number, left = self._left
        left = left - 1 if number == launch.call else self._again
        self._left = (launch.call, left) if left > 0 else (-1, 0)
        return left > 0

    def _saw(
        self, call: int, launch: Launch, buffer: BufferComparison, memory: ReplayMemory, type_name: str
    ) -> None:
        assert buffer.allocation is not None
        one, key = memory.live[buffer.allocation], (call, buffer.allocation)
        seen = self._seen.get(key)
        kind = element_type(type_name) if seen is None else seen.kind
        found = _gathered(memory, buffer, launch.call, kind)
        if seen is None:
            origin = _pointed_to(launch, one, int(found.where[0]) * kind.size)
            seen = self._seen[key] = Seen.nothing(kind, origin)
        seen.add(found, _contents(memory, one, launch.call, seen.origin, found))

    def noise(self, runs: int) -> list[tuple[Noise, bytes]]:
        """All that was seen, with the masks."""
        return [seen.noise(*key, runs) for key, seen in sorted(self._seen.items())]


def single_type(buffer: BufferComparison) -> str:
    """The type of a buffer's elements for what takes one only: ``bytes`` where it has fields, or elements off
    the allocation's own grid, that hold less than a byte or are no numbers.
    """
    layout = buffer.layout
    kind = element_type(layout.single)
    plain = layout.phase % kind.size == 0 and kind.packed == 1 and kind.numbers
    return kind.name if plain else BYTES


def whole_allocations(buffers: Iterable[BufferComparison]) -> list[BufferComparison]:
    """One comparison an allocation, in place of those of its parts; of several types, of bytes."""
    found: dict[int | None, BufferComparison] = {}
    for buffer in buffers:
        other = found.get(buffer.allocation)
        if other is None:
            found[buffer.allocation] = buffer
            continue
        start = min(other.offset, buffer.offset)
        size = max(other.offset + other.size, buffer.offset + buffer.size) - start
        layout = buffer.layout if buffer.layout == other.layout else UNKNOWN
        found[buffer.allocation] = replace(
            other,
            offset=start,
            size=size,
            layout=layout,
            element_type=str(layout),
            differing=other.differing + buffer.differing,
        )
    return list(found.values())


def _adds_floats(causes: Explained) -> bool:
    return any(_FLOAT_SUM.search(name) for name in causes.reason.split(", "))


def _causes(facts: KernelFacts, launch: Launch, earlier: Sequence[Launch]) -> Explained:
    """What in a launch's kernel, or in those before it in its graph, makes results vary; or that nothing
    does.
    """
    told = [facts.varying(one) for one in (launch, *earlier)]
    names = sorted({name for found in told if found is not None for name in found})
    if names:
        return Explained(True, ", ".join(names))
    if None in told:
        return Explained(False, "of machine code alone it cannot be told what its results depend on")
    return Explained(False, "nothing in its kernel depends on the order of threads")


def _gathered(memory: ReplayMemory, buffer: BufferComparison, call: int, kind: ElementType) -> Differences:
    """The elements of a buffer that differ, with their numbers in the allocation."""
    import numpy as np

    parts = list(differing(memory, buffer, call, Grid.of(kind)))
    return Differences(
        kind,
        np.concatenate([part.start // kind.size + part.where for part in parts]),
        np.concatenate([part.recorded for part in parts]),
        np.concatenate([part.replayed for part in parts]),
    )


def _contents(
    memory: ReplayMemory, one: LiveAllocation, call: int, origin: int, found: Differences
) -> tuple[bytes, bytes] | None:
    """Record and replay from the first row, counted from ``origin``, in which something differs, to the last;
    None where that is too far, or lies before the first whole row.
    """
    size = found.kind.size
    first, last = int(found.where[0]) * size, (int(found.where[-1]) + 1) * size
    start = first - (first - origin) % _ROW_GRID
    stop = min(last + (origin - last) % _ROW_GRID, one.size)
    if start < 0 or stop - start > _ROWS_WITHIN:
        return None
    recorded, replayed, _ = both_sides(memory, one, call, start, stop)
    return recorded, replayed


def _pointed_to(launch: Launch, one: LiveAllocation, first: int) -> int:
    """Where rows begin: at the last place before byte ``first`` that a parameter points to, else at the
    allocation's start.
    """
    places = [0]
    for offset, size in launch.layout or ((0, len(launch.parameters)),):
        for at in range(offset, offset + size - 7, 8):
            address = int.from_bytes(launch.parameters[at : at + 8], "little")
            if one.record.base <= address <= one.record.base + first:
                places.append(address - one.record.base)
    return max(places)


def _changed(trace: Trace, call: int, allocation: int, kind: ElementType) -> Array:
    """The numbers of the elements that a call changed in the record."""
    import numpy as np

    found = [np.zeros(0, np.int64)]
    for page in trace.pages(call):
        if page.allocation == allocation:
            first = page.offset // kind.size
            size = -(-(page.offset + page.length) // kind.size) * kind.size - first * kind.size
            before, after = (
                elements(trace.read_allocation(allocation, at, first * kind.size, size)[0], kind)
                for at in (call - 1, call)
            )
            found.append(first + np.flatnonzero(before != after))
    return np.unique(np.concatenate(found))
