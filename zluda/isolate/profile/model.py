"""What a kernel's launches would take on the GPU that was emulated: a model, not a measurement.

From what was counted (instructions of waves, bytes asked of memory) and the GPU's peaks: the largest of four
bounds, each of which a real launch takes at least, but for caches, which serve bytes that were asked for more
than once.
"""

from __future__ import annotations

import math

from zluda.isolate.profile.peaks import LATENCY_CYCLES, LAUNCH_SECONDS, Peak, vector_instructions
from zluda.records import dataclass
from zluda.runner.profiled import KernelTimes

BOUNDS = ("memory", "compute", "latency", "launch")


@dataclass(frozen=True, slots=True)
class Model:
    """Seconds of all launches by each bound: of memory's bandwidth, of vector units, of a wave's own length,
    of starting a kernel."""

    memory: float
    compute: float
    latency: float
    launch: float

    @property
    def seconds(self) -> float:
        """The time: a launch is started, and then the slowest of the others decides."""
        return self.launch + max(self.memory, self.compute, self.latency)

    @property
    def limit(self) -> str:
        """Which bound is the largest."""
        return max(BOUNDS, key=lambda name: float(getattr(self, name)))


def model(times: KernelTimes, peak: Peak, target: str, *, wave_size: int, waves_per_simd: int) -> Model:
    """The bounds of a kernel's launches. ``waves_per_simd`` is how many there is room for."""
    from zluda.compiler.amd.targets import target_id

    simds = target_id(target).target.simds_per_unit
    blocks = times.blocks / times.launches
    waves = blocks * math.ceil(max(times.block_threads, 1) / wave_size)
    units = min(peak.units, max(blocks, 1))
    rounds = math.ceil(waves / (units * simds * max(waves_per_simd, 1)))
    per_wave = times.instructions / max(times.launches * waves, 1)
    return Model(
        memory=times.bytes / peak.bandwidth,
        compute=times.vector / (vector_instructions(target, wave_size) * units * peak.clock),
        latency=times.launches * rounds * per_wave * LATENCY_CYCLES / peak.clock,
        launch=times.launches * LAUNCH_SECONDS,
    )
