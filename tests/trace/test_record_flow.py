"""Memory of launches that nobody waits for (``agent/flow.c``): on the stand-in driver; its kernel on the CPU
device.
"""

from __future__ import annotations

import ctypes
import random
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from recorded_scenes import Recorded
from test_record_memory import digest

import zluda
from zluda.trace import spec
from zluda.tracefile import Launch, Trace, open_trace

N, LAUNCHES, WRITTEN = 300_000, 60, 200_000
RECORD_BYTES = 513 * 128

Floats = NDArray[np.float32]


def expected() -> list[Floats]:
    """What `y` holds after each launch of the scene ``row``."""
    start = (np.arange(N) % 100).astype(np.float32)
    y, seen = np.ones(N, np.float32), []
    for i in range(LAUNCHES):
        n = 50_000 * (1 + i % 3)
        y[:n] += np.float32(i % 7) * start[:n]
        seen.append(y.copy())
        if i % 20 == 8:
            y[:25_000] = start[:25_000]
    return seen


def y_at(trace: Trace, launch: Launch, call: int) -> Floats:
    """What the trace says that the memory of a launch holds after a call."""
    address = int.from_bytes(launch.parameters[16:24], "little")
    return np.frombuffer(trace.memory_at(call).read(address, 4 * N), np.float32)


@pytest.mark.parametrize(("capture", "written"), [("outputs", False), ("full", False), ("full", True)])
def test_each_launch_of_a_row_has_its_memory_on_record(
    scene: Callable[..., Recorded], capture: str, written: bool
) -> None:
    """With copies, fills, another stream and memory that comes and goes in between. What another process
    writes (``written``) is found before the launch.
    """
    recorded = scene("row", str(LAUNCHES), *["written"] * written, capture=capture)
    assert recorded.status == 0
    with open_trace(recorded.trace) as trace:
        launches = list(trace.iter_launches())
        assert [launch.captured for launch in launches] == [True] * LAUNCHES
        assert trace.meta["launches_not_waited_for"] > LAUNCHES // 3
        assert trace.gaps == []
        for number, (launch, right) in enumerate(zip(launches, expected(), strict=True)):
            found = y_at(trace, launch, launch.call).copy()
            if written:
                assert y_at(trace, launch, launch.call - 1)[WRITTEN] == number
                found[WRITTEN] = 1  # the next one's may be there
            assert np.array_equal(found, right), f"launch {number}"


class Flow:
    """The kernel on the CPU device, over one ring."""

    RECORDS = 5

    def __init__(self, *pages: bytes) -> None:
        self.device: Any = zluda.open_device("cpu")
        self.kernel = self.device.load_module(spec.kernel_ptx("flow")).kernel("zluda_flow")
        self.memory = [
            self.device.array(np.frombuffer(data.ljust(65552, b"\xee"), np.uint8)) for data in pages
        ]
        self.sizes = [len(data) for data in pages]
        self.digests = self.device.array(np.zeros(2 * len(pages), np.uint64))
        self.ring = self.device.array(np.zeros(self.RECORDS * RECORD_BYTES, np.uint8))
        self.mark = self.device.array(np.zeros(2, np.uint64))

    def look(self, number: int) -> int:
        """Records taken by the looks so far."""
        places = zip(self.memory, self.sizes, range(len(self.sizes)), strict=True)
        segments = b"".join(
            struct.pack("<3Q", where.address, size, self.digests.address + 16 * index)
            for where, size, index in places
        )
        self.kernel.launch(
            grid=(len(self.sizes), 1, 1),
            block=(256, 1, 1),
            args=[segments.ljust(192, b"\0"), self.ring, self.RECORDS, self.mark, number],
        )
        taken, told = self.mark.numpy().tolist()
        assert told == number
        return int(taken)

    def records(self) -> dict[int, tuple[int, int, bytes]]:
        """By the address of the memory: in which record it is, its offset, its contents."""
        found, ring = {}, self.ring.numpy().tobytes()
        for index in range(self.RECORDS):
            record = ring[index * RECORD_BYTES : (index + 1) * RECORD_BYTES]
            length, base, offset = struct.unpack_from("<IQQ", record, 28)
            if length:
                found[base] = (index, offset, record[48 : 40 + length])
        return found


def test_pages_that_changed_go_into_records_of_the_ring_and_their_digests_are_kept(in_c: ctypes.CDLL) -> None:
    chance = random.Random(3)
    pages = [chance.randbytes(size) for size in (65536, 40_008, 9)]
    flow = Flow(*pages)
    assert flow.look(1) == 3
    found = flow.records()
    assert [found[one.address][1:] for one in flow.memory] == [(0, data) for data in pages]
    assert {index for index, _, _ in found.values()} == {0, 1, 2}
    digests = flow.digests.numpy().tobytes()
    assert [digests[16 * n : 16 * n + 16] for n in range(3)] == [digest(in_c, data) for data in pages]
    assert flow.look(2) == 3  # nothing changed


def test_records_are_taken_in_turn_round_the_ring() -> None:
    chance = random.Random(4)
    flow = Flow(*(chance.randbytes(size) for size in (65536, 24)))
    flow.look(1)
    for number in (2, 3, 4, 5):
        data = chance.randbytes(65552)
        flow.memory[0] = flow.device.array(np.frombuffer(data, np.uint8))
        assert flow.look(number) == number + 1
        assert flow.records()[flow.memory[0].address] == (number % Flow.RECORDS, 0, data[:65536])
