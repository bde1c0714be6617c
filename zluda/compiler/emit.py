"""Kernels in any form on their way to machine code, and what they need: what ``zluda compile`` writes."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from zluda import config
from zluda.compiler import compile_kernel
from zluda.compiler.apart import Failure, each_apart
from zluda.compiler.nvptx.targets import is_target as is_nvidia
from zluda.compiler.nvptx.targets import target as find_target
from zluda.errors import Error, UnsupportedError
from zluda.records import dataclass

if TYPE_CHECKING:
    from zluda.compiler.target import Dim3
    from zluda.ptx import Module

KINDS = ("ptx", "llvm", "asm", "obj", "hsaco")
BINARY = ("obj", "hsaco")
_LOOKED_AT = 1 << 18  # characters of a module that tell which instructions it has


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is wanted of each kernel: a ``kind`` of :data:`KINDS` (or none), a report, or both.

    ``block`` matters to the CPU alone, ``wave_size`` to AMD alone (0: as devices have it). ``numerics`` and
    ``contract`` are as for :func:`zluda.compiler.compile_kernel`.
    """

    target: str
    kind: str = ""
    report: bool = False
    block: Dim3 = (256, 1, 1)
    wave_size: int = 0
    numerics: str = "nvidia"
    contract: str = "auto"


@dataclass(frozen=True, slots=True)
class Emitted:
    """One kernel: its form, its report (fields of :class:`~zluda.compiler.amd.report.Report`), or why not."""

    kernel: str
    data: bytes = b""
    report: dict[str, Any] | None = None
    failure: Failure | None = None


def emit_kernels(module: Module, names: Sequence[str], request: Request, *, jobs: int = 0) -> list[Emitted]:
    """Each kernel in a process of its own, ``jobs`` at once: one that fails keeps no other from it.

    Raises UnsupportedError for what the target does not have at all, DeviceError for an unknown target.
    """
    prepare(request)
    if len(names) > 1 and request.kind != "ptx":
        _import_lowerings(module)

    def work(name: str) -> bytes:
        data, found = emit_kernel(module, name, request)
        header = _json(found)
        return len(header).to_bytes(4, "little") + header + data

    done = {name: outcome for name, outcome in each_apart(names, work, jobs=jobs)}
    return [_emitted(name, done[name].value, done[name].failure) for name in names]


def look_ahead(module: Module, names: Sequence[str], waiting: Callable[[], bool]) -> None:
    """Do what compiling these kernels begins with, for as long as the caller is ``waiting`` for something
    else. What is wrong with a kernel is left to be found when it is compiled.
    """
    _import_lowerings(module)
    for name in names:
        if not waiting():
            return
        with suppress(Error):
            module.function(name)


def _import_lowerings(module: Module) -> None:
    from zluda.compiler.lower.table import import_families

    import_families(module.source[:_LOOKED_AT])


def _emitted(name: str, value: bytes, failure: Failure | None) -> Emitted:
    if failure is not None:
        return Emitted(name, failure=failure)
    end = 4 + int.from_bytes(value[:4], "little")
    return Emitted(name, value[end:], _from_json(value[4:end]))


def _json(report: dict[str, Any] | None) -> bytes:
    if report is None:
        return b""
    import json  # for reports alone

    return json.dumps(report).encode()


def _from_json(text: bytes) -> dict[str, Any] | None:
    if not text:
        return None
    import json

    found: dict[str, Any] = json.loads(text)
    return found


def emit_kernel(module: Module, name: str, request: Request) -> tuple[bytes, dict[str, Any] | None]:
    """A kernel's form and report, in this process. A code object leaves the module's variables to its loader.

    Raises PtxError and UnsupportedError as compilation does.
    """
    from zluda.compiler.amd.linker import link

    data = b""
    if request.kind == "ptx":
        data = _own_text(module, name, request)
    elif request.kind in ("llvm", "asm"):
        data = _text(module, name, request)
    if request.kind not in BINARY and not request.report:
        return data, None
    compiled = compile_kernel(
        module,
        name,
        request.target,
        block=request.block,
        wave_size=_lanes(request),
        numerics=request.numerics,
        contract=request.contract,
    ).code
    code = compiled if request.target == "cpu" else link(compiled)
    if request.kind in BINARY:
        data = compiled if request.kind == "obj" else code
    return data, _report(code, name) if request.report else None


def _own_text(module: Module, name: str, request: Request) -> bytes:
    """A kernel as it was, but for an NVIDIA target: as the compiler makes it for that."""
    if is_nvidia(request.target):
        return _text(module, name, request)
    from zluda.ptx.printer import print_function

    return print_function(module.function(name)).encode()


def _report(code: bytes, name: str) -> dict[str, Any]:
    import dataclasses

    from zluda.compiler.amd.report import report

    return dataclasses.asdict(report(code, name))


def _text(module: Module, name: str, request: Request) -> bytes:
    if request.target == "cpu":
        from zluda.compiler.cpu.compile import kernel_ir
        from zluda.compiler.cpu.llvm import emit_assembly
        from zluda.compiler.large import is_quick
        from zluda.compiler.unit import kernel_unit

        unit = kernel_unit(module, name, request.block, request.contract)
        unit.numerics, unit.level = request.numerics, config.load().optimization_level
        text = kernel_ir(unit)
        return text.encode() if request.kind == "llvm" else emit_assembly(text, quickly=is_quick(unit))
    if is_nvidia(request.target):
        from zluda.compiler.nvptx import compile as nvptx
        from zluda.compiler.nvptx.unit import build_unit as nvptx_unit

        whole = nvptx_unit(module, name, request.contract)
        whole.numerics = request.numerics
        return (
            nvptx.kernel_ir(whole).encode()
            if request.kind == "llvm"
            else nvptx.ptx_text(whole, request.target)
        )
    from zluda.compiler.amd.compile import kernel_ir as amd_ir
    from zluda.compiler.amd.compile import level
    from zluda.compiler.amd.llvm import Options, emit
    from zluda.compiler.amd.targets import target_id
    from zluda.compiler.amd.unit import build_unit

    chosen, lanes = target_id(request.target).target, _lanes(request)
    unit = build_unit(module, name, request.contract)
    unit.numerics, unit.level = request.numerics, config.load().optimization_level
    text = amd_ir(unit, chosen, lanes)
    if request.kind == "llvm":
        return text.encode()
    return emit(text, Options(request.target, lanes, request.kind, level(unit)))


def _lanes(request: Request) -> int:
    """Lanes of a wave, where the target has waves; 0 elsewhere."""
    if request.target == "cpu" or is_nvidia(request.target):
        return 0
    from zluda.compiler.amd.targets import default_wave_size, target_id

    return request.wave_size or default_wave_size(target_id(request.target).target)


def prepare(request: Request) -> None:
    """Import what all kernels need, before a fork. Raises what :func:`emit_kernels` raises."""
    if request.kind and request.kind not in KINDS:
        raise Error(f"{request.kind!r}; expected {', '.join(KINDS)}")
    if request.target == "cpu":
        if request.kind == "hsaco":
            raise UnsupportedError("--emit hsaco", "target cpu; expected a gfx target")
        if request.report:
            raise UnsupportedError("--report", "target cpu, whose registers are the host's")
    elif is_nvidia(request.target):
        find_target(request.target)
        if request.kind in BINARY:
            raise UnsupportedError(
                f"--emit {request.kind}", f"target {request.target}; ptxas assembles its PTX"
            )
        if request.report:
            raise UnsupportedError("--report", f"target {request.target}; `ptxas -v` tells its registers")
    else:
        from zluda.compiler.amd.targets import target_id

        sizes = target_id(request.target).target.wave_sizes
        if request.wave_size and request.wave_size not in sizes:
            known = ", ".join(map(str, sizes))
            raise UnsupportedError(
                f"--wave {request.wave_size}", f"target {request.target}; expected {known}"
            )
    nvidia = is_nvidia(request.target)
    if request.kind == "ptx" and not request.report and not nvidia:
        return
    back_end = "nvptx" if nvidia else "cpu" if request.target == "cpu" else "amd"
    for needed in ("compile", "llvm"):
        importlib.import_module(f"zluda.compiler.{back_end}.{needed}")
    importlib.import_module("llvmlite.binding")
