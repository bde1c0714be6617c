"""Clusters and cooperative grids: what CUDA refuses, and what it says there is room for."""

from __future__ import annotations

from zluda.device.base import Kernel, Together
from zluda.device.together import Arranged, arrangement, resident_blocks
from zluda.driver.base import Dim3
from zluda.driver.errors import CudaError
from zluda.driver.translated.state import Function, State
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
    if found.blocks > PORTABLE_CLUSTER and not function.attributes.get(NON_PORTABLE_CLUSTER_SIZE_ALLOWED):
        detail = f"{found.blocks} blocks a cluster; the kernel allows {PORTABLE_CLUSTER}"
        raise CudaError("CUDA_ERROR_INVALID_CLUSTER_SIZE", detail=detail)
    blocks, room = grid[0] * grid[1] * grid[2], resident_blocks(block, kernel.shared_bytes + shared_bytes)
    if together.cooperative and blocks > room:
        detail = f"{blocks} blocks at once; there is room for {room}"
        raise CudaError("CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", detail=detail)
