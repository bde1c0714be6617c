"""The driver API over NVIDIA's own driver: one GPU, whatever number it has, is the program's device 0.

Most entries are a row of ``native_entries.py``: the arguments in the entry's own order, and what it returns.
Those written out as methods do more: images, wanted addresses, host data, launches.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from zluda.device.cuda import libcuda
from zluda.device.cuda.arena import Arena
from zluda.device.cuda.images import Image, load_library, load_module
from zluda.device.cuda.launching import launch, parameter_slots
from zluda.device.results import KERNEL_FAILURES
from zluda.driver.base import Bytes, Dim3, LaunchAttribute, ParameterSlot
from zluda.driver.errors import CudaError
from zluda.driver.native_arrays import NativeArrays
from zluda.driver.native_entries import ADDRESS, FLOAT, HANDLE, INT, PLAIN, QUERIES, SIZE, TRAILING
from zluda.driver.native_together import NativeTogether
from zluda.errors import DeviceError, LaunchError, UnsupportedError

if TYPE_CHECKING:
    from zluda.driver.base import Driver


class NativeDriver(NativeArrays, NativeTogether):
    """:class:`zluda.driver.Driver` over libcuda for GPU ``ordinal``.

    ``reservations`` are disjoint (address, size) ranges in steps of 2 MiB for ``cuMemAlloc(address=…)``; they
    are reserved and backed by :meth:`cuInit`, which raises DeviceError where an address cannot be had.
    """

    emulated, numerics, places_globals, product = False, "nvidia", False, ""

    def __init__(self, ordinal: int = 0, *, reservations: Sequence[tuple[int, int]] = ()) -> None:
        super().__init__()
        self.name = f"cuda:{ordinal}"
        self._library = libcuda.load()
        self._ordinal, self._reservations = ordinal, tuple(reservations)
        self._device: int | None = None
        self._arena: Arena | None = None
        self._kernels: dict[int, int] = {}  # CUkernel → its library
        self._images: dict[int, Image] = {}
        self._last_launched = ""
        self._failed = False
        self._names: dict[int, str] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in PLAIN:
            method = self._plain(name, PLAIN[name], first=True)
        elif name in TRAILING:
            method = self._plain(name, TRAILING[name], first=False)
        elif name in QUERIES:
            method = self._query(name)
        else:
            raise AttributeError(f"the native driver has no entry {name!r}")
        setattr(self, name, method)  # found directly from now on
        return method

    def _plain(self, name: str, kinds: tuple[Any, ...], *, first: bool) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            outputs = [kind() for kind in kinds]
            references = [ctypes.byref(output) for output in outputs]
            passed = [a.encode() if isinstance(a, str) else a for a in arguments]
            self._call(name, *(references + passed if first else passed + references))
            values = [output.value or 0 for output in outputs]
            return values[0] if len(values) == 1 else tuple(values) or None

        return call

    def _query(self, name: str) -> Callable[[int], bool]:
        return lambda handle: self._library.done(name, handle)

    def _call(self, name: str, *arguments: Any) -> None:
        try:
            self._library.call(name, *arguments)
        except CudaError as error:
            raise self._explained(error) from None

    def _explained(self, error: CudaError) -> CudaError:
        if error.result not in KERNEL_FAILURES:
            return error
        self._failed = True
        failed = LaunchError(error.detail or error.name, kernel=self._last_launched)
        return CudaError(error.result, error.call, error.detail, launch=failed)

    # --- initialisation and devices -------------------------------------------------------------------

    def cuInit(self, flags: int = 0) -> None:
        self._call("cuInit", flags)
        if self._device is None:
            try:
                device = self._library.get("cuDeviceGet", INT, self._ordinal)
            except CudaError as error:
                remedy = "see `nvidia-smi -L` for the GPUs there are"
                raise DeviceError(self.name, str(error), remedy=remedy) from None
            # Before any context exists: contexts take addresses of their own.
            self._arena = Arena(self._library, device, self._reservations)
            self._device = device

    def cuDeviceGetCount(self) -> int:
        self._require_device("cuDeviceGetCount")
        return 1

    def cuDeviceGet(self, ordinal: int) -> int:
        if ordinal != 0:
            raise CudaError("CUDA_ERROR_INVALID_DEVICE", "cuDeviceGet", f"device {ordinal}; there is one, 0")
        return self._require_device("cuDeviceGet")

    def cuDeviceGetName(self, device: int) -> str:
        text = ctypes.create_string_buffer(256)
        self._call("cuDeviceGetName", text, len(text), device)
        return text.value.decode(errors="replace")

    def cuDeviceGetUuid(self, device: int) -> bytes:
        uuid = ctypes.create_string_buffer(16)
        self._call("cuDeviceGetUuid", uuid, device)
        return uuid.raw

    def _require_device(self, call: str) -> int:
        if self._device is None:
            raise CudaError("CUDA_ERROR_NOT_INITIALIZED", call)
        return self._device

    # --- code -------------------------------------------------------------------------------------------

    def cuModuleLoadData(self, image: Bytes, *, globals_at: Mapping[str, int] | None = None) -> int:
        return self._load(load_module, image, globals_at)

    def cuModuleUnload(self, module: int) -> None:
        self._call("cuModuleUnload", module)
        self._forget(module)

    def cuLibraryLoadData(self, image: Bytes, *, globals_at: Mapping[str, int] | None = None) -> int:
        return self._load(load_library, image, globals_at)

    def cuLibraryUnload(self, library: int) -> None:
        self._call("cuLibraryUnload", library)
        self._forget(library)
        self._kernels = {kernel: owner for kernel, owner in self._kernels.items() if owner != library}

    def cuLibraryGetKernel(self, library: int, name: str) -> int:
        kernel = self._library.get("cuLibraryGetKernel", HANDLE, library, name.encode())
        self._kernels[kernel] = library
        return kernel

    def cuKernelGetAttribute(self, attribute: int, kernel: int, device: int = 0) -> int:
        return self._library.get("cuKernelGetAttribute", INT, attribute, kernel, self._real(device))

    def cuKernelSetAttribute(self, attribute: int, value: int, kernel: int, device: int = 0) -> None:
        self._call("cuKernelSetAttribute", attribute, value, kernel, self._real(device))

    def cuKernelSetCacheConfig(self, kernel: int, config: int, device: int = 0) -> None:
        self._call("cuKernelSetCacheConfig", kernel, config, self._real(device))

    def cuFuncGetName(self, function: int) -> str:
        entry = "cuKernelGetName" if function in self._kernels else "cuFuncGetName"
        text = ctypes.c_char_p()
        self._call(entry, ctypes.byref(text), function)
        return (text.value or b"").decode(errors="replace")

    def parameter_layout(self, function: int) -> tuple[ParameterSlot, ...]:
        slots = parameter_slots(self._library, function, kernel=function in self._kernels)
        return tuple(ParameterSlot(offset, size) for offset, size in slots)

    def _load(
        self,
        load: Callable[[libcuda.LibCuda, Image], int],
        data: Bytes,
        globals_at: Mapping[str, int] | None,
    ) -> int:
        if globals_at:
            raise UnsupportedError("placing module variables at addresses", f"device {self.name}")
        image = Image(data)
        handle = load(self._library, image)
        self._images[handle] = image
        return handle

    def _forget(self, handle: int) -> None:
        self._images.pop(handle, None)
        self._names.clear()  # the driver may hand out the same function handles again

    def _real(self, device: int) -> int:
        """The GPU's own number for the program's device 0."""
        return self._require_device("cuKernelGetAttribute") if device == 0 else device

    # --- memory -----------------------------------------------------------------------------------------

    def cuMemAlloc(self, size: int, *, address: int | None = None) -> int:
        if address is None:
            return self._library.get("cuMemAlloc", ADDRESS, size)
        return self._claim(address, size)

    def cuMemAllocPitch(
        self, width: int, height: int, element_size: int, *, address: int | None = None
    ) -> tuple[int, int]:
        got, pitch = self._library.get_two("cuMemAllocPitch", ADDRESS, SIZE, width, height, element_size)
        if address is None:
            return got, pitch
        self._call("cuMemFree", got)  # it told the pitch
        return self._claim(address, pitch * height), pitch

    def cuMemFree(self, address: int) -> None:
        if self._arena is None or not self._arena.give_back(address):
            self._call("cuMemFree", address)

    def cuMemAllocAsync(self, size: int, stream: int, *, address: int | None = None) -> int:
        if address is None:
            return self._library.get("cuMemAllocAsync", ADDRESS, size, stream)
        return self._claim(address, size)

    def cuMemFreeAsync(self, address: int, stream: int) -> None:
        if self._arena is None or not self._arena.give_back(address):
            self._call("cuMemFreeAsync", address, stream)

    def cuMemGetAddressRange(self, address: int) -> tuple[int, int]:
        found = self._arena.holding(address) if self._arena is not None else None
        return found or self._library.get_two("cuMemGetAddressRange", ADDRESS, SIZE, address)

    def cuMemcpyHtoD(self, destination: int, data: Bytes) -> None:
        content = bytes(data)
        self._call("cuMemcpyHtoD", destination, content, len(content))

    def cuMemcpyHtoDAsync(self, destination: int, data: Bytes, stream: int) -> None:
        # From pageable memory the call returns once the data is staged (CUDA Driver API, 2 "API
        # synchronization behavior"), so `content` may go.
        content = bytes(data)
        self._call("cuMemcpyHtoDAsync", destination, content, len(content), stream)

    def cuMemcpyDtoH(self, source: int, size: int) -> bytes:
        data = ctypes.create_string_buffer(max(size, 1))
        self._call("cuMemcpyDtoH", data, source, size)
        return data.raw[:size]

    def cuMemcpyDtoHAsync(self, source: int, size: int, stream: int) -> bytes:
        data = ctypes.create_string_buffer(max(size, 1))
        self._call("cuMemcpyDtoHAsync", data, source, size, stream)
        self._call("cuStreamSynchronize", stream)
        return data.raw[:size]

    def _claim(self, address: int, size: int) -> int:
        if self._arena is None:
            raise CudaError("CUDA_ERROR_NOT_INITIALIZED", "cuMemAlloc")
        return self._arena.claim(address, size)

    # --- streams, events, launches ------------------------------------------------------------------------

    def cuStreamCreate(self, flags: int = 0) -> int:
        return self._library.get("cuStreamCreate", HANDLE, flags)

    def cuEventCreate(self, flags: int = 0) -> int:
        return self._library.get("cuEventCreate", HANDLE, flags)

    def cuStreamWaitEvent(self, stream: int, event: int, flags: int = 0) -> None:
        self._call("cuStreamWaitEvent", stream, event, flags)

    def cuEventElapsedTime(self, start: int, end: int) -> float:
        milliseconds = FLOAT()
        self._call("cuEventElapsedTime", ctypes.byref(milliseconds), start, end)
        return milliseconds.value

    def cuLaunchKernel(
        self,
        function: int,
        grid: Dim3,
        block: Dim3,
        shared_bytes: int,
        stream: int,
        parameters: Bytes,
        *,
        attributes: Sequence[LaunchAttribute] = (),
    ) -> None:
        if function not in self._names:
            self._names[function] = self.cuFuncGetName(function)
        self._last_launched = self._names[function]
        try:
            launch(self._library, function, grid, block, shared_bytes, stream, parameters, attributes)
        except CudaError as error:
            raise self._explained(error) from None

    def recover(self) -> bool:
        """False: a GPU's context does not outlive a kernel's failure."""
        return False

    def take_output(self) -> tuple[str, str]:
        """Nothing: NVIDIA's driver writes to the process's own output."""
        return "", ""

    def close(self) -> None:
        """Give the reserved addresses back, unless a failed kernel spoilt that; the process has the rest."""
        if self._arena is not None and not self._failed:
            self._arena.close()
        self._arena = None


def from_setup(setup: Mapping[str, Any], memory: object) -> Driver:
    """The driver that a runner over ``cuda:N`` serves; initialised, so that its addresses are reserved."""
    driver = NativeDriver(
        int(setup["device"].partition(":")[2]),
        reservations=[(start, size) for start, size in setup["reservations"]],
    )
    driver.cuInit()
    return cast("Driver", driver)
