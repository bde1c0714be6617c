"""`zluda share`: a small trace of what went wrong, what it holds, and a block for the bug report."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from zluda.cli.progress import progress_bar


@click.command(name="share")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("-o", "output", metavar="PATH", type=click.Path(path_type=Path), help="The trace to write.")
@click.option(
    "--launch", metavar="LAUNCH", help="Call number or kernel:regex; else the first launch that fails."
)
@click.option(
    "--device", "-d", metavar="DEVICE", help="Where it goes wrong (default: ZLUDA_DEVICE, else auto)."
)
@click.option("--numerics", metavar="KIND", help="As for `zluda replay`.")
@click.option(
    "--neighbours",
    type=click.IntRange(0),
    default=1,
    metavar="N",
    help="Launches before and after it that come along (default 1).",
)
@click.option("--redact", is_flag=True, help="Digests in place of contents; no names of the machine.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    file: Path,
    output: Path | None,
    launch: str | None,
    device: str | None,
    numerics: str | None,
    neighbours: int,
    redact: bool,
    as_json: bool,
) -> None:
    """Cut the launch that went wrong and its neighbours out of FILE, for a bug report.

    The part is replayed once, to say whether it still shows the fault. What it holds of your data goes to
    standard error: look at it before you send the file. A Markdown block for the report goes to standard
    output.

    Example: zluda share trace.bin --device gfx1030 > report.md
    """
    from zluda import config
    from zluda.device import names
    from zluda.isolate.share.run import share
    from zluda.isolate.share.words import as_dict, markdown, preview_lines

    full = names.resolve(device or config.load().device)
    with progress_bar("replay", "calls") as progress:
        shared = share(
            file,
            output,
            launch=launch,
            device=full,
            numerics=numerics,
            neighbours=neighbours,
            redact=redact,
            progress=progress,
        )
    if as_json:
        click.echo(json.dumps(as_dict(shared)))
        return
    for line in preview_lines(shared):
        print(line, file=sys.stderr)
    click.echo(markdown(shared))
