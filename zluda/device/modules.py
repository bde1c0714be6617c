"""PTX modules on devices that compile them: variables are placed, kernels compiled when first launched."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

from zluda.compiler.layout import parameter_layout
from zluda.compiler.services import linked
from zluda.device.base import KernelParameter
from zluda.device.limits import required_block, thread_limit
from zluda.device.placement import FunctionAddresses, VariableMemory, Variables
from zluda.errors import Error
from zluda.ptx import Module

if TYPE_CHECKING:
    from zluda.compiler.unit import Unit


class CompiledOnLaunch(ABC):
    """Implements :class:`zluda.device.base.Kernel` by what is declared: nothing is compiled for that."""

    def __init__(self, module: Module, name: str) -> None:
        function = module.function(name)
        slots, self.parameter_bytes = parameter_layout(function.parameters)
        self.module, self.name = module, name
        self.parameters = tuple(KernelParameter(s.name, s.offset, s.size, s.align) for s in slots)
        self.max_threads_per_block = thread_limit(function.directives)
        self.required_block = required_block(function.directives)
        self.directives = function.directives
        self._shared_bytes: int | None = None

    @property
    def shared_bytes(self) -> int:
        """Static shared memory of a block, in bytes."""
        if self._shared_bytes is None:
            self._shared_bytes = self._unit().shared.static_bytes
        return self._shared_bytes

    @abstractmethod
    def _unit(self) -> Unit:
        """The kernel with all it reaches, as it is compiled here but for contraction."""

    @abstractmethod
    def unload(self) -> None:
        """Give back what the device holds of it."""


K = TypeVar("K", bound=CompiledOnLaunch)


class CompiledModule(ABC, Generic[K]):
    """Implements :class:`zluda.device.base.Code`.

    ``memory`` holds the variables, of which those named in ``globals_at`` are wanted there; ``functions``
    gives the module's functions their addresses.
    """

    def __init__(
        self,
        memory: VariableMemory,
        functions: FunctionAddresses,
        module: Module,
        globals_at: Mapping[str, int],
    ) -> None:
        self.module = linked(module)
        self.kernel_names = tuple(module.kernel_names)
        self._variables = Variables(memory, functions, self.module, globals_at)
        self._kernels: dict[str, K] = {}

    @abstractmethod
    def _kernel(self, name: str) -> K:
        """A kernel that the module has."""

    def kernel(self, name: str) -> K:
        """Raises Error when the module has no such kernel, PtxError when its text is wrong."""
        if name not in self.kernel_names:
            known = ", ".join(self.kernel_names) or "none"
            raise Error(f"{self.module.file} has no kernel {name}; it has {known}")
        if name not in self._kernels:
            self._kernels[name] = self._kernel(name)
        return self._kernels[name]

    def global_variable(self, name: str) -> tuple[int, int]:
        """Address and size in bytes of a ``.global`` or ``.const`` variable."""
        return self._variables[name]

    def address(self, symbol: str) -> int:
        """Where what a kernel names by ``symbol`` is."""
        return self._variables.address(symbol)

    def unload(self) -> None:
        """Free variables and code."""
        self._variables.free()
        for kernel in self._kernels.values():
            kernel.unload()
        self._kernels.clear()
