"""`zluda trim`: some calls of a trace, with the state before them."""

from __future__ import annotations

import click

from zluda.cli.cut import cutting, say_what_was_cut


@click.command(name="trim")
@click.argument("file", metavar="FILE")
@click.option("-o", "output", metavar="PATH", required=True, help="The trace to write.")
@click.option("--select", multiple=True, required=True, metavar="WHAT", help="17, 0-100 or kernel:regex.")
def command(file: str, output: str, select: tuple[str, ...]) -> None:
    """Write the calls from the first to the last selected one to a trace of its own.

    Before them stand the calls that made what they use, and memory as it was; launches and copies before them
    are gone. Calls keep their numbers. The part replays as it does in the whole.

    Example: zluda trim trace.bin --select 5000-6000 -o part.bin
    """
    from pathlib import Path

    from zluda.replay.cutting import trim
    from zluda.tracefile import Selection

    selection = Selection.parse(select)
    with cutting(file) as (source, progress):
        cut = trim(source, Path(output), selection, progress=progress)
        say_what_was_cut(source, output, f"calls {cut.first} to {cut.last}, and {len(cut.calls)} before them")
