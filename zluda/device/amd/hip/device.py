"""One AMD GPU behind the device protocol: kernels are compiled here and run by AMD's HIP runtime."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

from zluda.compiler.amd.targets import CODE_OBJECT_VERSION, default_wave_size, target_id
from zluda.compiler.stops import REFUSAL
from zluda.device.amd.code import AmdCode, AmdKernel
from zluda.device.amd.hip import attributes
from zluda.device.amd.hip.code import HipCode
from zluda.device.amd.hip.memory import HipMemory
from zluda.device.amd.hip.runtime import Runtime, load
from zluda.device.amd.hip.streams import HipStreams
from zluda.device.base import APART, Dim3, Kernel, Together
from zluda.device.cpu.attributes import ATTRIBUTES
from zluda.device.limits import LEAST_STACK
from zluda.device.placement import FunctionAddresses, Wherever
from zluda.device.refusals import RefusalCell
from zluda.device.results import CudaError
from zluda.errors import DeviceError, LaunchError, UnsupportedError
from zluda.ptx import Module

_OLD_CODE_OBJECT_VERSION = 4
_READS_NEW_CODE_OBJECTS = 6  # HIP's major version
_EMULATED = "emulated "  # how the product name of a stand-in for a GPU begins
# HIP_LAUNCH_PARAM_*
_BUFFER_POINTER, _BUFFER_SIZE, _END = 1, 2, 3
_MAX_WORK_ITEMS = (1 << 32) - 1  # of one dimension (HIP, hipModuleLaunchKernel)


class HipDevice:
    """GPU ``ordinal`` of AMD's HIP runtime. Implements :class:`zluda.device.base.GpuDevice`.

    ``reservations`` are the (address, size) ranges in which ``allocate(address=…)`` will be asked for memory.
    Raises DeviceError where hip-python, the runtime or the GPU is missing.

    A trap ends the process (HIP aborts it), so a wave that comes to what cannot be done ends, and a kernel
    that may come to it is waited for.
    """

    end_refused = True

    def __init__(
        self,
        ordinal: int = 0,
        *,
        numerics: str = "native",
        contract: str = "auto",
        reservations: Sequence[tuple[int, int]] = (),
        runtime: Runtime | None = None,
    ) -> None:
        self.name, self.numerics, self._ordinal = f"hip:{ordinal}", numerics, ordinal
        self.contract, self.check = contract, "none"
        self.runtime = runtime or load()
        self._open()
        self.target_id = self.runtime.architecture(ordinal)
        self.target = target_id(self.target_id).target
        new = self.runtime.version[0] >= _READS_NEW_CODE_OBJECTS
        self.code_object_version = CODE_OBJECT_VERSION if new else _OLD_CODE_OBJECT_VERSION
        self.wave_size = default_wave_size(self.target)
        name = self.runtime.product(ordinal)
        self.emulated = name.startswith(_EMULATED)
        self.product = name if self.target.name in name else f"{name}, {self.target.name}"
        self.memory = HipMemory(self.runtime, ordinal, self.name, reservations)
        self.variables = Wherever(self.memory)
        self.refusals, self.functions = RefusalCell(self.variables), FunctionAddresses()
        self.streams = HipStreams(self.runtime)
        self._closed, self._stack_bytes = False, LEAST_STACK

    def _open(self) -> None:
        count = self.runtime.device_count()
        if self._ordinal >= count:
            remedy = "see `zluda doctor`" if not count else f"there is hip:0 to hip:{count - 1}"
            raise DeviceError(self.name, f"HIP {self.runtime.version_text} finds {count} GPUs", remedy=remedy)
        try:
            self.runtime.call("hipSetDevice", self._ordinal)
        except CudaError as error:
            raise DeviceError(self.name, str(error), remedy="see `zluda doctor`") from error

    # --- memory ----------------------------------------------------------------------------------------

    def allocate(self, size: int, *, address: int | None = None) -> int:
        return self.memory.allocate(size, address)

    def free(self, address: int) -> None:
        self.memory.free(address)

    def read(self, address: int, size: int) -> bytes:
        return self.memory.read(address, size)

    def write(self, address: int, data: bytes | bytearray | memoryview) -> None:
        self.memory.write(address, data)

    def copy(self, destination: int, source: int, size: int) -> None:
        self.memory.copy(destination, source, size)

    def fill(self, address: int, pattern: bytes, count: int) -> None:
        self.memory.fill(address, pattern, count)

    def memory_info(self) -> tuple[int, int]:
        free, total = self.runtime.call("hipMemGetInfo")
        return int(free), int(total)

    # --- code ------------------------------------------------------------------------------------------

    def load(self, module: Module, *, globals_at: Mapping[str, int] | None = None) -> AmdCode[int]:
        """Load a module; a variable whose wanted address cannot be had is placed elsewhere."""
        return AmdCode(self, module, globals_at or {})

    def load_code_object(self, data: bytes, *, file: str) -> HipCode:
        try:
            return HipCode(self.runtime, data)
        except CudaError as error:
            raise DeviceError(self.name, f"{file}: {error}") from error

    def prepare(self, kernel: Kernel, block: Dim3, together: Together = APART) -> None:
        """Compile and load what a launch runs."""
        if isinstance(kernel, AmdKernel):
            kernel.load()

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
        """Run a grid to its end.

        Raises LaunchError for a launch CUDA would refuse or a kernel that fails, UnsupportedError for an
        instruction without a lowering.
        """
        try:
            self.enqueue(kernel, grid, block, parameters, shared_bytes=shared_bytes, together=together)
            self.streams.synchronize_all()
        except CudaError as error:
            raise error.launch or LaunchError(str(error), kernel=kernel.name) from error

    def enqueue(
        self,
        kernel: Kernel,
        grid: Dim3,
        block: Dim3,
        parameters: bytes,
        *,
        shared_bytes: int = 0,
        stream: int = 0,
        together: Together = APART,
    ) -> None:
        if not isinstance(kernel, AmdKernel):
            raise DeviceError(self.name, f"kernel {kernel.name} was not loaded on this device")
        made = kernel.dispatch(
            grid, block, parameters, shared_bytes, max_shared=self.target.lds_bytes, together=together
        )
        if any(g * b > _MAX_WORK_ITEMS for g, b in zip(grid, made.block, strict=True)):
            what = f"a grid of {grid} blocks of {block}"
            raise UnsupportedError(what, f"HIP launches up to {_MAX_WORK_ITEMS} threads a dimension")
        self.streams.running = kernel.name
        shape = (made.loaded, *grid, *made.block, made.shared_bytes, self.streams.handle(stream))
        launch = self._launch_cooperative if together.cooperative else self._launch
        try:
            launch(shape, made.parameters)
        except CudaError as error:
            raise self.streams.explained(error) from None
        if REFUSAL in made.compiled.symbols:  # whose cell the next launch may need
            self.streams.synchronize(stream)
            refusal = self.refusals.take(made.compiled)
            if refusal is not None:
                raise refusal

    def _launch(self, shape: tuple[int, ...], parameters: bytes) -> None:
        """By a buffer that holds the kernarg segment; HIP copies it before it returns."""
        buffer = ctypes.create_string_buffer(parameters, max(len(parameters), 1))
        size = ctypes.c_size_t(len(parameters))
        extra = (ctypes.c_void_p * 5)(
            _BUFFER_POINTER, ctypes.addressof(buffer), _BUFFER_SIZE, ctypes.addressof(size), _END
        )
        self.runtime.call("hipModuleLaunchKernel", *shape, None, ctypes.addressof(extra))

    def _launch_cooperative(self, shape: tuple[int, ...], parameters: bytes) -> None:
        """Such a launch takes no buffer but a pointer to each argument: there is one, the whole segment."""
        buffer = ctypes.create_string_buffer(parameters, max(len(parameters), 1))
        pointers = (ctypes.c_void_p * 1)(ctypes.addressof(buffer))
        self.runtime.call("hipModuleLaunchCooperativeKernel", *shape, ctypes.addressof(pointers))

    def limit_stack(self, size: int) -> None:
        """See :class:`zluda.device.base.Stacked`."""
        size = max(size, LEAST_STACK)
        if size != self._stack_bytes:
            self.runtime.call(
                "hipDeviceSetLimit", self.runtime.constant("hipLimit_t", "hipLimitStackSize"), size
            )
            self._stack_bytes = size

    def synchronize(self) -> None:
        self.streams.synchronize_all()

    def attribute(self, attribute: int) -> int:
        """A ``CUdevice_attribute`` value; 0 for one that this device does not know."""
        if attribute == attributes.SHARED_MEMORY_OPTIN:
            return self.target.lds_bytes
        own = attributes.OWN.get(attribute)
        return (self.runtime.attribute(own, self._ordinal) if own else 0) or ATTRIBUTES.get(attribute, 0)

    def close(self) -> None:
        """Free everything; closing twice is harmless."""
        if not self._closed:
            self._closed = True
            self.memory.close()
