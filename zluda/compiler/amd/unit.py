"""What a kernel is compiled with for an AMD GPU: its unit, and shared memory of this compiler's own.

Nothing here needs lowering, so that a kernel out of the cache is found without importing it.
"""

from __future__ import annotations

from collections.abc import Iterator

from zluda import config
from zluda.compiler.analysis.barriers import is_barrier
from zluda.compiler.gpu.thread import CONSTANT, LOCAL
from zluda.compiler.layout import SharedLayout
from zluda.compiler.services import EXCHANGE_128
from zluda.compiler.target import APART, Dim3, Together
from zluda.compiler.unit import Unit, kernel_unit
from zluda.ptx import Module
from zluda.ptx.module import Instruction, Variable
from zluda.ptx.types import ScalarType

MAX_THREADS = 1024
ANY_BLOCK: Dim3 = (MAX_THREADS, 1, 1)
"""Code serves every block shape: its size is read from the dispatch packet."""

VOTES = "zluda.votes"
"""The shared variable in which ``bar.red`` counts."""

BARRIERS = "zluda.barriers"
"""The shared variable that holds 16 barriers: threads arrived and generation of each."""

TALLIES = "zluda.tallies"
"""The shared variable of ``bar.red`` with a thread count: sums and warps of 16 barriers, a word a warp."""


CLUSTER_BARRIER = "zluda.cluster"
"""The shared variable that holds the barrier of a cluster of one block, and room to clear it by a warp."""


def build_unit(
    module: Module,
    name: str,
    contract: str = "auto",
    together: Together = APART,
    *,
    outside: frozenset[str] = frozenset(),
) -> Unit:
    """The kernel with all it reaches, but for functions called in ``outside``."""
    unit = kernel_unit(module, name, ANY_BLOCK, contract, together, outside=outside)
    unit.slow_mode = config.load().wave64_slow_mode
    atomics = (i for i in _instructions(unit) if i.opcode == "atom")
    if any(i.type.bits == 128 for i in atomics):
        unit.include(EXCHANGE_128)
    unit.ir.stack, unit.ir.tables, unit.ir.helpers = LOCAL, CONSTANT, "alwaysinline nounwind"
    barriers = list(_barriers(unit))
    own = [Variable(*v) for v, needed in _OWN_SHARED if any(map(needed, barriers))]
    if not unit.clustered and any(barrier.has("cluster") for barrier in barriers):
        own.append(Variable(CLUSTER_BARRIER, "shared", ScalarType.U64, 8, (16,)))
    if own:
        unit.shared = SharedLayout([*unit.shared_variables(), *own])
    return unit


def names_threads(barrier: Instruction) -> bool:
    """Whether a barrier says how many threads take part."""
    return len(barrier.operands) - barrier.destinations - barrier.has("red") > 1


def meets_cluster(unit: Unit) -> bool:
    """Whether threads may come to the cluster's barrier."""
    return any(barrier.has("cluster") for barrier in _barriers(unit))


def _instructions(unit: Unit) -> Iterator[Instruction]:
    for function in (unit.kernel, *unit.functions.values()):
        yield from function.instructions


def _barriers(unit: Unit) -> Iterator[Instruction]:
    return filter(is_barrier, _instructions(unit))


# Shared variables of this compiler's own, and which barriers need them.
_OWN_SHARED = (
    (
        (VOTES, "shared", ScalarType.U32, 4),
        lambda barrier: barrier.has("red") and not names_threads(barrier),
    ),
    ((BARRIERS, "shared", ScalarType.U32, 4, (32,)), names_threads),
    (
        (TALLIES, "shared", ScalarType.U32, 4, (64,)),
        lambda barrier: barrier.has("red") and names_threads(barrier),
    ),
)
