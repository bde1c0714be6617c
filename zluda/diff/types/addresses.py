"""Where each access of a program goes (:mod:`zluda.diff.types.places`), by one flow-insensitive analysis.

A register is what any of its definitions makes it. Values that loads bring are origins of their own, so that
a word which is used as an address is known to be a pointer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from zluda.diff.types.places import (
    ANYTHING,
    Origin,
    Place,
    added,
    joined,
    masked,
    mixed,
    negative,
    number,
    product,
)
from zluda.diff.types.program import LOADS, Program, handed, leaves, registers
from zluda.ptx.module import Address, Element, Immediate, Instruction, Operand, Register, Symbol

LOADED = "*"
"""What the name of an origin begins with that is a loaded value; the register's name follows."""

OF_PARAMETER = "&"
"""What the name of an origin begins with that is a parameter's own address."""

Read = Callable[[Operand], Place]


def _copied(inst: Instruction, read: Read) -> Place:
    return read(inst.operands[1])


def _added(inst: Instruction, read: Read) -> Place:
    return added(read(inst.operands[1]), read(inst.operands[2]))


def _subtracted(inst: Instruction, read: Read) -> Place:
    return added(read(inst.operands[1]), negative(read(inst.operands[2])))


def _product(inst: Instruction, read: Read) -> Place:
    if "hi" in inst.slots.values():
        return ANYTHING
    return product(read(inst.operands[1]), read(inst.operands[2]))


def _product_and_sum(inst: Instruction, read: Read) -> Place:
    return added(_product(inst, read), read(inst.operands[3]))


def _shifted(inst: Instruction, read: Read) -> Place:
    by = read(inst.operands[2]).exact
    return ANYTHING if by is None or not 0 <= by < 64 else product(read(inst.operands[1]), number(1 << by))


def _and(inst: Instruction, read: Read) -> Place:
    one, other = read(inst.operands[1]), read(inst.operands[2])
    for value, mask in ((one, other), (other, one)):
        if mask.exact is not None:
            return masked(value, mask.exact % (1 << inst.type.bits))
    return Place(one.origins | other.origins)


def _mixed(inst: Instruction, read: Read) -> Place:
    return mixed(read(inst.operands[1]), read(inst.operands[2]))


def _chosen(inst: Instruction, read: Read) -> Place:
    return joined(read(inst.operands[1]), read(inst.operands[2]))


def _shuffled(inst: Instruction, read: Read) -> Place:
    return Place(read(inst.operands[1]).origins)


_TRANSFER: dict[str, Callable[[Instruction, Read], Place]] = {
    "mov": _copied,
    "cvta": _copied,
    "cvt": _copied,
    "mapa": _copied,
    "add": _added,
    "sub": _subtracted,
    "mul": _product,
    "mul24": _product,
    "mad": _product_and_sum,
    "mad24": _product_and_sum,
    "shl": _shifted,
    "and": _and,
    "or": _mixed,
    "xor": _mixed,
    "selp": _chosen,
    "min": _chosen,
    "max": _chosen,
    "shfl": _shuffled,
}


class Addresses:
    """Places of a program's registers."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._places: dict[str, Place] = {}
        self._readers: dict[str, list[int]] = defaultdict(list)
        self._steps: list[tuple[str, str, Instruction | None, str]] = []  # (where, target, what, source)
        self._defined = frozenset(
            where + target.name
            for where, instruction in program.instructions()
            for target in registers(instruction.operands[: instruction.destinations])
        )
        for where, instruction in program.instructions():
            self._take(where, instruction)
        self._settle()

    def of(self, where: str, address: Address) -> Place:
        """Where an address operand points, its offset included."""
        return added(self._read(where, address.base), number(address.offset))

    def place(self, where: str, operand: Operand) -> Place:
        """What an operand may be."""
        return self._read(where, operand)

    # --- the analysis -------------------------------------------------------------------------------------

    def _take(self, where: str, inst: Instruction) -> None:
        if inst.opcode == "call":
            for actual, formal in handed(self._program, where, inst):
                self._copy(actual, formal)
                self._copy(formal, actual)
        elif inst.opcode in LOADS:
            self._load(where, inst)
        elif inst.opcode == "st" and self._slot(where, inst) is not None:
            for source in leaves(inst.operands[1:]):
                if isinstance(source, Register):
                    self._copy(where + source.name, self._slot(where, inst) or "")
        elif inst.opcode in _TRANSFER and isinstance(inst.operands[0], Register):
            if inst.types[0].kind in "bus" and isinstance(inst.operands[1], _READABLE):
                self._define(where, where + inst.operands[0].name, inst)
            else:
                self._set(where + inst.operands[0].name, ANYTHING)
        else:
            for target in leaves(inst.operands[: inst.destinations]):
                if isinstance(target, Register):
                    self._set(where + target.name, ANYTHING)

    def _load(self, where: str, inst: Instruction) -> None:
        """A parameter's word is an origin, and so is any other word that is loaded."""
        size = inst.type.bits // 8
        source = next(o for o in inst.operands if isinstance(o, Address))
        slot, base = self._slot(where, inst), source.base
        parameter = base.name if isinstance(base, Symbol) and where == "" and slot else None
        for index, target in enumerate(leaves(inst.operands[:1])):
            if not isinstance(target, Register):
                continue
            name = where + target.name
            if parameter is not None and isinstance(base, Symbol):
                self._set(name, _word(parameter, base.offset + source.offset + index * size, size))
            elif slot:
                self._copy(slot, name)
            elif isinstance(base, Register) and not base.special:
                self._readers[where + base.name].append(len(self._steps))
                self._steps.append((where, name, inst, str(source.offset + index * size)))
            else:
                self._set(name, _loaded(name, size))

    def _slot(self, where: str, inst: Instruction) -> str | None:
        """The parameter that a load or store names; None where it goes to memory."""
        source = next((o for o in inst.operands if isinstance(o, Address)), None)
        name = None if source is None else source.variable
        if name is None or not inst.slots.get("space", "").startswith("param"):
            return None
        return where + name

    def _set(self, target: str, place: Place) -> None:
        known = self._places.get(target)
        found = place if known is None else joined(known, place)
        if found != known:
            self._places[target] = found

    def _define(self, where: str, target: str, inst: Instruction) -> None:
        number_of = len(self._steps)
        self._steps.append((where, target, inst, ""))
        for operand in inst.operands[1:]:
            for source in leaves((operand,)):
                if isinstance(source, Register):
                    self._readers[where + source.name].append(number_of)

    def _copy(self, source: str, target: str) -> None:
        self._readers[source].append(len(self._steps))
        self._steps.append(("", target, None, source))

    def _settle(self) -> None:
        """To the least solution: from all steps on, each again when a register that it reads has changed."""
        pending = dict.fromkeys(range(len(self._steps)))
        while pending:
            step = next(iter(pending))
            del pending[step]
            where, target, inst, source = self._steps[step]
            if inst is None:
                place = self._places.get(source)
            elif inst.opcode in LOADS:
                place = self._through(where, inst, target, int(source))
            else:
                place = self._computed(where, inst)
            if place is None:
                continue
            known = self._places.get(target)
            found = place if known is None else joined(known, place)
            if found != known:
                self._places[target] = found
                pending.update(dict.fromkeys(self._readers.get(target, ())))

    def _through(self, where: str, inst: Instruction, target: str, offset: int) -> Place | None:
        """What a load through a register brings: a word of a parameter whose address that is, or any."""
        size = inst.type.bits // 8
        base = next(o.base for o in inst.operands if isinstance(o, Address))
        assert isinstance(base, Register)
        place = self._places.get(where + base.name)
        if place is None:
            return None
        names = [one.name for one in place.origins]
        if len(names) == 1 and names[0].startswith(OF_PARAMETER) and place.step == 0:
            return _word(names[0][len(OF_PARAMETER) :], place.rest + offset, size)
        return _loaded(target, size)

    def _computed(self, where: str, inst: Instruction) -> Place | None:
        """None as long as something that it reads has no value yet."""
        for source in registers(inst.operands[1:]):
            name = where + source.name
            if name in self._defined and name not in self._places and source.type.kind != "pred":
                return None
        return _TRANSFER[inst.opcode](inst, lambda operand: self._read(where, operand))

    def _read(self, where: str, operand: Operand) -> Place:
        match operand:
            case Register():
                return ANYTHING if operand.special else self._places.get(where + operand.name, ANYTHING)
            case Immediate(value=value, float_bits=None):
                return number(value)
            case Symbol(name=name, offset=offset):
                own = self._program.is_parameter(where, name)
                origin = Origin(OF_PARAMETER + name if own else name)
                return Place(frozenset({origin}), 0, offset)
            case Element(array=array, index=_, size=size, first=first):
                return added(self._read(where, array), Place(step=size, rest=first * size))
            case _:
                return ANYTHING


_READABLE = (Register, Immediate, Symbol, Element)


def _word(parameter: str, offset: int, size: int) -> Place:
    """A word of a kernel's parameter."""
    origin = Origin(parameter, offset)
    return Place(frozenset({origin}), 0, 0, whole=origin) if size == 8 else Place(whole=origin)


def _loaded(name: str, size: int) -> Place:
    return Place(frozenset({Origin(LOADED + name)}), 0, 0) if size == 8 else ANYTHING
