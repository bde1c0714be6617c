"""`zluda extract`: one launch of a trace as a file of its own."""

from __future__ import annotations

import click

from zluda.cli.cut import cutting, say_what_was_cut


@click.command(name="extract")
@click.argument("file", metavar="FILE")
@click.argument("launch", metavar="LAUNCH")
@click.option("-o", "output", metavar="PATH", required=True, help="The trace to write.")
def command(file: str, launch: str, output: str) -> None:
    """Write one launch with its module and the memory that it reaches to a trace of its own.

    LAUNCH is the number of the launching call, as `zluda dump --launches` shows it, or kernel:regex, which
    means the first launch of such a kernel that has its memory on record.

    Example: zluda extract trace.bin 582 -o saxpy.bin
    """
    from pathlib import Path

    from zluda.errors import Error
    from zluda.replay.cutting import extract
    from zluda.tracefile import Selection

    selection = Selection.parse(launch)
    with cutting(file) as (source, progress):
        low, high = selection.bounds
        meant = (one for one in source.iter_launches(low, high) if selection.contains(one.call, one.kernel))
        found = next(meant, None)
        if found is not None and found.left_out is not None:
            found = next((one for one in meant if one.left_out is None), found)
        if found is None:
            raise Error(f"{file}: {launch} is no launch; zluda dump --launches {file} shows them")
        extract(source, Path(output), found.call, progress=progress)
        say_what_was_cut(source, output, f"launch {found.call} of {found.kernel}")
