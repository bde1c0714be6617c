"""Contraction: which unsuffixed ``mul`` and ``add`` ptxas makes one ``fma`` of, done before lowering.

PTX leaves it to the assembler whether an ``add`` without a rounding modifier is fused with the ``mul`` that
feeds it (PTX ISA 9.7.3.3). What ptxas decides changes last bits, so it is decided here as ptxas does:
``blocks.py`` cuts a function as ptxas cuts it, ``values.py`` says what each operand is after forwarding and
constant folding, ``rule.py`` pairs products with sums, ``constants.py`` folds what ptxas folds to
another value than the unit's at run time, and ``rewrite.py`` writes the outcome as PTX in which every
rounding is explicit. May import ``zluda.ptx`` and the compiler's analyses.

Modes: ``auto`` is ptxas's rule; ``on`` fuses every product with every sum it may be fused with; ``off``
rounds each operation by itself, and folds no constants.
"""

from __future__ import annotations

from zluda.ptx.module import Function

__all__ = ["MODES", "contract_function"]

MODES = ("auto", "on", "off")


def contract_function(function: Function, mode: str = "auto") -> Function:
    """The function with contraction decided; itself where there is nothing to decide.

    ``mode`` is one of :data:`MODES`; ValueError for another. The result's instructions keep their places in
    the text, and are numbered anew.
    """
    if mode not in MODES:
        raise ValueError(f"contract={mode!r}: expected one of {', '.join(MODES)}")
    from zluda.compiler.contract.kinds import may_change

    if mode == "off" or function.body is None or not may_change(function):
        return function
    from zluda.compiler.contract.rewrite import rewrite

    return rewrite(function, everything=mode == "on")
