"""Results as one HTML page that needs nothing else: styles inline, no scripts, opens from a file."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Any

from zluda.diff.metrics import CLASSES, Metrics
from zluda.diff.proof import Proof
from zluda.diff.results import BufferComparison, CountsAs, LaunchResult, ReplayResult, Verdict, worst
from zluda.errors import Error
from zluda.report import profile, recording, words
from zluda.report.names import readable
from zluda.report.proof import sentence
from zluda.report.side_by_side import Grid, Unread
from zluda.report.summary import failures, other_reasons, shown_launches
from zluda.report.terminal import MARKS

_PAGE_START = b"<!doctype html"
_SHOWN_ROWS = 2000
_SHOWN_KERNELS = 200
_SHOWN_DIFFERENCES = 20
_SHOWN_REASONS = 50
_SHOWN_GUILTY = 20
_OPEN_ROWS = 40  # longer lists start folded

_TONES = {
    CountsAs.HOLDS: "holds",
    CountsAs.FAILS: "fails",
    CountsAs.CANNOT_TELL: "unclear",
    CountsAs.NEUTRAL: "neutral",
}


def write_page(results: Sequence[ReplayResult], path: str | Path, *, unread: Sequence[Unread] = ()) -> None:
    """Write ``results`` to one page at ``path``; missing directories are made.

    Raises :class:`Error` naming the file where it cannot be written.
    """
    path = Path(path)
    check_place(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(render(results, unread=unread), "utf-8")
    except OSError as error:
        raise Error(f"{path}: {error.strerror or error}") from error


def check_place(path: str | Path) -> None:
    """May a page be written at ``path``? Raises :class:`Error` where a file that is no page would be lost.

    Devices and pipes (``/dev/stdout``) take a page without losing anything.
    """
    path = Path(path)
    try:
        if path.is_dir():
            raise Error(f"{path}: is a directory")
        if not path.is_file():
            return
        with path.open("rb") as stream:
            start = stream.read(len(_PAGE_START))
    except OSError as error:
        raise Error(f"{path}: {error.strerror or error}") from error
    if start and start.lower() != _PAGE_START:
        raise Error(f"{path}: is there and is not an HTML page; not replaced, choose another name")


def render(results: Sequence[ReplayResult], *, unread: Sequence[Unread] = ()) -> str:
    """The page as text. Every value is escaped: names in a trace are anybody's."""
    import jinja2
    from markupsafe import Markup

    files = resources.files("zluda.report")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=False)
    chip = environment.from_string('<span class="chip {{ tone }}">{{ mark }} {{ name }}</span>')

    def make_chip(verdict: Verdict) -> Markup:
        tone, mark = _TONES[verdict.counts_as], MARKS[verdict.counts_as]
        return Markup(chip.render(tone=tone, mark=mark, name=verdict.value))

    environment.globals["chip"] = make_chip  # macros see globals
    template = environment.from_string(files.joinpath("page.html").read_text("utf-8"))
    style = Markup(files.joinpath("page.css").read_text("utf-8"))
    return template.render(page=_page(results, unread), style=style)


def _page(results: Sequence[ReplayResult], unread: Sequence[Unread]) -> dict[str, Any]:
    verdict = worst(result.verdict for result in results)
    counts_as = verdict.counts_as
    if unread and counts_as is not CountsAs.FAILS:
        counts_as = CountsAs.CANNOT_TELL
    grid = Grid.of(results, unread)
    headline, lead = _headline(results, unread, grid)
    found = [_result(result, number) for number, result in enumerate(results)]
    return {
        "title": f"zluda: {headline}",
        "headline": _capital(headline),
        "lead": _capital(lead),
        "tone": _TONES[counts_as],
        "mark": MARKS[counts_as],
        "several": len(results) + len(unread) > 1,
        "results": found,
        "columns": grid.columns,
        "traces": _side_by_side(grid, results, found) if len(grid.columns) > 1 else [],
        "unread": unread,
        "unread_mark": MARKS[CountsAs.CANNOT_TELL],
        "verdicts": list(Verdict),
        "version": version("zluda"),
    }


def _headline(results: Sequence[ReplayResult], unread: Sequence[Unread], grid: Grid) -> tuple[str, str]:
    """(verdict, what more there is to say in a sentence) of the whole page."""
    if not results:
        return "nothing was replayed", ""
    if len(results) == 1 and not unread:
        headline, _, rest = words.headline(results[0]).partition("; ")
        return headline, rest
    everything = [found for result in results for found in result.results]
    lead = f"{words.things(everything)}, {_compared(everything)} compared with what the GPU computed"
    guilty = next(grid.guilty(), None)
    divergence = guilty and guilty[2].first_divergence
    if guilty and divergence:
        lead = f"in {words.short_name(guilty[0])} on {guilty[1]} {words.first(divergence)}; {lead}"
    return _headline_of_all(results, unread, grid), lead


def _headline_of_all(results: Sequence[ReplayResult], unread: Sequence[Unread], grid: Grid) -> str:
    several = len(grid.columns) > 1
    holding = [result for result in results if result.verdict.counts_as is CountsAs.HOLDS]
    total = len(results) + len(unread)
    if len(holding) == total:
        name = worst(result.verdict for result in results)
        verdict = name.value if name is Verdict.IDENTICAL else "hold"
        where = f" on {words.listing(grid.columns)}" if several else ""
        traces = len(grid.traces) if several else total
        return (
            f"{f'all {traces} traces' if traces > 1 else words.short_name(results[0].trace)} {verdict}{where}"
        )
    bad = [
        (result.trace, words.where(result), result.verdict.value)
        for result in results
        if result not in holding
    ]
    bad += [(failure.trace, failure.device, "not replayed") for failure in unread]
    trace, device, what = bad[0]
    name_of_first = words.short_name(trace) + (f" on {device}" if several else "")
    return f"{len(holding)} of {total} {'replays' if several else 'traces'} hold; {name_of_first}: {what}"


def _side_by_side(
    grid: Grid, results: Sequence[ReplayResult], shown: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """One entry a trace: its verdict on each device, its kernels on each device, its replays in full."""
    entries = {id(result): entry for result, entry in zip(results, shown, strict=True)}
    traces = []
    for number, trace in enumerate(grid.traces):
        cells = [grid.cell(trace, column) for column in grid.columns]
        replayed = [result for _, result in grid.results(trace)]
        rows = grid.kernels(trace)
        kernels = [
            {
                "kernel": row.kernel,
                "readable": readable(row.kernel),
                "calls": f"{row.calls:,}",
                "cells": [
                    cell and {"tone": _TONES[cell.verdict.counts_as], "text": cell.verdicts}
                    for cell in row.cells
                ],
            }
            for row in rows[:_SHOWN_KERNELS]
        ]
        traces.append(
            {
                "anchor": f"side-by-side-{number}",
                "name": words.short_name(trace),
                "cells": [
                    {
                        "result": entries[id(cell)] if isinstance(cell, ReplayResult) else None,
                        "unread": cell if isinstance(cell, Unread) else None,
                    }
                    for cell in cells
                ],
                "kernels": kernels,
                "kernels_left_out": max(0, len(rows) - _SHOWN_KERNELS),
                "recording": recording.facts(replayed[0].meta) if replayed else [],
                "results": [
                    entry for result, entry in zip(results, shown, strict=True) if result.trace == trace
                ],
            }
        )
    return traces


def _profile(result: ReplayResult) -> dict[str, Any] | None:
    """Where the time went, of a replay that was profiled."""
    found = result.meta.get("profile")
    if found is None:
        return None
    return {
        "heading": _capital(profile.heading(found)),
        "columns": [_capital(name) for name in profile.COLUMNS],
        "kernels": [
            {"cells": profile.cells(kernel), "name": kernel["kernel"], "advice": kernel["advice"]}
            for kernel in profile.top(found)
        ],
    }


def _result(result: ReplayResult, number: int) -> dict[str, Any]:
    failing = failures(result, _SHOWN_DIFFERENCES)
    rows = shown_launches(result, _SHOWN_ROWS)
    counts = result.counts
    total_failing = sum(count for verdict, count in counts.items() if verdict.counts_as is CountsAs.FAILS)
    kinds = [found.kind for found in result.results]
    return {
        "anchor": f"trace-{number}",
        "name": words.short_name(result.trace),
        "device": words.where(result),
        "emulated": result.emulated,
        "verdict": result.verdict,
        "tone": _TONES[result.verdict.counts_as],
        "mark": MARKS[result.verdict.counts_as],
        "headline": _capital(words.headline(result)),
        "facts": _facts(result),
        "launches": f"{kinds.count('launch'):,}",
        "copies": f"{kinds.count('copy'):,}",
        "compared": _compared(result.results),
        "seconds": words.seconds(result.seconds),
        "share": [(_TONES[verdict.counts_as], counts[verdict]) for verdict in Verdict if counts[verdict]],
        "share_text": ", ".join(f"{counts[v]:,} {v.value}" for v in Verdict if counts[v]),
        "differences": [_difference(found, result) for found in failing],
        "differences_left_out": total_failing - len(failing),
        "reasons": other_reasons(result, _SHOWN_REASONS),
        "relocated_title": _capital(words.relocated(result)),
        "relocated": result.relocated,
        "profile": _profile(result),
        "rows": [_row(found, result) for found in rows],
        "classed": bool(result.classes),
        "rows_title": _capital(words.things(result.results)),
        "timed": any(found.recorded_seconds is not None for found in rows),
        "rows_left_out": len(result.results) - len(rows),
        "open": len(rows) <= _OPEN_ROWS,
    }


def _facts(result: ReplayResult) -> list[tuple[str, str]]:
    facts = [("Trace", result.trace), ("Replayed on", words.where(result)), ("Numerics", result.numerics)]
    if result.mode == "isolated":
        facts.append(("Mode", "isolated: each launch from its recorded inputs"))
    guilty = words.at_fault(result)
    if guilty:
        more = f" and {len(guilty) - _SHOWN_GUILTY} more" if len(guilty) > _SHOWN_GUILTY else ""
        facts.append((_capital(words.AT_FAULT), "; ".join(guilty[:_SHOWN_GUILTY]) + more))
    facts += recording.facts(result.meta)
    ran = words.ran(result.fidelity)
    facts += [("Launches", "; ".join(ran))] if ran else []
    proof = Proof.of(result.meta, result.trace)
    facts += [("Proof", sentence(proof))] if proof is not None else []
    return [*facts, ("Replay took", words.seconds(result.seconds))]


def _row(result: LaunchResult, of: ReplayResult) -> dict[str, Any]:
    known = of.classes.get(result.kernel)
    return {
        "call": result.call,
        "class": "" if known is None else known.kind.value,
        "bound": of.bound(result.kernel),
        "kernel": result.kernel,
        "readable": readable(result.kernel),
        "grid": words.dimensions(result.grid),
        "block": words.dimensions(result.block),
        "verdict": result.verdict,
        "compared": _compared([result]),
        "recorded": words.seconds(result.recorded_seconds),
        "replayed": words.seconds(result.seconds),
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
    return {
        "label": buffer.label,
        "summary": "; ".join(facts),
        "metrics": [
            _metrics(one, several=len(buffer.metrics) > 1) for one in buffer.metrics if one.differing
        ],
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


def _compared(results: Sequence[LaunchResult]) -> str:
    return words.size(sum(buffer.bytes_compared for result in results for buffer in result.buffers))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
