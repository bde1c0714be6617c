"""A thread of a GPU, and what its pointers point to."""

from __future__ import annotations

from zluda.compiler.ir import Value
from zluda.compiler.target import VARYING, Geometry, Lanes

GLOBAL, SHARED, CONSTANT, LOCAL, FLAT = (
    "ptr addrspace(1)",
    "ptr addrspace(3)",
    "ptr addrspace(4)",
    "ptr addrspace(5)",
    "ptr",
)
"""LLVM's pointer types by where they point, the same numbers on both makers' GPUs (LLVM "User Guide for
AMDGPU Backend" and "User Guide for NVPTX Back-end", "Address Spaces")."""


def one(value: Value) -> Lanes:
    """A thread's value: nothing is known of other threads', and LLVM finds out what they share."""
    return Lanes(VARYING, (value,))


class Thread:
    """The part of a GPU's TargetOps that says how registers are held."""

    geometry = Geometry(groups=1, width=1)
    many_registers = True
