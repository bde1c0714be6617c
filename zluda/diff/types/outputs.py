"""What a kernel stores to and certainly does not read."""

from __future__ import annotations

from collections.abc import Iterable

from zluda.diff.types.addresses import LOADED, Addresses
from zluda.diff.types.places import Origin
from zluda.diff.types.program import ATOMICS, LOADS, MEMORY_OPCODES, Program, leaves
from zluda.ptx.module import Address, Element, Function, Instruction, Operand, Register, Symbol

# Address arithmetic whose result has its origins still; and what neither computes an address nor lets one
# out.
_ARITHMETIC = frozenset(("mov", "cvta", "add", "sub", "mad", "selp", "min", "max", "and", "or", "cvt"))
_HARMLESS = frozenset(("setp", "set", "isspacep", "prefetch", "prefetchu", "bra", "ret", "exit", "bar"))
_OWN_SPACES = ("param", "shared", "local")


def written_only(function: Function) -> frozenset[Origin]:
    """What ``function`` stores to and certainly does not read: its pure outputs.

    An address that is passed on, stored, or computed with in unusual ways counts as read. A kernel that loads
    through an address it got from memory may read anything, so it has none.
    """
    found = Addresses(Program.of(function))
    stored: set[Origin] = set()
    read = {Origin(name) for name in function.variables}
    for instruction in function.instructions:
        if _accesses_memory(instruction):
            accessed = _accessed(found, instruction)
            if instruction.opcode == "st" or instruction.has("store"):
                stored |= accessed
            elif accessed and not any(origin.name.startswith(LOADED) for origin in accessed):
                read |= accessed
            elif not instruction.slots.get("space", "").startswith(_OWN_SPACES):
                return frozenset()
            if instruction.opcode not in LOADS:
                read |= _origins(found, (o for o in instruction.operands if not isinstance(o, Address)))
        elif instruction.opcode not in _ARITHMETIC and instruction.opcode not in _HARMLESS:
            bases = [operand.base for operand in instruction.operands if isinstance(operand, Address)]
            read |= _origins(found, [*instruction.operands, *bases])
    return frozenset(stored - read)


def _accesses_memory(instruction: Instruction) -> bool:
    """Whether it loads or stores; a ``wmma`` may."""
    fragment = instruction.opcode == "wmma" and (instruction.has("load") or instruction.has("store"))
    return fragment or instruction.opcode in MEMORY_OPCODES | ATOMICS


def _accessed(found: Addresses, instruction: Instruction) -> set[Origin]:
    if instruction.slots.get("space", "").startswith("param"):
        return set()
    addresses = [o for o in instruction.operands if isinstance(o, Address)]
    return {origin for one in addresses for origin in found.of("", one).origins}


def _origins(found: Addresses, operands: Iterable[Operand]) -> set[Origin]:
    return {
        origin
        for leaf in leaves(operands)
        if isinstance(leaf, Register | Symbol | Element)
        for origin in found.place("", leaf).origins
    }
