"""Record CUDA programs on NVIDIA GPUs, replay them through a PTX translation runtime, name what differs."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from zluda.errors import DeviceError, Error, LaunchError, PtxError, TraceError, UnsupportedError

__version__ = "0.1.0"

__all__ = [
    "DeviceError",
    "Error",
    "LaunchError",
    "PtxError",
    "TraceError",
    "UnsupportedError",
    "open_device",
    "open_trace",
    "replay",
]

# Loaded when first asked for, so that `import zluda` stays under 0.1 s.
_LAZY = {
    "open_device": ("zluda.device", "open_device"),
    "open_trace": ("zluda.tracefile", "open_trace"),
    "replay": ("zluda.replay", ""),  # the package itself, which can be called
}

if TYPE_CHECKING:
    from zluda.device import open_device
    from zluda.replay import replay
    from zluda.tracefile import open_trace


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        module, attribute = _LAZY[name]
        found = importlib.import_module(module)
        return getattr(found, attribute) if attribute else found
    raise AttributeError(f"module 'zluda' has no attribute {name!r}")
