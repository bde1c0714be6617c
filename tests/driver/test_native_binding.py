"""The binding to libcuda without a GPU: its table against CUDA's headers, the rest on a fake library."""

from __future__ import annotations

import ctypes
import importlib.resources
import json
import struct
from typing import Any

import pytest

from zluda.compiler.tensor_map import Tensor
from zluda.device.cuda import arena, images, launching, libcuda
from zluda.device.cuda.arena import GRANULE, Arena
from zluda.driver import ENTRIES, CudaError, LaunchAttribute
from zluda.driver.native import NativeDriver
from zluda.errors import DeviceError, UnsupportedError

# C type (pointers aside) → letter in the binding's table.
LETTERS = {
    "CUdeviceptr": "Q",
    "unsigned long long": "Q",
    "CUmemGenericAllocationHandle": "Q",
    "size_t": "Z",
    "unsigned int": "I",
    "unsigned short": "H",
    "unsigned char": "B",
    "int": "i",
    **dict.fromkeys(("CUdevice", "CUresult", "CUlimit", "CUfunc_cache", "CUdevice_attribute"), "i"),
    **dict.fromkeys(("CUfunction_attribute", "CUmemAllocationGranularity_flags"), "i"),
    **dict.fromkeys(("CUarray_format", "CUaddress_mode", "CUfilter_mode"), "i"),
    **dict.fromkeys(("CUtexObject", "CUsurfObject"), "Q"),
    "cuuint32_t": "I",
    **{f"CUtensorMap{kind}": "i" for kind in ("DataType", "Interleave", "Swizzle", "L2promotion")},
    "CUtensorMapFloatOOBfill": "i",
    **dict.fromkeys(("CUarray", "CUmipmappedArray", "CUtexref", "CUsurfref"), "p"),
    "float": "f",
    **dict.fromkeys(
        ("CUcontext", "CUmodule", "CUlibrary", "CUfunction", "CUkernel", "CUstream", "CUevent"), "p"
    ),
}
TABLE = json.loads(importlib.resources.files("zluda.driver").joinpath("driver_api.json").read_text())[
    "functions"
]


@pytest.mark.parametrize("entry", libcuda.ENTRIES)
def test_arguments_are_those_of_the_header(entry: str) -> None:
    symbol, letters = libcuda.ENTRIES[entry]
    assert symbol in TABLE, f"the header declares no {symbol}"
    types = [parameter["type"] for parameter in TABLE[symbol]["parameters"]]
    assert len(types) == len(letters)
    for kind, letter in zip(types, letters, strict=True):
        assert letter in "ops" if kind.endswith("*") else letter == LETTERS[kind], (kind, letter)


def test_every_entry_of_the_protocol_is_native() -> None:
    driver = NativeDriver.__new__(NativeDriver)
    driver._library = FakeLibrary()  # type: ignore[assignment]
    assert [name for name in ENTRIES if not callable(getattr(driver, name, None))] == []
    with pytest.raises(AttributeError, match="cuNothing"):
        driver.cuNothing()


class FakeLibrary:
    """Stands for LibCuda: notes calls, gives addresses as wanted, fails where told."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.fail: dict[str, int] = {}
        self.elsewhere = 0  # how many reservations are moved by this driver

    def result(self, entry: str, *arguments: Any) -> int:
        self.calls.append((entry, arguments))
        return self.fail.get(entry, 0)

    def call(self, entry: str, *arguments: Any) -> None:
        code = self.result(entry, *arguments)
        if code:
            raise CudaError(code, entry)

    def get(self, entry: str, kind: type[Any], *arguments: Any) -> int:
        self.call(entry, *arguments)
        if entry == "cuMemAddressReserve":
            self.elsewhere -= 1
            return int(arguments[2]) + (GRANULE if self.elsewhere >= 0 else 0)
        return 0x77

    def names(self) -> list[str]:
        return [name for name, _ in self.calls]


class TestArena:
    BASE = 0x7F12_3440_0000

    def make(self, library: FakeLibrary) -> Arena:
        return Arena(library, 0, [(self.BASE, 2 * GRANULE)])  # type: ignore[arg-type]

    def test_reserves_backs_and_gives_access(self) -> None:
        library = FakeLibrary()
        made = self.make(library)
        assert library.names() == ["cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess"]
        made.close()
        made.close()
        assert library.names()[4:] == ["cuMemUnmap", "cuMemRelease", "cuMemAddressFree"]

    def test_claims_do_not_overlap(self) -> None:
        made = self.make(FakeLibrary())
        assert made.claim(self.BASE + 512, 512) == self.BASE + 512
        for address, size in ((0, 513), (512, 1), (1023, 1), (0, 4096)):
            with pytest.raises(CudaError, match="taken"):
                made.claim(self.BASE + address, size)
        made.claim(self.BASE, 512)
        made.claim(self.BASE + 1024, 512)
        assert made.holding(self.BASE + 600) == (self.BASE + 512, 512)
        assert made.give_back(self.BASE + 512) and not made.give_back(self.BASE + 512)
        assert made.holding(self.BASE + 600) is None
        made.claim(self.BASE + 700, 100)

    def test_claims_lie_in_a_range(self) -> None:
        made = self.make(FakeLibrary())
        with pytest.raises(CudaError, match="no reserved range"):
            made.claim(self.BASE + 2 * GRANULE - 1, 2)

    def test_another_address_than_wanted_is_an_error_and_leaves_nothing(self) -> None:
        library = FakeLibrary()
        library.elsewhere = 99
        with pytest.raises(
            DeviceError, match=r"4194304 bytes at 0x7f1234400000 \(it offers 0x7f1234600000\)"
        ):
            self.make(library)
        assert library.names() == ["cuMemAddressReserve", "cuMemAddressFree"] * 2

    def test_reservations_begin_at_32_mib_where_the_driver_wants_that(self) -> None:
        library = FakeLibrary()
        places = [(self.BASE, GRANULE), (self.BASE + 4 * GRANULE, GRANULE)]  # both in the same 32 MiB
        Arena(library, 0, places).close()  # type: ignore[arg-type]
        whole = (32 << 20, 0, 0x7F12_3400_0000, 0)
        assert [a for n, a in library.calls if n == "cuMemAddressReserve"] == [whole]
        assert [a[:2] for n, a in library.calls if n == "cuMemMap"] == places
        assert library.calls[-1] == ("cuMemAddressFree", (0x7F12_3400_0000, 32 << 20))

    def test_a_smaller_step_where_the_larger_is_not_given(self) -> None:
        library = FakeLibrary()
        library.elsewhere = 1
        self.make(library)
        assert library.names()[:3] == ["cuMemAddressReserve", "cuMemAddressFree", "cuMemAddressReserve"]
        assert library.calls[2][1] == (2 * GRANULE, 0, self.BASE, 0)

    @pytest.mark.parametrize("entry", ["cuMemCreate", "cuMemMap", "cuMemSetAccess"])
    def test_a_failure_half_way_leaves_nothing(self, entry: str) -> None:
        library = FakeLibrary()
        library.fail[entry] = 2
        with pytest.raises(CudaError, match="OUT_OF_MEMORY"):
            self.make(library)
        undone = {
            "cuMemMap": "cuMemUnmap",
            "cuMemCreate": "cuMemRelease",
            "cuMemAddressReserve": "cuMemAddressFree",
        }
        for done, undo in undone.items():
            succeeded = done in library.names() and done != entry
            assert (undo in library.names()) == succeeded, (done, library.names())

    def test_structures_are_as_long_as_the_header_says(self) -> None:
        assert (arena._PROPERTIES.size, arena._ACCESS.size) == (32, 12)
        assert (launching._CONFIG.size, launching._ATTRIBUTE.size) == (56, 72)


class TestLaunch:
    def test_parameters_pass_as_one_buffer(self) -> None:
        library, seen = FakeLibrary(), []

        def result(entry: str, *arguments: Any) -> int:
            kind, address, size_kind, size_at, end = list(arguments[-1])
            size = ctypes.c_size_t.from_address(size_at).value
            seen.append((entry, kind, size_kind, end, ctypes.string_at(address, size)))
            return 0

        library.result = result  # type: ignore[method-assign]
        launching.launch(library, 5, (1, 2, 3), (4, 5, 6), 7, 8, b"abcdefgh")  # type: ignore[arg-type]
        assert seen == [("cuLaunchKernel", 1, 2, None, b"abcdefgh")]

    def test_attributes_make_a_configuration(self) -> None:
        library, seen = FakeLibrary(), []

        def result(entry: str, *arguments: Any) -> int:
            *words, stream, at, count = struct.unpack("<7I4xQQI4x", arguments[0].raw)
            seen.append((entry, words, stream, ctypes.string_at(at, 72 * count), arguments[3]))
            return 0

        library.result = result  # type: ignore[method-assign]
        attribute = LaunchAttribute(4, bytes([2, 0, 0, 0]))
        launching.launch(library, 5, (1, 2, 3), (4, 5, 6), 7, 8, b"", [attribute])  # type: ignore[arg-type]
        packed = bytes([4]) + bytes(7) + bytes([2]) + bytes(63)
        assert seen == [("cuLaunchKernelEx", [1, 2, 3, 4, 5, 6, 7], 8, packed, None)]


class TestImages:
    def test_text_ends_with_a_nul(self) -> None:
        image = images.Image(b".version 8.0")
        assert ctypes.string_at(image.address, 13) == b".version 8.0\0"

    def test_a_fatbin_is_wrapped_for_a_library_alone(self) -> None:
        fatbin = bytes.fromhex("50ed55ba01001000") + bytes(8)
        image = images.Image(fatbin)
        magic, version, data, more = struct.unpack("<IIQQ", ctypes.string_at(image.wrapped, 24))
        assert (magic, version, more) == (0x466243B1, 1, 0)
        assert ctypes.string_at(data, 16) == fatbin


class TestDriver:
    @pytest.fixture
    def library(self, monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
        library = FakeLibrary()
        monkeypatch.setattr(libcuda, "load", lambda: library)
        return library

    def test_addresses_are_reserved_by_cu_init_and_used(self, library: FakeLibrary) -> None:
        driver = NativeDriver(1, reservations=[(TestArena.BASE, GRANULE)])
        driver.cuInit()
        assert library.names()[:3] == ["cuInit", "cuDeviceGet", "cuMemAddressReserve"]
        assert driver.cuMemAlloc(64, address=TestArena.BASE + 512) == TestArena.BASE + 512
        assert driver.cuMemGetAddressRange(TestArena.BASE + 520) == (TestArena.BASE + 512, 64)
        driver.cuMemFree(TestArena.BASE + 512)
        assert "cuMemFree" not in library.names()
        driver.cuMemFree(0x77)
        assert library.calls[-1] == ("cuMemFree", (0x77,))
        driver.close()
        driver.close()

    def test_the_gpu_is_device_zero(self, library: FakeLibrary) -> None:
        driver = NativeDriver(3)
        with pytest.raises(CudaError, match="NOT_INITIALIZED"):
            driver.cuDeviceGet(0)
        driver.cuInit()
        assert driver.cuDeviceGetCount() == 1 and driver.cuDeviceGet(0) == 0x77
        with pytest.raises(CudaError, match="INVALID_DEVICE"):
            driver.cuDeviceGet(1)

    def test_globals_cannot_be_placed(self, library: FakeLibrary) -> None:
        with pytest.raises(UnsupportedError, match="module variables"):
            NativeDriver(0).cuModuleLoadData(b".version", globals_at={"x": 512})

    def test_clusters_are_asked_for_by_a_configuration(
        self, library: FakeLibrary, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen: list[tuple[Any, ...]] = []

        def get(entry: str, kind: type[Any], function: int, config: Any) -> int:
            *words, stream, at, count = struct.unpack("<7I4xQQI4x", config.raw)
            seen.append((entry, function, words, stream, ctypes.string_at(at, 72 * count)))
            return 3

        monkeypatch.setattr(library, "get", get)
        driver = NativeDriver(0)
        assert driver.cuOccupancyMaxActiveClusters(5, (64, 2, 1), 100, (4, 2, 1)) == 3
        assert driver.cuOccupancyMaxPotentialClusterSize(5, (64, 2, 1), 100) == 3
        shape = struct.pack("<i4x3I52x", 4, 4, 2, 1)  # CLUSTER_DIMENSION
        assert seen == [
            ("cuOccupancyMaxActiveClusters", 5, [4, 2, 1, 64, 2, 1, 100], 0, shape),
            ("cuOccupancyMaxPotentialClusterSize", 5, [1, 1, 1, 64, 2, 1, 100], 0, b""),
        ]

    def test_tensor_maps_are_described_and_read_back(
        self, library: FakeLibrary, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen: list[tuple[Any, ...]] = []

        def call(entry: str, place: int, *arguments: Any) -> None:
            assert place % 64 == 0
            seen.append((entry, *(list(a) if isinstance(a, ctypes.Array) else a for a in arguments)))
            ctypes.memmove(place, entry.encode(), len(entry))

        monkeypatch.setattr(library, "call", call)
        driver, tensor = NativeDriver(0), Tensor(7, 1 << 40, [64, 32, 9], [256, 8192], [1, 2, 1], 0, 3, 2, 1)
        made = driver.cuTensorMapEncodeTiled(tensor, [16, 8, 1])
        assert made == b"cuTensorMapEncodeTiled".ljust(128, b"\0")
        assert len(driver.cuTensorMapEncodeIm2col(tensor, [-1], [2], 16, 24)) == 128
        assert driver.cuTensorMapReplaceAddress(b"\1" * 128, 512)[32:] == b"\1" * 96
        shared = ([64, 32, 9], [256, 8192])
        assert seen == [
            ("cuTensorMapEncodeTiled", 7, 3, 1 << 40, *shared, [16, 8, 1], [1, 2, 1], 0, 3, 2, 1),
            ("cuTensorMapEncodeIm2col", 7, 3, 1 << 40, *shared, [-1], [2], 16, 24, [1, 2, 1], 0, 3, 2, 1),
            ("cuTensorMapReplaceAddress", 512),
        ]

    def test_a_kernels_failure_names_it(self, library: FakeLibrary) -> None:
        driver = NativeDriver(0)
        driver._names[5] = "guilty"
        driver.cuLaunchKernel(5, (1, 1, 1), (1, 1, 1), 0, 0, b"")
        library.fail["cuCtxSynchronize"] = 700
        with pytest.raises(CudaError) as caught:
            driver.cuCtxSynchronize()
        assert caught.value.launch is not None and caught.value.launch.kernel == "guilty"
        assert not driver.recover()
        calls = len(library.calls)
        driver.close()
        assert len(library.calls) == calls  # a spoilt context refuses whatever is asked of it


def test_without_a_driver_the_error_says_what_to_install() -> None:
    with pytest.raises(DeviceError, match="install NVIDIA's driver"):
        libcuda.LibCuda("libcuda-that-is-nowhere.so.1")
