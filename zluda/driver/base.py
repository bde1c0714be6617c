"""The driver protocol: one method for each driver entry that can be replayed.

Methods are named as the entry without its version suffix. Handles (contexts, modules, libraries, functions,
kernels, streams, events) and device addresses are integers; output parameters are return values; host
memory is ``bytes``. A method that the entry would fail raises :class:`~zluda.driver.errors.CudaError`; an
instruction, attribute or option that this driver cannot do raises :class:`zluda.errors.UnsupportedError`
naming it, which is no ``CUresult``: the NVIDIA driver would have done it.

As in CUDA the current context belongs to the calling thread. A runner has one thread that calls, so whoever
replays several recorded threads sets the current context when the recorded thread changes.

Streams: 0 is the legacy default stream, 1 ``CU_STREAM_LEGACY``, 2 ``CU_STREAM_PER_THREAD``. An asynchronous
entry reads its host data before it returns; an asynchronous copy to the host waits for the stream and
returns the bytes.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from zluda.driver.arrays import ArrayDriver, Bytes

if TYPE_CHECKING:
    from zluda.compiler.tensor_map import Tensor

__all__ = ["ENTRIES", "Bytes", "Dim3", "Driver", "LaunchAttribute", "ParameterSlot"]

Dim3 = tuple[int, int, int]


class LaunchAttribute(NamedTuple):
    """One ``CUlaunchAttribute`` of ``cuLaunchKernelEx``: its id and the bytes of its value union."""

    id: int
    value: bytes


class ParameterSlot(NamedTuple):
    """Byte offset and size of one kernel parameter in the packed buffer. ``name`` is empty where unknown."""

    offset: int
    size: int
    name: str = ""


class Driver(ArrayDriver, Protocol):
    """The CUDA driver as an object; the module's text says how values pass."""

    name: str  # the device behind it: "cpu", "cuda:0"
    product: str  # what the device's maker calls it; empty where that says nothing beyond the name
    emulated: bool
    numerics: str  # "nvidia" or "native"
    places_globals: bool  # whether `globals_at` is honoured

    # --- initialisation and devices ---------------------------------------------------------------

    def cuInit(self, flags: int = 0) -> None: ...

    def cuDriverGetVersion(self) -> int:
        """1000 × major + 10 × minor."""
        ...

    def cuDeviceGetCount(self) -> int: ...

    def cuDeviceGet(self, ordinal: int) -> int: ...

    def cuDeviceGetName(self, device: int) -> str: ...

    def cuDeviceGetUuid(self, device: int) -> bytes:
        """16 bytes."""
        ...

    def cuDeviceTotalMem(self, device: int) -> int:
        """Bytes."""
        ...

    def cuDeviceGetAttribute(self, attribute: int, device: int) -> int: ...

    # --- contexts -----------------------------------------------------------------------------------

    def cuDevicePrimaryCtxRetain(self, device: int) -> int: ...

    def cuDevicePrimaryCtxRelease(self, device: int) -> None: ...

    def cuDevicePrimaryCtxReset(self, device: int) -> None: ...

    def cuDevicePrimaryCtxSetFlags(self, device: int, flags: int) -> None: ...

    def cuDevicePrimaryCtxGetState(self, device: int) -> tuple[int, bool]:
        """Flags, and whether the context is active."""
        ...

    def cuCtxCreate(self, flags: int, device: int) -> int: ...

    def cuCtxDestroy(self, context: int) -> None: ...

    def cuCtxSetCurrent(self, context: int) -> None: ...

    def cuCtxGetCurrent(self) -> int:
        """0 where none is current."""
        ...

    def cuCtxPushCurrent(self, context: int) -> None: ...

    def cuCtxPopCurrent(self) -> int: ...

    def cuCtxGetDevice(self) -> int: ...

    def cuCtxGetFlags(self) -> int: ...

    def cuCtxGetApiVersion(self, context: int) -> int: ...

    def cuCtxSynchronize(self) -> None: ...

    def cuCtxGetLimit(self, limit: int) -> int: ...

    def cuCtxSetLimit(self, limit: int, value: int) -> None: ...

    def cuCtxGetCacheConfig(self) -> int: ...

    def cuCtxSetCacheConfig(self, config: int) -> None: ...

    def cuCtxGetStreamPriorityRange(self) -> tuple[int, int]:
        """Least and greatest priority."""
        ...

    # --- code ---------------------------------------------------------------------------------------

    def cuModuleLoadData(self, image: Bytes, *, globals_at: Mapping[str, int] | None = None) -> int:
        """Load PTX text, a fatbin or an ELF file; ``globals_at`` places the named variables at addresses.

        Where PTX is needed and the image has none: ``CUDA_ERROR_NO_BINARY_FOR_GPU`` with reason ``"no-ptx"``.
        """
        ...

    def cuModuleUnload(self, module: int) -> None: ...

    def cuModuleGetFunction(self, module: int, name: str) -> int: ...

    def cuModuleGetGlobal(self, module: int, name: str) -> tuple[int, int]:
        """Address and size in bytes."""
        ...

    def cuLibraryLoadData(self, image: Bytes, *, globals_at: Mapping[str, int] | None = None) -> int:
        """As ``cuModuleLoadData``."""
        ...

    def cuLibraryUnload(self, library: int) -> None: ...

    def cuLibraryGetKernel(self, library: int, name: str) -> int: ...

    def cuLibraryGetModule(self, library: int) -> int: ...

    def cuLibraryGetGlobal(self, library: int, name: str) -> tuple[int, int]:
        """Address and size in bytes."""
        ...

    def cuKernelGetFunction(self, kernel: int) -> int: ...

    def cuKernelGetAttribute(self, attribute: int, kernel: int, device: int = 0) -> int: ...

    def cuKernelSetAttribute(self, attribute: int, value: int, kernel: int, device: int = 0) -> None: ...

    def cuKernelSetCacheConfig(self, kernel: int, config: int, device: int = 0) -> None: ...

    def cuFuncGetAttribute(self, attribute: int, function: int) -> int: ...

    def cuFuncSetAttribute(self, function: int, attribute: int, value: int) -> None: ...

    def cuFuncSetCacheConfig(self, function: int, config: int) -> None: ...

    def cuFuncGetName(self, function: int) -> str: ...

    def cuFuncLoad(self, function: int) -> None: ...

    def parameter_layout(self, function: int) -> tuple[ParameterSlot, ...]:
        """Where each parameter of a kernel or function lies in the packed buffer (``cuFuncGetParamInfo``)."""
        ...

    # --- memory -------------------------------------------------------------------------------------

    def cuMemGetInfo(self) -> tuple[int, int]:
        """Free and total bytes."""
        ...

    def cuMemAlloc(self, size: int, *, address: int | None = None) -> int:
        """Address of ``size`` bytes; at ``address`` where given: free, and in a reserved range."""
        ...

    def cuMemAllocPitch(
        self, width: int, height: int, element_size: int, *, address: int | None = None
    ) -> tuple[int, int]:
        """Address and pitch in bytes."""
        ...

    def cuMemFree(self, address: int) -> None: ...

    def cuMemAllocAsync(self, size: int, stream: int, *, address: int | None = None) -> int: ...

    def cuMemFreeAsync(self, address: int, stream: int) -> None: ...

    def cuMemGetAddressRange(self, address: int) -> tuple[int, int]:
        """Base and size of the allocation that holds ``address``."""
        ...

    def cuMemAllocHost(self, size: int) -> int:
        """Page-locked host memory; its address is the driver's and useless to a caller in another process."""
        ...

    def cuMemHostAlloc(self, size: int, flags: int) -> int: ...

    def cuMemFreeHost(self, address: int) -> None: ...

    def cuMemcpyHtoD(self, destination: int, data: Bytes) -> None: ...

    def cuMemcpyHtoDAsync(self, destination: int, data: Bytes, stream: int) -> None: ...

    def cuMemcpyDtoH(self, source: int, size: int) -> bytes: ...

    def cuMemcpyDtoHAsync(self, source: int, size: int, stream: int) -> bytes: ...

    def cuMemcpyDtoD(self, destination: int, source: int, size: int) -> None: ...

    def cuMemcpyDtoDAsync(self, destination: int, source: int, size: int, stream: int) -> None: ...

    def cuMemcpy(self, destination: int, source: int, size: int) -> None:
        """Between device addresses; a host side is the caller's to turn into HtoD or DtoH."""
        ...

    def cuMemcpyAsync(self, destination: int, source: int, size: int, stream: int) -> None: ...

    def cuMemsetD8(self, destination: int, value: int, count: int) -> None: ...

    def cuMemsetD16(self, destination: int, value: int, count: int) -> None: ...

    def cuMemsetD32(self, destination: int, value: int, count: int) -> None: ...

    def cuMemsetD8Async(self, destination: int, value: int, count: int, stream: int) -> None: ...

    def cuMemsetD16Async(self, destination: int, value: int, count: int, stream: int) -> None: ...

    def cuMemsetD32Async(self, destination: int, value: int, count: int, stream: int) -> None: ...

    # --- streams and events -------------------------------------------------------------------------

    def cuStreamCreate(self, flags: int = 0) -> int: ...

    def cuStreamCreateWithPriority(self, flags: int, priority: int) -> int: ...

    def cuStreamDestroy(self, stream: int) -> None: ...

    def cuStreamSynchronize(self, stream: int) -> None: ...

    def cuStreamQuery(self, stream: int) -> bool:
        """Whether all its work is done (false for ``CUDA_ERROR_NOT_READY``)."""
        ...

    def cuStreamGetFlags(self, stream: int) -> int: ...

    def cuStreamGetPriority(self, stream: int) -> int: ...

    def cuStreamWaitEvent(self, stream: int, event: int, flags: int = 0) -> None: ...

    def cuEventCreate(self, flags: int = 0) -> int: ...

    def cuEventDestroy(self, event: int) -> None: ...

    def cuEventRecord(self, event: int, stream: int) -> None: ...

    def cuEventRecordWithFlags(self, event: int, stream: int, flags: int) -> None: ...

    def cuEventSynchronize(self, event: int) -> None: ...

    def cuEventQuery(self, event: int) -> bool:
        """Whether the work it recorded is done (false for ``CUDA_ERROR_NOT_READY``)."""
        ...

    def cuEventElapsedTime(self, start: int, end: int) -> float:
        """Milliseconds."""
        ...

    # --- occupancy ----------------------------------------------------------------------------------

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(
        self, function: int, threads: int, shared_bytes: int
    ) -> int:
        """How many blocks of so many threads a multiprocessor has room for; ``shared_bytes`` are dynamic."""
        ...

    def cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        self, function: int, threads: int, shared_bytes: int, flags: int
    ) -> int: ...

    def cuOccupancyAvailableDynamicSMemPerBlock(self, function: int, blocks: int, threads: int) -> int:
        """Bytes of dynamic shared memory that each of so many blocks a multiprocessor may have."""
        ...

    def cuOccupancyMaxActiveClusters(
        self, function: int, block: Dim3, shared_bytes: int, cluster: Dim3
    ) -> int:
        """How many clusters of this shape there is room for at once; ``shared_bytes`` are dynamic."""
        ...

    def cuOccupancyMaxPotentialClusterSize(self, function: int, block: Dim3, shared_bytes: int) -> int:
        """The most blocks that a cluster may have."""
        ...

    # --- tensor maps --------------------------------------------------------------------------------

    def cuTensorMapEncodeTiled(self, tensor: Tensor, box: Sequence[int]) -> bytes:
        """A map's 128 bytes."""
        ...

    def cuTensorMapEncodeIm2col(
        self, tensor: Tensor, lower: Sequence[int], upper: Sequence[int], channels: int, pixels: int
    ) -> bytes:
        """A map's 128 bytes."""
        ...

    def cuTensorMapReplaceAddress(self, found: bytes, address: int) -> bytes:
        """The map with another address."""
        ...

    # --- launch -------------------------------------------------------------------------------------

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
        """Launch a kernel or function; ``parameters`` is the packed ``.param`` buffer.

        ``attributes`` are those of ``cuLaunchKernelEx``. The failure of the kernel itself may show here or at
        the next call that synchronises; its CudaError carries ``launch``.
        """
        ...

    def recover(self) -> bool:
        """Forget a kernel's failure, so that work may go on; false where only a fresh process can.

        No CUDA entry does this: after a kernel's failure every call of a context fails in the same way.
        """
        ...

    def take_output(self) -> tuple[str, str]:
        """What kernels printed (``vprintf``) since the last time, as far as CUDA would have shown it by now,
        and what is to be said of output that was lost; both empty where NVIDIA's driver prints by itself.
        """
        ...

    def close(self) -> None:
        """Free everything. The driver cannot be used afterwards; closing twice is harmless."""
        ...


# Every entry of the protocol, in order: what a channel may carry.
ENTRIES: tuple[str, ...] = tuple(
    name
    for name, member in (*vars(Driver).items(), *vars(ArrayDriver).items())
    if inspect.isfunction(member) and not name.startswith("_") and name != "close"
)
