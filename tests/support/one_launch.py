"""A trace of one launch over PTX that a test brings."""

from __future__ import annotations

from pathlib import Path

from kernels import HEADER
from trace_builder import TraceBuilder, words

Dim3 = tuple[int, int, int]


def record(
    path: Path,
    ptx: str,
    kernel: str,
    buffers: list[bytes],
    *,
    grid: Dim3 = (1, 1, 1),
    block: Dim3 = (32, 1, 1),
    results: dict[int, bytes] | None = None,
) -> int:
    """Record a launch of ``kernel``, whose parameters are the buffers' addresses; the number of its call.

    ``results`` are what buffers hold after it, by their index.
    """
    text = ptx if ptx.lstrip().startswith(".version") else HEADER + ptx
    with TraceBuilder(path) as trace:
        trace.start()
        function = trace.function(
            trace.module(text), kernel, [(8 * index, 8) for index in range(len(buffers))]
        )
        addresses = []
        for data in buffers:
            addresses.append(trace.allocate(len(data)))
            trace.copy_in(addresses[-1], data)
        writes = {addresses[index]: data for index, data in (results or {}).items()}
        return trace.launch(function, words(*addresses), writes, grid=grid, block=block)
