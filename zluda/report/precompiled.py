"""What `zluda precompile` found, as a table: a line a module, and a line a kernel that failed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TextIO

from zluda.compiler.precompile.run import KernelResult, ModuleResult
from zluda.report.names import readable
from zluda.tracefile.text import printable

_COUNTED = ("compiled", "cached")


def print_results(results: Sequence[ModuleResult], out: TextIO) -> None:
    """The table, what failed below each module, and a line for all."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("module", *_COUNTED, "failed", box=SIMPLE)
    for result in results:
        counts = result.counts()
        failed = sum(k.failed for k in result.kernels)
        numbers = [str(counts[status]) for status in _COUNTED]
        table.add_row(Text(printable(result.name)), *numbers, str(failed) if not result.problem else "all")
        for line in _problems(result):
            table.add_row(Text(f"  {printable(line)}"))
    console = Console(file=out, width=None if out.isatty() else 200)
    console.print(table)
    kernels = [k for result in results for k in result.kernels]
    bad = sum(k.failed for k in kernels)
    unread = sum(bool(result.problem) for result in results)
    unread_text = f", {unread} of {len(results)} modules could not be read" if unread else ""
    seconds = sum(k.seconds for k in kernels)
    console.print(
        f"{len(kernels) - bad} of {len(kernels)} kernels are there{unread_text}; {seconds:.1f} s of work"
    )


def _problems(result: ModuleResult) -> Iterator[str]:
    if result.problem:
        yield result.problem
    for kernel in result.kernels:
        if kernel.failed:
            yield f"{readable(kernel.kernel)}{_where(kernel)}: {kernel.reason}"


def _where(kernel: KernelResult) -> str:
    block = f" {kernel.block}" if kernel.block else ""
    cluster = f" in clusters {kernel.cluster}" if kernel.cluster else ""
    return f" on {kernel.target}{block}{cluster}"
