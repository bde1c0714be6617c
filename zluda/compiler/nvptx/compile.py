"""A kernel for an NVIDIA GPU: LLVM IR of its functions, and the PTX that they make."""

from __future__ import annotations

from collections.abc import Iterator

from zluda.compiler.codegen import FunctionCodegen
from zluda.compiler.gpu.calls import define_function
from zluda.compiler.large import choose_solo, is_large
from zluda.compiler.layout import parameter_layout
from zluda.compiler.lower import families  # noqa: F401  (registers every lowering)
from zluda.compiler.native import LEAVE
from zluda.compiler.nvptx import approximate
from zluda.compiler.nvptx.control import LoopControl
from zluda.compiler.nvptx.llvm import TRIPLE, emit
from zluda.compiler.nvptx.ops import NvptxOps
from zluda.compiler.nvptx.targets import target
from zluda.compiler.target import CompiledKernel
from zluda.compiler.unit import Unit


def compile_unit(unit: Unit, target_name: str) -> CompiledKernel:
    """A kernel, with what it calls, as PTX text. Raises UnsupportedError, naming the instruction."""
    return unit.finished(ptx_text(unit, target_name))


def ptx_text(unit: Unit, target_name: str, kind: str = "asm") -> bytes:
    """The PTX of a kernel (``kind`` ``"llvm"``: its IR after optimisation)."""
    chosen = target(target_name)
    text = kernel_ir(unit)
    level = 0 if is_large(unit) else 3
    return emit(text, chosen, chosen.ptx(unit.module.version), level=level, kind=kind)


def kernel_ir(unit: Unit) -> str:
    """LLVM IR of a whole kernel, complete but for the data layout."""
    ops = NvptxOps()
    choose_solo(unit)
    unit.ir.approximate = approximate.compute
    unit.ir.any_nan = True
    unit.ir.nan_by_arithmetic = unit.numerics != "native"
    unit.ir.compact = is_large(unit)
    for name in unit.functions:
        define_function(unit, name, ops, lambda f: LoopControl(f, lambda: None))
    _define_kernel(unit, ops)
    directives = " ".join(f'"{name}"="{value}"' for name, value in _directives(unit))
    return "\n".join(
        [
            f'target triple = "{TRIPLE}"',
            unit.ir.text(),
            "attributes #0 = { convergent nounwind }",
            f"attributes #1 = {{ convergent nounwind {directives} }}",
            "!0 = !{}",
            "",
        ]
    )


_DIRECTIVES = {
    "maxntid": "nvvm.maxntid",
    "reqntid": "nvvm.reqntid",
    "minnctapersm": "nvvm.minctasm",
    "maxnreg": "nvvm.maxnreg",
    "reqnctapercluster": "nvvm.cluster_dim",
    "maxclusterrank": "nvvm.maxclusterrank",
}
"""A kernel's directives as LLVM's attributes of functions."""


def _directives(unit: Unit) -> Iterator[tuple[str, str]]:
    for directive, values in unit.kernel.directives.items():
        if directive in _DIRECTIVES and values:
            yield _DIRECTIVES[directive], ",".join(map(str, values))


def _define_kernel(unit: Unit, ops: NvptxOps) -> None:
    f = FunctionCodegen(unit, unit.kernel, ops, partial=False)
    LoopControl(f, lambda: None).write()
    f.b.branch(LEAVE)
    f.b.label(LEAVE)
    f.b.ret()
    slots, size = parameter_layout(unit.kernel.parameters)
    align = max([16, *(slot.align for slot in slots)])
    parameters = (
        f'ptr byval([{size} x i8]) align {align} "nvvm.grid_constant" {ops.parameters.ref}' if size else ""
    )
    unit.ir.define(unit.kernel.name, f'ptx_kernel void @"{unit.kernel.name}"({parameters}) #1', f.b)
