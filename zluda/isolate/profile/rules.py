"""Which limit binds, and what to do about it: the rules of docs/profile.md, the first that fits."""

from __future__ import annotations

from collections.abc import Callable

from zluda.isolate.profile.facts import HOST, Facts
from zluda.isolate.profile.peaks import LAUNCH_SECONDS
from zluda.records import dataclass

SHORT = 2 * LAUNCH_SECONDS
"""Seconds below which starting a launch is half of it."""

BUSY = 0.6
"""Of the peak bandwidth, from which on memory is what a kernel waits for."""

FEW_WAVES = 0.25
"""Of the waves that a SIMD has room for, up to which registers or LDS leave it too little to switch to."""

Condition = Callable[[Facts, str], bool]
Sentence = Callable[[Facts], str]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: whom it concerns, given the limit that binds, and one sentence to them."""

    name: str
    fits: Condition
    says: Sentence


def limit_of(facts: Facts) -> str:
    """``memory``, ``compute``, ``latency`` or ``launch``; ``host`` where this machine's processor ran it.

    Of what was emulated, the model's largest bound. Of what was measured: short launches wait to be started;
    near the peak bandwidth they wait for memory; what few waves run waits for itself; the rest computes.
    """
    if facts.kind == HOST:
        return "host"
    if facts.model is not None:
        return facts.model.limit
    if facts.each < SHORT:
        return "launch"
    share = facts.share_of_bandwidth
    if share is not None and share >= BUSY and not facts.bytes_at_most:
        return "memory"
    if _few_blocks(facts) or _few_waves(facts):
        return "latency"
    return "memory" if share is not None and share >= BUSY else "compute"


def advice(facts: Facts, limit: str) -> str:
    """One sentence."""
    return next(rule.says(facts) for rule in RULES if rule.fits(facts, limit))


def _few_blocks(facts: Facts) -> bool:
    return facts.peak is not None and facts.times.blocks / facts.launches < facts.peak.units


def _few_waves(facts: Facts) -> bool:
    report = facts.report
    return report is not None and report.waves_per_simd <= FEW_WAVES * report.max_waves_per_simd


def _spills(facts: Facts) -> int:
    return facts.report.vgpr_spills + facts.report.sgpr_spills if facts.report is not None else 0


def _idle_lanes(facts: Facts) -> int:
    """Lanes of a block's last wave that have no thread."""
    return -facts.times.block_threads % facts.report.wave_size if facts.report is not None else 0


def _blocks_and_units(facts: Facts) -> str:
    assert facts.peak is not None
    blocks = facts.times.blocks / facts.launches
    return f"{blocks:,.0f} blocks a launch leave {facts.peak.units - blocks:,.0f} of {facts.peak.units} units"


def _registers(facts: Facts) -> str:
    report = facts.report
    assert report is not None
    return (
        f"{report.vgprs} vector registers leave room for {report.waves_per_simd} of"
        f" {report.max_waves_per_simd} waves a SIMD: fewer values at once (less unrolling, smaller tiles,"
        " __launch_bounds__) would let it wait for several"
    )


def _moved(facts: Facts) -> str:
    assert facts.bytes is not None
    share = facts.share_of_bandwidth
    at = f", {100 * min(share, 1):.0f} % of the memory's peak" if share is not None else ""
    return (
        f"it moves {facts.bytes / facts.launches / 1e6:,.3f} MB a launch{at}: only moving less helps"
        " (narrower types, reuse in shared memory, one kernel for several)"
    )


RULES: tuple[Rule, ...] = (
    Rule(
        "host",
        lambda f, limit: limit == "host",
        lambda f: "this is this machine's own time; --device gfx… models a GPU's, hip:N measures one",
    ),
    Rule(
        "launch",
        lambda f, limit: limit == "launch",
        lambda f: (
            f"at {1e6 * f.each:,.1f} µs a launch it takes about as long to start as to run: join it with its"
            " neighbours, or launch it from a graph"
        ),
    ),
    Rule(
        "spills",
        lambda f, limit: _spills(f) > 0,
        lambda f: (
            f"{_spills(f)} registers are spilled to memory: fewer values at once (less unrolling, smaller"
            " tiles) come first"
        ),
    ),
    Rule(
        "few-blocks",
        lambda f, limit: limit == "latency" and _few_blocks(f),
        lambda f: f"{_blocks_and_units(f)} idle: more and smaller blocks would use them",
    ),
    Rule(
        "registers",
        lambda f, limit: limit in ("latency", "memory") and _few_waves(f),
        _registers,
    ),
    Rule(
        "idle-lanes",
        lambda f, limit: limit in ("compute", "latency") and _idle_lanes(f) > 0,
        lambda f: (
            f"blocks of {f.times.block_threads} threads leave {_idle_lanes(f)} lanes of the last wave idle:"
            f" a multiple of {f.report.wave_size if f.report else 32} would use them"
        ),
    ),
    Rule("bytes", lambda f, limit: limit == "memory" and f.bytes is not None, _moved),
    Rule(
        "length",
        lambda f, limit: limit == "latency",
        lambda f: (
            "each thread's own work, one instruction after another, is what takes long: more threads that do"
            " less, or independent work in each"
        ),
    ),
    Rule(
        "arithmetic",
        lambda f, limit: True,
        lambda f: (
            "the vector units are what it waits for: cheaper arithmetic (fewer conversions and divisions,"
            " approximate functions) is what helps"
        ),
    ),
)
