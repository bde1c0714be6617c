"""The process in which translated code runs, and the channel to it (design decision D10).

Owns :func:`start`, which executes a fresh Python process, has it map the wanted device addresses, set up a
driver over a device and confine itself; the channel between the two; and :class:`RunnerDied`, which is what a
caller sees of a crash or hang. May import ``zluda.driver`` and what stands below it.

Commands and results pass through shared memory as MessagePack frames (``channel.py`` documents the layout);
device memory is a shared memory file that both sides map, so reading it costs no round trip.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__all__ = ["Runner", "RunnerDied", "open_isolated", "start"]

# Loaded when first asked for: the runner process itself must stay small until its addresses are mapped.
_LAZY = {
    "Runner": "zluda.runner.near",
    "RunnerDied": "zluda.runner.errors",
    "open_isolated": "zluda.runner.isolated",
    "start": "zluda.runner.near",
}

if TYPE_CHECKING:
    from zluda.runner.errors import RunnerDied
    from zluda.runner.isolated import open_isolated
    from zluda.runner.near import Runner, start


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'zluda.runner' has no attribute {name!r}")
