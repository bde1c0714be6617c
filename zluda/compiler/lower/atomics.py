"""``atom`` and ``red`` (PTX ISA 9.7.13.5 and .6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from zluda.compiler.lower.memory import address_of, space_of
from zluda.compiler.lower.table import lowers
from zluda.ptx.module import Instruction, Operand, Sink, Vector

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen


@lowers("atom")
def atom(f: FunctionCodegen, instruction: Instruction) -> None:
    """A read-modify-write that returns the old value. Orders and scopes hold for all of them alike."""
    destination, target, *sources = instruction.operands
    if isinstance(destination, Vector):
        raise f.unsupported(instruction)
    _perform(f, instruction, target, sources, destination)


@lowers("red")
def reduction(f: FunctionCodegen, instruction: Instruction) -> None:
    """A read-modify-write without a result."""
    target, *sources = instruction.operands
    if instruction.has("async") or any(isinstance(s, Vector) for s in sources):
        raise f.unsupported(instruction)
    _perform(f, instruction, target, sources, Sink())


def _perform(
    f: FunctionCodegen,
    instruction: Instruction,
    target: Operand,
    sources: Sequence[Operand],
    destination: Operand,
) -> None:
    type = instruction.type
    arity = 2 if instruction.slots["op"] == "cas" else 1
    if type.bits not in (16, 32, 64):
        raise f.unsupported(instruction)
    space = space_of(f, instruction, target)
    address, offset = address_of(f, target)
    operands = [f.read_typed(s, type) for s in sources[:arity]]
    wanted = not isinstance(destination, Sink)
    old = f.ops.atomic(f, space, address, offset, instruction.slots["op"], type, operands, wanted=wanted)
    if old is not None:
        f.write(destination, old, signed=type.kind == "s")
