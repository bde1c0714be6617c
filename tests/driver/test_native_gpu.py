"""The native driver and the ``cuda`` device on a real GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import gpu_smoke
import pytest


def no_gpu() -> str:
    """Why there is none to be used; empty where there is one."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return f"no NVIDIA driver ({error})"
    if error := library.cuInit(0):
        return f"NVIDIA's driver is there, but cuInit answers {error}"
    count = ctypes.c_int()
    library.cuDeviceGetCount(ctypes.byref(count))
    return "" if count.value else "NVIDIA's driver finds no GPU"


WHY = no_gpu()

pytestmark = pytest.mark.needs_nvidia


@pytest.mark.skipif(bool(WHY), reason=f"{WHY}: the native driver is not run")
@pytest.mark.parametrize(
    ("name", "check"),
    gpu_smoke.checks() if not WHY else [("none", lambda: "")],
    ids=lambda p: p if isinstance(p, str) else "",
)
def test_on_a_gpu(name: str, check: Callable[[], str]) -> None:
    assert check()
