"""A replay's launches gathered by kernel and verdict: what a summary lists instead of ten million rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import field

from zluda.diff.results import CountsAs, LaunchResult, ReplayResult, Verdict, general
from zluda.records import dataclass


@dataclass(slots=True)
class KernelSummary:
    """All launches of one kernel, or all copies by one function. Times are sums where any is known."""

    kind: str
    kernel: str
    counts: Counter[Verdict] = field(default_factory=Counter)
    recorded_seconds: float | None = None
    seconds: float | None = None
    bytes_compared: int = 0

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def verdict(self) -> Verdict:
        return max(self.counts, key=lambda verdict: verdict.severity)

    @property
    def verdicts(self) -> str:
        """``identical``, or ``2 differs, 5 identical`` where they are not all the same; the worst first."""
        ordered = sorted(self.counts.items(), key=lambda item: -item[0].severity)
        if len(ordered) == 1:
            return str(ordered[0][0].value)
        return ", ".join(f"{count:,} {verdict.value}" for verdict, count in ordered)

    def add(self, result: LaunchResult) -> None:
        self.counts[result.verdict] += 1
        self.recorded_seconds = _sum(self.recorded_seconds, result.recorded_seconds)
        self.seconds = _sum(self.seconds, result.seconds)
        self.bytes_compared += sum(buffer.bytes_compared for buffer in result.buffers)


def by_kernel(result: ReplayResult) -> list[KernelSummary]:
    """Kernels in the order of their first launch, copies after them."""
    found: dict[tuple[str, str], KernelSummary] = {}
    for launch in result.results:
        key = (launch.kind, launch.kernel)
        found.setdefault(key, KernelSummary(*key)).add(launch)
    return sorted(found.values(), key=lambda summary: summary.kind == "copy")


def failures(result: ReplayResult, limit: int) -> list[LaunchResult]:
    """The first launches and copies that fail."""
    failing = (found for found in result.results if found.verdict.counts_as is CountsAs.FAILS)
    return [found for _, found in zip(range(limit), failing, strict=False)]


def other_reasons(result: ReplayResult, limit: int) -> list[tuple[str, int]]:
    """Why launches and copies that do not fail could not be judged or compared: (reason, how often)."""
    rest = (found for found in result.results if found.verdict.counts_as is not CountsAs.FAILS)
    return Counter(general(found.reason) for found in rest if found.reason).most_common(limit)


def shown_launches(result: ReplayResult, limit: int) -> list[LaunchResult]:
    """At most ``limit`` of them, in call order: what does not hold first, then the rest from the start."""
    if len(result.results) <= limit:
        return list(result.results)
    ranked = sorted(result.results, key=lambda found: (found.verdict.counts_as is CountsAs.HOLDS, found.call))
    return sorted(ranked[:limit], key=lambda found: found.call)


def _sum(total: float | None, more: float | None) -> float | None:
    return total if more is None else (total or 0.0) + more
