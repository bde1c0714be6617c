"""NVPTX's TargetOps, put together from its parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from zluda.compiler.gpu.calls import StackCalls
from zluda.compiler.nvptx.memory import MemoryOps
from zluda.compiler.nvptx.passed_on import is_passed_on, pass_on
from zluda.compiler.target import Lanes
from zluda.errors import UnsupportedError
from zluda.ptx.module import Instruction

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen
    from zluda.compiler.lower.table import WarpLowering


def _of_its_instruction(operation: str) -> Any:
    """An operation that only instructions ask for which are passed on whole."""

    def refuse(ops: NvptxOps, *arguments: Any, **named: Any) -> NoReturn:
        raise UnsupportedError(f"{operation} apart from its instruction")

    return refuse


class NvptxOps(MemoryOps, StackCalls):
    """A thread by itself: the machine sees to its warp."""

    def own(self, instruction: Instruction) -> WarpLowering | None:
        """See :class:`~zluda.compiler.target.TargetOps`: what is passed on."""
        return pass_on if is_passed_on(instruction) else None

    def require_whole_warp(self, f: FunctionCodegen) -> None:
        """Lanes may come to a barrier apart (PTX ISA 9.7.13.1)."""

    def loop_head(self, f: FunctionCodegen, blocks: Sequence[int]) -> None:
        """The machine sees to it that every thread makes progress."""

    atomic = _of_its_instruction("an atomic operation")
    fence = _of_its_instruction("a fence")
    barrier = _of_its_instruction("a barrier")
    cluster_arrive = _of_its_instruction("a cluster's barrier")
    cluster_wait = _of_its_instruction("a cluster's barrier")
    block_shift = _of_its_instruction("a cluster's address")
    shuffle = _of_its_instruction("a shuffle")
    lane_numbers = _of_its_instruction("a lane's number")
    permute = _of_its_instruction("a permutation of lanes")
    ballot = _of_its_instruction("a vote")
    match = _of_its_instruction("a match")
    reduce = _of_its_instruction("a reduction")

    def first_active(self, f: FunctionCodegen, lanes: Lanes) -> Any:
        """A thread's own."""
        return lanes.parts[0]
