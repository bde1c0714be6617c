"""Special registers that say nothing here, on any target: what a program must expect to be zero (PTX ISA 10).

Performance monitors that no tool set up, environment registers that no driver sets (1 and 2 lead to a
cooperative grid's workspace), no graph that launches a kernel, no shared memory that the system keeps.
"""

from __future__ import annotations

_REGISTERS = {
    32: [
        *(f"%pm{i}" for i in range(8)),
        *(f"%envreg{i}" for i in range(32) if i not in (1, 2)),
        *(f"%reserved_smem_offset_{part}" for part in ("begin", "end", "cap", "0", "1")),
    ],
    64: [*(f"%pm{i}_64" for i in range(8)), "%current_graph_exec"],
}

IDLE: dict[str, int] = {name: bits for bits, names in _REGISTERS.items() for name in names}
"""Name → bits."""
