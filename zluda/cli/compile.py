"""`zluda compile`: kernels to LLVM IR, assembly, objects and code objects, and what they need."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zluda.errors import Error

if TYPE_CHECKING:
    from zluda.ptx import Module


@click.command(name="compile")
@click.argument("file", metavar="FILE")
@click.option("--target", required=True, metavar="T", help="cpu, gfx1030, gfx1100, gfx90a …")
@click.option(
    "--emit", "kind", type=click.Choice(["ptx", "llvm", "asm", "obj", "hsaco"]), help="What to write."
)
@click.option("--kernel", metavar="NAME", help="One kernel; else all of the module.")
@click.option("--block", default="256", metavar="X[,Y[,Z]]", help="Block size, for the target cpu.")
@click.option("--wave", type=click.Choice(["32", "64"]), help="Lanes a wave, where the target has both.")
@click.option("-o", "--output", metavar="FILE", help="Where to write; standard output by default.")
@click.option("--report", "want_report", is_flag=True, help="Registers, occupancy, memory, instruction mix.")
@click.option("--json", "as_json", is_flag=True, help="The report as one JSON object a line.")
def command(
    file: str,
    target: str,
    kind: str | None,
    kernel: str | None,
    block: str,
    wave: str | None,
    output: str | None,
    want_report: bool,
    as_json: bool,
) -> None:
    """Compile the PTX in FILE (PTX text, a fatbin, or an executable that holds one).

    Example: zluda compile saxpy.ptx --target gfx1100 --emit asm --report
    """
    from zluda.compiler.emit import BINARY, emit_kernel

    module = _module(file)
    names = [kernel] if kernel else list(module.kernel_names)
    if kernel and kernel not in module.kernel_names:
        raise Error(f"{file} has no kernel {kernel}; it has {', '.join(module.kernel_names) or 'none'}")
    kind = kind or ("" if want_report or as_json else "asm")
    if kind in BINARY and len(names) != 1:
        raise Error(f"{file} has {len(names)} kernels; choose one with --kernel for --emit {kind}")
    shape, wave_size = _block(block), int(wave or 0)
    if kind:
        parts = [emit_kernel(module, n, target, kind, block=shape, wave_size=wave_size) for n in names]
        _write(b"\n".join(parts), output, binary=kind in BINARY)
    if want_report or as_json:
        from zluda.compiler.amd.report import report

        if target == "cpu":
            raise Error("--report is of AMD targets; the CPU's registers are the host's")
        for name in names:
            found = report(emit_kernel(module, name, target, "hsaco", block=shape, wave_size=wave_size), name)
            text = json.dumps(dataclasses.asdict(found)) if as_json else "\n".join(found.lines())
            click.echo(text, err=bool(kind) and output is None)


def _module(file: str) -> Module:
    from zluda.ptx import parse_module
    from zluda.ptx.containers import ptx_from

    try:
        data = Path(file).read_bytes()
    except OSError as error:
        raise Error(f"{file}: {error.strerror}") from error
    images = list(ptx_from(data))
    if not images:
        raise Error(f"{file} holds no PTX")
    return parse_module(max(images, key=lambda image: image.arch).text, file=file)


def _block(text: str) -> tuple[int, int, int]:
    try:
        sizes = [int(part) for part in text.split(",")]
    except ValueError:
        sizes = []
    if not 1 <= len(sizes) <= 3 or min(sizes) < 1:
        raise Error(f"--block {text}: expected X, X,Y or X,Y,Z, as in 16,16")
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def _write(data: bytes, output: str | None, *, binary: bool) -> None:
    if output is not None:
        Path(output).write_bytes(data)
    elif binary and sys.stdout.isatty():
        raise Error("machine code is not for a terminal; give -o FILE")
    else:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
