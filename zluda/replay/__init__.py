"""Replaying: issue a trace's calls to a driver, and hold each launch against what NVIDIA's GPU computed.

Owns the player (``player``, ``launching``) with the handlers of replayable calls (``handlers``), the mapping
of recorded handles to live ones (``handles``), the address plan (``address_plan``), the memory of a replay
beside the record's (``memory``), the judging of what a call did (``judge``), recovery from a runner's death
(``recovery``) and writing a replay as a trace (``output``). May import ``report``, ``diff``, ``runner``,
``driver``, ``device``, ``ptx`` and ``tracefile``.

Trace → player → handler → driver in a runner process; after each launch and device-to-host copy the bytes
recorded against the bytes replayed → :class:`zluda.diff.results.LaunchResult`; all of them →
:class:`zluda.diff.results.ReplayResult`.

The package can be called: ``zluda.replay("trace.bin")`` is :func:`zluda.replay.api.replay`, whether or not
the package was imported before.
"""

from __future__ import annotations

import sys
import types
from typing import Any

from zluda.replay.api import replay

__all__ = ["replay"]


class _CallablePackage(types.ModuleType):
    """`zluda.replay` names this package once it is imported, and the function of the same name before."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return replay(*arguments, **options)


sys.modules[__name__].__class__ = _CallablePackage
