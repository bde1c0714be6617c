"""What a recorded kernel's PTX says of its results; asked only where a launch differs from the record."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from zluda.errors import Error
from zluda.replay.memory import ReplayMemory
from zluda.tracefile import Launch, Trace

if TYPE_CHECKING:
    from zluda.compiler.unit import Unit
    from zluda.diff.types.launches import TraceModules
    from zluda.ptx import Module


_Known = dict[tuple[int, str], list[str] | None]


class KernelFacts:
    """Of the kernels of one trace; each is looked at once."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._modules: TraceModules | None = None
        self._approximations: _Known = {}
        self._varying: _Known = {}

    def approximations(self, launch: Launch) -> list[str]:
        """The approximate instructions of a launch's kernel and all it can call; none where there is no PTX
        to tell.
        """
        from zluda.compiler.lower.approximate import approximations

        return self._told(launch, self._approximations, approximations) or []

    def varying(self, launch: Launch) -> list[str] | None:
        """What in them depends on the order of threads or on the moment; None where there is no PTX that
        tells.
        """
        from zluda.compiler.analysis.varying import varying

        return self._told(launch, self._varying, varying)

    def records(self, launch: Launch, memory: ReplayMemory) -> dict[int, str]:
        """The floating type in allocations of floats and integers (``KernelTypes.mixed``)."""
        from zluda.diff.types.launches import KernelTypes

        module = self.module(launch)
        if module is None:
            return {}
        kernel = KernelTypes.of(module.function(launch.kernel), module)
        return kernel.mixed(launch.parameters, memory.find_place, memory.variables(launch.module))

    def _told(self, launch: Launch, known: _Known, ask: Callable[[Unit], list[str]]) -> list[str] | None:
        from zluda.compiler.unit import kernel_unit

        if launch.module is None:
            return None
        key = (launch.module, launch.kernel)
        if key not in known:
            module = self.module(launch)
            try:
                known[key] = ask(kernel_unit(module, launch.kernel, launch.block)) if module else None
            except Error:  # PTX that this version does not take: NVIDIA's driver ran it all the same
                known[key] = None
        return known[key]

    def module(self, launch: Launch) -> Module | None:
        """The launch's typed PTX; None where there is none, or it cannot be read."""
        return None if launch.module is None else self._of(launch.module)

    def _of(self, module: int) -> Module | None:
        from zluda.diff.types.launches import TraceModules

        if self._modules is None:
            self._modules = TraceModules(self._trace)
        return self._modules.get(module)
