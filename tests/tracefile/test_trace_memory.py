"""Memory at a call against a plain model: the last write to each byte of each live allocation."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import zluda
from zluda.tracefile import PAGE_BYTES, TraceWriter, open_trace
from zluda.tracefile.blobs import ZEROS

BASE = 0x7F00_0000_0000


def add_calls(writer: TraceWriter, count: int) -> None:
    signature = writer.signature("cuAny", [])
    writer.add_calls((number, 1, None, signature, number, number, 0, b"") for number in range(count))


def test_later_writes_lie_over_earlier_ones(tmp_path: Path) -> None:
    with TraceWriter.create(tmp_path / "t.bin") as writer:
        add_calls(writer, 4)
        a = writer.add_allocation(0, BASE, 16)
        writer.add_page(1, a, 0, b"aaaaaaaa")
        writer.add_page(3, a, 4, b"bb")
        writer.add_page(3, a, 5, b"c")  # of one call, the later row holds
    with open_trace(tmp_path / "t.bin") as trace:
        assert trace.memory_at(2).read(BASE, 8) == b"aaaaaaaa"
        assert trace.memory_at(3).read(BASE, 8) == b"aaaabcaa"
        data, known = trace.read_memory(3, BASE + 6, 4)
        assert (data, known) == (b"aa\0\0", b"\1\1\0\0")
        with pytest.raises(zluda.TraceError, match="at call 3: the contents of 0x7f0000000008 are not"):
            trace.memory_at(3).read(BASE + 6, 4)


@pytest.mark.parametrize("call", [-2, 2, 10**9])
def test_memory_at_a_call_that_is_not_there(tmp_path: Path, call: int) -> None:
    with TraceWriter.create(tmp_path / "t.bin") as writer:
        add_calls(writer, 2)
    with open_trace(tmp_path / "t.bin") as trace:
        assert trace.memory_at(-1).allocation(BASE) is None
        with pytest.raises(zluda.TraceError, match=f"at call {call}: no such call"):
            trace.memory_at(call)


def test_a_new_allocation_at_an_old_address_starts_unknown(tmp_path: Path) -> None:
    with TraceWriter.create(tmp_path / "t.bin") as writer:
        add_calls(writer, 5)
        old = writer.add_allocation(0, BASE, 8)
        writer.add_page(1, old, 0, b"old data")
        writer.close_allocation(old, 2)
        new = writer.add_allocation(3, BASE, 8)
        writer.add_page(4, new, 0, b"new")
    with open_trace(tmp_path / "t.bin") as trace:
        assert trace.read_memory(1, BASE, 8) == (b"old data", None)
        assert trace.read_memory(2, BASE, 8) == (bytes(8), bytes(8))
        assert trace.read_memory(3, BASE, 8) == (bytes(8), bytes(8))
        assert trace.read_memory(4, BASE, 4) == (b"new\0", b"\1\1\1\0")
        found = trace.memory_at(4).allocation(BASE + 7)
        assert found is not None and found.id == new
        assert trace.memory_at(4).allocation(BASE + 8) is None


def test_reads_cross_pages_allocations_and_holes(tmp_path: Path) -> None:
    with TraceWriter.create(tmp_path / "t.bin") as writer:
        first = writer.add_allocation(0, BASE, PAGE_BYTES + 4)
        second = writer.add_allocation(0, BASE + PAGE_BYTES + 6, 4)
        writer.add_page(1, first, PAGE_BYTES - 4, b"12345678")
        writer.add_page(1, second, 0, b"wxyz")
    with open_trace(tmp_path / "t.bin") as trace:
        data, known = trace.read_memory(1, BASE + PAGE_BYTES - 4, 14)
        assert data == b"12345678\0\0wxyz"
        assert known == b"\1" * 8 + b"\0\0" + b"\1" * 4
        assert [(page.offset, page.length) for page in trace.pages(1)] == [
            (PAGE_BYTES - 4, 4),
            (PAGE_BYTES, 4),
            (0, 4),
        ]


def test_zeros_and_repeated_contents_are_stored_once_or_not_at_all(tmp_path: Path) -> None:
    with TraceWriter.create(tmp_path / "t.bin") as writer:
        a = writer.add_allocation(0, BASE, 8 * PAGE_BYTES)
        writer.add_page(0, a, 0, bytes(4 * PAGE_BYTES))
        for number in range(4, 8):
            writer.add_page(0, a, number * PAGE_BYTES, b"same" * (PAGE_BYTES // 4))
    with open_trace(tmp_path / "t.bin") as trace:
        assert trace.counts().blobs == 1
        assert [page.blob for page in trace.pages(0)][:4] == [ZEROS] * 4
        assert trace.read_allocation(a, 0, 0, 8 * PAGE_BYTES) == (
            bytes(4 * PAGE_BYTES) + b"same" * PAGE_BYTES,
            None,
        )


writes = st.lists(
    st.tuples(
        st.integers(0, 5),  # call
        st.integers(0, 1),  # allocation
        st.integers(0, 3 * PAGE_BYTES),
        st.integers(1, 2 * PAGE_BYTES),
        st.integers(0, 255),
    ),
    max_size=8,
)


@given(writes, st.integers(-1, 6), st.integers(0, 3 * PAGE_BYTES), st.integers(0, 3 * PAGE_BYTES))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
def test_the_timeline_is_the_last_write_of_each_byte(
    tmp_path: Path, writes: list[tuple[int, int, int, int, int]], call: int, offset: int, size: int
) -> None:
    bytes_each = 5 * PAGE_BYTES
    model = [bytearray(bytes_each) for _ in range(2)]
    known = [bytearray(bytes_each) for _ in range(2)]
    with TraceWriter.create(tmp_path / "t.bin") as writer:
        ids = [writer.add_allocation(0, BASE + n * bytes_each, bytes_each) for n in range(2)]
        for when, which, start, length, value in sorted(writes, key=lambda write: write[0]):
            writer.add_page(when, ids[which], start, bytes([value]) * length)
            if when <= call:
                model[which][start : start + length] = bytes([value]) * length
                known[which][start : start + length] = b"\1" * length
    with open_trace(tmp_path / "t.bin") as trace:
        expected = b"".join(bytes(side) for side in model)[offset : offset + size]
        mask = b"".join(bytes(side) for side in known)[offset : offset + size]
        data, found = trace.read_memory(call, BASE + offset, size)
        assert data == expected
        assert (found or b"\1" * size) == mask
