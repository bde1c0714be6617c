"""Memory at wanted addresses by ``hipMemAddressReserve``, over a runtime that has it (HIP 6 and later)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from zluda.device.amd.hip.memory import GRANULE, HipMemory
from zluda.device.placement import Wherever
from zluda.device.results import CudaError
from zluda.errors import DeviceError

PLACE = 0x7F20_0000_0000
TAKEN = 0x7F30_0000_0000  # where this runtime has something of its own


class Runtime:
    """Keeps what it was asked for; ``failing`` is an entry that fails."""

    version_text = "6.4.0"

    def __init__(self, failing: str = "") -> None:
        self.failing = failing
        self.calls: list[tuple[Any, ...]] = []
        self.binding = SimpleNamespace(
            hipMemAllocationProp=lambda: SimpleNamespace(location=SimpleNamespace()),
            hipMemAccessDesc=lambda: SimpleNamespace(location=SimpleNamespace()),
        )

    def constant(self, kind: str, name: str) -> str:
        return name

    def call(self, entry: str, *arguments: Any) -> Any:
        self.calls.append((entry, *arguments))
        if entry == self.failing:
            raise CudaError("CUDA_ERROR_OUT_OF_MEMORY", entry, "hipErrorOutOfMemory (2)")
        match entry:
            case "hipMemAddressReserve":
                return arguments[2] + 0x1000_0000 if arguments[2] == TAKEN else arguments[2]
            case "hipMemCreate":
                return 77
            case "hipMalloc":
                return 0x5500_0000_0000 + len(self.calls) * GRANULE
        return None

    @property
    def entries(self) -> list[str]:
        return [call[0] for call in self.calls]


def memory(runtime: Runtime, *ranges: tuple[int, int]) -> HipMemory:
    return HipMemory(runtime, 1, "hip:1", ranges)  # type: ignore[arg-type]


def test_a_range_is_reserved_backed_and_opened_to_the_gpu() -> None:
    runtime = Runtime()
    memory(runtime, (PLACE + 512, 4096))
    (_, size, alignment, address, flags), create, mapped, access = runtime.calls
    assert (size, alignment, address, flags) == (GRANULE, 0, PLACE, 0)
    properties = create[2]
    assert (create[0], create[1], properties.type) == ("hipMemCreate", GRANULE, "hipMemAllocationTypePinned")
    assert (properties.location.type, properties.location.id) == ("hipMemLocationTypeDevice", 1)
    assert mapped == ("hipMemMap", PLACE, GRANULE, 0, 77, 0)
    assert access[:3] == ("hipMemSetAccess", PLACE, GRANULE) and access[4] == 1
    assert (access[3].location.id, access[3].flags) == (1, "hipMemAccessFlagsProtReadWrite")


def test_allocations_are_where_they_are_wanted() -> None:
    held = memory(Runtime(), (PLACE, 8192))
    assert held.allocate(4096, PLACE + 512) == PLACE + 512
    with pytest.raises(DeviceError, match="is taken"):
        held.allocate(512, PLACE + 1024)
    held.free(PLACE + 512)
    assert held.allocate(512, PLACE + 1024) == PLACE + 1024


def test_freeing_waits_for_the_gpu_as_hip_free_does() -> None:
    runtime = Runtime()
    held = memory(runtime, (PLACE, 8192))
    held.free(held.allocate(4096, PLACE))
    assert runtime.entries[-1] == "hipDeviceSynchronize"


def test_an_address_that_hip_does_not_give_is_refused_with_its_offer() -> None:
    runtime = Runtime()
    held = memory(runtime, (TAKEN, 4096), (PLACE, 4096))
    assert ("hipMemAddressFree", TAKEN + 0x1000_0000, GRANULE) in runtime.calls
    with pytest.raises(DeviceError, match=f"{TAKEN:#x}.* cannot be had: it offers 0x7f3010000000"):
        held.allocate(4096, TAKEN)
    assert held.allocate(4096, PLACE) == PLACE  # the other range is there


def test_a_variable_goes_elsewhere_instead() -> None:
    variables = Wherever(memory(Runtime(), (PLACE, 4096)))
    assert variables.allocate(64, PLACE + 64) == PLACE + 64
    assert variables.allocate(64, TAKEN) >> 40 == 0x55
    assert variables.allocate(64, None) >> 40 == 0x55


@pytest.mark.parametrize(
    ("failing", "undone"),
    [
        ("hipMemCreate", ["hipMemAddressFree"]),
        ("hipMemMap", ["hipMemRelease", "hipMemAddressFree"]),
        ("hipMemSetAccess", ["hipMemUnmap", "hipMemRelease", "hipMemAddressFree"]),
    ],
)
def test_what_fails_half_way_is_undone(failing: str, undone: list[str]) -> None:
    runtime = Runtime(failing)
    held = memory(runtime, (PLACE, 4096))
    assert runtime.entries[runtime.entries.index(failing) + 1 :] == undone
    with pytest.raises(DeviceError, match=f"{failing}.*hipErrorOutOfMemory"):
        held.allocate(4096, PLACE)


def test_closing_gives_everything_back() -> None:
    runtime = Runtime()
    held = memory(runtime, (PLACE, 4096))
    plain = held.allocate(64)
    before = len(runtime.calls)
    held.close()
    held.close()
    assert runtime.calls[before:] == [
        ("hipFree", plain),
        ("hipMemUnmap", PLACE, GRANULE),
        ("hipMemRelease", 77),
        ("hipMemAddressFree", PLACE, GRANULE),
    ]


def test_only_what_was_allocated_is_freed() -> None:
    with pytest.raises(DeviceError, match="0x1234 is not the start of an allocation"):
        memory(Runtime()).free(0x1234)
