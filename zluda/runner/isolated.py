"""A device whose translated code runs in a runner: the device protocol over a runner's driver.

``zluda.open_device(…, isolate=True)`` gives one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from zluda.compiler.services import PRINTING
from zluda.device.base import APART, Dim3, Kernel, KernelParameter, Together
from zluda.device.together import launch_attributes
from zluda.driver import CudaError
from zluda.driver.base import LaunchAttribute
from zluda.errors import DeviceError, LaunchError
from zluda.records import dataclass
from zluda.runner.near import Runner, start

if TYPE_CHECKING:
    from zluda.ptx import Module

_MAX_THREADS_PER_BLOCK, _SHARED_SIZE_BYTES = 0, 1  # CUfunction_attribute


@dataclass(slots=True)
class IsolatedKernel:
    """A function handle of the runner's driver."""

    name: str
    handle: int
    parameters: tuple[KernelParameter, ...]
    parameter_bytes: int
    shared_bytes: int
    max_threads_per_block: int


class IsolatedCode:
    """A module handle of the runner's driver."""

    def __init__(self, runner: Runner, module: Module, globals_at: Mapping[str, int] | None) -> None:
        self._driver = runner.driver
        self._handle = self._driver.cuModuleLoadData(module.source.encode(), globals_at=globals_at)
        self.kernel_names: tuple[str, ...] = tuple(module.kernel_names)

    def kernel(self, name: str) -> IsolatedKernel:
        handle = self._driver.cuModuleGetFunction(self._handle, name)
        slots = self._driver.parameter_layout(handle)
        return IsolatedKernel(
            name,
            handle,
            tuple(KernelParameter(slot.name, slot.offset, slot.size, 1) for slot in slots),
            max((slot.offset + slot.size for slot in slots), default=0),
            self._driver.cuFuncGetAttribute(_SHARED_SIZE_BYTES, handle),
            self._driver.cuFuncGetAttribute(_MAX_THREADS_PER_BLOCK, handle),
        )

    def global_variable(self, name: str) -> tuple[int, int]:
        return self._driver.cuModuleGetGlobal(self._handle, name)

    def unload(self) -> None:
        self._driver.cuModuleUnload(self._handle)


class IsolatedDevice:
    """:class:`zluda.device.base.Device` over a runner, which it owns."""

    def __init__(self, runner: Runner) -> None:
        self._runner, self._driver = runner, runner.driver
        self.name, self.emulated, self.numerics = (
            runner.device,
            runner.driver.emulated,
            runner.driver.numerics,
        )
        self._prints = False
        self._driver.cuInit()
        self._device = self._driver.cuDeviceGet(0)
        self._driver.cuCtxSetCurrent(self._driver.cuDevicePrimaryCtxRetain(self._device))

    def allocate(self, size: int, *, address: int | None = None) -> int:
        try:
            return self._driver.cuMemAlloc(size, address=address)
        except CudaError as error:
            raise DeviceError(self.name, str(error)) from error

    def free(self, address: int) -> None:
        self._driver.cuMemFree(address)

    def read(self, address: int, size: int) -> bytes:
        return self._driver.cuMemcpyDtoH(address, size)

    def write(self, address: int, data: bytes | bytearray | memoryview) -> None:
        self._driver.cuMemcpyHtoD(address, data)

    def copy(self, destination: int, source: int, size: int) -> None:
        self._driver.cuMemcpyDtoD(destination, source, size)

    def fill(self, address: int, pattern: bytes, count: int) -> None:
        fills = {1: self._driver.cuMemsetD8, 2: self._driver.cuMemsetD16, 4: self._driver.cuMemsetD32}
        fills[len(pattern)](address, int.from_bytes(pattern, "little"), count)

    def load(self, module: Module, *, globals_at: Mapping[str, int] | None = None) -> IsolatedCode:
        self._prints |= any(name in module.source for name in PRINTING)
        return IsolatedCode(self._runner, module, globals_at)

    def take_output(self) -> tuple[str, str]:
        """Asked of the runner where a module that was loaded can print."""
        return self._driver.take_output() if self._prints else ("", "")

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
        if not isinstance(kernel, IsolatedKernel):
            raise LaunchError("loaded on another device", kernel=kernel.name)
        try:
            attributes = [LaunchAttribute(*a) for a in launch_attributes(together)]
            self._driver.cuLaunchKernel(
                kernel.handle, grid, block, shared_bytes, 0, parameters, attributes=attributes
            )
            self._driver.cuCtxSynchronize()
        except CudaError as error:
            self._driver.recover()  # as a device in this process goes on after a kernel that failed
            raise error.launch or LaunchError(str(error), kernel=kernel.name) from error

    def synchronize(self) -> None:
        self._driver.cuCtxSynchronize()

    def attribute(self, attribute: int) -> int:
        return self._driver.cuDeviceGetAttribute(attribute, self._device)

    def close(self) -> None:
        self._runner.close()


def open_isolated(
    device: str,
    *,
    numerics: str | None = None,
    contract: str = "auto",
    schedule: int = 0,
    check: str = "none",
) -> IsolatedDevice:
    """Start a runner over ``device`` and wrap it."""
    runner = start(device, numerics=numerics, contract=contract, schedule=schedule, check=check)
    try:
        return IsolatedDevice(runner)
    except BaseException:
        runner.close()
        raise
