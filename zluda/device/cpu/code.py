"""A module on the CPU device: its variables placed, its kernels compiled when they are first launched."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass

from zluda.compiler import compile_kernel
from zluda.compiler.layout import function_handle, parameter_layout
from zluda.compiler.target import CompiledKernel
from zluda.device.base import Dim3, KernelParameter
from zluda.device.cpu.link import LinkedKernel
from zluda.device.cpu.memory import Memory
from zluda.errors import Error
from zluda.ptx import Module, Variable

MAX_THREADS = 1024


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
        self.max_threads_per_block = _thread_limit(function.directives)
        self.required_block = _required_block(function.directives)
        self._shared_bytes: int | None = None
        self._specializations: dict[Dim3, Specialization] = {}

    @property
    def shared_bytes(self) -> int:
        """Static shared memory of a block, in bytes."""
        if self._shared_bytes is None:
            from zluda.compiler.unit import Unit

            unit = Unit(self.code.module, self.code.module.function(self.name), (1, 1, 1))
            self._shared_bytes = unit.shared.static_bytes
        return self._shared_bytes

    def specialize(self, block: Dim3) -> Specialization:
        """The code for a block shape. Raises PtxError or UnsupportedError."""
        found = self._specializations.get(block)
        if found is None:
            compiled = compile_kernel(self.code.module, self.name, "cpu", block=block)
            addresses = [self.code.global_variable(n)[0] for n in compiled.symbols]
            table = (ctypes.c_uint64 * max(len(addresses), 1))(*addresses)
            found = self._specializations[block] = Specialization(compiled, LinkedKernel(compiled), table)
        return found


def _thread_limit(directives: Mapping[str, tuple[int, ...]]) -> int:
    """``.maxntid`` or ``.reqntid``'s product, at most 1024."""
    limit = MAX_THREADS
    for name in ("maxntid", "reqntid"):
        product = 1
        for n in directives.get(name, ()):
            product *= n
        if directives.get(name):
            limit = min(limit, product)
    return limit


def _required_block(directives: Mapping[str, tuple[int, ...]]) -> Dim3 | None:
    required = directives.get("reqntid")
    if not required:
        return None
    x, y, z = (*required, 1, 1)[:3]
    return (x, y, z)


class CpuCode:
    """Implements :class:`zluda.device.base.Code`.

    Variables named in ``globals_at`` are placed there, others where there is room. Initial values are written
    at load, addresses of variables and functions in them included.
    """

    def __init__(self, memory: Memory, module: Module, globals_at: Mapping[str, int]) -> None:
        self.memory, self.module = memory, module
        self.kernel_names = tuple(module.kernel_names)
        self._kernels: dict[str, CpuKernel] = {}
        self._placed: dict[str, tuple[int, int]] = {}
        for variable in module.variables.values():
            if variable.space in ("global", "const"):
                address = memory.allocate(max(variable.size, 1), globals_at.get(variable.name))
                self._placed[variable.name] = (address, variable.size)
        for variable in module.variables.values():
            if variable.name in self._placed:
                self._initialize(variable)

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
        if name not in self._placed:
            raise Error(f"{self.module.file} has no variable {name}")
        return self._placed[name]

    def unload(self) -> None:
        """Free the variables and forget the code."""
        for address, _ in self._placed.values():
            self.memory.free(address)
        self._placed.clear()
        self._kernels.clear()

    def _initialize(self, variable: Variable) -> None:
        address, size = self._placed[variable.name]
        data = bytearray(variable.initializer or b"").ljust(size, b"\0")
        for offset, symbol in variable.relocations:
            value = self._address_of(symbol.name) + symbol.offset
            data[offset : offset + 8] = value.to_bytes(8, "little")
        self.memory.write(address, data)

    def _address_of(self, name: str) -> int:
        if name in self._placed:
            return self._placed[name][0]
        return function_handle(self.module.function_names, name)
