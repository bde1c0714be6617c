"""``printf``, ``malloc`` and ``assert`` through the driver: limits, when output shows, what a failure is."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from zluda.device.cpu import CpuDevice
from zluda.driver import CudaError
from zluda.driver.translated import TranslatedDriver

PTX = (Path(__file__).parents[1] / "device" / "services" / "services.ptx").read_bytes()
PRINTF_FIFO_SIZE, MALLOC_HEAP_SIZE, STACK_SIZE = 1, 2, 0  # CUlimit
WORDS = "block 0 thread 0\n"


@pytest.fixture
def driver() -> Iterator[TranslatedDriver]:
    made = TranslatedDriver(CpuDevice(threads=1))
    made.cuInit(0)
    made.cuCtxSetCurrent(made.cuDevicePrimaryCtxRetain(0))
    yield made
    made.close()


def launch(driver: TranslatedDriver, name: str, parameters: bytes, *, threads: int = 1) -> None:
    function = driver.cuModuleGetFunction(driver.cuModuleLoadData(PTX), name)
    driver.cuLaunchKernel(function, (1, 1, 1), (threads, 1, 1), 0, 0, parameters)


def prints(driver: TranslatedDriver) -> None:
    launch(driver, "print_threads", struct.pack("<i", 1))


def test_output_waits_for_a_synchronisation(driver: TranslatedDriver) -> None:
    prints(driver)
    assert driver.take_output() == ("", "")
    driver.cuCtxSynchronize()
    assert driver.take_output() == (WORDS, "")
    assert driver.take_output() == ("", "")


@pytest.mark.parametrize(
    "how", ["stream", "event", "copy in", "copy out", "launch", "load and unload", "reset"]
)
def test_what_shows_output(driver: TranslatedDriver, how: str) -> None:
    memory, event = driver.cuMemAlloc(16), driver.cuEventCreate()
    prints(driver)
    {
        "stream": lambda: driver.cuStreamSynchronize(0),
        "event": lambda: driver.cuEventSynchronize(event),
        "copy in": lambda: driver.cuMemcpyHtoD(memory, bytes(16)),
        "copy out": lambda: driver.cuMemcpyDtoH(memory, 16),
        "launch": lambda: launch(driver, "free_one", bytes(8)),
        "load and unload": lambda: driver.cuModuleUnload(driver.cuModuleLoadData(PTX)),
        "reset": lambda: driver.cuDevicePrimaryCtxReset(0),
    }[how]()
    assert driver.take_output() == (WORDS, "")


def test_an_asynchronous_copy_shows_nothing(driver: TranslatedDriver) -> None:
    memory = driver.cuMemAlloc(16)
    prints(driver)
    driver.cuMemcpyHtoDAsync(memory, bytes(16), 0)
    assert driver.take_output() == ("", "")


def test_limits_size_the_buffer_and_the_heap(driver: TranslatedDriver) -> None:
    driver.cuCtxSetLimit(PRINTF_FIFO_SIZE, 1024)
    driver.cuCtxSetLimit(MALLOC_HEAP_SIZE, 1 << 20)
    launch(driver, "print_threads", struct.pack("<i", 1), threads=32)
    driver.cuCtxSynchronize()
    text, complaint = driver.take_output()
    assert text.splitlines() == [f"block 0 thread {thread}" for thread in range(16, 32)]
    assert "1024" in complaint
    pointers = driver.cuMemAlloc(16)
    launch(driver, "allocate_one", struct.pack("<QQi", pointers, 1 << 19, 2))
    assert 0 not in struct.unpack("<QQ", driver.cuMemcpyDtoH(pointers, 16))
    launch(driver, "allocate_one", struct.pack("<QQi", pointers, 64, 1))
    assert driver.cuMemcpyDtoH(pointers, 8) == bytes(8)


def test_limits_in_use_cannot_be_set(driver: TranslatedDriver) -> None:
    prints(driver)
    for limit in (PRINTF_FIFO_SIZE, MALLOC_HEAP_SIZE):
        with pytest.raises(CudaError) as caught:
            driver.cuCtxSetLimit(limit, 1 << 16)
        assert caught.value.name == "CUDA_ERROR_INVALID_VALUE"
    driver.cuCtxSetLimit(STACK_SIZE, 2048)
    assert driver.cuCtxGetLimit(PRINTF_FIFO_SIZE) == 7 << 20


def test_a_failed_assertion_is_an_error_that_stays(driver: TranslatedDriver) -> None:
    values, seen = driver.cuMemAlloc(8), driver.cuMemAlloc(8)
    driver.cuMemcpyHtoD(values, struct.pack("<ii", 1, -1))
    with pytest.raises(
        CudaError, match=r"services\.cu:\d+: void asserts.*Assertion `values\[i\] >= 0"
    ) as caught:
        launch(driver, "asserts", struct.pack("<QQ", values, seen), threads=2)
    assert caught.value.name == "CUDA_ERROR_ASSERT"
    assert caught.value.launch is not None and caught.value.launch.thread == (1, 0, 0)
    with pytest.raises(CudaError) as again:
        driver.cuCtxSynchronize()
    assert again.value.name == "CUDA_ERROR_ASSERT"
    assert driver.recover()
    driver.cuCtxSynchronize()


def test_a_double_free_fails_the_launch(driver: TranslatedDriver) -> None:
    with pytest.raises(CudaError) as caught:
        launch(driver, "free_one", struct.pack("<Q", 64))
    assert caught.value.name == "CUDA_ERROR_LAUNCH_FAILED"


def test_a_program_cannot_reach_the_hidden_variables(driver: TranslatedDriver) -> None:
    module = driver.cuModuleLoadData(PTX)
    with pytest.raises(CudaError) as caught:
        driver.cuModuleGetGlobal(module, "__zluda_printf")
    assert caught.value.name == "CUDA_ERROR_NOT_FOUND"
