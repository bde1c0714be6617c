"""A night as files that other programs take: JUnit XML, tables, a summary in Markdown, a badge, a feed."""

from __future__ import annotations

import json
import xml.etree.ElementTree as xml
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zluda.diff.results import CountsAs
from zluda.matrix.changes import Change
from zluda.matrix.site.as_json import CELL, to_json
from zluda.matrix.site.gather import Cell, Sheet
from zluda.matrix.states import STATES, Night

if TYPE_CHECKING:
    import pandas

_ATOM = "http://www.w3.org/2005/Atom"
_FEED_RUNS = 30
_SHOWN = 50
_COLOURS = {CountsAs.HOLDS: "brightgreen", CountsAs.FAILS: "red", CountsAs.CANNOT_TELL: "yellow"}
_NOT_XML = {code: "�" for code in (*range(9), 11, 12, *range(14, 32), 0xFFFE, 0xFFFF)}
"""Characters that XML 1.0 cannot hold, even escaped."""


def write_files(sheet: Sheet, directory: Path) -> None:
    """Write them all into ``directory``, which is there."""
    told = json.dumps(to_json(sheet), indent=1, ensure_ascii=False)
    (directory / "matrix.json").write_text(told + "\n", "utf-8")
    (directory / "junit.xml").write_bytes(junit(sheet))
    frame = cells_frame(sheet)
    frame.to_csv(directory / "cells.csv", index=False)
    frame.to_parquet(directory / "cells.parquet", index=False)
    (directory / "summary.md").write_text(markdown(sheet), "utf-8")
    (directory / "badge.json").write_text(json.dumps(badge(sheet)) + "\n", "utf-8")
    (directory / "feed.xml").write_bytes(feed(sheet))


def cells_frame(sheet: Sheet) -> pandas.DataFrame:
    """One row a cell."""
    import pandas

    rows = [
        {
            "run": sheet.run["id"],
            "started": sheet.run["started"],
            "commit": sheet.run["commit"],
            "program": row.name,
            "package": row.package,
            "device": one.column.device,
            "numerics": one.column.numerics,
            **{name: getattr(one, name) for name in CELL if name != "suspects"},
        }
        for row in sheet.rows
        for one in row.cells.values()
    ]
    whole = {"peak_bytes": "Int64", "since": "Int64"}  # integers, of which some are missing
    return pandas.DataFrame(rows).astype(whole)


def junit(sheet: Sheet) -> bytes:
    """A suite a column, a case a program. What cannot be told is skipped, what fails a failure."""
    suites = xml.Element("testsuites", name="zluda matrix")
    for column in sheet.columns:
        cells = [(row, row.cells[column]) for row in sheet.rows if column in row.cells]
        kinds = [_junit_kind(one) for _, one in cells]
        suite = xml.SubElement(
            suites,
            "testsuite",
            name=f"{column.device} {column.numerics}",
            tests=str(len(cells)),
            failures=str(kinds.count("failure")),
            errors=str(kinds.count("error")),
            skipped=str(kinds.count("skipped")),
            time=f"{sum(one.seconds or 0 for _, one in cells):.3f}",
            timestamp=str(sheet.run["started"])[:19],
            hostname=_clean(sheet.run["host"]),
        )
        for (row, one), kind in zip(cells, kinds, strict=True):
            case = xml.SubElement(
                suite,
                "testcase",
                classname=f"matrix.{column.device}.{column.numerics}",
                name=_clean(row.name),
                time=f"{one.seconds or 0:.3f}",
            )
            if kind:
                told = xml.SubElement(
                    case, kind, message=_clean(f"{one.state}: {one.reason or one.expected}")
                )
                told.text = _clean(one.reproduce) or None
                if kind != "skipped":
                    told.set("type", one.state)
    return _xml(suites)


def _junit_kind(one: Cell) -> str:
    if one.state == Night.INFRASTRUCTURE:
        return "error"
    counts = STATES[one.state].strict
    return {CountsAs.HOLDS: "", CountsAs.FAILS: "failure"}.get(counts, "skipped")


def markdown(sheet: Sheet) -> str:
    """The night on one page, for a pull request or a chat."""
    total = sum(sheet.counts.values())
    counts = ", ".join(f"{count} {state}" for state, count in sheet.counts.most_common())
    commit = f"`{sheet.run['commit'][:10]}` " if sheet.run["commit"] else ""
    lines = [
        f"## Run {sheet.run['id']}: {total} cells",
        "",
        f"{commit}{_cell_text(sheet.run['subject'])}",
        "",
        counts,
        "",
    ]
    if sheet.changes is not None:
        lines += [f"### Since run {sheet.changes.a}", ""]
        changed = sheet.changes.cells
        if not changed and not sheet.speeds:
            lines += ["Nothing changed.", ""]
        else:
            lines += ["| | program | device | before | after | why |", "|---|---|---|---|---|---|"]
            for cell in changed[:_SHOWN]:
                why = _cell_text(cell.reason) if cell.change is not Change.IMPROVED else ""
                where = f"{_cell_text(cell.program)} | {cell.device} {cell.numerics}"
                lines.append(f"| {cell.change} | {where} | {cell.before} | {cell.after} | {why} |")
            for one in sheet.speeds[:_SHOWN]:
                word = "slower" if one.ratio > 1 else "faster"
                where = f"{_cell_text(one.program)} | {one.device} {one.numerics}"
                values = f"{one.before:.4g} | {one.after:.4g} {one.what}"
                lines.append(f"| {word} | {where} | {values} | {_cell_text(one.kernel)} |")
            left = max(0, len(changed) - _SHOWN) + max(0, len(sheet.speeds) - _SHOWN)
            lines += [f"| … | {left} more | | | | |"] if left else []
            lines.append("")
    lines += [
        "### By device",
        "",
        "| device | holds | as expected | fails | cannot tell |",
        "|---|---|---|---|---|",
    ]
    for column in sheet.columns:
        cells = [row.cells[column] for row in sheet.rows if column in row.cells]
        kinds = [STATES[one.state].strict for one in cells]
        counted = [
            kinds.count(kind)
            for kind in (CountsAs.HOLDS, CountsAs.NEUTRAL, CountsAs.FAILS, CountsAs.CANNOT_TELL)
        ]
        lines.append(f"| {column.device} {column.numerics} | {' | '.join(map(str, counted))} |")
    return "\n".join(lines) + "\n"


def _cell_text(text: str) -> str:
    """Text in a table of Markdown: on one line, no mark-up."""
    flat = " ".join(str(text).split())
    for character in "\\`*_|<>[]":
        flat = flat.replace(character, f"\\{character}")
    return flat


def badge(sheet: Sheet) -> dict[str, Any]:
    """What shields.io's endpoint badge reads."""
    kinds = [STATES[state].strict for state in sheet.counts.elements()]
    asked = [kind for kind in kinds if kind is not CountsAs.NEUTRAL]
    worst = next((kind for kind in (CountsAs.FAILS, CountsAs.CANNOT_TELL) if kind in asked), CountsAs.HOLDS)
    return {
        "schemaVersion": 1,
        "label": "matrix",
        "message": f"{asked.count(CountsAs.HOLDS)} of {len(asked)} hold",
        "color": _COLOURS[worst] if asked else "lightgrey",
    }


def feed(sheet: Sheet) -> bytes:
    """An Atom feed with an entry a run, the newest first."""
    xml.register_namespace("", _ATOM)
    top = xml.Element(f"{{{_ATOM}}}feed")

    def add(parent: xml.Element, name: str, text: str = "", **attributes: str) -> xml.Element:
        made = xml.SubElement(parent, f"{{{_ATOM}}}{name}", attributes)
        made.text = _clean(text) or None
        return made

    totals = {when: sum(columns.values(), start=Counter[str]()) for when, columns in sheet.trend}
    add(top, "title", "zluda matrix")
    add(top, "id", f"urn:zluda:matrix:{sheet.run['corpus']}".replace(" ", "%20"))
    add(top, "updated", str(sheet.run["finished"]))
    add(add(top, "author"), "name", "zluda")
    for one in reversed(sheet.runs[-_FEED_RUNS:]):
        entry = add(top, "entry")
        counts: Mapping[str, int] = totals.get(one["id"], {})
        told = ", ".join(f"{count} {state}" for state, count in counts.items()) or "no cells"
        add(entry, "title", f"Run {one['id']}: {told}")
        add(entry, "id", f"urn:zluda:matrix:run:{one['id']}:{one['started']}")
        add(entry, "updated", str(one["finished"]))
        add(entry, "link", href="index.html")
        summary = f"{one['commit'][:10]} {one['subject']}".strip()
        if sheet.changes is not None and one["id"] == sheet.run["id"]:
            changed = ", ".join(
                f"{count} {change}" for change, count in sheet.changes.counts.items() if count
            )
            summary += f"\n{changed or 'nothing changed'}"
        add(entry, "summary", summary or "no commit")
    return _xml(top)


def _clean(text: str) -> str:
    return str(text).translate(_NOT_XML)


def _xml(element: xml.Element) -> bytes:
    xml.indent(element)
    return bytes(xml.tostring(element, "utf-8", xml_declaration=True)) + b"\n"
