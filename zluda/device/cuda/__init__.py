"""NVIDIA GPUs through their own driver.

Owns the binding to ``libcuda.so.1`` (``libcuda.py``), memory at wanted addresses (``arena.py``) and the
device behind ``open_device("cuda:N")`` (``device.py``). ``zluda.driver.native`` uses the same binding.

The binding is ctypes rather than cuda-bindings: a hundred entries with plain arguments, no package to install
on the machine of a GPU, and the driver's symbols by their versioned names, as a record holds them.
"""

from __future__ import annotations

from zluda.device.cuda.device import CudaDevice

__all__ = ["CudaDevice"]
