"""`zluda check`: what of a file would not translate or replay, without running anything."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from zluda.cli.progress import progress_bar
from zluda.errors import Error


@click.command(name="check")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
@click.option(
    "--target",
    "-t",
    "targets",
    multiple=True,
    metavar="T",
    help="cpu, gfx1030 …; several times. Default: cpu, gfx1030, gfx1100 and gfx90a.",
)
@click.option("--compile", "compiles", is_flag=True, help="Compile every kernel: certain, and slow.")
@click.option("-j", "--jobs", type=click.IntRange(1), metavar="N", help="At once; as many as processors.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print tables for an issue.")
@click.option("--sarif", "as_sarif", is_flag=True, help="Print SARIF 2.1.0, for code hosts and editors.")
def command(
    files: tuple[Path, ...],
    targets: tuple[str, ...],
    compiles: bool,
    jobs: int | None,
    as_json: bool,
    as_markdown: bool,
    as_sarif: bool,
) -> None:
    """Say which kernels in traces, executables, libraries, wheels and other archives, fatbins, cubins, PTX
    files and directories of them would not translate, and by which instruction; and which calls would not
    replay. Nothing is run.

    Exits 0 when all translates, 1 when some does not, 2 when something could not be read.

    Example: zluda check /usr/lib/libtorch_cuda.so --target gfx1100
    """
    from zluda.device import names
    from zluda.isolate.check.run import DEFAULT_TARGETS, check
    from zluda.isolate.check.sarif import sarif
    from zluda.isolate.check.words import markdown, print_report

    if as_json + as_markdown + as_sarif > 1:
        raise click.UsageError("--json, --markdown and --sarif each print all of it: give one")
    for target in targets:
        if names.kind(target) not in ("cpu", "gfx"):
            raise Error(f"--target {target}: kernels are translated for cpu or an AMD target such as gfx1030")
    with progress_bar("check", "bytes") as progress:
        report = check(
            files, targets or DEFAULT_TARGETS, compiles=compiles, jobs=jobs or 0, progress=progress
        )
    if as_json:
        click.echo(json.dumps(report.as_dict()))
    elif as_sarif:
        click.echo(json.dumps(sarif(report), indent=1))
    elif as_markdown:
        click.echo(markdown(report))
    else:
        print_report(report, sys.stdout)
    sys.exit(report.exit_status)
