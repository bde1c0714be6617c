"""`zluda recover`: what is left of a trace whose recorder was killed, or whose file is damaged."""

from __future__ import annotations

import sys

import click

from zluda.cli.say import say


@click.command(name="recover")
@click.argument("file", metavar="FILE")
@click.option("-o", "output", metavar="PATH", help="Where to write what a damaged file still holds.")
def command(file: str, output: str | None) -> None:
    """Make a trace whole again.

    What a killed recorder left beside FILE is merged into it, as opening it would. Of a damaged file the rows
    that can still be read are written to -o PATH; FILE stays as it is.

    Exits 0 when the trace is whole, 1 when something of it is lost, 2 when nothing could be done.

    Example: zluda recover trace.bin -o recovered.bin
    """
    from pathlib import Path

    from zluda.errors import TraceError
    from zluda.tracefile import open_trace
    from zluda.tracefile.salvage import check_is_trace, check_whole, salvage

    beside = Path(file + ".rings").exists()
    try:
        with open_trace(file) as trace:
            counts = trace.counts()
            check_whole(trace)
    except TraceError as error:
        check_is_trace(Path(file))
        if output is None:
            raise TraceError(f"{error}; -o PATH writes what can still be read of it") from error
        damage = error.message
        say(f"{error}")
    else:
        did = "what a killed recorder left was merged into it" if beside else "nothing to recover"
        unneeded = f"; {output} was not written" if output is not None else ""
        say(f"{file}: {did}; {counts.calls} calls, {counts.launches} launches{unneeded}")
        return
    lost = salvage(Path(file), Path(output), damage=damage)
    with open_trace(output) as trace:
        counts = trace.counts()
    say(f"{output}: {counts.calls} calls, {counts.launches} launches, {counts.pages} pieces of memory")
    for what, count in lost.items():
        say(f"lost: {count} rows of {what}" if count else f"lost: {what}")
    sys.exit(1 if lost else 0)
