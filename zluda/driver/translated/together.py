"""Clusters, cooperative grids and tensor maps: what CUDA refuses, and what it says there is room for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from zluda.compiler import tensor_map
from zluda.compiler.tensor_map import Tensor, TensorMapError
from zluda.device.base import Kernel, Together
from zluda.device.limits import MAX_SHARED_BYTES
from zluda.device.together import (
    MAX_CLUSTER,
    MULTIPROCESSORS,
    Arranged,
    active_clusters,
    arrangement,
    available_shared,
    resident_blocks,
)
from zluda.driver.base import Dim3
from zluda.driver.errors import CudaError
from zluda.driver.translated.code import kernel_of
from zluda.driver.translated.state import Function, State, entry
from zluda.errors import LaunchError

NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14  # CUfunction_attribute
PORTABLE_CLUSTER = 8


def check_together(
    state: State,
    function: Function,
    kernel: Kernel,
    grid: Dim3,
    block: Dim3,
    shared_bytes: int,
    together: Together,
) -> None:
    """Raise what CUDA does for clusters that do not fit, and for a cooperative grid that is too large."""
    try:
        found = arrangement(kernel, grid, together) if isinstance(kernel, Arranged) else together
    except LaunchError as error:
        raise CudaError("CUDA_ERROR_INVALID_CLUSTER_SIZE", detail=str(error), launch=error) from error
    _check_size(function, found.blocks)
    blocks, room = grid[0] * grid[1] * grid[2], resident_blocks(block, kernel.shared_bytes + shared_bytes)
    if together.cooperative and blocks > room:
        detail = f"{blocks} blocks at once; there is room for {room}"
        raise CudaError("CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", detail=detail)


def _largest(function: Function) -> int:
    allowed = function.attributes.get(NON_PORTABLE_CLUSTER_SIZE_ALLOWED)
    return MAX_CLUSTER if allowed else PORTABLE_CLUSTER


def _check_size(function: Function, blocks: int) -> None:
    if blocks > _largest(function):
        detail = f"{blocks} blocks a cluster; the kernel allows {_largest(function)}"
        raise CudaError("CUDA_ERROR_INVALID_CLUSTER_SIZE", detail=detail)


class TogetherEntries:
    """``cuOccupancy*``, as far as threads and shared memory decide, and ``cuTensorMap*``."""

    _state: State

    @entry()
    def cuOccupancyMaxActiveBlocksPerMultiprocessor(
        self, function: int, threads: int, shared_bytes: int
    ) -> int:
        """How many blocks of so many threads there is room for; ``shared_bytes`` are dynamic."""
        kernel = self._launchable(function, threads)
        shared = kernel.shared_bytes + shared_bytes
        return resident_blocks((threads, 1, 1), shared) // MULTIPROCESSORS

    @entry()
    def cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        self, function: int, threads: int, shared_bytes: int, flags: int
    ) -> int:
        """The same: its flag tells apart caches that are not modelled."""
        if flags not in (0, 1):  # CU_OCCUPANCY_DEFAULT, CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE
            raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=f"occupancy flags {flags:#x}")
        return self.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, threads, shared_bytes)

    @entry()
    def cuOccupancyAvailableDynamicSMemPerBlock(self, function: int, blocks: int, threads: int) -> int:
        """Bytes that each of so many blocks may have beside its static ones; 0 for too many blocks."""
        kernel = self._launchable(function, threads)
        if blocks < 1:
            raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=f"{blocks} blocks a multiprocessor")
        if blocks > resident_blocks((threads, 1, 1), 0) // MULTIPROCESSORS:
            return 0
        return available_shared(blocks, kernel.shared_bytes, MAX_SHARED_BYTES)

    def _launchable(self, function: int, threads: int) -> Kernel:
        kernel = kernel_of(self._state, self._state.functions[function])
        if not 0 < threads <= kernel.max_threads_per_block:
            raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=f"{threads} threads a block")
        return kernel

    @entry()
    def cuOccupancyMaxActiveClusters(
        self, function: int, block: Dim3, shared_bytes: int, cluster: Dim3
    ) -> int:
        """How many clusters of this shape there is room for at once; ``shared_bytes`` are dynamic."""
        found = self._state.functions[function]
        kernel = kernel_of(self._state, found)
        blocks = cluster[0] * cluster[1] * cluster[2]
        _check_size(found, blocks)
        return active_clusters(block, kernel.shared_bytes + shared_bytes, blocks)

    @entry()
    def cuOccupancyMaxPotentialClusterSize(self, function: int, block: Dim3, shared_bytes: int) -> int:
        """The most blocks that a cluster may have."""
        return _largest(self._state.functions[function])

    @entry()
    def cuTensorMapEncodeTiled(self, tensor: Tensor, box: Sequence[int]) -> bytes:
        """128 bytes, as NVIDIA's driver makes them."""
        return _encoded(lambda: tensor_map.encode_tiled(Tensor(*tensor), box))

    @entry()
    def cuTensorMapEncodeIm2col(
        self, tensor: Tensor, lower: Sequence[int], upper: Sequence[int], channels: int, pixels: int
    ) -> bytes:
        """128 bytes, as NVIDIA's driver makes them."""
        given = Tensor(*tensor)
        return _encoded(lambda: tensor_map.encode_im2col(given, lower, upper, channels, pixels))

    @entry()
    def cuTensorMapReplaceAddress(self, found: bytes, address: int) -> bytes:
        """The map with another address."""
        if len(found) != tensor_map.MAP_BYTES or address % 16:
            raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=f"a tensor map at {address:#x}")
        return address.to_bytes(8, "little") + found[8:]


def _encoded(make: Callable[[], bytes]) -> bytes:
    try:
        return make()
    except TensorMapError as error:
        raise CudaError("CUDA_ERROR_INVALID_VALUE", detail=str(error)) from error
