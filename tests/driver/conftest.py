"""A translated driver on the CPU device; modules that need another device have a fixture of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from zluda.device.cpu import CpuDevice
from zluda.driver.translated import TranslatedDriver


@pytest.fixture
def driver() -> Iterator[TranslatedDriver]:
    driver = TranslatedDriver(CpuDevice())
    driver.cuInit(0)
    driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0))
    yield driver
    driver.close()
