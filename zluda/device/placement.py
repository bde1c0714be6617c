"""A module's variables in device memory: placed, initialised, found by name; addresses of its functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from zluda.compiler.layout import FUNCTION_STRIDE, FUNCTION_WINDOW, FUNCTIONS, function_offset
from zluda.errors import DeviceError, Error
from zluda.ptx import Module, Variable


class VariableMemory(Protocol):
    """Memory that holds variables; ``address`` is where one is wanted, None: anywhere."""

    def allocate(self, size: int, address: int | None) -> int: ...

    def free(self, address: int) -> None: ...

    def read(self, address: int, size: int) -> bytes: ...

    def write(self, address: int, data: bytes | bytearray | memoryview) -> None: ...


class AddressableMemory(Protocol):
    """Memory whose ``allocate`` raises DeviceError for an address that it cannot give."""

    def allocate(self, size: int, *, address: int | None = None) -> int: ...

    def free(self, address: int) -> None: ...

    def read(self, address: int, size: int) -> bytes: ...

    def write(self, address: int, data: bytes | bytearray | memoryview) -> None: ...


class Wherever:
    """A device's memory for variables: where they are wanted if that can be had, else anywhere.

    The replay relocates what points to those that are elsewhere.
    """

    def __init__(self, memory: AddressableMemory) -> None:
        self._allocate = memory.allocate
        self.free, self.read, self.write = memory.free, memory.read, memory.write

    def allocate(self, size: int, address: int | None) -> int:
        """See :class:`VariableMemory`. Raises DeviceError where there is no room at all."""
        if address is not None:
            try:
                return self._allocate(size, address=address)
            except DeviceError:
                pass  # taken, or out of reach
        return self._allocate(size)


class FunctionAddresses:
    """Addresses of functions on one device: none is given twice, so that a pointer names one function."""

    def __init__(self) -> None:
        self._next = FUNCTION_WINDOW << 32

    def take(self, count: int) -> int:
        """The first of ``count`` addresses. Raises DeviceError after 2^28 functions."""
        first = self._next
        self._next += count * FUNCTION_STRIDE
        if self._next >> 32 != FUNCTION_WINDOW:
            raise DeviceError("functions", "no address is left; open the device anew")
        return first


class Variables:
    """The ``.global`` and ``.const`` variables of a module, and the addresses of its functions.

    Variables named in ``globals_at`` are placed there, others where there is room. Initial values are written
    at once, addresses of variables and functions in them included.
    """

    def __init__(
        self,
        memory: VariableMemory,
        functions: FunctionAddresses,
        module: Module,
        globals_at: Mapping[str, int],
    ) -> None:
        self.memory, self.module = memory, module
        self._first_function = functions.take(len(module.function_names))
        self._placed: dict[str, tuple[int, int]] = {}
        for variable in module.variables.values():
            if variable.space in ("global", "const"):
                address = memory.allocate(max(variable.size, 1), globals_at.get(variable.name))
                self._placed[variable.name] = (address, variable.size)
        for variable in module.variables.values():
            if variable.name in self._placed:
                self._initialize(variable)

    def __getitem__(self, name: str) -> tuple[int, int]:
        """Address and size in bytes. Raises Error where there is none so named."""
        if name not in self._placed:
            raise Error(f"{self.module.file} has no variable {name}")
        return self._placed[name]

    def address(self, symbol: str) -> int:
        """Where what code names by ``symbol`` is. Raises Error where nothing is so named."""
        return self._first_function if symbol == FUNCTIONS else self[symbol][0]

    def function_address(self, name: str) -> int:
        """The address of one of the module's functions."""
        return self._first_function + function_offset(self.module.function_names, name)

    def free(self) -> None:
        """Give the memory back."""
        for address, _ in self._placed.values():
            self.memory.free(address)
        self._placed.clear()

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
        return self.function_address(name)
