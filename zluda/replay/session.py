"""The runner of a replay: started beside other work, replaced when it dies."""

from __future__ import annotations

import threading

from zluda import runner
from zluda.driver import Driver
from zluda.replay.address_plan import AddressPlan


class Session:
    """A runner over ``device`` with the plan's addresses; a context manager.

    The process starts at once and :attr:`driver` waits for it, so that reading the trace and starting LLVM
    overlap. What starting it raises (DeviceError, RunnerDied) is raised where it is first needed.
    """

    def __init__(
        self,
        device: str,
        plan: AddressPlan,
        *,
        numerics: str | None,
        contract: str = "auto",
        time_limit: float | None,
        cache_scope: str = "",
        schedule: int = 0,
        check: str = "none",
        profile: bool = False,
    ) -> None:
        self._device, self._plan, self._cache_scope = device, plan, cache_scope
        self._numerics, self._time_limit, self._schedule = numerics, time_limit, schedule
        self._contract, self._check, self._profile = contract, check, profile
        self._runner: runner.Runner | None = None
        self._failure: BaseException | None = None
        self._starting = self._start()

    def _start(self) -> threading.Thread:
        thread = threading.Thread(target=self._run_start, name="zluda-start-runner")
        thread.start()
        return thread

    def _run_start(self) -> None:
        try:
            self._runner = runner.start(
                self._device,
                reservations=self._plan.reservations,
                numerics=self._numerics,
                contract=self._contract,
                time_limit=self._time_limit,
                cache_scope=self._cache_scope,
                schedule=self._schedule,
                check=self._check,
                profile=self._profile,
            )
        except BaseException as error:  # raised again by whoever needs the runner
            self._failure = error

    @property
    def runner(self) -> runner.Runner:
        """The running runner."""
        self._starting.join()
        if self._failure is not None:
            raise self._failure
        assert self._runner is not None
        return self._runner

    @property
    def driver(self) -> Driver:
        return self.runner.driver

    def restart(self) -> None:
        """Replace a runner that died."""
        self.close()
        self._runner = self._failure = None
        self._starting = self._start()

    @property
    def contract(self) -> str:
        """Which products and sums are rounded once."""
        return self._contract

    @property
    def time_limit(self) -> float | None:
        """Seconds that a launch may take; None for the runner's own limit."""
        return self._time_limit

    def read(self, address: int, size: int) -> bytes:
        """Bytes of device memory."""
        return self.runner.memory.read(address, size)

    def write(self, address: int, data: bytes) -> None:
        """Put bytes into device memory."""
        self.driver.cuMemcpyHtoD(address, data)

    def close(self) -> None:
        self._starting.join()
        if self._runner is not None:
            self._runner.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
