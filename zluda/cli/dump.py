"""`zluda dump`: a trace's calls, launches, modules, PTX or memory, as lines or as JSON lines."""

from __future__ import annotations

import json

import click

from zluda.errors import Error

_MOST_MEMORY = 1 << 30


@click.command(name="dump")
@click.argument("file", metavar="FILE")
@click.option("--select", multiple=True, metavar="WHAT", help="17, 0-100, 0-100/2, kernel:regex or @file.")
@click.option("--launches", is_flag=True, help="Kernel launches instead of all calls.")
@click.option("--times", is_flag=True, help="When the GPU carried out launches, and launches of graphs.")
@click.option("--modules", is_flag=True, help="Modules and the images in them.")
@click.option("--allocations", is_flag=True, help="Device memory and module variables.")
@click.option("--gaps", is_flag=True, help="What was not captured, and why.")
@click.option("--proof", is_flag=True, help="What did not come out as recorded when the GPU ran it again.")
@click.option("--ptx", metavar="KERNEL|MODULE", help="A kernel's PTX by its name, a module's by its number.")
@click.option("--memory", metavar="CALL:ADDRESS:SIZE", help="Memory after a call: 17:0x7f0000000000:256.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def command(
    file: str, select: tuple[str, ...], ptx: str | None, memory: str | None, as_json: bool, **lists: bool
) -> None:
    """Print what a trace holds; without an option every driver call, one a line.

    Example: zluda dump corpus/saxpy/trace.bin --select 0-20
    """
    from zluda.report import listing
    from zluda.tracefile import Selection, open_trace

    whats = [name for name, given in lists.items() if given]
    places = [name for name, given in (("ptx", ptx), ("memory", memory)) if given is not None]
    if len(whats) + len(places) > 1:
        raise click.UsageError(
            "give one of --launches, --times, --modules, --allocations, --gaps, --proof, --ptx and --memory"
        )
    if select and places:
        raise click.UsageError(f"--select does not go with --{places[0]}")
    selection = Selection.parse(select)
    with open_trace(file) as trace:
        if ptx is not None:
            lines = listing.ptx_lines(trace, ptx)
        elif memory is not None:
            lines = listing.memory_dump(trace, *_place(memory))
        else:
            lines = listing.LISTS[whats[0] if whats else "calls"](trace, selection)
        for text, value in lines:
            click.echo(json.dumps(value) if as_json else text)


def _place(text: str) -> tuple[int, int, int]:
    """CALL:ADDRESS:SIZE; numbers as Python writes them."""
    try:
        call, address, size = (int(part, 0) for part in text.split(":"))
    except ValueError:
        raise Error(f"--memory {text}: expected CALL:ADDRESS:SIZE, as in 17:0x7f0000000000:256") from None
    if not (call >= -1 and 0 <= address < 1 << 64 and 0 < size <= _MOST_MEMORY):
        raise Error(
            f"--memory {text}: expected a call from -1, a 64-bit address and a size of 1 to 2^30 bytes"
        )
    return call, address, size
