"""What in a kernel lets its results depend on the order in which threads run, or on the moment.

The static class of a kernel: where nothing is found, NVIDIA computes the same bits each time, but for
threads that race for plain memory. Integer reductions whose results nobody reads commute (PTX ISA 9.7.13.5),
and so do minima and maxima of floats; sums of floats round in the order they come in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from zluda.compiler.analysis.operands import registers, split
from zluda.compiler.unit import Unit
from zluda.ptx.module import Address, Function, Indexed, Instruction, Operand, Register, Symbol, Vector

_COMMUTING = frozenset(("add", "min", "max", "and", "or", "xor"))
_REDUCING = frozenset(("red", "multimem", "cp"))  # those with an operation, and without a result
_COMMUNICATING = frozenset(("volatile", "relaxed", "acquire", "mmio"))
_OTHERS_WRITE = frozenset(("", "global", "shared::cluster"))  # memory that other blocks write too
# Special registers that are another number each time (PTX ISA 10).
_MOMENTARY = ("%clock", "%globaltimer", "%smid", "%warpid", "%gridid", "%pm")
_ALLOCATING = frozenset(("malloc",))


def varying(unit: Unit) -> list[str]:
    """The instructions and special registers of a kernel, and of all it can call, on whose account its
    results may vary; each once, as PTX writes it: ``atom.add.f32``, ``%clock64``.
    """
    functions = (unit.kernel, *unit.functions.values())
    return sorted({name for function in functions for name in _of(function)})


def _of(function: Function) -> Iterator[str]:
    instructions = list(function.instructions)
    read = {register.name for one in instructions for register in _sources(one)}
    for one in instructions:
        yield from _names(one, read)


def _names(one: Instruction, read: set[str]) -> Iterator[str]:
    yield from _momentary(one.operands)
    if one.opcode == "activemask":
        yield "activemask"
    if one.opcode == "ld" and _communicates(one):
        yield f"ld.{one.slots['sem']}"
    if one.opcode == "call":
        yield from (o.name for o in one.operands if isinstance(o, Symbol) and o.name in _ALLOCATING)
    if one.opcode == "atom" or (one.opcode in _REDUCING and "op" in one.slots):
        name = _atomic(one, read)
        if name is not None:
            yield name


def _atomic(one: Instruction, read: set[str]) -> str | None:
    """The name of an atomic operation whose outcome depends on when it comes."""
    op = one.slots["op"]
    kind = one.type.kind if one.types else "f"  # a tensor map's elements may be floats
    wanted = one.opcode == "atom" and any(r.name in read for r in registers(one.operands[0]))
    if op in _COMMUTING and not wanted and not (op == "add" and kind == "f"):
        return None
    words = [one.opcode, *(("reduce",) if one.opcode == "cp" else ()), op]
    return ".".join([*words, *(type.spelling for type in one.types[:1])])


def _communicates(one: Instruction) -> bool:
    return one.slots.get("sem") in _COMMUNICATING and one.slots.get("space", "") in _OTHERS_WRITE


def _momentary(operands: Iterable[Operand]) -> Iterator[str]:
    for operand in operands:
        if isinstance(operand, Vector):
            yield from _momentary(operand.elements)
        elif isinstance(operand, Register) and operand.special and operand.name.startswith(_MOMENTARY):
            yield operand.name


def _sources(one: Instruction) -> Iterator[Register]:
    """The registers that an instruction reads; those that say where it writes among them."""
    destinations, sources = split(one)
    for operand in sources:
        yield from registers(operand)
    for operand in destinations:
        if isinstance(operand, Address | Indexed):
            yield from registers(operand)
    if one.guard is not None:
        yield one.guard.register
