"""What the page says of each kernel: verdicts, what its launches differ in and where, its code, commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from zluda.diff.metrics import CLASSES, Metrics
from zluda.diff.results import BufferComparison, CountsAs, LaunchResult, ReplayResult
from zluda.report import commands, figures, words
from zluda.report.figures import TONES
from zluda.report.lines import Listing
from zluda.report.names import readable
from zluda.report.summary import KernelSummary, by_kernel

SHOWN_KERNELS = 200  # in the table
_SECTIONS = 60
_LAUNCHES = 3  # of a kernel, in full
_FAILING_KERNELS = 20  # kernels with launches in full


def sections(result: ReplayResult, anchor: str) -> tuple[list[dict[str, Any]], int]:
    """(an entry for each kernel, in the order of its first launch; how many more there are).

    Entries of kernels that fail hold their first launches that do; those are kept where others are left out.
    """
    failing: dict[tuple[str, str], list[LaunchResult]] = {}
    for one in result.results:
        if one.verdict.counts_as is CountsAs.FAILS:
            failing.setdefault((one.kind, one.kernel), []).append(one)
    summaries = by_kernel(result)
    kept = sorted(summaries, key=lambda found: (found.kind, found.kernel) not in failing)[:SHOWN_KERNELS]
    listings: Mapping[str, Listing] = result.meta.get("listings", {})
    shown = [found for found in summaries if found in kept]
    full = [(found.kind, found.kernel) for found in kept if (found.kind, found.kernel) in failing]
    in_full = set(full[:_FAILING_KERNELS])
    sectioned = {(found.kind, found.kernel) for found in kept[:_SECTIONS]}
    entries = []
    for number, found in enumerate(shown):
        key = (found.kind, found.kernel)
        entry = _entry(result, found, f"{anchor}-kernel-{number}")
        wrong = failing.get(key, [])
        entry["section"] = key in sectioned and (key in failing or found.kind != "copy")
        entry["first"] = wrong[0].call if wrong else None
        entry["launches"] = [_difference(one, result) for one in wrong[: _LAUNCHES if key in in_full else 0]]
        entry["left_out"] = len(wrong) - len(entry["launches"])
        entry["commands"] = [] if found.kind == "copy" else commands.of_kernel(result, found.kernel)
        entry["listing"] = _listing(listings.get(found.kernel)) if found.kind == "launch" else None
        entries.append(entry)
    return entries, len(summaries) - len(shown)


def _entry(result: ReplayResult, found: KernelSummary, anchor: str) -> dict[str, Any]:
    known = result.classes.get(found.kernel)
    facts = [("Verdicts", found.verdicts), ("Compared", words.size(found.bytes_compared))]
    if known is not None:
        facts += [("Class", known.kind.value), ("Bound", result.bound(found.kernel))]
        facts += [("On account of", ", ".join(known.names[:12]))] if known.names else []
    layers = [str(one.layer) for one in result.blame.values() if one.kernel == found.kernel]
    if layers:
        facts.append(("Layer", ", ".join(dict.fromkeys(layers))))
    if found.recorded_seconds is not None:
        facts.append(("GPU time (recorded)", words.seconds(found.recorded_seconds)))
    if found.seconds is not None and not result.emulated:
        facts.append(("Replay", words.seconds(found.seconds)))
    return {
        "anchor": anchor,
        "kernel": found.kernel,
        "readable": readable(found.kernel),
        "copy": found.kind == "copy",
        "calls": found.total,
        "verdict": found.verdict,
        "verdicts": found.verdicts,
        "tone": TONES[found.verdict.counts_as],
        "fails": found.verdict.counts_as is CountsAs.FAILS,
        "class": "" if known is None else known.kind.value,
        "bytes": found.bytes_compared,
        "compared": words.size(found.bytes_compared),
        "recorded_seconds": found.recorded_seconds or 0,
        "recorded": words.seconds(found.recorded_seconds),
        "facts": facts,
    }


def _difference(result: LaunchResult, of: ReplayResult) -> dict[str, Any]:
    return {
        "held_to": words.held_to(of, result.kernel),
        "layer": str(of.blame[result.call]) if result.call in of.blame else "",
        "call": result.call,
        "kernel": result.kernel,
        "readable": readable(result.kernel),
        "verdict": result.verdict,
        "reason": result.reason,
        "buffers": [_buffer(buffer) for buffer in result.buffers if not buffer.identical],
        "commands": commands.of_launch(of, result),
    }


def _buffer(buffer: BufferComparison) -> dict[str, Any]:
    elements = f"{words.plural(buffer.elements, 'element')} ({words.typed(buffer)})"
    facts = [f"{buffer.differing:,} of {elements} differ"]
    facts += [f"{count:,} × {CLASSES[name]}" for name, count in buffer.classes.items() if name != "value"]
    if buffer.max_ulp is not None:
        facts.append(f"by up to {words.number(buffer.max_ulp, 4)} ULP")
    if buffer.max_absolute is not None:
        facts.append(f"at most {words.number(buffer.max_absolute, 4)} apart")
    pairs = [(element, words.Pair.of(buffer, element)) for element in buffer.first]
    fields = [one for one in buffer.metrics if one.differing]
    return {
        "label": buffer.label,
        "summary": "; ".join(facts),
        "metrics": [
            {"told": _metrics(one, several=len(buffer.metrics) > 1), "figure": figures.histogram(one)}
            for one in fields
        ],
        "heat": figures.heat_map(buffer),
        "elements": [
            {
                "index": element.label,
                "address": f"{element.address:#x}",
                "recorded": pair.recorded,
                "replayed": pair.replayed,
                "ulp": pair.ulp,
            }
            for element, pair in pairs
        ],
    }


def _metrics(metrics: Metrics, *, several: bool) -> str:
    """A line of what more there is to say of one field."""
    facts = [f"{metrics.equal:,} equal bit for bit"]
    unit = "difference" if metrics.max_ulp is None else "ULP"
    facts += [f"by {unit}: {words.spread(metrics)}"] if metrics.steps else []
    facts += [f"relative {words.number(metrics.max_relative, 4)}"] if metrics.max_relative else []
    facts += [f"NMSE {words.number(metrics.nmse, 4)}"] if metrics.recorded and metrics.error.mantissa else []
    facts += [told] if (told := words.shares(metrics)) else []
    head = f"{metrics.element_type} at byte {metrics.offset}: " if several else ""
    return head + "; ".join(facts)


def _listing(listing: Listing | None) -> dict[str, Any] | None:
    if listing is None:
        return None
    return {
        "target": listing.target,
        "missing": listing.missing,
        "found": listing.found,
        "left_out": listing.left_out,
        "lines": [
            {
                "number": line.number,
                "ptx": line.ptx,
                "ir": "\n".join(line.ir),
                "amd": "\n".join(line.amd),
                "guilty": line.number == listing.guilty,
            }
            for line in listing.lines
        ],
    }


def compared(results: Sequence[LaunchResult]) -> str:
    return words.size(sum(buffer.bytes_compared for result in results for buffer in result.buffers))
