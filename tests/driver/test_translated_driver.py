"""The translated driver does what CUDA's manual says, over a device whose kernels are Python."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from kernels import BROKEN, MODULE, add, floats, parameters
from python_device import PythonDevice

from zluda.device.base import Dim3
from zluda.driver import ENTRIES, CudaError, LaunchAttribute
from zluda.driver.translated import TranslatedDriver
from zluda.errors import LaunchError, PtxError, UnsupportedError

GLOBALS = ".global .align 4 .u32 counter = 7;\n"


def fault(device: PythonDevice, grid: Dim3, block: Dim3, packed: bytes) -> None:
    raise LaunchError("an access outside device memory", kernel="other", block=(1, 0, 0), address=8)


@pytest.fixture
def device() -> PythonDevice:
    return PythonDevice({"add": add, "other": fault})


@pytest.fixture
def driver(device: PythonDevice) -> Iterator[TranslatedDriver]:
    driver = TranslatedDriver(device)  # type: ignore[arg-type]
    driver.cuInit()
    driver.cuCtxCreate(0, 0)
    yield driver
    driver.close()


def refused(name: str, function: object, *arguments: object, **named: object) -> CudaError:
    with pytest.raises(CudaError) as caught:
        function(*arguments, **named)  # type: ignore[operator]
    assert caught.value.name == f"CUDA_ERROR_{name}"
    return caught.value


def test_every_entry_of_the_protocol_is_there() -> None:
    assert [name for name in ENTRIES if not callable(getattr(TranslatedDriver, name, None))] == []


class TestInitialisation:
    def test_nothing_works_before_cu_init(self, device: PythonDevice) -> None:
        fresh = TranslatedDriver(device)  # type: ignore[arg-type]
        assert refused("NOT_INITIALIZED", fresh.cuDeviceGetCount).call == "cuDeviceGetCount"
        assert fresh.cuDriverGetVersion() == 13000

    def test_flags_must_be_zero(self, driver: TranslatedDriver) -> None:
        refused("INVALID_VALUE", driver.cuInit, 1)

    def test_there_is_one_device(self, driver: TranslatedDriver) -> None:
        assert driver.cuDeviceGetCount() == 1
        assert driver.cuDeviceGet(0) == 0
        refused("INVALID_DEVICE", driver.cuDeviceGet, 1)
        assert len(driver.cuDeviceGetUuid(0)) == 16
        assert driver.cuDeviceGetAttribute(75, 0) == 9

    def test_nothing_works_after_close(self, driver: TranslatedDriver) -> None:
        driver.close()
        refused("DEINITIALIZED", driver.cuMemAlloc, 4)


class TestContexts:
    def test_the_stack(self, driver: TranslatedDriver) -> None:
        first = driver.cuCtxGetCurrent()
        second = driver.cuCtxCreate(0, 0)
        assert driver.cuCtxGetCurrent() == second != first
        assert driver.cuCtxPopCurrent() == second
        assert driver.cuCtxGetCurrent() == first
        driver.cuCtxPushCurrent(second)
        driver.cuCtxSetCurrent(0)  # pops
        assert driver.cuCtxGetCurrent() == first

    def test_without_one_calls_fail(self, driver: TranslatedDriver) -> None:
        driver.cuCtxPopCurrent()
        assert driver.cuCtxGetCurrent() == 0
        refused("INVALID_CONTEXT", driver.cuMemAlloc, 4)
        refused("INVALID_CONTEXT", driver.cuCtxPopCurrent)

    def test_current_belongs_to_the_thread(self, driver: TranslatedDriver) -> None:
        seen: list[int] = []
        thread = threading.Thread(target=lambda: seen.append(driver.cuCtxGetCurrent()))
        thread.start()
        thread.join()
        assert seen == [0] and driver.cuCtxGetCurrent() != 0

    def test_destroying_frees_what_it_held(self, driver: TranslatedDriver, device: PythonDevice) -> None:
        driver.cuMemAlloc(64)
        stream, event = driver.cuStreamCreate(), driver.cuEventCreate()
        driver.cuCtxDestroy(driver.cuCtxGetCurrent())
        assert device.memory == {}
        driver.cuCtxCreate(0, 0)
        refused("INVALID_HANDLE", driver.cuStreamQuery, stream)
        refused("INVALID_HANDLE", driver.cuEventQuery, event)

    def test_a_destroyed_one_on_another_stack_is_known_as_such(self, driver: TranslatedDriver) -> None:
        first = driver.cuCtxGetCurrent()
        driver.cuCtxCreate(0, 0)
        driver.cuCtxDestroy(first)
        driver.cuCtxPopCurrent()
        refused("CONTEXT_IS_DESTROYED", driver.cuCtxSynchronize)

    def test_the_primary_is_one_and_is_counted(self, driver: TranslatedDriver) -> None:
        primary = driver.cuDevicePrimaryCtxRetain(0)
        assert driver.cuDevicePrimaryCtxRetain(0) == primary
        assert driver.cuDevicePrimaryCtxGetState(0) == (0, True)
        refused("INVALID_CONTEXT", driver.cuCtxDestroy, primary)
        driver.cuDevicePrimaryCtxRelease(0)
        assert driver.cuDevicePrimaryCtxGetState(0)[1]
        driver.cuDevicePrimaryCtxRelease(0)
        assert not driver.cuDevicePrimaryCtxGetState(0)[1]
        refused("INVALID_CONTEXT", driver.cuDevicePrimaryCtxRelease, 0)

    def test_limits(self, driver: TranslatedDriver) -> None:
        driver.cuCtxSetLimit(0, 4096)
        assert driver.cuCtxGetLimit(0) == 4096
        refused("UNSUPPORTED_LIMIT", driver.cuCtxGetLimit, 99)
        refused("UNSUPPORTED_LIMIT", driver.cuCtxSetLimit, 7, 1)


class TestMemory:
    def test_copies_and_fills(self, driver: TranslatedDriver) -> None:
        a, b = driver.cuMemAlloc(64), driver.cuMemAlloc(64)
        driver.cuMemcpyHtoD(a, bytes(range(64)))
        driver.cuMemcpyDtoDAsync(b, a, 64, 0)
        assert driver.cuMemcpyDtoHAsync(b + 8, 8, 2) == bytes(range(8, 16))
        driver.cuMemsetD16(b, 0x1234, 2)
        driver.cuMemsetD32Async(b + 4, 0xDEADBEEF, 1, 0)
        driver.cuMemsetD8(b + 8, 0x1FF, 1)  # the low byte counts
        assert driver.cuMemcpyDtoH(b, 10) == bytes.fromhex("34123412efbeaddeff09")

    def test_addresses_as_requested(self, driver: TranslatedDriver) -> None:
        assert driver.cuMemAlloc(100, address=0x7F00_0000_0200) == 0x7F00_0000_0200
        refused("OUT_OF_MEMORY", driver.cuMemAlloc, 100, address=0x7F00_0000_0200)

    def test_ranges_must_lie_in_one_allocation(self, driver: TranslatedDriver) -> None:
        a = driver.cuMemAlloc(64)
        refused("INVALID_VALUE", driver.cuMemcpyHtoD, a + 60, bytes(8))
        refused("INVALID_VALUE", driver.cuMemcpyDtoH, 8, 4)
        refused("INVALID_VALUE", driver.cuMemsetD32, a + 2, 0, 1)
        assert driver.cuMemcpyDtoH(8, 0) == b""  # nothing is asked for

    def test_freeing(self, driver: TranslatedDriver) -> None:
        a = driver.cuMemAlloc(64)
        refused("INVALID_VALUE", driver.cuMemFree, a + 8)
        driver.cuMemFree(a)
        refused("INVALID_VALUE", driver.cuMemFree, a)
        refused("INVALID_VALUE", driver.cuMemcpyDtoH, a, 1)
        driver.cuMemFree(0)
        refused("INVALID_VALUE", driver.cuMemAlloc, 0)

    def test_page_locked_memory_is_apart(self, driver: TranslatedDriver) -> None:
        host = driver.cuMemHostAlloc(64, 0)
        refused("INVALID_VALUE", driver.cuMemFree, host)
        driver.cuMemcpyHtoD(host, b"x")
        driver.cuMemFreeHost(host)

    def test_pitch_and_ranges(self, driver: TranslatedDriver) -> None:
        address, pitch = driver.cuMemAllocPitch(100, 3, 4)
        assert pitch == 512
        assert driver.cuMemGetAddressRange(address + 700) == (address, 1536)
        refused("NOT_FOUND", driver.cuMemGetAddressRange, 8)
        free, total = driver.cuMemGetInfo()
        assert free == total - 1536


class TestModules:
    def test_a_kernel_runs(self, driver: TranslatedDriver) -> None:
        function = driver.cuModuleGetFunction(driver.cuModuleLoadData(MODULE.encode()), "add")
        a, b = driver.cuMemAlloc(8), driver.cuMemAlloc(8)
        driver.cuMemcpyHtoD(a, floats(1, 2))
        driver.cuMemcpyHtoD(b, floats(3, 4))
        driver.cuLaunchKernel(function, (1, 1, 1), (32, 1, 1), 0, 0, parameters(a, b, 2))
        assert driver.cuMemcpyDtoH(a, 8) == floats(4, 6)

    def test_a_library_is_a_module_and_a_kernel_a_function(self, driver: TranslatedDriver) -> None:
        library = driver.cuLibraryLoadData(MODULE.encode())
        kernel = driver.cuLibraryGetKernel(library, "add")
        assert driver.cuKernelGetFunction(kernel) == kernel
        assert driver.cuModuleGetFunction(driver.cuLibraryGetModule(library), "add") == kernel
        assert [(s.offset, s.size) for s in driver.parameter_layout(kernel)] == [(0, 8), (8, 8), (16, 4)]
        assert driver.cuFuncGetName(kernel) == "add"

    def test_a_library_needs_no_context(self, driver: TranslatedDriver) -> None:
        driver.cuCtxPopCurrent()
        driver.cuLibraryGetKernel(driver.cuLibraryLoadData(MODULE.encode()), "add")
        refused("INVALID_CONTEXT", driver.cuModuleLoadData, MODULE.encode())

    def test_unknown_names(self, driver: TranslatedDriver) -> None:
        module = driver.cuModuleLoadData(MODULE.encode())
        refused("NOT_FOUND", driver.cuModuleGetFunction, module, "nobody")
        refused("NOT_FOUND", driver.cuModuleGetGlobal, module, "nobody")
        refused("INVALID_HANDLE", driver.cuModuleGetFunction, module + 1, "add")

    def test_unloading_takes_its_functions(self, driver: TranslatedDriver) -> None:
        module = driver.cuModuleLoadData(MODULE.encode())
        function = driver.cuModuleGetFunction(module, "add")
        driver.cuModuleUnload(module)
        refused("INVALID_HANDLE", driver.cuFuncGetName, function)
        refused("INVALID_HANDLE", driver.cuModuleUnload, module)

    def test_globals_where_they_are_wanted(self, driver: TranslatedDriver) -> None:
        image = MODULE.replace(".address_size 64\n", ".address_size 64\n" + GLOBALS).encode()
        module = driver.cuModuleLoadData(image, globals_at={"counter": 0x7F00_0000_0400})
        assert driver.cuModuleGetGlobal(module, "counter") == (0x7F00_0000_0400, 4)
        assert driver.cuMemcpyDtoH(0x7F00_0000_0400, 4) == (7).to_bytes(4, "little")
        driver.cuMemcpyHtoD(0x7F00_0000_0400, bytes(4))
        refused("INVALID_VALUE", driver.cuMemcpyHtoD, 0x7F00_0000_0400, bytes(5))

    def test_one_bad_kernel_does_not_lose_the_others(self, driver: TranslatedDriver) -> None:
        module = driver.cuModuleLoadData((MODULE + BROKEN).encode())
        broken = driver.cuModuleGetFunction(module, "broken")
        driver.parameter_layout(driver.cuModuleGetFunction(module, "add"))
        with pytest.raises(PtxError, match="frobnicate"):
            driver.cuLaunchKernel(broken, (1, 1, 1), (1, 1, 1), 0, 0, bytes(8))

    def test_an_image_without_ptx(self, driver: TranslatedDriver) -> None:
        empty_fatbin = bytes.fromhex("50ed55ba01001000") + bytes(8)
        assert refused("NO_BINARY_FOR_GPU", driver.cuModuleLoadData, empty_fatbin).reason == "no-ptx"

    def test_attributes(self, driver: TranslatedDriver) -> None:
        function = driver.cuModuleGetFunction(driver.cuModuleLoadData(MODULE.encode()), "add")
        assert driver.cuFuncGetAttribute(0, function) == 1024
        assert driver.cuFuncGetAttribute(8, function) == 49152
        driver.cuFuncSetAttribute(function, 8, 100000)
        assert driver.cuKernelGetAttribute(8, function) == 100000
        refused("INVALID_VALUE", driver.cuFuncSetAttribute, function, 8, 1 << 20)
        refused("INVALID_VALUE", driver.cuFuncSetAttribute, function, 0, 1)
        refused("INVALID_VALUE", driver.cuFuncGetAttribute, 99, function)


class TestLaunches:
    @pytest.fixture
    def function(self, driver: TranslatedDriver) -> int:
        return driver.cuModuleGetFunction(driver.cuModuleLoadData(MODULE.encode()), "add")

    @pytest.mark.parametrize(
        ("grid", "block", "shared", "size"),
        [
            ((0, 1, 1), (1, 1, 1), 0, 20),
            ((1, 1, 1), (1025, 1, 1), 0, 20),
            ((1, 1, 1), (64, 32, 1), 0, 20),
            ((1, 1, 1), (1, 1, 1), 49153, 20),
            ((1, 1, 1), (1, 1, 1), 0, 19),
        ],
    )
    def test_what_a_gpu_refuses(
        self, driver: TranslatedDriver, function: int, grid: Dim3, block: Dim3, shared: int, size: int
    ) -> None:
        refused("INVALID_VALUE", driver.cuLaunchKernel, function, grid, block, shared, 0, bytes(size))
        driver.cuCtxSynchronize()  # it does not stick

    def test_a_dead_stream(self, driver: TranslatedDriver, function: int) -> None:
        refused("INVALID_HANDLE", driver.cuLaunchKernel, function, (1, 1, 1), (1, 1, 1), 0, 99, bytes(20))

    def test_attributes_that_a_kernel_can_see(self, driver: TranslatedDriver, function: int) -> None:
        a = driver.cuMemAlloc(8)

        def launch(number: int, value: bytes) -> None:
            attributes = [LaunchAttribute(number, value)]
            shape: Dim3 = (1, 1, 1)
            driver.cuLaunchKernel(function, shape, shape, 0, 0, parameters(a, a, 0), attributes=attributes)

        launch(4, b"".join(n.to_bytes(4, "little") for n in (1, 1, 1)))
        launch(6, (1).to_bytes(4, "little"))
        launch(2, bytes(64))
        launch(2, (1).to_bytes(64, "little"))
        with pytest.raises(UnsupportedError, match="4711"):
            launch(4711, b"")

    def test_an_unsupported_kernel_is_named_and_does_not_stick(self, driver: TranslatedDriver) -> None:
        image = MODULE.replace("add(", "exotic(", 1).encode()
        function = driver.cuModuleGetFunction(driver.cuModuleLoadData(image), "exotic")
        with pytest.raises(UnsupportedError, match="exotic"):
            driver.cuLaunchKernel(function, (1, 1, 1), (1, 1, 1), 0, 0, bytes(20))
        driver.cuCtxSynchronize()

    def test_what_the_device_refuses_does_not_stick(
        self, driver: TranslatedDriver, device: PythonDevice, function: int
    ) -> None:
        def refuse(*arguments: object) -> None:
            raise LaunchError("invalid configuration", kernel="add")

        device.kernels["add"] = refuse
        refused("INVALID_VALUE", driver.cuLaunchKernel, function, (1, 1, 1), (1, 1, 1), 0, 0, bytes(20))
        driver.cuCtxSynchronize()

    def test_a_kernel_that_fails_sticks_until_recovered(self, driver: TranslatedDriver) -> None:
        function = driver.cuModuleGetFunction(driver.cuModuleLoadData(MODULE.encode()), "other")
        error = refused(
            "ILLEGAL_ADDRESS", driver.cuLaunchKernel, function, (1, 1, 1), (1, 1, 1), 0, 0, bytes(20)
        )
        assert error.launch is not None and (error.launch.kernel, error.launch.block) == ("other", (1, 0, 0))
        later = refused("ILLEGAL_ADDRESS", driver.cuMemAlloc, 4)
        assert later.call == "cuMemAlloc" and later.launch is error.launch
        assert driver.recover()
        driver.cuMemAlloc(4)


class TestStreamsAndEvents:
    def test_streams(self, driver: TranslatedDriver) -> None:
        stream = driver.cuStreamCreateWithPriority(1, -99)
        assert driver.cuStreamGetFlags(stream) == 1
        assert driver.cuStreamGetPriority(stream) == driver.cuCtxGetStreamPriorityRange()[1]
        assert driver.cuStreamQuery(stream)
        driver.cuStreamDestroy(stream)
        refused("INVALID_HANDLE", driver.cuStreamSynchronize, stream)
        refused("INVALID_HANDLE", driver.cuStreamDestroy, 0)
        refused("INVALID_VALUE", driver.cuStreamCreate, 2)

    def test_events_keep_times(self, driver: TranslatedDriver) -> None:
        start, end = driver.cuEventCreate(), driver.cuEventCreate()
        refused("INVALID_HANDLE", driver.cuEventElapsedTime, start, end)
        driver.cuEventRecord(start, 0)
        driver.cuEventRecordWithFlags(end, 2, 0)
        assert 0 < driver.cuEventElapsedTime(start, end) < 1000
        assert driver.cuEventElapsedTime(end, start) < 0

    def test_events_without_times(self, driver: TranslatedDriver) -> None:
        event = driver.cuEventCreate(2)
        driver.cuEventRecord(event, 0)
        driver.cuStreamWaitEvent(0, event)
        assert driver.cuEventQuery(event)
        refused("INVALID_HANDLE", driver.cuEventElapsedTime, event, event)
        driver.cuEventDestroy(event)
        refused("INVALID_HANDLE", driver.cuEventRecord, event, 0)

    def test_a_handle_of_another_kind_is_refused(self, driver: TranslatedDriver) -> None:
        refused("INVALID_HANDLE", driver.cuEventQuery, driver.cuStreamCreate())


class TestPrimaryContext:
    def test_it_comes_back_under_its_handle(self, driver: TranslatedDriver) -> None:
        """As CUDA's does: the runtime makes the handle it knows current again after cudaDeviceReset."""
        handle = driver.cuDevicePrimaryCtxRetain(0)
        driver.cuDevicePrimaryCtxReset(0)
        refused("INVALID_CONTEXT", driver.cuCtxSetCurrent, handle)
        assert driver.cuDevicePrimaryCtxRetain(0) == handle
        driver.cuCtxSetCurrent(handle)
        assert driver.cuMemAlloc(16)
