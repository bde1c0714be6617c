"""What of a module a kernel needs: functions it names, directly or through tables, and variables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from zluda.ptx import print_parts
from zluda.ptx.module import (
    Address,
    BranchTargets,
    Element,
    Function,
    Indexed,
    Instruction,
    Operand,
    Pair,
    Symbol,
    Variable,
    Vector,
)
from zluda.ptx.parse import Module
from zluda.records import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """``functions`` and ``variables`` in the order of the module's text; the kernel is among the former."""

    module: Module
    kernel: str
    functions: tuple[Function, ...]
    variables: tuple[Variable, ...]

    def text(self, bodies: Mapping[str, str] | None = None, added: str = "") -> str:
        """As PTX; ``bodies`` stand in place of functions' own statements, ``added`` before all variables."""
        text = print_parts(self.module, self.functions, self.variables, bodies)
        size = f".address_size {self.module.address_size}\n"
        return text.replace(size, size + added, 1)


def part_of(module: Module, kernel: str) -> Part:
    """The kernel, what it can call, and the variables that any of it names.

    Raises :class:`zluda.errors.PtxError` where a function among them does not parse.
    """
    functions: dict[str, Function] = {}
    variables: dict[str, Variable] = {}
    waiting = [kernel]
    while waiting:
        name = waiting.pop()
        name = module.aliases.get(name, name)
        if name in functions or name in variables:
            continue
        if name in module.variables:
            variable = variables[name] = module.variables[name]
            waiting += (symbol.name for _, symbol in variable.relocations)
        elif name in module.function_names:
            function = functions[name] = module.function(name)
            waiting += named_in(function)
    return Part(
        module,
        kernel,
        tuple(functions[name] for name in module.function_names if name in functions),
        tuple(variable for name, variable in module.variables.items() if name in variables),
    )


def named_in(function: Function) -> Iterator[str]:
    """Every symbol that a function's statements and variables name."""
    yield from function.callees
    for statement in function.body or ():
        if isinstance(statement, Instruction):
            yield from (name for operand in statement.operands for name in symbols(operand))
        elif isinstance(statement, BranchTargets) and statement.calls:
            yield from statement.targets
    for variable in function.variables.values():
        yield from (symbol.name for _, symbol in variable.relocations)


def symbols(operand: Operand) -> Iterator[str]:
    """The names of variables, parameters and functions in an operand."""
    if isinstance(operand, Symbol):
        yield operand.name
        return
    inside = _INSIDE.get(type(operand))
    if inside is not None:
        for part in inside(operand):
            yield from symbols(part)


_INSIDE: dict[type, Callable[[Any], Iterable[Operand]]] = {
    Address: lambda o: (o.base,),
    Element: lambda o: (o.array,),
    Vector: lambda o: o.elements,
    Pair: lambda o: (o.first, o.second),
    Indexed: lambda o: (*o.objects, o.coordinates),
}
