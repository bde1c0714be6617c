"""`zluda compile`: kernels to LLVM IR, assembly, objects and code objects, and what they need."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import click

from zluda.cli.say import say
from zluda.errors import Error

_LONGEST_NAME = 240  # file systems allow 255 bytes, the suffix among them
_MOST_THREADS = 1024  # a block has: CUDA C++ Programming Guide, "Compute Capabilities"

if TYPE_CHECKING:
    from zluda.compiler.emit import Emitted
    from zluda.ptx import Module


@click.command(name="compile")
@click.argument("file", metavar="FILE")
@click.option("--target", required=True, metavar="T", help="cpu, gfx1030, gfx1100, gfx90a, sm_90 …")
@click.option(
    "--emit", "kind", type=click.Choice(["ptx", "llvm", "asm", "obj", "hsaco"]), help="What to write."
)
@click.option("--kernel", metavar="NAME", help="One kernel; else all of the module.")
@click.option("--block", default="256", metavar="X[,Y[,Z]]", help="Block size, for the target cpu.")
@click.option(
    "--numerics", type=click.Choice(["nvidia", "native"]), help="As for `zluda replay`; its default, else."
)
@click.option(
    "--contract", type=click.Choice(["auto", "on", "off"]), default="auto", help="As for `zluda replay`."
)
@click.option("--wave", type=click.Choice(["32", "64"]), help="Lanes a wave, where the target has both.")
@click.option("-o", "--output", metavar="FILE", help="Where to write; objects: a file or a directory.")
@click.option("-j", "--jobs", type=click.IntRange(1), metavar="N", help="At once; as many as processors.")
@click.option("--report", "want_report", is_flag=True, help="Registers, occupancy, memory, instruction mix.")
@click.option("--json", "as_json", is_flag=True, help="The report as one JSON object a line.")
def command(
    file: str,
    target: str,
    kind: str | None,
    kernel: str | None,
    block: str,
    numerics: str | None,
    contract: str,
    wave: str | None,
    output: str | None,
    jobs: int | None,
    want_report: bool,
    as_json: bool,
) -> None:
    """Compile the PTX in FILE (PTX text, a fatbin, or an executable that holds one).

    A kernel that cannot be compiled is named with its reason, and the others are compiled all the same. Exits
    0 when all were, 1 when some were not, 2 when none was or FILE cannot be read.

    Example: zluda compile saxpy.ptx --target gfx1100 --emit asm --report
    """
    loader = None if kind == "ptx" else Thread(target=_load_llvm, args=(target, int(wave or 0)))
    if loader is not None:
        loader.start()
    from zluda.compiler.emit import BINARY, Request, emit_kernels, look_ahead, prepare
    from zluda.device import names

    module = _module(file)
    kernels = [kernel] if kernel else list(module.kernel_names)
    if not kernels or (kernel and kernel not in module.kernel_names):
        raise Error(f"{file} has no kernel {kernel or ''}; it has {', '.join(module.kernel_names) or 'none'}")
    want_report = want_report or as_json
    kind = kind or ("" if want_report else "asm")
    if kind in BINARY and len(kernels) > 1 and not output:
        raise Error(
            f"{file} has {len(kernels)} kernels; choose one with --kernel, or give a directory with -o"
        )
    request = Request(
        target=target,
        kind=kind,
        report=want_report,
        block=block_shape(block),
        wave_size=int(wave or 0),
        numerics=names.chosen_numerics(target, numerics),
        contract=contract,
    )
    prepare(request)
    if loader is not None:
        look_ahead(module, kernels, loader.is_alive)
        loader.join()  # a process that is forked is to have one thread
    found = emit_kernels(module, kernels, request, jobs=jobs or 0)
    whole = [e for e in found if e.failure is None]
    if kind and whole:
        _write(whole, kind, output, several=len(kernels) > 1)
    if want_report:
        _print_report(found, as_json=as_json, aside=bool(kind) and output is None)
    else:
        for emitted in found:
            if emitted.failure is not None:
                say(_reason(emitted, file))
    if len(whole) < len(found):
        sys.exit(1 if whole else 2)


def _load_llvm(target: str, wave_size: int) -> None:
    """Load LLVM's library and use it, beside all else that has to be read: it is 180 MB, and Python need not
    wait.
    """
    with suppress(ImportError, OSError, Error):  # whoever needs it will say so
        importlib.import_module("llvmlite.binding")
        if target != "cpu":
            from zluda.compiler.amd.llvm import warm_up

            warm_up(target, wave_size)


def _reason(emitted: Emitted, file: str) -> str:
    assert emitted.failure is not None
    return f"{file}: kernel {emitted.kernel}: {emitted.failure.reason}"


def _print_report(found: Sequence[Emitted], *, as_json: bool, aside: bool) -> None:
    import json

    from zluda.compiler.amd.report import Report

    for emitted in found:
        if emitted.failure is not None:
            failure = emitted.failure
            record = {"kernel": emitted.kernel, "error": failure.kind, "reason": failure.reason}
            lines = [emitted.kernel, f"  {failure.kind:12} {failure.reason}"]
        else:
            assert emitted.report is not None
            record, lines = emitted.report, list(Report(**emitted.report).lines())
        click.echo(json.dumps(record) if as_json else "\n".join(lines), err=aside)


def _module(file: str) -> Module:
    from zluda.errors import PtxError
    from zluda.ptx import parse_module
    from zluda.ptx.containers import Container, identify, ptx_from

    try:
        data = Path(file).read_bytes()
    except OSError as error:
        raise Error(f"{file}: {error.strerror}") from error
    if identify(data) is Container.PTX:
        return parse_module(data, file=file)
    if data.startswith(b"SQLite format 3"):
        raise Error(f"{file} is a trace, no PTX; zluda precompile compiles the kernels of traces")
    try:
        images = list(ptx_from(data))
    except PtxError as error:
        raise error.in_file(file) from None
    if not images:
        raise Error(f"{file} holds no PTX")
    return parse_module(max(images, key=lambda image: image.arch).text, file=file)


def block_shape(text: str) -> tuple[int, int, int]:
    """``X[,Y[,Z]]`` as a block's shape. Raises Error for anything else."""
    try:
        sizes = [int(part) for part in text.split(",")]
    except ValueError:
        sizes = []
    if not 1 <= len(sizes) <= 3 or min(sizes) < 1:
        raise Error(f"--block {text}: expected X, X,Y or X,Y,Z, as in 16,16")
    x, y, z = (*sizes, 1, 1)[:3]
    if x * y * z > _MOST_THREADS:
        raise Error(f"--block {text}: a block has at most {_MOST_THREADS} threads")
    return x, y, z


def _file_name(kernel: str) -> str:
    """A kernel's name; a mangled one that is longer than file names may be ends in a digest."""
    if len(kernel) <= _LONGEST_NAME:
        return kernel
    import hashlib

    return f"{kernel[: _LONGEST_NAME - 17]}-{hashlib.blake2b(kernel.encode(), digest_size=8).hexdigest()}"


def _write(found: Sequence[Emitted], kind: str, output: str | None, *, several: bool) -> None:
    from zluda.compiler.emit import BINARY

    if kind in BINARY and output is not None and (several or Path(output).is_dir()):
        directory = Path(output)
        directory.mkdir(parents=True, exist_ok=True)
        for emitted in found:
            suffix = "o" if kind == "obj" else kind
            (directory / f"{_file_name(emitted.kernel)}.{suffix}").write_bytes(emitted.data)
        return
    data = b"\n".join(emitted.data for emitted in found)
    if output is not None:
        Path(output).write_bytes(data)
    elif kind in BINARY and sys.stdout.isatty():
        raise Error("machine code is not for a terminal; give -o FILE")
    else:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
