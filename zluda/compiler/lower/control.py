"""Instructions that stop, or that order memory and warps (PTX ISA 9.7.13, 9.7.20)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zluda.compiler.lower.table import lowers
from zluda.ptx.module import Instruction

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen


@lowers("trap", "brkpt")
def trap(f: FunctionCodegen, instruction: Instruction) -> None:
    """Both end the launch: there is no debugger to stop in."""
    f.ops.trap(f, instruction.opcode)


@lowers("nanosleep", "pmevent", "setmaxnreg", "griddepcontrol")
def nothing(f: FunctionCodegen, instruction: Instruction) -> None:
    """Timing and tuning only: no effect on results."""


@lowers("membar", "fence")
def fence(f: FunctionCodegen, instruction: Instruction) -> None:
    """Memory fences of any kind and scope."""
    f.ops.fence(f, instruction.slots.get("scope", ""))


@lowers("bar", "barrier")
def barrier(f: FunctionCodegen, instruction: Instruction) -> None:
    """``bar.sync``, ``bar.arrive``, ``bar.red``, ``bar.warp.sync`` (PTX ISA 9.7.13.1 and .2)."""
    if instruction.has("warp"):
        if f.warp_barrier is not None:  # else the lanes of a warp run in step
            f.warp_barrier(instruction)
        return
    if instruction.has("cluster"):
        _cluster_barrier(f, instruction)
        return
    f.ops.require_whole_warp(f)
    reduce = instruction.slots.get("op", "") if instruction.has("red") else ""
    sources = list(instruction.operands[instruction.destinations :])
    predicate = f.read(sources.pop()) if reduce else None
    identifier = f.read_bits(sources[0], 32)
    threads = f.read_bits(sources[1], 32) if len(sources) > 1 else None
    result = f.ops.barrier(
        f,
        identifier,
        threads,
        wait=not instruction.has("arrive"),
        reduce=reduce,
        predicate=predicate,
    )
    if result is not None:
        f.write(instruction.operands[0], result)


def _cluster_barrier(f: FunctionCodegen, instruction: Instruction) -> None:
    """``barrier.cluster`` (PTX ISA 9.7.13.4), which a thread arrives at and waits at apart.

    What was written before is seen behind it, unless ``.relaxed`` says that need not be.
    """
    f.ops.require_whole_warp(f)
    if instruction.has("arrive"):
        if not instruction.has("relaxed"):
            f.ops.fence(f, "cluster")
        f.ops.cluster_arrive(f)
        return
    f.ops.cluster_wait(f)
    f.ops.fence(f, "cluster")
