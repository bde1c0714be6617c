"""What a writer writes a reader reads: calls, payloads, launches, modules, allocations, gaps, frames."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import zluda
from zluda.errors import TraceError
from zluda.tracefile import (
    AllocationKind,
    Direction,
    Fidelity,
    ModuleKind,
    Parameter,
    Trace,
    TraceWriter,
    open_trace,
)
from zluda.tracefile.arguments import ArgumentLayout, expand, squeeze
from zluda.tracefile.schema import SQUEEZED

ALLOC = [
    Parameter("dptr", "CUdeviceptr *", Direction.OUT, 8),
    Parameter("bytesize", "size_t"),
]
COPY = [
    Parameter("dstDevice", "CUdeviceptr"),
    Parameter("srcHost", "const void *", Direction.IN),
    Parameter("ByteCount", "size_t"),
]
FATBIN = b"\x50\xed\x55\xba"
PTX = b".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() { ret; }\n"


def write(path: Path) -> None:
    with TraceWriter.create(path, {"program": ["./app", "1"], "capture": "outputs"}) as writer:
        alloc = writer.signature("cuMemAlloc_v2", ALLOC)
        copy = writer.signature("cuMemcpyHtoD_v2", COPY)
        launch = writer.signature("cuLaunchKernel", [Parameter("f", "CUfunction")])
        layout = ArgumentLayout(ALLOC)
        base = 0x7F00_0000_0000
        made = layout.encode([0x1234, 4096], after={"dptr": base.to_bytes(8, "little")})
        writer.add_calls(
            [
                (0, 11, None, alloc, 100, 200, 0, made),
                (1, 11, 0, copy, 300, 400, 0, ArgumentLayout(COPY).encode([base, 0x5000, 4])),
                (2, 12, None, launch, 500, None, None, ArgumentLayout([Parameter("f", "")]).encode([77])),
            ]
        )
        writer.add_payload(1, 1, Direction.IN, b"abcd")
        allocation = writer.add_allocation(0, base, 4096)
        writer.add_page(1, allocation, 0, b"abcd")
        module = writer.add_module(
            0, ModuleKind.FATBIN, 99, origin="cuModuleLoadData", image=b"\x50\xed\x55\xba"
        )
        writer.add_image(module, ModuleKind.PTX, PTX, architecture="compute_90", origin="entry 0")
        function = writer.add_function(1, 77, "k", module=module)
        writer.set_layout(function, [(0, 8), (8, 4)])
        shape = writer.shape(
            function, (4, 2, 1), (32, 1, 1), shared_bytes=128, attributes=b"\1", fidelity=Fidelity.SAME_PTX
        )
        writer.add_launch(2, shape, bytes(12), stream=2, gpu_time_ns=1500)
        writer.set_captured([2])
        writer.add_gap(None, "cuGraphLaunch", "graphs are not captured", 3)
        writer.close_allocation(allocation, 3)
        writer.unload_module(module, 4)


@pytest.fixture
def trace(tmp_path: Path) -> Iterator[Trace]:
    write(tmp_path / "trace.bin")
    with open_trace(tmp_path / "trace.bin") as opened:
        yield opened


def test_a_closed_trace_is_one_file(tmp_path: Path) -> None:
    write(tmp_path / "trace.bin")
    assert [path.name for path in tmp_path.iterdir()] == ["trace.bin"]


def test_meta(trace: Trace) -> None:
    assert trace.meta == {"program": ["./app", "1"], "capture": "outputs"}


def test_calls_are_decoded_by_their_signature(trace: Trace) -> None:
    alloc, copy, launch = trace.iter_calls()
    assert alloc.function == "cuMemAlloc_v2"
    assert alloc.arguments == {"dptr": 0x1234, "bytesize": 4096}
    assert alloc.pointees == {"dptr": 0x7F00_0000_0000}
    assert (copy.parent, copy.thread, copy.result, copy.start_ns, copy.end_ns) == (0, 11, 0, 300, 400)
    assert (launch.end_ns, launch.result) == (None, None)


def test_ranges_of_calls_leave_out_their_stop(trace: Trace) -> None:
    assert [call.sequence for call in trace.iter_calls(1, 2)] == [1]
    assert trace.call(2).function == "cuLaunchKernel"
    with pytest.raises(zluda.TraceError, match="at call 3: no such call"):
        trace.call(3)


@pytest.mark.parametrize("number", [2**63, 10**30, -(10**30)])
def test_numbers_beyond_64_bits_are_of_no_call(trace: Trace, number: int) -> None:
    with pytest.raises(zluda.TraceError, match=f"at call {number}: no such call"):
        trace.call(number)
    assert list(trace.iter_launches(number, number + 1)) == [] == list(trace.payloads(number))


def test_payloads(trace: Trace) -> None:
    assert [(p.parameter, p.direction, p.offset, p.data) for p in trace.payloads(1)] == [
        (1, Direction.IN, 0, b"abcd")
    ]
    assert trace.payload(1, "srcHost") == b"abcd"
    assert trace.payload(1, "ByteCount") is None
    assert trace.payloads(0) == []


def test_launches(trace: Trace) -> None:
    (launch,) = trace.iter_launches()
    assert launch == trace.launch(2)
    assert (launch.kernel, launch.handle, launch.module) == ("k", 77, 1)
    assert (launch.grid, launch.block, launch.cluster) == ((4, 2, 1), (32, 1, 1), (1, 1, 1))
    assert (launch.shared_bytes, launch.stream, launch.attributes) == (128, 2, b"\1")
    assert launch.layout == ((0, 8), (8, 4))
    assert (launch.parameters, launch.gpu_time_ns, launch.captured) == (bytes(12), 1500, True)
    assert launch.fidelity is Fidelity.SAME_PTX
    with pytest.raises(zluda.TraceError, match="at call 1: this call launched nothing"):
        trace.launch(1)


def test_modules_and_their_images(trace: Trace) -> None:
    (module,) = trace.module_list
    assert (module.kind, module.origin, module.handle) == (ModuleKind.FATBIN, "cuModuleLoadData", 99)
    assert (module.load_call, module.unload_call) == (0, 4)
    assert [trace.image(image) for image in module.images] == [FATBIN, PTX]
    assert module.images[1].architecture == "compute_90"
    assert trace.ptx(module) == PTX


def test_allocations_live_from_their_birth_to_the_call_that_freed_them(trace: Trace) -> None:
    (allocation,) = trace.allocations
    assert (allocation.kind, allocation.born, allocation.died) == (AllocationKind.DEVICE, 0, 3)
    assert [len(trace.live_allocations(call)) for call in (-1, 0, 2, 3, 0)] == [0, 1, 1, 0, 1]


def test_gaps_and_counts(trace: Trace) -> None:
    (gap,) = trace.gaps
    assert (gap.call, gap.kind, gap.times) == (None, "cuGraphLaunch", 3)
    counts = trace.counts()
    assert (counts.calls, counts.open_calls, counts.threads, counts.launches) == (3, 1, 2, 1)
    assert (counts.kernels, counts.modules, counts.modules_with_ptx) == (1, 1, 1)
    assert (counts.pages, counts.page_bytes, counts.gaps) == (1, 4, 3)


def test_frames(trace: Trace) -> None:
    calls = trace.calls()
    assert list(calls.index) == [0, 1, 2]
    assert calls.loc[0, "function"] == "cuMemAlloc_v2"
    assert calls["result"].isna().tolist() == [False, False, True]
    assert len(trace.calls(start=1)) == 2
    assert len(trace.calls(limit=1)) == 1
    launches = trace.launches()
    assert launches.loc[2, "kernel"] == "k"
    assert launches.loc[2, "fidelity"] == "same-ptx"
    modules = trace.modules()
    assert modules.loc[1, "kernels"] == ["k"]
    assert bool(modules.loc[1, "has_ptx"]) is True


def test_a_call_that_never_returned_costs_the_others_no_nanosecond(tmp_path: Path) -> None:
    end = 2**53 + 1  # as a machine's clock has it after 104 days
    with TraceWriter.create(tmp_path / "t.bin") as writer:
        signature = writer.signature("cuInit", [])
        rows = [(0, 1, None, signature, end - 1, end, 0, b""), (1, 1, 0, signature, end, None, None, b"")]
        writer.add_calls(rows)
    with open_trace(tmp_path / "t.bin") as trace:
        calls = trace.calls()
    assert calls["end_ns"][0] == end
    assert calls["end_ns"].isna().tolist() == [False, True]


def test_nothing_but_a_trace_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_bytes(b"int main() {}" * 100)
    with pytest.raises(zluda.TraceError, match="precious: is there and is not a trace"):
        TraceWriter.create(path)
    assert path.read_bytes().startswith(b"int main")
    with pytest.raises(zluda.TraceError, match="/dev/null: is there and is not a trace"):
        TraceWriter.create("/dev/null")
    assert Path("/dev/null").is_char_device()
    path.write_bytes(b"")
    for _ in range(2):
        TraceWriter.create(path).close()


@pytest.mark.filterwarnings("error::DeprecationWarning")
def test_calls_are_finished_and_launches_timed_as_later_pythons_want_it(tmp_path: Path) -> None:
    with TraceWriter.create(tmp_path / "t.bin") as writer:
        signature = writer.signature("cuLaunchKernel", [])
        writer.add_calls([(7, 1, None, signature, 10, None, None, b"")])
        function = writer.add_function(7, 1, "k", module=None)
        writer.add_launch(7, writer.shape(function, (1, 1, 1), (1, 1, 1)), b"")
        writer.finish_calls([(7, 20, 0, b"")])
        writer.add_gpu_times([(7, 0, 5000, 1234)])
    with open_trace(tmp_path / "t.bin") as trace:
        assert (trace.call(7).end_ns, trace.call(7).result) == (20, 0)
        assert trace.launch(7).gpu_time_ns == 1234


def test_frames_of_an_empty_trace_keep_their_columns(tmp_path: Path) -> None:
    TraceWriter.create(tmp_path / "empty.bin").close()
    with open_trace(tmp_path / "empty.bin") as trace:
        assert trace.meta == {}
        assert "kernel" in trace.launches().columns
        assert "function" in trace.calls().columns
        assert len(trace.modules()) == 0


def test_a_call_can_be_closed_after_it_was_written_open(tmp_path: Path) -> None:
    with TraceWriter.create(tmp_path / "t.bin") as writer:
        signature = writer.signature("cuMemAlloc_v2", ALLOC)
        layout = ArgumentLayout(ALLOC)
        writer.add_calls([(0, 1, None, signature, 5, None, None, layout.encode([8, 16]))])
        writer.finish_calls([(0, 9, 0, layout.encode([8, 16], after={"dptr": b"\7" + bytes(7)}))])
    with open_trace(tmp_path / "t.bin") as trace:
        call = trace.call(0)
        assert (call.end_ns, call.result, call.pointees) == (9, 0, {"dptr": 7})


def test_addresses_and_handles_of_64_bits_come_back(tmp_path: Path) -> None:
    top = (1 << 64) - 1
    with TraceWriter.create(tmp_path / "t.bin") as writer:
        writer.add_calls(
            [(0, 1, None, writer.signature("f", [Parameter("h", "CUstream")]), 0, 1, 0, b"\xff" * 8)]
        )
        writer.add_allocation(0, top - 4095, 4096)
        function = writer.add_function(0, top, "k", module=writer.add_module(0, ModuleKind.OTHER, top))
        writer.add_launch(0, writer.shape(function, (1, 1, 1), (1, 1, 1)), b"", stream=top)
    with open_trace(tmp_path / "t.bin") as trace:
        assert trace.call(0).arguments == {"h": top}
        assert trace.allocations[0].base == top - 4095
        assert trace.launch(0).stream == top
        assert (trace.functions[0].handle, trace.module_list[0].handle) == (top, top)


def test_equal_signatures_and_shapes_are_written_once(tmp_path: Path) -> None:
    with TraceWriter.create(tmp_path / "t.bin") as writer:
        assert writer.signature("cuMemAlloc_v2", ALLOC) == writer.signature("cuMemAlloc_v2", tuple(ALLOC))
        assert writer.signature("cuMemAlloc_v2", COPY) != writer.signature("cuMemAlloc_v2", ALLOC)
        function = writer.add_function(0, 1, "k", module=None)
        one = writer.shape(function, (1, 1, 1), (32, 1, 1))
        assert one == writer.shape(function, (1, 1, 1), (32, 1, 1))
        assert one != writer.shape(function, (1, 1, 1), (32, 1, 1), shared_bytes=1)


def test_a_call_number_used_twice_is_refused(tmp_path: Path) -> None:
    with TraceWriter.create(tmp_path / "t.bin") as writer:
        signature = writer.signature("f", [])
        writer.add_calls([(0, 1, None, signature, 0, 1, 0, b"")])
        with pytest.raises(zluda.TraceError, match=r"t\.bin: UNIQUE constraint failed"):
            writer.add_calls([(0, 1, None, signature, 0, 1, 0, b"")])


def test_more_rows_than_one_statement_takes(tmp_path: Path) -> None:
    with TraceWriter.create(tmp_path / "t.bin") as writer:
        signature = writer.signature("f", [])
        shape = writer.shape(writer.add_function(0, 1, "k", module=None), (1, 1, 1), (1, 1, 1))
        writer.add_calls((i, 1, None, signature, i, i + 1, 0, b"") for i in range(1234))
        writer.add_launches((i, shape, 0, b"p", None, 0) for i in range(1234))
    with open_trace(tmp_path / "t.bin") as trace:
        assert [call.start_ns for call in trace.iter_calls()] == list(range(1234))
        assert trace.counts().launches == 1234


def test_a_long_payload_is_one_payload_again(tmp_path: Path) -> None:
    data = bytes(range(256)) * 8192 + b"tail"
    with TraceWriter.create(tmp_path / "t.bin") as writer:
        writer.add_calls([(0, 1, None, writer.signature("f", COPY), 0, 1, 0, bytes(24))])
        writer.add_payload(0, 1, Direction.IN, data[: 1 << 20])
        writer.add_payload(0, 1, Direction.IN, data[1 << 20 :], offset=1 << 20)
        writer.add_payload(0, 2, Direction.OUT, b"")
        writer.add_payload(0, 0, Direction.OUT, b"late", offset=8)
    with open_trace(tmp_path / "t.bin") as trace:
        assert trace.payload(0, "srcHost") == data
        assert trace.payload(0, "ByteCount") == b""
        assert trace.payload(0, "dstDevice") is None  # its start was not captured
        assert [(p.parameter, p.offset) for p in trace.payloads(0)] == [(0, 8), (1, 0), (2, 0)]


def test_copies_to_the_host_are_found_by_their_payload(tmp_path: Path) -> None:
    with TraceWriter.create(tmp_path / "t.bin") as writer:
        to_host = writer.signature("cuMemcpyDtoH_v2", COPY)
        other = writer.signature("cuDeviceGetName", COPY)
        writer.add_calls(
            [(i, 1, None, s, 0, 1, 0, bytes(24)) for i, s in enumerate((to_host, other, to_host))]
        )
        writer.add_payload(0, 0, Direction.OUT, b"data")
        writer.add_payload(1, 0, Direction.OUT, b"name")
        writer.add_payload(2, 0, Direction.IN, b"in")
    with open_trace(tmp_path / "t.bin") as trace:
        assert [call.sequence for call in trace.iter_copies()] == [0]


parameters = st.lists(
    st.builds(
        Parameter,
        st.uuids().map(str),
        st.just("T"),
        st.sampled_from(Direction),
        st.sampled_from([0, 1, 4, 8, 24]),
    ),
    max_size=6,
)


@given(parameters, st.data())
def test_argument_blobs_round_trip(parameters: list[Parameter], data: st.DataObject) -> None:
    """Words always; what an in, out or inout parameter points to where the pointer is not NULL."""
    count = len(parameters)
    words = data.draw(st.lists(st.integers(0, 2**64 - 1), min_size=count, max_size=count))
    sizes = {p.name: p.pointee_size for p in parameters}
    contents = {name: data.draw(st.binary(min_size=size, max_size=size)) for name, size in sizes.items()}
    result = data.draw(st.sampled_from([0, 1, None]))
    layout = ArgumentLayout(parameters)
    blob = layout.encode(words, before=contents, after=contents)
    assert len(blob) == layout.size
    arguments, pointees, before = layout.decode(blob, result)
    assert list(arguments.values()) == words
    pointing = [p for p, word in zip(parameters, words, strict=True) if word and p.pointee_size]
    written = (Direction.OUT, Direction.INOUT) if result == 0 else ()
    assert pointees.keys() == {p.name for p in pointing if p.direction in (Direction.IN, *written)}
    assert before.keys() == {p.name for p in pointing if p.direction is Direction.INOUT}
    for name, value in (pointees | before).items():
        raw = contents[name]
        assert value == (int.from_bytes(raw, "little") if len(raw) <= 8 else raw)


def test_arguments_cut_short_lose_only_what_is_missing() -> None:
    layout = ArgumentLayout(ALLOC)
    blob = layout.encode([1, 2], after={"dptr": bytes(8)})
    assert layout.decode(blob[:16], 0) == ({"dptr": 1, "bytesize": 2}, {}, {})
    with pytest.raises(ValueError, match="12 bytes of arguments"):
        layout.decode(blob[:12], 0)


@given(st.lists(st.sampled_from([b"\0", b"\0\0\0\0\0\0", b"\1", b"\xff", b"7"]), max_size=40).map(b"".join))
def test_squeezed_arguments_come_back_and_are_never_longer(arguments: bytes) -> None:
    squeezed = squeeze(arguments)
    assert len(squeezed) <= len(arguments)
    assert squeezed == arguments or expand(squeezed, len(arguments)) == arguments
    if arguments.count(0) > len(arguments) / 2 + 1:
        assert len(squeezed) < len(arguments)


@pytest.mark.parametrize(
    ("blob", "size"),
    [
        (b"\x01", 16),  # shorter than its bitmap
        (b"\x03\x00\x07", 16),  # a byte too few
        (b"\x01\x00\x07\x07", 16),  # one too many
        (b"\x00\x80\x07", 15),  # a byte behind the end
        (b"\x01\x07", 1 << 50),  # a size that nobody has memory for
    ],
)
def test_what_is_no_squeezed_arguments_is_refused(blob: bytes, size: int) -> None:
    with pytest.raises(ValueError, match="do not stand for"):
        expand(blob, size)


def test_arguments_are_squeezed_only_where_a_trace_says_so(tmp_path: Path) -> None:
    layout = ArgumentLayout(ALLOC)
    squeezed = squeeze(layout.encode([8, 64], after={"dptr": b"\x10"}))
    for name, meta in (("new", {"requires": [SQUEEZED]}), ("old", {})):
        with TraceWriter.create(tmp_path / name, meta) as writer:
            allocate = writer.signature("cuMemAlloc_v2", ALLOC)
            writer.add_calls([(0, 1, None, allocate, 0, 1, 0, squeezed)])
    with open_trace(tmp_path / "new") as trace:
        assert (trace.call(0).arguments, trace.call(0).pointees) == (
            {"dptr": 8, "bytesize": 64},
            {"dptr": 16},
        )
    with open_trace(tmp_path / "old") as trace, pytest.raises(TraceError, match="bytes of arguments"):
        trace.call(0)
