"""What each launch and copy is found to be, over kernels written in Python."""

from __future__ import annotations

import struct

import pytest
from kernels import ADD, BROKEN, HEADER, LAYOUT, MODULE, add, added, floats, parameters, ramp
from python_device import PythonDevice, PythonKernel
from replay_case import Case

from zluda.device.base import Dim3
from zluda.diff.results import Verdict
from zluda.errors import LaunchError, UnsupportedError
from zluda.runner import RunnerDied
from zluda.tracefile import ModuleKind

COUNT = 100
SIZE = 4 * COUNT


class Recorded:
    """A program that adds ``y`` to ``x`` by launches of ``add``, as recorded."""

    def __init__(self, case: Case, module: str = MODULE) -> None:
        self.record = record = case.record
        record.start()
        self.module = record.module(module)
        self.add = record.function(self.module, "add", LAYOUT)
        self.x, self.y = record.allocate(SIZE), record.allocate(SIZE)
        record.copy_in(self.x, ramp(COUNT))
        record.copy_in(self.y, ramp(COUNT, 0.5))

    def launch(self, function: int | None = None, *, right: bool = True, **options: object) -> int:
        """Launch; returns the call."""
        record = self.record
        result = (
            added(record.read(self.x, SIZE), record.read(self.y, SIZE))
            if right
            else record.read(self.x, SIZE)
        )
        return record.launch(
            function or self.add, parameters(self.x, self.y, COUNT), {self.x: result}, **options
        )


def verdicts(result: object) -> list[Verdict]:
    return [one.verdict for one in result.results]  # type: ignore[attr-defined]


def test_equal_memory_is_identical(case: Case) -> None:
    program = Recorded(case)
    program.launch()
    program.launch()
    case.record.copy_out(program.x, SIZE)
    result = case.replay({"add": add})
    assert verdicts(result) == [Verdict.IDENTICAL] * 3
    assert result.exit_status() == 0
    assert result.results[0].written_share == 1.0
    assert [one.kind for one in result.results] == ["launch", "launch", "copy"]


def test_what_a_launch_changed_besides_what_is_on_record_is_not_held_against_it(case: Case) -> None:
    """Its memory is on record in part, as where a damaged trace was recovered."""
    program = Recorded(case)
    half = added(ramp(COUNT), ramp(COUNT, 0.5))[: SIZE // 2]
    wanted = parameters(program.x, program.y, COUNT)
    call = case.record.launch(program.add, wanted, captured=False)
    case.record.put(call, program.x, half)
    case.record.copy_out(program.x, SIZE // 2)
    assert verdicts(case.replay({"add": add})) == [Verdict.IDENTICAL] * 2
    wrong = case.replay({"add": lambda *_: None})
    assert verdicts(wrong)[0] is Verdict.DIFFERS


@pytest.mark.parametrize("dies", [False, True])
def test_memory_whose_next_allocation_was_under_way_when_it_was_freed(case: Case, dies: bool) -> None:
    """Two threads: the second allocation is entered first and gets what the free gives back."""

    def deadly(device: PythonDevice, grid: Dim3, block: Dim3, packed: bytes) -> None:
        raise RunnerDied("crash", kernel="other", signal=11)

    program = Recorded(case)
    case.record.call("cuMemAlloc_v2", bytesize=SIZE, out={"dptr": program.x})
    program.launch()
    case.record.free(program.x, reused=SIZE)
    case.record.copy_in(program.x, ramp(COUNT, 3.0))
    if dies:
        program.launch(case.record.function(program.module, "other", LAYOUT))
    program.launch()
    case.record.copy_out(program.x, SIZE)
    result = case.replay({"add": add, "other": deadly})
    middle = [Verdict.CRASH] if dies else []
    assert verdicts(result) == [Verdict.IDENTICAL, *middle, Verdict.IDENTICAL, Verdict.IDENTICAL]


def test_a_wrong_kernel_differs_at_the_first_element(case: Case) -> None:
    def wrong(device: PythonDevice, grid: Dim3, block: Dim3, packed: bytes) -> None:
        add(device, grid, block, packed)
        destination = struct.unpack("<QQI", packed)[0]
        device.write(destination + 4 * 17, floats(-1.0))

    program = Recorded(case)
    call = program.launch()
    result = case.replay({"add": wrong})
    assert verdicts(result) == [Verdict.DIFFERS]
    assert result.exit_status() == 1
    first = result.first_divergence
    assert first is not None and first.buffer is not None and first.element is not None
    assert (first.result.call, first.buffer.label, first.buffer.element_type) == (call, "parameter 0", "f32")
    assert (first.element.index, first.element.recorded, first.element.replayed) == (17, 34.5, -1.0)
    assert first.buffer.differing == 1


def test_bytes_that_only_the_replay_writes_are_differences(case: Case) -> None:
    def stray(device: PythonDevice, grid: Dim3, block: Dim3, packed: bytes) -> None:
        add(device, grid, block, packed)
        source = struct.unpack("<QQI", packed)[1]
        device.write(source + SIZE - 1, b"\x99")

    program = Recorded(case)
    program.launch()
    result = case.replay({"add": stray})
    (launch,) = result.results
    assert launch.verdict is Verdict.DIFFERS
    assert launch.reason == "bytes that only the replay wrote"
    assert [buffer.label for buffer in launch.buffers if not buffer.identical] == ["parameter 1"]


def test_writes_that_the_replay_lacks_are_differences(case: Case) -> None:
    program = Recorded(case)
    program.launch()
    result = case.replay({"add": lambda device, grid, block, packed: None})
    (launch,) = result.results
    assert (launch.verdict, launch.reason) == (Verdict.DIFFERS, "bytes that the replay did not write")


def test_what_reads_a_difference_inherits_it(case: Case) -> None:
    runs: list[int] = []

    def wrong_once(device: PythonDevice, grid: Dim3, block: Dim3, packed: bytes) -> None:
        runs.append(1)
        add(device, grid, block, packed)
        if len(runs) == 1:
            device.write(struct.unpack("<QQI", packed)[0], floats(99.0))

    program = Recorded(case)
    first = program.launch()
    program.launch()
    case.record.copy_out(program.x, SIZE)
    case.record.copy_out(program.y, SIZE)
    result = case.replay({"add": wrong_once})
    assert verdicts(result) == [Verdict.DIFFERS, Verdict.INHERITED, Verdict.INHERITED, Verdict.IDENTICAL]
    assert f"call {first}" in result.results[1].reason
    assert result.first_divergence is not None
    assert result.first_divergence.result.call == first


def test_a_host_write_ends_an_inheritance(case: Case) -> None:
    def wrong(device: PythonDevice, grid: Dim3, block: Dim3, packed: bytes) -> None:
        add(device, grid, block, packed)
        device.write(struct.unpack("<QQI", packed)[0], floats(99.0))

    program = Recorded(case)
    program.launch()
    case.record.copy_in(program.x, ramp(COUNT))
    case.record.copy_out(program.x, SIZE)
    result = case.replay({"add": wrong})
    assert verdicts(result) == [Verdict.DIFFERS, Verdict.IDENTICAL]


def test_a_difference_travels_through_device_copies(case: Case) -> None:
    program = Recorded(case)
    program.launch()
    z = case.record.allocate(SIZE)
    case.record.copy_within(z, program.x, SIZE)
    case.record.copy_out(z, SIZE)
    result = case.replay({"add": lambda *_: None})
    assert verdicts(result) == [Verdict.DIFFERS, Verdict.INHERITED]


def test_an_unsupported_kernel_leaves_the_others_judged(case: Case) -> None:
    program = Recorded(case)
    other = case.record.function(program.module, "other", LAYOUT)
    program.launch()
    program.launch(other)
    program.launch()
    result = case.replay({"add": add})
    assert verdicts(result) == [Verdict.IDENTICAL, Verdict.UNSUPPORTED, Verdict.IDENTICAL]
    assert "tex.2d.v4.f32.s32 (kernel other)" in result.results[1].reason
    assert result.exit_status() == 2
    assert result.exit_status([Verdict.UNSUPPORTED]) == 0


def test_what_a_kernel_wrote_before_it_met_something_unsupported_does_no_harm(case: Case) -> None:
    def half_done(device: PythonDevice, grid: Dim3, block: Dim3, packed: bytes) -> None:
        for address in (program.x, program.y):  # the record has no new y: it must be as before
            device.write(address, bytes(SIZE))
        raise UnsupportedError("call of vprintf", "kernel other", began=True)

    program = Recorded(case)
    other = case.record.function(program.module, "other", LAYOUT)
    program.launch(other)
    program.launch()
    result = case.replay({"add": add, "other": half_done})
    assert verdicts(result) == [Verdict.UNSUPPORTED, Verdict.IDENTICAL]


def test_a_launch_that_failed_on_nvidia_too_is_no_fault(case: Case) -> None:
    def fails(device: PythonDevice, grid: Dim3, block: Dim3, packed: bytes) -> None:
        raise LaunchError("trap", kernel="other", block=(0, 0, 0))

    program = Recorded(case)
    program.launch()
    other = case.record.function(program.module, "other", LAYOUT)
    call = case.record.launch(other, parameters(program.x, program.y, COUNT), {}, captured=False)
    case.record.gap(call, "memory", "the stream failed, its memory was not looked at: CUresult 719")
    result = case.replay({"add": add, "other": fails})
    assert verdicts(result) == [Verdict.IDENTICAL, Verdict.NOT_COMPARED]
    assert result.results[1].reason.startswith("it failed on NVIDIA too: CUDA_ERROR_LAUNCH_FAILED")


@pytest.mark.parametrize("crash", [False, True])
def test_a_launch_that_is_given_an_object_that_was_not_made_is_a_gap(case: Case, crash: bool) -> None:
    def without(device: PythonDevice, grid: Dim3, block: Dim3, packed: bytes) -> None:
        device.write(program.x, bytes(SIZE))
        if crash:
            raise LaunchError("no texture", kernel="other", block=(0, 0, 0))

    program = Recorded(case)
    case.record.call("cuGreenCtxCreate", out={"phCtx": 5})
    other = case.record.function(program.module, "other", [(0, 8), (8, 8), (16, 8)])
    result = added(case.record.read(program.x, SIZE), case.record.read(program.y, SIZE))
    case.record.launch(other, struct.pack("<QQQ", program.x, program.y, 5), {program.x: result})
    program.launch()
    result = case.replay({"add": add, "other": without})
    assert verdicts(result) == [Verdict.GAP, Verdict.IDENTICAL]
    assert "parameter 2 is 0x5, made by cuGreenCtxCreate" in result.results[0].reason


def test_a_syntax_error_loses_its_kernel_only(case: Case) -> None:
    program = Recorded(case, HEADER + BROKEN + ADD)
    broken = case.record.function(program.module, "broken", [(0, 8)])
    case.record.launch(broken, struct.pack("<Q", program.y), {program.y: ramp(COUNT)})
    program.launch()
    result = case.replay({"add": add})
    assert verdicts(result) == [Verdict.UNSUPPORTED, Verdict.IDENTICAL]
    assert "frobnicate" in result.results[0].reason


def test_a_module_of_machine_code_is_no_ptx(case: Case) -> None:
    program = Recorded(case)
    cubin = case.record.module(_CUBIN, kind=ModuleKind.CUBIN)
    native = case.record.function(cubin, "native", LAYOUT)
    program.launch(native)
    program.launch()
    result = case.replay({"add": add})
    assert verdicts(result) == [Verdict.NO_PTX, Verdict.IDENTICAL]
    assert result.exit_status() == 2
    assert result.exit_status([Verdict.NO_PTX]) == 0


_CUBIN = b"\x7fELF\x02\x01\x01\x33\x07" + bytes(7) + struct.pack("<HHI", 2, 190, 1) + bytes(40)


@pytest.mark.parametrize(("reason", "verdict"), [("crash", Verdict.CRASH), ("hang", Verdict.HANG)])
def test_a_runner_that_dies_costs_one_verdict(case: Case, reason: str, verdict: Verdict) -> None:
    def deadly(device: PythonDevice, grid: Dim3, block: Dim3, packed: bytes) -> None:
        device.write(struct.unpack("<QQI", packed)[0], b"\xff" * 8)
        raise RunnerDied(reason, kernel="other", signal=11)

    program = Recorded(case)
    other = case.record.function(program.module, "other", LAYOUT)
    program.launch()
    program.launch(other)
    program.launch()
    case.record.copy_out(program.x, SIZE)
    result = case.replay({"add": add, "other": deadly})
    assert verdicts(result) == [Verdict.IDENTICAL, verdict, Verdict.IDENTICAL, Verdict.IDENTICAL]
    assert "other" in result.results[1].reason
    assert result.exit_status() == 1
    assert case.sessions[0].restarts == 1


def test_a_trap_in_a_kernel_is_a_crash_and_names_its_place(case: Case) -> None:
    def trap(device: PythonDevice, grid: Dim3, block: Dim3, packed: bytes) -> None:
        device.write(struct.unpack("<QQI", packed)[0], b"\xff" * 8)
        raise LaunchError("trap", kernel="other", block=(3, 0, 0))

    program = Recorded(case)
    other = case.record.function(program.module, "other", LAYOUT)
    program.launch(other)
    program.launch()
    result = case.replay({"add": add, "other": trap})
    assert verdicts(result) == [Verdict.CRASH, Verdict.IDENTICAL]
    assert "block (3, 0, 0)" in result.results[0].reason


def test_a_crash_on_inputs_that_differed_says_so(case: Case) -> None:
    def deadly(*_: object) -> None:
        raise RunnerDied("crash", kernel="other", signal=11)

    program = Recorded(case)
    call = program.launch()
    program.launch(case.record.function(program.module, "other", LAYOUT))
    result = case.replay({"add": lambda *_: None, "other": deadly})
    assert verdicts(result) == [Verdict.DIFFERS, Verdict.CRASH]
    assert f"its inputs already differed after call {call}" in result.results[1].reason


def test_a_kernel_that_keeps_dying_is_left_out(case: Case) -> None:
    def deadly(device: PythonDevice, grid: Dim3, block: Dim3, packed: bytes) -> None:
        raise RunnerDied("crash", kernel="add", signal=11)

    program = Recorded(case)
    for _ in range(5):
        program.launch()
    result = case.replay({"add": deadly})
    assert verdicts(result) == [Verdict.CRASH] * 3 + [Verdict.NOT_REPLAYED] * 2
    assert case.sessions[0].restarts == 3


def test_memory_that_the_record_does_not_know_is_not_compared(case: Case) -> None:
    program = Recorded(case)
    case.record.capture = False
    program.launch()
    case.record.copy_out(program.x, SIZE)
    result = case.replay({"add": add})
    assert verdicts(result) == [Verdict.NOT_COMPARED, Verdict.IDENTICAL]
    assert result.exit_status() == 0


@pytest.mark.parametrize("rewrites", [False, True])
def test_a_launch_that_changes_nothing_on_either_side_is_not_compared(case: Case, rewrites: bool) -> None:
    """It may have written what was there already, or nothing: no byte says that it did right."""

    def kernel(device: PythonDevice, grid: Dim3, block: Dim3, packed: bytes) -> None:
        if rewrites:
            device.write(program.x, bytes(device.read(program.x, SIZE)))

    program = Recorded(case)
    case.record.launch(program.add, parameters(program.x, program.y, COUNT), {})
    result = case.replay({"add": kernel})
    assert verdicts(result) == [Verdict.NOT_COMPARED]
    assert result.results[0].reason == "neither NVIDIA nor this device changed a byte that it reaches"
    assert result.results[0].written_share is None
    assert result.exit_status() == 2


def test_copies_judge_a_record_of_calls_only(case: Case) -> None:
    program = Recorded(case)
    case.record.capture = False
    program.launch()
    case.record.copy_out(program.x, SIZE)
    result = case.replay({"add": lambda *_: None})
    assert verdicts(result) == [Verdict.NOT_COMPARED, Verdict.DIFFERS]


def test_what_was_captured_before_a_launch_is_its_input(case: Case) -> None:
    program = Recorded(case)
    z = case.record.allocate(SIZE)  # never written by the host: its garbage is captured before the launch
    case.record.memory[z][:] = ramp(COUNT, 7.0)
    expected = added(case.record.read(z, SIZE), case.record.read(program.y, SIZE))
    case.record.launch(program.add, parameters(z, program.y, COUNT), {z: expected})
    result = case.replay({"add": add})
    assert verdicts(result) == [Verdict.IDENTICAL]
    assert result.results[0].written_share == 1.0


def test_a_launch_that_failed_on_nvidia_is_not_issued(case: Case) -> None:
    program = Recorded(case)
    case.record.launch(program.add, parameters(program.x, program.y, COUNT), result=1)
    program.launch()
    result = case.replay({"add": add})
    assert verdicts(result) == [Verdict.NOT_COMPARED, Verdict.IDENTICAL]
    assert "CUDA_ERROR_INVALID_VALUE" in result.results[0].reason


def test_a_call_that_is_not_replayed_makes_a_gap_where_it_wrote(case: Case) -> None:
    program = Recorded(case)
    z = case.record.allocate(SIZE)
    case.record.copy_in(z, ramp(COUNT))
    case.record.call("cuMemBatchDecompressAsync", paramsArray=z)
    case.record.launch(program.add, parameters(z, program.y, COUNT), {z: ramp(COUNT)})
    case.record.launch(
        program.add,
        parameters(program.x, program.y, COUNT),
        {program.x: added(ramp(COUNT), ramp(COUNT, 0.5))},
    )
    case.record.copy_out(z, SIZE)
    result = case.replay({"add": add})
    assert verdicts(result) == [Verdict.GAP, Verdict.IDENTICAL, Verdict.IDENTICAL]
    assert "cuMemBatchDecompressAsync" in result.results[0].reason
    assert result.exit_status() == 2
    assert result.reasons["calls of cuMemBatchDecompressAsync, which is not replayed"] == 1


def test_a_launch_that_is_not_replayed_is_a_gap(case: Case) -> None:
    program = Recorded(case)
    program.launch(entry="cuLaunchCooperativeKernelMultiDevice")
    program.launch()
    result = case.replay({"add": add})
    assert verdicts(result) == [Verdict.GAP, Verdict.IDENTICAL]
    assert "cuLaunchCooperativeKernelMultiDevice" in result.results[0].reason


def test_a_selection_runs_what_it_names_on_recorded_inputs(case: Case) -> None:
    program = Recorded(case)
    calls = [program.launch() for _ in range(3)]
    ran: list[int] = []

    def counted(*arguments: object) -> None:
        ran.append(1)
        add(*arguments)  # type: ignore[arg-type]

    result = case.replay({"add": counted}, select=str(calls[1]))
    assert verdicts(result) == [Verdict.NOT_REPLAYED, Verdict.IDENTICAL, Verdict.NOT_REPLAYED]
    assert len(ran) == 1
    assert result.exit_status() == 0


def test_nothing_compared_is_never_success(case: Case) -> None:
    Recorded(case)
    result = case.replay({"add": add})
    assert result.results == []
    assert result.exit_status() == 2


def test_a_launch_into_memory_that_is_not_there_is_a_gap(case: Case) -> None:
    program = Recorded(case)
    low = case.record.allocate(SIZE, address=0x10000)  # where no process has memory
    case.record.launch(program.add, parameters(low, program.y, COUNT), {low: ramp(COUNT)})
    program.launch()
    result = case.replay({"add": add})
    assert verdicts(result) == [Verdict.GAP, Verdict.IDENTICAL]
    assert "cannot be mapped at that address" in result.results[0].reason


COPY = (
    HEADER
    + """
.visible .entry copy(.param .u64 copy_param_0, .param .u64 copy_param_1, .param .u32 copy_param_2)
{
    .reg .f32 %f<2>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [copy_param_0];
    ld.param.u64 %rd2, [copy_param_1];
    ld.global.f32 %f1, [%rd2];
    st.global.f32 [%rd1], %f1;
    ret;
}
"""
)
"""``*destination = *source``: the destination is no input."""


def test_an_output_that_differed_before_is_no_input(case: Case) -> None:
    record = case.record
    record.start()
    copy = record.function(record.module(COPY), "copy", LAYOUT)
    x, y = record.allocate(SIZE), record.allocate(SIZE)
    record.copy_in(x, bytes(SIZE))
    record.copy_in(y, ramp(COUNT, 1.0))
    calls = []
    for value in (1.0, 2.0):
        record.copy_in(y, ramp(COUNT, value))
        calls.append(record.launch(copy, parameters(x, y, 1), {x: floats(value)}))
    record.copy_out(x, SIZE)

    def wrong(device: PythonDevice, grid: Dim3, block: Dim3, packed: bytes) -> None:
        destination, source, _ = struct.unpack("<QQI", packed)
        device.write(destination, floats(-1.0) if device.read(source, 4) == floats(1.0) else floats(-2.0))

    result = case.replay({"copy": wrong})
    assert verdicts(result) == [Verdict.DIFFERS, Verdict.DIFFERS, Verdict.INHERITED]
    assert f"call {calls[1]}" in result.results[2].reason


def _race(case: Case, second: dict[int, bytes], replayed: dict[int, bytes]) -> object:
    """A launch whose first element comes out otherwise in the replay; then one that writes ``second``."""
    record = case.record
    record.start()
    copy = record.function(record.module(COPY), "copy", LAYOUT)
    x, y = record.allocate(SIZE), record.allocate(SIZE)
    record.copy_in(x, bytes(SIZE))
    record.copy_in(y, ramp(COUNT, 1.0))
    record.launch(copy, parameters(x, y, 1), {x: floats(1.0)})
    record.launch(copy, parameters(x, y, 2), {x + offset: data for offset, data in second.items()})

    def kernel(device: PythonDevice, grid: Dim3, block: Dim3, packed: bytes) -> None:
        destination, _, launch = struct.unpack("<QQI", packed)
        for offset, data in {0: floats(5.0)}.items() if launch == 1 else replayed.items():
            device.write(destination + offset, data)

    return case.replay({"copy": kernel})


def test_a_neighbour_of_what_differed_before_is_judged_alone(case: Case) -> None:
    """The element beside it lies in the same eight bytes; it is written, and rightly."""
    result = _race(case, {4: floats(7.0)}, {4: floats(7.0)})
    assert verdicts(result) == [Verdict.DIFFERS, Verdict.IDENTICAL]


def test_what_differed_before_and_was_written_on_one_side_is_inherited(case: Case) -> None:
    """The record may have rewritten what was there: nobody can say that only the replay wrote."""
    result = _race(case, {4: floats(7.0)}, {0: floats(6.0), 4: floats(7.0)})
    assert verdicts(result) == [Verdict.DIFFERS, Verdict.INHERITED]
    first = result.results[0].call  # type: ignore[attr-defined]
    assert result.results[1].reason == f"bytes that already differed after call {first}"  # type: ignore[attr-defined]


def test_a_new_difference_beside_one_of_before_is_not_inherited(case: Case) -> None:
    result = _race(case, {4: floats(7.0)}, {0: floats(6.0), 4: floats(8.0)})
    assert verdicts(result) == [Verdict.DIFFERS, Verdict.DIFFERS]
    assert result.results[1].reason == ""  # type: ignore[attr-defined]


def test_a_launch_is_not_judged_by_what_an_earlier_one_left(case: Case) -> None:
    """Both write into one page; the first is wrong, the second right."""
    record = case.record
    record.start()
    module = record.module(MODULE)
    first, second = (record.function(module, name, LAYOUT) for name in ("add", "other"))
    x, y = record.allocate(SIZE), record.allocate(SIZE)
    record.copy_in(x, bytes(SIZE))
    record.copy_in(y, bytes(SIZE))
    record.launch(first, parameters(x, y, COUNT), {x: floats(1.0, 2.0)})
    record.launch(second, parameters(x, y, COUNT), {x + 8: floats(3.0, 4.0)})
    record.copy_out(x, SIZE)

    def write(offset: int, data: bytes) -> PythonKernel:
        return lambda device, grid, block, packed: device.write(
            struct.unpack_from("<Q", packed)[0] + offset, data
        )

    result = case.replay({"add": write(0, floats(1.0, 9.0)), "other": write(8, floats(3.0, 4.0))})
    assert verdicts(result) == [Verdict.DIFFERS, Verdict.IDENTICAL, Verdict.INHERITED]
    assert result.results[2].buffers[0].differing == 1
