"""What AMD's GPUs can do at most: AMD's published figures of the product that a target is named after.

Compute units and clock (the boost or peak engine clock) and memory bandwidth are those of AMD's product
pages; a vector instruction of a whole wave takes a SIMD one cycle on RDNA (waves of 32) and four on GCN and
CDNA (AMD ISA manuals), so that a unit begins as many a cycle as it has SIMDs, or a quarter of it.
"""

from __future__ import annotations

from zluda.compiler.amd.targets import target_id
from zluda.records import dataclass


@dataclass(frozen=True, slots=True)
class Peak:
    """``units`` compute units, ``clock`` in Hz, ``bandwidth`` of memory in bytes a second."""

    product: str
    units: int
    clock: float
    bandwidth: float


# fmt: off
PEAKS = {
    "gfx900":  Peak("Radeon RX Vega 64",     64, 1.546e9,  484e9),
    "gfx906":  Peak("Radeon VII",            60, 1.750e9, 1024e9),
    "gfx908":  Peak("Instinct MI100",       120, 1.502e9, 1229e9),
    "gfx90a":  Peak("Instinct MI250X, one of its two dies", 110, 1.700e9, 1638e9),
    "gfx942":  Peak("Instinct MI300X",      304, 2.100e9, 5300e9),
    "gfx1010": Peak("Radeon RX 5700",        36, 1.725e9,  448e9),
    "gfx1030": Peak("Radeon RX 6800",        60, 2.105e9,  512e9),
    "gfx1100": Peak("Radeon RX 7900 XTX",    96, 2.500e9,  960e9),
    "gfx1151": Peak("Ryzen AI Max+ 395",     40, 2.900e9,  256e9),
    "gfx1200": Peak("Radeon RX 9060 XT",     32, 3.130e9,  320e9),
    "gfx1201": Peak("Radeon RX 9070 XT",     64, 2.970e9,  640e9),
}
# fmt: on

LAUNCH_SECONDS = 5e-6
"""What starting a kernel costs by itself: the order of it on current GPUs."""

LATENCY_CYCLES = 5
"""Cycles until a wave's next instruction can use a vector instruction's result on RDNA (RDNA3 ISA 1.2); taken
for each instruction of a wave, of whatever kind: what waits for memory takes longer."""


def peak_of(target: str) -> Peak | None:
    """The row of a target id (``gfx90a:xnack-``); None for a target without one."""
    return PEAKS.get(target_id(target).target.name)


def vector_instructions(target: str, wave_size: int) -> float:
    """Vector instructions of whole waves that a unit begins in a cycle."""
    found = target_id(target).target
    lanes = 16 if found.generation < 10 else 32
    return found.simds_per_unit * lanes / wave_size
