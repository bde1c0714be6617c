"""The device protocol: what a driver needs of the thing that runs kernels.

Addresses are plain integers in the device's address space; memory contents are bytes. All errors are
:class:`zluda.errors.DeviceError` (the device itself), :class:`zluda.errors.LaunchError` (a launch) or
:class:`zluda.errors.UnsupportedError` (an instruction, named).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from zluda.compiler.target import APART, Together
from zluda.records import dataclass

if TYPE_CHECKING:
    from zluda.ptx import Module

__all__ = ["APART", "Code", "Device", "Dim3", "GpuDevice", "Kernel", "KernelParameter", "Perturbed"]
__all__ += ["Counting", "Prepared", "Printing", "Stacked", "Streams", "Together"]

Dim3 = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class KernelParameter:
    """One ``.param`` of an entry: byte offset in the packed parameter buffer, size and alignment in bytes."""

    name: str
    offset: int
    size: int
    align: int


class Kernel(Protocol):
    """A kernel ready to launch."""

    @property
    def name(self) -> str: ...

    @property
    def parameters(self) -> tuple[KernelParameter, ...]: ...

    @property
    def parameter_bytes(self) -> int: ...

    @property
    def shared_bytes(self) -> int:
        """Static shared memory of a block."""
        ...

    @property
    def max_threads_per_block(self) -> int: ...


class Code(Protocol):
    """A module loaded on a device."""

    @property
    def kernel_names(self) -> tuple[str, ...]: ...

    def kernel(self, name: str) -> Kernel:
        """Raises Error where there is none so named, PtxError or UnsupportedError where it is not usable."""
        ...

    def global_variable(self, name: str) -> tuple[int, int]:
        """Address and size in bytes of a ``.global`` or ``.const`` variable; Error where there is none."""
        ...

    def unload(self) -> None: ...


class Device(Protocol):
    """One device. ``emulated`` is true where machine code of another kind is executed in software."""

    name: str
    emulated: bool
    numerics: str

    def allocate(self, size: int, *, address: int | None = None) -> int:
        """Returns the address (512-byte aligned); at ``address`` if given, else DeviceError."""
        ...

    def free(self, address: int) -> None: ...

    def read(self, address: int, size: int) -> bytes: ...

    def write(self, address: int, data: bytes | bytearray | memoryview) -> None: ...

    def copy(self, destination: int, source: int, size: int) -> None: ...

    def fill(self, address: int, pattern: bytes, count: int) -> None:
        """Write ``pattern`` (1, 2 or 4 bytes) ``count`` times."""
        ...

    def load(self, module: Module, *, globals_at: Mapping[str, int] | None = None) -> Code:
        """Load a module; variables named in ``globals_at`` are placed at those addresses."""
        ...

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
        """Run to completion or raise LaunchError. ``parameters`` is the packed ``.param`` buffer.

        ``together`` says which blocks run at once; clusters that a kernel's directives name need no saying.

        The error of a kernel that ran names a block; without one, the launch was refused.
        """
        ...

    def synchronize(self) -> None: ...

    def attribute(self, attribute: int) -> int:
        """A ``CUdevice_attribute`` value."""
        ...

    def close(self) -> None: ...


class Streams(Protocol):
    """Streams and events of a GPU. Handles are integers; 0, 1 and 2 are CUDA's predefined streams.

    Entries raise CudaError; the failure of a kernel shows at whatever waits for it, with ``launch`` set.
    """

    def create(self, flags: int, priority: int) -> int: ...

    def destroy(self, stream: int) -> None: ...

    def synchronize(self, stream: int) -> None: ...

    def done(self, stream: int) -> bool: ...

    def wait(self, stream: int, event: int) -> None: ...

    def create_event(self, flags: int) -> int: ...

    def destroy_event(self, event: int) -> None: ...

    def record(self, event: int, stream: int) -> None: ...

    def synchronize_event(self, event: int) -> None: ...

    def event_done(self, event: int) -> bool: ...

    def elapsed(self, start: int, end: int) -> float:
        """Milliseconds."""
        ...


@runtime_checkable
class Perturbed(Protocol):
    """A device that can move its approximate results; see :meth:`zluda.device.cpu.CpuDevice.perturb`."""

    def perturb(self, share: float, pattern: int, seed: int) -> None: ...


@runtime_checkable
class Printing(Protocol):
    """A device that sees to ``vprintf`` itself, having a driver behind it."""

    def take_output(self) -> tuple[str, str]:
        """What kernels printed since the last time; what is to be said of output that was lost."""
        ...


@runtime_checkable
class Stacked(Protocol):
    """A device whose threads have a stack for recursion whose size can be set."""

    def limit_stack(self, size: int) -> None:
        """From the next launch on a thread's stack has this many bytes, or more. CudaError for too many."""
        ...


@runtime_checkable
class Prepared(Protocol):
    """A device that compiles kernels, which it can do before it launches one."""

    def prepare(self, kernel: Kernel, block: Dim3, together: Together = APART) -> None:
        """Have the code that a launch in blocks of this shape runs. Raises as ``launch`` does."""
        ...


@runtime_checkable
class Counting(Protocol):
    """A device that can count what a launch executes, while ``counting`` is set.

    ``counted``: of the last launch the instructions of its waves, those of them for the vector unit, and the
    bytes that vector instructions asked of memory.
    """

    counting: bool

    @property
    def counted(self) -> tuple[int, int, int]: ...


@runtime_checkable
class GpuDevice(Device, Protocol):
    """A device that works on its own: what is launched runs while the host goes on.

    ``product`` is its maker's name for it.
    """

    product: str

    @property
    def streams(self) -> Streams: ...

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
        """Launch on a stream, as ``launch`` does without waiting."""
        ...

    def memory_info(self) -> tuple[int, int]:
        """Free and total bytes."""
        ...
