"""What running a trace again on its own GPU gave, in one line: of ``zluda trace`` and ``zluda info``."""

from __future__ import annotations

from zluda.diff.proof import Proof, counts_as
from zluda.diff.results import CountsAs, Verdict
from zluda.report.names import readable
from zluda.report.words import plural
from zluda.tracefile.text import printable

_TIMES = {1: "once", 2: "twice"}


def sentence(proof: Proof) -> str:
    """``proved: 412 of 415 launches identical twice, 3 noise (histogram)``; or that it is not, and why."""
    if not proof.done:
        return printable(f"not proved: {proof.reason}")
    counts = proof.launches
    times = _TIMES.get(proof.runs, f"{proof.runs} times")
    total = plural(sum(counts.values()), "launch", "launches")
    parts = [f"{counts.get(Verdict.IDENTICAL.value, 0):,} of {total} identical {times}"]
    parts += [_rest(name, count, proof) for name, count in counts.items() if name != Verdict.IDENTICAL.value]
    parts += [
        f"{plural(count, 'copy', 'copies')} {name}" for name, count in proof.copies.items() if _matters(name)
    ]
    text = f"{'proved' if proof.holds else 'not proved'}: {', '.join(parts)}"
    if proof.first is not None:
        first = proof.first
        text += f"; first #{first.call} {readable(first.kernel)}: {first.verdict}"
        text += f", {first.reason}" if first.reason else ""
    return printable(text)


def _rest(name: str, count: int, proof: Proof) -> str:
    kernels = ", ".join(map(readable, proof.noisy)) if name == Verdict.NOISE.value else ""
    return f"{count:,} {name}" + (f" ({kernels})" if kernels else "")


def _matters(name: str) -> bool:
    """Whether copies of this verdict are worth a word."""
    return counts_as(name) in (CountsAs.FAILS, CountsAs.CANNOT_TELL)
