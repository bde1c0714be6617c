"""A module on the CPU device: its variables placed, its kernels compiled when they are first launched."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

from zluda.compiler import compile_kernel
from zluda.compiler.layout import parameter_layout
from zluda.compiler.services import linked
from zluda.compiler.target import APART, CompiledKernel, Together
from zluda.device.base import Dim3, KernelParameter
from zluda.device.cpu.link import LinkedKernel
from zluda.device.cpu.memory import Memory
from zluda.device.limits import required_block, thread_limit
from zluda.device.placement import FunctionAddresses, Variables
from zluda.errors import Error
from zluda.ptx import Module
from zluda.records import dataclass


@dataclass(slots=True)
class Specialization:
    """A kernel's code for one block shape, linked, with the addresses of the variables it reads."""

    compiled: CompiledKernel
    linked: LinkedKernel
    symbols: ctypes.Array[ctypes.c_uint64]


class CpuKernel:
    """Implements :class:`zluda.device.base.Kernel`. Nothing is compiled before the first launch."""

    def __init__(self, code: CpuCode, name: str) -> None:
        function = code.module.function(name)
        slots, self.parameter_bytes = parameter_layout(function.parameters)
        self.code, self.name = code, name
        self.parameters = tuple(KernelParameter(s.name, s.offset, s.size, s.align) for s in slots)
        self.max_threads_per_block = thread_limit(function.directives)
        self.required_block = required_block(function.directives)
        self.directives = function.directives
        self._shared_bytes: int | None = None
        self._specializations: dict[tuple[Dim3, Together], Specialization] = {}

    @property
    def shared_bytes(self) -> int:
        """Static shared memory of a block, in bytes."""
        if self._shared_bytes is None:
            from zluda.compiler.unit import Unit

            unit = Unit(self.code.module, self.code.module.function(self.name), (1, 1, 1), contract="off")
            self._shared_bytes = unit.shared.static_bytes
        return self._shared_bytes

    def specialize(self, block: Dim3, together: Together = APART) -> Specialization:
        """The code for a block shape and clusters. Raises PtxError or UnsupportedError."""
        together = Together(together.cluster)  # cooperative or not, the code is the same
        found = self._specializations.get((block, together))
        if found is None:
            compiled = compile_kernel(
                self.code.module,
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


class CpuCode:
    """Implements :class:`zluda.device.base.Code`.

    ``functions`` gives the module's functions their addresses; ``own_symbols`` are what code can name beside
    them and the module's variables, and where that is.
    """

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
        self.memory, self.module, self.numerics = memory, linked(module), numerics
        self.contract, self.check, self.scheduled = contract, check, scheduled
        self._own_symbols = own_symbols
        self.kernel_names = tuple(module.kernel_names)
        self._kernels: dict[str, CpuKernel] = {}
        self._variables = Variables(memory, functions, self.module, globals_at)

    def kernel(self, name: str) -> CpuKernel:
        """Raises Error when the module has no such kernel, PtxError when its text is wrong."""
        if name not in self.kernel_names:
            raise Error(
                f"{self.module.file} has no kernel {name}; it has {', '.join(self.kernel_names) or 'none'}"
            )
        if name not in self._kernels:
            self._kernels[name] = CpuKernel(self, name)
        return self._kernels[name]

    def global_variable(self, name: str) -> tuple[int, int]:
        """Address and size in bytes of a ``.global`` or ``.const`` variable."""
        return self._variables[name]

    def address(self, symbol: str) -> int:
        """Where what a kernel names by ``symbol`` is."""
        own = self._own_symbols.get(symbol)
        return self._variables.address(symbol) if own is None else own

    def unload(self) -> None:
        """Free the variables and forget the code."""
        self._variables.free()
        self._kernels.clear()
