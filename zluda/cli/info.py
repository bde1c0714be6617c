"""`zluda info`: what a trace holds."""

from __future__ import annotations

import json
import sys

import click


@click.command(name="info")
@click.argument("file", metavar="FILE")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(file: str, as_json: bool) -> None:
    """Summarise a trace: program, GPU, calls, kernels, modules, memory, and what was not captured.

    Example: zluda info corpus/saxpy/trace.bin
    """
    from zluda.report.overview import print_overview
    from zluda.tracefile import open_trace
    from zluda.tracefile.overview import overview

    with open_trace(file) as trace:
        found = overview(trace)
    if as_json:
        print(json.dumps(found))
    else:
        print_overview(found, sys.stdout)
