"""The compiler: typed PTX → LLVM IR text → machine code for a target.

Owns the IR builder (``ir.py``), the analyses (``analysis/``), lowering (``lower/``: what each instruction
means, over a target's ``TargetOps``), and one folder a target (``cpu/``, ``amd/``). May import ``zluda.ptx``,
``zluda.numerics`` and ``zluda.errors``. It is given a typed module and a kernel's name, and gives back a
:class:`~zluda.compiler.target.CompiledKernel`: a relocatable object and what a device needs to launch it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zluda.compiler.target import CompiledKernel, Dim3
    from zluda.ptx import Module

__all__ = ["compile_kernel"]


def compile_kernel(
    module: Module,
    name: str,
    target: str = "cpu",
    *,
    block: Dim3 = (1, 1, 1),
    wave_size: int = 0,
    code_object_version: int = 5,
) -> CompiledKernel:
    """Compile one kernel, with what it calls, to a relocatable object.

    For ``"cpu"`` the code is for one block shape; AMD's (``"gfx1030"``, ``"gfx90a:xnack-"`` …) is for any;
    ``wave_size`` says how many lanes a wave has there (0: as is natural), ``code_object_version`` what AMD's
    loader is to read (4 or 5). Raises PtxError when the kernel's text is wrong, UnsupportedError naming the
    first instruction (and its place) that has no lowering on the target.
    """
    if target == "cpu":
        from zluda.compiler.cpu.compile import compile_kernel as compile_for_cpu

        return compile_for_cpu(module, name, block)
    from zluda.compiler.amd.compile import compile_kernel as compile_for_amd

    return compile_for_amd(
        module, name, target, wave_size=wave_size, code_object_version=code_object_version
    )
