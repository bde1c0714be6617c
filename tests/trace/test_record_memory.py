"""Every way to hold memory, recorded on the stand-in driver and replayed on the CPU."""

from __future__ import annotations

import ctypes
import random
import struct
import subprocess
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import pytest
from recorded_scenes import SOURCES, Recorded, StandIn, run_trace

import zluda
from zluda.diff.results import Verdict
from zluda.tracefile import AllocationKind, Trace, open_trace

N = 16384
BYTES = 4 * N


@pytest.fixture(scope="module")
def record(standin: StandIn, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Recorded]:
    """Record a scene of the program, once."""
    app = standin.directory / "memory_kinds"
    flags = [f"-L{standin.directory}", "-l:libcuda.so.1", f"-Wl,-rpath,{standin.directory}"]
    command = ["cc", "-O1", "-w", str(SOURCES / "memory_kinds.c"), "-o", str(app), *flags]
    subprocess.run(command, check=True)
    made: dict[tuple[str, str], Recorded] = {}

    def run(scene: str, capture: str = "outputs") -> Recorded:
        key = (scene, capture)
        if key not in made:
            trace = tmp_path_factory.mktemp(scene) / "trace.bin"
            made[key] = run_trace(trace, str(app), scene, capture=capture)
            assert made[key].status == 0, made[key].errors
        return made[key]

    return run


Record = Callable[..., Recorded]


def of_kind(trace: Trace, kind: AllocationKind) -> list[int]:
    return [a.id for a in trace.allocations if a.kind is kind]


def number(trace: Trace, allocation: int, call: int, index: int, **options: bool) -> float:
    data, known = trace.read_allocation(allocation, call, 4 * index, 4, **options)
    assert known is None
    return float(struct.unpack("<f", data)[0])


def launches(trace: Trace) -> list[int]:
    return [launch.call for launch in trace.iter_launches()]


@pytest.mark.parametrize("scene", ["managed", "host", "pools", "mapped", "opened"])
def test_every_kind_of_memory_is_replayed(record: Record, scene: str) -> None:
    result = zluda.replay(record(scene).trace, device="cpu")
    found = [one for one in result.results if one.verdict is not Verdict.IDENTICAL]
    assert not found and result.results
    assert not result.meta["not_replayed"]


@pytest.mark.parametrize(
    ("scene", "kind"), [("managed", AllocationKind.MANAGED), ("host", AllocationKind.HOST)]
)
def test_what_the_host_wrote_without_a_call_is_found_before_the_next_launch(
    record: Record, scene: str, kind: AllocationKind
) -> None:
    with open_trace(record(scene).trace) as trace:
        shared = of_kind(trace, kind)[0]
        first, _, third, fourth = launches(trace)[:4]
        assert number(trace, shared, first - 1, 7) == 1
        assert number(trace, shared, first, 7, as_left=True) == 1
        assert number(trace, shared, first, 7) == 5  # as the next launch found it
        assert trace.pages(first) and {p.allocation for p in trace.pages(first)} != {shared}
        assert [p.allocation for p in trace.found_pages(first)] == [shared]
        assert number(trace, shared, third, 3, as_left=True) == 7
        assert number(trace, shared, fourth - 1, 3) == 8
        assert not [gap for gap in trace.gaps if gap.kind == "memory"]


def test_registered_memory_is_part_of_what_was_registered(record: Record) -> None:
    with open_trace(record("host").trace) as trace:
        pinned, registered = (trace.allocations[key - 1] for key in of_kind(trace, AllocationKind.HOST))
        assert (pinned.size, registered.size) == (BYTES, BYTES)
        assert registered.base % 16 == 4
        assert pinned.died is not None and registered.died is not None


def test_pool_memory_of_one_address_has_two_lives(record: Record) -> None:
    with open_trace(record("pools").trace) as trace:
        first, _, again = (trace.allocations[key - 1] for key in of_kind(trace, AllocationKind.POOL))
        assert (first.base, first.died is not None) == (again.base, True)
        assert (first.died or 0) <= again.born


def test_mapped_memory_is_reached_over_its_seams(record: Record) -> None:
    with open_trace(record("mapped").trace) as trace:
        near, beside, apart, moved = of_kind(trace, AllocationKind.VIRTUAL)
        untouched, over_seam, from_apart, from_moved = launches(trace)
        assert not [g for g in trace.gaps if g.kind == "memory"]
        assert {p.allocation for p in trace.pages(untouched)}.isdisjoint({near, beside, apart})
        assert {p.allocation for p in trace.pages(over_seam)} == {near, beside}
        assert number(trace, beside, over_seam, 0) == 0 + 2 * (N // 2 % 1000)
        assert number(trace, apart, from_apart, 0) == N // 2 % 1000
        assert number(trace, moved, from_moved, 0) == N // 2 % 1000  # it kept what it held
        lives = [trace.allocations[key - 1] for key in (near, beside, apart, moved)]
        assert [one.died is not None for one in lives] == [True] * 4


def test_memory_at_two_addresses_is_recorded_at_both_and_replayed_at_none(record: Record) -> None:
    path = record("twice").trace
    with open_trace(path) as trace:
        first, second = of_kind(trace, AllocationKind.VIRTUAL)
        writing, _ = launches(trace)
        assert number(trace, first, writing, 10) == number(trace, second, writing, 10) == 20
    result = zluda.replay(path, device="cpu")
    assert [one.verdict for one in result.results] == [Verdict.IDENTICAL, Verdict.GAP, Verdict.IDENTICAL]
    assert "mapped at" in result.results[1].reason


def test_physical_memory_that_another_process_has_is_looked_at_before_each_launch(record: Record) -> None:
    path = record("shared").trace
    with open_trace(path) as trace:
        exported, imported = of_kind(trace, AllocationKind.VIRTUAL)
        _, second, third, fourth = launches(trace)
        assert number(trace, exported, second - 1, 4) == 0 and number(trace, exported, third - 1, 4) == 8
        assert number(trace, imported, second, 4, as_left=True) == 0
        assert number(trace, imported, fourth - 1, 4) == 9
        (gap,) = (gap for gap in trace.gaps if gap.kind == "memory")
        assert "made elsewhere" in gap.text and gap.call == trace.allocations[imported - 1].born
        others = {gap.kind for gap in trace.gaps} - {"memory"}
        assert others == {"cuMemExportToShareableHandle", "cuMemImportFromShareableHandle"}
    result = zluda.replay(path, device="cpu")
    nothing = [Verdict.NOT_COMPARED] * 2  # the first two add zeros
    assert [one.verdict for one in result.results] == nothing + [Verdict.IDENTICAL] * 3


def test_memory_of_another_process_says_so(record: Record) -> None:
    with open_trace(record("opened").trace) as trace:
        (opened,) = (a for a in trace.allocations if a.name == "made elsewhere")
        assert opened.size == -(-66000 // 512) * 512
        assert [g.text for g in trace.gaps if g.call == opened.born and g.kind == "memory"] == [
            "made elsewhere: what others write there shows when a launch can read it"
        ]
        before, after = (number(trace, opened.id, call - 1, 4) for call in launches(trace))
        assert (before, after) == (8, 9)


# --- changed pages, found on the GPU -------------------------------------------------------------------


def test_a_launch_may_change_more_than_there_are_slots(record: Record) -> None:
    size = (9 << 20) + 1000
    with open_trace(record("whole").trace) as trace:
        _, changed = (a.id for a in trace.allocations if a.size == size)
        (call,) = launches(trace)
        pages = trace.pages(call)
        assert {page.allocation for page in pages} == {changed}
        assert sorted(page.offset for page in pages) == list(range(0, size, 65536))
        assert pages[-1].length == size % 65536
        before, after = (trace.read_allocation(changed, when, 0, size)[0] for when in (call - 1, call))
        numbers = struct.unpack(f"<{size // 4}f", before)
        assert struct.unpack(f"<{size // 4}f", after) == tuple(3 * number for number in numbers)
        assert trace.meta["bytes_moved"] < size + (2 << 20)
    result = zluda.replay(record("whole").trace, device="cpu")
    assert result.results[-1].verdict is Verdict.IDENTICAL


def test_of_large_memory_only_pages_that_changed_are_moved(record: Record) -> None:
    with open_trace(record("large").trace) as trace:
        large = next(a.id for a in trace.allocations if a.size > 5 << 20)
        first, second, last, _, _ = launches(trace)
        of = {
            call: [p.offset for p in trace.pages(call) if p.allocation == large] for call in launches(trace)
        }
        assert (of[first], of[second], of[last]) == ([1 << 20], [], [5 << 20])
        assert number(trace, large, first, (1 << 18) + 5) == (4 * ((1 << 18) + 5)) % 1009 + 2 * 5
        assert number(trace, large, last, (5 << 18) + 5) == (4 * ((5 << 18) + 5)) % 1009 + 2 * 5
        looked, moved = trace.meta["bytes_looked_at"], trace.meta["bytes_moved"]
        assert looked > 5 * (5 << 20) and moved < looked / 10
    result = zluda.replay(record("large").trace, device="cpu")
    assert [one.verdict for one in result.results[:3]] == [Verdict.IDENTICAL] * 3


@pytest.mark.parametrize("capture", ["outputs", "full"])
def test_full_capture_sees_what_others_had_written_before_a_launch(record: Record, capture: str) -> None:
    with open_trace(record("large", capture).trace) as trace:
        large = next(a.id for a in trace.allocations if a.size > 5 << 20)
        last = launches(trace)[-1]
        found = [p.offset for p in trace.found_pages(last - 1) if p.allocation == large]
        changed = [p.offset for p in trace.pages(last) if p.allocation == large]
        other = 200000 // 65536 * 65536
        if capture == "full":
            assert (found, changed) == ([other], [2 << 20])
        else:  # it cannot be told who wrote it
            assert (found, changed) == ([], [other, 2 << 20])
    result = zluda.replay(record("large", capture).trace, device="cpu")
    expected = Verdict.IDENTICAL if capture == "full" else Verdict.DIFFERS
    assert result.results[-1].verdict is expected


def digest(library: ctypes.CDLL, data: bytes) -> bytes:
    out = ctypes.create_string_buffer(16)
    library.digest(data, ctypes.c_uint64(len(data)), out)
    return out.raw


LOOK = struct.Struct("<QII2Q2QIIQ")  # struct look of finding.c
LOOK_CHANGED, LOOK_ALWAYS, LOOK_SCAN, NO_SLOT = 1, 2, 4, 0xFFFFFFFF
CAPACITY, COUNTERS = 3, 5


class Looked(NamedTuple):
    digest: bytes
    named: int
    slot: int


@cache
def look_kernel() -> tuple[Any, Any]:
    from zluda.trace import spec

    device = zluda.open_device("cpu")
    return device, device.load_module(spec.kernel_ptx("look")).kernel("zluda_look")


def look(
    pages: list[tuple[bytes, int, bytes]], ranges: tuple[int, int, int, int], runs: int = 1
) -> tuple[list[Looked], list[bytes]]:
    """Run the kernel that looks at pages on the CPU device: (contents, wants, digest before) of each."""
    import numpy

    device, kernel = look_kernel()
    memory = [device.array(numpy.frombuffer(data.ljust(65552, b"\xee"), numpy.uint8)) for data, _, _ in pages]
    slots = device.empty(65536 * CAPACITY, numpy.uint8)
    for _ in range(runs):
        asked = b"".join(
            LOOK.pack(where.address, len(data), wants, *struct.unpack("<2Q", before), 0, 0, 7, 7, 0)
            for where, (data, wants, before) in zip(memory, pages, strict=True)
        )
        table = device.array(numpy.frombuffer(asked, numpy.uint8))
        kernel.launch(
            grid=(len(pages), 1, 1), block=(256, 1, 1), args=[table, slots, COUNTERS, CAPACITY, *ranges]
        )
    told = [LOOK.unpack_from(table.numpy().tobytes(), LOOK.size * n) for n in range(len(pages))]
    contents = slots.numpy().tobytes()
    return (
        [Looked(struct.pack("<2Q", *one[5:7]), one[7], one[8]) for one in told],
        [contents[65536 * n : 65536 * (n + 1)] for n in range(CAPACITY)],
    )


SIZES = (65536, 65535, 65529, 40008, 4096, 24, 9, 8, 5, 1)
NOWHERE = (0, 0, 0, 0)


def test_digests_are_the_same_on_the_gpu(in_c: ctypes.CDLL) -> None:
    """Of whole pages and of pieces, whatever lies behind them."""
    chance = random.Random(1)
    pages = [chance.randbytes(size) for size in SIZES]
    looked, _ = look([(data, 0, bytes(16)) for data in pages], NOWHERE)
    assert [one.digest for one in looked] == [digest(in_c, data) for data in pages]
    assert {(one.named, one.slot) for one in looked} == {(0, NO_SLOT)}


def test_what_changed_is_put_into_slots_while_there_are_some(in_c: ctypes.CDLL) -> None:
    chance = random.Random(2)
    pages = [chance.randbytes(size) for size in (65536, 100, 65536, 12345, 7)]
    same = digest(in_c, pages[0])
    asked = [
        (pages[0], LOOK_CHANGED, same),
        (pages[1], LOOK_CHANGED, same),
        (pages[2], 0, bytes(16)),
        (pages[3], LOOK_ALWAYS, digest(in_c, pages[3])),
    ]
    looked, slots = look(asked, NOWHERE, runs=2)  # the counters are clear again after the first
    assert [one.slot == NO_SLOT for one in looked] == [True, False, True, False]
    assert {looked[1].slot, looked[3].slot} == {0, 1}
    for n in (1, 3):
        assert slots[looked[n].slot][: len(pages[n])] == pages[n]
    crowded, slots = look([(pages[4], LOOK_ALWAYS, bytes(16))] * 5, NOWHERE)
    assert sorted(one.slot for one in crowded) == [0, 1, 2, NO_SLOT, NO_SLOT]
    assert [slot[:7] for slot in slots] == [pages[4]] * 3


@pytest.mark.parametrize(
    ("word", "at", "named"),
    [
        (0x7000, 0, 1),  # the lowest address
        (0x7FFF, 65528, 1),
        (0x8000, 512, 0),  # behind the last
        (0x6FFF, 8, 0),
        (0x55, 4088, 1),  # a handle
        (0x56, 4088, 0),
        (0x7001, 4, 0),  # not at a multiple of 8
    ],
)
def test_words_that_may_be_addresses_are_found(word: int, at: int, named: int) -> None:
    data = bytearray(b"\xff" * 65536)
    data[at : at + 8] = struct.pack("<Q", word)
    looked, slots = look(
        [(bytes(data), LOOK_SCAN, bytes(16)), (bytes(data), 0, bytes(16))], (0x7000, 0x1000, 0x55, 1)
    )
    assert [one.named for one in looked] == [named, 0]
    assert looked[0].slot == (0 if named else NO_SLOT)
    assert not named or slots[0] == bytes(data)


def test_every_bit_of_a_page_counts_in_its_digest(in_c: ctypes.CDLL) -> None:
    chance = random.Random(2)
    for size in (1, 7, 8, 100, 4096, 65529, 65536):
        data = bytearray(chance.randbytes(size))
        seen = {digest(in_c, bytes(data))}
        places = [0, 8 * size - 1, *(chance.randrange(8 * size) for _ in range(40))]
        for bit in dict.fromkeys(places):
            data[bit // 8] ^= 1 << bit % 8
            seen.add(digest(in_c, bytes(data)))
            data[bit // 8] ^= 1 << bit % 8
        assert len(seen) == 1 + len(set(places))
        assert size % 8 == 0 or digest(in_c, bytes(data) + b"\0") not in seen


def test_words_that_change_places_change_the_digest(in_c: ctypes.CDLL) -> None:
    chance = random.Random(3)
    words = [chance.randbytes(8) for _ in range(8192)]
    before = digest(in_c, b"".join(words))
    for other in (1, 2, 3, 512, 513, 4097, 8191):
        moved = list(words)
        moved[0], moved[other] = moved[other], moved[0]
        assert digest(in_c, b"".join(moved)) != before
