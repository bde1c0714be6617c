"""Replays of the same traces on several devices, side by side: trace × device, and kernel × device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from zluda.diff.results import CountsAs, ReplayResult, worst
from zluda.records import dataclass
from zluda.report import words
from zluda.report.summary import KernelSummary, by_kernel


@dataclass(frozen=True, slots=True)
class Unread:
    """A trace that could not be replayed at all: on which device, and why."""

    trace: str
    device: str
    reason: str


Cell = ReplayResult | Unread | None
"""What became of one trace on one device; None where nobody tried."""


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One kernel (or copying function) of a trace, and its summary in each of :attr:`Grid.columns`."""

    kernel: str
    calls: int
    cells: tuple[KernelSummary | None, ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """Traces down, devices across, each in the order of its first replay."""

    traces: tuple[str, ...]
    columns: tuple[str, ...]
    cells: dict[tuple[str, str], ReplayResult | Unread]

    @classmethod
    def of(cls, results: Sequence[ReplayResult], unread: Sequence[Unread] = ()) -> Grid:
        """A trace replayed twice on one device keeps its worse result."""
        cells: dict[tuple[str, str], ReplayResult | Unread] = {}
        for result in results:
            key = (result.trace, words.where(result))
            held = cells.get(key)
            if not isinstance(held, ReplayResult) or _worse(result, held):
                cells[key] = result
        # an unread trace stands under the device's first column
        of_device = {result.device: words.where(result) for result in reversed(results)}
        for failure in unread:
            cells.setdefault((failure.trace, of_device.get(failure.device, failure.device)), failure)
        traces, columns = (tuple(dict.fromkeys(key[axis] for key in cells)) for axis in (0, 1))
        return cls(traces, columns, cells)

    def cell(self, trace: str, column: str) -> Cell:
        return self.cells.get((trace, column))

    def results(self, trace: str) -> list[tuple[str, ReplayResult]]:
        """(column, result) of one trace's replays."""
        found = ((column, self.cell(trace, column)) for column in self.columns)
        return [(column, result) for column, result in found if isinstance(result, ReplayResult)]

    def kernels(self, trace: str) -> list[KernelRow]:
        """The trace's kernels in the order of their first launch, copies after them."""
        summaries = {
            column: {(found.kind, found.kernel): found for found in by_kernel(result)}
            for column, result in self.results(trace)
        }
        keys = dict.fromkeys(key for kernels in summaries.values() for key in kernels)
        rows = []
        for key in sorted(keys, key=lambda key: key[0] == "copy"):
            cells = tuple(summaries.get(column, {}).get(key) for column in self.columns)
            rows.append(KernelRow(key[1], max(found.total for found in cells if found), cells))
        return rows

    def guilty(self) -> Iterator[tuple[str, str, ReplayResult]]:
        """(trace, column, result) of every replay in which something fails, in the order of the grid."""
        for trace in self.traces:
            for column, result in self.results(trace):
                if result.verdict.counts_as is CountsAs.FAILS:
                    yield trace, column, result


def _worse(one: ReplayResult, other: ReplayResult) -> bool:
    return worst((one.verdict, other.verdict)) is one.verdict and one.verdict is not other.verdict
