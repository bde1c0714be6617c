"""A module on the interpreter: its variables placed, its functions ready to be stepped through."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from zluda.device.base import KernelParameter
from zluda.device.cpu.memory import Memory
from zluda.device.interpreter.frames import Code, aligned, places
from zluda.device.interpreter.values import Bits
from zluda.device.limits import required_block, thread_limit
from zluda.device.placement import FunctionAddresses, Variables
from zluda.errors import Error, UnsupportedError
from zluda.ptx import Module
from zluda.ptx.module import Address, Element, Function, Operand, Pair, Symbol, Variable, Vector
from zluda.records import dataclass

Decide = Callable[[Module, Function], Function]
"""A function as ptxas would round it: contraction decided, texture instructions made calls."""


@dataclass(frozen=True, slots=True)
class Sources:
    """What the caller knows of a module's text: the libraries it needs behind it, and :data:`Decide`."""

    linked: Callable[[Module], Module]
    decided: Decide


def _names(operand: Operand) -> Iterator[str]:
    match operand:
        case Symbol(name=name):
            yield name
        case Element(array=array):
            yield array.name
        case Address(base=base):
            yield from _names(base)
        case Vector(elements=elements):
            for element in elements:
                yield from _names(element)
        case Pair(first=first, second=second):
            yield from _names(first)
            yield from _names(second)
        case _:
            return


class KernelCode:
    """A kernel with all functions that it may call. Implements :class:`zluda.device.base.Kernel`."""

    def __init__(self, module: ModuleCode, name: str) -> None:
        self._module, self.name = module, name
        self._codes: list[Code] = []
        self._numbers: dict[str, int] = {}
        function = module.module.function(name)
        if not function.is_entry or function.body is None:
            raise Error(f"{module.module.file}: {name} is not a kernel")
        offsets, self.parameter_bytes = places(list(function.parameters))
        self.parameter_offsets = offsets
        self.parameters = tuple(
            KernelParameter(v.name, offsets[v.name], v.size, max(v.align, 1)) for v in function.parameters
        )
        self.directives = function.directives
        self.max_threads_per_block = thread_limit(function.directives)
        self.required_block = required_block(function.directives)
        self._shared: tuple[dict[str, int], int, int] | None = None

    @property
    def entry(self) -> Code:
        """The kernel itself."""
        return self.code(self.number(self.name))

    def number(self, name: str) -> int:
        """The number of a function's code. Raises UnsupportedError for one without a body."""
        if name not in self._numbers:
            function = self._module.decided(name)
            if function.body is None:
                raise UnsupportedError(
                    f"call of {name}, which has no body", self._module.module.file, began=True
                )
            self._numbers[name] = len(self._codes)
            self._codes.append(Code(function, self._numbers[name], self._module.module.file))
        return self._numbers[name]

    def code(self, number: int) -> Code:
        """A function's code by its number."""
        return self._codes[number]

    def called_by(self, address: int) -> str | None:
        """The function that has an address."""
        return self._module.function_at(address)

    def address(self, name: str) -> int:
        """Of a variable in global memory, or of a function."""
        return self._module.address(name)

    def is_constant(self, addresses: Bits) -> Bits:
        """Whether generic addresses are of constants."""
        found = np.zeros(len(addresses), np.bool_)
        for start, size in self._module.constants():
            found |= (addresses >= np.uint64(start)) & (addresses < np.uint64(start + size))
        return found

    # --- shared memory --------------------------------------------------------------------------------

    @property
    def shared_offsets(self) -> dict[str, int]:
        """Of every shared variable that the kernel can reach."""
        return self._layout()[0]

    @property
    def shared_bytes(self) -> int:
        """Static shared memory of a block."""
        return self._layout()[1]

    @property
    def dynamic_offset(self) -> int:
        """Where dynamic shared memory begins (PTX ISA 5.1.8: extern arrays of no size)."""
        return self._layout()[2]

    def _layout(self) -> tuple[dict[str, int], int, int]:
        if self._shared is None:
            variables = list(self._reachable_shared())
            sized = [v for v in variables if v.size]
            unsized = [v for v in variables if not v.size]
            offsets, end = places(sized)
            dynamic = aligned(end, max([16, *(v.align for v in unsized)]))
            offsets |= {v.name: dynamic for v in unsized}
            self._shared = offsets, end, dynamic
        return self._shared

    def _reachable_shared(self) -> Iterator[Variable]:
        """Of the kernel and of what it names; where it calls through pointers, of any function."""
        module = self._module.module
        seen: dict[str, None] = {}
        todo = [self.name]
        found: dict[str, Variable] = {}
        while todo:
            name = todo.pop()
            if name in seen:
                continue
            seen[name] = None
            function = module.function(name)
            found |= {v.name: v for v in function.variables.values() if v.space == "shared"}
            for inst in function.instructions:
                for symbol in (s for operand in inst.operands for s in _names(operand)):
                    variable = module.variables.get(symbol)
                    if (
                        variable is not None
                        and variable.space == "shared"
                        and symbol not in function.variables
                    ):
                        found[symbol] = variable
                    if symbol in module.function_names and symbol not in function.variables:
                        todo.append(symbol)
        yield from found.values()


class ModuleCode:
    """Implements :class:`zluda.device.base.Code`."""

    def __init__(
        self,
        memory: Memory,
        functions: FunctionAddresses,
        module: Module,
        globals_at: Mapping[str, int],
        sources: Sources,
    ) -> None:
        self.module = sources.linked(module)
        self._sources = sources
        self.kernel_names = tuple(module.kernel_names)
        self._kernels: dict[str, KernelCode] = {}
        self._functions: dict[str, Function] = {}
        self._variables = Variables(memory, functions, self.module, globals_at)
        self._addresses: dict[int, str] | None = None

    def kernel(self, name: str) -> KernelCode:
        """Raises Error where there is none so named, PtxError where its text is wrong."""
        if name not in self.kernel_names:
            known = ", ".join(self.kernel_names) or "none"
            raise Error(f"{self.module.file} has no kernel {name}; it has {known}")
        if name not in self._kernels:
            self._kernels[name] = KernelCode(self, name)
        return self._kernels[name]

    def decided(self, name: str) -> Function:
        """A function, contraction decided."""
        if name not in self._functions:
            self._functions[name] = self._sources.decided(self.module, self.module.function(name))
        return self._functions[name]

    def global_variable(self, name: str) -> tuple[int, int]:
        """Address and size in bytes of a ``.global`` or ``.const`` variable."""
        return self._variables[name]

    def address(self, name: str) -> int:
        """Of a variable in device memory, or of a function."""
        if name in self.module.function_names:
            return self._variables.function_address(name)
        return self._variables[name][0]

    def constants(self) -> list[tuple[int, int]]:
        """(start, size) of the module's ``.const`` variables."""
        return [self._variables[v.name] for v in self.module.variables.values() if v.space == "const"]

    def function_at(self, address: int) -> str | None:
        """The function of this module that has an address."""
        if self._addresses is None:
            names = self.module.function_names
            self._addresses = {self._variables.function_address(name): name for name in names}
        return self._addresses.get(address)

    def unload(self) -> None:
        """Free the variables and forget the code."""
        self._variables.free()
        self._kernels.clear()
