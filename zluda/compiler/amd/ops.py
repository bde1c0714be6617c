"""AMD's TargetOps, put together from its parts."""

from __future__ import annotations

from zluda.compiler.amd.calls import CallOps


class AmdOps(CallOps):
    """A thread a lane: see :class:`~zluda.compiler.amd.machine.Machine`."""
