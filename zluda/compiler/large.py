"""Kernels of tens of thousands of instructions, and what is done otherwise for them.

A renderer's shader is one: its kernel is small, and calls 150 functions that are not. Such a unit takes LLVM
minutes in the way that is best for a small one, so that

* functions that each thread can execute by itself (:func:`solo_functions`) are written for one thread: on
  the CPU they are called lane by lane, with a quarter of the code that vectors under masks are, and there is
  nothing to be learnt of how their registers' lanes relate;
* LLVM runs few passes over them, and allocates registers quickly.

What is computed is the same: an instruction's lowering is one function, for scalars and for vectors.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import TYPE_CHECKING

from zluda.compiler.analysis.uniformity import may_poll
from zluda.compiler.lower.calls import call_operands
from zluda.compiler.lower.lanewise import LANEWISE
from zluda.ptx.module import Function, Instruction, Symbol

if TYPE_CHECKING:
    from zluda.compiler.unit import Unit

LARGE = 30_000
"""Instructions of PTX, functions included, from which on a unit is large: half a minute in the usual way."""

_SOLO = frozenset(
    {"ld", "ldu", "st", "mov", "cvta", "isspacep", "atom", "red", "membar", "fence", "trap", "brkpt"}
    | {"bra", "brx", "ret", "prefetch", "prefetchu", "nanosleep"}
)
"""Opcodes, beside the lane-wise ones, that do not ask what other lanes of the warp do."""


def is_large(unit: Unit) -> bool:
    """Whether a unit is to be compiled quickly."""
    return unit.instructions >= LARGE


def is_quick(unit: Unit) -> bool:
    """Whether LLVM is to run few passes over a unit: it is large, or the user said so."""
    return is_large(unit) or unit.level == "0"


def choose_solo(unit: Unit) -> None:
    """Note in a large unit which functions are written for one thread; lowerings must be registered."""
    if is_large(unit):
        unit.solo = solo_functions(unit.functions, unit.recursive_functions())


def solo_functions(functions: Mapping[str, Function], recursive: Set[str] = frozenset()) -> frozenset[str]:
    """Functions that threads may execute one after the other, as may all that they call.

    They have no barrier, vote or shuffle, call through no pointer, never call themselves, and wait for no
    other thread's write. A loop around a compare-and-swap is no such wait: as a rule it is an operation that
    the GPU lacks, or a lock that the function itself releases.
    """
    found = {n for n, f in functions.items() if n not in recursive and all(map(_is_solo, f.instructions))}
    changed = True
    while changed:
        lost = {name for name in found if not _callees(functions[name]) & functions.keys() <= found}
        found -= lost
        changed = bool(lost)
    return frozenset(found)


def _is_solo(instruction: Instruction) -> bool:
    if instruction.opcode == "call":
        return isinstance(call_operands(instruction)[1], Symbol)
    known = instruction.opcode in _SOLO or instruction.opcode in LANEWISE
    waits = may_poll(instruction) and instruction.slots.get("op") != "cas"
    return known and not waits and not instruction.has("completion")


def _callees(function: Function) -> set[str]:
    """What a function calls by name."""
    callees = (call_operands(i)[1] for i in function.instructions if i.opcode == "call")
    return {c.name for c in callees if isinstance(c, Symbol)}
