"""Importing this registers the lowering of every instruction family."""

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
    launch_control,
    logic,
    mbarrier,
    memory,
    stack,
    tensor_memory,
    tensor_mma,
    tensor_wgmma,
    video,
    warp,
)
from zluda.compiler.lower.lanewise import LANEWISE
from zluda.compiler.lower.table import LOWERINGS

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
    "launch_control",
    "logic",
    "mbarrier",
    "memory",
    "stack",
    "tensor_memory",
    "tensor_mma",
    "tensor_wgmma",
    "video",
    "warp",
]
