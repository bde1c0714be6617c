"""What ``ld``, ``ldu`` and ``st`` take beside the operands that the manual shows, as ptxas has it."""

from __future__ import annotations

from collections.abc import Sequence

from zluda.ptx.module import Address, Element, Operand, Register, Symbol, Vector

OPCODES = frozenset(("ld", "ldu", "st"))


def without_braces(opcode: str, operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
    """``ld.global.b32 {%r1}, [%rd1]``: a vector of one element, without ``.vec``, is the element.

    A special register stays as it is: ``st`` takes it in braces only.
    """
    if opcode not in OPCODES:
        return operands
    return tuple(map(_element, operands))


def _element(operand: Operand) -> Operand:
    if not isinstance(operand, Vector) or len(operand.elements) > 1:
        return operand
    (element,) = operand.elements
    return operand if isinstance(element, Register) and element.special else element


def elements_as_addresses(
    opcode: str, operands: tuple[Operand, ...], pieces: Sequence[str]
) -> tuple[Operand, ...]:
    """``ld.shared.u32 %r1, v[2]``: an array's element stands for its address (PTX ISA 6.4.2)."""
    if opcode not in OPCODES:
        return operands
    return tuple(map(_address, operands, pieces))


def _address(operand: Operand, piece: str) -> Operand:
    if isinstance(operand, Element):
        return Address(operand)
    if isinstance(operand, Symbol) and piece.rstrip().endswith("]"):
        return Address(Symbol(operand.name), operand.offset)
    return operand
