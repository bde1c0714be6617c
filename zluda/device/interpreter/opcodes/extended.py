"""Extended-precision arithmetic (PTX ISA 9.7.2): the carry goes from one instruction to the next.

Of a difference the manual speaks of a borrow; what the machine keeps is the carry of ``a + ~b + 1``.
"""

from __future__ import annotations

import numpy as np

from zluda.device.interpreter.opcodes.integer import product
from zluda.device.interpreter.registry import lane
from zluda.device.interpreter.step import Step
from zluda.device.interpreter.values import Bits, width
from zluda.ptx.types import ScalarType

T = ScalarType


def sum_with_carry(s: Step, x: Bits, y: Bits, carry: Bits | bool) -> None:
    """Write ``x + y + carry``; with ``.cc`` keep the carry out."""
    one = np.where(carry, x.dtype.type(1), x.dtype.type(0))
    partial = x + y
    total = partial + one
    if s.has("cc"):
        s.frame.carry[s.threads] = (partial < x) | (total < partial)
    s.write(total)


@lane("addc")
def addc(s: Step) -> None:
    """9.7.2.2."""
    x, y = s.reads(2)
    sum_with_carry(s, x, y, s.frame.carry[s.threads])


@lane("subc")
def subc(s: Step) -> None:
    """9.7.2.4."""
    x, y = s.reads(2)
    sum_with_carry(s, x, ~y, s.frame.carry[s.threads])


@lane("madc")
def madc(s: Step) -> None:
    """9.7.2.6."""
    multiply_add(s, s.frame.carry[s.threads])


def multiply_add(s: Step, carry: Bits | bool) -> None:
    """``mad.cc`` and ``madc`` (9.7.2.5, 9.7.2.6)."""
    found = product(s, *s.reads(2))
    sum_with_carry(s, found, s.value(s.inst.operands[3], {32: T.B32, 64: T.B64}[width(found)]), carry)
