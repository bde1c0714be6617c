"""NVIDIA's driver, as far as ``zluda.device.cuda`` asks, over the CPU device: PTX is compiled and run there.

So what a compiler writes for a GPU is executed where there is none.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from zluda.device.base import Together
from zluda.device.cpu import CpuDevice, Memory
from zluda.device.cpu.attributes import ATTRIBUTES
from zluda.device.cuda import libcuda
from zluda.device.cuda.nvptx import NvptxDevice
from zluda.device.results import CudaError
from zluda.driver import Driver
from zluda.driver.translated import TranslatedDriver
from zluda.errors import LaunchError
from zluda.ptx import parse_module

if TYPE_CHECKING:
    from zluda.device.cuda.libcuda import LibCuda

_CLUSTER, _COOPERATIVE = 4, 2  # CUlaunchAttributeID
_LAUNCH_FAILED, _INVALID_PTX = 719, 218


class CudaOnCpu:
    """Stands for :class:`zluda.device.cuda.libcuda.LibCuda`. ``ptx`` is every text that was loaded."""

    def __init__(self, cpu: CpuDevice | None = None) -> None:
        self.cpu = cpu or CpuDevice()
        self.limits: dict[int, int] = {}
        self.refuses, self.first_parameter = False, 0  # images; where the first parameter is
        self.ptx: list[str] = []
        self.attributes: dict[tuple[int, int], int] = {}
        self._handles = itertools.count(0x1000)
        self._objects: dict[int, Any] = {}

    def result(self, entry: str, *arguments: Any) -> int:
        """Call an entry; its CUresult."""
        try:
            getattr(self, entry)(*arguments)
        except CudaError as error:
            return error.result
        return 0

    def call(self, entry: str, *arguments: Any) -> None:
        """Call an entry that returns nothing."""
        getattr(self, entry)(*arguments)

    def get(self, entry: str, kind: type[Any], *arguments: Any) -> int:
        """Call an entry; what it returns."""
        return int(getattr(self, entry)(*arguments) or 0)

    def get_two(self, entry: str, first: type[Any], second: type[Any], *arguments: Any) -> tuple[int, int]:
        """Call an entry that returns two things."""
        one, two = getattr(self, entry)(*arguments)
        return one, two

    def _add(self, item: Any) -> int:
        handle = next(self._handles)
        self._objects[handle] = item
        return handle

    # --- entries, by their names -----------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        if name in ("cuInit", "cuCtxSetCurrent", "cuCtxSynchronize", "cuDevicePrimaryCtxRelease"):
            return lambda *arguments: None
        if name in ("cuDeviceGet", "cuDevicePrimaryCtxRetain"):
            return lambda *arguments: 1
        raise AttributeError(name)

    def cuDeviceGetAttribute(self, attribute: int, device: int) -> int:
        return ATTRIBUTES.get(attribute, 0)

    def cuMemAlloc(self, size: int) -> int:
        return self.cpu.allocate(size)

    def cuMemFree(self, address: int) -> None:
        self.cpu.free(address)

    def cuMemcpyDtoH(self, target: Any, address: int, size: int) -> None:
        ctypes.memmove(target, self.cpu.read(address, size), size)

    def cuMemcpyHtoD(self, address: int, data: bytes, size: int) -> None:
        self.cpu.write(address, data[:size])

    def cuMemcpyDtoD(self, target: int, source: int, size: int) -> None:
        self.cpu.copy(target, source, size)

    def cuMemsetD8(self, address: int, value: int, count: int) -> None:
        self.cpu.fill(address, value.to_bytes(1, "little"), count)

    def cuModuleLoadDataEx(self, out: Any, image: int, count: int, options: Any, values: Any) -> None:
        if self.refuses:
            raise CudaError(_INVALID_PTX, "cuModuleLoadData", "ptxas fatal")
        text = ctypes.string_at(image).decode()
        self.ptx.append(text)
        module = parse_module(text, file="written.ptx")
        code = self.cpu.load(module)
        out._obj.value = self._add((module, code))

    def cuModuleUnload(self, module: int) -> None:
        self._objects.pop(module)[1].unload()

    def cuModuleGetFunction(self, module: int, name: bytes) -> int:
        return self._add(self._objects[module][1].kernel(name.decode()))

    def cuModuleGetGlobal(self, module: int, name: bytes) -> tuple[int, int]:
        address, size = self._objects[module][1].global_variable(name.decode())
        return address, size

    def cuCtxSetLimit(self, limit: int, value: int) -> None:
        self.limits[limit] = value

    def cuFuncGetParamInfo(self, function: int, index: int, offset: Any, size: Any) -> None:
        slots = self._objects[function].parameters
        if index >= len(slots):
            raise CudaError("CUDA_ERROR_INVALID_VALUE", "cuFuncGetParamInfo")
        offset._obj.value = slots[index].offset + self.first_parameter
        size._obj.value = slots[index].size

    def cuFuncSetAttribute(self, function: int, attribute: int, value: int) -> None:
        self.attributes[function, attribute] = value

    def cuLaunchKernel(self, function: int, *shape: Any) -> None:
        *sizes, shared, _stream, _parameters, extra = shape
        self._launch(function, sizes, shared, extra, Together())

    def cuLaunchKernelEx(self, config: Any, function: int, parameters: Any, extra: Any) -> None:
        words = [int.from_bytes(config.raw[4 * i : 4 * i + 4], "little") for i in range(7)]
        table = int.from_bytes(config.raw[40:48], "little")
        count = int.from_bytes(config.raw[48:52], "little")
        self._launch(function, words[:6], words[6], extra, _together(ctypes.string_at(table, 72 * count)))

    def _launch(self, function: int, sizes: list[int], shared: int, extra: Any, together: Together) -> None:
        size = ctypes.cast(extra[3], ctypes.POINTER(ctypes.c_size_t)).contents.value if extra else 0
        packed = ctypes.string_at(extra[1], size) if extra else b""
        kernel = self._objects[function]
        grid, block = tuple(sizes[:3]), tuple(sizes[3:6])
        try:
            self.cpu.launch(kernel, grid, block, packed, shared_bytes=shared, together=together)
        except LaunchError as error:
            raise CudaError(_LAUNCH_FAILED, "cuLaunchKernel", str(error)) from error


def _together(table: bytes) -> Together:
    cluster, cooperative = None, False
    for at in range(0, len(table), 72):
        attribute = int.from_bytes(table[at : at + 4], "little")
        value = table[at + 8 : at + 72]
        if attribute == _CLUSTER:
            x, y, z = (int.from_bytes(value[i : i + 4], "little") for i in (0, 4, 8))
            cluster = (x, y, z)
        cooperative |= attribute == _COOPERATIVE
    return Together(cluster, cooperative)


def nvptx_driver(setup: Mapping[str, Any], memory: Memory) -> Driver:
    """What a runner serves for ``nvptx:0`` in tests, as ``zluda.runner.devices.nvptx_driver`` makes it."""
    library = CudaOnCpu(CpuDevice(memory))
    libcuda.load = lambda: cast("LibCuda", library)  # type: ignore[assignment]
    device = NvptxDevice(contract=setup["contract"])
    device.allocate = library.cpu.allocate  # type: ignore[method-assign]  # at wanted addresses, too
    return TranslatedDriver(device)
