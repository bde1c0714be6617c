"""The progress bar of long work: on a terminal, and none in a pipe or where lines cannot be rewritten."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_DUMB = ("dumb", "unknown")


@contextmanager
def progress_bar(title: str, unit: str) -> Iterator[Callable[[int, int], None] | None]:
    """Gives what to call with (done, in all), None where nobody looks; ``unit`` names what is counted."""
    if not sys.stderr.isatty() or os.environ.get("TERM", "").lower() in _DUMB:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeRemainingColumn(),
    )
    # Drawn when it is told something, not by a thread: what forks (compiler/apart.py) must have no threads.
    with Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total, refresh=True)
