"""Tests marked ``needs_nvidia`` are skipped where no NVIDIA driver answers.

``shared_cache`` is for tests that replay the same traces as others do: a kernel cache that begins empty and
lives as long as the run. Tests that change the compiler must not use it.
"""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import tempfile

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


_SHARED = "TESTS_SHARED_DIRECTORY"
"""The environment variable that names the run's directory to the processes it is spread over."""


def pytest_configure() -> None:
    if _SHARED in os.environ:
        return
    place = os.environ[_SHARED] = tempfile.mkdtemp(prefix="zluda-tests-")
    # Hundreds of commands and runners are started: each is half a second quicker with its bytecode at hand.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = os.path.join(place, "bytecode")


def pytest_unconfigure() -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        shutil.rmtree(os.environ.pop(_SHARED), ignore_errors=True)


@pytest.fixture
def shared_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within: commands and replays find kernels that other tests of this run had compiled."""
    monkeypatch.setenv("ZLUDA_CACHE_DIR", os.path.join(os.environ[_SHARED], "cache"))
    monkeypatch.setenv("ZLUDA_CACHE_POLICY", "normal")
