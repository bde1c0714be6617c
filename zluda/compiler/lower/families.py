"""Importing this registers the lowering of the instruction families that most kernels need.

The others are imported when one of their opcodes is met (:data:`~zluda.compiler.lower.table.RARE`).
"""

from zluda.compiler.lower import (
    approximate,
    arithmetic,
    asynchronous,
    atomics,
    calls,
    cluster,
    compare,
    control,
    convert,
    logic,
    mbarrier,
    memory,
    video,
    warp,
)
from zluda.compiler.lower.lanewise import LANEWISE
from zluda.compiler.lower.table import LOWERINGS, find

__all__ = [
    "LANEWISE",
    "LOWERINGS",
    "approximate",
    "arithmetic",
    "asynchronous",
    "atomics",
    "calls",
    "cluster",
    "compare",
    "control",
    "convert",
    "find",
    "logic",
    "mbarrier",
    "memory",
    "video",
    "warp",
]
