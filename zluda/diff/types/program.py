"""What a kernel executes: its own instructions, and those of the functions that it can call.

Names of registers and parameters are made one space: those of a called function have its name before them, so
that one analysis sees values pass through calls. A function called from two places is one function here: what
both hand it is joined.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from zluda.errors import PtxError
from zluda.ptx import Module
from zluda.ptx.module import (
    Element,
    Function,
    Instruction,
    Negated,
    Operand,
    Pair,
    Register,
    Symbol,
    Variable,
    Vector,
)
from zluda.records import dataclass

LOADS = frozenset(("ld", "ldu"))
ATOMICS = frozenset(("atom", "red"))
MEMORY_OPCODES = LOADS | ATOMICS | {"st"}


@dataclass(slots=True)
class Program:
    """``functions`` by the prefix that their names have; the kernel's own is empty.

    ``variables`` are the module's and the functions', by name.
    """

    kernel: Function
    functions: Mapping[str, Function]
    variables: Mapping[str, Variable]

    @classmethod
    def of(cls, kernel: Function, module: Module | None = None) -> Program:
        """The kernel and what it calls by name. Without a module, and of a function whose text is not PTX,
        the kernel's own instructions are all there is to see.
        """
        functions = {"": kernel}
        waiting = list(kernel.callees) if module is not None else []
        while waiting:
            name = waiting.pop()
            if prefix(name) in functions or module is None:
                continue
            try:
                functions[prefix(name)] = called = module.function(name)
            except (PtxError, KeyError):
                continue
            waiting += called.callees
        variables = dict(module.variables) if module is not None else {}
        for function in functions.values():
            variables |= function.variables
        return cls(kernel, functions, variables)

    def instructions(self) -> Iterator[tuple[str, Instruction]]:
        """(prefix of its function, instruction)"""
        for where, function in self.functions.items():
            for instruction in function.instructions:
                yield where, instruction

    def is_parameter(self, where: str, name: str) -> bool:
        """Whether a symbol named in a function is one of its formal parameters or returned values."""
        function = self.functions[where]
        return any(one.name == name for one in (*function.parameters, *function.returns))

    def space(self, name: str) -> str:
        """The state space of a variable; empty for what is none."""
        found = self.variables.get(name)
        return "" if found is None else found.space


def prefix(function: str) -> str:
    """What stands before the names of a called function's registers."""
    return f"{function}/"


def handed(program: Program, where: str, call: Instruction) -> Iterator[tuple[str, str]]:
    """(the caller's name, the callee's name) of each parameter that a call passes or gets back."""
    operands = list(call.operands)
    at = next((i for i, one in enumerate(operands) if isinstance(one, Symbol)), None)
    if at is None:
        return
    callee = operands[at]
    assert isinstance(callee, Symbol)
    function = program.functions.get(prefix(callee.name))
    if function is None:
        return
    given = operands[at + 1] if at + 1 < len(operands) else None
    sides = ((operands[0] if at else None, function.returns), (given, function.parameters))
    for actual, formal in sides:
        names = [named(one) for one in actual.elements] if isinstance(actual, Vector) else []
        for name, variable in zip(names, formal, strict=False):
            if name is not None:
                yield where + name, prefix(callee.name) + variable.name


def named(operand: Operand) -> str | None:
    """The register's or variable's name."""
    return operand.name if isinstance(operand, Register | Symbol) else None


def leaves(operands: Iterable[Operand]) -> Iterator[Operand]:
    """Operands, those in vectors and pairs one by one; addresses and coordinates as they are."""
    for operand in operands:
        if isinstance(operand, Vector):
            yield from leaves(operand.elements)
        elif isinstance(operand, Pair):
            yield from leaves((operand.first, operand.second))
        elif isinstance(operand, Negated):
            yield operand.operand
        elif isinstance(operand, Element):
            yield from (operand.array, operand.index)
        else:
            yield operand


def registers(operands: Iterable[Operand]) -> Iterator[Register]:
    return (leaf for leaf in leaves(operands) if isinstance(leaf, Register))
