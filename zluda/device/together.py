"""Launches whose blocks run together: clusters, cooperative grids, and how many blocks there is room for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from zluda.compiler.target import Together
from zluda.device.base import Dim3
from zluda.errors import LaunchError

COOPERATIVE, CLUSTER_DIMENSION = 2, 4  # CUlaunchAttributeID


@runtime_checkable
class Arranged(Protocol):
    """A kernel whose directives are known."""

    name: str
    directives: Mapping[str, tuple[int, ...]]


MAX_CLUSTER = 16
"""Blocks of the largest cluster, of those that only some GPUs can have; every GPU with clusters has 8."""

MULTIPROCESSORS, MULTIPROCESSOR_THREADS, MULTIPROCESSOR_BLOCKS = 132, 2048, 32
_MULTIPROCESSOR_SHARED, _RESERVED_SHARED = 228 << 10, 1 << 10
_SHARED_STEP = 128


def resident_blocks(block: Dim3, shared_bytes: int) -> int:
    """How many blocks an H100 has room for at once, as far as threads and shared memory (in bytes) decide."""
    warps = -(-block[0] * block[1] * block[2] // 32)
    by_shared = _MULTIPROCESSOR_SHARED // (shared_bytes + _RESERVED_SHARED)
    each = min(MULTIPROCESSOR_BLOCKS, MULTIPROCESSOR_THREADS // (32 * warps), by_shared)
    return MULTIPROCESSORS * each


def available_shared(blocks: int, static_bytes: int, most: int) -> int:
    """Bytes of dynamic shared memory that each of ``blocks`` blocks on a multiprocessor may have.

    ``most`` is what a block may have at most, static and dynamic.
    """
    each = _MULTIPROCESSOR_SHARED // max(blocks, 1) // _SHARED_STEP * _SHARED_STEP - _RESERVED_SHARED
    return max(min(each, most) - static_bytes, 0)


# Multiprocessors that clusters of so many blocks can use, and blocks of clusters that each has room for: what
# an H200 answers, whose groups of multiprocessors are not all alike.
_CLUSTERED = {1: 132, 2: 132, 4: 124, 8: 124, 16: 116}
_CLUSTERED_BLOCKS = 8


def active_clusters(block: Dim3, shared_bytes: int, blocks: int) -> int:
    """How many clusters of ``blocks`` blocks an H100 has room for at once, to within one."""
    each = min(resident_blocks(block, shared_bytes) // MULTIPROCESSORS, _CLUSTERED_BLOCKS)
    size = next(n for n in _CLUSTERED if n >= blocks)
    return _CLUSTERED[size] * each // blocks


def cluster_shape(kernel: Arranged, together: Together) -> Dim3 | None:
    """The launch's clusters: by attribute, else by ``.reqnctapercluster``; None where neither says."""
    if together.cluster is not None:
        return together.cluster
    required = kernel.directives.get("reqnctapercluster")
    if not required:
        return None
    x, y, z = (*required, 1, 1)[:3]
    return (x, y, z)


def arrangement(kernel: Arranged, grid: Dim3, together: Together) -> Together:
    """What blocks of a launch run together, directives heeded. Raises LaunchError for what cannot be."""
    shape = cluster_shape(kernel, together)
    found = Together(shape, together.cooperative)
    required = cluster_shape(kernel, Together())
    limit = (*kernel.directives.get("maxclusterrank", ()), MAX_CLUSTER)[0]
    reasons = (
        (
            shape is None and "explicitcluster" in kernel.directives,
            ".explicitcluster, but no cluster",
        ),
        (shape is not None and min(shape) < 1, f"cluster {shape}"),
        (
            required is not None and required != shape,
            f"cluster {shape}, .reqnctapercluster {required}",
        ),
        (found.blocks > limit, f"{found.blocks} blocks a cluster, {limit} allowed"),
        (
            shape is not None and any(g % max(c, 1) for g, c in zip(grid, shape, strict=True)),
            f"grid {grid} is not made of clusters {shape}",
        ),
    )
    for wrong, reason in reasons:
        if wrong:
            raise LaunchError(f"invalid configuration: {reason}", kernel=kernel.name)
    return found


def check_room(kernel: Arranged, grid: Dim3, block: Dim3, shared_bytes: int, together: Together) -> None:
    """Refuse a cooperative grid whose blocks cannot all run at once. Raises LaunchError.

    ``shared_bytes`` are a block's, static and dynamic.
    """
    blocks, room = grid[0] * grid[1] * grid[2], resident_blocks(block, shared_bytes)
    if together.cooperative and blocks > room:
        reason = f"a cooperative grid of {blocks} blocks; there is room for {room} at once"
        raise LaunchError(f"invalid configuration: {reason}", kernel=kernel.name)


def launch_attributes(together: Together) -> list[tuple[int, bytes]]:
    """What ``cuLaunchKernelEx`` is told by: ids and values of attributes."""
    found: list[tuple[int, bytes]] = []
    if together.cluster is not None:
        value = b"".join(n.to_bytes(4, "little") for n in together.cluster)
        found.append((CLUSTER_DIMENSION, value.ljust(64, b"\0")))
    if together.cooperative:
        found.append((COOPERATIVE, (1).to_bytes(64, "little")))
    return found
