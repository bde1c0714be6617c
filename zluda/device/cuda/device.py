"""One NVIDIA GPU behind the device protocol: modules are compiled and run by its own driver."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from zluda.device.base import APART, Dim3, KernelParameter, Together
from zluda.device.cuda import libcuda
from zluda.device.cuda.arena import Arena
from zluda.device.cuda.images import Image, load_module
from zluda.device.cuda.launching import launch, parameter_slots
from zluda.device.results import KERNEL_FAILURES, CudaError
from zluda.device.together import launch_attributes
from zluda.errors import DeviceError, Error, LaunchError, UnsupportedError
from zluda.records import dataclass

if TYPE_CHECKING:
    from zluda.device.base import Kernel
    from zluda.ptx import Module

_MAX_THREADS_PER_BLOCK, _SHARED_SIZE_BYTES = 0, 1  # CUfunction_attribute


@dataclass(slots=True)
class CudaKernel:
    """A CUfunction."""

    name: str
    handle: int
    parameters: tuple[KernelParameter, ...]
    parameter_bytes: int
    shared_bytes: int
    max_threads_per_block: int


class CudaCode:
    """A CUmodule."""

    def __init__(self, device: CudaDevice, module: Module) -> None:
        self._device, self._module = device, module
        self._image = Image(module.source.encode())
        self._handle = load_module(device.library, self._image)
        self.kernel_names: tuple[str, ...] = tuple(module.kernel_names)

    def kernel(self, name: str) -> CudaKernel:
        if name not in self.kernel_names:
            raise Error(f"no kernel {name!r} in {self._module.file}; it has {', '.join(self.kernel_names)}")
        library = self._device.library
        handle = library.get("cuModuleGetFunction", ctypes.c_void_p, self._handle, name.encode())
        declared = [p.name for p in self._module.function(name).parameters]
        slots = parameter_slots(library, handle, kernel=False)
        parameters = tuple(
            KernelParameter(parameter, offset, size, 1)
            for parameter, (offset, size) in zip(declared, slots, strict=True)
        )
        return CudaKernel(
            name,
            handle,
            parameters,
            max((p.offset + p.size for p in parameters), default=0),
            library.get("cuFuncGetAttribute", ctypes.c_int, _SHARED_SIZE_BYTES, handle),
            library.get("cuFuncGetAttribute", ctypes.c_int, _MAX_THREADS_PER_BLOCK, handle),
        )

    def global_variable(self, name: str) -> tuple[int, int]:
        return self._device.library.get_two(
            "cuModuleGetGlobal", ctypes.c_uint64, ctypes.c_size_t, self._handle, name.encode()
        )

    def unload(self) -> None:
        self._device.library.call("cuModuleUnload", self._handle)


class CudaDevice:
    """GPU ``ordinal`` with its primary context. Implements :class:`zluda.device.base.Device`.

    ``reservations`` are disjoint (address, size) ranges in steps of 2 MiB for ``allocate(address=…)``.
    """

    emulated = False
    numerics = "nvidia"

    def __init__(self, ordinal: int = 0, *, reservations: Sequence[tuple[int, int]] = ()) -> None:
        self.name = f"cuda:{ordinal}"
        self.library = libcuda.load()
        try:
            self.library.call("cuInit", 0)
            self._device = self.library.get("cuDeviceGet", ctypes.c_int, ordinal)
            # Before the context, which takes addresses of its own.
            self._arena = Arena(self.library, self._device, reservations)
            context = self.library.get("cuDevicePrimaryCtxRetain", ctypes.c_void_p, self._device)
            self.library.call("cuCtxSetCurrent", context)
        except CudaError as error:
            raise DeviceError(
                self.name, str(error), remedy="see `nvidia-smi -L` for the GPUs there are"
            ) from error
        self._closed = self._failed = False

    def allocate(self, size: int, *, address: int | None = None) -> int:
        try:
            if address is None:
                return self.library.get("cuMemAlloc", ctypes.c_uint64, size)
            return self._arena.claim(address, size)
        except CudaError as error:
            raise DeviceError(self.name, str(error)) from error

    def free(self, address: int) -> None:
        if not self._arena.give_back(address):
            self._copying("cuMemFree", address)

    def read(self, address: int, size: int) -> bytes:
        data = ctypes.create_string_buffer(max(size, 1))
        if size:
            self._copying("cuMemcpyDtoH", data, address, size)
        return data.raw[:size]

    def write(self, address: int, data: bytes | bytearray | memoryview) -> None:
        content = bytes(data)
        if content:
            self._copying("cuMemcpyHtoD", address, content, len(content))

    def copy(self, destination: int, source: int, size: int) -> None:
        self._copying("cuMemcpyDtoD", destination, source, size)

    def fill(self, address: int, pattern: bytes, count: int) -> None:
        value = int.from_bytes(pattern, "little")
        self._copying(f"cuMemsetD{8 * len(pattern)}", address, value, count)

    def load(self, module: Module, *, globals_at: Mapping[str, int] | None = None) -> CudaCode:
        if globals_at:
            raise UnsupportedError("placing module variables at addresses", f"device {self.name}")
        return CudaCode(self, module)

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
        if not isinstance(kernel, CudaKernel):
            raise LaunchError("loaded on another device", kernel=kernel.name)
        try:
            attributes = launch_attributes(together)
            launch(self.library, kernel.handle, grid, block, shared_bytes, 0, parameters, attributes)
            self.library.call("cuCtxSynchronize")
        except CudaError as error:
            self._failed = error.result in KERNEL_FAILURES
            raise LaunchError(str(error), kernel=kernel.name) from error

    def synchronize(self) -> None:
        self.library.call("cuCtxSynchronize")

    def attribute(self, attribute: int) -> int:
        return self.library.get("cuDeviceGetAttribute", ctypes.c_int, attribute, self._device)

    def close(self) -> None:
        """Release the primary context; what was allocated goes with it.

        A context that a kernel's failure spoilt refuses even that, and goes with the process.
        """
        if self._closed or self._failed:
            return
        self._closed = True
        self._arena.close()
        self.library.call("cuDevicePrimaryCtxRelease", self._device)

    def _copying(self, entry: str, *arguments: object) -> None:
        try:
            self.library.call(entry, *arguments)
        except CudaError as error:
            raise DeviceError(self.name, str(error)) from error
