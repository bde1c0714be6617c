"""The CPU device behind the device protocol."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Mapping, Sequence

from zluda.compiler import cache
from zluda.compiler.cpu.context import PERTURBATION, RANGES, GridWorkspace, Job, Perturbation, Ranges
from zluda.compiler.stops import FAULT_CODES, FAULTS, parted
from zluda.compiler.target import APART, Refusal, Together
from zluda.device.base import Dim3, Kernel
from zluda.device.cpu.attributes import ATTRIBUTES
from zluda.device.cpu.code import CpuCode, CpuKernel
from zluda.device.cpu.link import runtime
from zluda.device.cpu.memory import HostMemory, Memory
from zluda.device.cpu.pool import Pool
from zluda.device.faults import guard_bytes, outside, thread_index
from zluda.device.limits import MAX_SHARED_BYTES, validate
from zluda.device.placement import FunctionAddresses
from zluda.device.together import arrangement, check_room, cluster_shape, resident_blocks
from zluda.errors import DeviceError, LaunchError, UnsupportedError
from zluda.ptx import Module

_BY_TURNS = 16
"""Blocks that a seeded schedule mixes, where they do not wait for each other."""


class CpuDevice(HostMemory):
    """Runs kernels in this process, bit for bit as NVIDIA's GPUs do.

    ``memory`` is where allocations live (a fresh :class:`Memory` by default). ``threads`` is how many blocks
    run at once. ``numerics`` is ``"nvidia"``, ``"native"`` (approximate instructions by fast vector code), or
    ``"envelope"`` (moved inside their bounds, as :meth:`perturb` says). A ``seed`` other than 0
    runs blocks and warps by turns on one thread, in an order that it draws. Implements
    :class:`zluda.device.base.Device`.
    """

    name = "cpu"
    emulated = False

    def __init__(
        self,
        memory: Memory | None = None,
        *,
        threads: int | None = None,
        numerics: str = "nvidia",
        contract: str = "auto",
        check: str = "none",
        seed: int = 0,
    ) -> None:
        self.numerics, self.contract, self.check, self.seed = numerics, contract, check, seed
        self._perturbation = Perturbation()
        self._ranges = Ranges()
        self._functions = FunctionAddresses()
        self.memory = memory if memory is not None else Memory(guard=guard_bytes(check))
        cache.prepare()
        runtime()
        self._pool = Pool(1 if seed else threads)
        self._grids = itertools.count(1)
        self._workspace = GridWorkspace()

    def load(self, module: Module, *, globals_at: Mapping[str, int] | None = None) -> CpuCode:
        own = {PERTURBATION: ctypes.addressof(self._perturbation), RANGES: ctypes.addressof(self._ranges)}
        return CpuCode(
            self.memory,
            self._functions,
            module,
            globals_at or {},
            numerics=self.numerics,
            own_symbols=own,
            contract=self.contract,
            check=self.check,
            scheduled=self.seed != 0,
        )

    def perturb(self, share: float, pattern: int, seed: int) -> None:
        """From now on move approximate results by this share of their bounds; at first they are exact.

        See :class:`~zluda.compiler.cpu.context.Perturbation`. Only ``numerics="envelope"`` heeds this.
        """
        cell = self._perturbation
        cell.share, cell.pattern, cell.seed = share, pattern, seed

    def prepare(self, kernel: Kernel, block: Dim3, together: Together = APART) -> None:
        """Compile what a launch in blocks of this shape runs. Raises PtxError or UnsupportedError."""
        if isinstance(kernel, CpuKernel):
            kernel.specialize(block, Together(cluster_shape(kernel, together)))

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
        """Run a grid.

        Raises LaunchError for a launch CUDA would refuse or a kernel that faults, UnsupportedError for an
        instruction without a lowering.
        """
        if not isinstance(kernel, CpuKernel):
            raise DeviceError("cpu", f"kernel {kernel.name} was not loaded on this device")
        validate(kernel, grid, block, parameters, shared_bytes, max_shared=MAX_SHARED_BYTES)
        together = arrangement(kernel, grid, together)
        code = kernel.specialize(block, together)
        compiled = code.compiled
        buffer = ctypes.create_string_buffer(parameters, max(len(parameters), 1))
        warps = -(-block[0] * block[1] * block[2] // 32)
        blocks = grid[0] * grid[1] * grid[2]
        total_shared = (
            compiled.dynamic_shared_offset + shared_bytes if shared_bytes else compiled.shared_bytes
        )
        check_room(kernel, grid, block, total_shared, together)
        allocations = self._list_allocations(together)
        resident = 0
        if together.cooperative:
            resident = blocks
        elif together.blocks > 1 or compiled.waits_for_blocks:
            resident = min(blocks, max(resident_blocks(block, total_shared), together.blocks))
        elif self.seed:
            resident = min(blocks, _BY_TURNS)
        grid_id = next(self._grids)
        job = self._pool.launch(
            {
                "kernel": code.linked.address,
                "params": ctypes.addressof(buffer),
                "symbols": ctypes.addressof(code.symbols),
                "grid_id": grid_id,
                "seed": _drawn(self.seed, grid_id),
                "blocks": blocks,
                "nctaid": grid,
                "shared_bytes": total_shared,
                "dynamic_shared_bytes": shared_bytes,
                "param_bytes": len(parameters),
                "warps": warps,
                "cluster": together.cluster or (1, 1, 1),
                "cluster_size": together.blocks,
                "workspace": ctypes.addressof(self._workspace) if together.cooperative else 0,
            },
            work=blocks * warps * compiled.instructions,
            resident=resident,
        )
        del allocations
        if job.fault:
            raise self._fault(job, kernel.name, block, compiled.refusals)

    def _list_allocations(self, together: Together) -> object:
        """Tell code that tests its accesses what is allocated; the result must live as long as it runs."""
        if self.check == "none":
            return None
        held = list(self.memory.allocations())
        if together.cooperative:
            held.append((ctypes.addressof(self._workspace), ctypes.sizeof(self._workspace)))
        pairs = [bound for start, size in sorted(held) for bound in (start, start + size)]
        table = (ctypes.c_uint64 * max(len(pairs), 1))(*pairs)
        self._ranges.pairs, self._ranges.count = ctypes.addressof(table), len(pairs) // 2
        return table

    def synchronize(self) -> None:
        """Launches run to completion: there is nothing to wait for."""

    def attribute(self, attribute: int) -> int:
        """A ``CUdevice_attribute`` value; 0 for one that this device does not know."""
        return ATTRIBUTES.get(attribute, 0)

    def close(self) -> None:
        self._pool.close()
        self.memory.close()

    def _fault(
        self, job: Job, name: str, block: Dim3, refusals: Sequence[Refusal]
    ) -> LaunchError | UnsupportedError:
        """What stopped a launch, and where."""
        if job.fault == FAULT_CODES["unsupported"]:
            refusal = refusals[job.fault_address]
            return UnsupportedError(refusal.what, refusal.where, began=True)
        fault, size = parted(job.fault)
        message = FAULTS[fault]
        if fault == FAULT_CODES["global"]:
            message = f"{message}: {outside(job.fault_address, size, self.memory.allocations())}"
        elif size:
            message = f"{message}: {size} bytes"
        x, y, z = job.fault_ctaid
        return LaunchError(
            message,
            kernel=name,
            block=(x, y, z),
            thread=thread_index(job.fault_thread, block),
            address=job.fault_address or None,
        )


def _drawn(seed: int, launch: int) -> int:
    """The seed of one launch: other than 0 unless ``seed`` is 0 (splitmix64)."""
    if not seed:
        return 0
    mixed = (seed * 0x9E3779B97F4A7C15 + launch * 0xBF58476D1CE4E5B9) % 2**64
    mixed = (mixed ^ mixed >> 30) * 0x94D049BB133111EB % 2**64
    return mixed ^ mixed >> 31 or 1
