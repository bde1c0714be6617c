"""Functions of table rows as functions of the module: called by each instruction, not written out in each.

What an instruction like V_DIV_FIXUP does takes dozens of host instructions. Written out, a kernel of many
divisions takes minutes to compile. A call moves registers about; short kernels do without (``lift.py``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from zluda.compiler.ir import Builder, Value
from zluda.device.amd.emulator.values import Context, Typed

Operand = Typed | int | float | str
_results: dict[str, tuple[str, str]] = {}  # helper → kind and LLVM type of what it returns: its name says


def out_of_line(function: Callable[..., Typed]) -> Callable[..., Typed]:
    """``function`` in a helper function, one for each type of its operands and MODE.

    Operands that are not :class:`Typed` are part of the helper. Scalars are not worth a call.
    """

    @functools.wraps(function)
    def call(*operands: Operand, **options: bool) -> Typed:
        typed = [o for o in operands if isinstance(o, Typed)]
        context = typed[0].context
        lanes = max(o.value.lanes for o in typed)
        if lanes == 1:
            return function(*operands, **options)
        b = context.builder
        described = (function.__name__, *map(_described, operands), *(k for k, on in options.items() if on))
        name = ".".join(("amd", *described, str(lanes), f"{context.mode.bits:x}"))

        def emit(inner: Builder, arguments: list[Value]) -> Value:
            inside = Context(inner, lanes, context.mode)
            result = function(*_inside(operands, inside, arguments), **options)
            _results[name] = result.kind, result.value.type
            return inner.splat(result.value, lanes)

        passed = [_passed(b, o) for o in typed]
        b.module.function(name, [(p.type, p.lanes) for p in passed], emit)
        kind, element = _results[name]
        return typed[0].like(b.call(name, passed, element, lanes), kind)

    return call


def _described(operand: Operand) -> str:
    if not isinstance(operand, Typed):
        return str(operand)
    return operand.type_name if operand.value.lanes > 1 else f"{operand.type_name}-scalar"


def _passed(b: Builder, operand: Typed) -> Value:
    """An operand as a call takes it: conditions as a mask of a bit a lane."""
    value = operand.value
    return b.reshape(value, f"i{value.lanes}", 1) if value.type == "i1" and value.lanes > 1 else value


def _inside(operands: tuple[Operand, ...], context: Context, arguments: list[Value]) -> list[Operand]:
    """The operands as the helper's own function is given them."""
    rest, result = iter(arguments), list[Operand]()
    for operand in operands:
        if not isinstance(operand, Typed):
            result.append(operand)
            continue
        value, given = operand.value, next(rest)
        if given.type != value.type:
            given = context.builder.reshape(given, "i1", value.lanes)
        result.append(Typed(context, given, operand.kind))
    return result
