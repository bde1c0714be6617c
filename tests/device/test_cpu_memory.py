"""The CPU device's memory: places, coalescing, sharing."""

from __future__ import annotations

import errno
import itertools
import mmap
import os
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zluda.device.cpu.memory import ALIGNMENT, GRANULE, Memory
from zluda.errors import DeviceError

FAR = 0x6E00_0000_0000


@pytest.fixture
def memory() -> Iterator[Memory]:
    memory = Memory([(FAR + 4096, 8192)], capacity=16 << 20)
    yield memory
    memory.close()


def test_allocations_are_aligned_zero_and_apart(memory: Memory) -> None:
    first, second = memory.allocate(100), memory.allocate(1)
    assert first % ALIGNMENT == second % ALIGNMENT == 0
    assert abs(first - second) >= ALIGNMENT
    assert memory.read(first, 100) == bytes(100)


def test_wanted_addresses_are_given(memory: Memory) -> None:
    assert memory.allocate(64, FAR + 512) == FAR + 512
    memory.write(FAR + 512, b"recorded")
    assert memory.read(FAR + 512, 8) == b"recorded"


def test_a_wanted_address_outside_the_reservations_is_mapped_for_it(memory: Memory) -> None:
    far = FAR + (1 << 40)
    assert memory.allocate(3 * GRANULE, far) == far
    memory.write(far + 3 * GRANULE - 1, b"x")


def test_a_taken_address_is_refused(memory: Memory) -> None:
    memory.allocate(64, FAR + 512)
    with pytest.raises(DeviceError, match="allocated already"):
        memory.allocate(64, FAR + 544)


def test_only_allocations_can_be_freed(memory: Memory) -> None:
    start = memory.allocate(1000)
    memory.free(start)
    for address in (start, start + 512):
        with pytest.raises(DeviceError, match="not the start of an allocation"):
            memory.free(address)


def test_accesses_outside_are_refused(memory: Memory) -> None:
    with pytest.raises(DeviceError, match="outside device memory"):
        memory.read(4096, 1)
    with pytest.raises(DeviceError, match="outside device memory"):
        memory.write(FAR + GRANULE - 1, b"ab")


def test_exhaustion_is_an_error(memory: Memory) -> None:
    with pytest.raises(DeviceError, match="out of device memory"):
        memory.allocate(1 << 40)


def test_another_mapping_of_the_file_sees_the_bytes(memory: Memory) -> None:
    start = memory.allocate(4096)
    memory.write(start, b"shared")
    assert os.pread(memory.fd, 6, memory.file_offset(start)) == b"shared"
    offset = memory.file_offset(start)
    page = offset - offset % mmap.ALLOCATIONGRANULARITY
    with mmap.mmap(memory.fd, 8192, offset=page) as other:
        other[offset - page : offset - page + 2] = b"SH"
    assert memory.read(start, 6) == b"SHared"


@given(st.lists(st.integers(1, 200_000), min_size=1, max_size=40), st.randoms())
@settings(max_examples=50, deadline=None)
def test_freed_blocks_coalesce(sizes: list[int], order: object) -> None:
    """Whatever is allocated and in whatever order it is freed, the arena is whole again."""
    memory = Memory(capacity=16 << 20)
    before = list(memory._free)
    starts = [memory.allocate(s) for s in sizes]
    spans = sorted((start, start + size) for start, size in zip(starts, sizes, strict=True))
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
    order.shuffle(starts)  # type: ignore[attr-defined]
    for start in starts:
        memory.free(start)
    assert memory._free == before
    memory.close()


def test_a_file_that_may_not_grow_is_a_device_error(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory(capacity=GRANULE)

    def refuse(descriptor: int, length: int) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "ftruncate", refuse)  # as in a confined runner
    with pytest.raises(DeviceError, match="cannot add 2097152 bytes of device memory at 0x600000000000"):
        memory.allocate(64, 0x6000_0000_0000)
    memory.close()
