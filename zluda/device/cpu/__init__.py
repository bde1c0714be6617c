"""The CPU device: kernels compiled to host vector code, memory in a memfd.

Owns device memory (``memory.py``), loaded modules (``code.py``), the native thread pool (``pool.py``) and
the device itself (``device.py``). May import ``zluda.compiler`` and below. Everything is in this process;
:mod:`zluda.runner` puts it into one of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zluda.device.cpu.device import CpuDevice
    from zluda.device.cpu.memory import Memory

__all__ = ["CpuDevice", "Memory"]


def __getattr__(name: str) -> Any:
    # A runner maps its memory before anything of the compiler is imported.
    if name == "CpuDevice":
        from zluda.device.cpu.device import CpuDevice

        return CpuDevice
    if name == "Memory":
        from zluda.device.cpu.memory import Memory

        return Memory
    raise AttributeError(f"module 'zluda.device.cpu' has no attribute {name!r}")
