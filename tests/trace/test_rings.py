"""Rings and their drain, with a producer in Python."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import re
import shutil
import sqlite3
import struct
from collections import Counter
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ring_producer import Producer, launch, launch_loop, load_kernel, pack64

from zluda.errors import TraceError
from zluda.trace.images import image_reader
from zluda.tracefile import AllocationKind, Direction, Fidelity, ModuleKind, TraceWriter, open_trace, ring
from zluda.tracefile.drain import META_FILE, Drain
from zluda.tracefile.effects import ImageReader, ModuleContents
from zluda.tracefile.recovery import merge_rings
from zluda.tracefile.ring import rings_directory
from zluda.tracefile.ring_reader import Ring
from zluda.tracefile.schema import APPLICATION_ID


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "trace.bin"


@pytest.fixture
def producer(trace: Path) -> Producer:
    return Producer.create(rings_directory(trace))


def drained(trace: Path, producer: Producer, read_module: ImageReader | None = None) -> None:
    with TraceWriter.create(trace, {}) as writer:
        drain = Drain(producer.directory, writer, read_module=read_module)
        drain.finish()
        drain.close()
    producer.control.close()
    shutil.rmtree(producer.directory)


def abandoned(trace: Path, producer: Producer, passes: int, read_module: ImageReader | None = None) -> Drain:
    """A drain that made some passes and was then killed: its lock and its connection are gone."""
    writer = TraceWriter.create(trace, {})
    drain = Drain(producer.directory, writer, read_module=read_module)
    for _ in range(passes):
        drain.step(producer.clock)
    writer.commit()
    writer._connection.close()
    fcntl.flock(producer.control.fileno(), fcntl.LOCK_UN)
    return drain


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_what_goes_in_comes_out_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    directory = tmp_path_factory.mktemp("ring") / "rings"
    producer = Producer.create(directory, ring_bytes=128 * 40)
    consumer = Ring(producer.path)
    sent: list[bytes] = []
    got: list[bytes] = []

    def consume(limit: int, horizon: int) -> None:
        batch = consumer.batch(limit)
        if batch is not None:
            batch.cut(horizon)
            got.extend(record.body for record in batch.records())
            consumer.release(consumer.kept_from(()))

    for _ in range(data.draw(st.integers(1, 60))):
        body = data.draw(st.binary(max_size=900))
        if not producer.has_room(len(body)):
            while consumer.tail < producer.head:
                consume(data.draw(st.integers(1, 30)), producer.clock)
        producer.record(ring.GAP, 0, body)
        sent.append(body)
        if data.draw(st.booleans()):
            consume(data.draw(st.integers(1, 30)), producer.clock - data.draw(st.integers(0, 3)))
    while consumer.tail < producer.head:
        consume(64, producer.clock)
    assert got == sent
    producer.control.close()


def test_a_record_without_its_commit_word_is_an_error_with_its_place(producer: Producer) -> None:
    producer.record(ring.GAP, 0, b"one")
    producer.record(ring.GAP, 0, b"two")
    at = ring.RING_HEADER_BYTES + ring.SLOT_BYTES
    producer.map[at : at + 4] = b"\0\0\0\0"
    with pytest.raises(TraceError, match="commit word") as error:
        Ring(producer.path).batch(100)
    assert error.value.offset == at


def test_a_ring_of_something_else_is_refused(producer: Producer) -> None:
    producer.set_word("MAGIC", 1)
    with pytest.raises(TraceError, match="not a ring"):
        Ring(producer.path)


def test_records_of_two_threads_are_taken_in_order_of_their_stamps(trace: Path, producer: Producer) -> None:
    other = Producer.add_ring(producer.directory, producer.control, 1, 1 << 20)
    first = producer.enter("cuMemAlloc_v2", [0x1000, 512])
    other.clock = producer.clock + 10
    producer.leave(first, pack64(0x7F0000000000))
    freed = other.enter("cuMemFree_v2", [0x7F0000000000])
    other.leave(freed)
    producer.clock = other.clock
    again = producer.enter("cuMemAlloc_v2", [0x1000, 512])
    producer.leave(again, pack64(0x7F0000000000))
    drained(trace, producer)
    with open_trace(trace) as opened:
        assert [(a.born, a.died) for a in opened.allocations] == [(first, freed), (again, None)]
        assert opened.call(freed).thread == other.thread


def test_a_pass_leaves_what_is_stamped_after_it_began(trace: Path, producer: Producer) -> None:
    producer.call("cuCtxSynchronize", [])
    moment = producer.clock
    producer.call("cuCtxSynchronize", [])
    with TraceWriter.create(trace, {}) as writer:
        drain = Drain(producer.directory, writer)
        assert drain.step(moment) == 2
        assert drain.step(producer.clock) == 2
        drain.close()


def test_an_open_call_is_on_record_before_it_returns(trace: Path, producer: Producer) -> None:
    number = producer.enter("cuCtxSynchronize", [])
    with TraceWriter.create(trace, {}) as writer:
        drain = Drain(producer.directory, writer)
        drain.step(producer.clock)
        assert writer._one("SELECT end_ns FROM call WHERE sequence = ?", (number,)) == (None,)
        producer.leave(number)
        drain.step(producer.clock)
        drain.close()
    with open_trace(trace) as opened:
        assert opened.call(number).result == 0


def test_a_call_inside_a_call_has_its_parent(trace: Path, producer: Producer) -> None:
    outer = producer.enter("cuCtxSynchronize", [])
    inner = producer.enter("cuCtxSynchronize", [], parent=outer)
    producer.leave(inner)
    producer.leave(outer)
    drained(trace, producer)
    with open_trace(trace) as opened:
        assert [call.parent for call in opened.iter_calls()] == [None, outer]


def test_many_launches_take_the_short_way_and_say_the_same(trace: Path, producer: Producer) -> None:
    launch_loop(producer, 2000)
    drained(trace, producer)
    with open_trace(trace) as opened:
        launches = list(opened.iter_launches())
        assert [one.call for one in launches] == list(range(2, 2002))
        assert [struct.unpack("<QI", one.parameters)[1] for one in launches] == list(range(2000))
        assert {(one.kernel, one.block) for one in launches} == {("kernel", (32, 1, 1))}
        assert all(call.result == 0 for call in opened.iter_calls())


def test_the_short_way_keeps_of_a_calls_arguments_what_the_long_one_does(
    trace: Path, producer: Producer
) -> None:
    """The first launch of a kernel goes the long way, as does a batch in which handles are given out."""
    stream, words = 0x55D012345678, [0x20, 1, 2, 3, 32, 1, 1, 48, 0x55D012345678, 0x7FFD00001234, 0x6000]
    load_kernel(producer)
    for _ in range(3):
        producer.leave(producer.enter("cuLaunchKernel", words))
    drained(trace, producer)
    with sqlite3.connect(trace) as connection:
        kept = connection.execute("SELECT arguments FROM call WHERE sequence >= 2").fetchall()
    assert len(set(kept)) == 1 and len(kept) == 3 and len(kept[0][0]) < 35
    with open_trace(trace) as opened:
        arguments = opened.call(4).arguments
        assert list(arguments.values()) == [*words[:9], 0, 0x6000] and arguments["hStream"] == stream


def test_a_launch_of_kernel_ex_is_kept_without_its_zeros(trace: Path, producer: Producer) -> None:
    load_kernel(producer)
    config = struct.pack("<8IQQI4x", 4, 1, 1, 128, 1, 1, 0, 0, 0x55D012345678, 0, 0)
    number = producer.enter("cuLaunchKernelEx", [0x7FFD0000, 0x20, 0x7FFD0100, 0], config + bytes(12))
    producer.leave(number)
    drained(trace, producer)
    with sqlite3.connect(trace) as connection:
        (kept,) = connection.execute("SELECT arguments FROM call WHERE sequence = ?", (number,)).fetchone()
    assert len(kept) < 32
    with open_trace(trace) as opened:
        call = opened.call(number)
        assert call.pointees["config"] == config
        assert call.arguments == {"config": 0x7FFD0000, "f": 0x20, "kernelParams": 0, "extra": 0}


def test_launches_of_several_shapes_and_failed_ones_in_a_loop(trace: Path, producer: Producer) -> None:
    load_kernel(producer)
    for index in range(900):
        launch(producer, struct.pack("<Q", index), grid=1 + index % 3, stream=index % 2)
        if index % 100 == 0:
            failed = producer.enter("cuLaunchKernel", [0x20, 0, 1, 1, 32, 1, 1, 0, 0, 0, 0])
            producer.leave(failed, result=1)
    drained(trace, producer)
    with open_trace(trace) as opened:
        launches = list(opened.iter_launches())
        assert [one.grid[0] for one in launches] == [1 + index % 3 for index in range(900)]
        assert [one.stream for one in launches] == [index % 2 for index in range(900)]
        assert sum(call.result == 1 for call in opened.iter_calls()) == 9


def test_a_module_of_the_drivers_linker_has_the_ptx_that_went_in(trace: Path, producer: Producer) -> None:
    ptx, cubin = b".version 8.0\n.target sm_90\n.visible .entry kernel() { ret; }\n", b"\x7fELF" + bytes(96)
    producer.call("cuLinkCreate_v2", [0, 0, 0, 0x1000], pack64(0x50))
    added = producer.enter("cuLinkAddData_v2", [0x50, 1, 0x2000, len(ptx), 0, 0, 0, 0])
    producer.data(added, 2, "in", ptx)
    producer.leave(added)
    producer.call("cuLinkComplete", [0x50, 0x1000, 0x1008], pack64(0x7000, len(cubin)))
    loaded = producer.enter("cuModuleLoadData", [0x1000, 0x7000])
    producer.data(loaded, 1, "in", cubin)
    producer.leave(loaded, pack64(0x10))
    drained(trace, producer, lambda pieces, _: ModuleContents(ModuleKind.CUBIN, [], [], Fidelity.UNKNOWN))
    with open_trace(trace) as opened:
        (module,) = opened.module_list
        assert opened.ptx(module) == ptx
        assert (module.kind, module.images[1].architecture) == (ModuleKind.CUBIN, "sm_90")
        assert not opened.gaps


def test_launches_into_a_graph_in_a_loop_are_none(trace: Path, producer: Producer) -> None:
    load_kernel(producer)
    for index in range(300):
        launch(producer, struct.pack("<Q", index))
        captured = producer.enter("cuLaunchKernel", [0x20, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0])
        producer.leave(captured, flags=ring.LEAVE_DEFERRED)
    drained(trace, producer)
    with open_trace(trace) as opened:
        assert [one.call % 2 for one in opened.iter_launches()] == 300 * [0]


def test_a_handle_that_comes_again_in_a_loop_is_another_kernel(trace: Path, producer: Producer) -> None:
    load_kernel(producer)
    for _ in range(300):
        launch(producer, b"")
    producer.call("cuModuleUnload", [0x10])
    load_kernel(producer, "other")
    for _ in range(300):
        launch(producer, b"")
    drained(trace, producer)
    with open_trace(trace) as opened:
        assert [one.kernel for one in opened.iter_launches()] == ["kernel"] * 300 + ["other"] * 300


def test_a_string_and_an_array_are_payloads(trace: Path, producer: Producer) -> None:
    number = producer.enter("cuModuleLoadDataEx", [0x1000, 0x2000, 2, 0x3000, 0x4000])
    producer.data(number, 1, "in", b".version 8.0\n.target sm_90\n.address_size 64\n")
    producer.data(number, 3, "in", struct.pack("<II", 1, 2))
    producer.leave(number, pack64(0x10))
    drained(trace, producer)
    with open_trace(trace) as opened:
        assert opened.payload(number, "options") == struct.pack("<II", 1, 2)
        assert opened.payload(number, "image") is None  # it is the module's image
        assert opened.module_list[0].handle == 0x10


def test_host_data_in_pieces_becomes_pages(trace: Path, producer: Producer) -> None:
    content = bytes(range(256)) * 1024
    producer.call("cuMemAlloc_v2", [0x1000, 300000], pack64(0x7F0000000000))
    number = producer.enter("cuMemcpyHtoD_v2", [0x7F0000000000 + 512, 0x5000, len(content)])
    for offset in range(0, len(content), ring.CHUNK_BYTES):
        producer.data(
            number, 1, "in", content[offset : offset + ring.CHUNK_BYTES], total=len(content), offset=offset
        )
    producer.leave(number)
    drained(trace, producer)
    with open_trace(trace) as opened:
        data, known = opened.read_memory(number, 0x7F0000000000 + 512, len(content))
        assert (data, known) == (content, None)


def test_host_data_for_an_unknown_place_stays_with_the_call(trace: Path, producer: Producer) -> None:
    number = producer.enter("cuMemcpyHtoD_v2", [0x7F0000000000, 0x5000, 4])
    producer.data(number, 1, "in", b"data")
    producer.leave(number)
    drained(trace, producer)
    with open_trace(trace) as opened:
        (payload,) = opened.payloads(number)
        assert (payload.direction, payload.data) == (Direction.IN, b"data")


def test_a_pool_allocation_can_be_freed(trace: Path, producer: Producer) -> None:
    made = producer.call("cuMemAllocFromPoolAsync", [0x1000, 512, 0x50, 0], pack64(0x7F0000000000))
    freed = producer.call("cuMemFreeAsync", [0x7F0000000000, 0])
    drained(trace, producer)
    with open_trace(trace) as opened:
        (allocation,) = opened.allocations
        assert (allocation.kind, allocation.born, allocation.died) == (AllocationKind.POOL, made, freed)
        assert not opened.gaps


def test_effects_without_replay_are_counted(trace: Path, producer: Producer) -> None:
    for _ in range(5):
        producer.call("cuGraphicsUnregisterResource", [0])
    drained(trace, producer)
    with open_trace(trace) as opened:
        counts = [gap.times for gap in opened.gaps if gap.kind == "cuGraphicsUnregisterResource"]
        assert sum(counts) == 5


@pytest.mark.parametrize("passes", [0, 1, 5])
def test_recovery_has_calls_inside_an_open_one_once(trace: Path, producer: Producer, passes: int) -> None:
    """As those of a graph's launch, which returned when that was still under way."""
    load_kernel(producer)
    producer.call("cuMemAlloc_v2", [0x1000, 512], pack64(B))
    outer = producer.enter("cuMemcpyHtoD_v2", [0x7F0000000000, 0x5000, 4])
    inner = [producer.enter("cuStreamQuery", [stream], parent=outer) for stream in range(3)]
    for number in inner[:2]:
        producer.leave(number)
    told = {
        outer: b"memory\0of the outer call",
        inner[0]: b"memory\0of one inside",
        inner[2]: b"memory\0open",
    }
    for number, text in told.items():
        producer.record(ring.GAP, number, text)
    producer.record(ring.NOTE, 0, b'{"gap": ["child", "not recorded"]}')
    producer.record(ring.PAGE, outer, bytes(8) + b"page", function=ring.PHASE_AFTER, extra=B)
    abandoned(trace, producer, passes)
    producer.leave(inner[2])
    producer.leave(outer)
    with open_trace(trace) as opened:
        calls = list(opened.iter_calls())
        assert [call.sequence for call in calls] == list(range(inner[2] + 1))
        assert all(call.result == 0 for call in calls)
        assert [call.parent for call in calls if call.function == "cuStreamQuery"] == [outer] * 3
        kinds = Counter((gap.call, gap.kind) for gap in opened.gaps)
        assert kinds.pop((None, "recorder")) == kinds.pop((None, "child")) == 1
        assert kinds == {(outer, "memory"): 1, (inner[0], "memory"): 1, (inner[2], "memory"): 1}
        with closing(sqlite3.connect(trace)) as connection:
            assert connection.execute("SELECT call, length FROM page").fetchall() == [(outer, 4)]


@pytest.mark.parametrize("passes", [0, 1, 5])
def test_recovery_finishes_what_a_killed_drain_left(trace: Path, producer: Producer, passes: int) -> None:
    load_kernel(producer)
    for index in range(600):
        launch(producer, struct.pack("<Q", index))
    open_call = producer.enter("cuMemcpyHtoD_v2", [0x7F0000000000, 0x5000, 4])
    producer.data(open_call, 1, "in", b"data")
    producer.record(ring.CLOCK, open_call, struct.pack("<qQ", 900, 4), extra=35)
    producer.record(ring.TIME, open_call, struct.pack("<QqQ", 3, 1000, 250))
    abandoned(trace, producer, passes)
    producer.leave(open_call)
    with open_trace(trace) as opened:
        calls = list(opened.iter_calls())
        assert [call.sequence for call in calls] == list(range(603))
        assert all(call.result == 0 for call in calls)
        assert [struct.unpack("<Q", one.parameters)[0] for one in opened.iter_launches()] == list(range(600))
        assert opened.payload(open_call, "srcHost") == b"data"
        assert [time.call for time in opened.gpu_times()] == [3]
        assert opened.meta["recovered"] is True
    assert not rings_directory(trace).exists()


@pytest.mark.parametrize("passes", [0, 1])
def test_recovery_reads_modules_as_the_recorder_does(trace: Path, producer: Producer, passes: int) -> None:
    """One was loaded, and launched from, before, one after the recorder was killed."""
    load_kernel(producer)
    launch(producer, b"")
    abandoned(trace, producer, passes, image_reader({}, None))
    launch(producer, b"", grid=2)
    load_kernel(producer, module=0x30, function=0x40)
    launch(producer, b"", function=0x40)
    with open_trace(trace) as opened:
        assert opened.fidelities() == {Fidelity.SAME_PTX: 3}
        assert [module.kind for module in opened.module_list] == [ModuleKind.PTX] * 2


def test_recovery_knows_a_librarys_module(trace: Path, producer: Producer) -> None:
    loaded = producer.enter("cuLibraryLoadData", [0x1000, 0x2000, 0, 0, 0, 0, 0, 0])
    producer.data(loaded, 1, "in", b".version 8.0\n.target sm_90\n.address_size 64\n")
    producer.leave(loaded, pack64(0x10))
    producer.call("cuLibraryGetModule", [0x1000, 0x10], pack64(0x11))
    abandoned(trace, producer, 1)
    producer.text_call("cuModuleGetFunction", [0x1000, 0x11, 0x3000], 2, "kernel", pack64(0x20))
    with open_trace(trace) as opened:
        (function,) = opened.functions
        assert function.module == opened.module_list[0].id


def test_recovery_says_what_nobody_took(trace: Path, producer: Producer) -> None:
    for _ in range(3):
        producer.call("cuGraphicsUnregisterResource", [0])
    abandoned(trace, producer, 1)
    producer.control["LOST_CALLS"], producer.control["LOST_THREADS"] = 7, 2
    with open_trace(trace) as opened:
        counts = {gap.kind: gap.times for gap in opened.gaps if gap.call is None and "killed" not in gap.text}
        assert counts == {"recorder": 7, "thread": 2, "cuGraphicsUnregisterResource": 2}


def test_recovery_knows_the_handles_and_memory_of_before(trace: Path, producer: Producer) -> None:
    load_kernel(producer)
    producer.call("cuMemAlloc_v2", [0x1000, 512], pack64(0x7F0000000000))
    abandoned(trace, producer, 3)
    copied = producer.enter("cuMemcpyHtoD_v2", [0x7F0000000000, 0x5000, 4])
    producer.data(copied, 1, "in", b"data")
    producer.leave(copied)
    launched = launch(producer, b"")
    freed = producer.call("cuMemFree_v2", [0x7F0000000000])
    with open_trace(trace) as opened:
        assert opened.read_memory(copied, 0x7F0000000000, 4) == (b"data", None)
        assert opened.launch(launched).kernel == "kernel"
        assert opened.allocations[0].died == freed


def test_rings_of_a_recorder_at_work_are_left_alone(trace: Path, producer: Producer) -> None:
    producer.call("cuCtxSynchronize", [])
    assert merge_rings(trace) is False
    assert rings_directory(trace).exists()
    producer.control.close()


def test_rings_without_a_trace_are_an_error(trace: Path, producer: Producer) -> None:
    producer.control.close()
    with pytest.raises(TraceError, match="no trace"):
        merge_rings(trace)


A, B = 0x7F0000000000, 0x7F0000000400


def lives(trace: Path) -> list[tuple[int, int, int | None]]:
    with open_trace(trace) as opened:
        return [(a.base, a.born, a.died) for a in opened.allocations]


@pytest.mark.parametrize("last", ["allocation", "free"])
def test_an_allocation_that_was_under_way_while_its_memory_was_freed(
    trace: Path, producer: Producer, last: str
) -> None:
    first = producer.call("cuMemAlloc_v2", [0x1000, 512], pack64(A))
    again = producer.enter("cuMemAlloc_v2", [0x1000, 512])
    copied = producer.enter("cuMemcpyHtoD_v2", [A, 0x5000, 4])
    producer.data(copied, 1, "in", b"data")
    producer.leave(copied)
    freed = producer.enter("cuMemFree_v2", [A])
    ends = [(again, pack64(A)), (freed, b"")]
    for number, outputs in ends if last == "free" else reversed(ends):
        producer.leave(number, outputs)
    drained(trace, producer)
    assert lives(trace) == [(A, first, freed), (A, freed, None)]
    with open_trace(trace) as opened:
        assert opened.read_memory(copied, A, 4) == (b"data", None)
        assert opened.read_memory(freed, A, 4) == (bytes(4), bytes(4))  # nothing is known of the second


def test_a_free_that_fails_ends_nothing(trace: Path, producer: Producer) -> None:
    made = producer.call("cuMemAlloc_v2", [0x1000, 512], pack64(A))
    producer.call("cuMemFree_v2", [A], result=1)
    producer.call("cuMemFree_v2", [B], result=1)
    drained(trace, producer)
    assert lives(trace) == [(A, made, None)]


def test_memory_that_ended_without_a_free_ends_where_the_next_begins(trace: Path, producer: Producer) -> None:
    first = producer.call("cuMemAlloc_v2", [0x1000, 512], pack64(A))
    small = producer.call("cuMemAlloc_v2", [0x1000, 512], pack64(B))
    large = producer.call("cuMemAlloc_v2", [0x1000, 4096], pack64(A - 512))
    drained(trace, producer)
    assert lives(trace) == [(A, first, large), (B, small, large), (A - 512, large, None)]


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("elf")), max_size=60))
def test_no_two_allocations_of_one_place_live_together(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, str]]
) -> None:
    """Threads that enter (e), leave (l) and free (f) at random over a driver with two places."""
    trace = tmp_path_factory.mktemp("lives") / "trace.bin"
    producer = Producer.create(rings_directory(trace))
    free, held, waiting, freeing = [A, B], {}, {}, {}
    for thread, step in steps:
        if step == "e" and thread not in waiting and thread not in held and thread not in freeing:
            waiting[thread] = producer.enter("cuMemAlloc_v2", [0x1000, 512])
        elif step == "l" and thread in freeing:
            producer.leave(freeing.pop(thread))
        elif step == "l" and thread in waiting and free:
            held[thread] = free.pop()
            producer.leave(waiting.pop(thread), pack64(held[thread]))
        elif step == "f" and thread in held:
            freeing[thread] = producer.enter("cuMemFree_v2", [held[thread]])
            free.append(held.pop(thread))  # the driver gives it back before the call returns
    drained(trace, producer)
    found = sorted(lives(trace))
    for (base, _, died), (next_base, born, _) in pairwise(found):
        assert base != next_base or (died is not None and died <= born)
    assert sum(died is None for _, _, died in found) >= len(held)


class _Advised(mmap.mmap):
    """A mapping that tells what was asked of the kernel for it."""

    asked: list[tuple[int, int]]
    error: OSError | None = None

    def madvise(self, option: int, start: int = 0, length: int = 0) -> None:
        assert start % 4096 == 0
        if option == mmap.MADV_DONTNEED:
            return
        assert option == 22  # MADV_POPULATE_READ
        self.asked.append((start - ring.RING_HEADER_BYTES, length))
        if self.error is not None:
            raise self.error


MIB = 1 << 20


@pytest.mark.parametrize("error", [None, OSError(errno.EINVAL, "an old kernel")])
def test_pages_are_made_ahead_of_the_producer_in_its_first_lap(
    trace: Path, monkeypatch: pytest.MonkeyPatch, error: OSError | None
) -> None:
    producer = Producer.create(rings_directory(trace), ring_bytes=80 * MIB)
    monkeypatch.setattr("zluda.tracefile.ring_reader.mmap.mmap", _Advised)
    _Advised.asked, _Advised.error = [], error
    consumer = Ring(producer.directory / "ring-0")
    wanted = {
        0: [],
        MIB - 128: [],  # hardly used
        2 * MIB: [(2 * MIB, 32 * MIB)],
        2 * MIB + 128: [],
        33 * MIB: [(34 * MIB, 32 * MIB)],  # as much again as there is
        50 * MIB: [(66 * MIB, 14 * MIB)],
        60 * MIB: [],
        90 * MIB: [],  # the second lap
    }
    for written, expected in wanted.items():
        monkeypatch.setattr(Ring, "head", written // ring.SLOT_BYTES)
        _Advised.asked = []
        consumer.warm()
        assert _Advised.asked == (expected if error is None or written == 2 * MIB else [])
    consumer.close()
    late = Ring(producer.directory / "ring-0")  # opening a trace whose recorder was killed in the second lap
    _Advised.asked = []
    late.warm()
    assert _Advised.asked == []
    late.close()


def _resident(path: Path) -> int:
    """KiB of a file's mappings that count as this process's memory."""
    mappings = re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text())
    return sum(
        int(re.findall(r"^Rss: +(\d+)", one, re.M)[0])
        for one in mappings
        if str(path) in one.partition("\n")[0]
    )


def test_a_ring_that_was_read_does_not_count_as_the_recorders_memory(trace: Path) -> None:
    producer = Producer.create(rings_directory(trace), ring_bytes=16 * MIB)
    producer.record(ring.NOTE, 0, b"{}")
    for _ in range(100):
        producer.record(ring.DATA, 0, bytes(64 << 10))
    producer.map.close()
    assert _resident(producer.path) == 0
    consumer = Ring(producer.path)
    batch = consumer.batch(1 << 16)
    assert batch is not None
    assert _resident(producer.path) > 6 * 1024
    batch.cut(1 << 62)
    consumer.warm()
    assert _resident(producer.path) <= 128
    consumer.close()


@pytest.mark.parametrize("begun", ["nothing", "an empty file", "a file without tables"])
def test_a_recorder_that_was_killed_before_it_made_the_trace_lost_nothing(
    trace: Path, producer: Producer, begun: str
) -> None:
    """It starts while the program runs on: all is in the rings."""
    (producer.directory / META_FILE).write_text('{"host": "here"}')
    launch_loop(producer, 1)
    fcntl.flock(producer.control.fileno(), fcntl.LOCK_UN)
    if begun == "an empty file":
        trace.touch()
    elif begun == "a file without tables":
        with closing(sqlite3.connect(trace)) as connection:
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    with open_trace(trace) as opened:
        assert opened.counts().launches == 1
        assert opened.meta["host"] == "here" and opened.meta["recovered"] is True
    assert not producer.directory.exists()


def test_rings_are_larger_where_launches_are_chosen_and_a_disk_has_the_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, container, memory = os.makedev(254, 0), os.makedev(0, 52), os.makedev(0, 40)
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
        "35 22 0:40 / /dev/shm rw,nosuid - tmpfs tmpfs rw,size=1g\n"
        "36 22 0:52 / /mnt/a\\040b rw - overlay overlay rw,lowerdir=/l,upperdir=/u\n"
    )

    def size(device: int, free: int, *, chooses: bool) -> int:
        stat, usage = os.stat_result((0, 0, device, *[0] * 7)), SimpleNamespace(free=free)
        with monkeypatch.context() as patch:
            patch.setattr(ring, "MOUNTS", mounts)
            patch.setattr(ring.os, "stat", lambda _: stat)
            patch.setattr(ring.shutil, "disk_usage", lambda _: usage)
            return ring.ring_bytes_for(tmp_path, chooses=chooses)

    assert size(disk, 1 << 40, chooses=True) == ring.CHOSEN_RING_BYTES
    assert size(disk, 16 << 30, chooses=True) == 1 << 30
    assert size(disk, 1 << 30, chooses=True) == ring.DEFAULT_RING_BYTES
    assert size(disk, 1 << 40, chooses=False) == ring.DEFAULT_RING_BYTES
    assert size(container, 1 << 40, chooses=True) == ring.CHOSEN_RING_BYTES
    assert size(memory, 1 << 40, chooses=True) == ring.DEFAULT_RING_BYTES
    assert size(os.makedev(0, 99), 1 << 40, chooses=True) == ring.DEFAULT_RING_BYTES
