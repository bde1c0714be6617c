"""The interpreter behind the device protocol."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping

from zluda.device.base import APART, Dim3, Kernel, Together
from zluda.device.cpu.attributes import ATTRIBUTES
from zluda.device.cpu.memory import HostMemory, Memory
from zluda.device.faults import guard_bytes
from zluda.device.interpreter.code import KernelCode, ModuleCode, Sources
from zluda.device.interpreter.grid import Grid
from zluda.device.interpreter.machine import Machine
from zluda.device.interpreter.spaces import Spaces
from zluda.device.limits import MAX_SHARED_BYTES, validate
from zluda.device.placement import FunctionAddresses
from zluda.device.together import arrangement, check_room, cluster_shape
from zluda.errors import DeviceError
from zluda.ptx import Module

_WORKSPACE = 64  # bytes
_THREADS = 1 << 14
"""Threads of blocks that are executed at once, where it does not matter to the program."""


class InterpreterDevice(HostMemory):
    """Executes PTX as it stands, instruction by instruction: slow, and independent of the compiler.

    ``memory`` is where allocations live. ``sources`` says what a module's text means beyond the ISA: which
    products and sums ptxas fuses, and the libraries of device code. ``check="memory"`` holds accesses against
    allocations. A launch that is not over after so many ``seconds`` is given up as unsupported, by that name.
    Implements :class:`zluda.device.base.Device`.
    """

    name = "interpreter"
    emulated = False
    numerics = "nvidia"

    def __init__(
        self, sources: Sources, memory: Memory | None = None, *, check: str = "none", seconds: float = 3600.0
    ) -> None:
        self._sources, self._check, self._seconds = sources, check, seconds
        self.memory = memory if memory is not None else Memory(guard=guard_bytes(check))
        self._functions = FunctionAddresses()
        self._grids = itertools.count(1)
        self._workspace = 0

    def load(self, module: Module, *, globals_at: Mapping[str, int] | None = None) -> ModuleCode:
        return ModuleCode(self.memory, self._functions, module, globals_at or {}, self._sources)

    def launch(
        self,
        kernel: Kernel,
        grid: Dim3,
        block: Dim3,
        parameters: bytes,
        *,
        shared_bytes: int = 0,
        together: Together = APART,
    ) -> None:
        """Run a grid. Raises LaunchError for what CUDA would refuse and for a kernel that faults,
        UnsupportedError for an instruction that the interpreter has not.
        """
        if not isinstance(kernel, KernelCode):
            raise DeviceError("interpreter", f"kernel {kernel.name} was not loaded on this device")
        validate(kernel, grid, block, parameters, shared_bytes, max_shared=MAX_SHARED_BYTES)
        together = arrangement(kernel, grid, together)
        total = kernel.dynamic_offset + shared_bytes if shared_bytes else kernel.shared_bytes
        check_room(kernel, grid, block, total, together)
        shape = cluster_shape(kernel, together)
        limits = self._seconds, time.monotonic() + self._seconds
        place = self._place_to_meet() if together.cooperative else 0
        number = next(self._grids)
        launch = Grid(grid, block, parameters, shared_bytes, shape, number, *limits, workspace=place)
        checked = list(self.memory.allocations()) if self._check != "none" else None
        for blocks in _batches(launch, cooperative=together.cooperative):
            Machine(kernel, launch, blocks, lambda one: Spaces(one, self.memory, checked=checked)).run()

    def _place_to_meet(self) -> int:
        """The address of what the blocks of a cooperative grid synchronise by, all zeros: its size, then the
        word that counts arrivals, as ``cooperative_groups`` has it.
        """
        if not self._workspace:
            self._workspace = self.memory.allocate(_WORKSPACE)
        self.memory.write(self._workspace, bytes(_WORKSPACE))
        return self._workspace

    def synchronize(self) -> None:
        """Launches run to completion: there is nothing to wait for."""

    def attribute(self, attribute: int) -> int:
        """A ``CUdevice_attribute`` value; 0 for one that this device does not know."""
        return ATTRIBUTES.get(attribute, 0)

    def close(self) -> None:
        self.memory.close()


def _batches(grid: Grid, *, cooperative: bool) -> list[range]:
    """Blocks that are executed at once: of a cooperative grid all, else whole clusters."""
    if cooperative:
        return [range(grid.blocks)]
    each = max(_THREADS // (-(-grid.threads // 32) * 32) // grid.cluster_blocks, 1) * grid.cluster_blocks
    return [range(start, min(start + each, grid.blocks)) for start in range(0, grid.blocks, each)]
