"""A device whose kernels are Python functions, so that a replay can be tested without a compiler.

Modules are real PTX, parsed for their kernels, parameters and variables; what a kernel does is looked up by
its name. A kernel that is not there is unsupported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from zluda.device.base import APART, Dim3, KernelParameter, Together
from zluda.driver import Driver
from zluda.driver.translated import TranslatedDriver
from zluda.errors import DeviceError, Error, UnsupportedError
from zluda.ptx import Module

PythonKernel = Callable[["PythonDevice", Dim3, Dim3, bytes], None]


class _Kernel:
    def __init__(self, name: str, parameters: tuple[KernelParameter, ...]) -> None:
        self.name, self.parameters = name, parameters
        last = parameters[-1] if parameters else None
        self.parameter_bytes = last.offset + last.size if last else 0
        self.shared_bytes = 0
        self.max_threads_per_block = 1024


class _Code:
    def __init__(self, device: PythonDevice, module: Module, globals_at: Mapping[str, int]) -> None:
        self._device, self._module = device, module
        self.kernel_names = tuple(module.kernel_names)
        self._globals: dict[str, tuple[int, int]] = {}
        for name, variable in module.variables.items():
            if variable.space in ("global", "const"):
                address = device.allocate(variable.size, address=globals_at.get(name))
                device.write(address, (variable.initializer or b"").ljust(variable.size, b"\0"))
                self._globals[name] = (address, variable.size)

    def kernel(self, name: str) -> _Kernel:
        function = self._module.function(name)
        if name not in self._device.kernels:
            raise UnsupportedError("tex.2d.v4.f32.s32", f"kernel {name}")
        parameters, offset = [], 0
        for one in function.parameters:
            offset = -(-offset // one.align) * one.align
            parameters.append(KernelParameter(one.name, offset, one.size, one.align))
            offset += one.size
        return _Kernel(name, tuple(parameters))

    def global_variable(self, name: str) -> tuple[int, int]:
        if name not in self._globals:
            raise Error(f"no variable {name}")
        return self._globals[name]

    def unload(self) -> None:
        for address, _ in self._globals.values():
            self._device.free(address)


class PythonDevice:
    """Implements :class:`zluda.device.base.Device`."""

    name = "cpu"
    emulated = False
    numerics = "nvidia"

    def __init__(self, kernels: Mapping[str, PythonKernel]) -> None:
        self.kernels = dict(kernels)
        self.memory: dict[int, bytearray] = {}
        self._next = 0x10_0000_0000

    def allocate(self, size: int, *, address: int | None = None) -> int:
        if address is None:
            address, self._next = self._next, self._next + -(-size // 512) * 512
        for base, data in self.memory.items():
            if base < address + size and address < base + len(data):
                raise DeviceError(self.name, f"{address:#x} is taken")
        self.memory[address] = bytearray(size)
        return address

    def free(self, address: int) -> None:
        del self.memory[address]

    def _at(self, address: int, size: int) -> tuple[bytearray, int]:
        for base, data in self.memory.items():
            if base <= address and address + size <= base + len(data):
                return data, address - base
        raise DeviceError(self.name, f"{address:#x}+{size:#x} is no memory")

    def read(self, address: int, size: int) -> bytes:
        data, offset = self._at(address, size)
        return bytes(data[offset : offset + size])

    def write(self, address: int, data: bytes | bytearray | memoryview) -> None:
        memory, offset = self._at(address, len(data))
        memory[offset : offset + len(data)] = data

    def copy(self, destination: int, source: int, size: int) -> None:
        self.write(destination, self.read(source, size))

    def fill(self, address: int, pattern: bytes, count: int) -> None:
        self.write(address, pattern * count)

    def load(self, module: Module, *, globals_at: Mapping[str, int] | None = None) -> _Code:
        return _Code(self, module, globals_at or {})

    def launch(
        self,
        kernel: _Kernel,
        grid: Dim3,
        block: Dim3,
        parameters: bytes,
        *,
        shared_bytes: int = 0,
        together: Together = APART,
    ) -> None:
        self.kernels[kernel.name](self, grid, block, parameters)

    def synchronize(self) -> None:
        """Kernels have ended when their launch returns."""

    def attribute(self, attribute: int) -> int:
        return {8: 49152, 75: 9, 76: 0, 97: 232448}.get(attribute, 1024)

    def close(self) -> None:
        self.memory.clear()


class PythonSession:
    """Stands for :class:`zluda.replay.session.Session` over Python kernels; counts its restarts.

    A kernel that raises :class:`zluda.runner.RunnerDied` stands for one that brings the process down.
    """

    time_limit = None
    contract = "auto"

    def __init__(self, kernels: Mapping[str, PythonKernel]) -> None:
        self._kernels = kernels
        self.restarts = 0
        self._make()

    def _make(self) -> None:
        self.device = PythonDevice(self._kernels)
        self.driver: Driver = TranslatedDriver(self.device)  # type: ignore[arg-type]

    def restart(self) -> None:
        self.restarts += 1
        self._make()

    def read(self, address: int, size: int) -> bytes:
        try:
            return self.device.read(address, size)
        except DeviceError as error:
            raise Error(f"read: {error}") from error

    def write(self, address: int, data: bytes) -> None:
        self.driver.cuMemcpyHtoD(address, data)

    def close(self) -> None:
        self.driver.close()

    def __enter__(self) -> PythonSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
