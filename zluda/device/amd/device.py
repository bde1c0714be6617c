"""An emulated AMD GPU for PTX: modules compiled to code objects, which the emulator runs."""

from __future__ import annotations

from collections.abc import Mapping

from zluda.compiler import cache
from zluda.compiler.amd import slow
from zluda.compiler.amd.targets import CODE_OBJECT_VERSION, default_wave_size
from zluda.device.amd.code import AmdCode, AmdKernel
from zluda.device.amd.emulator.compile import scheduler
from zluda.device.amd.emulator.device import EmulatedCode, EmulatedDevice, EmulatedKernel
from zluda.device.base import APART, Dim3, Kernel, Together
from zluda.device.cpu.memory import HostMemory, Memory
from zluda.device.faults import thread_index
from zluda.device.placement import FunctionAddresses
from zluda.device.refusals import RefusalCell
from zluda.device.together import cluster_shape
from zluda.errors import DeviceError, LaunchError
from zluda.ptx import Module


class AmdDevice(HostMemory):
    """An AMD GPU, emulated. Implements :class:`zluda.device.base.Device` for PTX modules.

    ``name`` is a target's (``"gfx1030"``), ``memory`` where allocations live. ``numerics`` is ``"nvidia"``,
    or ``"native"``: approximate instructions by AMD's own. Raises DeviceError for an unknown target, or where
    LLVM's disassembler is not installed.
    """

    emulated = True
    counting = False
    code_object_version, end_refused = CODE_OBJECT_VERSION, False

    def __init__(
        self,
        name: str,
        memory: Memory | None = None,
        *,
        seed: int = 0,
        threads: int | None = None,
        timeout_s: float | None = None,
        wave_size: int = 0,
        numerics: str = "nvidia",
        contract: str = "auto",
        check: str = "none",
    ) -> None:
        self.numerics, self.contract, self.check = numerics, contract, check
        cache.prepare()
        scheduler()
        self.emulator = EmulatedDevice(
            name,
            memory,
            check=check,
            check_alignment=True,
            seed=seed,
            threads=threads,
            timeout_s=timeout_s,
        )
        self.name = self.target_id = name
        self.memory = self.variables = self.emulator.memory
        self.refusals, self.functions = RefusalCell(self.memory), FunctionAddresses()
        self.wave_size = wave_size or default_wave_size(self.emulator.target)

    def load(self, module: Module, *, globals_at: Mapping[str, int] | None = None) -> AmdCode[EmulatedKernel]:
        return AmdCode(self, module, globals_at or {})

    def prepare(self, kernel: Kernel, block: Dim3, together: Together = APART) -> None:
        """Compile what a launch runs, twice: for the GPU, and that for this machine."""
        if isinstance(kernel, AmdKernel):
            _, loaded = kernel.load(Together(cluster_shape(kernel, together), together.cooperative))
            loaded.host(count=self.counting)

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
        if not isinstance(kernel, AmdKernel):
            raise DeviceError(self.name, f"kernel {kernel.name} was not loaded on this device")
        max_shared = self.emulator.target.lds_bytes
        made = kernel.dispatch(
            grid, block, parameters, shared_bytes, max_shared=max_shared, together=together
        )
        try:
            self.emulator.launch(
                made.loaded,
                grid,
                made.block,
                made.parameters,
                shared_bytes=made.shared_bytes,
                together=together,
                count=self.counting,
            )
        except LaunchError as error:
            failure = self.refusals.take(made.compiled, error) or error
            if isinstance(failure, LaunchError) and failure.thread is not None and made.compiled.one_warp:
                failure = _in_block(failure, block)
            raise failure from None

    def load_code_object(self, data: bytes, *, file: str) -> EmulatedCode:
        return self.emulator.load_code_object(data, file=file)

    @property
    def counted(self) -> tuple[int, int, int]:
        """See :class:`zluda.device.base.Counting`."""
        counts = self.emulator.counts
        return counts.instructions, counts.vector, counts.bytes

    def limit_stack(self, size: int) -> None:
        self.emulator.limit_stack(size)

    def synchronize(self) -> None:
        self.emulator.synchronize()

    def attribute(self, attribute: int) -> int:
        return self.emulator.attribute(attribute)

    def close(self) -> None:
        self.emulator.close()


def _in_block(error: LaunchError, block: Dim3) -> LaunchError:
    """A fault of a launch that ran one warp a wave, with its thread's place in the block."""
    assert error.thread is not None
    thread = thread_index(slow.thread_of(error.thread[0]), block)
    return LaunchError(
        error.message, kernel=error.kernel, block=error.block, thread=thread, address=error.address
    )
