"""Registers that never hold a subnormal f32, so that ``.ftz`` instructions need not flush them again.

What an ``.ftz`` instruction gives is flushed (PTX ISA 9.7.3), and code that nvcc compiled with ``-ftz=true``
is little else. A register starts as zero.
"""

from __future__ import annotations

from collections.abc import Set

from zluda.compiler.analysis.cfg import Graph
from zluda.ptx.module import Immediate, Instruction, Operand, Register
from zluda.ptx.types import ScalarType

_FLUSHING = frozenset(
    {"abs", "add", "cvt", "div", "fma", "mad", "max", "min", "mul", "neg", "sub"}
    | {"ex2", "rcp", "rsqrt", "sqrt"}
)
"""Opcodes whose ``.ftz.f32`` results are flushed, whoever computes them."""

_CHOOSING = {"mov": slice(1, 2), "selp": slice(1, 3)}
"""Opcodes that hand on what these operands hold."""


def flushed_registers(graph: Graph, given: Set[str]) -> set[str]:
    """Names of the registers whose every definition leaves a number that flushing does not change.

    ``given`` are those that may have another value when the function is entered.
    """
    definers = graph.definers()
    found = {n for n, instructions in definers.items() if all(map(_may_flush, instructions))} - given
    changed = True
    while changed:
        lost = {n for n in found if not all(_flushes(i, found) for i in definers[n])}
        found -= lost
        changed = bool(lost)
    return found


def is_subnormal(bits: int) -> bool:
    """Whether the bits of an f32 are a subnormal number's."""
    return not bits & 0x7F800000 and bool(bits & 0x7FFFFF)


def _may_flush(instruction: Instruction) -> bool:
    if instruction.opcode in _CHOOSING:
        return isinstance(instruction.operands[0], Register) and instruction.type.bits == 32
    if instruction.types[:1] != (ScalarType.F32,) or instruction.opcode not in _FLUSHING:
        return False
    from_integer = instruction.opcode == "cvt" and instruction.types[1].kind in "su"
    return instruction.has("ftz") or from_integer


def _flushes(instruction: Instruction, found: set[str]) -> bool:
    chosen = _CHOOSING.get(instruction.opcode)
    return chosen is None or all(_is_flushed(o, found) for o in instruction.operands[chosen])


def _is_flushed(operand: Operand, found: set[str]) -> bool:
    if isinstance(operand, Immediate):
        return operand.float_bits in (None, 32) and not is_subnormal(operand.value & 0xFFFFFFFF)
    return isinstance(operand, Register) and operand.name in found
