"""What running a trace again on its own GPU gave, in one line: of ``zluda trace`` and ``zluda info``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zluda.diff.results import CountsAs, Verdict
from zluda.report.names import readable
from zluda.report.words import plural
from zluda.tracefile.text import printable

_TIMES = {1: "once", 2: "twice"}


def sentence(proof: Mapping[str, Any]) -> str:
    """``proved: 412 of 415 launches identical twice, 3 noise (histogram)``; or that it is not, and why."""
    if not proof.get("done"):
        return printable(f"not proved: {proof.get('reason', 'it was not tried')}")
    counts, copies = proof["launches"], proof["copies"]
    times = _TIMES.get(proof["runs"], f"{proof['runs']} times")
    total = plural(sum(counts.values()), "launch", "launches")
    parts = [f"{counts.get('identical', 0):,} of {total} identical {times}"]
    parts += [_rest(name, count, proof) for name, count in counts.items() if name != "identical"]
    parts += [f"{plural(count, 'copy', 'copies')} {name}" for name, count in copies.items() if _matters(name)]
    failing = any(Verdict(name).counts_as is CountsAs.FAILS for name in (*counts, *copies))
    text = f"{'not proved' if failing else 'proved'}: {', '.join(parts)}"
    first = proof["first"]
    if first is not None:
        text += f"; first #{first['call']} {readable(first['kernel'])}: {first['verdict']}"
        text += f", {first['reason']}" if first["reason"] else ""
    return printable(text)


def _rest(name: str, count: int, proof: Mapping[str, Any]) -> str:
    kernels = ", ".join(map(readable, proof["noisy"])) if name == Verdict.NOISE.value else ""
    return f"{count:,} {name}" + (f" ({kernels})" if kernels else "")


def _matters(name: str) -> bool:
    """Whether copies of this verdict are worth a word."""
    return Verdict(name).counts_as in (CountsAs.FAILS, CountsAs.CANNOT_TELL)
