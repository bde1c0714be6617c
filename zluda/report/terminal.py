"""A replay's result on a terminal, or as plain lines in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TextIO

from zluda.diff.results import CountsAs, LaunchResult, ReplayResult, Verdict
from zluda.report import words
from zluda.report.names import briefly, readable
from zluda.report.side_by_side import Cell, Grid, Unread
from zluda.report.summary import KernelSummary, by_kernel, failures, other_reasons
from zluda.tracefile import Fidelity
from zluda.tracefile.text import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_SHOWN_FAILURES = 10
_SHOWN_KERNELS = 40
_SHOWN_REASONS = 10
_SHOWN_LINES = 20  # of what kernels printed

Column = tuple[Literal["left", "right"], Callable[[KernelSummary], str]]
"""(alignment, a kernel's cell)"""

_NARROW = 100  # columns; what needs more is told in lines there
_WRAPPED = ("kernel", "verdict", "buffer")
_NUMBERS = ("call", "element", "recorded", "replayed", "ULP")

MARKS = {CountsAs.HOLDS: "✓", CountsAs.FAILS: "✗", CountsAs.CANNOT_TELL: "?", CountsAs.NEUTRAL: "–"}
_COLOURS = {
    CountsAs.HOLDS: "green",
    CountsAs.FAILS: "bold red",
    CountsAs.CANNOT_TELL: "yellow",
    CountsAs.NEUTRAL: "dim",
}


def print_result(result: ReplayResult, stream: TextIO | None = None) -> None:
    """Print the verdict in words, then kernels, failures and reasons; as tables where ``stream`` is a
    terminal.
    """
    stream = stream or sys.stdout
    if stream.isatty():
        _print_tables(result, stream)
    else:
        stream.writelines(f"{line}\n" for line in plain_lines(result))


def print_grid(grid: Grid, stream: TextIO | None = None) -> None:
    """Print a table of verdicts, traces down and devices across."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE, pad_edge=False)
    for name in ("trace", *grid.columns):
        table.add_column(name, overflow="fold")
    for trace in grid.traces:
        cells = (_cell(grid.cell(trace, column)) for column in grid.columns)
        table.add_row(
            Text(printable(words.short_name(trace))), *(Text(text, style=style) for text, style in cells)
        )
    Console(file=stream or sys.stdout).print(table)


def _cell(cell: Cell) -> tuple[str, str]:
    """(text, style)"""
    if cell is None:
        return "", ""
    if isinstance(cell, Unread):
        return "not replayed", _COLOURS[CountsAs.CANNOT_TELL]
    counts_as = cell.verdict.counts_as
    return f"{MARKS[counts_as]} {cell.verdict.value}", _COLOURS[counts_as]


def title(result: ReplayResult) -> str:
    """The verdict's mark, the trace and the verdict in words."""
    return printable(f"{MARKS[result.verdict.counts_as]} {result.trace}: {words.headline(result)}")


def plain_lines(result: ReplayResult) -> Iterator[str]:
    """The summary without colours or frames: the verdict, then a line for each thing that does not hold."""
    yield title(result)
    yield from _failure_lines(result, failures(result, _SHOWN_FAILURES))
    for line in words.at_fault(result)[:_SHOWN_FAILURES]:
        yield printable(f"  {words.AT_FAULT}: {line}")
    for reason, count in other_reasons(result, _SHOWN_REASONS):
        yield printable(f"  {words.plural(count, 'time')}: {reason}")
    if result.relocated:
        yield f"  {words.relocated(result)}"
    yield from printed_lines(result)
    yield from profile_lines(result)


def _failure_lines(result: ReplayResult, failing: Sequence[LaunchResult]) -> Iterator[str]:
    for failure in failing:
        yield printable(
            f"  #{failure.call} {readable(failure.kernel)}: {failure.verdict.value}{_because(failure)}"
            f"{_held_to(result, failure)}{_blamed(result, failure)}"
        )


def profile_lines(result: ReplayResult) -> Iterator[str]:
    """Where the time went, of a replay that was profiled."""
    found = result.meta.get("profile")
    if found is not None:
        from zluda.report import profile

        yield from (printable(f"  {line}") for line in profile.lines(found))


def printed_lines(result: ReplayResult) -> Iterator[str]:
    """What kernels printed, by launch: the first lines of all."""
    lines = [(one, line) for one in result.results for line in one.printed.splitlines()]
    for one, line in lines[:_SHOWN_LINES]:
        yield printable(f"  #{one.call} {readable(one.kernel)} printed: {line}")
    if len(lines) > _SHOWN_LINES:
        yield f"  … and {len(lines) - _SHOWN_LINES} more printed lines (--json has all)"


def _because(failure: LaunchResult) -> str:
    found = failure.first_difference
    detail = words.difference(*found) if found else ""
    sibling = failure.fidelity is Fidelity.SIBLING and found is not None
    ran = "the GPU ran machine code of the same source, not this PTX" if sibling else ""
    return "".join(f", {part}" for part in (failure.reason, detail, ran) if part)


def _held_to(result: ReplayResult, failure: LaunchResult) -> str:
    """``; held to 0 ULP: …``, of what was compared and is outside."""
    told = words.held_to(result, failure.kernel) if failure.verdict is Verdict.DIFFERS else ""
    return f"; class {told}" if told else ""


def _blamed(result: ReplayResult, failure: LaunchResult) -> str:
    """``; layer: lowering: …``, where that was asked for."""
    blame = result.blame.get(failure.call)
    return "" if blame is None else f"; layer: {blame}"


def _print_tables(result: ReplayResult, stream: TextIO) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream)
    console.print(Text(title(result), style=_COLOURS[result.verdict.counts_as]))
    console.print(_kernel_table(result))
    failing = failures(result, _SHOWN_FAILURES)
    if failing and console.width < _NARROW:
        for line in _failure_lines(result, failing):
            console.print(Text(line))
    elif failing:
        console.print(_failure_table(failing, sum(result.counts[v] for v in Verdict if _fails(v))))
        for kernel in dict.fromkeys(one.kernel for one in failing if one.verdict is Verdict.DIFFERS):
            if told := words.held_to(result, kernel):
                console.print(Text(printable(f"  {readable(kernel)}: {told}"), style="dim"))
        for one in failing:
            if one.call in result.blame:
                console.print(Text(printable(f"  #{one.call} layer: {result.blame[one.call]}")))
    for line in words.at_fault(result)[:_SHOWN_FAILURES]:
        console.print(Text(printable(f"  {words.AT_FAULT}: {line}")))
    for reason, count in other_reasons(result, _SHOWN_REASONS):
        console.print(Text(printable(f"  {words.plural(count, 'time')}: {reason}"), style="yellow"))
    if result.relocated:
        console.print(Text(f"  {words.relocated(result)}", style="dim"))
    for line in printed_lines(result):
        console.print(Text(line))
    if "profile" in result.meta:
        _print_profile(result.meta["profile"], console)


def _print_profile(found: Mapping[str, Any], console: Console) -> None:
    from rich.box import SIMPLE
    from rich.table import Table
    from rich.text import Text

    from zluda.report import profile

    if console.width < _NARROW:
        for line in profile.lines(found):
            console.print(Text(printable(line)))
        return
    table = Table(box=SIMPLE, pad_edge=False)
    for name in profile.COLUMNS:
        side: Literal["left", "right"] = "left" if name in ("kernel", "limit") else "right"
        table.add_column(name, justify=side, overflow="fold", no_wrap=name != "kernel")
    console.print(Text(printable(profile.heading(found))))
    names = briefly(kernel["kernel"] for kernel in profile.top(found))
    for kernel in profile.top(found):
        _, *figures = profile.cells(kernel)
        table.add_row(*(Text(printable(cell)) for cell in (names[kernel["kernel"]], *figures)))
    console.print(table)
    for kernel in profile.top(found):
        console.print(Text(printable(f"  {names[kernel['kernel']]}: {kernel['advice']}"), style="dim"))


def _fails(verdict: Verdict) -> bool:
    return verdict.counts_as is CountsAs.FAILS


def _kernel_table(result: ReplayResult) -> Table:
    from rich.box import SIMPLE
    from rich.table import Table
    from rich.text import Text

    kernels = by_kernel(result)
    left_out = len(kernels) - _SHOWN_KERNELS
    table = Table(box=SIMPLE, pad_edge=False, caption=f"… and {left_out} more" if left_out > 0 else None)
    columns = _columns(result, kernels)
    for name, (justify, _) in columns.items():
        table.add_column(name, justify=justify, overflow="fold", no_wrap=name not in _WRAPPED)
    for kernel in kernels[:_SHOWN_KERNELS]:
        style = _COLOURS[kernel.verdict.counts_as]
        cells = {name: printable(text(kernel)) for name, (_, text) in columns.items()}
        table.add_row(*(Text(cell, style=style if name == "verdict" else "") for name, cell in cells.items()))
    return table


def _columns(result: ReplayResult, kernels: list[KernelSummary]) -> dict[str, Column]:
    """Those that have something to say of this replay."""
    names = briefly(kernel.kernel for kernel in kernels)
    columns: dict[str, Column] = {
        "kernel": ("left", lambda kernel: names[kernel.kernel]),
        "calls": ("right", lambda kernel: f"{kernel.total:,}"),
        "verdict": ("left", lambda kernel: kernel.verdicts),
        "compared": ("right", lambda kernel: words.size(kernel.bytes_compared)),
    }
    if result.classes:
        columns["class"] = ("left", lambda kernel: _class(result, kernel))
    if any(kernel.recorded_seconds is not None for kernel in kernels):
        columns["GPU time"] = ("right", lambda kernel: words.seconds(kernel.recorded_seconds))
    if not result.emulated:  # an emulator's time is nobody's GPU time
        columns["replay"] = ("right", lambda kernel: words.seconds(kernel.seconds))
    return columns


def _class(result: ReplayResult, kernel: KernelSummary) -> str:
    found = result.classes.get(kernel.kernel)
    return "" if found is None else str(found.kind.value)


def _failure_table(failing: list[LaunchResult], total: int) -> Table:
    from rich.box import SIMPLE
    from rich.markup import escape
    from rich.table import Table

    more = total - len(failing)
    table = Table(box=SIMPLE, pad_edge=False, caption=f"… and {more:,} more" if more > 0 else None)
    for name in ("call", "kernel", "verdict", "buffer", "element", "recorded", "replayed", "ULP"):
        side: Literal["left", "right"] = "right" if name in _NUMBERS else "left"
        table.add_column(name, justify=side, overflow="fold", no_wrap=name not in _WRAPPED)
    names = briefly(failure.kernel for failure in failing)
    for failure in failing:
        head = (f"#{failure.call}", escape(printable(names[failure.kernel])), str(failure.verdict.value))
        found = failure.first_difference
        if found is None:
            table.add_row(*head, escape(printable(failure.reason)))
            continue
        buffer, element = found
        pair = words.Pair.of(buffer, element)
        place = (escape(printable(f"{buffer.label} ({words.typed(buffer)})")), element.label)
        table.add_row(*head, *place, pair.recorded, pair.replayed, pair.ulp)
    return table
