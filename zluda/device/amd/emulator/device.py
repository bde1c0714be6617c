"""The emulated device: code objects loaded into memory, launched on the emulator."""

from __future__ import annotations

from collections.abc import Mapping

from zluda.compiler.amd.code_object import CodeObject, KernelEntry
from zluda.compiler.amd.disassembler import Disassembler, library_for
from zluda.compiler.amd.targets import target
from zluda.compiler.cache import remember
from zluda.compiler.cache.key import host_key
from zluda.device.amd.emulator import launch as setup
from zluda.device.amd.emulator import state
from zluda.device.amd.emulator.compile import HostCode, emit_wave, version
from zluda.device.amd.emulator.hang import explain
from zluda.device.amd.emulator.lift import lift
from zluda.device.amd.emulator.schedule import LDS_WINDOW, NOTHING, Launch, Outcome, Scheduler
from zluda.device.base import APART, Code, Dim3, Kernel, KernelParameter, Together
from zluda.device.cpu.attributes import ATTRIBUTES
from zluda.device.cpu.memory import HostMemory, Memory
from zluda.device.faults import guard_bytes, outside, thread_index
from zluda.device.limits import LEAST_STACK
from zluda.device.results import CudaError
from zluda.errors import DeviceError, HangError, LaunchError, UnsupportedError
from zluda.ptx import Module

CHECKS = ("none", "memory")
_WAVE_SCRATCH = 8 << 20  # bytes
_MAX_SHARED_MEMORY, _MAX_SHARED_MEMORY_OPTIN = 8, 97  # CUdevice_attribute


class EmulatedKernel:
    """A kernel of a loaded code object. Lifted and compiled when it is first launched."""

    def __init__(self, code: EmulatedCode, entry: KernelEntry) -> None:
        self.code, self.entry, self.name = code, entry, entry.name
        self.parameters = tuple(
            KernelParameter(a.name, a.offset, a.size, min(a.size, 16))
            for a in entry.arguments
            if not a.kind.startswith("hidden_")
        )
        self.parameter_bytes = max((p.offset + p.size for p in self.parameters), default=0)
        self.shared_bytes = entry.descriptor.lds_bytes
        self.max_threads_per_block = entry.max_flat_workgroup_size
        target_ = code.device.target
        self.wave_size = 32 if entry.descriptor.wave32 and 32 in target_.wave_sizes else 64
        self._host: dict[bool, tuple[HostCode, int]] = {}

    def disassembler(self) -> Disassembler:
        """A disassembler for its code."""
        return Disassembler(self.code.device.target, self.wave_size)

    def host(self, *, count: bool) -> tuple[HostCode, int]:
        """Host code and the number of vector registers. Raises UnsupportedError."""
        if count not in self._host:
            device = self.code.device
            checks = {
                "check_memory": device.check == "memory",
                "check_alignment": device.check_alignment,
                "waits": device.seeded,
            }

            def make() -> bytes:
                lifted = lift(
                    self.code.object, self.entry, device.target, self.wave_size, count=count, **checks
                )
                return lifted.vector_registers.to_bytes(4, "little") + emit_wave(lifted)

            told = repr((device.target.name, self.name, self.wave_size, count, sorted(checks.items())))
            key = host_key("lifted", [version(), self.code.data, told])
            found = remember(key, make, label=f"emulator {device.name} {self.name}")
            self._host[count] = (HostCode(found[4:], "wave"), int.from_bytes(found[:4], "little"))
        return self._host[count]


class EmulatedCode:
    """A code object in the device's memory."""

    def __init__(self, device: EmulatedDevice, data: bytes, file: str) -> None:
        self.device, self.data, self.object = device, data, CodeObject(data, file=file)
        built_for = self.object.target
        if built_for is not device.target:
            raise DeviceError(device.name, f"{file} is built for {built_for.name}")
        self.address = device.allocate_own(self.object.load_size)
        device.memory.write(self.address, self.object.load(self.address))
        self._kernels = {name: EmulatedKernel(self, k) for name, k in self.object.kernels.items()}

    @property
    def kernel_names(self) -> tuple[str, ...]:
        return tuple(self._kernels)

    def kernel(self, name: str) -> EmulatedKernel:
        """Raises Error where there is none so named."""
        self.object.kernel(name)
        return self._kernels[name]

    def global_variable(self, name: str) -> tuple[int, int]:
        """Address and size in bytes of a variable."""
        symbol = self.object.symbols.get(name)
        if symbol is None:
            raise DeviceError(self.device.name, f"{self.object.file} has no variable {name}")
        return self.address + symbol.address, symbol.size

    def unload(self) -> None:
        """Free its memory and forget its kernels."""
        self.device.free_own(self.address)
        self._kernels.clear()


class EmulatedDevice(HostMemory):
    """An AMD GPU in software. Implements :class:`zluda.device.base.Device` for code objects.

    ``check="memory"`` tests every global access against the live allocations; ``check_alignment`` makes
    misaligned accesses faults (not for code built for unaligned access mode). ``seed`` other than 0 varies
    the order of waves reproducibly, ``threads`` is how many blocks run at once, ``timeout_s`` ends a launch.
    Raises DeviceError for an unknown target or where no disassembler is installed.
    """

    emulated = True
    numerics = "native"

    def __init__(
        self,
        name: str,
        memory: Memory | None = None,
        *,
        check: str = "none",
        check_alignment: bool = False,
        seed: int = 0,
        threads: int | None = None,
        timeout_s: float | None = None,
    ) -> None:
        if check not in CHECKS:
            raise UnsupportedError(f"check={check!r}", f"device {name}; expected one of {', '.join(CHECKS)}")
        self.name, self.target, self.check = name, target(name), check
        self.check_alignment = check_alignment
        library_for(self.target)
        self.memory = memory if memory is not None else Memory(guard=guard_bytes(check))
        self._own: dict[int, tuple[int, int]] = {}  # what is allocated for the emulator's sake: start, size
        self.timeout_s = timeout_s
        self._scheduler, self.seeded = Scheduler(threads, seed=seed), seed != 0
        self._structures: int | None = None
        self._kernarg: tuple[int, int] = (0, 0)  # address and size of the buffer for kernel arguments
        self.instructions, self.counts = 0, NOTHING
        self.stack_bytes = LEAST_STACK

    # --- code ------------------------------------------------------------------------------------------

    def load_code_object(self, data: bytes, *, file: str = "<code object>") -> EmulatedCode:
        """Load a code object. Raises Error for bytes that are none, DeviceError for another target's."""
        return EmulatedCode(self, data, file)

    def load(self, module: Module, *, globals_at: Mapping[str, int] | None = None) -> Code:
        """PTX needs the AMDGPU compiler in front of this device."""
        raise UnsupportedError(f"PTX module {module.file}", f"device {self.name} takes code objects")

    def launch(
        self,
        kernel: Kernel,
        grid: Dim3,
        block: Dim3,
        parameters: bytes,
        *,
        shared_bytes: int = 0,
        together: Together = APART,
        count: bool = False,
    ) -> None:
        """Run a grid to its end. ``parameters`` is the explicit part of the kernarg segment.

        Of a grid whose blocks are launched ``together`` all begin in order, whatever the seed, and of a
        cooperative one before any has to end.

        ``count`` leaves the number of executed wave instructions in :attr:`instructions`, and more in
        :attr:`counts`. Raises LaunchError with kernel, block and address for a launch that faults or is not
        possible, UnsupportedError for an instruction that is not known.
        """
        if not isinstance(kernel, EmulatedKernel):
            raise DeviceError(self.name, f"kernel {kernel.name} was not loaded on this device")
        self._validate(kernel, grid, block, parameters, shared_bytes)
        lds_bytes = kernel.shared_bytes + shared_bytes
        addresses = self._place(kernel, parameters)
        segment = setup.kernarg_segment(kernel.entry, parameters, grid, block, addresses, shared_bytes)
        self.memory.write(addresses.kernarg, segment)
        private = setup.private_bytes(kernel.entry, self.stack_bytes)
        packet = setup.dispatch_packet(
            kernel.entry, grid, block, addresses, kernel.code.address, lds_bytes, private
        )
        self.memory.write(addresses.packet, packet)
        self.dispatch(kernel, grid, block, addresses, lds_bytes=lds_bytes, together=together, count=count)

    def dispatch(
        self,
        kernel: EmulatedKernel,
        grid: Dim3,
        block: Dim3,
        addresses: setup.Addresses,
        *,
        lds_bytes: int,
        together: Together = APART,
        count: bool = False,
    ) -> None:
        """Run a grid whose kernarg segment and dispatch packet are in memory, as a queue's owner puts them.

        ``lds_bytes`` is static and dynamic LDS together, of a block. Raises as :meth:`launch` does.
        """
        host, registers = kernel.host(count=count)
        launch = self._launch(kernel, grid, block, addresses, lds_bytes, host.address, registers)
        launch.in_order = together != APART
        launch.host_bytes = host.size
        launch.resident = launch.blocks if together.cooperative else 0
        outcome = self._scheduler.run(launch, count=count, timeout_s=self.timeout_s)
        self.instructions, self.counts = outcome.instructions, outcome.counts
        if outcome.fault:
            raise self._error(kernel, grid, block, outcome)

    def _launch(
        self,
        kernel: EmulatedKernel,
        grid: Dim3,
        block: Dim3,
        addresses: setup.Addresses,
        lds_bytes: int,
        function: int,
        registers: int,
    ) -> Launch:
        entry, wave_size = kernel.entry, kernel.wave_size
        private = setup.private_bytes(entry, self.stack_bytes)
        template, template_bytes, waves, places = setup.wave_templates(
            entry, self.target, wave_size, block, addresses, private
        )
        return Launch(
            wave_function=function,
            blocks=grid[0] * grid[1] * grid[2],
            waves=waves,
            grid=grid,
            template=template,
            template_bytes=template_bytes,
            wave_bytes=state.wave_bytes(wave_size, registers),
            wave_private_bytes=private * wave_size,
            private_bytes=private,
            lds_bytes=lds_bytes,
            code=kernel.code.address,
            sgprs=places,
            ids_in_ttmps=self.target.work_group_ids_in_ttmps,
            ranges=self._ranges() if self.check == "memory" else (),
        )

    def allocate_own(self, size: int) -> int:
        """Memory of the emulator's own, with room around it: a program that overruns its memory misses it."""
        room = guard_bytes(self.check)
        start = self.memory.allocate(size + 2 * room)
        self._own[start + room] = start, size
        return start + room

    def free_own(self, address: int) -> None:
        """Give such memory back."""
        self.memory.free(self._own.pop(address)[0])

    def _programs(self) -> list[tuple[int, int]]:
        """(start, size) of what the program has allocated."""
        around = {start for start, _ in self._own.values()}
        return [a for a in self.memory.allocations() if a[0] not in around]

    def _ranges(self) -> list[tuple[int, int]]:
        """(start, end) of what a kernel may access, sorted."""
        own = [(address, size) for address, (_, size) in self._own.items()]
        return [(start, start + size) for start, size in sorted([*self._programs(), *own])]

    def _place(self, kernel: EmulatedKernel, parameters: bytes) -> setup.Addresses:
        """Room for the kernarg segment, the dispatch packet and the queue, reused from launch to launch."""
        if self._structures is None:
            self._structures = self.allocate_own(setup.PACKET_BYTES + setup.QUEUE_BYTES)
        size = max(len(parameters), kernel.entry.descriptor.kernarg_bytes, 256)
        size = max(size, int(kernel.entry.metadata.get(".kernarg_segment_size", 0)))
        if self._kernarg[1] < size:
            if self._kernarg[1]:
                self.free_own(self._kernarg[0])
            self._kernarg = (self.allocate_own(size), size)
        packet = self._structures
        return setup.Addresses(self._kernarg[0], packet, packet + setup.PACKET_BYTES)

    def _validate(
        self, kernel: EmulatedKernel, grid: Dim3, block: Dim3, parameters: bytes, shared_bytes: int
    ) -> None:
        threads = block[0] * block[1] * block[2]
        limit = min(self.target.lds_bytes, LDS_WINDOW)
        lds_bytes = kernel.shared_bytes + shared_bytes
        reasons = (
            (min(grid) < 1, f"grid {grid}: invalid"),
            (min(block) < 1, f"block {block}: invalid"),
            (
                threads > kernel.max_threads_per_block,
                f"{threads} threads a block, {kernel.max_threads_per_block} allowed",
            ),
            (
                len(parameters) < kernel.parameter_bytes,
                f"{len(parameters)} bytes of parameters, {kernel.parameter_bytes} needed",
            ),
            (shared_bytes < 0 or lds_bytes > limit, f"{lds_bytes} bytes of LDS, {limit} available"),
        )
        for wrong, reason in reasons:
            if wrong:
                raise LaunchError(f"invalid configuration: {reason}", kernel=kernel.name)

    def _error(self, kernel: EmulatedKernel, grid: Dim3, block: Dim3, outcome: Outcome) -> LaunchError:
        """What stopped a launch, and where."""
        place = thread_index(outcome.block, grid)
        what = state.FAULTS[outcome.fault]
        if outcome.fault in (state.TIMEOUT, state.HANG):
            why = explain(kernel.code.object, kernel.entry, kernel.disassembler(), outcome)
            return HangError(f"{what}: {why}", kernel=kernel.name, block=place)
        where = f"offset {outcome.offset - kernel.entry.address:#x}, wave {outcome.wave}, lane {outcome.lane}"
        thread, address = None, None if outcome.fault == state.TRAP else outcome.address
        if outcome.fault in state.ACCESS_FAULTS or outcome.fault == state.TRAP:
            thread = thread_index(outcome.wave * kernel.wave_size + outcome.lane, block)
        if outcome.fault in state.ACCESS_FAULTS:
            line = kernel.disassembler().at(kernel.code.object.image, outcome.offset)
            where = f"{line.text}; {where}"
        message = f"{what} ({where})"
        if outcome.fault == state.GLOBAL_RANGE:
            message += f": {outside(outcome.address, outcome.size, self._programs())}"
        elif outcome.size:
            message += f": {outcome.size} bytes"
        if outcome.fault == state.SCRATCH_RANGE and kernel.entry.descriptor.dynamic_stack:
            message += f"; the stack for recursion has {self.stack_bytes} bytes (CU_LIMIT_STACK_SIZE)"
        return LaunchError(message, kernel=kernel.name, block=place, thread=thread, address=address)

    def limit_stack(self, size: int) -> None:
        """See :class:`zluda.device.base.Stacked`. A wave has 8 MiB of scratch (RDNA2 ISA 3.6, WAVESIZE)."""
        most = _WAVE_SCRATCH // self.target.wave_size
        if size > most:
            detail = f"a stack of {size} bytes a thread; {self.name} has at most {most}"
            raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=detail)
        self.stack_bytes = max(size, LEAST_STACK)

    def synchronize(self) -> None:
        """Launches run to their end: there is nothing to wait for."""

    def attribute(self, attribute: int) -> int:
        """A ``CUdevice_attribute`` value; 0 for one that this device does not know."""
        if attribute in (_MAX_SHARED_MEMORY, _MAX_SHARED_MEMORY_OPTIN):
            return self.target.lds_bytes
        return ATTRIBUTES.get(attribute, 0)

    def close(self) -> None:
        self._scheduler.close()
        self.memory.close()
