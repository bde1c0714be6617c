"""``atom`` and ``red`` (PTX ISA 9.7.13.5 and .6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from zluda.compiler.lanes import uniform
from zluda.compiler.lower.mbarrier import change
from zluda.compiler.lower.memory import address_of, elements_of, space_of
from zluda.compiler.lower.table import lowers
from zluda.ptx.module import Instruction, Operand, Sink

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen


@lowers("atom")
def atom(f: FunctionCodegen, instruction: Instruction) -> None:
    """A read-modify-write that returns the old value. Orders and scopes hold for all of them alike."""
    destination, target, *sources = instruction.operands
    _perform(f, instruction, target, sources, destination)


@lowers("red")
def reduction(f: FunctionCodegen, instruction: Instruction) -> None:
    """A read-modify-write without a result; ``red.async`` tells a barrier of the bytes."""
    target, *sources = instruction.operands
    _perform(f, instruction, target, sources, None)
    if instruction.has("completion"):
        size = uniform(f.b.const("i32", instruction.type.bits // 8))
        change(f, instruction, sources[-1], transactions=size, completes=True)


def _perform(
    f: FunctionCodegen,
    instruction: Instruction,
    target: Operand,
    sources: Sequence[Operand],
    destination: Operand | None,
) -> None:
    """One atomic operation; of a vector one for each element, which is all that PTX promises."""
    type, op = instruction.type, instruction.slots["op"]
    arity = 2 if op == "cas" else 1
    if type.bits not in (16, 32, 64, 128):
        raise f.unsupported(instruction)
    space = space_of(f, instruction, target)
    address, offset = address_of(f, target)
    rows = zip(*(elements_of(s) for s in sources[:arity]), strict=True)
    results = elements_of(destination) if destination is not None else ()
    for i, row in enumerate(rows):
        operands = [f.read_typed(s, type) for s in row]
        result = results[i] if results else Sink()
        at = offset + i * type.bits // 8
        wanted = not isinstance(result, Sink)
        old = f.ops.atomic(f, space, address, at, op, type, operands, wanted=wanted)
        if old is not None:
            f.write(result, old, signed=type.kind == "s")
