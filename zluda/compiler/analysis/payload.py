"""Where NaN payloads matter.

NVIDIA's f32 and f16 arithmetic gives one canonical NaN; the host's does not. Bits become observable where a
value is stored, moved into a register that also holds loaded bits, shuffled, or taken as an integer. A
register that only ever holds arithmetic results ("computed") is kept as a float and made canonical when its
bits are read; any other is kept as bits, and an arithmetic result is made canonical when written to it. So a
chain of arithmetic pays once, and loaded NaNs keep their payload.
"""

from __future__ import annotations

from zluda.compiler.analysis.cfg import Graph
from zluda.compiler.analysis.operands import definitions
from zluda.ptx.module import Immediate, Instruction, Register
from zluda.ptx.types import ScalarType

ARITHMETIC = frozenset(
    [
        "add",
        "sub",
        "mul",
        "fma",
        "mad",
        "div",
        "rcp",
        "sqrt",
        "rsqrt",
        "ex2",
        "lg2",
        "sin",
        "cos",
        "tanh",
        "min",
        "max",
        "neg",
        "abs",
        "cvt",
    ]
)
"""Opcodes whose floating-point results have the canonical NaN and whose operands' payloads do not matter."""

_ELEMENT = {ScalarType.F32: "float", ScalarType.F16: "half"}


def result_element(instruction: Instruction) -> str | None:
    """The LLVM type of an arithmetic result whose NaN is to be made canonical, else None."""
    if instruction.opcode not in ARITHMETIC or _passes_payload_on(instruction):
        return None
    return _ELEMENT.get(instruction.types[0])


def _passes_payload_on(instruction: Instruction) -> bool:
    """Conversions that keep what they can of a NaN (measured on an H200): from f64 and bf16, and no-ops."""
    if instruction.opcode != "cvt":
        return False
    return instruction.types[1] in (ScalarType.F64, ScalarType.BF16) or _changes_nothing(instruction)


def _changes_nothing(instruction: Instruction) -> bool:
    return instruction.types[0] == instruction.types[-1] == ScalarType.F32 and not instruction.slots


def reads_value_only(instruction: Instruction) -> bool:
    """Whether floating operands are read as numbers, so that their payload does not matter."""
    if instruction.has("oob") or (instruction.opcode == "cvt" and _changes_nothing(instruction)):
        return False
    return instruction.opcode in ARITHMETIC | {"setp", "set"} and instruction.types[-1].kind == "f"


def computed_registers(graph: Graph) -> dict[str, str]:
    """Registers held as floats, with their LLVM type."""
    definers = graph.definers()
    found: dict[str, str] = {}
    for name, instructions in definers.items():
        elements = {result_element(i) for i in instructions if not _moves(i)}
        element = elements.pop() if len(elements) == 1 else None
        if element is not None and _width(name, instructions[0]) == (32 if element == "float" else 16):
            found[name] = element
    changed = True
    while changed:
        lost = [n for n in found if not all(_keeps(i, found, found[n]) for i in definers[n])]
        for name in lost:
            del found[name]
        changed = bool(lost)
    return found


def _width(name: str, definer: Instruction) -> int:
    return next(register.type.bits for register in definitions(definer) if register.name == name)


def _moves(instruction: Instruction) -> bool:
    return instruction.opcode == "mov" and len(instruction.operands) == 2


def _keeps(instruction: Instruction, found: dict[str, str], element: str) -> bool:
    """Whether a definition leaves nothing but canonical or to-be-canonical values of ``element``."""
    if not _moves(instruction):
        return result_element(instruction) == element
    source = instruction.operands[1]
    if isinstance(source, Immediate):
        return source.float_bits is not None and not _is_nan(source)
    return isinstance(source, Register) and found.get(source.name) == element


def _is_nan(literal: Immediate) -> bool:
    exponent, mantissa = (0x7F800000, 0x7FFFFF) if literal.float_bits == 32 else (0x7FF << 52, (1 << 52) - 1)
    return literal.value & exponent == exponent and literal.value & mantissa != 0
