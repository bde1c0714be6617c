"""`zluda precompile`: fill the kernel cache, and say what could not be compiled and why."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from zluda.cli.compile import block_shape
from zluda.cli.progress import progress_bar
from zluda.errors import Error


@click.command(name="precompile")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(path_type=Path))
@click.option(
    "--target", "-t", "targets", multiple=True, metavar="T", help="cpu (default), gfx1030 …; several times."
)
@click.option("--block", "blocks", multiple=True, metavar="X[,Y[,Z]]", help="Block sizes for the target cpu.")
@click.option(
    "--numerics", type=click.Choice(["nvidia", "native"]), help="As for `zluda replay`; its default, else."
)
@click.option("--all-kernels", is_flag=True, help="A trace's other kernels too, not only those launched.")
@click.option("-j", "--jobs", type=click.IntRange(1), metavar="N", help="At once; as many as processors.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a module.")
def command(
    paths: tuple[Path, ...],
    targets: tuple[str, ...],
    blocks: tuple[str, ...],
    numerics: str | None,
    all_kernels: bool,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Compile the kernels in traces, executables, libraries, fatbins, PTX files and directories of them.

    Exits 0 when all was compiled (or was there already), 1 when some of it could not be, 2 when nothing
    could be read.

    Example: zluda precompile corpus/ --target gfx1030 --target cpu
    """
    from zluda.compiler.precompile.run import DEFAULT_BLOCK, precompile
    from zluda.compiler.precompile.sources import sources
    from zluda.device import names
    from zluda.report.precompiled import print_results

    for target in targets:
        if names.kind(target) not in ("cpu", "gfx"):
            raise Error(
                f"--target {target}: kernels are compiled for cpu or an AMD target such as gfx1030; "
                "zluda doctor says which target a GPU is"
            )
    shapes = [block_shape(text) for text in blocks] or [DEFAULT_BLOCK]
    found = [source for path in paths for source in sources(path)]
    if not found:
        raise Error(f"{', '.join(map(str, paths))}: no PTX, executables or traces")
    with progress_bar("precompile", "kernels") as progress:
        results = precompile(
            found,
            {t: numerics or names.NUMERICS[names.kind(t)][0] for t in targets or ("cpu",)},
            blocks=shapes,
            every_kernel=all_kernels,
            jobs=jobs or 0,
            progress=progress,
        )
    if as_json:
        for result in results:
            click.echo(json.dumps(result.as_dict()))
    else:
        print_results(results, sys.stdout)
    if all(result.problem for result in results):
        sys.exit(2)
    sys.exit(1 if any(result.failed for result in results) else 0)
