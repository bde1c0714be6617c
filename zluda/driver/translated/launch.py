"""Kernel launches: the checks CUDA makes before a kernel starts, and what becomes of one that fails."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from zluda.device.base import Kernel, Prepared, Together
from zluda.device.services import with_assertion
from zluda.device.together import CLUSTER_DIMENSION, COOPERATIVE
from zluda.driver.base import Bytes, Dim3, LaunchAttribute
from zluda.driver.errors import CudaError
from zluda.driver.translated.code import dynamic_shared_limit, kernel_of
from zluda.driver.translated.contexts import STACK_SIZE, give_stack
from zluda.driver.translated.services import flush
from zluda.driver.translated.state import State, entry
from zluda.driver.translated.together import check_together
from zluda.errors import Error, HangError, LaunchError, UnsupportedError

# CUlaunchAttributeID → name; those that change when or where blocks run but not what they compute.
_HINTS = {
    0: "IGNORE",
    1: "ACCESS_POLICY_WINDOW",
    3: "SYNCHRONIZATION_POLICY",
    5: "CLUSTER_SCHEDULING_POLICY_PREFERENCE",
    6: "PROGRAMMATIC_STREAM_SERIALIZATION",
    8: "PRIORITY",
    9: "MEM_SYNC_DOMAIN_MAP",
    10: "MEM_SYNC_DOMAIN",
    11: "PREFERRED_CLUSTER_DIMENSION",  # where there is room; CLUSTER_DIMENSION is what a kernel may rely on
    14: "PREFERRED_SHARED_MEMORY_CARVEOUT",
    16: "NVLINK_UTIL_CENTRIC_SCHEDULING",
}
_NO_CLUSTER = (0, 0, 0)
_OTHERS = {7: "PROGRAMMATIC_EVENT", 12: "LAUNCH_COMPLETION_EVENT", 13: "DEVICE_UPDATABLE_KERNEL_NODE"}

# Words in a device's account of a failed kernel → what CUDA calls it.
_FAILURES = {
    "misaligned": "CUDA_ERROR_MISALIGNED_ADDRESS",
    "illegal instruction": "CUDA_ERROR_ILLEGAL_INSTRUCTION",
    "assert": "CUDA_ERROR_ASSERT",
    "function pointer": "CUDA_ERROR_INVALID_PC",
    "surface access out of range": "CUDA_ERROR_ILLEGAL_ADDRESS",
    "recursion": "CUDA_ERROR_HARDWARE_STACK_ERROR",
}

_BLOCK_LIMITS, _GRID_LIMITS, _MAX_THREADS = (2, 3, 4), (5, 6, 7), 1  # CUdevice_attribute


class LaunchEntries:
    """``cuLaunchKernel`` and ``cuLaunchKernelEx``."""

    _state: State

    def prepare_launch(
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
        """Do all of ``cuLaunchKernel`` but run the kernel: whatever compiling takes, it is done then.

        A launch that would be refused is not prepared: it says why when it is launched.
        """
        state = self._state
        if isinstance(state.device, Prepared):
            with suppress(Error):
                kernel, together = self._launched_kernel(
                    function, grid, block, shared_bytes, stream, parameters, attributes
                )
                state.device.prepare(kernel, block, together)

    @entry()
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
        state = self._state
        kernel, together = self._launched_kernel(
            function, grid, block, shared_bytes, stream, parameters, attributes
        )
        flush(state)
        limits = state.contexts[state.current()].limits
        state.services.ready(limits)
        give_stack(state.device, limits[STACK_SIZE])
        try:
            if state.gpu is None:
                state.device.launch(
                    kernel, grid, block, bytes(parameters), shared_bytes=shared_bytes, together=together
                )
            else:
                state.gpu.enqueue(
                    kernel,
                    grid,
                    block,
                    bytes(parameters),
                    shared_bytes=shared_bytes,
                    stream=state.native_stream(stream),
                    together=together,
                )
        except LaunchError as error:
            error = with_assertion(error, flush(state))
            if error.block is None:  # refused by the device: nothing ran, nothing is spoilt
                raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=str(error), launch=error) from error
            state.sticky = _failure(error)
            raise state.sticky from error

    def _launched_kernel(
        self,
        function: int,
        grid: Dim3,
        block: Dim3,
        shared_bytes: int,
        stream: int,
        parameters: Bytes,
        attributes: Sequence[LaunchAttribute],
    ) -> tuple[Kernel, Together]:
        """A launch's kernel, and what blocks run together. Raises what CUDA checks before one starts."""
        state = self._state
        found = state.functions[function]
        state.check_stream(stream)
        together = _together(attributes, found.name)
        _check_shape(state, tuple(grid), tuple(block))
        kernel = kernel_of(state, found)
        _check_kernel(kernel, block, parameters)
        limit = dynamic_shared_limit(state, found, kernel)
        if not 0 <= shared_bytes <= limit:
            detail = f"{shared_bytes} bytes of dynamic shared memory; expected at most {limit}"
            raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=detail)
        check_together(state, found, kernel, grid, block, shared_bytes, together)
        return kernel, together


def _together(attributes: Sequence[LaunchAttribute], kernel: str) -> Together:
    """What attributes say of blocks that run together. Raises UnsupportedError for others that are heeded."""
    cluster: Dim3 | None = None
    cooperative = False
    for attribute, value in attributes:
        if attribute == COOPERATIVE:
            cooperative = int.from_bytes(value[:4], "little") != 0
        elif attribute == CLUSTER_DIMENSION:
            x, y, z = (int.from_bytes(value[at : at + 4], "little") for at in (0, 4, 8))
            cluster = (x, y, z) if (x, y, z) != _NO_CLUSTER else None
        elif attribute not in _HINTS:
            name = _OTHERS.get(attribute, str(attribute))
            raise UnsupportedError(f"launch attribute CU_LAUNCH_ATTRIBUTE_{name}", f"kernel {kernel}")
    return Together(cluster, cooperative)


def _check_shape(state: State, grid: tuple[int, ...], block: tuple[int, ...]) -> None:
    for what, shape, limits in (("grid", grid, _GRID_LIMITS), ("block", block, _BLOCK_LIMITS)):
        most = tuple(state.device.attribute(a) for a in limits)
        if len(shape) != 3 or any(not 1 <= n <= m for n, m in zip(shape, most, strict=True)):
            raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=f"{what} {shape}; expected 1 to {most}")
    threads, most_threads = block[0] * block[1] * block[2], state.device.attribute(_MAX_THREADS)
    if threads > most_threads:
        detail = f"{threads} threads a block; expected at most {most_threads}"
        raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=detail)


def _check_kernel(kernel: Kernel, block: Dim3, parameters: Bytes) -> None:
    threads = block[0] * block[1] * block[2]
    if threads > kernel.max_threads_per_block:
        detail = f"{threads} threads a block; {kernel.name} allows {kernel.max_threads_per_block}"
        raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=detail)
    if len(parameters) < kernel.parameter_bytes:
        detail = f"{len(parameters)} bytes of parameters; {kernel.name} takes {kernel.parameter_bytes}"
        raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=detail)


def _failure(error: LaunchError) -> CudaError:
    """The result by which CUDA reports a kernel that failed while it ran."""
    if isinstance(error, HangError):
        return CudaError("CUDA_ERROR_LAUNCH_TIMEOUT", detail=str(error), launch=error)
    usual = "CUDA_ERROR_LAUNCH_FAILED" if error.address is None else "CUDA_ERROR_ILLEGAL_ADDRESS"
    result = next((result for words, result in _FAILURES.items() if words in error.message), usual)
    return CudaError(result, detail=str(error), launch=error)
