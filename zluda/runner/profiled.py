"""Times of launches, taken in the runner by the driver's own events, and what an emulated GPU counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from zluda.driver.base import Bytes, Dim3, LaunchAttribute
from zluda.errors import Error
from zluda.records import dataclass


@dataclass(slots=True)
class KernelTimes:
    """Launches of one kernel that ended well: how many, their time in all and the shortest, in seconds.

    Of an emulated GPU, what their waves executed in all: instructions, those of them for the vector unit,
    and bytes that vector instructions asked of memory. ``threads`` are of all launches.
    """

    kernel: str
    launches: int = 0
    seconds: float = 0.0
    least: float = float("inf")
    threads: int = 0
    blocks: int = 0
    block_threads: int = 0
    instructions: int = 0
    vector: int = 0
    bytes: int = 0

    def row(self) -> list[Any]:
        """As it crosses the channel: the fields in order."""
        return [getattr(self, name) for name in FIELDS]


FIELDS = tuple(field.name for field in fields(KernelTimes))


class ProfiledDriver:
    """A driver (:class:`zluda.driver.Driver`) whose launches are timed, each from its start to its end."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver
        self._kernels: dict[str, KernelTimes] = {}
        self._names: dict[int, str] = {}
        self._events: dict[int, tuple[int, int]] = {}  # by context
        if hasattr(driver, "start_counting"):
            driver.start_counting()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

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
        """As the driver's, and its time."""
        driver = self._driver
        name = self._name(function)
        start, end = self._pair()
        driver.cuEventRecord(start, stream)
        driver.cuLaunchKernel(function, grid, block, shared_bytes, stream, parameters, attributes=attributes)
        driver.cuEventRecord(end, stream)
        driver.cuEventSynchronize(end)
        seconds = driver.cuEventElapsedTime(start, end) / 1000
        self._note(name, seconds, tuple(grid), tuple(block))

    def _pair(self) -> tuple[int, int]:
        """Two events of the current context."""
        context = self._driver.cuCtxGetCurrent()
        if context not in self._events:
            self._events[context] = self._driver.cuEventCreate(0), self._driver.cuEventCreate(0)
        return self._events[context]

    def _name(self, function: int) -> str:
        if function not in self._names:
            self._names[function] = self._driver.cuFuncGetName(function)
            self._driver.cuFuncLoad(function)  # which NVIDIA's driver else does in the first launch
        return self._names[function]

    def _note(self, name: str, seconds: float, grid: tuple[int, ...], block: tuple[int, ...]) -> None:
        times = self._kernels.setdefault(name, KernelTimes(name))
        blocks, threads = grid[0] * grid[1] * grid[2], block[0] * block[1] * block[2]
        times.launches += 1
        times.seconds += seconds
        times.least = min(times.least, seconds)
        times.threads += blocks * threads
        times.blocks += blocks
        times.block_threads = max(times.block_threads, threads)
        counted = self._driver.counted() if hasattr(self._driver, "counted") else None
        if counted is not None:
            times.instructions += counted[0]
            times.vector += counted[1]
            times.bytes += counted[2]

    def take_profile(self) -> list[list[Any]]:
        """A row (:data:`FIELDS`) a kernel."""
        return [times.row() for times in self._kernels.values()]


def read_profile(rows: Sequence[Sequence[Any]]) -> list[KernelTimes]:
    """What crossed the channel. Raises Error for rows that are none."""
    try:
        return [KernelTimes(**dict(zip(FIELDS, row, strict=True))) for row in rows]
    except (TypeError, ValueError) as error:
        raise Error(f"the runner's profile is none: {error}") from error
