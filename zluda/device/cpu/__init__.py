"""The CPU device: kernels compiled to host vector code, memory in a memfd.

Owns device memory (``memory.py``), loaded modules (``code.py``), the native thread pool (``pool.py``) and
the device itself (``device.py``). May import ``zluda.compiler`` and below. Everything is in this process;
:mod:`zluda.runner` puts it into one of its own.
"""

from zluda.device.cpu.device import CpuDevice
from zluda.device.cpu.memory import Memory

__all__ = ["CpuDevice", "Memory"]
