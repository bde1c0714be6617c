"""What a launch may ask for: the limits of CUDA, of a kernel's directives, and of shared memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from zluda.device.base import Dim3
from zluda.errors import LaunchError

MAX_THREADS = 1024
MAX_SHARED_BYTES = 227 << 10  # a block's most on sm_90
LEAST_STACK = 16 << 10
"""What a thread of an AMD GPU has for recursion and calls through pointers, as the HIP runtime reserves."""
_GRID_LIMITS = (0x7FFFFFFF, 0xFFFF, 0xFFFF)
_BLOCK_LIMITS = (1024, 1024, 64)


class Limited(Protocol):
    """What is checked of a kernel. ``required_block`` is ``.reqntid``."""

    name: str
    parameter_bytes: int
    max_threads_per_block: int
    required_block: Dim3 | None

    @property
    def shared_bytes(self) -> int: ...


def thread_limit(directives: Mapping[str, tuple[int, ...]]) -> int:
    """``.maxntid`` or ``.reqntid``'s product, at most 1024."""
    limit = MAX_THREADS
    for name in ("maxntid", "reqntid"):
        product = 1
        for n in directives.get(name, ()):
            product *= n
        if directives.get(name):
            limit = min(limit, product)
    return limit


def required_block(directives: Mapping[str, tuple[int, ...]]) -> Dim3 | None:
    """``.reqntid``'s shape."""
    required = directives.get("reqntid")
    if not required:
        return None
    x, y, z = (*required, 1, 1)[:3]
    return (x, y, z)


def validate(
    kernel: Limited, grid: Dim3, block: Dim3, parameters: bytes, shared_bytes: int, *, max_shared: int
) -> None:
    """Refuse what ``cuLaunchKernel`` refuses, with its reason. Raises LaunchError."""
    threads = block[0] * block[1] * block[2]
    reasons = (
        (
            any(g < 1 or g > limit for g, limit in zip(grid, _GRID_LIMITS, strict=True)),
            f"grid {grid}: invalid",
        ),
        (
            any(b < 1 or b > limit for b, limit in zip(block, _BLOCK_LIMITS, strict=True)),
            f"block {block}: invalid",
        ),
        (
            threads > kernel.max_threads_per_block,
            f"{threads} threads a block, {kernel.max_threads_per_block} allowed",
        ),
        (
            kernel.required_block is not None and kernel.required_block != block,
            f"block {block}, but .reqntid is {kernel.required_block}",
        ),
        (
            len(parameters) < kernel.parameter_bytes,
            f"{len(parameters)} bytes of parameters, {kernel.parameter_bytes} needed",
        ),
        (
            shared_bytes < 0 or shared_bytes + kernel.shared_bytes > max_shared,
            f"{shared_bytes + kernel.shared_bytes} bytes of shared memory, {max_shared} available",
        ),
    )
    for wrong, reason in reasons:
        if wrong:
            raise LaunchError(f"invalid configuration: {reason}", kernel=kernel.name)
