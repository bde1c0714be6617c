"""``clusterlaunchcontrol`` (PTX ISA 9.7.13.18)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zluda.compiler.clusters import CLUSTER
from zluda.compiler.ir import Value
from zluda.compiler.lanes import uniform
from zluda.compiler.lower.cluster import of_block
from zluda.compiler.lower.mbarrier import change
from zluda.compiler.lower.memory import address_of, elements_of, map_lanes
from zluda.compiler.lower.table import lowers
from zluda.ptx.module import Instruction, Sink
from zluda.ptx.types import ScalarType

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen
    from zluda.compiler.target import Lanes

_ANSWER_BYTES = 16


@lowers("clusterlaunchcontrol")
def launch_control(f: FunctionCodegen, instruction: Instruction) -> None:
    """A request to take over a cluster that has not begun: there is never one to take.

    PTX lets the request fail at any time, as it does when all of the grid has begun. The answer, 16 bytes and
    a barrier told of them, is that nothing was cancelled; whose first block that is, is then not defined.
    """
    if instruction.has("try_cancel"):
        _refuse_takeover(f, instruction)
        return
    destination = instruction.operands[0]
    if instruction.has("is_canceled"):
        f.write(destination, uniform(f.b.const("i1", 0)))
        return
    for element in elements_of(destination):
        if not isinstance(element, Sink):
            f.write(element, uniform(f.b.const("i32", 0)))


def _refuse_takeover(f: FunctionCodegen, instruction: Instruction) -> None:
    """Write the answer, in every block of the cluster where it is a multicast."""
    target, told = instruction.operands
    place, barrier = address_of(f, target), address_of(f, told)
    space = "shared" if "space" in instruction.slots else ""
    zero, size = [uniform(f.b.const("i64", 0))] * 2, uniform(f.b.const("i32", _ANSWER_BYTES))
    everywhere = "multicast" in instruction.slots and f.unit.clustered
    blocks = range(f.unit.together.blocks)
    ranks: list[Value | None] = [f.b.const("i32", r) for r in blocks] if everywhere else [None]
    for rank in ranks:
        address = place[0]
        if rank is not None:
            address = _in_block(f, address, rank)
        there = CLUSTER if rank is not None else space
        f.ops.store(f, there, address, place[1], ScalarType.B64, zero, volatile=False)
        change(f, instruction, told, transactions=size, completes=True, place=barrier, rank=rank)


def _in_block(f: FunctionCodegen, address: Lanes, rank: Value) -> Lanes:
    return map_lanes(f, [address], lambda v: of_block(f, f.b.resize(v[0], "i32"), rank))
