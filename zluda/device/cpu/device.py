"""The CPU device behind the device protocol."""

from __future__ import annotations

from collections.abc import Mapping

from zluda.device.base import Dim3, Kernel
from zluda.device.cpu.code import CpuCode
from zluda.device.cpu.memory import Memory
from zluda.device.cpu.pool import Pool
from zluda.ptx import Module


class CpuDevice:
    """Runs kernels in this process, bit for bit as NVIDIA's GPUs do.

    ``memory`` is where allocations live (a fresh :class:`Memory` by default). ``threads`` is how many blocks
    run at once. Implements :class:`zluda.device.base.Device`.
    """

    name = "cpu"
    emulated = False
    numerics = "nvidia"

    def __init__(self, memory: Memory | None = None, *, threads: int | None = None) -> None:
        self.memory = memory if memory is not None else Memory()
        self._pool = Pool(threads)

    def allocate(self, size: int, *, address: int | None = None) -> int:
        return self.memory.allocate(size, address)

    def free(self, address: int) -> None:
        self.memory.free(address)

    def read(self, address: int, size: int) -> bytes:
        return self.memory.read(address, size)

    def write(self, address: int, data: bytes | bytearray | memoryview) -> None:
        self.memory.write(address, data)

    def copy(self, destination: int, source: int, size: int) -> None:
        self.memory.write(destination, self.memory.read(source, size))

    def fill(self, address: int, pattern: bytes, count: int) -> None:
        self.memory.write(address, pattern * count)

    def load(self, module: Module, *, globals_at: Mapping[str, int] | None = None) -> CpuCode:
        return CpuCode(self.memory, module, globals_at or {})

    def launch(
        self, kernel: Kernel, grid: Dim3, block: Dim3, parameters: bytes, *, shared_bytes: int = 0
    ) -> None:
        raise NotImplementedError
