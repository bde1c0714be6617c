"""CUDA graphs on the stand-in driver, recorded and replayed: what a launch of a graph did is on record."""

from __future__ import annotations

import shutil
import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from recorded_scenes import Recorded, StandIn, run_trace

import zluda
from zluda.diff.results import Verdict
from zluda.replay import conditions
from zluda.tracefile import AllocationKind, Call, Trace, open_trace
from zluda.tracefile.text import launch_line

Scene = Callable[..., Recorded]
N = 256
IF, WHILE, SWITCH = range(3)
OVERWRITTEN = "what it wrote, later nodes of its graph wrote too; memory is on record after the graph only"


@pytest.fixture(scope="module")
def graph_scene(standin: StandIn, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    made: dict[tuple[str, str], Recorded] = {}

    def record(name: str, capture: str = "outputs") -> Recorded:
        if (name, capture) not in made:
            trace = tmp_path_factory.mktemp(name) / "trace.bin"
            made[name, capture] = run_trace(trace, standin.graphs, name, capture=capture)
            print(made[name, capture].errors)
        return made[name, capture]

    return record


def nodes_of(trace: Trace, launch: int) -> list[Call]:
    """The calls inside the launch of a graph but for its end, which is checked."""
    *nodes, end = (call for call in trace.iter_calls(launch) if call.parent == launch)
    assert [one.sequence for one in nodes] == list(range(launch + 1, end.sequence))
    assert (end.function, end.result) == ("cuStreamQuery", 0)
    assert trace.graphs.end(launch) == end.sequence
    return nodes


def graph_launches(trace: Trace) -> list[int]:
    return [call.sequence for call in trace.iter_calls() if call.function == "cuGraphLaunch"]


def base_of(trace: Trace, which: int) -> int:
    return [a for a in trace.allocations if a.kind is AllocationKind.DEVICE][which].base


def test_nodes_are_calls_inside_the_launch_in_an_order_that_the_edges_allow(graph_scene: Scene) -> None:
    with open_trace(graph_scene("built").trace) as trace:
        first, second = graph_launches(trace)
        functions = [call.function for call in nodes_of(trace, first)]
        kernels = [
            trace.launch(c.sequence).kernel if "Launch" in c.function else "" for c in nodes_of(trace, first)
        ]
        copy_in, saxpy, tripled, fill, again, copy_out = range(6)
        assert sorted(functions) == sorted([call.function for call in nodes_of(trace, second)])
        assert functions[copy_in] == functions[copy_out] == "cuMemcpy3DAsync_v2"
        assert functions[fill] == "cuMemsetD32Async"
        assert (kernels[saxpy], kernels[tripled], kernels[again]) == ("saxpy", "triple", "triple")


def test_a_kernel_nodes_parameters_are_those_when_it_was_added(graph_scene: Scene) -> None:
    with open_trace(graph_scene("built").trace) as trace:
        launch = next(one for one in trace.iter_launches() if one.kernel == "saxpy")
        x, y, numbers = (base_of(trace, which) for which in range(3))
        assert launch.parameters == struct.pack("<IfQQ", N, 2.0, x, y)
        assert (launch.grid, launch.block, launch.cluster) == ((2, 1, 1), (N // 2, 1, 1), (2, 1, 1))
        assert launch.layout == ((0, 4), (4, 4), (8, 8), (16, 8))
        assert launch.stream == trace.call(9).pointees["phStream"]
        other = next(one for one in trace.iter_launches() if one.kernel == "triple")
        assert other.parameters == struct.pack("<QI", numbers, N)


def test_memory_is_on_record_at_the_graphs_end(graph_scene: Scene) -> None:
    with open_trace(graph_scene("built").trace) as trace:
        for launch, start in zip(graph_launches(trace), (1003, 5), strict=True):
            nodes = nodes_of(trace, launch)
            copied = trace.payload(nodes[0].sequence, "pCopy")
            assert copied is not None and struct.unpack_from("<I", copied, 12) == (start,)
            expected = [22] * (N // 2) + [9 * (1000 + i) + 4 for i in range(N // 2, N)]
            data, known = trace.read_memory(trace.graphs.end(launch) or 0, base_of(trace, 2), 4 * N)
            assert known is None and list(struct.unpack(f"<{N}I", data)) == expected
            assert trace.payload(nodes[-1].sequence, "pCopy") == data
        assert not trace.gaps


def test_a_capture_holds_its_calls_and_the_graph_runs_them(graph_scene: Scene) -> None:
    recorded = graph_scene("captured")
    assert recorded.status == 0
    with open_trace(recorded.trace) as trace:
        calls = list(trace.iter_calls())
        begun = [call.sequence for call in calls if call.function == "cuStreamBeginCapture_v2"]
        inside = [call.function for call in calls if call.parent == begun[0]]
        assert inside == [
            *("cuMemcpyHtoDAsync_v2", "cuLaunchKernel", "cuMemsetD32Async", "cuMemcpyDtoHAsync_v2"),
            *("cuLaunchHostFunc", "cuMemcpyHtoDAsync_v2", "cuLaunchKernelEx"),
        ]
        launches = [trace.graphs.is_node(trace.call(one.call)) for one in trace.iter_launches()]
        assert launches == [False] + 6 * [True] + [False] + 2 * [True]  # the other thread's are launches
        assert not trace.gaps


def test_host_memory_that_a_graph_changes_is_read_where_it_still_tells(graph_scene: Scene) -> None:
    with open_trace(graph_scene("captured").trace) as trace:
        nodes = nodes_of(trace, graph_launches(trace)[0])
        copies = [call.sequence for call in nodes if call.function.startswith("cuMemcpy3D")]
        first, out, back = (trace.payload(call, "pCopy") for call in copies)
        assert first is not None and struct.unpack_from("<3I", first) == (0, 1, 2)
        assert out is None  # the callback has written over it
        assert back is not None and struct.unpack_from("<3I", back) == (10, 10, 10)


def test_an_update_from_another_graph_replaces_what_nodes_do(graph_scene: Scene) -> None:
    with open_trace(graph_scene("captured").trace) as trace:
        saxpy = [one.parameters for one in trace.iter_launches() if one.kernel == "saxpy"]
        assert [struct.unpack_from("<If", one) for one in saxpy] == 3 * [(N, 2.0)] + [(N, 3.0)]


def test_setters_and_child_graphs(graph_scene: Scene) -> None:
    with open_trace(graph_scene("updated").trace) as trace:
        first, second, third = (nodes_of(trace, launch) for launch in graph_launches(trace))
        assert [call.function for call in first] == [
            "cuLaunchKernelEx",
            "cuMemsetD8Async",
            "cuLaunchKernelEx",
        ]
        assert [call.function for call in second] == [
            "cuLaunchKernelEx",
            "cuMemsetD2D16Async",
            "cuLaunchKernelEx",
        ]
        assert [call.function for call in third] == ["cuLaunchKernelEx", "cuLaunchKernelEx"]
        flat = second[1].arguments
        assert [flat[name] for name in ("dstPitch", "us", "Width", "Height")] == [16, 5, 4, 8]
        counts = [
            struct.unpack_from("<8xI", trace.launch(nodes[0].sequence).parameters)[0]
            for nodes in (first, second)
        ]
        assert counts == [N, 100]
        factors = [
            struct.unpack_from("<4xf", trace.launch(nodes[-1].sequence).parameters)[0]
            for nodes in (first, third)
        ]
        assert factors == [2.0, 5.0]


@pytest.mark.parametrize(
    ("name", "launches", "copies", "kinds"),
    [
        ("built", 6, 4, {Verdict.IDENTICAL: 8, Verdict.NOT_COMPARED: 2}),
        ("captured", 10, 6, {Verdict.IDENTICAL: 12, Verdict.NOT_COMPARED: 4}),
        ("updated", 9, 2, {Verdict.IDENTICAL: 11}),
    ],
)
def test_a_replay_runs_every_node(
    graph_scene: Scene, name: str, launches: int, copies: int, kinds: dict[Verdict, int]
) -> None:
    result = zluda.replay(graph_scene(name).trace, device="cpu")
    assert (sum(r.kind == "launch" for r in result.results), len(result.results)) == (
        launches,
        launches + copies,
    )
    assert {kind: sum(r.verdict is kind for r in result.results) for kind in kinds} == kinds
    assert [r.call for r in result.results] == sorted(r.call for r in result.results)
    assert not result.meta["not_replayed"]


def test_a_wrong_kernel_in_a_graph_is_named(graph_scene: Scene) -> None:
    result = zluda.replay(graph_scene("wrong").trace, device="cpu")
    saxpy, second, third = (r for r in result.results if r.kind == "launch")
    assert (saxpy.verdict, third.verdict) == (Verdict.IDENTICAL, Verdict.DIFFERS)
    assert second.verdict is Verdict.NOT_COMPARED and "later nodes" in second.reason
    assert result.first_divergence is not None and result.first_divergence.result.call == third.call


def test_bodies_are_inside_the_conditional_node(graph_scene: Scene) -> None:
    recorded = graph_scene("looping")
    assert recorded.status == 0, recorded.errors
    with open_trace(recorded.trace) as trace:
        first, second = graph_launches(trace)
        nodes = [
            (call.function.removeprefix("zluda_"), *call.arguments.values())
            if call.function.startswith("zluda_")
            else trace.launch(call.sequence).kernel
            for call in nodes_of(trace, first)
        ]
        made = [c for c in trace.iter_calls() if c.function == "cuGraphConditionalHandleCreate"]
        again, never, which = (call.pointees["pHandle_out"] for call in made)
        assert nodes == [
            "triple",
            *(("conditional", again, WHILE, 1), ("body", 0), "advance", "triple"),
            *(("conditional", never, IF, 2), ("body", 0), "saxpy", ("body", 1), "triple"),
            *(("conditional_end",), ("conditional_end",), "advance"),
            *(("conditional", which, SWITCH, 3), ("body", 0), ("body", 1), "saxpy", ("body", 2), "triple"),
            ("conditional_end",),
        ]
        assert len(nodes_of(trace, second)) == len(nodes) and not trace.gaps
        assert trace.meta["requires"] == ["conditional nodes", "squeezed arguments"]


@pytest.mark.parametrize("device", ["cpu", "gfx1030"])
def test_a_replay_finds_out_how_often_a_body_runs(graph_scene: Scene, device: str) -> None:
    result = zluda.replay(graph_scene("looping").trace, device=device)
    found = [(one.kernel, one.verdict.value, one.reason) for one in result.results if one.kind == "launch"]
    idle, over = ("not-compared", "its condition did not hold"), ("not-compared", OVERWRITTEN)
    same = ("identical", "")
    assert found == [
        *(("triple", *over), ("advance", *same), ("triple", *over), ("saxpy", *idle), ("triple", *same)),
        *(("advance", *same), ("saxpy", *same), ("triple", *idle)),
        *(("triple", *over), ("advance", *same), ("triple", *over), ("saxpy", *idle), ("triple", *over)),
        *(("advance", *same), ("saxpy", *idle), ("triple", *same)),
    ]
    assert {one.verdict for one in result.results if one.kind == "copy"} == {Verdict.IDENTICAL}


def test_a_loop_that_runs_once_too_often_differs(graph_scene: Scene, tmp_path: Path) -> None:
    trace = tmp_path / "trace.bin"
    shutil.copy(graph_scene("looping").trace, trace)
    with open_trace(trace) as opened:
        launch = next(one for one in opened.iter_launches() if one.kernel == "advance")
    parameters = launch.parameters[:8] + struct.pack("<I", 4) + launch.parameters[12:]
    with sqlite3.connect(trace) as connection:
        connection.execute("UPDATE launch SET parameters = ? WHERE call = ?", (parameters, launch.call))
    results = zluda.replay(trace, device="cpu").results
    wrong = {one.kernel for one in results if one.verdict is Verdict.DIFFERS}
    assert wrong == {"advance", "triple"}


def test_a_loop_without_end_is_a_hang(
    graph_scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conditions, "LOOP_SECONDS", 0.0)
    trace = tmp_path / "trace.bin"
    shutil.copy(graph_scene("looping").trace, trace)
    with open_trace(trace) as opened:
        launch = next(one for one in opened.iter_launches() if one.kernel == "advance")
    parameters = launch.parameters[:8] + struct.pack("<I", 1 << 31) + launch.parameters[12:]
    with sqlite3.connect(trace) as connection:
        connection.execute("UPDATE launch SET parameters = ? WHERE call = ?", (parameters, launch.call))
    results = [one for one in zluda.replay(trace, device="cpu").results if one.kind == "launch"]
    assert {one.verdict for one in results[:8]} == {Verdict.HANG}
    assert "the loop of its conditional node has no end" in results[0].reason
    assert all(one.verdict.counts_as.value in ("holds", "neutral") for one in results[8:])


def test_a_condition_that_no_call_made_is_a_gap_and_what_follows_is_judged(graph_scene: Scene) -> None:
    recorded = graph_scene("conditional")
    with open_trace(recorded.trace) as trace:
        data, known = trace.read_memory(trace.graphs.end(graph_launches(trace)[0]) or 0, base_of(trace, 2), 8)
        assert known is None and struct.unpack("<2I", data) == (1, 4)
    *launches, first, second = zluda.replay(recorded.trace, device="cpu").results
    assert [one.verdict for one in launches] == [Verdict.GAP] * 2
    assert "the call that made its condition 0x1 is not on record" in launches[0].reason
    assert [copy.verdict for copy in (first, second)] == [Verdict.IDENTICAL] * 2


def test_a_copy_from_pageable_memory_that_the_graph_writes_is_a_gap(graph_scene: Scene) -> None:
    recorded = graph_scene("pageable")
    with open_trace(recorded.trace) as trace:
        nodes = nodes_of(trace, graph_launches(trace)[0])
        copies = [call.sequence for call in nodes if call.function.startswith("cuMemcpy3D")]
        assert [trace.payload(call, "pCopy") is not None for call in copies] == [True, False, False]
    results = zluda.replay(recorded.trace, device="cpu").results
    (last,) = (r for r in results if r.kernel == "saxpy")
    assert last.verdict is Verdict.GAP and "the bytes it copied were not captured" in last.reason
    assert [r.verdict for r in results[-2:]] == [Verdict.IDENTICAL] * 2  # on the record's memory


def test_a_program_that_ends_inside_a_graph_leaves_its_nodes_open(graph_scene: Scene) -> None:
    recorded = graph_scene("dying")
    assert recorded.status == 3
    with open_trace(recorded.trace) as trace:
        launch = graph_launches(trace)[0]
        assert [call.result for call in trace.iter_calls(launch)] == [None] * 3
        assert [one.kernel for one in trace.iter_launches()] == ["triple"]


def test_a_graph_that_cannot_be_launched_is_a_call_that_failed(graph_scene: Scene) -> None:
    with open_trace(graph_scene("conditional").trace) as trace:
        launched, failed = graph_launches(trace)
        assert (trace.call(launched).result, trace.call(failed).result) == (0, 1)
        assert len(list(trace.iter_launches())) == 2  # of the first graph


def test_without_memory_a_graphs_end_says_so(graph_scene: Scene) -> None:
    with open_trace(graph_scene("updated", "calls").trace) as trace:
        launch = graph_launches(trace)[0]
        end = trace.call(trace.graphs.end(launch) or 0)
        assert (end.function, end.result) == ("cuStreamQuery", 600)


def test_every_form_of_a_launch_with_its_attributes(graph_scene: Scene) -> None:
    with open_trace(graph_scene("updated").trace) as trace:
        launches = list(trace.iter_launches())[-3:]
        functions = [trace.call(one.call).function for one in launches]
        assert functions == ["cuLaunchKernel_ptsz", "cuLaunchCooperativeKernel", "cuLaunchKernelEx"]
        ids = [struct.unpack_from("<I", launches[2].attributes, at)[0] for at in (0, 72, 144)]
        assert ids == [6, 8, 2]
        shown = launch_line(launches[2])
        assert " PROGRAMMATIC_STREAM_SERIALIZATION=1 PRIORITY=-1 COOPERATIVE=1 stream=" in shown
        assert all(one.captured for one in launches) and not trace.gaps
