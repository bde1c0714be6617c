"""Typed PTX one thread at a time, in plain Python: the meaning of control flow without warps.

Knows the little integer language that :mod:`random_kernels` writes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from zluda.ptx import Module
from zluda.ptx.module import (
    Address,
    BranchTargets,
    Function,
    Immediate,
    Instruction,
    Label,
    LabelStatement,
    Negated,
    Operand,
    Register,
    Symbol,
    Vector,
)

FULL = 0xFFFFFFFF


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


ARITHMETIC: dict[str, Callable[..., int]] = {
    "mov": lambda a: a,
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "xor": lambda a, b: a ^ b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "shl": lambda a, b: a << b if b < 32 else 0,
    "shr": lambda a, b: a >> b if b < 32 else 0,
    "selp": lambda a, b, p: a if p else b,
    "mad": lambda a, b, c: a * b + c,
}
COMPARE: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "ge": lambda a, b: a >= b,
}


class Exited(Exception):
    """The thread executed ``exit``."""


@dataclass
class Thread:
    """One thread's registers; ``memory`` maps addresses to 32-bit words and is shared."""

    module: Module
    function: Function
    specials: dict[str, int]
    parameters: dict[str, int]
    memory: dict[int, int]
    registers: dict[str, int] = field(default_factory=dict)

    def run(self, limit: int = 20_000) -> None:
        """Execute to the end."""
        body = self.function.body or []
        labels = {s.name: i for i, s in enumerate(body) if isinstance(s, LabelStatement)}
        tables = {s.name: s.targets for s in body if isinstance(s, BranchTargets)}
        at = 0
        for _ in range(limit):
            if at >= len(body):
                return
            statement = body[at]
            at += 1
            if not isinstance(statement, Instruction) or not self._executes(statement):
                continue
            if statement.opcode == "ret":
                return
            if statement.opcode == "exit":
                raise Exited
            if statement.opcode == "bra":
                at = labels[statement.operands[0].name]  # type: ignore[union-attr]
            elif statement.opcode == "brx":
                index, table = statement.operands
                assert isinstance(table, Label)
                at = labels[tables[table.name][self.value(index)]]
            elif statement.opcode == "call":
                self._call(statement)
            else:
                self._compute(statement)
        raise AssertionError("the kernel does not end")

    def _call(self, instruction: Instruction) -> None:
        """A direct call with registers as parameters and result."""
        results, callee, arguments = instruction.operands
        assert isinstance(results, Vector) and isinstance(callee, Symbol) and isinstance(arguments, Vector)
        function = self.module.function(callee.name)
        values = [self.value(a) for a in arguments.elements]
        registers = dict(zip([p.name for p in function.parameters], values, strict=True))
        Thread(self.module, function, self.specials, {}, self.memory, registers).run()
        self.registers[results.elements[0].name] = registers[function.returns[0].name]  # type: ignore[union-attr]

    def _executes(self, instruction: Instruction) -> bool:
        guard = instruction.guard
        return guard is None or bool(self.registers.get(guard.register.name, 0)) != guard.negated

    def value(self, operand: Operand) -> int:
        match operand:
            case Register(name=name, special=True):
                return self.specials[name]
            case Register(name=name):
                return self.registers.get(name, 0)
            case Negated(operand=inner):
                return 1 - self.registers.get(inner.name, 0)
            case Immediate(value=value):
                return value
            case Address(base=Symbol(name=name)):
                return self.parameters[name]
            case Address(base=base, offset=offset):
                return self.value(base) + offset
        raise TypeError(f"the interpreter has no value for the operand {operand!r}")

    def _compute(self, instruction: Instruction) -> None:
        opcode = instruction.opcode
        if opcode == "st":
            target, source = instruction.operands
            self.memory[self.value(target)] = self.value(source) & FULL
            return
        destination, *sources = instruction.operands
        assert isinstance(destination, Register)
        wide = (1 << destination.type.bits) - 1
        values = [self.value(s) for s in sources]
        if opcode == "ld":
            loads = isinstance(sources[0], Address) and isinstance(sources[0].base, Register)
            result = self.memory[values[0]] if loads else values[0]
        elif opcode == "setp":
            values = [v & FULL for v in values]
            if instruction.type.kind == "s":
                values = [_signed(v) for v in values]
            result = int(COMPARE[instruction.slots["cmp"]](*values))
        else:
            if instruction.slots.get("mode") != "wide":
                values = [v & wide for v in values]
            result = ARITHMETIC[opcode](*values)
        self.registers[destination.name] = result & wide
