"""What of a kernel a device's lowering refuses: all of it, where compiling stops at the first."""

from __future__ import annotations

from collections.abc import Iterator

from zluda.compiler.amd.compile import target_ops
from zluda.compiler.amd.targets import target
from zluda.compiler.amd.unit import build_unit
from zluda.compiler.codegen import FunctionCodegen
from zluda.compiler.cpu.ops import CpuOps
from zluda.compiler.lower import families  # noqa: F401  (registers every lowering)
from zluda.compiler.target import TargetOps
from zluda.compiler.unit import kernel_unit
from zluda.errors import UnsupportedError
from zluda.ptx import Instruction, Module


def refusals(module: Module, kernel: str, device: str) -> Iterator[tuple[Instruction, str]]:
    """Each instruction of a kernel that ``device`` (``cpu`` or an AMD target) refuses, and what it says.

    Raises PtxError where the kernel is not PTX, UnsupportedError where what it names is not supported.
    """
    ops: TargetOps
    if device == "cpu":
        unit, ops = kernel_unit(module, kernel, (64, 1, 1), "off"), CpuOps()
    else:
        chosen = target(device)
        unit = build_unit(module, kernel)
        ops = target_ops(unit, chosen)
    f = FunctionCodegen(unit, unit.kernel, ops, partial=False)
    for index, block in enumerate(f.graph.blocks):
        f.mask = None
        f.enter_block(index)
        for instruction in block.instructions:
            try:
                f.write_instruction(instruction)
            except UnsupportedError as error:
                yield instruction, error.what
