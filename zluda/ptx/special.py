"""Special registers and their types (PTX ISA 10)."""

from __future__ import annotations

from zluda.ptx.module import Operand, Register, Vector
from zluda.ptx.types import ScalarType

_VECTORS = ("tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid")
_SCALARS: dict[ScalarType, str] = {
    ScalarType.U32: "laneid warpid nwarpid smid nsmid cluster_ctarank cluster_nctarank lanemask_eq "
    "lanemask_le lanemask_lt lanemask_ge lanemask_gt clock clock_hi globaltimer_lo globaltimer_hi "
    "reserved_smem_offset_begin reserved_smem_offset_end reserved_smem_offset_cap reserved_smem_offset_0 "
    "reserved_smem_offset_1 total_smem_size aggr_smem_size dynamic_smem_size "
    + " ".join(f"pm{i}" for i in range(8)),
    ScalarType.U64: "gridid clock64 globaltimer current_graph_exec "
    + " ".join(f"pm{i}_64" for i in range(8)),
    ScalarType.B32: " ".join(f"envreg{i}" for i in range(32)),
    ScalarType.PRED: "is_explicit_cluster",
}


def _build() -> dict[str, Operand]:
    table: dict[str, Operand] = {}
    for kind, names in _SCALARS.items():
        for name in names.split():
            table["%" + name] = Register("%" + name, kind, special=True)
    for name in _VECTORS:
        parts = tuple(Register(f"%{name}.{c}", ScalarType.U32, special=True) for c in "xyzw")
        table["%" + name] = Vector(parts)
        table.update((part.name, part) for part in parts)
    return table


SPECIAL_REGISTERS: dict[str, Operand] = _build()
"""Name to register; ``%tid`` alone is the vector of its four parts."""
