"""Instructions that stop, or that order memory and warps (PTX ISA 9.7.13, 9.7.20)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zluda.compiler.lanes import uniform
from zluda.compiler.lower.cluster import refuse_clusters
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
        return  # the lanes of a warp run in step
    if instruction.has("cluster"):
        _cluster_barrier(f, instruction)
        return
    if instruction.opcode == "barrier" and not instruction.has("aligned"):
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
    """``barrier.cluster`` in a cluster of one block: all threads of the block meet at ``wait``.

    ``arrive`` promises a ``wait`` and has nothing else to do than to make what was written visible.
    """
    refuse_clusters(f, instruction)
    if instruction.has("arrive"):
        f.ops.fence(f, "cta")
        return
    if not instruction.has("aligned"):
        f.ops.require_whole_warp(f)
    f.ops.barrier(f, uniform(f.b.const("i32", 0)), None, wait=True)
