"""The dispatch table of instructions that touch memory, other lanes or control: one lowering an opcode.

With :data:`~zluda.compiler.lower.lanewise.LANEWISE` this is all there is: :func:`lower` looks an opcode up
in the two, and what is in neither is not supported. Lowerings write through the function's ``TargetOps``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from zluda.compiler.clusters import CLUSTER
from zluda.compiler.lower.lanewise import LANEWISE, unsupported
from zluda.compiler.lower.registry import Registry
from zluda.ptx.module import Instruction

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen

WarpLowering = Callable[["FunctionCodegen", Instruction], None]

LOWERINGS: Registry[WarpLowering] = Registry(
    {
        "asynchronous": "cp",
        "atomics": "atom red",
        "calls": "call",
        "cluster": "mapa getctarank",
        "control": "trap brkpt nanosleep pmevent setmaxnreg griddepcontrol membar fence bar barrier",
        "launch_control": "clusterlaunchcontrol",
        "mbarrier": "mbarrier",
        "memory": "ld ldu st cvta isspacep mov prefetch prefetchu discard applypriority createpolicy",
        "stack": "alloca stacksave stackrestore",
        "tensor_copy": "tensormap",
        "tensor_memory": "ldmatrix stmatrix movmatrix",
        "tensor_mma": "mma wmma",
        "tensor_wgmma": "wgmma",
        "warp": "shfl vote activemask match redux elect",
    }
)


def lowers(*opcodes: str) -> Callable[[WarpLowering], WarpLowering]:
    """Register a lowering for the opcodes."""

    def register(lowering: WarpLowering) -> WarpLowering:
        LOWERINGS.update(dict.fromkeys(opcodes, lowering))
        return lowering

    return register


def find(opcode: str) -> WarpLowering | None:
    """The lowering of an opcode; None where it is lane-wise or not supported."""
    found: WarpLowering | None = LOWERINGS.get(opcode)
    return found


def import_families(text: str) -> None:
    """Import the modules that lower what a PTX text seems to have: for processes about to be forked."""
    for registry in (LANEWISE, LOWERINGS):
        for opcode, module in registry.modules.items():
            if f"{opcode}." in text:
                importlib.import_module(f"{__package__}.{module}")


def lower(f: FunctionCodegen, instruction: Instruction) -> None:
    """Write one instruction. Raises UnsupportedError naming it."""
    lowering = f.ops.own(instruction) or find(instruction.opcode)
    if lowering is not None:
        lowering(f, instruction)
    elif instruction.opcode in LANEWISE:
        f.apply_lanewise(LANEWISE[instruction.opcode], instruction)
    else:
        raise unsupported(instruction)


def base_space(instruction: Instruction) -> str:
    """The state space named, without its sub-qualifier; ``""`` for generic."""
    return instruction.slots.get("space", "").split("::")[0]


def named_space(f: FunctionCodegen, space: str) -> str:
    """A state space as targets know it: ``shared::cluster`` is ``shared`` where a cluster has one block."""
    return CLUSTER if space == CLUSTER and f.unit.clustered else space.split("::")[0]
