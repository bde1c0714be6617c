"""AMD devices: code objects that run, on the built-in emulator.

Owns ``emulator/`` (machine code lifted to host code) and the device in front of it. May import
``zluda.compiler`` and ``zluda.device``'s protocol and memory. Code objects go in as bytes, device memory is
addressed by integers, as in :mod:`zluda.device.base`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zluda.device.amd.device import AmdDevice

__all__ = ["AmdDevice"]


def __getattr__(name: str) -> Any:
    # A runner maps its memory before anything of the compiler is imported.
    if name == "AmdDevice":
        from zluda.device.amd.device import AmdDevice

        return AmdDevice
    raise AttributeError(f"module 'zluda.device.amd' has no attribute {name!r}")
