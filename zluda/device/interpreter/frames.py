"""A function's registers and variables, for the threads that are in it at one depth of calls."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from zluda.device.interpreter.values import UNSIGNED, Bits
from zluda.ptx.module import BranchTargets, CallPrototype, Function, Instruction, LabelStatement, Variable
from zluda.ptx.types import ScalarType


def aligned(value: int, step: int) -> int:
    """The next multiple of ``step``."""
    return -(-value // max(step, 1)) * max(step, 1)


def places(variables: list[Variable], start: int = 0) -> tuple[dict[str, int], int]:
    """Offsets of variables one behind the other, each aligned as it is declared (PTX ISA 5.4.5); the end."""
    offsets: dict[str, int] = {}
    for variable in variables:
        start = aligned(start, variable.align)
        offsets[variable.name] = start
        start += variable.size
    return offsets, start


class Code:
    """A function as the machine steps through it: instructions by number, labels, and where locals lie."""

    def __init__(self, function: Function, number: int, file: str) -> None:
        self.function, self.number = function, number
        kind = "kernel" if function.is_entry else "function"
        self.place = f"{kind} {function.name}, {file}"
        self.instructions: list[Instruction] = []
        self.labels: dict[str, int] = {}
        self.targets: dict[str, BranchTargets] = {}
        self.prototypes: dict[str, CallPrototype] = {}
        for statement in function.body or ():
            if isinstance(statement, Instruction):
                self.instructions.append(statement)
            elif isinstance(statement, LabelStatement):
                self.labels[statement.name] = len(self.instructions)
            elif isinstance(statement, BranchTargets):
                self.targets[statement.name] = statement
            else:
                self.prototypes[statement.name] = statement
        own = [v for v in function.variables.values() if v.space in ("local", "param")]
        handed = [] if function.is_entry else [*function.parameters, *function.returns]
        self.variables: Mapping[str, Variable] = function.variables
        handed = [v for v in handed if v.space != "reg" and v.name not in {o.name for o in own}]
        self.locals, end = places([*handed, *own])
        self.frame_bytes = aligned(end, 16)


class Frame:
    """Registers by name, one element a thread of the whole machine; ``base`` is where a thread's locals
    are."""

    def __init__(self, code: Code, count: int, base: Bits) -> None:
        self.code, self.place, self.base = code, code.place, base
        self.carry = np.zeros(count, np.bool_)
        """The condition code register's carry (PTX ISA 9.7.2)."""
        kinds = dict(code.function.registers)
        kinds |= {
            v.name: v.type for v in (*code.function.parameters, *code.function.returns) if v.space == "reg"
        }
        self.registers: dict[str, Bits] = {name: _register(kind, count) for name, kind in kinds.items()}


def _register(kind: ScalarType, count: int) -> Bits:
    if kind.bits == 128:
        return np.zeros((count, 2), np.uint64)
    return np.zeros(count, UNSIGNED[kind.bits])
