"""The compiler: typed PTX → LLVM IR text → machine code for a target.

Owns the IR builder (``ir.py``), the analyses (``analysis/``), lowering (``lower/``: what each instruction
means, over a target's ``TargetOps``), one folder a target (``cpu/``, ``amd/``, ``nvptx/``; what the last two
share is in ``gpu/``), and the kernel cache (``cache/``). May import what stands below it. It is given a typed
module and a kernel's name, and gives back a :class:`~zluda.compiler.target.CompiledKernel`: a relocatable
object and what a device needs to launch it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zluda.compiler.target import CompiledKernel, Dim3, Together
    from zluda.compiler.unit import Unit
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
    end_refused: bool = False,
    numerics: str = "nvidia",
    contract: str = "auto",
    check: str = "none",
    scheduled: bool = False,
    together: Together | None = None,
) -> CompiledKernel:
    """Compile one kernel, with what it calls, to a relocatable object.

    For ``"cpu"`` the code is for one block shape; AMD's (``"gfx1030"``, ``"gfx90a:xnack-"`` …) is for any,
    and so is that for NVIDIA's (``"sm_90"``), which is PTX.
    ``wave_size`` says how many lanes a wave has (0: as is natural), ``code_object_version`` what AMD's
    loader is to read (4 or 5), and ``end_refused`` that a wave which comes to what cannot be done ends where
    a trap would end the process. ``numerics`` is how approximate instructions are computed: as NVIDIA's units
    do, or ``"native"``, by the target's own; ``contract`` which products and sums are rounded as one
    (:mod:`zluda.compiler.contract`), ``check`` which accesses are tested as they are made (``"memory"``),
    ``scheduled`` that on the CPU warps take turns at accesses to memory, as the launch's seed has it,
    ``together`` how its blocks are launched. Raises PtxError when the kernel's text is wrong,
    UnsupportedError naming the first instruction (and its place) that has no lowering on the target. What was
    compiled before comes out of the kernel cache (``cache/``).
    """
    from zluda import config
    from zluda.compiler.cache import kernels
    from zluda.compiler.services import compiled_apart
    from zluda.compiler.target import APART

    options: dict[str, Any]
    together = together or APART
    blocks = {} if together == APART else {"together": together}
    checks = {} if check == "none" else {"check": check}
    level = config.load().optimization_level
    levels = {"level": level} if level else {}
    if target == "cpu":
        from zluda.compiler.unit import kernel_unit

        turned = bool(blocks or checks or scheduled)  # then functions are not what they are for others
        outside = frozenset() if turned else compiled_apart(module)
        unit = kernel_unit(module, name, block, contract, together, outside=outside)
        turns = {"scheduled": True} if scheduled else {}
        options = {"block": block, "numerics": numerics, **blocks, **checks, **turns, **levels}
        unit.numerics, unit.check, unit.scheduled, unit.level = numerics, check, scheduled, level
        return kernels.compiled(unit, target, options, lambda: _cpu(unit))
    if target.startswith("sm_"):
        from zluda.compiler.nvptx.unit import build_unit as nvptx_unit

        unit = nvptx_unit(module, name, contract)
        unit.numerics = numerics
        return kernels.compiled(unit, target, {"numerics": numerics}, lambda: _nvptx(unit, target))
    from zluda.compiler.amd.targets import target_id
    from zluda.compiler.amd.unit import build_unit
    from zluda.compiler.target import WARP

    outside = frozenset() if blocks or checks else compiled_apart(module)
    unit = build_unit(module, name, contract, together, outside=outside)
    unit.numerics, unit.check, unit.level = numerics, check, level
    lanes = wave_size or target_id(target).target.wave_size  # one key, however it was asked for
    options = {
        "wave_size": lanes,
        "code_object_version": code_object_version,
        "end_refused": end_refused,
    }
    told = {**options, **blocks, **checks, **levels, "numerics": numerics}
    told["slow_mode"] = unit.slow_mode if lanes > WARP else ""
    return kernels.compiled(unit, target, told, lambda: _amd(unit, target, **options))


# Lowering is imported when something is lowered: a kernel out of the cache needs none of it.


def _cpu(unit: Unit) -> CompiledKernel:
    from zluda.compiler.cpu.compile import compile_unit

    return compile_unit(unit)


def _nvptx(unit: Unit, target: str) -> CompiledKernel:
    from zluda.compiler.nvptx.compile import compile_unit

    return compile_unit(unit, target)


def _amd(unit: Unit, target: str, **options: Any) -> CompiledKernel:
    from zluda.compiler.amd.compile import compile_unit

    return compile_unit(unit, target, **options)
