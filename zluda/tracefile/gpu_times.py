"""GPU times on the clock of the calls.

A launch's times are the GPU's own (``gpu_time``), by a clock that begins anywhere and may run a little faster
or slower than the host's. ``gpu_clock`` has moments of both clocks over the run; a straight line through
those of one clock says what host time a GPU time is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from zluda.records import dataclass

_DRIFT_LIMIT = 1e-3
"""A quartz is off by less than a tenth of this; a slope beyond it comes of moments that lie too near."""


class GpuTime(NamedTuple):
    """When the GPU carried out the launch (or the launch of a graph) that ``call`` made.

    ``start_ns`` is on the clock of the calls, None where no moment of both clocks is on record;
    ``gpu_start_ns`` is on the GPU's clock number ``clock``, whose times compare to the nanosecond.
    """

    call: int
    clock: int
    gpu_start_ns: int
    duration_ns: int
    start_ns: int | None


class Moment(NamedTuple):
    """One moment on a GPU's clock and the calls'; ``host_ns`` may be off by ``error_ns``."""

    clock: int
    gpu_ns: int
    host_ns: int
    error_ns: int


@dataclass(frozen=True)
class ClockFit:
    """The line through a clock's moments: ``host = host_ns + slope (gpu - gpu_ns)``.

    ``error_ns`` is the largest distance of a moment from the line, that moment's own uncertainty included.
    """

    gpu_ns: int
    host_ns: int
    slope: float
    moments: int
    error_ns: int

    def host(self, gpu_ns: int) -> int:
        """The host's time, in ns, at a GPU time."""
        return self.host_ns + round(self.slope * (gpu_ns - self.gpu_ns))


def fits(moments: Iterable[Moment]) -> dict[int, ClockFit]:
    """The fit of each clock; moments count by how exact they are."""
    of_clock: dict[int, list[Moment]] = defaultdict(list)
    for moment in moments:
        of_clock[moment.clock].append(moment)
    return {clock: _fit(found) for clock, found in of_clock.items()}


def _fit(moments: list[Moment]) -> ClockFit:
    """Least squares, weighted by 1/error²; differences are small, so that floats hold them."""
    gpu_0, host_0 = moments[0].gpu_ns, moments[0].host_ns
    weights = [1.0 / (1 + m.error_ns) ** 2 for m in moments]
    x = [float(m.gpu_ns - gpu_0) for m in moments]
    y = [float(m.host_ns - m.gpu_ns - (host_0 - gpu_0)) for m in moments]  # what the clocks drift apart
    total = sum(weights)
    mean_x = sum(w * a for w, a in zip(weights, x, strict=True)) / total
    mean_y = sum(w * b for w, b in zip(weights, y, strict=True)) / total
    spread = sum(w * (a - mean_x) ** 2 for w, a in zip(weights, x, strict=True))
    drift = 0.0
    if spread:
        joint = sum(w * (a - mean_x) * (b - mean_y) for w, a, b in zip(weights, x, y, strict=True))
        drift = max(-_DRIFT_LIMIT, min(_DRIFT_LIMIT, joint / spread))
    gpu_ns = gpu_0 + round(mean_x)
    fit = ClockFit(gpu_ns, host_0 + round(mean_x + mean_y), 1 + drift, len(moments), 0)
    error = max(abs(fit.host(m.gpu_ns) - m.host_ns) + m.error_ns for m in moments)
    return ClockFit(fit.gpu_ns, fit.host_ns, fit.slope, fit.moments, error)
