"""What of a kernel a device's lowering refuses: all of it, where compiling stops at the first."""

from __future__ import annotations

from collections.abc import Iterator

from zluda.compiler.amd.compile import target_ops
from zluda.compiler.amd.targets import target
from zluda.compiler.amd.unit import build_unit
from zluda.compiler.codegen import FunctionCodegen
from zluda.compiler.cpu.ops import CpuOps
from zluda.compiler.ir import Value
from zluda.compiler.lower import families  # noqa: F401  (registers every lowering)
from zluda.compiler.lower.calls import call_operands
from zluda.compiler.services import STOPS
from zluda.compiler.target import TargetOps
from zluda.compiler.unit import Unit, kernel_unit
from zluda.errors import UnsupportedError
from zluda.ptx import Instruction, Module, Symbol


def refusals(
    module: Module,
    kernel: str,
    device: str,
    *,
    function: str | None = None,
    contract: str = "off",
    stops: bool = False,
) -> Iterator[tuple[Instruction, str]]:
    """Each instruction of a kernel that ``device`` (``cpu`` or an AMD target) refuses, and what it says.

    With ``function``, of a function that the kernel reaches; with ``stops`` also calls of functions that
    nothing defines: they are compiled, and end a launch that comes to them. Raises PtxError where the kernel
    is not PTX, UnsupportedError where what it names is not supported.
    """
    ops: TargetOps
    if device == "cpu":
        unit, ops = kernel_unit(module, kernel, (64, 1, 1), contract), CpuOps()
    else:
        unit = build_unit(module, kernel, contract)
        ops = target_ops(unit, target(device))
    if function is None:
        f = FunctionCodegen(unit, unit.kernel, ops, partial=False)
    else:
        f = FunctionCodegen(unit, unit.functions[function], ops, partial=True)
        formal = [*f.function.returns, *f.function.parameters]
        f.stack_variables |= {v.name: Value("ptr", 1, f"%parameter.{i}") for i, v in enumerate(formal)}
    for index, block in enumerate(f.graph.blocks):
        f.mask = None
        f.enter_block(index)
        for instruction in block.instructions:
            try:
                f.write_instruction(instruction)
            except UnsupportedError as error:
                yield instruction, error.what
            if stops and _is_of_nothing(unit, instruction):
                yield instruction, unit.refusals[-1].what


def _is_of_nothing(unit: Unit, instruction: Instruction) -> bool:
    if instruction.opcode != "call":
        return False
    callee = call_operands(instruction)[1]
    return isinstance(callee, Symbol) and unit.callee(callee.name) is None and callee.name not in STOPS
