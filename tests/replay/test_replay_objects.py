"""Handles, addresses, streams, contexts and variables: what recorded objects become."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from kernels import ADD, HEADER, LAYOUT, MODULE, add, added, parameters, ramp
from python_device import PythonDevice, PythonKernel, PythonSession
from replay_case import Case
from trace_builder import BASE, TraceBuilder

import zluda
from zluda.device.base import Dim3
from zluda.diff.results import ReplayResult, Verdict
from zluda.driver.translated import TranslatedDriver
from zluda.tracefile import ModuleKind

COUNT = 64
SIZE = 4 * COUNT

SCALE = (
    HEADER
    + ".visible .const .align 4 .f32 factor = 0f40000000;\n.visible .global .align 4 .u32 counter;\n"
    + ADD.replace("add(", "scale(").replace("add_param", "scale_param")
)


def verdicts(result: ReplayResult) -> list[Verdict]:
    return [one.verdict for one in result.results]


def fill_with(value: int) -> PythonKernel:
    """A kernel that fills its destination with one byte."""

    def kernel(device: PythonDevice, grid: Dim3, block: Dim3, packed: bytes) -> None:
        destination, _, count = struct.unpack("<QQI", packed)
        device.write(destination, bytes([value]) * (4 * count))

    return kernel


def two_buffers(case: Case) -> tuple[int, int]:
    record = case.record
    x, y = record.allocate(SIZE), record.allocate(SIZE)
    record.copy_in(x, ramp(COUNT))
    record.copy_in(y, ramp(COUNT, 0.5))
    return x, y


def test_allocations_are_at_their_recorded_addresses(case: Case) -> None:
    """So pointers stored in memory work: ``chase`` follows one."""

    def chase(device: PythonDevice, grid: Dim3, block: Dim3, packed: bytes) -> None:
        (node,) = struct.unpack_from("<Q", packed)
        (target,) = struct.unpack("<Q", device.read(node, 8))
        device.write(target, b"found it")

    record = case.record
    record.start()
    module = record.module(HEADER + ADD.replace("add(", "chase(").replace("add_param", "chase_param"))
    kernel = record.function(module, "chase", LAYOUT)
    node, target = record.allocate(64), record.allocate(64)
    record.copy_in(node, target.to_bytes(8, "little") + bytes(56))
    record.launch(kernel, parameters(node, 0, 0), {target: b"found it"}, reaches=[target])
    assert verdicts(case.replay({"chase": chase})) == [Verdict.IDENTICAL]


def test_a_handle_value_used_again_means_the_newer_object(case: Case) -> None:
    record = case.record
    record.start()
    x, y = two_buffers(case)
    handle, function = record.handle(), record.handle()
    record.module(MODULE, handle=handle)
    record.function(handle, "add", LAYOUT, handle=function)
    record.launch(function, parameters(x, y, COUNT), {x: added(ramp(COUNT), ramp(COUNT, 0.5))})
    record.unload(handle)
    record.module(MODULE, handle=handle)
    record.function(handle, "other", LAYOUT, handle=function)
    record.launch(function, parameters(x, y, COUNT), {x: b"\x07" * SIZE})
    result = case.replay({"add": add, "other": fill_with(7)})
    assert verdicts(result) == [Verdict.IDENTICAL] * 2
    assert [one.kernel for one in result.results] == ["add", "other"]


def test_an_address_used_again_is_a_new_allocation(case: Case) -> None:
    record = case.record
    record.start()
    add_function = record.function(record.module(MODULE), "add", LAYOUT)
    x, y = two_buffers(case)
    record.launch(add_function, parameters(x, y, COUNT), {x: added(ramp(COUNT), ramp(COUNT, 0.5))})
    record.free(x)
    again = record.allocate(2 * SIZE, address=x - 0)  # the larger one covers y's old place too
    assert again == x
    record.copy_in(again, bytes(2 * SIZE))
    record.copy_out(again, 2 * SIZE)
    result = case.replay({"add": add})
    assert verdicts(result) == [Verdict.IDENTICAL] * 2


def test_a_free_that_is_not_on_record_does_not_block_the_address(case: Case) -> None:
    record = case.record
    record.start()
    record.copy_in(record.allocate(SIZE, address=BASE), ramp(COUNT))
    record.memory.clear()
    record.copy_in(record.allocate(SIZE, address=BASE + 512 - 512), ramp(COUNT, 3.0))
    record.copy_out(BASE, SIZE)
    assert verdicts(case.replay({})) == [Verdict.IDENTICAL]


def test_variables_are_placed_initialised_and_compared(case: Case) -> None:
    variables = {"factor": BASE + (8 << 20), "counter": BASE + (8 << 20) + 512}

    def scale(device: PythonDevice, grid: Dim3, block: Dim3, packed: bytes) -> None:
        destination, _, count = struct.unpack("<QQI", packed)
        (factor,) = struct.unpack("<f", device.read(variables["factor"], 4))
        values = struct.unpack(f"<{count}f", device.read(destination, 4 * count))
        device.write(destination, struct.pack(f"<{count}f", *(factor * v for v in values)))
        device.write(variables["counter"], struct.pack("<I", count))

    record = case.record
    record.start()
    module = record.module(SCALE)
    factor = record.variable(module, "factor", variables["factor"], struct.pack("<f", 2.0))
    counter = record.variable(module, "counter", variables["counter"], bytes(4))
    kernel = record.function(module, "scale", LAYOUT)
    x, y = two_buffers(case)
    doubled = struct.pack(f"<{COUNT}f", *(2.0 * i for i in range(COUNT)))
    writes = {x: doubled, counter: struct.pack("<I", COUNT)}
    record.launch(kernel, parameters(x, y, COUNT), writes, reaches=[factor, counter])
    record.copy_out(counter, 4)
    result = case.replay({"scale": scale})
    assert verdicts(result) == [Verdict.IDENTICAL] * 2
    assert {buffer.label for buffer in result.results[0].buffers} == {"parameter 0", "counter"}


def test_a_variable_that_differs_is_named(case: Case) -> None:
    record = case.record
    record.start()
    module = record.module(SCALE)
    counter = record.variable(module, "counter", BASE + (8 << 20), bytes(4))
    kernel = record.function(module, "scale", LAYOUT)
    x, y = two_buffers(case)
    record.launch(kernel, parameters(x, y, COUNT), {counter: struct.pack("<I", 5)}, reaches=[counter])
    result = case.replay({"scale": lambda *_: None})
    assert verdicts(result) == [Verdict.DIFFERS]
    assert result.first_divergence is not None and result.first_divergence.buffer is not None
    assert result.first_divergence.buffer.label == "counter"


def test_libraries_kernels_and_functions_of_them_launch(case: Case) -> None:
    record = case.record
    record.start()
    kernel = record.kernel(record.library(MODULE), "add", LAYOUT)
    function = record.handle()
    record.call("cuKernelGetFunction", kernel=kernel, out={"pFunc": function})
    record._functions[function] = record._functions[kernel]
    x, y = two_buffers(case)
    once = added(ramp(COUNT), ramp(COUNT, 0.5))
    record.launch(kernel, parameters(x, y, COUNT), {x: once})
    record.launch(function, parameters(x, y, COUNT), {x: added(once, ramp(COUNT, 0.5))})
    assert verdicts(case.replay({"add": add})) == [Verdict.IDENTICAL] * 2


def test_two_streams_ordered_by_events(case: Case) -> None:
    record = case.record
    record.start()
    kernel = record.function(record.module(MODULE), "add", LAYOUT)
    first, second, event = record.stream(), record.stream(), record.event()
    x, y = record.allocate(SIZE), record.allocate(SIZE)
    record.copy_in(x, ramp(COUNT), stream=first)
    record.copy_in(y, ramp(COUNT, 0.5), stream=second)
    record.call("cuEventRecord", hEvent=event, hStream=second)
    record.call("cuStreamWaitEvent", hStream=first, hEvent=event)
    record.launch(kernel, parameters(x, y, COUNT), {x: added(ramp(COUNT), ramp(COUNT, 0.5))}, stream=first)
    record.call("cuStreamSynchronize", hStream=first)
    record.call("cuEventQuery", hEvent=event)
    record.call("cuStreamQuery", hStream=second, result=600)  # not ready: tells nothing
    record.copy_out(x, SIZE)
    record.call("cuEventDestroy_v2", hEvent=event)
    record.call("cuStreamDestroy_v2", hStream=first)
    assert verdicts(case.replay({"add": add})) == [Verdict.IDENTICAL] * 2


def test_a_per_thread_form_uses_the_threads_own_stream(case: Case) -> None:
    record = case.record
    record.start()
    kernel = record.function(record.module(MODULE), "add", LAYOUT)
    x, y = two_buffers(case)
    result = added(ramp(COUNT), ramp(COUNT, 0.5))
    record.launch(kernel, parameters(x, y, COUNT), {x: result}, entry="cuLaunchKernel_ptsz")
    record.call("cuStreamSynchronize_ptsz", hStream=0)
    assert verdicts(case.replay({"add": add})) == [Verdict.IDENTICAL]


def test_each_recorded_thread_has_its_own_context(case: Case) -> None:
    record = case.record
    primary = record.start()
    kernel = record.function(record.module(MODULE), "add", LAYOUT)
    x, y = two_buffers(case)
    record.thread = 200
    own = record.handle()
    record.call("cuCtxCreate_v2", flags=0, dev=0, out={"pctx": own})
    z = record.allocate(SIZE)
    record.copy_in(z, ramp(COUNT))
    record.thread = 100
    record.launch(kernel, parameters(x, y, COUNT), {x: added(ramp(COUNT), ramp(COUNT, 0.5))})
    record.thread = 200
    record.call("cuCtxPushCurrent_v2", ctx=primary)
    record.call("cuCtxPopCurrent_v2", out={"pctx": primary})
    record.copy_out(z, SIZE)
    record.call("cuCtxDestroy_v2", ctx=own)
    record.thread = 100
    record.copy_out(x, SIZE)
    assert verdicts(case.replay({"add": add})) == [Verdict.IDENTICAL] * 3


def test_fills_and_unified_copies(case: Case) -> None:
    record = case.record
    record.start()
    x, y = record.allocate(SIZE), record.allocate(SIZE)
    record.fill(x, 0x01020304, COUNT)
    inward = record.call("cuMemcpy", dst=y, src=0x1000, ByteCount=SIZE, payload_in={"src": ramp(COUNT)})
    record.put(inward, y, ramp(COUNT))
    within = record.call("cuMemcpy", dst=x, src=y, ByteCount=8)
    record.put(within, x, record.read(y, 8))
    record.call("cuMemcpy", dst=0x1000, src=x, ByteCount=SIZE, payload_out={"dst": record.read(x, SIZE)})
    result = case.replay({})
    assert verdicts(result) == [Verdict.IDENTICAL]
    assert result.results[0].kernel == "cuMemcpy"


def test_memory_nobody_wrote_is_not_compared(case: Case) -> None:
    """It held something else on NVIDIA, which nobody can know."""
    record = case.record
    record.start()
    x = record.allocate(SIZE)
    record.copy_in(x, ramp(4))
    record.copy_out(x, SIZE)
    record.copy_out(x + 64, 64)
    result = case.replay({})
    assert verdicts(result) == [Verdict.IDENTICAL, Verdict.NOT_COMPARED]
    assert result.results[0].written_share == 16 / SIZE


def test_a_stream_made_by_a_call_that_is_not_replayed_is_a_gap(case: Case) -> None:
    record = case.record
    record.start()
    kernel = record.function(record.module(MODULE), "add", LAYOUT)
    x, y = two_buffers(case)
    stream = record.handle()
    record.call("cuGreenCtxStreamCreate", out={"phStream": stream})
    record.launch(kernel, parameters(x, y, COUNT), {x: ramp(COUNT)}, stream=stream)
    result = case.replay({"add": add})
    assert verdicts(result) == [Verdict.GAP]
    assert "cuGreenCtxStreamCreate" in result.results[0].reason


def test_objects_survive_a_runner_that_died(case: Case) -> None:
    from zluda.runner import RunnerDied

    def deadly(*_: object) -> None:
        raise RunnerDied("crash", kernel="other", signal=11)

    record = case.record
    record.start()
    library = record.library(SCALE + ADD + ADD.replace("add(", "other(").replace("add_param", "o"))
    counter = record.variable(record.module(SCALE), "counter", BASE + (8 << 20), bytes(4))
    stream, event = record.stream(), record.event()
    kernel, other = record.kernel(library, "add", LAYOUT), record.kernel(library, "other", LAYOUT)
    x, y = two_buffers(case)
    gone = record.allocate(SIZE)
    record.free(gone)
    record.launch(other, parameters(x, y, COUNT), {x: ramp(COUNT, 2.0)}, stream=stream)
    record.call("cuEventRecord", hEvent=event, hStream=stream)
    record.launch(
        kernel, parameters(x, y, COUNT), {x: added(ramp(COUNT, 2.0), ramp(COUNT, 0.5))}, stream=stream
    )
    record.copy_out(counter, 4)
    result = case.replay({"add": add, "other": deadly})
    assert verdicts(result) == [Verdict.CRASH, Verdict.IDENTICAL, Verdict.NOT_COMPARED]


def test_relocated_variables_are_found_by_name_and_pointers_to_them_follow(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that places globals itself (NVIDIA's): addresses in parameters, in memory and in results."""
    monkeypatch.setattr(TranslatedDriver, "places_globals", False)
    recorded_at = BASE + (8 << 20)
    seen: list[int] = []

    def scale(device: PythonDevice, grid: Dim3, block: Dim3, packed: bytes) -> None:
        destination, variable, _ = struct.unpack("<QQI", packed)
        seen.append(variable)
        device.write(variable, struct.pack("<I", 5))
        (stored,) = struct.unpack("<Q", device.read(destination, 8))
        assert stored == variable
        device.write(destination + 8, struct.pack("<Q", variable))

    record = case.record
    record.start()
    module = record.module(SCALE)
    counter = record.variable(module, "counter", recorded_at, bytes(4))
    kernel = record.function(module, "scale", LAYOUT)
    x = record.allocate(SIZE)
    record.copy_in(x, counter.to_bytes(8, "little") + bytes(SIZE - 8))
    writes = {counter: struct.pack("<I", 5), x + 8: counter.to_bytes(8, "little")}
    record.launch(kernel, parameters(x, counter, 1), writes, reaches=[counter])
    record.copy_out(counter, 4)
    record.copy_out(x, 16)
    assert verdicts(case.replay({"scale": scale})) == [Verdict.IDENTICAL] * 3
    assert seen and seen[0] != recorded_at


def test_host_data_can_come_from_the_pages_after_a_copy(case: Case) -> None:
    """A recorder stores what a copy brought once, as the memory after it."""
    record = case.record
    record.start()
    x = record.allocate(SIZE)
    call = record.call("cuMemcpyHtoD_v2", dstDevice=x, ByteCount=SIZE)
    record.put(call, x, ramp(COUNT))
    record.copy_out(x, SIZE)
    assert verdicts(case.replay({})) == [Verdict.IDENTICAL]


def test_memory_made_inside_another_call_is_a_gap(case: Case) -> None:
    record = case.record
    record.start()
    kernel = record.function(record.module(MODULE), "add", LAYOUT)
    x, y = two_buffers(case)
    hidden = record.allocate(SIZE, parent=record.sequence - 1)
    record.launch(kernel, parameters(hidden, y, COUNT), {hidden: ramp(COUNT)})
    record.launch(kernel, parameters(x, y, COUNT), {x: added(ramp(COUNT), ramp(COUNT, 0.5))})
    result = case.replay({"add": add})
    assert verdicts(result) == [Verdict.GAP, Verdict.IDENTICAL]
    assert "inside call" in result.results[0].reason


def test_host_data_that_was_not_captured_taints_its_target(case: Case) -> None:
    record = case.record
    record.start()
    x = record.allocate(SIZE)
    record.call("cuMemcpyHtoD_v2", dstDevice=x, ByteCount=SIZE)
    record.copy_out(x, SIZE, data=ramp(COUNT))
    result = case.replay({})
    assert verdicts(result) == [Verdict.GAP]
    assert "cuMemcpyHtoD_v2" in result.results[0].reason


@pytest.mark.parametrize(("forced", "verdict"), [(True, Verdict.IDENTICAL), (False, Verdict.UNSUPPORTED)])
def test_nvidia_is_given_the_ptx_that_it_was_made_to_compile(
    tmp_path: Path,
    sessions: Callable[[Mapping[str, PythonKernel]], list[PythonSession]],
    monkeypatch: pytest.MonkeyPatch,
    forced: bool,
    verdict: Verdict,
) -> None:
    """Elsewhere it is given the fat binary, of which it chooses."""
    path = tmp_path / "trace.bin"
    with TraceBuilder(path, **({"ptx_jit": True} if forced else {})) as record:
        record.start()
        module = record.module(b"a fat binary", kind=ModuleKind.FATBIN)
        record.image(module, MODULE)
        x, y = record.allocate(SIZE), record.allocate(SIZE)
        record.copy_in(x, ramp(COUNT))
        record.copy_in(y, ramp(COUNT, 0.5))
        kernel = record.function(module, "add", LAYOUT)
        after = added(record.read(x, SIZE), record.read(y, SIZE))
        record.launch(kernel, parameters(x, y, COUNT), {x: after})
    monkeypatch.setattr(PythonDevice, "name", "cuda:0")
    sessions({"add": add})
    (found,) = zluda.replay(path, device="cpu").results  # type: ignore[operator]
    assert found.verdict is verdict
