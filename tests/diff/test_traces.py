"""Two traces compared: identical ones, ones that part, and ones that cannot be paired."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from zluda.diff import ReplayResult, Verdict
from zluda.diff.traces import compare_traces
from zluda.replay.cutting import trim
from zluda.tracefile import Direction, ModuleKind, Parameter, Selection, TraceWriter, open_trace
from zluda.tracefile.arguments import ArgumentLayout

BASE = 0x7F00_0000_0000
COPY = [Parameter("dstHost", "void *", Direction.OUT), Parameter("srcDevice", "CUdeviceptr")]
PTX = b"""
.version 8.0
.target sm_90
.address_size 64
.visible .entry scale(.param .u64 out) {
    .reg .b64 %rd<3>;
    .reg .f32 %f<3>;
    ld.param.u64 %rd1, [out];
    cvta.to.global.u64 %rd2, %rd1;
    ld.global.f32 %f1, [%rd2];
    add.f32 %f2, %f1, %f1;
    st.global.f32 [%rd2], %f2;
    ret;
}
"""


def record(
    path: Path,
    contents: list[list[float]],
    *,
    kernels: list[str] | None = None,
    base: int = BASE,
    size: int = 64,
    captured: bool = True,
    known: int | None = None,
    parameters: bytes = b"",
    block: int = 0,
    layout: tuple[tuple[int, int], ...] | None = ((0, 8),),
) -> Path:
    """Each list of floats is the buffer after one launch; a copy of it to the host follows the last."""
    kernels = kernels or ["scale"] * len(contents)
    with TraceWriter.create(path, {"device": "cpu"}) as writer:
        copy = writer.signature("cuMemcpyDtoH_v2", COPY)
        launch = writer.signature("cuLaunchKernel", [])
        module = writer.add_module(0, ModuleKind.PTX, 1, image=PTX)
        writer.add_calls([(0, 1, None, launch, 0, 1, 0, b"")])
        buffer = writer.add_allocation(0, base, size)
        for call, (kernel, values) in enumerate(zip(kernels, contents, strict=True), 1):
            writer.add_calls([(call, 1, None, launch, 0, 1, 0, b"")])
            function = writer.add_function(call, call, kernel, module=module, layout=layout)
            shape = writer.shape(function, (1, 1, 1), (block or len(values), 1, 1))
            writer.add_launch(
                call, shape, struct.pack("<Q", base) + parameters, gpu_time_ns=2000, captured=captured
            )
            if captured:
                writer.add_page(call, buffer, 0, floats(values)[:known])
        last = len(contents) + 1
        writer.add_calls([(last, 1, None, copy, 0, 1, 0, ArgumentLayout(COPY).encode([1, base]))])
        writer.add_payload(last, 0, Direction.OUT, floats(contents[-1]))
    return path


def floats(values: list[float]) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def compared(left: Path, right: Path) -> ReplayResult:
    with open_trace(left) as a, open_trace(right) as b:
        return compare_traces(a, b)


def verdicts(result: ReplayResult) -> list[str]:
    return [str(found.verdict.value) for found in result.results]


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"block": 3}, "its block is 2×1×1 here and 3×1×1 there"),
        ({"parameters": b"\5\0\0\0"}, "it has 12 bytes of parameters here and 8 there"),
        ({"parameters": struct.pack("<I", 6)}, "parameter 1 is 0x5 here and 0x6 there"),
        ({"parameters": struct.pack("<I", 5), "base": BASE + 512}, ""),
    ],
)
def test_a_launch_that_was_asked_otherwise_differs(
    tmp_path: Path, other: dict[str, object], reason: str
) -> None:
    """Also where memory came out the same; a pointer to the same place of another address is the same."""
    layout = ((0, 8), (8, 4))
    left = {"parameters": struct.pack("<I", 5), "layout": layout} if "parameters" in other else {}
    right = {"layout": layout, **other} if left else other
    if "bytes" in reason:
        right.pop("parameters")
    result = compared(record(tmp_path / "a", [[1, 2]], **left), record(tmp_path / "b", [[1, 2]], **right))  # type: ignore[arg-type]
    assert verdicts(result) == ["differs" if reason else "identical", "identical"]
    assert result.results[0].reason == reason


def test_bytes_between_parameters_are_anything(tmp_path: Path) -> None:
    layout = ((0, 8), (8, 1), (12, 4))
    a, b = (
        record(tmp_path / name, [[1, 2]], layout=layout, parameters=struct.pack("<BBBBI", 1, *gap, 9))
        for name, gap in (("a", (0, 0, 0)), ("b", (7, 7, 7)))
    )
    assert verdicts(compared(a, b)) == ["identical"] * 2


def test_a_launch_that_changed_nothing_in_either_is_not_compared(tmp_path: Path) -> None:
    a, b = (record(tmp_path / name, [[1, 2]], known=0) for name in "ab")
    result = compared(a, b)
    assert verdicts(result) == ["not-compared", "identical"]
    assert result.results[0].reason == "neither launch changed a byte"


def test_a_trace_is_identical_to_its_copy(tmp_path: Path) -> None:
    result = compared(record(tmp_path / "a", [[1, 2], [2, 4]]), record(tmp_path / "b", [[1, 2], [2, 4]]))
    assert verdicts(result) == ["identical"] * 3
    assert [found.kind for found in result.results] == ["launch", "launch", "copy"]
    assert result.exit_status() == 0
    first = result.results[0]
    assert (first.call, first.kernel, first.block, first.recorded_seconds) == (1, "scale", (2, 1, 1), 2e-6)
    assert first.buffers[0].bytes_compared == 8
    assert first.written_share == 1.0


def test_traces_recorded_at_different_addresses(tmp_path: Path) -> None:
    a, b = record(tmp_path / "a", [[1, 2]]), record(tmp_path / "b", [[1, 2]], base=BASE + (1 << 21))
    assert verdicts(compared(a, b)) == ["identical", "identical"]


def test_the_launch_that_differs_and_what_follows_from_it(tmp_path: Path) -> None:
    a = record(tmp_path / "a", [[1, 2], [2, 4], [4, 8]])
    b = record(tmp_path / "b", [[1, 2], [2, 5], [4, 10]])
    result = compared(a, b)
    assert verdicts(result) == ["identical", "differs", "inherited", "inherited"]
    assert result.exit_status() == 1
    assert f"{BASE:#x}" in result.results[2].reason
    divergence = result.first_divergence
    assert divergence is not None and divergence.element is not None and divergence.buffer is not None
    assert divergence.result.call == 2
    assert divergence.buffer.element_type == "f32"  # from the PTX in the trace
    assert (divergence.element.index, divergence.element.recorded, divergence.element.replayed) == (
        1,
        4.0,
        5.0,
    )
    assert divergence.element.address == BASE + 4


def test_a_pool_is_looked_at_where_something_is_on_record(tmp_path: Path) -> None:
    """Reading 2^50 bytes of it would take all memory, and years."""
    a = record(tmp_path / "a", [[1, 2], [2, 4], [4, 8]], size=1 << 50)
    b = record(tmp_path / "b", [[1, 2], [2, 5], [4, 10]], size=1 << 50)
    assert verdicts(compared(a, b)) == ["identical", "differs", "inherited", "inherited"]


def test_a_copy_is_read_as_the_elements_of_its_source(tmp_path: Path) -> None:
    result = compared(record(tmp_path / "a", [[1, 2]]), record(tmp_path / "b", [[1, 3]]))
    copy = result.results[-1]
    assert (copy.kind, copy.buffers[0].element_type, copy.buffers[0].first[0].replayed) == (
        "copy",
        "f32",
        3.0,
    )


def test_a_write_that_only_one_trace_has_is_a_difference(tmp_path: Path) -> None:
    a, b = record(tmp_path / "a", [[1, 2], [2, 4]]), record(tmp_path / "b", [[1, 2], [2, 4]])
    with TraceWriter.reopen(b) as writer:
        writer.add_page(1, 1, 8, b"stray")
    with TraceWriter.reopen(a) as writer:
        writer.add_page(0, 1, 0, bytes(64))
    result = compared(a, b)
    assert verdicts(result)[0] == "differs"
    assert result.results[0].buffers[0].first[0].index == 2


def test_other_kernels_end_the_comparison(tmp_path: Path) -> None:
    a = record(tmp_path / "a", [[1, 2]] * 3)
    b = record(tmp_path / "b", [[1, 2]] * 3, kernels=["scale", "other", "scale"])
    result = compared(a, b)
    assert verdicts(result) == ["identical", "gap", "gap", "gap"]
    assert "has other here (call 2)" in result.results[1].reason
    assert result.exit_status() == 2


@pytest.mark.parametrize("longer", ["a", "b"])
def test_one_trace_ends_before_the_other(tmp_path: Path, longer: str) -> None:
    paths = {name: record(tmp_path / name, [[1, 2]] * (2 if name == longer else 1)) for name in "ab"}
    result = compared(paths["a"], paths["b"])
    assert verdicts(result)[0] == "identical"
    assert Verdict.GAP in result.counts
    assert result.exit_status() == 2


def test_memory_that_was_not_captured(tmp_path: Path) -> None:
    with_memory = record(tmp_path / "a", [[1, 2]])
    without = record(tmp_path / "b", [[1, 2]], captured=False)
    neither = compared(without, record(tmp_path / "c", [[1, 2]], captured=False))
    assert verdicts(neither)[0] == "not-compared"
    one = compared(with_memory, without)
    assert verdicts(one)[0] == "gap"
    assert f"{without} holds no memory after this launch" in one.reasons


def test_bytes_unknown_on_one_side_are_left_out_of_the_share(tmp_path: Path) -> None:
    a, b = record(tmp_path / "a", [[1, 2]]), record(tmp_path / "b", [[1, 7]], known=4)
    result = compared(a, b)
    assert verdicts(result)[0] == "identical"
    assert result.results[0].written_share == 0.5


def test_an_allocation_that_the_other_trace_does_not_have(tmp_path: Path) -> None:
    a, b = record(tmp_path / "a", [[1, 2]]), record(tmp_path / "b", [[1, 2]], size=128)
    result = compared(a, b)
    assert verdicts(result)[0] == "gap"
    assert "allocation 1" in result.results[0].reason


def test_progress_is_told_of_every_event(tmp_path: Path) -> None:
    a, b = record(tmp_path / "a", [[1, 2], [2, 4]]), record(tmp_path / "b", [[1, 2], [2, 4]])
    seen: list[int] = []
    with open_trace(a) as left, open_trace(b) as right:
        compare_traces(left, right, progress=seen.append)
    assert seen == [1, 2, 3]


@pytest.mark.parametrize("select", ["473-488", "475", "0-469"])
def test_a_part_is_held_against_the_same_calls_of_the_whole(tmp_path: Path, select: str) -> None:
    whole = Path(__file__).parents[2] / "corpus" / "histogram" / "trace.bin"
    part = tmp_path / "part.bin"
    with open_trace(whole) as trace:
        trim(trace, part, Selection.parse((select,)))
    with open_trace(part) as trace:
        inside = trace.counts().launches
    for first, second in ((whole, part), (part, whole), (part, part)):
        result = compared(first, second)
        assert result.exit_status() == 0
        identical = [one for one in result.results if one.verdict is Verdict.IDENTICAL]
        others = [one for one in result.results if one.verdict is not Verdict.IDENTICAL]
        assert sum(one.kind == "launch" for one in identical) == inside
        assert {one.reason for one in others} <= {"it is not in both parts of the recording"}
        assert all(one.verdict is Verdict.NOT_COMPARED for one in others)
