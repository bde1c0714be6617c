"""What an instruction is to contraction: a product, a sum, or neither."""

from __future__ import annotations

from zluda.ptx.module import Function, Instruction
from zluda.ptx.types import ScalarType
from zluda.records import dataclass

T = ScalarType
ROUNDINGS = frozenset(("rn", "rz", "rm", "rp", "rna", "rs"))
CONTRACTED = frozenset((T.F32, T.F64, T.F16, T.F16X2, T.BF16, T.BF16X2))
"""Types whose products and sums ptxas fuses."""
SINGLE_USE_FIRST = frozenset((T.F32, T.F64))
"""Types for which products with one use are paired before the others (measured: not the 16-bit ones)."""
FOLDED = frozenset(("rcp", "rsqrt", "sqrt", "ex2", "lg2", "sin", "cos"))
"""Approximate instructions whose constant argument ptxas folds; ``tanh`` it does not."""

_EFFECT_WORDS = """
st red atom bar barrier call membar fence cp mbarrier wgmma mma wmma vote shfl match activemask discard
prefetch griddepcontrol elect setmaxnreg stmatrix nanosleep tcgen05 redux sust sured multimem suld tex
applypriority brkpt pmevent alloca stacksave stackrestore bra brx ret exit trap
"""
_EFFECTS = frozenset(_EFFECT_WORDS.split())


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """A floating ``mul``, ``add`` or ``sub``. ``free``: it has no rounding modifier, so it may be fused."""

    operation: str
    type: ScalarType
    ftz: bool
    saturates: bool
    free: bool


def arithmetic(instruction: Instruction) -> Arithmetic | None:
    """The instruction as :class:`Arithmetic`; None for any other, and for mixed precision."""
    if instruction.opcode not in ("mul", "add", "sub") or len(instruction.types) != 1:
        return None
    if instruction.type not in CONTRACTED:
        return None
    slots = instruction.slots
    return Arithmetic(
        instruction.opcode, instruction.type, "ftz" in slots, "sat" in slots, slots.get("rnd") is None
    )


def is_quotient(instruction: Instruction) -> bool:
    """``div.approx`` and ``div.full``: a product with the divisor's reciprocal, which may be fused."""
    return instruction.opcode == "div" and (instruction.has("approx") or instruction.has("full"))


def is_product(instruction: Instruction) -> bool:
    """Whether sums may take this instruction in. A guarded one is one of two values, so not."""
    if instruction.guard is not None:
        return False
    found = arithmetic(instruction)
    if found is None:
        return is_quotient(instruction)
    return found.operation == "mul" and found.free and not found.saturates


def is_sum(instruction: Instruction) -> bool:
    """Whether this instruction may take a product in."""
    found = arithmetic(instruction)
    return found is not None and found.operation != "mul" and found.free


def match(total: Instruction, product: Instruction) -> bool:
    """Whether the two are of one type, and flush alike."""
    return total.type is product.type and total.has("ftz") == product.has("ftz")


def is_folded(instruction: Instruction) -> bool:
    """An approximate f32 instruction that ptxas computes exactly where its argument is a constant."""
    return instruction.opcode in FOLDED and instruction.has("approx") and instruction.type is T.F32


def may_change(function: Function) -> bool:
    """Whether anything in the function's body could be changed: a quick look."""
    look = {"mul": is_product, "div": is_quotient} | dict.fromkeys(FOLDED, is_folded)
    return any(i.opcode in look and look[i.opcode](i) for i in function.instructions)


def has_effect(instruction: Instruction) -> bool:
    """Whether an instruction does more than make results."""
    return (
        instruction.destinations == 0
        or instruction.opcode in _EFFECTS
        or instruction.slots.get("sem", "weak") != "weak"
    )
