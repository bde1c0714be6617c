"""`zluda.replay`: the whole replay of one trace."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from zluda.errors import UnsupportedError

if TYPE_CHECKING:
    from zluda.diff.results import ReplayResult

Progress = Callable[[int, int], None]
"""Called with (launches and copies done, launches and copies in all)."""


def replay(
    path: str | os.PathLike[str],
    device: str = "auto",
    *,
    mode: str = "stream",
    numerics: str | None = None,
    output: str | os.PathLike[str] | None = None,
    select: str | Iterable[str] | None = None,
    progress: Progress | None = None,
) -> ReplayResult:
    """Replay the trace at ``path`` on ``device`` and compare every launch and device-to-host copy.

    ``mode="stream"`` runs the calls in their recorded order, each launch on the memory that the launches
    before it left. ``output`` writes the replayed memory as a trace. ``select`` (``17``, ``0-100/2``,
    ``kernel:regex``, ``@file``) limits which launches and copies run; the rest keep the record's result.
    Raises TraceError for a file that cannot be read, DeviceError for a device that is not there,
    UnsupportedError for an option of a later version.
    """
    if mode != "stream":
        raise UnsupportedError(f"mode {mode!r}", "replay: this version has mode 'stream'")
    raise UnsupportedError("replay")
