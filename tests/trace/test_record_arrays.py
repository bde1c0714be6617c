"""CUDA arrays on the stand-in driver, recorded: shapes, contents at each call, what launches reach."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from recorded_scenes import Recorded

from zluda.driver.descriptors import MemoryType, decode_copy
from zluda.tracefile import AllocationKind, Trace, open_trace
from zluda.tracefile.arrays import LAYERED, ArrayShape

Scene = Callable[..., Recorded]

X = struct.pack("<1000f", *range(1000))
PICTURE, MIPMAPPED, LINE = range(3)
UNTOUCHED = b"\xee"  # what the stand-in's arrays hold at first
ROW = 160


def arrays(trace: Trace) -> list[int]:
    return [a.id for a in trace.allocations if a.kind is AllocationKind.ARRAY]


def contents(trace: Trace, array: int, call: int, size: int, offset: int = 0) -> bytes:
    data, known = trace.read_allocation(arrays(trace)[array], call, offset, size)
    assert known is None
    return data


def test_arrays_are_allocations_named_by_their_shape(scene: Scene) -> None:
    recorded = scene("arrays")
    assert recorded.status == 0 and "34 calls, 2 launches" in recorded.errors
    with open_trace(recorded.trace) as trace:
        found = [a for a in trace.allocations if a.kind is AllocationKind.ARRAY]
        assert [(a.name, a.size, a.born, a.died) for a in found] == [
            ("array 40×30 f32", 4800, 4, 31),
            ("array 16×8 u8x4, 3 levels", 512 + 128 + 32, 5, 32),
            ("array 64 f16", 128, 6, 33),
        ]
        assert not trace.gaps


def test_a_box_of_host_memory_goes_where_the_copy_put_it(scene: Scene) -> None:
    with open_trace(scene("arrays").trace) as trace:
        expected = bytearray(UNTOUCHED * 4800)
        for row in range(5):
            at = (2 + row) * ROW + 8
            source = (1 + row) * 100 + 4
            expected[at : at + 60] = X[source : source + 60]
        assert contents(trace, PICTURE, 13, 4800) == expected
        assert trace.payload(13, "pCopy") is None  # the pages tell


def test_a_level_and_a_line_are_read_back(scene: Scene) -> None:
    with open_trace(scene("arrays").trace) as trace:
        assert contents(trace, MIPMAPPED, 15, 672) == UNTOUCHED * 512 + X[:128] + UNTOUCHED * 32
        assert contents(trace, LINE, 16, 128) == UNTOUCHED * 16 + X[:32] + UNTOUCHED * 80


def test_a_launch_changes_the_array_behind_a_surface(scene: Scene) -> None:
    with open_trace(scene("arrays").trace) as trace:
        before = contents(trace, PICTURE, 17, 4800)
        after = contents(trace, PICTURE, 18, 4800)
        sums = [a + b for a, b in zip(*(struct.unpack_from("<40I", d) for d in (before, X)), strict=True)]
        painted = struct.pack("<40I", *(s & 0xFFFFFFFF for s in sums))
        assert after == before[:ROW] + painted + before[2 * ROW :]
        (out,) = {p.allocation for p in trace.pages(18)} - set(arrays(trace))
        assert trace.read_allocation(out, 18, 0, ROW) == (painted, None)
        launch = trace.launch(18)
        assert launch.captured and struct.unpack("<3Q", launch.parameters)[:2] == (1, 3)


def test_memory_behind_a_texture_is_known_before_the_launch(scene: Scene) -> None:
    """Only the texture names it: its address is no parameter."""
    with open_trace(scene("arrays").trace) as trace:
        linear = next(a for a in trace.allocations if a.kind is AllocationKind.DEVICE)
        assert trace.read_allocation(linear.id, 17, 0, 400) == (X[:400], None)


def test_handles_in_memory_reach_arrays_too(scene: Scene) -> None:
    with open_trace(scene("arrays").trace) as trace:
        changed = {page.allocation for page in trace.pages(28)}
        assert arrays(trace)[PICTURE] in changed and arrays(trace)[MIPMAPPED] not in changed


def test_rows_in_pitched_memory(scene: Scene) -> None:
    with open_trace(scene("arrays").trace) as trace:
        out = [a for a in trace.allocations if a.kind is AllocationKind.DEVICE][1].id
        expected = bytearray(trace.read_allocation(out, 18, 0, 400)[0])
        for row in range(3):
            expected[(1 + row) * 64 + 4 : (1 + row) * 64 + 24] = X[row * 32 : row * 32 + 20]
        assert trace.read_allocation(out, 19, 0, 400) == (bytes(expected), None)
        for row in range(2):
            expected[8 + row * 64 : 20 + row * 64] = b"\7" * 12
        assert trace.read_allocation(out, 20, 0, 400) == (bytes(expected), None)
        expected[:32] = X[:32]
        assert trace.read_allocation(out, 22, 0, 400) == (bytes(expected), None)


def test_what_copies_delivered_is_kept_without_gaps(scene: Scene) -> None:
    with open_trace(scene("arrays").trace) as trace:
        picture = contents(trace, PICTURE, 20, 4800)
        assert trace.payload(21, "pCopy") == b"".join(picture[(1 + r) * ROW :][:80] for r in range(6))
        assert trace.payload(23, "dstHost") == X[:32]


def test_calls_alone_keep_the_hosts_rows(scene: Scene) -> None:
    with open_trace(scene("arrays", capture="calls").trace) as trace:
        rows = b"".join(X[(1 + r) * 100 + 4 :][:60] for r in range(5))
        assert trace.payload(13, "pCopy") == rows
        assert trace.payload(16, "srcHost") == X[:32]
        assert trace.payload(21, "pCopy") is None
        assert not trace.calls_with_pages & {13, 15, 18}


def test_a_format_without_channels_is_a_gap(scene: Scene) -> None:
    recorded = scene("odd_arrays")
    assert recorded.status == 0, recorded.errors
    with open_trace(recorded.trace) as trace:
        assert next(a.name for a in trace.allocations if a.kind is AllocationKind.ARRAY).startswith(
            "array 8×4"
        )
        assert (4, "memory", "arrays of this format are not looked at") in [gap[:3] for gap in trace.gaps]


def test_unified_memory_is_told_by_its_address(scene: Scene) -> None:
    with open_trace(scene("odd_arrays").trace) as trace:
        rows = b"".join(X[40 * row :][:32] for row in range(4))
        assert contents(trace, 0, 9, 128) == rows  # after cuArrayDestroy has failed
        memory = next(a.id for a in trace.allocations if a.kind is AllocationKind.DEVICE)
        for row in range(4):
            data, known = trace.read_allocation(memory, 10, 48 * (row + 1) + 8, 32)
            assert known is None and data == rows[32 * row :][:32]


def test_a_copy_that_goes_into_a_graph_is_inside_its_capture(scene: Scene) -> None:
    with open_trace(scene("odd_arrays").trace) as trace:
        assert trace.call(trace.call(13).parent or 0).function == "cuStreamBeginCapture_v2"
        assert not trace.pages(13)


def test_ranges_of_arrays_from_arrays_and_memory(scene: Scene) -> None:
    with open_trace(scene("odd_arrays").trace) as trace:
        first = contents(trace, 1, 17, 40)
        assert first == X[:40]
        second = contents(trace, 2, 19, 40)
        memory = next(a.id for a in trace.allocations if a.kind is AllocationKind.DEVICE)
        copied = trace.read_allocation(memory, 18, 56, 10)[0]
        assert second == UNTOUCHED * 8 + first[4:24] + UNTOUCHED * 2 + copied


@pytest.mark.parametrize("seed", ["1", "2"])
def test_whatever_boxes_are_copied_the_record_has_what_is_delivered(scene: Scene, seed: str) -> None:
    recorded = scene("boxes", seed)
    assert recorded.status == 0, recorded.errors
    with open_trace(recorded.trace) as trace:
        assert not trace.gaps
        volume, layered, mipmapped = arrays(trace)
        levels = {}
        checked = set()
        memory = [a for a in trace.allocations if a.kind is AllocationKind.DEVICE]
        for call in trace.iter_calls():
            if call.function == "cuMipmappedArrayGetLevel":
                levels[call.pointees["pLevelArray"]] = 0 if not levels else 64 * 33 * 4 + 32 * 16 * 4
            delivered = trace.payload(call.sequence, "pCopy")
            if delivered is None:
                continue
            copy = decode_copy(call.pointees["pCopy"])  # type: ignore[arg-type]
            place = (mipmapped, levels.get(copy.source.array, 0))
            if copy.source.type == MemoryType.DEVICE:
                place = next((a.id, 0) for a in memory if a.base == copy.source.device)
            elif copy.source.array not in levels:
                place = (volume if copy.depth == 9 else layered, 0)
            checked.add(place)
            data, known = trace.read_allocation(place[0], call.sequence, place[1], copy.size)
            assert known is None and data == delivered, f"call {call.sequence}"
        assert len(checked) >= 4


def test_boxes_cover_any_range_of_any_shape() -> None:
    shape = ArrayShape(5, 3, 4, 0x02, 2, flags=1, levels=3)  # layered: rows of 20, 8, 4 bytes
    assert shape.size == 20 * 3 * 4 + 8 * 1 * 4 + 4 * 1 * 4
    whole = bytearray()
    places = {}
    for level in range(3):
        row, rows, slices = shape.extent(level)
        for z in range(slices):
            for y in range(rows):
                for x in range(row):
                    places[len(whole)] = (level, x, y, z)
                    whole.append(0)
    for offset in range(0, shape.size, 4):
        for size in range(4, shape.size - offset + 1, 12):
            at = offset
            for box in shape.boxes(offset, size):
                for z in range(box.depth):
                    for y in range(box.height):
                        for x in range(box.width):
                            assert places[at] == (box.level, box.x + x, box.y + y, box.z + z)
                            at += 1
            assert at == offset + size


@pytest.mark.parametrize(
    ("shape", "offset", "place"),
    [
        (ArrayShape(40, 30, 0, 0x20, 1), 188, "(7, 1)"),
        (ArrayShape(40, 0, 0, 0x20, 1), 28, "(7)"),
        (ArrayShape(8, 0, 5, 0x20, 1, LAYERED), 32 * 3 + 4, "(1, 0, 3)"),
        (ArrayShape(8, 4, 5, 0x01, 4), 32 * 4 * 2 + 32 + 6, "(1, 1, 2) channel 2"),
        (ArrayShape(16, 8, 0, 0x10, 2, 0, 3), 512 + 32 + 6, "level 1 (1, 1) channel 1"),
    ],
)
def test_texels_are_told_by_their_coordinates(shape: ArrayShape, offset: int, place: str) -> None:
    assert shape.place(offset) == place
