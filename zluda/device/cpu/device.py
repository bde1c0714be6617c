"""The CPU device behind the device protocol."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Mapping, Sequence

from zluda.compiler import cache
from zluda.compiler.cpu.context import PERTURBATION, GridWorkspace, Job, Perturbation
from zluda.compiler.stops import FAULT_CODES, FAULTS
from zluda.compiler.target import APART, Refusal, Together
from zluda.device.base import Dim3, Kernel
from zluda.device.cpu.attributes import ATTRIBUTES
from zluda.device.cpu.code import CpuCode, CpuKernel
from zluda.device.cpu.link import runtime
from zluda.device.cpu.memory import HostMemory, Memory
from zluda.device.cpu.pool import Pool
from zluda.device.limits import MAX_SHARED_BYTES, validate
from zluda.device.together import arrangement, cluster_shape, resident_blocks
from zluda.errors import DeviceError, LaunchError, UnsupportedError
from zluda.ptx import Module


class CpuDevice(HostMemory):
    """Runs kernels in this process, bit for bit as NVIDIA's GPUs do.

    ``memory`` is where allocations live (a fresh :class:`Memory` by default). ``threads`` is how many blocks
    run at once. ``numerics`` is ``"nvidia"``, ``"native"`` (approximate instructions by fast vector code), or
    ``"envelope"`` (moved inside their bounds, as :meth:`perturb` says). Implements
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
    ) -> None:
        self.numerics, self.contract = numerics, contract
        self._perturbation = Perturbation()
        self.memory = memory if memory is not None else Memory()
        cache.prepare()
        runtime()
        self._pool = Pool(threads)
        self._grids = itertools.count(1)
        self._workspace = GridWorkspace()

    def load(self, module: Module, *, globals_at: Mapping[str, int] | None = None) -> CpuCode:
        own = {PERTURBATION: ctypes.addressof(self._perturbation)}
        return CpuCode(
            self.memory,
            module,
            globals_at or {},
            numerics=self.numerics,
            own_symbols=own,
            contract=self.contract,
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
        resident = 0
        if together.cooperative:
            resident = blocks
        elif together.blocks > 1 or compiled.waits_for_blocks:
            resident = min(blocks, max(resident_blocks(block, total_shared), together.blocks))
        job = self._pool.launch(
            {
                "kernel": code.linked.address,
                "params": ctypes.addressof(buffer),
                "symbols": ctypes.addressof(code.symbols),
                "grid_id": next(self._grids),
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
        if job.fault:
            raise _fault(job, kernel.name, block, compiled.refusals)

    def synchronize(self) -> None:
        """Launches run to completion: there is nothing to wait for."""

    def attribute(self, attribute: int) -> int:
        """A ``CUdevice_attribute`` value; 0 for one that this device does not know."""
        return ATTRIBUTES.get(attribute, 0)

    def close(self) -> None:
        self._pool.close()
        self.memory.close()


def _fault(job: Job, name: str, block: Dim3, refusals: Sequence[Refusal]) -> LaunchError | UnsupportedError:
    """What stopped a launch, and where."""
    if job.fault == FAULT_CODES["unsupported"]:
        refusal = refusals[job.fault_address]
        return UnsupportedError(refusal.what, refusal.where, began=True)
    x, y, z = job.fault_ctaid
    thread = job.fault_thread
    index = (thread % block[0], thread // block[0] % block[1], thread // (block[0] * block[1]))
    return LaunchError(
        FAULTS[job.fault],
        kernel=name,
        block=(x, y, z),
        thread=index,
        address=job.fault_address or None,
    )
