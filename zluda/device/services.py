"""Tables in device memory that compiled code finds through hidden module variables.

Code that needs a service of the CUDA system defines a hidden variable, eight bytes for an address
(``__zluda_printf``). Whoever loads modules has one :class:`Services` a device: it learns of each module, and
before a launch makes the tables that loaded modules ask for and writes their addresses. So services work
alike on every device, through nothing but variables and memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from zluda.compiler.services import HEAP, LOCKS, OUTPUT, prepare
from zluda.device.base import Code, Device, Printing
from zluda.device.output import Output, Ring
from zluda.device.samplers import samplers
from zluda.device.textures import Textures
from zluda.errors import Error, LaunchError
from zluda.numerics.texture import ROOT_VARIABLE
from zluda.records import dataclass

if TYPE_CHECKING:
    from zluda.ptx import Module

PRINTF_FIFO_SIZE, MALLOC_HEAP_SIZE = 1, 2  # CUlimit
LIMITS: dict[int, int] = {PRINTF_FIFO_SIZE: 7 << 20, MALLOC_HEAP_SIZE: 8 << 20}
"""Bytes, as CUDA has them at the start."""

ASSERTED = "device-side assert triggered"

_LOCKS = 1024  # words (zluda/compiler/services/wide.cu)
_GRANULE = 64  # of the heap (zluda/compiler/services/heap.cu)

Provider = Callable[["Services", Mapping[int, int]], int]
"""Makes a table, given limits by ``CUlimit``; its address."""


@dataclass
class Services:
    """The services of one device."""

    device: Device
    ring: Ring | None = None
    textures: Textures = field(init=False)
    _waiting: list[tuple[Code, str, int]] = field(default_factory=list)
    _samplers: list[tuple[Code, int]] = field(default_factory=list)
    _tables: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.textures = Textures(self.device)
        prepare()

    def attach(self, code: Code, module: Module | None = None) -> None:
        """A module was loaded; with it, its samplers are made. UnsupportedError for one that PTX has not."""
        for variable, offset, descriptor in samplers(module) if module is not None else ():
            address, _ = code.global_variable(variable)
            self.textures.set(address + offset, descriptor)
            self._samplers.append((code, address + offset))
        for name in PROVIDERS:
            try:
                address, size = code.global_variable(name)
            except Error:
                continue  # it does not ask for this one
            if size == 8:
                self._waiting.append((code, name, address))

    def detach(self, code: Code) -> None:
        """A module is about to be unloaded."""
        self._waiting = [one for one in self._waiting if one[0] is not code]
        for owner, address in self._samplers:
            if owner is code:
                self.textures.remove(address)
        self._samplers = [one for one in self._samplers if one[0] is not code]

    def ready(self, limits: Mapping[int, int] = LIMITS) -> None:
        """Before a launch: give the modules loaded since the last one what they ask for."""
        while self._waiting:
            _, name, address = self._waiting.pop()
            if name not in self._tables:
                self._tables[name] = PROVIDERS[name](self, limits)
            self.device.write(address, self._tables[name].to_bytes(8, "little"))

    def made(self, limit: int) -> bool:
        """Whether a table is there whose size is this limit, which can no longer be set then."""
        return _SIZED.get(limit) in self._tables

    def take_output(self) -> Output:
        """What kernels printed since the last time, and the assertion that failed, if one did."""
        if isinstance(self.device, Printing):
            return Output(*self.device.take_output())
        return self.ring.take(self.device) if self.ring is not None else Output()


def with_assertion(error: LaunchError, failed: str) -> LaunchError:
    """A kernel's failure, told by the assertion that failed where one did (perhaps not the first fault)."""
    if not failed:
        return error
    return LaunchError(f"{ASSERTED}: {failed}", kernel=error.kernel, block=error.block, thread=error.thread)


def _make_ring(services: Services, limits: Mapping[int, int]) -> int:
    services.ring = Ring.make(services.device, limits[PRINTF_FIFO_SIZE])
    return services.ring.address


def _make_heap(services: Services, limits: Mapping[int, int]) -> int:
    """The heap of ``heap.cu``: its header, a bit and a word for each granule, and the granules."""
    device, granules = services.device, max(limits[MALLOC_HEAP_SIZE] // _GRANULE, 1)
    header, bits, counts = 40, 4 * -(-granules // 32), 4 * granules
    table = device.allocate(header + bits + counts)
    base = device.allocate(granules * _GRANULE)
    device.fill(table, b"\0\0\0\0", (header + bits + counts) // 4)
    words = (base, table + header, table + header + bits, 0, granules)
    device.write(table, b"".join(word.to_bytes(8, "little") for word in words))
    return table


def _make_locks(services: Services, limits: Mapping[int, int]) -> int:
    """The locks of ``wide.cu``, all open."""
    address = services.device.allocate(4 * _LOCKS)
    services.device.fill(address, b"\0\0\0\0", _LOCKS)
    return address


PROVIDERS: dict[str, Provider] = {
    OUTPUT: _make_ring,
    HEAP: _make_heap,
    LOCKS: _make_locks,
    ROOT_VARIABLE: lambda services, _: services.textures.root,
}
"""Hidden variable → what makes the table it points to."""

_SIZED = {PRINTF_FIFO_SIZE: OUTPUT, MALLOC_HEAP_SIZE: HEAP}
