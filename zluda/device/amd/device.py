"""An AMD GPU for PTX: modules compiled to code objects, which the emulator runs."""

from __future__ import annotations

from collections.abc import Mapping

from zluda import config
from zluda.compiler import cache, compile_kernel
from zluda.compiler.amd.linker import link
from zluda.compiler.amd.memory import REFUSAL
from zluda.compiler.amd.targets import Target
from zluda.compiler.layout import parameter_layout
from zluda.compiler.target import CompiledKernel, Refusal
from zluda.device.amd.emulator.compile import scheduler
from zluda.device.amd.emulator.device import EmulatedCode, EmulatedDevice, EmulatedKernel
from zluda.device.base import Dim3, Kernel, KernelParameter
from zluda.device.cpu.memory import Memory
from zluda.device.limits import required_block, thread_limit, validate
from zluda.device.placement import Variables
from zluda.errors import DeviceError, Error, LaunchError, UnsupportedError
from zluda.ptx import Module


class AmdKernel:
    """Implements :class:`zluda.device.base.Kernel`. Nothing is compiled before the first launch."""

    def __init__(self, code: AmdCode, name: str) -> None:
        function = code.module.function(name)
        slots, self.parameter_bytes = parameter_layout(function.parameters)
        self.code, self.name = code, name
        self.parameters = tuple(KernelParameter(s.name, s.offset, s.size, s.align) for s in slots)
        self.max_threads_per_block = thread_limit(function.directives)
        self.required_block = required_block(function.directives)
        self._shared_bytes: int | None = None
        self._loaded: tuple[CompiledKernel, EmulatedCode] | None = None

    @property
    def shared_bytes(self) -> int:
        """Static shared memory of a block, in bytes."""
        if self._shared_bytes is None:
            from zluda.compiler.amd.unit import build_unit

            self._shared_bytes = build_unit(self.code.module, self.name).shared.static_bytes
        return self._shared_bytes

    def load(self) -> tuple[CompiledKernel, EmulatedKernel]:
        """Compile, link against the module's variables, and load. Raises PtxError or UnsupportedError."""
        if self._loaded is None:
            device = self.code.device
            compiled = compile_kernel(self.code.module, self.name, device.name, wave_size=device.wave_size)
            addresses = {name: self._address(name) for name in compiled.symbols}
            linked = link(compiled.code, addresses)
            self._loaded = compiled, device.emulator.load_code_object(linked, file=self.name)
        compiled, code = self._loaded
        return compiled, code.kernel(compiled.entry)

    def _address(self, symbol: str) -> int:
        if symbol == REFUSAL:
            return self.code.device.refusal_cell()
        return self.code.global_variable(symbol)[0]

    def unload(self) -> None:
        """Free the code object."""
        if self._loaded is not None:
            self._loaded[1].unload()
            self._loaded = None


class AmdCode:
    """Implements :class:`zluda.device.base.Code`."""

    def __init__(self, device: AmdDevice, module: Module, globals_at: Mapping[str, int]) -> None:
        self.device, self.module = device, module
        self.kernel_names = tuple(module.kernel_names)
        self._variables = Variables(device.memory, module, globals_at)
        self._kernels: dict[str, AmdKernel] = {}

    def kernel(self, name: str) -> AmdKernel:
        """Raises Error when the module has no such kernel, PtxError when its text is wrong."""
        if name not in self.kernel_names:
            known = ", ".join(self.kernel_names) or "none"
            raise Error(f"{self.module.file} has no kernel {name}; it has {known}")
        if name not in self._kernels:
            self._kernels[name] = AmdKernel(self, name)
        return self._kernels[name]

    def global_variable(self, name: str) -> tuple[int, int]:
        """Address and size in bytes of a ``.global`` or ``.const`` variable."""
        return self._variables[name]

    def unload(self) -> None:
        """Free variables and code."""
        self._variables.free()
        for kernel in self._kernels.values():
            kernel.unload()
        self._kernels.clear()


def _wave_size(target: Target) -> int:
    """The target's own, or 64 where it has both and ``ZLUDA_WAVE64_MODE`` asks for it."""
    return 64 if config.load().wave64_mode == "1" and 64 in target.wave_sizes else target.wave_size


class AmdDevice:
    """An AMD GPU, emulated. Implements :class:`zluda.device.base.Device` for PTX modules.

    ``name`` is a target's (``"gfx1030"``), ``memory`` where allocations live. Raises DeviceError for an
    unknown target, or where LLVM's disassembler is not installed.
    """

    emulated = True
    numerics = "nvidia"

    def __init__(
        self,
        name: str,
        memory: Memory | None = None,
        *,
        seed: int = 0,
        threads: int | None = None,
        wave_size: int = 0,
    ) -> None:
        cache.prepare()
        scheduler()
        self.emulator = EmulatedDevice(name, memory, seed=seed, threads=threads)
        self.name, self.memory = name, self.emulator.memory
        self._cell: int | None = None
        self.wave_size = wave_size or _wave_size(self.emulator.target)

    def allocate(self, size: int, *, address: int | None = None) -> int:
        return self.emulator.allocate(size, address=address)

    def free(self, address: int) -> None:
        self.emulator.free(address)

    def read(self, address: int, size: int) -> bytes:
        return self.emulator.read(address, size)

    def write(self, address: int, data: bytes | bytearray | memoryview) -> None:
        self.emulator.write(address, data)

    def copy(self, destination: int, source: int, size: int) -> None:
        self.emulator.copy(destination, source, size)

    def fill(self, address: int, pattern: bytes, count: int) -> None:
        self.emulator.fill(address, pattern, count)

    def load(self, module: Module, *, globals_at: Mapping[str, int] | None = None) -> AmdCode:
        return AmdCode(self, module, globals_at or {})

    def launch(
        self, kernel: Kernel, grid: Dim3, block: Dim3, parameters: bytes, *, shared_bytes: int = 0
    ) -> None:
        """Run a grid.

        Raises LaunchError for a launch CUDA would refuse or a kernel that faults, UnsupportedError for an
        instruction without a lowering.
        """
        if not isinstance(kernel, AmdKernel):
            raise DeviceError(self.name, f"kernel {kernel.name} was not loaded on this device")
        max_shared = self.emulator.target.lds_bytes
        validate(kernel, grid, block, parameters, shared_bytes, max_shared=max_shared)
        compiled, loaded = kernel.load()
        # The packet names static and dynamic memory together: what lies between them is asked for as dynamic.
        gap = compiled.dynamic_shared_offset - compiled.shared_bytes if shared_bytes else 0
        try:
            self.emulator.launch(loaded, grid, block, parameters, shared_bytes=shared_bytes + gap)
        except LaunchError:
            refusal = self._refusal(compiled)
            if refusal is None:
                raise
            raise UnsupportedError(refusal.what, refusal.where, began=True) from None

    def refusal_cell(self) -> int:
        """The address of :data:`~zluda.compiler.amd.memory.REFUSAL`."""
        if self._cell is None:
            self._cell = self.allocate(4)
            self.write(self._cell, bytes(4))
        return self._cell

    def _refusal(self, compiled: CompiledKernel) -> Refusal | None:
        """What a launch came to that its code cannot do, if that is what stopped it."""
        if self._cell is None:
            return None
        number = int.from_bytes(self.read(self._cell, 4), "little")
        self.write(self._cell, bytes(4))
        return compiled.refusals[number - 1] if number else None

    def synchronize(self) -> None:
        self.emulator.synchronize()

    def attribute(self, attribute: int) -> int:
        return self.emulator.attribute(attribute)

    def close(self) -> None:
        self.emulator.close()
