"""What is known of each kernel of a profiled replay."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from zluda.compiler.amd.report import Report
from zluda.diff.results import ReplayResult
from zluda.isolate.profile.model import Model
from zluda.isolate.profile.peaks import Peak
from zluda.records import dataclass
from zluda.runner.profiled import KernelTimes
from zluda.tracefile import Trace
from zluda.tracefile.reachability import LiveSpans

MEASURED, MODELLED, HOST = "measured", "modelled", "host"
"""Of what a time is: a GPU that ran it, a model of one that was emulated, this machine's processor."""


@dataclass(slots=True)
class Facts:
    """One kernel. Seconds and bytes are of all its launches that ended well; ``kind`` says whose time
    ``seconds`` is. ``recorded`` is NVIDIA's time of ``recorded_launches``; ``bytes`` were counted, or, where
    ``bytes_at_most``, are those of the allocations that launches were given. ``report`` and ``peak`` are
    None where the device is none of AMD's.
    """

    times: KernelTimes
    kind: str
    seconds: float
    recorded: float | None = None
    recorded_launches: int = 0
    bytes: int | None = None
    bytes_at_most: bool = False
    report: Report | None = None
    peak: Peak | None = None
    model: Model | None = None
    bound: Mapping[str, float] = field(default_factory=dict)

    @property
    def kernel(self) -> str:
        return self.times.kernel

    @property
    def launches(self) -> int:
        return self.times.launches

    @property
    def each(self) -> float:
        """Seconds of a launch, on average."""
        return self.seconds / self.launches

    @property
    def ratio(self) -> float | None:
        """Replayed over recorded time of a launch."""
        if not self.recorded or not self.recorded_launches:
            return None
        return self.each / (self.recorded / self.recorded_launches)

    @property
    def bandwidth(self) -> float | None:
        """Bytes a second, of :attr:`bytes`."""
        return None if self.bytes is None or self.seconds <= 0 else self.bytes / self.seconds

    @property
    def share_of_bandwidth(self) -> float | None:
        """Of the memory's peak, 0 to 1; more where caches served what was asked for."""
        if self.bandwidth is None or self.peak is None:
            return None
        return self.bandwidth / self.peak.bandwidth


def recorded_times(result: ReplayResult) -> dict[str, tuple[float, int]]:
    """Kernel → NVIDIA's time in seconds, of how many launches, among those that were replayed."""
    found: dict[str, list[float]] = defaultdict(list)
    for one in result.results:
        if one.kind == "launch" and one.seconds is not None and one.recorded_seconds is not None:
            found[one.kernel].append(one.recorded_seconds)
    return {kernel: (sum(times), len(times)) for kernel, times in found.items()}


def given_bytes(trace: Trace, calls: set[int]) -> dict[str, int]:
    """Kernel → bytes of the allocations that its launches' parameters point into, each once a launch.

    ``calls`` are the launches to look at. Who allocates once and hands out pieces has large allocations: it
    is the most that can have been touched, not what was.
    """
    found: dict[str, int] = defaultdict(int)
    spans = LiveSpans()
    allocations = sorted(trace.allocations, key=lambda one: one.born)
    position = 0
    sizes = {one.id: one.size for one in allocations}
    dying = sorted((one for one in allocations if one.died is not None), key=lambda one: one.died or 0)
    buried = 0
    for launch in trace.iter_launches():
        while position < len(allocations) and allocations[position].born <= launch.call:
            one = allocations[position]
            spans.add(one.id, one.base, one.size)
            position += 1
        while buried < len(dying) and (dying[buried].died or 0) <= launch.call:
            spans.remove(dying[buried].id)
            buried += 1
        if launch.call in calls:
            found[launch.kernel] += sum(sizes[key] for key in spans.pointed_to(_aligned(launch.parameters)))
    return dict(found)


def _aligned(parameters: bytes) -> bytes:
    """The parameters' whole words of eight bytes."""
    return parameters[: len(parameters) // struct.calcsize("Q") * struct.calcsize("Q")]


def to_json(facts: Facts, limit: str, advice: str) -> dict[str, Any]:
    """What ``--json`` and the page say of a kernel; times in seconds, bandwidth in bytes a second."""
    times, report = facts.times, facts.report
    return {
        "kernel": facts.kernel,
        "launches": facts.launches,
        "time": facts.kind,
        "seconds": facts.seconds,
        "recorded_seconds": facts.recorded,
        "recorded_launches": facts.recorded_launches,
        "ratio": facts.ratio,
        "blocks": times.blocks,
        "block_threads": times.block_threads,
        "bytes": facts.bytes,
        "bytes_at_most": facts.bytes_at_most,
        "bandwidth": facts.bandwidth,
        "share_of_bandwidth": facts.share_of_bandwidth,
        "instructions": times.instructions or None,
        "vector_instructions": times.vector or None,
        "vgprs": report.vgprs if report else None,
        "sgprs": report.sgprs if report else None,
        "spills": report.vgpr_spills + report.sgpr_spills if report else None,
        "lds_bytes": report.lds_bytes if report else None,
        "occupancy": [report.waves_per_simd, report.max_waves_per_simd] if report else None,
        "bounds": dict(facts.bound),
        "limit": limit,
        "advice": advice,
    }
