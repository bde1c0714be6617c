"""AMD GPUs through AMD's HIP runtime, by hip-python.

Owns the binding (``runtime.py``: calls, errors as CUDA has them, version), memory at wanted addresses
(``memory.py``), streams and events (``streams.py``), and the device over them (``device.py``). May import
what ``zluda.device.amd`` may. Code objects go in as bytes, addresses and handles are integers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zluda.device.amd.hip.device import HipDevice

__all__ = ["HipDevice"]


def __getattr__(name: str) -> Any:
    # A runner reserves its addresses before anything of the compiler is imported.
    if name == "HipDevice":
        from zluda.device.amd.hip.device import HipDevice

        return HipDevice
    raise AttributeError(f"module 'zluda.device.amd.hip' has no attribute {name!r}")
