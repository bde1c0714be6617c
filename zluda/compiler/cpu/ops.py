"""The CPU's TargetOps, put together from its parts."""

from __future__ import annotations

from zluda.compiler.cpu.atomics import AtomicOps
from zluda.compiler.cpu.calls import CallOps
from zluda.compiler.cpu.special import SpecialRegisters
from zluda.compiler.cpu.warp import WarpOps
from zluda.compiler.target import Geometry
from zluda.ptx.module import Instruction


class CpuOps(SpecialRegisters, AtomicOps, CallOps, WarpOps):
    """A warp as two groups of 16 lanes: one register of AVX-512 each, two of AVX2."""

    geometry = Geometry(groups=2, width=16)
    many_registers = False

    def own(self, instruction: Instruction) -> None:
        """Every instruction is as its lowering has it."""
