"""What `trim` and `extract` share: opening the source, a progress bar, and one line of what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from zluda.cli.progress import progress_bar
from zluda.cli.say import say

if TYPE_CHECKING:
    from zluda.tracefile import Trace


@contextmanager
def cutting(file: str) -> Iterator[tuple[Trace, Callable[[int, int], None] | None]]:
    """The trace ``file``, and what to call with (allocations done, allocations in all)."""
    from zluda.tracefile import open_trace

    with open_trace(file) as source, progress_bar("memory", "allocations") as progress:
        yield source, progress


def say_what_was_cut(source: Trace, output: str, what: str) -> None:
    """One line; it says so where the part is larger than the whole."""
    before, after = source.path.stat().st_size, Path(output).stat().st_size
    text = f"{output}: {what}; {after:,} bytes of {before:,}"
    if after > before:
        text += " (larger than the source: memory before the first call is stored whole)"
    say(text)
