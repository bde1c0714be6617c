"""A kernel's normal form: what decides its machine code, and nothing else.

Comments, ``.loc``, places in the text, functions that the kernel cannot reach, and the names of registers,
labels and local variables are gone: two kernels with one normal form have one machine code. What stays by
name is what code keeps by name: functions and the module's variables.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from zluda.compiler.unit import named, symbols_in
from zluda.ptx.module import (
    Address,
    BranchTargets,
    CallPrototype,
    Element,
    Function,
    Immediate,
    Indexed,
    Instruction,
    Label,
    LabelStatement,
    Negated,
    Operand,
    Pair,
    Register,
    Selected,
    Sink,
    Statement,
    Symbol,
    Variable,
    Vector,
)

if TYPE_CHECKING:
    from zluda.compiler.unit import Unit

Form = object
"""Nested tuples of strings, numbers and None, whose ``repr`` is one to one."""


def normal_form(unit: Unit) -> Iterator[str]:
    """The kernel and all it reaches, line by line."""
    functions = (unit.kernel, *unit.functions.values())
    for function in functions:
        yield from _Function(function).lines()
    for name in dict.fromkeys(n for f in functions for _, n in named(f) if n not in f.variables):
        variable = unit.module.variables.get(name)
        if variable is not None:
            yield repr(("variable", name, *_variable(variable)))
        if name in unit.module.function_names:
            yield repr(("function", name, _signature(unit.module.function(name))))
    # A function's place in its module is in the code wherever its address is taken (compiler/layout.py).
    taken = dict.fromkeys(n for f in functions for n in _taken(f, unit))
    yield repr([(name, unit.function_offset(name)) for name in (*unit.candidates, *taken)])
    if unit.calls_through_pointers:
        yield repr(("functions", len(unit.module.function_names)))


def _taken(function: Function, unit: Unit) -> Iterator[str]:
    """Functions that instructions name other than as what they call."""
    for instruction in function.instructions:
        for operand in instruction.operands:
            if instruction.opcode != "call" or not isinstance(operand, Symbol):
                yield from (n for n in symbols_in(operand) if n in unit.module.function_names)


def _variable(v: Variable) -> tuple[Form, ...]:
    return (v.space, str(v.type), v.align, v.shape, v.vector, v.linkage, v.attributes)


def _signature(function: Function) -> Form:
    return (
        function.is_entry,
        function.body is None,
        tuple(_variable(v) for v in function.parameters),
        tuple(_variable(v) for v in function.returns),
    )


class _Function:
    """One function's names on their way to numbers."""

    def __init__(self, function: Function) -> None:
        self.function = function
        own = (*function.returns, *function.parameters, *function.variables.values())
        self.numbers: dict[tuple[str, str], int] = {}
        self.own = {v.name for v in own}
        self.declared = [(self._number("variable", v.name), *_variable(v)) for v in own]

    def _number(self, kind: str, name: str) -> int:
        return self.numbers.setdefault((kind, name), len(self.numbers))

    def lines(self) -> Iterator[str]:
        f = self.function
        directives = tuple((k, tuple(v)) for k, v in sorted(f.directives.items()))
        pragmas = tuple((p.ordinal, p.text, p.before_label) for p in f.pragmas)
        yield repr((f.name, _signature(f), directives, pragmas, f.attributes))
        yield from (repr(d) for d in self.declared)
        yield from (repr(self._statement(s)) for s in f.body or ())

    def _statement(self, statement: Statement) -> Form:
        match statement:
            case Instruction() as i:
                guard = i.guard and (self._operand(i.guard.register), i.guard.negated)
                types = tuple(str(t) for t in i.types)
                operands = tuple(self._operand(o) for o in i.operands)
                slots = tuple(sorted(i.slots.items()))
                return (i.opcode, slots, types, i.vector, i.destinations, guard, operands)
            case LabelStatement(name=name):
                return ("label", self._number("label", name))
            case BranchTargets(name=name, targets=targets, calls=calls):
                names = tuple(t if calls else self._number("label", t) for t in targets)
                return ("targets", self._number("label", name), calls, names)
            case CallPrototype() as p:
                returns = tuple(_variable(v) for v in p.returns)
                parameters = tuple(_variable(v) for v in p.parameters)
                return ("prototype", self._number("label", p.name), returns, parameters, p.noreturn)

    def _operand(self, operand: Operand) -> Form:
        match operand:
            case Register(name=name, type=kind, special=special):
                return ("special", name) if special else (self._number("register", name), str(kind))
            case Immediate(value=value, float_bits=bits):
                return ("literal", value, bits)
            case Symbol(name=name, offset=offset):
                known = name in self.own
                return ("own", self._number("variable", name), offset) if known else ("of", name, offset)
            case Element(array=array, index=index, size=size, first=first):
                return ("element", self._operand(array), self._operand(index), size, first)
            case Address(base=base, offset=offset):
                return ("at", self._operand(base), offset)
            case Label(name=name):
                return ("to", self._number("label", name))
            case Negated(operand=inner):
                return ("not", self._operand(inner))
            case Vector(elements=elements):
                return ("vector", *(self._operand(e) for e in elements))
            case Pair(first=first, second=second):
                return ("pair", self._operand(first), self._operand(second))
            case Indexed(objects=objects, coordinates=coordinates):
                return ("indexed", tuple(self._operand(o) for o in objects), self._operand(coordinates))
            case Selected(operand=inner, selector=selector):
                return ("part", self._operand(inner), selector)
            case Sink():
                return ("sink",)
