"""Calls, direct and through function pointers (PTX ISA 9.7.12.5, 7.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zluda.compiler.ir import Value
from zluda.compiler.layout import FUNCTION_STRIDE, FUNCTION_WINDOW
from zluda.compiler.lower.table import lowers
from zluda.compiler.services import STOPS
from zluda.compiler.target import CallValue, Refusal
from zluda.errors import UnsupportedError
from zluda.patterns import pattern
from zluda.ptx.module import (
    CallPrototype,
    Function,
    Instruction,
    Operand,
    Register,
    Sink,
    Symbol,
    Variable,
    Vector,
)

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen

_DEVICE_LAUNCH = pattern(r"cuda(Launch|GetParameterBuffer|DeviceSynchronize|StreamCreate|Graph)\w*")
"""Functions of the device runtime (CUDA C++ Programming Guide, "CUDA Dynamic Parallelism")."""


@lowers("call")
def call(f: FunctionCodegen, instruction: Instruction) -> None:
    """A call for the active lanes; arguments and results go through ``.param`` variables or registers."""
    returns, callee, arguments = call_operands(instruction)
    if f.unit.meets_in(instruction):
        f.ops.require_whole_warp(f)
    results = [_result(o) for o in returns]
    values = [_argument(f, o) for o in arguments]
    if not isinstance(callee, Symbol):
        _indirect(f, instruction, callee, results, values)
    elif f.unit.callee(callee.name) is not None:
        f.ops.call(f, callee.name, results, values)
    elif callee.name in STOPS:
        f.ops.trap(f, STOPS[callee.name])
    else:
        device_side = _DEVICE_LAUNCH.fullmatch(callee.name)
        why = "device-side launch" if device_side else "which the module does not define"
        f.ops.refuse(f, Refusal(f"call of {callee.name}, {why}", f.place(instruction)))


def call_operands(
    instruction: Instruction,
) -> tuple[tuple[Operand, ...], Operand, tuple[Operand, ...]]:
    """(results, callee, arguments) of a call."""
    operands = list(instruction.operands)
    returns: tuple[Operand, ...] = ()
    if isinstance(operands[0], Vector):
        returns = operands.pop(0).elements  # type: ignore[union-attr]
    callee = operands.pop(0)
    arguments = operands[0].elements if operands and isinstance(operands[0], Vector) else ()
    return returns, callee, arguments


def _result(operand: Operand) -> CallValue:
    match operand:
        case Register():
            return CallValue(target=operand)
        case Symbol(name=name):
            return CallValue(variable=name)
        case Sink():
            return CallValue()
    raise UnsupportedError(f"call result {operand!r}")


def _argument(f: FunctionCodegen, operand: Operand) -> CallValue:
    if isinstance(operand, Symbol) and operand.name in f.function.variables:
        return CallValue(variable=operand.name)
    return CallValue(lanes=f.read(operand))


def _indirect(
    f: FunctionCodegen,
    instruction: Instruction,
    callee: Operand,
    results: list[CallValue],
    arguments: list[CallValue],
) -> None:
    """A call of one of the functions whose address is taken and whose parameters are as the call says."""
    if any(r.target is not None for r in results):
        raise f.unsupported(instruction, "call through a pointer with results in registers")
    prototype = f.unit.prototype(instruction, f.function)
    names = [n for n in f.unit.candidates if n in f.unit.functions and _fits(f.unit.functions[n], prototype)]
    others = Refusal("call through a pointer to a function of another module", f.place(instruction))
    f.ops.call_through(f, f.read_bits(callee, 64), names, results, arguments, others)


def of_another_module(f: FunctionCodegen, target: Value) -> Value:
    """Whether an address that names none of the callees is that of a function of another module."""
    b, module = f.b, f.unit.module
    own = b.sub(target, b.splat(f.ops.first_function(f), target.lanes))
    elsewhere = b.icmp("uge", own, FUNCTION_STRIDE * len(module.function_names))
    return b.and_(elsewhere, b.icmp("eq", b.lshr(target, 32), FUNCTION_WINDOW))


def _fits(function: Function, prototype: CallPrototype | None) -> bool:
    """Whether a function has the parameters that a prototype says."""
    if prototype is None:
        return True

    def sizes(variables: tuple[Variable, ...]) -> list[int]:
        return [v.size for v in variables]

    return sizes(function.parameters) == sizes(prototype.parameters) and sizes(function.returns) == sizes(
        prototype.returns
    )
