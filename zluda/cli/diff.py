"""`zluda diff`: two traces, launch by launch."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from zluda.cli import options
from zluda.cli.typed import as_typed


@click.command(name="diff")
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option("--allow", default="", metavar="VERDICTS", help="Accept no-ptx, unsupported or gap.")
@options.dtypes
@click.option("--html", metavar="PAGE", help="Write the result as one self-contained page.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(a: str, b: str, allow: str, dtypes: tuple[str, ...], html: str | None, as_json: bool) -> None:
    """Compare two records or replays: the memory after each launch, and what each copy delivered to the host.

    Launches are paired in order; B is held against A. Exits 0 when all that was compared is identical, 1 when
    something differs, 2 when something could not be told.

    Example: zluda diff corpus/saxpy/trace.bin replayed.bin
    """
    from zluda.diff.results import parse_allow
    from zluda.diff.traces import compare_traces
    from zluda.diff.types.launches import check_overrides
    from zluda.diff.types.override import parse_overrides
    from zluda.report.html import check_place
    from zluda.report.terminal import print_result
    from zluda.tracefile import open_trace
    from zluda.tracefile.stripping import Part, require

    allowed, overrides = parse_allow(allow), parse_overrides(dtypes)
    if html is not None:
        check_place(html)
    with open_trace(a) as left, open_trace(b) as right, _progress(left.counts().launches) as progress:
        for one in (left, right):
            require(one, Part.CONTENTS, "compared")
        check_overrides(left, overrides)
        result = compare_traces(left, right, progress=progress, overrides=overrides)
    if as_json:
        print(json.dumps(result.to_json()))
    else:
        print_result(result)
    if html is not None:
        from zluda.report.html import write_page

        write_page([result], html, made_by=as_typed(click.get_current_context()))
    sys.exit(result.exit_status(allowed))


@contextmanager
def _progress(launches: int) -> Iterator[Callable[[int], None] | None]:
    """A progress bar on a terminal, none in a pipe."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("comparing", total=launches)
        yield lambda call: bar.advance(task)
