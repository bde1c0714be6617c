"""Names of recorded driver functions: their suffixes, and what a call without a handler does."""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

from zluda.driver.table import driver_api
from zluda.tracefile.libraries import library_of
from zluda.tracefile.subset import STATE_CALL

_SUFFIXES = re.compile(r"(?:_v\d+)?(?:_pt[sd][zs])?$")


class EntryName(NamedTuple):
    """``cuMemcpyHtoDAsync_v2_ptsz`` is entry ``cuMemcpyHtoDAsync`` with the per-thread default stream."""

    base: str
    per_thread: bool


@functools.cache
def entry_name(function: str) -> EntryName:
    """Split a recorded function's name."""
    return EntryName(_SUFFIXES.sub("", function), function.endswith(("_ptsz", "_ptds")))


@functools.cache
def _effects() -> dict[str, str]:
    functions = driver_api()["functions"]
    return {entry_name(name).base: row["effect"] for name, row in functions.items()}


# Counted as effects in CUDA's table, but nothing that a launch computes depends on them.
_HARMLESS = {
    "cuGetExportTable": "hands out private tables; calls through them are not recorded",
    "cuCtxEnablePeerAccess": "one device is replayed",
    "cuCtxDisablePeerAccess": "one device is replayed",
    "cuDeviceGetMemPool": "gives a handle; what is allocated from it is on record",
    "cuPointerSetAttribute": "changes how copies synchronise, and a replay's always do",
    "cuMemPoolGetAccess": "only asks",
    STATE_CALL: "stands for calls that were cut away; memory after it is on record",
}


def changes_state(function: str) -> bool:
    """Whether a call that has no handler may have changed what later launches compute."""
    if function.startswith("nvtx"):  # what the program says of itself
        return False
    base = entry_name(function).base
    if library_of(function) is not None:  # the driver calls inside it are on record
        return False
    return base not in _HARMLESS and _effects().get(base, "effect") == "effect"
