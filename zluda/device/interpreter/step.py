"""One instruction, for the threads that execute it together: its operands as arrays, its results put away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from zluda.device.interpreter.floats import F32, narrow, widen
from zluda.device.interpreter.values import UNSIGNED, Bits, resize, width
from zluda.errors import UnsupportedError
from zluda.ptx.module import (
    Address,
    Immediate,
    Instruction,
    Negated,
    Operand,
    Pair,
    Register,
    Selected,
    Sink,
    Symbol,
    Vector,
)
from zluda.ptx.printer import print_instruction
from zluda.ptx.types import ScalarType

if TYPE_CHECKING:
    from zluda.device.interpreter.frames import Frame
    from zluda.device.interpreter.machine import Machine


class Step:
    """``threads`` are the numbers of the threads, ascending; arrays have an element for each of them."""

    __slots__ = ("_all", "depth", "frame", "inst", "machine", "pc", "threads")

    def __init__(
        self, machine: Machine, frame: Frame, inst: Instruction, pc: int, threads: Bits, depth: int = 0
    ) -> None:
        self.machine, self.frame, self.inst, self.pc, self.threads = machine, frame, inst, pc, threads
        self.depth = depth  # of calls, as a negative number
        self._all = len(threads) == machine.count

    @property
    def count(self) -> int:
        """How many threads there are."""
        return len(self.threads)

    @property
    def type(self) -> ScalarType:
        """The instruction's first type."""
        return self.inst.types[0]

    def has(self, flag: str) -> bool:
        """Whether a modifier was written."""
        return flag in self.inst.slots

    def slot(self, name: str, default: str = "") -> str:
        """The word in a modifier's slot."""
        return self.inst.slots.get(name, default)

    def unsupported(self, what: str = "") -> UnsupportedError:
        """The error that names this instruction and its place."""
        where = f"{self.frame.place}:{self.inst.location.line}, device interpreter"
        return UnsupportedError(what or print_instruction(self.inst), where, began=True)

    # --- sources --------------------------------------------------------------------------------------

    def read(self, index: int, type: ScalarType | None = None) -> Bits:
        """Operand ``index`` (destinations count) as bits of a type, by default the instruction's."""
        return self.value(self.inst.operands[index], type or self.inst.types[0])

    def reads(self, count: int) -> list[Bits]:
        """The first ``count`` sources, of the instruction's type."""
        first = self.inst.destinations
        return [self.read(first + i) for i in range(count)]

    def value(self, operand: Operand, type: ScalarType) -> Bits:
        """An operand as bits of a type: cut where its register is wider, zero-extended where narrower."""
        if isinstance(operand, Register):
            found = self.register(operand)
            if type.bits == 128:
                return found
            return resize(found if found.ndim == 1 else np.ascontiguousarray(found[:, 0]), type.bits)
        if isinstance(operand, Immediate):
            return self._constant(operand, type)
        if isinstance(operand, Negated):
            return ~self.register(operand.operand)
        if isinstance(operand, Symbol):
            return resize(self.machine.address_of(self, operand.name) + np.uint64(operand.offset), type.bits)
        if isinstance(operand, Selected):
            return self.register(operand.operand)
        if isinstance(operand, Address) and not isinstance(operand.base, Register):
            return self.address(operand)
        raise self.unsupported()

    def register(self, register: Register) -> Bits:
        """A register's bits, as wide as it is."""
        if register.special:
            return self.machine.special(register.name, self)
        found = self.frame.registers[register.name]
        return found if self._all else found[self.threads]

    def _constant(self, operand: Immediate, type: ScalarType) -> Bits:
        if type.bits == 128:
            return np.tile(
                np.array([operand.value % 2**64, operand.value >> 64 & 2**64 - 1], np.uint64), (self.count, 1)
            )
        bits = operand.value
        if operand.float_bits == 64 and type.bits == 32:  # a decimal literal, which PTX holds as f64
            bits = int(narrow(np.array([bits], np.uint64).view(np.float64), F32)[0])
        elif operand.float_bits == 32 and type.bits == 64:
            bits = int(widen(np.array([bits], np.uint32), F32).view(np.uint64)[0])
        if type.bits == 1:
            return np.full(self.count, bits != 0)
        kind = UNSIGNED[type.bits]
        return np.full(self.count, bits & ((1 << type.bits) - 1), kind)

    def address(self, operand: Address) -> Bits:
        """The address that ``[…]`` names, 64 bits."""
        base = operand.base
        if isinstance(base, Register):
            return resize(self.register(base), 64) + np.uint64(operand.offset % 2**64)
        if isinstance(base, Immediate):
            return np.full(self.count, (base.value + operand.offset) % 2**64, np.uint64)
        if isinstance(base, Symbol):
            return self.machine.address_of(self, base.name) + np.uint64(
                (base.offset + operand.offset) % 2**64
            )
        array, index = base.array, resize(self.register(base.index), 64, sign=base.index.type.kind == "s")
        start = self.machine.address_of(self, array.name) + np.uint64((array.offset + operand.offset) % 2**64)
        return start + (index + np.uint64(base.first % 2**64)) * np.uint64(base.size)

    # --- destinations ---------------------------------------------------------------------------------

    def write(self, values: Bits, index: int = 0, *, sign: bool = False) -> None:
        """Put a result into operand ``index``; a wider register is filled by zeros, or by the sign."""
        operand = self.inst.operands[index]
        if isinstance(operand, Pair):
            operand = operand.first
        self.put(operand, values, sign=sign)

    def write_both(self, values: Bits, second: Bits) -> None:
        """Put results into ``d|p``, of which either may be left out."""
        operand = self.inst.operands[0]
        if isinstance(operand, Pair):
            self.put(operand.second, second)
            operand = operand.first
        self.put(operand, values)

    def put(self, operand: Operand, values: Bits, *, sign: bool = False) -> None:
        """Put values into a register."""
        if isinstance(operand, Sink):
            return
        if isinstance(operand, Selected):
            operand = operand.operand
        if not isinstance(operand, Register):
            raise self.unsupported()
        found = self.frame.registers[operand.name]
        if found.ndim == 2 and values.ndim == 1:  # 128 bits of a narrower value
            low = resize(values, 64, sign=sign)
            high = np.where(sign & (low >> np.uint64(63) != 0), ~np.uint64(0), np.uint64(0))
            values = np.stack([low, high], axis=1)
        elif found.ndim == 1 and values.dtype != found.dtype:
            values = resize(values, width(found), sign=sign)
        if self._all:
            found[:] = values
        else:
            found[self.threads] = values

    def elements(self, operand: Operand) -> tuple[Operand, ...]:
        """A vector's elements; an operand that is none is its own only element."""
        return operand.elements if isinstance(operand, Vector) else (operand,)
