"""Clusters of one block: every block is its cluster's only one (PTX ISA 9.7.9.23, .24, 9.7.13.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zluda.compiler.lanes import uniform
from zluda.compiler.lower.table import lowers
from zluda.ptx.module import Instruction, Operand, Symbol

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen
    from zluda.compiler.target import Lanes


def refuse_clusters(f: FunctionCodegen, instruction: Instruction) -> None:
    """Raise UnsupportedError in a kernel that asks for clusters of more than one block."""
    blocks = 1
    for count in f.unit.kernel.directives.get("reqnctapercluster", ()):
        blocks *= count
    if blocks > 1:
        raise f.unsupported(instruction, f"{instruction.opcode} in clusters of {blocks} blocks")


def _address(f: FunctionCodegen, instruction: Instruction, operand: Operand) -> Lanes:
    """The address operand: of a shared variable, generic where no space is written."""
    bits = instruction.type.bits
    if not isinstance(operand, Symbol) or "space" in instruction.slots:
        return f.read_bits(operand, bits)
    base = f.resize(f.read(operand), 64)
    start = f.ops.window(f, "shared")
    return uniform(f.b.resize(f.b.add(base.parts[0], start), f"i{bits}"))


@lowers("mapa")
def map_address(f: FunctionCodegen, instruction: Instruction) -> None:
    """``mapa``: the same place in the memory of the cluster's block of a rank, which is this block."""
    refuse_clusters(f, instruction)
    f.write(instruction.operands[0], _address(f, instruction, instruction.operands[1]))


@lowers("getctarank")
def block_rank(f: FunctionCodegen, instruction: Instruction) -> None:
    """``getctarank``: 0."""
    refuse_clusters(f, instruction)
    f.write(instruction.operands[0], uniform(f.b.const("i32", 0)))
