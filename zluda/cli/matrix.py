"""`zluda matrix`: a corpus over devices, night after night."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zluda.cli.progress import progress_bar
from zluda.errors import Error

if TYPE_CHECKING:
    from zluda.matrix.changes import Comparison
    from zluda.matrix.speed import SpeedChange
    from zluda.matrix.store import CellResult, Store

_STORE = click.option(
    "--store", "url", required=True, metavar="URL", help="A file for SQLite, or a URL as SQLAlchemy has them."
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
_CORPUS = click.option(
    "--corpus",
    metavar="DIR",
    default="corpus",
    show_default=True,
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Where the traces are: NAME/trace.bin or NAME.bin.",
)
_EXPECTATIONS = click.option(
    "--expectations",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="What is known to fail, a file a device (default: expectations in the corpus).",
)


@click.group(name="matrix")
def command() -> None:
    """Run a corpus of traces on devices night after night, and say what changed.

    Example: zluda matrix run --store nights.db --device cpu,gfx1030
    """
    try:
        import zluda.matrix.store
        import zluda.matrix.watching  # noqa: F401
    except ModuleNotFoundError as error:
        raise Error(f"zluda matrix needs {error.name}: pip install 'zluda[matrix]'") from None


@command.command()
@click.argument("programs", nargs=-1, metavar="[PROGRAM]...")
@_STORE
@_CORPUS
@_EXPECTATIONS
@click.option(
    "--device",
    "-d",
    "devices",
    multiple=True,
    metavar="DEVICE[,DEVICE]...",
    help="As for `zluda replay`; several at once (default: cpu,gfx1030).",
)
@click.option(
    "--numerics",
    multiple=True,
    type=click.Choice(["nvidia", "native"]),
    help="Both may be given; by default each device's own.",
)
@click.option("--jobs", "-j", type=click.IntRange(1), default=1, metavar="N", help="Cells at once.")
@click.option(
    "--time-limit",
    type=click.FloatRange(1),
    default=600,
    show_default=True,
    metavar="SECONDS",
    help="Of a cell.",
)
@click.option(
    "--memory-limit",
    type=click.IntRange(64),
    default=8192,
    show_default=True,
    metavar="MIB",
    help="Of a cell.",
)
@click.option(
    "--retries",
    type=click.IntRange(0),
    default=2,
    show_default=True,
    metavar="N",
    help="How often an unexpected failure is run again before it is called one.",
)
@click.option(
    "--samples",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    metavar="N",
    help="Measured replays of what holds; times are compared from 5 on.",
)
@click.option("--resume", is_flag=True, help="Go on with the last run, which was interrupted.")
@click.option("--fresh", is_flag=True, help="Run every cell, also where nothing that decides it changed.")
@click.option("--strict", is_flag=True, help="Fail where something passes that was expected to fail.")
@click.option("--allow", default="", metavar="STATES", help="Accept no-ptx, unsupported, gap or not-run.")
@_JSON
def run(
    programs: tuple[str, ...],
    url: str,
    corpus: Path,
    expectations: Path | None,
    devices: tuple[str, ...],
    numerics: tuple[str, ...],
    jobs: int,
    time_limit: float,
    memory_limit: int,
    retries: int,
    samples: int,
    resume: bool,
    fresh: bool,
    strict: bool,
    allow: str,
    as_json: bool,
) -> None:
    """Run each program on each device, each cell in a process of its own, and keep what it comes to.

    A cell whose trace, device, machine code and runtime are as in an earlier night takes that verdict over.

    Exits 0 when something holds and the rest is as expected, 1 when something fails, 2 when something could
    not be told.

    Example: zluda matrix run --store nights.db --device cpu,gfx1030,gfx1100 -j 4 --strict
    """
    from zluda.matrix.expectations import DIRECTORY, read_expectations
    from zluda.matrix.night import Plan, facts, places, run_night
    from zluda.matrix.programs import find_programs
    from zluda.matrix.states import Night, exit_status
    from zluda.matrix.store import Store
    from zluda.matrix.watching import Limits

    accepted = _allowed(allow)
    chosen = _devices(devices or ("cpu,gfx1030",))
    cells = places(find_programs(corpus, programs), chosen, numerics)
    directory = expectations or corpus / DIRECTORY
    if expectations is not None and not expectations.is_dir():
        raise Error(f"--expectations {expectations}: no such directory")
    known = read_expectations(directory, chosen)
    for line in known.expired():
        click.echo(f"{line.place}: expired on {line.until}, counts no more: {line.reason}", err=True)
    plan = Plan(
        limits=Limits(seconds=time_limit, bytes=memory_limit << 20),
        jobs=jobs,
        retries=retries,
        samples=samples,
        fresh=fresh,
    )
    options = {"devices": chosen, "numerics": list(numerics), "programs": list(programs), "samples": samples}
    with Store(url, create=True) as store:
        number = _number(store, facts(corpus, options), resume=resume)
        with progress_bar("matrix", "cells") as progress:
            for place, result in run_night(store, number, cells, plan, known, progress=progress):
                if not as_json:
                    click.echo(_line(place.program.name, place.device, place.numerics, result))
        found = store.cells(number)
    skipped = (found["state"] == Night.NOT_RUN) & (found["expected"] != "")
    counts = {str(state): int(count) for state, count in found["state"].value_counts().items()}
    taken = int(found["taken_over"].sum())
    if as_json:
        click.echo(json.dumps({"run": number, "cells": len(found), "taken_over": taken, "states": counts}))
    else:
        told = ", ".join(f"{count} {state}" for state, count in counts.items())
        click.echo(f"run {number}: {len(found)} cells, {taken} of them taken over: {told}")
        if not programs:
            for line in known.unused(cell.key for cell in cells):
                click.echo(f"{line.place}: fits no cell", err=True)
    sys.exit(exit_status(found["state"][~skipped], strict=strict, allow=accepted))


def _allowed(text: str) -> list[str]:
    from zluda.matrix.states import ACCEPTABLE

    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if word not in ACCEPTABLE:
            raise Error(f"--allow {word}: expected some of {', '.join(ACCEPTABLE)}")
    return words


def _devices(asked: Sequence[str]) -> list[str]:
    from zluda.device import names

    words = (word.strip() for text in asked for word in text.split(","))
    return list(dict.fromkeys(names.resolve(word) for word in words))


def _number(store: Store, about: Any, *, resume: bool) -> int:
    runs = store.runs()
    open_one = runs[-1] if runs and runs[-1]["finished"] is None else None
    if not resume:
        if open_one is not None:
            click.echo(f"run {open_one['id']} was not finished; --resume would go on with it", err=True)
        return store.begin_run(about)
    if open_one is None:
        raise Error("--resume: the last run was not interrupted" if runs else "--resume: there is no run yet")
    if (open_one["commit"], open_one["dirty"]) != (about.commit, about.dirty):
        raise Error(f"--resume: run {open_one['id']} is of other sources ({open_one['commit'][:10]})")
    if json.loads(open_one["options"]) != about.options:
        raise Error(f"--resume: run {open_one['id']} has other options: {open_one['options']}")
    return int(open_one["id"])


def _line(program: str, device: str, numerics: str, result: CellResult) -> str:
    from zluda.matrix.states import STATES

    outcome, state = result.outcome, STATES[result.state]
    reason = f": {outcome.reason}" if outcome.reason and state.counts_as.value != "holds" else ""
    expected = f" (expected: {result.expected})" if result.expected else ""
    over = " (taken over)" if outcome.id is not None else ""
    return f"{state.mark} {program} on {device}, {numerics}: {state.name}{over}{expected}{reason}"


@command.command()
@_STORE
@_CORPUS
@_EXPECTATIONS
@click.option(
    "--run", "which", default="last", show_default=True, metavar="RUN", help="last, last-1, a number."
)
@click.option(
    "--days", type=click.IntRange(1), default=90, show_default=True, metavar="N", help="A new line holds for."
)
def expect(url: str, corpus: Path, expectations: Path | None, which: str, days: int) -> None:
    """Write the files of what is expected to fail anew, from a run.

    Lines that are still true stay as they are, with their reasons; those that expired, or whose cells hold
    now, go; what does not hold and is in no line gets one. Read the change before you keep it.

    Example: zluda matrix expect --store nights.db && git diff corpus/expectations
    """
    import datetime

    from zluda.matrix.expectations import DIRECTORY, file_of, parse, regenerated
    from zluda.matrix.store import Store

    directory = expectations or corpus / DIRECTORY
    with Store(url) as store:
        cells = store.cells(store.run_number(which))
    directory.mkdir(parents=True, exist_ok=True)
    today = datetime.datetime.now(datetime.UTC).date()
    for device, group in cells.groupby("device"):
        rows = zip(group["program"], group["numerics"], group["found"], group["reason"], strict=True)
        file = file_of(directory, str(device))
        text = regenerated(parse(file), rows, device=str(device), today=today, days=days)
        file.write_text(text, "utf-8")
        click.echo(f"{file}: {sum(not line.startswith('#') for line in text.splitlines())} lines")


@command.command()
@click.argument("a", metavar="A")
@click.argument("b", metavar="B", default="last")
@_STORE
@_JSON
def compare(a: str, b: str, url: str, as_json: bool) -> None:
    """Say what changed from run A to run B (by default the last): cells, and kernels' times.

    A run is last, last-1, its number, or the beginning of a commit. Exits 1 when a cell regressed, else 0.

    Example: zluda matrix compare last-1 --store nights.db
    """
    from zluda.matrix.changes import Change
    from zluda.matrix.changes import compare as compare_runs
    from zluda.matrix.speed import speed_changes
    from zluda.matrix.store import Store

    with Store(url) as store:
        first, second = store.run_number(a), store.run_number(b)
        found = compare_runs(store, first, second)
        speeds = speed_changes(store, first, second)
    if as_json:
        click.echo(json.dumps({**found.to_json(), "speed": [one.to_json() for one in speeds]}))
    else:
        _print_comparison(found, speeds)
    sys.exit(1 if found.counts[Change.REGRESSED] else 0)


def _print_comparison(found: Comparison, speeds: Sequence[SpeedChange]) -> None:
    counts = ", ".join(f"{count} {change}" for change, count in found.counts.items() if count)
    click.echo(f"run {found.a} to run {found.b}: {counts or 'nothing changed'}; {found.same} cells as before")
    for cell in found.cells:
        where = f"{cell.program} on {cell.device}, {cell.numerics}"
        why = f": {cell.reason}" if cell.reason else ""
        click.echo(
            f"{cell.change:<9} {where}: {cell.before or 'not there'} → {cell.after or 'not there'}{why}"
        )
    for one in speeds:
        word = "slower" if one.ratio > 1 else "faster"
        times = f"{one.ratio:.2f} times the {one.what}"
        click.echo(f"{word:<9} {one.program} on {one.device}, {one.numerics}: {one.kernel}: {times}")


@command.command()
@click.argument("trace", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--device", "-d", required=True, metavar="DEVICE", help="As for `zluda replay`; one.")
@click.option("--numerics", type=click.Choice(["nvidia", "native"]), help="As for `zluda replay`.")
@click.option("--select", default="", metavar="WHAT", help="As for `zluda replay`: replay less, and sooner.")
@click.option("--good", required=True, metavar="COMMIT", help="A commit at which it was better.")
@click.option("--bad", default="HEAD", show_default=True, metavar="COMMIT", help="One at which it is worse.")
@click.option(
    "--repository",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="zluda's sources under git (default: those that run now).",
)
@click.option(
    "--time-limit",
    type=click.FloatRange(1),
    default=600,
    show_default=True,
    metavar="SECONDS",
    help="Of a step, after which it counts as a hang.",
)
@_JSON
def bisect(
    trace: Path,
    device: str,
    numerics: str | None,
    select: str,
    good: str,
    bad: str,
    repository: Path | None,
    time_limit: float,
    as_json: bool,
) -> None:
    """Name the commit since which TRACE replays worse.

    Each step checks a commit out into a directory of its own and replays the trace with it; the working tree
    stays as it is.

    Example: zluda matrix bisect corpus/nbody/trace.bin --device gfx1030 --good v0.1.0
    """
    from zluda.device import names
    from zluda.matrix.bisecting import Question
    from zluda.matrix.bisecting import bisect as search
    from zluda.matrix.night import SOURCE

    question = Question(
        trace=trace, device=names.resolve(device), numerics=numerics, select=select, seconds=time_limit
    )

    def told(answer: Any) -> None:
        where = f", {answer.reason}" if answer.reason else ""
        click.echo(f"{answer.commit[:10]}: {answer.verdict}{where}", err=True)

    found = search(question, repository or SOURCE, good, bad, told=told)
    if as_json:
        click.echo(json.dumps(found.to_json()))
    else:
        click.echo(f"{found.commit[:10]} ({found.date}, {found.author}): {found.subject}")


@command.command()
@_STORE
@click.option(
    "--output",
    "-o",
    required=True,
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the site goes; DIR/index.html is where to begin.",
)
@click.option(
    "--run", "which", default="last", show_default=True, metavar="RUN", help="last, last-1, a number."
)
def report(url: str, output: Path, which: str) -> None:
    """Write a run as a site that opens from files: what changed, the matrix, programs, features, trends.

    Beside the pages lie matrix.json with its schema, JUnit XML, CSV, Parquet, Markdown, a badge and a feed.

    Example: zluda matrix report --store nights.db -o site
    """
    from zluda.matrix.site import write_site
    from zluda.matrix.store import Store

    with Store(url) as store:
        sheet = write_site(store, output, store.run_number(which))
    cells = sum(sheet.counts.values())
    click.echo(f"{output / 'index.html'}: {cells} cells of run {sheet.run['id']}, {len(sheet.runs)} runs")
