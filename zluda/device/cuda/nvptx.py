"""An NVIDIA GPU for what this compiler makes of PTX: lowered, written as PTX anew, given to the driver."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

from zluda.compiler import compile_kernel
from zluda.compiler.layout import parameter_layout
from zluda.compiler.nvptx.surroundings import SYMBOLS
from zluda.compiler.nvptx.targets import target
from zluda.compiler.services import linked
from zluda.compiler.stops import FAULTS, REFUSAL, STOPPED
from zluda.compiler.target import CompiledKernel
from zluda.device.base import APART, Dim3, Kernel, KernelParameter, Together
from zluda.device.cuda.device import CudaDevice
from zluda.device.cuda.images import Image, load_module
from zluda.device.cuda.launching import launch, parameter_slots
from zluda.device.limits import MAX_SHARED_BYTES, required_block, thread_limit, validate
from zluda.device.placement import FunctionAddresses, Variables
from zluda.device.results import KERNEL_FAILURES, CudaError
from zluda.device.together import arrangement, launch_attributes
from zluda.errors import DeviceError, Error, LaunchError, UnsupportedError
from zluda.ptx import Module

_MAX_DYNAMIC_SHARED_SIZE_BYTES, _NON_PORTABLE_CLUSTER = 8, 14  # CUfunction_attribute
_CC_MAJOR, _CC_MINOR = 75, 76  # CUdevice_attribute
_ADDRESS_BYTES = 8
_STACK_SIZE = 0  # CUlimit
_PORTABLE_CLUSTER = 8  # blocks


class Loaded:
    """A kernel that the driver has compiled: its CUmodule and CUfunction, and what it was made of."""

    def __init__(self, device: NvptxDevice, compiled: CompiledKernel) -> None:
        self.compiled, self._library = compiled, device.library
        self._image = Image(compiled.code)
        try:
            self._module = load_module(device.library, self._image)
        except CudaError as error:
            raise UnsupportedError(
                f"PTX that NVIDIA's driver refuses: {error.detail}", f"kernel {compiled.name}"
            ) from error
        self.handle = self._library.get(
            "cuModuleGetFunction", ctypes.c_void_p, self._module, compiled.entry.encode()
        )
        self._dynamic_bytes, self._cluster_blocks = 0, _PORTABLE_CLUSTER
        # The driver puts a parameter of 64 bytes' alignment at such an address of its constant bank, in which
        # parameters begin at 0x210 on sm_90: not at 0 of the buffer.
        slots = parameter_slots(self._library, self.handle, kernel=False) if compiled.parameter_bytes else []
        self.offset = slots[0][0] if slots else 0

    def fill(self, addresses: Sequence[int]) -> None:
        """Write the table of addresses that the code reads."""
        table, size = self._library.get_two(
            "cuModuleGetGlobal", ctypes.c_uint64, ctypes.c_size_t, self._module, SYMBOLS.encode()
        )
        data = b"".join(address.to_bytes(_ADDRESS_BYTES, "little") for address in addresses)
        self._library.call("cuMemcpyHtoD", table, data, min(len(data), size))

    def allow(self, shared_bytes: int, cluster_blocks: int) -> None:
        """Have the function take so much dynamic shared memory, and run in clusters of so many blocks."""
        if cluster_blocks > self._cluster_blocks:
            self._library.call("cuFuncSetAttribute", self.handle, _NON_PORTABLE_CLUSTER, 1)
            self._cluster_blocks = cluster_blocks
        if shared_bytes > self._dynamic_bytes:
            attribute = _MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._library.call("cuFuncSetAttribute", self.handle, attribute, shared_bytes)
            self._dynamic_bytes = shared_bytes

    def unload(self) -> None:
        """Give the module back to the driver."""
        self._library.call("cuModuleUnload", self._module)


class NvptxKernel:
    """Implements :class:`zluda.device.base.Kernel`. Nothing is compiled before the first launch."""

    def __init__(self, code: NvptxCode, name: str) -> None:
        function = code.module.function(name)
        slots, self.parameter_bytes = parameter_layout(function.parameters)
        self.code, self.name = code, name
        self.parameters = tuple(KernelParameter(s.name, s.offset, s.size, s.align) for s in slots)
        self.max_threads_per_block = thread_limit(function.directives)
        self.required_block = required_block(function.directives)
        self.directives = function.directives
        self._shared_bytes: int | None = None
        self.loaded: Loaded | None = None

    @property
    def shared_bytes(self) -> int:
        """Static shared memory of a block, in bytes."""
        if self._shared_bytes is None:
            from zluda.compiler.nvptx.unit import build_unit

            self._shared_bytes = build_unit(self.code.module, self.name, "off").shared.static_bytes
        return self._shared_bytes

    def load(self) -> Loaded:
        """Compile, and have the driver do so. Raises PtxError or UnsupportedError."""
        if self.loaded is None:
            device = self.code.device
            compiled = compile_kernel(
                self.code.module,
                self.name,
                device.target_of(self.code.module),
                numerics=device.numerics,
                contract=device.contract,
            )
            loaded = Loaded(device, compiled)
            if compiled.symbols:
                loaded.fill([self.code.address(symbol) for symbol in compiled.symbols])
            self.loaded = loaded
        return self.loaded


class NvptxCode:
    """Implements :class:`zluda.device.base.Code`."""

    def __init__(self, device: NvptxDevice, module: Module, globals_at: Mapping[str, int]) -> None:
        self.device, self.module = device, linked(module)
        self.kernel_names = tuple(module.kernel_names)
        self._variables = Variables(_Placed(device), device.functions, self.module, globals_at)
        self._kernels: dict[str, NvptxKernel] = {}

    def kernel(self, name: str) -> NvptxKernel:
        """Raises Error when the module has no such kernel, PtxError when its text is wrong."""
        if name not in self.kernel_names:
            known = ", ".join(self.kernel_names) or "none"
            raise Error(f"{self.module.file} has no kernel {name}; it has {known}")
        if name not in self._kernels:
            self._kernels[name] = NvptxKernel(self, name)
        return self._kernels[name]

    def global_variable(self, name: str) -> tuple[int, int]:
        """Address and size in bytes of a ``.global`` or ``.const`` variable."""
        return self._variables[name]

    def address(self, symbol: str) -> int:
        """Where what a kernel names by ``symbol`` is."""
        return self.device.refusal_cell() if symbol == REFUSAL else self._variables.address(symbol)

    def unload(self) -> None:
        """Free variables and code."""
        self._variables.free()
        for kernel in self._kernels.values():
            if kernel.loaded is not None:
                kernel.loaded.unload()
        self._kernels.clear()


class NvptxDevice(CudaDevice):
    """GPU ``ordinal`` for code of this compiler's. Implements :class:`zluda.device.base.Device`.

    A kernel is compiled by LLVM for the GPU's architecture when it is first launched, and that PTX by the
    driver. Approximate instructions are the GPU's in both ``numerics``; with ``"native"`` a NaN that is
    converted by moving bits keeps its payload. Raises DeviceError where there is no such GPU.
    """

    def __init__(
        self,
        ordinal: int = 0,
        *,
        numerics: str = "nvidia",
        contract: str = "auto",
        reservations: Sequence[tuple[int, int]] = (),
    ) -> None:
        super().__init__(ordinal, reservations=reservations)
        self.name = f"nvptx:{ordinal}"
        self.numerics, self.contract = numerics, contract
        self.functions = FunctionAddresses()
        self._cell: int | None = None
        self._stack_bytes = 0

    def target_of(self, module: Module) -> str:
        """The target of this GPU, with the features of it alone where the module is for them."""
        number = 10 * self.attribute(_CC_MAJOR) + self.attribute(_CC_MINOR)
        suffix = next((name[-1] for name in module.target if name[-1:] in "af" and name[:3] == "sm_"), "")
        return target(f"sm_{number}{suffix if number >= 90 else ''}").name

    def refusal_cell(self) -> int:
        """The memory in which a thread notes what stopped it."""
        if self._cell is None:
            self._cell = self.allocate(4)
            self.write(self._cell, bytes(4))
        return self._cell

    def load(self, module: Module, *, globals_at: Mapping[str, int] | None = None) -> NvptxCode:  # type: ignore[override]
        """Load a module; a variable whose wanted address cannot be had is placed elsewhere."""
        return NvptxCode(self, module, globals_at or {})

    def limit_stack(self, size: int) -> None:
        """See :class:`zluda.device.base.Stacked`."""
        if size != self._stack_bytes:
            self.library.call("cuCtxSetLimit", _STACK_SIZE, size)
            self._stack_bytes = size

    def prepare(self, kernel: Kernel, block: Dim3, together: Together = APART) -> None:
        """Compile and load what a launch runs."""
        if isinstance(kernel, NvptxKernel):
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
        if not isinstance(kernel, NvptxKernel):
            raise DeviceError(self.name, f"kernel {kernel.name} was not loaded on this device")
        together = arrangement(kernel, grid, together)
        validate(kernel, grid, block, parameters, shared_bytes, max_shared=MAX_SHARED_BYTES)
        loaded = kernel.load()
        packed = bytes(loaded.offset) + parameters[: kernel.parameter_bytes]
        try:
            loaded.allow(shared_bytes, together.blocks)
            attributes = launch_attributes(together)
            launch(self.library, loaded.handle, grid, block, shared_bytes, 0, packed, attributes)
            self.library.call("cuCtxSynchronize")
        except CudaError as error:
            raise self._failure(kernel, error) from error
        self._check_refusal(loaded.compiled)

    def _failure(self, kernel: NvptxKernel, error: CudaError) -> LaunchError:
        """A launch that was refused; or one that ran: then with a block, though the driver names none."""
        self._failed = error.result in KERNEL_FAILURES
        return LaunchError(str(error), kernel=kernel.name, block=(0, 0, 0) if self._failed else None)

    def _check_refusal(self, compiled: CompiledKernel) -> None:
        if self._cell is None or REFUSAL not in compiled.symbols:
            return
        number = int.from_bytes(self.read(self._cell, 4), "little")
        if not number:
            return
        self.write(self._cell, bytes(4))
        if number >= STOPPED:
            raise LaunchError(FAULTS[number - STOPPED], kernel=compiled.name, block=(0, 0, 0))
        refusal = compiled.refusals[number - 1]
        raise UnsupportedError(refusal.what, refusal.where, began=True)


class _Placed:
    """The device's memory for variables: where they are wanted if that can be had, else anywhere."""

    def __init__(self, device: NvptxDevice) -> None:
        self._device = device
        self.free, self.read, self.write = device.free, device.read, device.write

    def allocate(self, size: int, address: int | None) -> int:
        if address is not None:
            try:
                return self._device.allocate(size, address=address)
            except DeviceError:
                pass  # taken: the replay relocates what points there
        return self._device.allocate(size)
