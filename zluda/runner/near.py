"""The near side of a runner: start it, speak to it, read its memory, and end it."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from zluda.driver import Driver


class DeviceMemory:
    """Device memory seen from the near side."""

    def read(self, address: int, size: int) -> bytes:
        """``size`` bytes at ``address``: from the shared file where it is mapped, else by a message."""
        raise NotImplementedError

    def view(self, address: int, size: int) -> memoryview | None:
        """A read-only view without a copy, or None where the bytes are not in the shared file."""
        raise NotImplementedError


class Runner:
    """A running runner process. Close it, or use it as a context manager."""

    driver: Driver
    memory: DeviceMemory
    device: str

    def close(self) -> None:
        """End the process and free what it shared; closing twice is harmless."""
        raise NotImplementedError

    def __enter__(self) -> Runner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def start(
    device: str = "cpu",
    *,
    reservations: Sequence[tuple[int, int]] = (),
    numerics: str | None = None,
    untrusted: bool = False,
    memory_limit: int | None = None,
    time_limit: float | None = None,
) -> Runner:
    """Start a runner over ``device`` ("cpu", "cuda:N").

    ``reservations`` are (address, size) ranges in which ``cuMemAlloc(address=…)`` will be asked for memory.
    ``memory_limit`` bounds the process's private memory in bytes, ``time_limit`` one command's wall time in
    seconds; None takes the defaults. Raises DeviceError where the device is not there, RunnerDied where the
    process ends before it is ready.
    """
    raise NotImplementedError
