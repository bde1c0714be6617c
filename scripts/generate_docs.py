#!/usr/bin/env python3
"""Write the pages of ``docs/`` that say what is supported, and the tables of two others.

They come from the tables that the code itself uses.

    scripts/generate_docs.py [--check]

``--check`` writes nothing and fails when a page is not what would be written.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / part) for part in ("tests/conformance", "tests/support", "scripts")]

from ptx_pages import exactness_page, ptx_page  # noqa: E402

from zluda.compiler.amd import approximate as amd  # noqa: E402
from zluda.compiler.cpu import approximate as cpu  # noqa: E402
from zluda.compiler.lower.native import Row  # noqa: E402
from zluda.diff.blame import Sure  # noqa: E402
from zluda.isolate.layers import ROWS  # noqa: E402
from zluda.numerics.bounds import BOUNDS  # noqa: E402

GENERATED = "<!-- written by scripts/generate_docs.py (make docs) -->\n"


def calls_page() -> str:
    """Driver entries by what a replay does with them."""
    functions = json.loads((ROOT / "zluda" / "driver" / "driver_api.json").read_text())["functions"]
    bases: dict[str, dict[str, object]] = {}
    for entry in functions.values():
        bases.setdefault(entry["base"], entry)
    replayed = sorted(base for base, entry in bases.items() if entry["replay"])
    queries = sorted(
        base for base, entry in bases.items() if not entry["replay"] and entry["effect"] == "query"
    )
    hints = sorted(base for base, entry in bases.items() if not entry["replay"] and entry["effect"] == "hint")
    gaps = sorted(
        base for base, entry in bases.items() if not entry["replay"] and entry["effect"] == "effect"
    )
    sections = {
        "Recorded and replayed": replayed,
        "Recorded; a query, which a replay has no need of": queries,
        "Recorded; a hint, without effect on results": hints,
        "Recorded and counted as a gap: it has an effect that is not replayed yet": gaps,
    }
    lines = ["# Supported driver calls", "", GENERATED]
    lines += [
        f"{len(functions)} entries of the CUDA driver API ({len(bases)} without `_v2`, `_ptsz`, `_ptds`)",
        "are hooked and recorded with their decoded arguments. The runtime API stands on these.",
        "",
    ]
    for title, names in sections.items():
        lines += [f"## {title} ({len(names)})", "", ", ".join(f"`{name}`" for name in names), ""]
    return "\n".join(lines)


def numerics_page() -> str:
    """The page as it is, with its tables written anew."""
    tables = {"bounds": _bounds(), "amd": _native(amd.NATIVE), "cpu": _native(cpu.NATIVE)}
    return _with_tables("numerics.md", tables)


def isolate_page() -> str:
    """The same of the page on finding the layer at fault."""
    return _with_tables("isolate.md", {"layers": _layers()})


def _layers() -> list[str]:
    """The decision table, a line a row; the first that fits decides."""
    lines = ["| seen | layer | |", "|---|---|---|"]
    for row in ROWS:
        likely = "" if row.sure is Sure.CERTAIN or not row.layer.named else ", likely"
        lines.append(f"| {', '.join(sorted(row.when))} | {row.layer}{likely} | {row.reason} |")
    return lines


def _with_tables(page: str, tables: Mapping[str, Sequence[str]]) -> str:
    text = (ROOT / "docs" / page).read_text()
    for name, lines in tables.items():
        begin, end = f"<!-- table: {name} -->\n", "<!-- end of table -->"
        before, _, rest = text.partition(begin)
        text = before + begin + "\n".join([*lines, ""]) + end + rest.partition(end)[2]
    return text


def _bounds() -> list[str]:
    """Every approximate instruction's bound, a line a range."""
    lines = ["| instruction | up to | documented | measured |", "|---|---|---|---|"]
    for bound in BOUNDS.values():
        for piece in bound.pieces:
            upto = "" if piece.upto == float("inf") else f"{piece.upto:.6g}"
            measured = "any in [-1, 1]" if piece.measured.absolute >= 2 else piece.measured
            lines.append(f"| `{bound.instruction}` | {upto} | {piece.documented} | {measured} |")
    return lines


def _native(rows: Mapping[str, Row]) -> list[str]:
    """How a target computes each."""
    lines = ["| instruction | by | around | accuracy |", "|---|---|---|---|"]
    return lines + [
        f"| `{name}` | {', '.join(f'`{part}`' for part in row.machine.split(', '))} | {row.around} "
        f"| {row.accuracy} |"
        for name, row in rows.items()
    ]


PAGES = {
    "ptx-support.md": ptx_page,
    "exactness.md": exactness_page,
    "supported-calls.md": calls_page,
    "numerics.md": numerics_page,
    "isolate.md": isolate_page,
}


def main() -> int:
    """Command line; 1 when ``--check`` finds an old page."""
    parser = argparse.ArgumentParser(description="Write the tables of what is supported.")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    old = []
    for name, make in PAGES.items():
        path, text = ROOT / "docs" / name, make()
        if options.check:
            old += [name] if not path.exists() or path.read_text() != text else []
        else:
            path.write_text(text)
    if old:
        print(f"not up to date: {', '.join(old)}; run make docs")
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main())
