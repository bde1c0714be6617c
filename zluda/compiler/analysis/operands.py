"""Which registers an instruction reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from zluda.compiler.lower.lanewise import reads_carry, writes_carry
from zluda.ptx.module import (
    Address,
    Element,
    Indexed,
    Instruction,
    Minus,
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


def registers(operand: Operand) -> list[Register]:
    """The registers an operand names, special ones left out."""
    if isinstance(operand, Register):
        return [] if operand.special else [operand]
    inside = _INSIDE.get(type(operand))
    return [] if inside is None else [r for part in inside(operand) for r in registers(part)]


_INSIDE: dict[type, Callable[[Any], Iterable[Operand]]] = {
    Address: lambda o: (o.base,),
    Element: lambda o: (o.index,),
    Vector: lambda o: o.elements,
    Pair: lambda o: (o.first, o.second),
    Negated: lambda o: (o.operand,),
    Selected: lambda o: (o.operand,),
    Minus: lambda o: (o.operand,),
    Indexed: lambda o: (*o.objects, o.coordinates),
}
"""The operands that an operand is made of."""


def split(instruction: Instruction) -> tuple[tuple[Operand, ...], tuple[Operand, ...]]:
    """Destination and source operands. A call's destinations are the registers it returns into."""
    operands = instruction.operands
    if instruction.opcode == "call":
        first = isinstance(operands[0], Vector) and len(operands) > 1
        return (operands[:1], operands[1:]) if first else ((), operands)
    return operands[: instruction.destinations], operands[instruction.destinations :]


def definitions(instruction: Instruction) -> list[Register]:
    """Registers written."""
    destinations = split(instruction)[0]
    if len(destinations) == 1 and destinations[0].__class__ not in _PLACES:
        found = registers(destinations[0])  # as it mostly is
    else:
        found = [
            r for operand in destinations if not isinstance(operand, _PLACES) for r in registers(operand)
        ]
    return [*found, CARRY] if writes_carry(instruction) else found


def uses(instruction: Instruction) -> list[Register]:
    """Registers read; the guard first."""
    found = [instruction.guard.register] if instruction.guard else []
    destinations, sources = split(instruction)
    for operand in destinations:
        if isinstance(operand, _PLACES):
            found += registers(operand)
    for operand in sources:
        found += registers(operand)
    if instruction.opcode == "wgmma":  # the accumulators are read as well
        for operand in destinations:
            found += registers(operand)
    return [*found, CARRY] if reads_carry(instruction) else found
