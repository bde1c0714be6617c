"""Calls on GPUs: LLVM functions whose parameters and results lie in the caller's stack.

LLVM inlines most of them, and then nothing is left of that memory. Where functions may execute ``exit``, each
returns whether this thread did (``i1``).
"""

from __future__ import annotations

from collections.abc import Callable

from zluda.compiler.codegen import FunctionCodegen
from zluda.compiler.gpu.thread import one
from zluda.compiler.ir import Value, constant
from zluda.compiler.lower.calls import of_another_module
from zluda.compiler.native import LEAVE, NativeControl
from zluda.compiler.services import is_service
from zluda.compiler.target import CallValue, Lanes, Refusal, TargetOps
from zluda.compiler.unit import Unit
from zluda.ptx.module import Register, Variable


def define_function(
    unit: Unit,
    name: str,
    ops: TargetOps,
    control: Callable[[FunctionCodegen], NativeControl],
    guard: Callable[[FunctionCodegen], None] | None = None,
) -> None:
    """Write a function that a kernel calls; ``guard`` writes what recursive ones do first."""
    function = unit.functions[name]
    f = FunctionCodegen(unit, function, ops, partial=False)
    formal = [*function.returns, *function.parameters]
    pointers = [Value(unit.ir.stack, 1, f"%parameter.{i}") for i in range(len(formal))]
    f.stack_variables |= {v.name: p for v, p in zip(formal, pointers, strict=True)}
    if guard is not None and name in unit.recursive_functions():
        guard(f)
    for variable, pointer in zip(function.parameters, pointers[len(function.returns) :], strict=True):
        if variable.space == "reg":
            loaded = f.b.load(f"i{variable.type.bits}", pointer, align=_align(variable))
            f.initialize(Register(variable.name, variable.type), one(loaded))
    control(f).write()
    for variable, pointer in zip(function.returns, pointers, strict=False):
        if variable.space == "reg":
            result = f.final(Register(variable.name, variable.type)).parts[0]
            f.b.store(result, pointer, align=_align(variable))
    f.b.ret(constant("i1", 0) if unit.may_exit else None)
    f.b.label(LEAVE)
    f.b.ret(constant("i1", 1) if unit.may_exit else None)
    kept = " noinline" if is_service(name) else ""  # large, and rarely called: a copy at each call is worse
    formal_text = ", ".join(p.typed for p in pointers)
    linkage = "hidden " if name == unit.exported else "internal "
    header = f"{linkage}{_result(unit)} @{unit.ir_name(name)}({formal_text}){kept} #0"
    unit.ir.define(unit.ir_name(name), header, f.b)


def stack_variable(f: FunctionCodegen, name: str) -> Variable | None:
    """A local variable or a parameter in the stack: everything but a kernel's own parameters."""
    found = f.function.variables.get(name)
    if found is not None and found.space in ("local", "param"):
        return found
    if found is None and not f.function.is_entry:
        formal = (*f.function.returns, *f.function.parameters)
        return next((v for v in formal if v.name == name and v.space != "reg"), None)
    return None


def _result(unit: Unit) -> str:
    return "i1" if unit.may_exit else "void"


def _align(variable: Variable) -> int:
    return min(max(variable.align, 1), 4)


class StackCalls:
    """The call part of a GPU's TargetOps."""

    stack_pointer: Callable[..., Value]
    symbol: Callable[..., Lanes]
    first_function: Callable[..., Value]
    refuse: Callable[..., None]
    trap: Callable[..., None]

    def call(
        self, f: FunctionCodegen, name: str, results: list[CallValue], arguments: list[CallValue]
    ) -> None:
        """Call a function; a thread that left the kernel in it leaves here too."""
        function = f.unit.callee(name)
        assert function is not None
        pointers = [self._place(f, v, p) for v, p in zip(results, function.returns, strict=True)]
        pointers += [self._place(f, v, p) for v, p in zip(arguments, function.parameters, strict=True)]
        exits = f.unit.may_exit and name not in f.unit.outside
        if name in f.unit.outside:
            f.b.module.declare(name, f"hidden void ({', '.join(p.type for p in pointers)}) #0")
        left = f.b.call(f.unit.ir_name(name), pointers, "i1" if exits else "void")
        if exits:
            on = f.b.fresh("on")
            f.b.cond_branch(left, LEAVE, on)
            f.b.label(on)
        for value, pointer, variable in zip(results, pointers, function.returns, strict=False):
            if value.target is not None:
                loaded = f.b.load(f"i{variable.type.bits}", pointer, align=_align(variable))
                f.write(value.target, one(loaded))

    def call_through(
        self,
        f: FunctionCodegen,
        target: Lanes,
        names: list[str],
        results: list[CallValue],
        arguments: list[CallValue],
        others: Refusal,
    ) -> None:
        """A switch over the functions it may be."""
        b, address = f.b, target.parts[0]
        labels = [b.fresh("callee") for _ in names]
        nowhere, past = b.fresh("nowhere"), b.fresh("called")
        cases = [(f.unit.function_offset(n), at) for n, at in zip(names, labels, strict=True)]
        b.switch(b.sub(address, self.first_function(f)), nowhere, cases)
        for name, label in zip(names, labels, strict=True):
            b.label(label)
            self.call(f, name, results, arguments)
            b.branch(past)
        b.label(nowhere)
        refused, invalid = b.fresh("refused"), b.fresh("invalid")
        b.cond_branch(of_another_module(f, address), refused, invalid)
        b.label(refused)
        self.refuse(f, others)
        b.branch(past)
        b.label(invalid)
        self.trap(f, "call")
        b.branch(past)
        b.label(past)

    def _place(self, f: FunctionCodegen, value: CallValue, variable: Variable) -> Value:
        """Where a result goes or an argument lies."""
        if value.variable:
            self.symbol(f, value.variable)
            return f.stack_variables[value.variable]
        pointer = f.b.alloca("i8", count=max(variable.size, 1), align=max(variable.align, 4))
        if value.lanes is not None:
            f.b.store(f.resize(value.lanes, variable.type.bits).parts[0], pointer, align=_align(variable))
        return pointer
