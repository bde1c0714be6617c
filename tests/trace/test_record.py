"""Programs on the stand-in driver, recorded by real Frida: what the trace says is what they did."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from recorded_scenes import Recorded, StandIn, run_trace

from zluda.tracefile import AllocationKind, Fidelity, ModuleKind, Trace, open_trace

Scene = Callable[..., Recorded]

SAXPY_CALLS = [
    "cuInit",
    "cuDeviceGet",
    "cuCtxCreate_v2",
    "cuModuleLoadData",
    "cuMemAlloc_v2",
    "cuMemAlloc_v2",
    "cuMemcpyHtoD_v2",
    "cuMemcpyHtoD_v2",
    "cuModuleGetFunction",
    "cuLaunchKernel",
    "cuMemcpyDtoH_v2",
    "cuMemFree_v2",
    "cuMemFree_v2",
]
N = 1000
X = struct.pack(f"<{N}f", *range(N))
ONES = struct.pack(f"<{N}f", *[1] * N)
RESULT = struct.pack(f"<{N}f", *[2 * i + 1 for i in range(N)])


def allocation_named(trace: Trace, name: str) -> int:
    return next(a.id for a in trace.allocations if a.name == name)


def device_allocations(trace: Trace) -> list[int]:
    return [a.id for a in trace.allocations if a.kind is AllocationKind.DEVICE]


def contents(trace: Trace, allocation: int, call: int, size: int, offset: int = 0) -> bytes:
    """Memory after a call; every byte of it must be known."""
    data, known = trace.read_allocation(allocation, call, offset, size)
    assert known is None
    return data


def test_every_call_is_on_record_in_order_with_its_arguments(scene: Scene) -> None:
    recorded = scene("saxpy")
    assert recorded.status == 0
    with open_trace(recorded.trace) as trace:
        calls = list(trace.iter_calls())
        assert [call.function for call in calls] == SAXPY_CALLS
        assert [call.sequence for call in calls] == list(range(len(calls)))
        assert all(call.result == 0 and call.end_ns is not None for call in calls)
        assert all(call.start_ns <= (call.end_ns or 0) for call in calls)
        assert calls[4].arguments["bytesize"] == 4000
        assert calls[4].pointees["dptr"] == calls[6].arguments["dstDevice"]
        assert trace.payload(8, "name") == b"saxpy"


def test_a_launch_has_its_kernel_shape_and_packed_parameters(scene: Scene) -> None:
    with open_trace(scene("saxpy").trace) as trace:
        x, y = (a.base for a in trace.allocations if a.kind is AllocationKind.DEVICE)
        launch = trace.launch(9)
        assert (launch.kernel, launch.grid, launch.block) == ("saxpy", (1, 1, 1), (N, 1, 1))
        assert launch.parameters == struct.pack("<IfQQ", N, 2.0, x, y)
        assert launch.layout == ((0, 4), (4, 4), (8, 8), (16, 8))
        assert launch.fidelity is Fidelity.SAME_PTX
        assert launch.captured


def test_memory_is_known_before_and_after_the_launch(scene: Scene) -> None:
    with open_trace(scene("saxpy").trace) as trace:
        x, y = device_allocations(trace)
        assert contents(trace, x, 8, 4000) == X
        assert contents(trace, y, 8, 4000) == ONES
        assert contents(trace, y, 9, 4000) == RESULT
        assert [page.allocation for page in trace.pages(9)] == [y]  # x was not changed
        assert trace.payload(10, "dstHost") == RESULT


def test_the_module_its_ptx_and_its_variable_are_on_record(scene: Scene) -> None:
    with open_trace(scene("saxpy").trace) as trace:
        (module,) = trace.module_list
        assert (module.kind, module.load_call) == (ModuleKind.PTX, 3)
        assert b".entry saxpy" in (trace.ptx(module) or b"")
        variable = next(a for a in trace.allocations if a.kind is AllocationKind.GLOBAL)
        assert (variable.name, variable.size, variable.module, variable.born) == ("counter", 4, module.id, 3)
        assert contents(trace, variable.id, 8, 4) == struct.pack("<I", 100)


def test_what_was_recorded_and_where(scene: Scene) -> None:
    recorded = scene("saxpy")
    with open_trace(recorded.trace) as trace:
        assert trace.meta["gpu"] == "Stand-in GPU"
        assert trace.meta["compute_capability"] == [9, 0]
        assert trace.meta["driver_version"] == 13000
        assert trace.meta["command"][1:] == ["saxpy"]
        assert trace.meta["capture"] == "outputs"
    assert not Path(f"{recorded.trace}.rings").exists()
    assert recorded.errors == f"zluda: {recorded.trace}: 13 calls, 1 launch\n"


def test_parameters_passed_through_extra(scene: Scene) -> None:
    with open_trace(scene("extra").trace) as trace:
        x, y = (a.base for a in trace.allocations if a.kind is AllocationKind.DEVICE)
        (launch,) = trace.iter_launches()
        assert launch.parameters == struct.pack("<IfQQ", N, 3.0, x, y)
        assert (launch.grid, launch.block) == ((4, 1, 1), (250, 1, 1))


def test_launch_ex_keeps_its_configuration_and_attributes(scene: Scene) -> None:
    with open_trace(scene("launch_ex").trace) as trace:
        (launch,) = trace.iter_launches()
        assert (launch.kernel, launch.grid, launch.block) == ("saxpy", (2, 1, 1), (500, 1, 1))
        assert (launch.cluster, launch.shared_bytes) == ((2, 1, 1), 16)
        assert launch.stream == trace.call(10).pointees["phStream"]
        assert len(launch.attributes) == 72 and launch.attributes[:12] == struct.pack("<III", 4, 0, 2)
        library = next(m for m in trace.module_list if m.load_call == 4)
        assert launch.module == library.id
        y = device_allocations(trace)[1]
        assert contents(trace, y, 11, 4000) == RESULT


def test_a_kernel_that_no_export_gave_out_has_its_module(scene: Scene) -> None:
    with open_trace(scene("private_kernel").trace) as trace:
        (launch,) = trace.iter_launches()
        assert (launch.kernel, launch.module) == ("saxpy", trace.module_list[0].id)
        assert not trace.gaps


def test_memory_that_nobody_wrote_is_captured_before_the_first_launch(scene: Scene) -> None:
    recorded = scene("memory")
    assert recorded.status == 0 and "20 calls, 3 launches" in recorded.errors
    with open_trace(recorded.trace) as trace:
        assert not [gap for gap in trace.gaps if gap.kind == "recorder"]
        target, counter = device_allocations(trace)[0], allocation_named(trace, "counter")
        assert contents(trace, target, 5, 4096) == bytes(4096)
        assert contents(trace, counter, 5, 4) == struct.pack("<I", 100)
        assert contents(trace, target, 6, 4096)[:4] == struct.pack("<I", 7)
        assert contents(trace, counter, 6, 4) == struct.pack("<I", 101)


def test_fills_and_copies_on_the_device(scene: Scene) -> None:
    with open_trace(scene("memory").trace) as trace:
        _, _, big, filled = device_allocations(trace)
        assert contents(trace, filled, 10, 1000) == struct.pack("<I", 0x01020304) * 250
        assert contents(trace, big, 11, 200000) == b"\xab" * 200000
        assert contents(trace, big, 12, 200000) == (
            b"\xab" * 100000 + struct.pack("<I", 0x01020304) * 250 + b"\xab" * 99000
        )
        assert {page.offset for page in trace.pages(12)} == {65536}
        assert trace.payload(16, "dst") == struct.pack("<I", 0x01020304) * 250


def test_memory_reached_through_a_stored_pointer(scene: Scene) -> None:
    with open_trace(scene("memory").trace) as trace:
        target, _, big, _ = device_allocations(trace)
        assert {(page.allocation, page.offset) for page in trace.pages(15)} == {(target, 0), (big, 65536)}
        assert contents(trace, big, 15, 4, 70000) == struct.pack("<I", 2)


def test_memory_written_by_a_call_that_is_not_understood_is_read_again(scene: Scene) -> None:
    with open_trace(scene("memory").trace) as trace:
        big = device_allocations(trace)[2]
        assert contents(trace, big, 18, 4, 512) == b"\x01" * 4
        assert "cuStreamWriteValue32" not in {gap.kind for gap in trace.gaps}  # replayed, that is


def test_threads_that_launch_a_kernel_for_the_first_time_together(scene: Scene) -> None:
    recorded = scene("first_launches")
    assert recorded.status == 0, recorded.errors
    with open_trace(recorded.trace) as trace:
        assert trace.counts().launches == 6 * 30
        for launch in trace.iter_launches():
            assert launch.layout == ((0, 4), (4, 4), (8, 8), (16, 8))
            assert launch.parameters is not None and launch.parameters[:8] == struct.pack("<If", 4, 2.0)


def test_calls_of_many_threads(scene: Scene) -> None:
    with open_trace(scene("threads").trace) as trace:
        calls = list(trace.iter_calls())
        assert [call.sequence for call in calls] == list(range(len(calls)))
        by_thread = Counter(call.thread for call in calls if call.function == "cuLaunchKernel")
        assert sorted(by_thread.values()) == [200] * 6
        born = Counter(a.base for a in trace.allocations if a.kind is AllocationKind.DEVICE)
        assert sum(born.values()) == 1200
        assert len(born) < 1200  # addresses come again, as other allocations
        assert all(a.died is not None for a in trace.allocations if a.kind is AllocationKind.DEVICE)
        assert trace.counts().launches == 1200


def test_allocations_of_one_address_do_not_overlap_in_time(scene: Scene) -> None:
    with open_trace(scene("threads").trace) as trace:
        last: dict[int, int] = {}
        for allocation in sorted(trace.allocations, key=lambda a: a.born):
            assert last.get(allocation.base, -1) <= allocation.born
            last[allocation.base] = allocation.died or 1 << 60


def test_memory_freed_while_its_next_allocation_is_under_way(scene: Scene) -> None:
    recorded = scene("reuse")
    assert recorded.status == 0, recorded.errors
    with open_trace(recorded.trace) as trace:
        first, second = (a for a in trace.allocations if a.kind is AllocationKind.DEVICE)
        assert first.base == second.base
        made = [call for call in trace.iter_calls() if call.function == "cuMemAlloc_v2"]
        freed = next(call for call in trace.iter_calls() if call.function == "cuMemFree_v2")
        assert made[1].sequence < freed.sequence < trace.counts().calls - 1
        assert made[1].start_ns < freed.start_ns < (made[1].end_ns or 0) < (freed.end_ns or 0)
        assert (first.born, first.died) == (made[0].sequence, freed.sequence)
        assert (second.born, second.died) == (freed.sequence, None)
        before, after = trace.iter_launches()
        assert before.call < freed.sequence < after.call
        assert contents(trace, first.id, before.call, 4) == struct.pack("<I", 5)
        assert contents(trace, second.id, after.call, 4) == struct.pack("<I", 9)


def test_work_put_in_a_graph_is_inside_the_capture(scene: Scene) -> None:
    with open_trace(scene("capture").trace) as trace:
        assert trace.call(7).function == "cuLaunchKernel" and trace.call(7).parent == 6
        assert not trace.gaps
        assert [launch.call for launch in trace.iter_launches()] == [9]


def test_handles_that_come_again_after_an_unload(scene: Scene) -> None:
    with open_trace(scene("unload").trace) as trace:
        launches = list(trace.iter_launches())
        assert [launch.kernel for launch in launches] == ["count"] * 3
        modules = {m.id: m for m in trace.module_list}
        for launch in launches:
            assert launch.module is not None
            module = modules[launch.module]
            assert module.load_call < launch.call
            assert module.unload_call is None or module.unload_call > launch.call


@pytest.mark.parametrize("version", ["1", "2"])
def test_the_fat_binary_behind_a_wrapper(scene: Scene, version: str) -> None:
    with open_trace(scene("wrapper", version).trace) as trace:
        module = next(m for m in trace.module_list if m.load_call == 4)
        assert module.kind is ModuleKind.FATBIN
        image = trace.image(module.images[0])
        assert image[:4] == bytes.fromhex("50ed55ba") and b".entry saxpy" in image
        assert module.ptx_image is not None and module.ptx_image.architecture == "compute_90"
        assert (trace.ptx(module) or b"").startswith(b".version 8.0")
        (launch,) = trace.iter_launches()
        assert (launch.module, launch.fidelity) == (module.id, Fidelity.SAME_PTX)


def test_a_module_loaded_from_a_file(standin: StandIn, tmp_path: Path) -> None:
    source = tmp_path / "module.ptx"
    recorded = run_trace(tmp_path / "trace.bin", standin.app, "file", str(source))
    source.unlink()
    with open_trace(recorded.trace) as trace:
        module = next(m for m in trace.module_list if m.load_call == 4)
        assert module.origin == str(source)
        assert b".entry empty" in (trace.ptx(module) or b"")


def test_failed_calls_have_their_result_and_no_effect(scene: Scene) -> None:
    with open_trace(scene("failures").trace) as trace:
        results = {call.sequence: call.result for call in trace.iter_calls()}
        assert [results[n] for n in (4, 5, 6, 7, 9)] == [2, 500, 200, 1, 1]
        assert trace.call(4).pointees == {}
        assert not device_allocations(trace)
        assert len(trace.module_list) == 1
        assert not list(trace.iter_launches())


def test_an_export_without_a_prototype_is_recorded_by_name(scene: Scene) -> None:
    with open_trace(scene("failures").trace) as trace:
        call = trace.call(10)
        assert call.function == "cuStandInSecret"
        assert (call.arguments["argument0"], call.arguments["argument1"]) == (1, 2)
        assert [gap.kind for gap in trace.gaps if gap.call == 10] == ["cuStandInSecret"]


def test_capture_calls_keeps_only_what_the_host_sends(scene: Scene) -> None:
    recorded = scene("saxpy", capture="calls")
    with open_trace(recorded.trace) as trace:
        x, _ = device_allocations(trace)
        assert contents(trace, x, 8, 4000) == X
        assert trace.pages(9) == []
        assert trace.payload(10, "dstHost") is None
        assert not trace.launch(9).captured


def test_a_driver_that_is_loaded_late(standin: StandIn, tmp_path: Path) -> None:
    recorded = run_trace(tmp_path / "late.bin", standin.late, standin.driver)
    assert recorded.status == 0
    with open_trace(recorded.trace) as trace:
        assert [call.function for call in trace.iter_calls()] == ["cuInit", "cuDeviceGetCount"]


@pytest.mark.parametrize("form", ["child", "fork"])
def test_a_child_gets_a_trace_of_its_own(scene: Scene, form: str) -> None:
    recorded = scene(form)
    assert recorded.status == (4 if form == "fork" else 0)
    others = [p for p in recorded.trace.parent.glob("trace.*.bin")]
    assert len(others) == 1
    for path in (recorded.trace, *others):
        with open_trace(path) as trace:
            assert [call.function for call in trace.iter_calls()] == SAXPY_CALLS
            assert f".{trace.meta['pid']}." in path.name or path == recorded.trace
