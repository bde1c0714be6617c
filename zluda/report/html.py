"""Results as one HTML page that needs nothing else: style and script are inline, it opens from a file.

Without its script the page shows all that it has; the script sorts tables and copies commands. A policy in
the page lets no other script run, and nothing be fetched: names in a trace are anybody's.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Any

from zluda.diff.proof import Proof
from zluda.diff.results import CountsAs, LaunchResult, ReplayResult, Verdict, worst
from zluda.errors import Error
from zluda.report import commands, profile, recording, words
from zluda.report.figures import TONES, lanes
from zluda.report.kernel_sections import compared, sections
from zluda.report.names import briefly, readable
from zluda.report.proof import sentence
from zluda.report.side_by_side import Grid, Unread
from zluda.report.summary import other_reasons, shown_launches
from zluda.report.terminal import MARKS

_PAGE_START = b"<!doctype html"
_SHOWN_ROWS = 5000
_SHOWN_KERNELS = 200
_SHOWN_REASONS = 50
_SHOWN_GUILTY = 20
_OPEN_ROWS = 40  # longer lists start folded


def write_page(
    results: Sequence[ReplayResult],
    path: str | Path,
    *,
    unread: Sequence[Unread] = (),
    made_by: str = "",
) -> None:
    """Write ``results`` to one page at ``path``; missing directories are made. ``made_by``: by which command.

    Raises :class:`Error` naming the file where it cannot be written.
    """
    path = Path(path)
    check_place(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(render(results, unread=unread, made_by=made_by), "utf-8")
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


def render(results: Sequence[ReplayResult], *, unread: Sequence[Unread] = (), made_by: str = "") -> str:
    """The page as text. Every value is escaped: names in a trace are anybody's."""
    import jinja2
    from markupsafe import Markup

    files = resources.files("zluda.report")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=False)
    chip = environment.from_string('<span class="chip {{ tone }}">{{ mark }} {{ name }}</span>')

    @cache  # a page has thousands
    def make_chip(verdict: Verdict) -> Markup:
        tone, mark = TONES[verdict.counts_as], MARKS[verdict.counts_as]
        return Markup(chip.render(tone=tone, mark=mark, name=verdict.value))

    environment.globals["chip"] = make_chip  # macros see globals
    template = environment.from_string(files.joinpath("page.html").read_text("utf-8"))
    style, script = (files.joinpath(f"page.{kind}").read_text("utf-8") for kind in ("css", "js"))
    found = _page(results, unread) | {"made_by": made_by, "policy": _policy(script)}
    return template.render(page=found, style=Markup(style), script=Markup(script))


def _policy(script: str) -> str:
    """Content Security Policy (W3C, level 3): this script, inline styles, and nothing from elsewhere."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


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
        "tone": TONES[counts_as],
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
    lead = f"{words.things(everything)}, {compared(everything)} compared with what the GPU computed"
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
                    cell and {"tone": TONES[cell.verdict.counts_as], "text": cell.verdicts}
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
    kernels, kernels_left_out = sections(result, f"trace-{number}")
    anchors = {one["kernel"]: one["anchor"] for one in kernels if one["section"]}
    drawn, lanes_left_out = lanes(result.results) if len(result.results) > 1 else ([], 0)
    lane_names = briefly(lane.kernel for lane in drawn)
    rows = shown_launches(result, _SHOWN_ROWS)
    counts = result.counts
    kinds = [found.kind for found in result.results]
    return {
        "anchor": f"trace-{number}",
        "name": words.short_name(result.trace),
        "device": words.where(result),
        "emulated": result.emulated,
        "verdict": result.verdict,
        "tone": TONES[result.verdict.counts_as],
        "mark": MARKS[result.verdict.counts_as],
        "headline": _capital(words.headline(result)),
        "facts": _facts(result),
        "launches": f"{kinds.count('launch'):,}",
        "copies": f"{kinds.count('copy'):,}",
        "compared": compared(result.results),
        "seconds": words.seconds(result.seconds),
        "share": [(TONES[verdict.counts_as], counts[verdict]) for verdict in Verdict if counts[verdict]],
        "share_text": ", ".join(f"{counts[v]:,} {v.value}" for v in Verdict if counts[v]),
        "command": commands.of_result(result),
        "lanes": [
            {"anchor": anchors.get(lane.kernel), "name": lane_names[lane.kernel], "lane": lane}
            for lane in drawn
        ],
        "lanes_left_out": lanes_left_out,
        "first_call": result.results[0].call if result.results else 0,
        "last_call": result.results[-1].call if result.results else 0,
        "kernels": kernels,
        "sections": _in_order([one for one in kernels if one["section"]]),
        "kernels_left_out": kernels_left_out,
        "fails": result.verdict.counts_as is CountsAs.FAILS,
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


def _in_order(sections: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What fails in its own right first, then what inherits, then the rest; copies only where they fail."""

    def rank(one: dict[str, Any]) -> tuple[bool, bool, int]:
        return not one["fails"], one["verdict"] is Verdict.INHERITED, one["first"] or 0

    return sorted((one for one in sections if one["fails"] or not one["copy"]), key=rank)


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
        "compared": compared([result]),
        "bytes": sum(buffer.bytes_compared for buffer in result.buffers),
        "recorded": words.seconds(result.recorded_seconds),
        "recorded_seconds": result.recorded_seconds or 0,
        "replayed": words.seconds(result.seconds),
        "replayed_seconds": result.seconds or 0,
        "severity": result.verdict.severity,
    }


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
