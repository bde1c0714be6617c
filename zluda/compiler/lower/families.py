"""Importing this registers the lowering of every instruction family."""

from zluda.compiler.lower import LANEWISE, atomics, calls, control, memory, warp
from zluda.compiler.lower.table import LOWERINGS

__all__ = ["LANEWISE", "LOWERINGS", "atomics", "calls", "control", "memory", "warp"]
