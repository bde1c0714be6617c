"""What a kernel on a GPU noted when it stopped itself."""

from __future__ import annotations

from zluda.compiler.stops import FAULTS, REFUSAL, STOPPED
from zluda.compiler.target import CompiledKernel
from zluda.device.placement import VariableMemory
from zluda.errors import LaunchError, UnsupportedError


class RefusalCell:
    """The device's memory for the number of what stopped a launch (``zluda.compiler.stops.REFUSAL``)."""

    def __init__(self, memory: VariableMemory) -> None:
        self._memory = memory
        self._address: int | None = None

    @property
    def address(self) -> int:
        """Where it is; made when first asked for."""
        if self._address is None:
            self._address = self._memory.allocate(4, None)
            self._memory.write(self._address, bytes(4))
        return self._address

    def take(
        self, compiled: CompiledKernel, failure: LaunchError | None = None
    ) -> UnsupportedError | LaunchError | None:
        """What stopped a launch, if its code has said so; the cell is cleared.

        ``failure`` is what the device knows of it.
        """
        if self._address is None or REFUSAL not in compiled.symbols:
            return None
        number = int.from_bytes(self._memory.read(self._address, 4), "little")
        self._memory.write(self._address, bytes(4))
        if not number:
            return None
        if number >= STOPPED:
            # HIP does not say which block it was; a failure without one would be that of a refused launch.
            block, thread = (failure.block, failure.thread) if failure is not None else ((0, 0, 0), None)
            return LaunchError(FAULTS[number - STOPPED], kernel=compiled.name, block=block, thread=thread)
        refusal = compiled.refusals[number - 1]
        return UnsupportedError(refusal.what, refusal.where, began=True)
