"""`zluda strip`: a trace without what others do not need or must not see."""

from __future__ import annotations

import click

from zluda.cli.say import say


@click.command(name="strip")
@click.argument("file", metavar="FILE")
@click.option("-o", "output", metavar="PATH", required=True, help="The trace to write.")
@click.option("--machine-code", is_flag=True, help="Images of modules whose PTX is on record, but the PTX.")
@click.option("--compact", is_flag=True, help="Nothing, if no other is given: only make the file small.")
@click.option("--unused", is_flag=True, help="Images of modules of which no launch has its memory on record.")
@click.option("--contents", is_flag=True, help="Bytes of memory and of arguments; their digests stay.")
@click.option("--names", is_flag=True, help="Command, directories, host and library paths.")
def command(file: str, output: str, compact: bool, **chosen: bool) -> None:
    """Write a trace without some of what it holds; without an option, without machine code.

    A trace without machine code replays; on cuda:N the driver then compiles the PTX. So does one without
    unused modules: what was recorded with --kernel or --sample keeps what its chosen launches need. A trace
    without contents can be looked into, and replayed where the replay comes to them by itself. Scalars
    among the parameters stay, and so do file names in PTX.

    Example: zluda strip trace.bin --machine-code --names -o report.bin
    """
    from pathlib import Path

    from zluda.tracefile import open_trace
    from zluda.tracefile.stripping import Part, strip

    parts = [part for part in Part if chosen[part.value.replace("-", "_")]]
    if not parts and not compact:
        parts = [Part.MACHINE_CODE]
    with open_trace(file) as source:
        strip(source, Path(output), parts)
        before = source.path.stat().st_size
    what = f"without {', '.join(part.value.replace('-', ' ') for part in parts)}" if parts else "whole"
    say(f"{output}: {what}; {Path(output).stat().st_size:,} bytes of {before:,}")
