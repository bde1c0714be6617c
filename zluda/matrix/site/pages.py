"""The HTML: ``index.html``, ``features.html``, ``trends.html``, and ``programs/NAME.html``.

Nothing is fetched: styles and script lie beside the pages, which open from a file. Without the script all is
there but the filters.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

from zluda.diff.results import CountsAs
from zluda.matrix.changes import Change
from zluda.matrix.site import drawing
from zluda.matrix.site.gather import Cell, Column, Row, Sheet
from zluda.matrix.states import STATES, Night
from zluda.report.names import readable

TONES = {
    CountsAs.HOLDS: "holds",
    CountsAs.FAILS: "fails",
    CountsAs.CANNOT_TELL: "unclear",
    CountsAs.NEUTRAL: "neutral",
}
_SHOWN_CHANGES = 200
_SHOWN_TO_LOOK_AT = 500
_MARKS = {
    Change.REGRESSED: "fails",
    Change.REMOVED: "unclear",
    Change.CHANGED: "unclear",
    Change.ADDED: "neutral",
    Change.IMPROVED: "holds",
}


def render(sheet: Sheet) -> Iterator[tuple[str, str]]:
    """(path in the site, text) of each page."""
    environment = _environment()
    shared = _shared(sheet)
    for name in ("index", "features", "trends"):
        yield f"{name}.html", environment.get_template(f"{name}.html").render(shared, root="", page=name)
    template = environment.get_template("program.html")
    for row in sheet.rows:
        about = {**shared, "root": "../", "page": "", "row": row, "kernels": _kernels(row)}
        yield program_page(row.name), template.render(about)


@cache
def slug(name: str) -> str:
    """A name as a file's: what is not plain is left out, and then told apart by a digest."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:60]
    if plain == name:
        return plain
    return f"{plain}-{hashlib.blake2b(name.encode(), digest_size=4).hexdigest()}"


def program_page(name: str) -> str:
    """Where a program's page is."""
    return f"programs/{slug(name)}.html"


def replay_page(cell: Cell) -> str:
    """Where the page of a cell's replay is."""
    return f"replays/{cell.outcome}.html"


def tone(state: str) -> str:
    """How a state looks: ``holds``, ``fails``, ``unclear`` or ``neutral``. What passes unexpectedly wants a
    look.
    """
    return "unclear" if state in (Night.UNEXPECTED_PASS, Night.FLAKY) else TONES[STATES[state].counts_as]


def _environment() -> Any:
    import jinja2

    def load(name: str) -> str:
        return resources.files("zluda.matrix.site").joinpath("templates", name).read_text("utf-8")

    made = jinja2.Environment(
        loader=jinja2.FunctionLoader(load),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"readable": readable, "tone": tone, "short": _short, "size": _size, "number": _number}
    made.globals |= {
        "STATES": STATES,
        "TONES": TONES,
        "CHANGE_TONES": _MARKS,
        "program_page": program_page,
        "replay_page": replay_page,
        "draw": drawing,
        "tone_of": tone,
    }
    return made


def _shared(sheet: Sheet) -> dict[str, Any]:
    counts = sheet.counts
    kinds = Counter(TONES[STATES[state].counts_as] for state in counts.elements())
    look_at = sheet.to_look_at()
    changes = sheet.changes.cells if sheet.changes is not None else ()
    worst = "fails" if kinds["fails"] else "unclear" if kinds["unclear"] else "holds"
    return {
        "sheet": sheet,
        "headline": _headline(sheet),
        "worst": worst,
        "counts": [(state, counts[state]) for state in STATES if counts[state]],
        "kinds": kinds,
        "look_at": look_at[:_SHOWN_TO_LOOK_AT],
        "look_at_left_out": max(0, len(look_at) - _SHOWN_TO_LOOK_AT),
        "changes": changes[:_SHOWN_CHANGES],
        "speeds": sheet.speeds[:_SHOWN_CHANGES],
        "changes_left_out": max(0, len(changes) - _SHOWN_CHANGES)
        + max(0, len(sheet.speeds) - _SHOWN_CHANGES),
        "features": list(sheet.features),
        "libraries": sorted({name for row in sheet.rows for name in row.tags.get("libraries", {})}),
        "packages": sorted({row.package for row in sheet.rows if row.package}),
        "runs_by_id": {one["id"]: one for one in sheet.runs},
        "trend": _trend(sheet),
    }


def _headline(sheet: Sheet) -> str:
    if sheet.changes is None:
        return "The first run: there is nothing to compare it with"
    counts = sheet.changes.counts
    slower = sum(one.ratio > 1 for one in sheet.speeds)
    words = [f"{counts[change]} cells {change}" for change in Change if counts[change]]
    words = [word.replace("cells", "cell", 1) if word.startswith("1 ") else word for word in words]
    words += [f"{slower} kernel{'s' if slower > 1 else ''} slower"] if slower else []
    return ", ".join(words) if words else "Nothing changed since the run before"


def _trend(sheet: Sheet) -> dict[str, Any]:
    """Shares of each tone, run by run, of all cells and of each column."""

    def shares(columns: Mapping[Column, Counter[str]], only: Column | None) -> Counter[str]:
        found: Counter[str] = Counter()
        for column, states in columns.items():
            if only is None or column == only:
                for state, count in states.items():
                    found[TONES[STATES[state].counts_as]] += count
        return found

    def series(only: Column | None) -> Sequence[tuple[int, Counter[str]]]:
        return [(when, shares(columns, only)) for when, columns in sheet.trend]

    return {"all": series(None), "columns": [(column, series(column)) for column in sheet.columns]}


def _kernels(row: Row) -> list[dict[str, Any]]:
    """Kernels of a program, each with what it came to on each column."""
    names = dict.fromkeys(kernel.name for cell in row.cells.values() for kernel in cell.kernels)
    found = []
    for number, name in enumerate(names):
        cells = {
            column: next((kernel for kernel in cell.kernels if kernel.name == name), None)
            for column, cell in row.cells.items()
        }
        known = [kernel for kernel in cells.values() if kernel is not None]
        found.append(
            {
                "anchor": f"kernel-{number}",
                "name": name,
                "cells": cells,
                "kind": next((kernel.kind for kernel in known if kernel.kind), ""),
                "launches": max(kernel.launches for kernel in known),
                "series": [
                    (column, kernel.series) for column, kernel in cells.items() if kernel and kernel.series
                ],
            }
        )
    return found


def _short(commit: str) -> str:
    return commit[:10]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _size(count: int | None) -> str:
    if count is None:
        return "–"
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count / (1 << 20):.0f} MiB"
