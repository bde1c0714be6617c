"""Arrays, modules and kernels over a device: what ``zluda.open_device`` gives.

::

    device = zluda.open_device("cpu")
    module = device.load_module(ptx)
    x = device.array(numpy.arange(1024, dtype=numpy.float32))
    module.kernel("scale").launch(grid=4, block=256, args=[x, numpy.float32(2)])
    x.numpy()
"""

from __future__ import annotations

import importlib
import logging
import math
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from zluda.compiler.target import Together
from zluda.device import arguments, names
from zluda.device.images import ptx_text
from zluda.device.services import Services, with_assertion
from zluda.errors import DeviceError, Error, LaunchError

if TYPE_CHECKING:
    import numpy

    from zluda.device import base
    from zluda.device.base import Dim3, KernelParameter

log = logging.getLogger("zluda")


class Device:
    """An open device. Close it, or use it as a context manager."""

    def __init__(self, device: base.Device) -> None:
        self._device = device
        self._services = Services(device)
        self._closed = False

    @property
    def name(self) -> str:
        """``"cpu"``, ``"cuda:0"``."""
        return self._device.name

    @property
    def emulated(self) -> bool:
        """Whether machine code of another kind is executed in software."""
        return self._device.emulated

    @property
    def numerics(self) -> str:
        """``"nvidia"``: approximate instructions give NVIDIA's bits. ``"native"``: the device's own."""
        return self._device.numerics

    def load_module(self, data: str | bytes, *, file: str = "<ptx>") -> Module:
        """Load PTX text, a fatbin, or an ELF file with PTX inside; ``file`` names it in errors.

        Raises PtxError for text that is not PTX, DeviceError for an image without PTX. A kernel that is not
        usable does not keep the others from it: its error is raised by :meth:`Module.kernel`.
        """
        from zluda.ptx import parse_module

        self._check_open()
        if not isinstance(data, str | bytes | bytearray | memoryview):
            raise Error(f"cannot load a {type(data).__name__}; expected PTX text, a fatbin or an ELF file")
        text = ptx_text(data.encode() if isinstance(data, str) else bytes(data), self._device)
        if text is None:
            raise DeviceError(
                self.name,
                "the image holds machine code only",
                remedy="build it with PTX (-gencode …,code=compute_XX)",
            )
        module = parse_module(text, file=file)
        code = self._device.load(module)
        self._services.attach(code, module)
        return Module(self, code, file)

    def array(self, values: numpy.typing.ArrayLike) -> Array:
        """A copy of a NumPy array in device memory, C-contiguous."""
        import numpy

        source = numpy.ascontiguousarray(values)
        result = self.empty(numpy.shape(values), source.dtype)
        if source.nbytes:
            self._device.write(result.address, source.tobytes())
        return result

    def empty(self, shape: int | Sequence[int], dtype: numpy.typing.DTypeLike) -> Array:
        """An array of device memory with undefined contents."""
        import numpy

        self._check_open()
        kind = numpy.dtype(dtype)
        if kind.hasobject:
            raise Error(f"device memory cannot hold {kind}")
        given = [shape] if isinstance(shape, int) else list(shape)
        if not all(arguments.is_integer(n) and n >= 0 for n in given):
            raise Error(f"shape is {shape!r}; expected integers from 0")
        dimensions = tuple(int(n) for n in given)
        address = self._device.allocate(max(math.prod(dimensions) * kind.itemsize, 1))
        return Array(self, address, dimensions, kind)

    def synchronize(self) -> None:
        """Wait until all that was launched is done."""
        self._check_open()
        self._device.synchronize()
        self._show()

    def _launch(
        self,
        kernel: base.Kernel,
        grid: Dim3,
        block: Dim3,
        parameters: bytes,
        shared_bytes: int,
        together: Together,
    ) -> None:
        self._services.ready()
        self._show()
        try:
            self._device.launch(kernel, grid, block, parameters, shared_bytes=shared_bytes, together=together)
        except LaunchError as error:
            failed = self._show()
            raise with_assertion(error, failed) from error

    def _show(self) -> str:
        """Print what kernels printed, as CUDA does where it synchronises; the assertion that failed."""
        output = self._services.take_output()
        if output.text:
            sys.stdout.write(output.text)
            sys.stdout.flush()
        if output.complaint:
            log.warning("%s", output.complaint)
        return output.failed

    def close(self) -> None:
        """Free everything on the device; closing twice is harmless."""
        if not self._closed:
            self._closed = True
            try:
                self._show()
            finally:
                self._device.close()

    def __enter__(self) -> Device:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<zluda device {self.name}{' (closed)' if self._closed else ''}>"

    def _check_open(self) -> None:
        if self._closed:
            raise DeviceError(self.name, "closed")


class Array:
    """Device memory with a shape and a dtype. Lives until :meth:`free` or the device's end."""

    def __init__(self, device: Device, address: int, shape: tuple[int, ...], dtype: numpy.dtype[Any]) -> None:
        self.device, self.address, self.shape, self.dtype = device, address, shape, dtype
        self.freed = False

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def numpy(self) -> numpy.ndarray[Any, Any]:
        """A copy on the host."""
        import numpy

        self._check_live()
        data = self.device._device.read(self.address, self.nbytes)
        return numpy.frombuffer(bytearray(data), dtype=self.dtype).reshape(self.shape)

    def free(self) -> None:
        """Give the memory back."""
        self._check_live()
        self.freed = True
        self.device._device.free(self.address)

    def _check_live(self) -> None:
        self.device._check_open()
        if self.freed:
            raise Error("the array was freed")

    def __repr__(self) -> str:
        return (
            f"<zluda array {self.shape} {self.dtype} at {self.address:#x}{' (freed)' if self.freed else ''}>"
        )


class Module:
    """A loaded module."""

    def __init__(self, device: Device, code: base.Code, file: str) -> None:
        self._device, self._code, self._file = device, code, file

    @property
    def kernel_names(self) -> list[str]:
        """The module's kernels, in the order of the text."""
        return list(self._code.kernel_names)

    def kernel(self, name: str) -> Kernel:
        """A kernel by name. Raises Error where there is none, PtxError where its text is not valid."""
        self._device._check_open()
        if name not in self._code.kernel_names:
            known = ", ".join(self._code.kernel_names) or "none"
            raise Error(f"no kernel {name!r} in {self._file}; it has {known}")
        return Kernel(self._device, self._code.kernel(name))


class Kernel:
    """A kernel, ready to launch."""

    def __init__(self, device: Device, kernel: base.Kernel) -> None:
        self._device, self._kernel = device, kernel

    @property
    def name(self) -> str:
        """As in the PTX."""
        return self._kernel.name

    @property
    def parameters(self) -> tuple[KernelParameter, ...]:
        """Its parameters' names, offsets and sizes in bytes."""
        return self._kernel.parameters

    def launch(
        self,
        *,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any] = (),
        shared_bytes: int = 0,
        cluster: int | Sequence[int] | None = None,
        cooperative: bool = False,
    ) -> None:
        """Launch ``grid`` blocks of ``block`` threads, with ``shared_bytes`` of dynamic shared memory.

        ``cluster`` is the shape of clusters in blocks; of a ``cooperative`` grid all blocks run at once.

        ``args`` are device arrays, NumPy scalars, integers or bytes, one for each parameter. Raises
        LaunchError for arguments that do not fit and for a kernel that fails.
        """
        self._device._check_open()
        if not arguments.is_integer(shared_bytes) or shared_bytes < 0:
            raise LaunchError(
                f"shared_bytes is {shared_bytes!r}; expected an integer from 0", kernel=self.name
            )
        self._device._launch(
            self._kernel,
            arguments.dimensions("grid", grid, self.name),
            arguments.dimensions("block", block, self.name),
            arguments.pack(self._kernel, args, self._device),
            shared_bytes,
            Together(
                arguments.dimensions("cluster", cluster, self.name) if cluster is not None else None,
                bool(cooperative),
            ),
        )


def open_device(
    name: str, *, numerics: str | None, check: str, contract: str, isolate: bool, schedule: int = 0
) -> Device:
    """See ``zluda.device.open_device``."""
    full = names.resolve(name)
    if name == "auto":
        log.info("device auto is %s", full)
    names.check_options(full, numerics=numerics, check=check, contract=contract, schedule=schedule)
    if isolate:
        # The runner stands above this package, which must not depend on it: found by name, when asked for.
        isolated: base.Device = importlib.import_module("zluda.runner").open_isolated(
            full, numerics=numerics, check=check, contract=contract, schedule=schedule
        )
        return Device(isolated)
    chosen = names.chosen_numerics(full, numerics)
    return Device(_OPEN[names.kind(full)](full, chosen, contract, check, schedule))


def _open_cpu(name: str, numerics: str, contract: str, check: str, schedule: int) -> base.Device:
    from zluda.device.cpu import CpuDevice

    return CpuDevice(numerics=numerics, contract=contract, check=check, seed=schedule)


def _open_interpreter(name: str, numerics: str, contract: str, check: str, schedule: int) -> base.Device:
    from zluda.device.interpreter import InterpreterDevice
    from zluda.device.ptxas import sources

    return InterpreterDevice(sources(contract), check=check)


def _open_cuda(name: str, numerics: str, contract: str, check: str, schedule: int) -> base.Device:
    from zluda.device.cuda import CudaDevice

    return CudaDevice(int(name.partition(":")[2]))


def _open_amd(name: str, numerics: str, contract: str, check: str, schedule: int) -> base.Device:
    from zluda.device.amd import AmdDevice

    return AmdDevice(name, numerics=numerics, contract=contract, check=check, seed=schedule)


def _open_hip(name: str, numerics: str, contract: str, check: str, schedule: int) -> base.Device:
    from zluda.device.amd.hip import HipDevice

    return HipDevice(int(name.partition(":")[2]), numerics=numerics, contract=contract)


def _open_nvptx(name: str, numerics: str, contract: str, check: str, schedule: int) -> base.Device:
    from zluda.device.cuda.nvptx import NvptxDevice

    return NvptxDevice(int(name.partition(":")[2]), numerics=numerics, contract=contract)


_OPEN = {
    "cpu": _open_cpu,
    "interpreter": _open_interpreter,
    "cuda": _open_cuda,
    "gfx": _open_amd,
    "hip": _open_hip,
    "nvptx": _open_nvptx,
}
