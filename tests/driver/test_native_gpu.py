"""The native driver and the ``cuda`` device on a real GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import gpu_smoke
import pytest


def has_gpu() -> bool:
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int()
    return library.cuInit(0) == 0 and library.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


pytestmark = pytest.mark.needs_nvidia


@pytest.mark.skipif(not has_gpu(), reason="no NVIDIA GPU: the native driver is not run")
@pytest.mark.parametrize(
    ("name", "check"),
    gpu_smoke.checks() if has_gpu() else [("none", lambda: "")],
    ids=lambda p: p if isinstance(p, str) else "",
)
def test_on_a_gpu(name: str, check: Callable[[], str]) -> None:
    assert check()
