"""What a launch's clusters make of special registers (PTX ISA 10), for all targets alike."""

from __future__ import annotations

from zluda.compiler.unit import Unit

CLUSTER = "shared::cluster"
"""The space that is all shared memory of a cluster of several blocks."""

IS_EXPLICIT = "%is_explicit_cluster"

# Where every block is its cluster's only one, a cluster's place in the grid is its block's.
_OF_ONE_BLOCK = {f"%clusterid.{d}": f"%ctaid.{d}" for d in "xyz"}
_OF_ONE_BLOCK |= {f"%nclusterid.{d}": f"%nctaid.{d}" for d in "xyz"}
_ALONE = {f"%cluster_ctaid.{d}": 0 for d in "xyz"} | {"%cluster_ctarank": 0}
_FOURTH = {"%clusterid.w": 0, "%nclusterid.w": 1, "%cluster_ctaid.w": 0, "%cluster_nctaid.w": 1}


def alias(unit: Unit, name: str) -> str:
    """The register that holds what this one does, in a cluster of one block."""
    return name if unit.clustered else _OF_ONE_BLOCK.get(name, name)


def cluster_constants(unit: Unit) -> dict[str, int]:
    """Registers that the launch's cluster shape decides."""
    together = unit.together
    shape = together.cluster or (1, 1, 1)
    known = {f"%cluster_nctaid.{d}": n for d, n in zip("xyz", shape, strict=True)}
    known |= {"%cluster_nctarank": together.blocks, IS_EXPLICIT: int(together.cluster is not None)}
    return known | _FOURTH if unit.clustered else known | _FOURTH | _ALONE
