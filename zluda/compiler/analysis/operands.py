"""Which registers an instruction reads and writes."""

from __future__ import annotations

from collections.abc import Iterator

from zluda.compiler.lower.lanewise import reads_carry, writes_carry
from zluda.ptx.module import (
    Address,
    Element,
    Indexed,
    Instruction,
    Negated,
    Operand,
    Pair,
    Register,
    Selected,
    Vector,
)
from zluda.ptx.types import ScalarType

_PLACES = (Address, Indexed)  # what is written is not the operand's registers but where they say

CARRY = Register("%CC.CF", ScalarType.PRED)
"""The condition code register's carry flag (PTX ISA 9.7.2), which no operand names."""


def registers(operand: Operand) -> Iterator[Register]:
    """The registers an operand names, special ones left out."""
    match operand:
        case Register():
            if not operand.special:
                yield operand
        case Address():
            yield from registers(operand.base)
        case Element():
            yield from registers(operand.index)
        case Vector():
            for element in operand.elements:
                yield from registers(element)
        case Pair():
            yield from registers(operand.first)
            yield from registers(operand.second)
        case Negated() | Selected():
            yield from registers(operand.operand)
        case Indexed():
            for part in (*operand.objects, operand.coordinates):
                yield from registers(part)
        case _:
            return


def split(instruction: Instruction) -> tuple[tuple[Operand, ...], tuple[Operand, ...]]:
    """Destination and source operands. A call's destinations are the registers it returns into."""
    operands = instruction.operands
    if instruction.opcode == "call":
        first = isinstance(operands[0], Vector) and len(operands) > 1
        return (operands[:1], operands[1:]) if first else ((), operands)
    return operands[: instruction.destinations], operands[instruction.destinations :]


def definitions(instruction: Instruction) -> list[Register]:
    """Registers written."""
    found = [
        r for operand in split(instruction)[0] if not isinstance(operand, _PLACES) for r in registers(operand)
    ]
    return [*found, CARRY] if writes_carry(instruction) else found


def uses(instruction: Instruction) -> list[Register]:
    """Registers read; the guard first."""
    found = [instruction.guard.register] if instruction.guard else []
    destinations, sources = split(instruction)
    found += [r for operand in destinations if isinstance(operand, _PLACES) for r in registers(operand)]
    found += [r for operand in sources for r in registers(operand)]
    if instruction.opcode == "wgmma":  # the accumulators are read as well
        found += [r for operand in destinations for r in registers(operand)]
    return [*found, CARRY] if reads_carry(instruction) else found
