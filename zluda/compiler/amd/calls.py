"""Functions on AMD GPUs: calls as on any GPU (``gpu/calls.py``), and an end to recursion too deep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zluda.compiler.amd.barriers import Together
from zluda.compiler.amd.surroundings import packet
from zluda.compiler.amd.warp import WarpOps
from zluda.compiler.codegen import FunctionCodegen
from zluda.compiler.gpu import calls
from zluda.compiler.native import NativeControl
from zluda.compiler.unit import Unit

if TYPE_CHECKING:
    from zluda.compiler.amd.ops import AmdOps

_STACK_LEFT = (
    1 << 10
)  # bytes for a recursive function's frame but its variables, and for what it calls besides


def define_function(unit: Unit, name: str, ops: AmdOps) -> None:
    """Write a function that a kernel calls."""
    calls.define_function(
        unit,
        name,
        ops,
        lambda f: NativeControl(f, lambda: ops.leave(f), Together(f, ops)),
        lambda f: _guard_stack(f, ops),
    )


def _guard_stack(f: FunctionCodegen, ops: AmdOps) -> None:
    """End the launch before calls leave their lane's scratch, behind which is that of the next wave."""
    b = f.b
    here = b.cast("ptrtoint", b.alloca("i8", align=4), "i32")
    deep, on = b.fresh("deep"), b.fresh("on")
    needed = _STACK_LEFT + sum(v.size for v in f.function.variables.values() if v.space == "local")
    b.cond_branch(b.icmp("ugt", b.add(here, needed), packet(f, "private_segment_size")), deep, on)
    b.label(deep)
    ops.trap(f, "recursion")
    b.branch(on)
    b.label(on)


class CallOps(calls.StackCalls, WarpOps):
    """The call part of AMD's TargetOps."""
