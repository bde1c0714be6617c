"""Tests marked ``needs_nvidia`` are skipped where no NVIDIA driver answers."""

from __future__ import annotations

import ctypes
import functools
import os

import pytest

# What is tested is this source, not what an earlier run of it left behind. Tests of the cache turn it on.
os.environ.setdefault("ZLUDA_CACHE_POLICY", "off")


@functools.cache
def nvidia_driver_answers() -> bool:
    """Whether ``libcuda.so.1`` is there and finds a GPU."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int()
    return library.cuInit(0) == 0 and library.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("needs_nvidia") and not nvidia_driver_answers():
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU and driver"))
