"""One kernel in any form on its way to machine code: what ``zluda compile`` writes."""

from __future__ import annotations

from zluda.compiler.target import Dim3
from zluda.errors import UnsupportedError
from zluda.ptx import Module

KINDS = ("ptx", "llvm", "asm", "obj", "hsaco")
BINARY = ("obj", "hsaco")


def emit_kernel(
    module: Module, name: str, target: str, kind: str, *, block: Dim3, wave_size: int = 0
) -> bytes:
    """A kernel as ``kind`` (of :data:`KINDS`) for ``"cpu"`` or an AMD target.

    ``block`` matters to the CPU alone, ``wave_size`` to AMD alone (0: the target's own). A code object
    leaves the module's variables to its loader. Raises PtxError and UnsupportedError as compilation does.
    """
    if kind == "ptx":
        from zluda.ptx.printer import print_function

        return print_function(module.function(name)).encode()
    return (_cpu if target == "cpu" else _amd)(module, name, target, kind, block, wave_size)


def _cpu(module: Module, name: str, target: str, kind: str, block: Dim3, wave_size: int) -> bytes:
    from zluda.compiler.cpu.compile import kernel_ir
    from zluda.compiler.cpu.llvm import emit_assembly, emit_object
    from zluda.compiler.unit import kernel_unit

    if kind == "hsaco":
        raise UnsupportedError("--emit hsaco", "target cpu; expected a gfx target")
    text = kernel_ir(kernel_unit(module, name, block))
    if kind == "llvm":
        return text.encode()
    return emit_object(text) if kind == "obj" else emit_assembly(text)


def _amd(module: Module, name: str, target: str, kind: str, block: Dim3, wave_size: int) -> bytes:
    from zluda.compiler.amd import targets
    from zluda.compiler.amd.compile import kernel_ir
    from zluda.compiler.amd.linker import link
    from zluda.compiler.amd.llvm import Options
    from zluda.compiler.amd.unit import build_unit
    from zluda.compiler.amd.worker import emit_apart

    chosen = targets.target(target)
    text = kernel_ir(build_unit(module, name), chosen, wave_size)
    if kind == "llvm":
        return text.encode()
    options = Options(chosen.name, wave_size or chosen.wave_size, "obj" if kind == "hsaco" else kind)
    emitted = emit_apart(text, options)
    return link(emitted) if kind == "hsaco" else emitted
