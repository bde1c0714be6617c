"""Why a kernel stops itself: the kinds that ``TargetOps.trap`` knows, their numbers and words."""

from __future__ import annotations

FAULTS = {
    1: "trap instruction executed (cudaErrorLaunchFailure)",
    2: "breakpoint instruction executed",
    3: "misaligned address",
    4: "threads wait at barriers that can never complete",
    5: "call through an invalid function pointer",
    6: "device-side assert triggered",
    8: "free() of what is no live allocation of malloc()",
    9: "access to memory that is not allocated",
    10: "shared memory access out of range",
    11: "local memory access out of range",
    12: "illegal instruction",
    13: "a texture or surface handle that no object has",
    14: "surface access out of range (.trap)",
    15: "alloca beyond the 16 KiB of stack that a function has for it",
    16: "recursion beyond the stack of a thread",
}
"""What the program did, by the number of the fault."""

FAULT_CODES = {
    "trap": 1,
    "brkpt": 2,
    "misaligned": 3,
    "deadlock": 4,
    "call": 5,
    "assert": 6,
    "unsupported": 7,
    "free": 8,
    "global": 9,
    "shared": 10,
    "local": 11,
    "instruction": 12,
    "texture": 13,
    "surface": 14,
    "stack": 15,
    "recursion": 16,
}
"""``unsupported``: what this device cannot do; its detail is an index into ``CompiledKernel.refusals``."""


REFUSAL = "zluda.refusal"
"""On GPUs, a symbol of this compiler's own: four bytes of memory for the number of what stopped a launch,
from 1.

From :data:`STOPPED` on it is a kind of fault (:data:`FAULTS`), below that a refusal of the kernel's.
"""

STOPPED = 1 << 30


def sized(fault: int, size: int) -> int:
    """A fault's number with the bytes of its access above it."""
    return fault | size << 8


def parted(fault: int) -> tuple[int, int]:
    """A fault's number, and the bytes of its access (0 where it was none)."""
    return fault & 0xFF, fault >> 8
