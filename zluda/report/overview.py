"""What a trace holds, printed: the text of ``zluda info``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TextIO

from zluda.diff.proof import Proof
from zluda.report import recording, words
from zluda.report.names import readable
from zluda.report.proof import sentence
from zluda.tracefile.text import printable

if TYPE_CHECKING:
    from rich.table import Table

_SHOWN_ROWS = 30
_SHOWN_FUNCTIONS = 5
_KERNEL_COLUMNS = ("kernel", "module", "launches", "GPU time")
_MODULE_COLUMNS = ("module", "kind", "origin", "size", "PTX")
_LIBRARY_COLUMNS = ("library", "launches", "GPU time", "calls")
_GAP_COLUMNS = ("call", "why", "times")
_UNPROVED_COLUMNS = ("call", "kernel", "verdict", "why")

Rows = list[tuple[str, ...]]


def print_overview(overview: Mapping[str, Any], stream: TextIO) -> None:
    """Print what ``tracefile.overview.overview`` found; as tables where ``stream`` is a terminal."""
    facts = [*recording.facts(overview["meta"]), *_counts(overview)]
    if not stream.isatty():
        stream.write(printable(overview["trace"]) + "\n")
        for name, value in facts:
            stream.write(printable(f"  {name}: {value}") + "\n")
        for title, _, rows in _lists(overview):
            stream.write(f"{title}:\n")
            stream.writelines(
                printable("  " + "  ".join(cell for cell in row if cell)) + "\n" for row in rows
            )
        return
    from rich.console import Console

    console = Console(file=stream)
    console.print(_table("", ("", ""), [(name, value) for name, value in facts], overview["trace"]))
    for title, columns, rows in _lists(overview):
        console.print(_table(title, columns, rows))


def _counts(overview: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    counts = overview["counts"]
    yield "File", words.size(overview["file_bytes"])
    yield "Calls", f"{counts['calls']:,} in {words.plural(counts['threads'], 'thread')}"
    yield "Launches", f"{counts['launches']:,} of {words.plural(counts['kernels'], 'kernel')}"
    yield from _chosen(overview)
    if counts["launches"]:
        yield "Translatable", _translatable(overview)
    proof = Proof.of(overview["meta"], overview["trace"])
    if proof is not None:
        whole = " (of the trace that it was cut from)" if "cut_from" in overview["meta"] else ""
        yield "Proof", sentence(proof) + whole
    times = overview["gpu_times"]
    if times["timed"]:
        yield "GPU times", _timed(times)
    yield "Modules", f"{counts['modules']:,}, {counts['modules_with_ptx']:,} with PTX"
    peak = words.size(counts["allocated_bytes"])
    yield "Allocations", f"{counts['allocations']:,}, at most {peak} at one time"
    yield "Memory changes", f"{counts['pages']:,}, {words.size(counts['page_bytes'])}"
    yield "Gaps", f"{counts['gaps']:,}" if counts["gaps"] else "none"
    for call in overview["open_calls"]:
        yield "Never returned", f"#{call['call']} {call['function']}"


def _chosen(overview: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What was chosen to be recorded, and of how many launches the memory was left out."""
    given = overview["meta"].get("selection")
    if not isinstance(given, dict) or not given:
        return
    options = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in given.items())
    left_out, launches = overview["left_out"], overview["counts"]["launches"]
    if overview["meta"].get("capture") == "calls":
        yield "Selected", f"{options}: memory of no launch"
        return
    text = f"{options}: memory of {launches - sum(left_out.values()):,} of {launches:,} launches"
    over_budget = left_out.get("over_budget")
    yield "Selected", f"{text}; {over_budget:,} came after the budget" if over_budget else text


def _timed(times: Mapping[str, Any]) -> str:
    timed = words.plural(times["timed"], "launch", "launches")
    text = f"of {timed}, {words.seconds(times['gpu_time_ns'] / 1e9)} in all"
    error = times["clock_error_ns"]
    return text if error is None else f"{text}; when, to within {words.seconds(error / 1e9)}"


def _translatable(overview: Mapping[str, Any]) -> str:
    """The share of launches that can be translated, and how near their PTX is to what ran."""
    with_ptx, launches = overview["launches_with_ptx"], overview["counts"]["launches"]
    text = f"PTX for {with_ptx:,} of {words.plural(launches, 'launch', 'launches')}"
    return "; ".join([text, *words.ran(overview["fidelity"])])


def _lists(overview: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, ...], Rows]]:
    """(title, columns, rows) of what is worth a table; empty ones are left out."""
    gaps = [(row["kind"], row["text"], f"{row['count']:,}") for row in overview["gaps"]]
    found = (
        ("Kernels", _KERNEL_COLUMNS, [_kernel(row) for row in overview["kernels"]]),
        (
            "Inside library calls",
            _LIBRARY_COLUMNS,
            [_library(row, overview) for row in overview["libraries"]],
        ),
        ("Modules", _MODULE_COLUMNS, [_module(row) for row in overview["modules"]]),
        ("Not captured", _GAP_COLUMNS, gaps),
        ("Not identical when run again", _UNPROVED_COLUMNS, [_unproved(row) for row in overview["unproved"]]),
    )
    for title, columns, rows in found:
        if rows:
            more = [(f"… and {len(rows) - _SHOWN_ROWS:,} more",)] if len(rows) > _SHOWN_ROWS else []
            yield title, columns, [*rows[:_SHOWN_ROWS], *more]


def _kernel(row: Mapping[str, Any]) -> tuple[str, ...]:
    time_ns = row["gpu_time_ns"]
    module = "" if row["module"] is None else f"module {row['module']}"
    launches = words.plural(row["launches"], "launch", "launches")
    return (
        readable(row["kernel"]),
        module,
        launches,
        words.seconds(None if time_ns is None else time_ns / 1e9),
    )


def _library(row: Mapping[str, Any], overview: Mapping[str, Any]) -> tuple[str, ...]:
    """A library's share of the launches and of the GPU time that is known."""
    share = row["launches"] / (overview["counts"]["launches"] or 1)
    launches = f"{words.plural(row['launches'], 'launch', 'launches')} ({share:.0%})"
    time_ns, all_ns = row["gpu_time_ns"], overview["gpu_times"]["gpu_time_ns"]
    took = "" if time_ns is None else words.seconds(time_ns / 1e9)
    if took and all_ns:
        took += f" ({time_ns / all_ns:.0%})"
    busiest = sorted(row["functions"].items(), key=lambda one: -one[1])[:_SHOWN_FUNCTIONS]
    more = ", …" if len(row["functions"]) > _SHOWN_FUNCTIONS else ""
    return row["library"], launches, took, ", ".join(f"{name}: {count:,}" for name, count in busiest) + more


def _module(row: Mapping[str, Any]) -> tuple[str, ...]:
    ptx = "no PTX" if row["ptx"] is None else f"PTX {row['ptx']}".strip()
    return f"module {row['module']}", row["kind"], row["origin"], words.size(row["image_bytes"]), ptx


def _unproved(row: Mapping[str, Any]) -> tuple[str, ...]:
    return f"#{row['call']}", readable(row["kernel"]), row["verdict"], row["reason"]


def _table(title: str, columns: tuple[str, ...], rows: Rows, caption: str = "") -> Table:
    from rich.box import SIMPLE
    from rich.table import Table
    from rich.text import Text

    heading = Text(printable(title or caption), style="bold")
    table = Table(box=SIMPLE, pad_edge=False, title=heading, title_justify="left", show_header=any(columns))
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table
