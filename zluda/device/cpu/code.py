"""A module on the CPU device: its variables placed, its kernels compiled when they are first launched."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import TYPE_CHECKING

from zluda.compiler import compile_kernel
from zluda.compiler.target import APART, CompiledKernel, Together
from zluda.device.base import Dim3
from zluda.device.cpu.link import LinkedKernel
from zluda.device.cpu.memory import Memory
from zluda.device.modules import CompiledModule, CompiledOnLaunch
from zluda.device.placement import FunctionAddresses
from zluda.ptx import Module
from zluda.records import dataclass

if TYPE_CHECKING:
    from zluda.compiler.unit import Unit


@dataclass(slots=True)
class Specialization:
    """A kernel's code for one block shape, linked, with the addresses of the variables it reads."""

    compiled: CompiledKernel
    linked: LinkedKernel
    symbols: ctypes.Array[ctypes.c_uint64]


class CpuKernel(CompiledOnLaunch):
    """A kernel of the CPU's: code for each block shape and cluster."""

    def __init__(self, code: CpuCode, name: str) -> None:
        super().__init__(code.module, name)
        self.code = code
        self._specializations: dict[tuple[Dim3, Together], Specialization] = {}

    def _unit(self) -> Unit:
        from zluda.compiler.unit import kernel_unit

        return kernel_unit(self.module, self.name, (1, 1, 1), "off")

    def unload(self) -> None:
        """Forget the code."""
        self._specializations.clear()

    def specialize(self, block: Dim3, together: Together = APART) -> Specialization:
        """The code for a block shape and clusters. Raises PtxError or UnsupportedError."""
        together = Together(together.cluster)  # cooperative or not, the code is the same
        found = self._specializations.get((block, together))
        if found is None:
            compiled = compile_kernel(
                self.module,
                self.name,
                "cpu",
                block=block,
                numerics=self.code.numerics,
                contract=self.code.contract,
                check=self.code.check,
                scheduled=self.code.scheduled,
                together=together,
            )
            addresses = [self.code.address(n) for n in compiled.symbols]
            table = (ctypes.c_uint64 * max(len(addresses), 1))(*addresses)
            found = Specialization(compiled, LinkedKernel(compiled), table)
            self._specializations[block, together] = found
        return found


class CpuCode(CompiledModule[CpuKernel]):
    """A module on the CPU; ``own_symbols`` are what code can name beside its variables, and where that is."""

    def __init__(
        self,
        memory: Memory,
        functions: FunctionAddresses,
        module: Module,
        globals_at: Mapping[str, int],
        *,
        numerics: str,
        own_symbols: Mapping[str, int],
        contract: str = "auto",
        check: str = "none",
        scheduled: bool = False,
    ) -> None:
        super().__init__(memory, functions, module, globals_at)
        self.numerics, self.contract, self.check, self.scheduled = numerics, contract, check, scheduled
        self._own_symbols = own_symbols

    def _kernel(self, name: str) -> CpuKernel:
        return CpuKernel(self, name)

    def address(self, symbol: str) -> int:
        """Where what a kernel names by ``symbol`` is."""
        own = self._own_symbols.get(symbol)
        return super().address(symbol) if own is None else own
