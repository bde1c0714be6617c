"""An NVIDIA GPU for what this compiler makes of PTX: lowered, written as PTX anew, given to the driver."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from zluda.compiler import compile_kernel
from zluda.compiler.nvptx.surroundings import SYMBOLS
from zluda.compiler.nvptx.targets import target
from zluda.compiler.stops import REFUSAL
from zluda.compiler.target import CompiledKernel
from zluda.device.base import APART, Dim3, Kernel, Together
from zluda.device.cuda.device import CudaDevice
from zluda.device.cuda.images import Image, load_module
from zluda.device.cuda.launching import launch, parameter_slots
from zluda.device.limits import MAX_SHARED_BYTES, validate
from zluda.device.modules import CompiledModule, CompiledOnLaunch
from zluda.device.placement import FunctionAddresses, Wherever
from zluda.device.refusals import RefusalCell
from zluda.device.results import KERNEL_FAILURES, CudaError
from zluda.device.together import arrangement, launch_attributes
from zluda.errors import DeviceError, LaunchError, UnsupportedError
from zluda.ptx import Module

if TYPE_CHECKING:
    from zluda.compiler.unit import Unit

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


class NvptxKernel(CompiledOnLaunch):
    """A kernel of an NVIDIA GPU."""

    def __init__(self, code: NvptxCode, name: str) -> None:
        super().__init__(code.module, name)
        self.code = code
        self.loaded: Loaded | None = None

    def _unit(self) -> Unit:
        from zluda.compiler.nvptx.unit import build_unit

        return build_unit(self.module, self.name, "off")

    def load(self) -> Loaded:
        """Compile, and have the driver do so. Raises PtxError or UnsupportedError."""
        if self.loaded is None:
            device = self.code.device
            compiled = compile_kernel(
                self.module,
                self.name,
                device.target_of(self.module),
                numerics=device.numerics,
                contract=device.contract,
            )
            loaded = Loaded(device, compiled)
            if compiled.symbols:
                loaded.fill([self.code.address(symbol) for symbol in compiled.symbols])
            self.loaded = loaded
        return self.loaded

    def unload(self) -> None:
        """Give the code back to the driver."""
        if self.loaded is not None:
            self.loaded.unload()
            self.loaded = None


class NvptxCode(CompiledModule[NvptxKernel]):
    """A module on an NVIDIA GPU."""

    def __init__(self, device: NvptxDevice, module: Module, globals_at: Mapping[str, int]) -> None:
        super().__init__(Wherever(device), device.functions, module, globals_at)
        self.device = device

    def _kernel(self, name: str) -> NvptxKernel:
        return NvptxKernel(self, name)

    def address(self, symbol: str) -> int:
        """Where what a kernel names by ``symbol`` is."""
        return self.device.refusals.address if symbol == REFUSAL else super().address(symbol)


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
        self.refusals, self.functions = RefusalCell(Wherever(self)), FunctionAddresses()
        self._stack_bytes = 0

    def target_of(self, module: Module) -> str:
        """The target of this GPU, with the features of it alone where the module is for them."""
        number = 10 * self.attribute(_CC_MAJOR) + self.attribute(_CC_MINOR)
        suffix = next((name[-1] for name in module.target if name[-1:] in "af" and name[:3] == "sm_"), "")
        return target(f"sm_{number}{suffix if number >= 90 else ''}").name

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
        stopped = self.refusals.take(loaded.compiled)
        if stopped is not None:
            raise stopped

    def _failure(self, kernel: NvptxKernel, error: CudaError) -> LaunchError:
        """A launch that was refused; or one that ran: then with a block, though the driver names none."""
        self._failed = error.result in KERNEL_FAILURES
        return LaunchError(str(error), kernel=kernel.name, block=(0, 0, 0) if self._failed else None)
