"""Isolated mode: each launch from its recorded inputs, by one runner or several."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from kernels import LAYOUT, MODULE, add, added, floats, parameters, ramp
from python_device import PythonDevice, PythonKernel
from replay_case import Case

import zluda
from zluda.device.base import Dim3
from zluda.diff.results import CountsAs, ReplayResult, Verdict
from zluda.errors import TraceError, UnsupportedError
from zluda.isolate.layers.search import blame
from zluda.replay.api import replay_trace
from zluda.replay.launching import MAX_DEATHS
from zluda.report.html import render
from zluda.report.terminal import plain_lines
from zluda.runner import RunnerDied
from zluda.tracefile import open_trace
from zluda.tracefile.stripping import Part, strip

COUNT = 64
SIZE = 4 * COUNT


class Program:
    """``x += y`` by launches of kernels ``add`` and ``other``, all recorded right."""

    def __init__(self, case: Case) -> None:
        self.record = record = case.record
        record.start()
        module = record.module(MODULE)
        self.functions = {name: record.function(module, name, LAYOUT) for name in ("add", "other")}
        self.x, self.y = record.allocate(SIZE), record.allocate(SIZE)
        record.copy_in(self.x, ramp(COUNT))
        record.copy_in(self.y, ramp(COUNT, 0.5))

    def launch(self, kernel: str = "add", **options: object) -> int:
        record = self.record
        result = added(record.read(self.x, SIZE), record.read(self.y, SIZE))
        return record.launch(
            self.functions[kernel], parameters(self.x, self.y, COUNT), {self.x: result}, **options
        )

    def graph(self, *kernels: str) -> list[int]:
        """A launch of a graph of these; memory is on record at its end."""
        record = self.record
        before = record.read(self.x, SIZE)
        launch = record.call("cuGraphLaunch", hGraph=7, hStream=0)
        nodes = [
            record.launch(
                self.functions[one], parameters(self.x, self.y, COUNT), captured=False, parent=launch
            )
            for one in kernels
        ]
        end = record.call("cuStreamQuery", hStream=0, parent=launch)
        for _ in kernels:
            before = added(before, record.read(self.y, SIZE))
        record.put(end, self.x, before, whole_pages=True)
        return nodes


def wrong(device: PythonDevice, grid: Dim3, block: Dim3, packed: bytes) -> None:
    """As ``add``, with one element spoilt."""
    add(device, grid, block, packed)
    at = struct.unpack("<QQI", packed)[0] + 4 * 17
    device.write(at, floats(struct.unpack("<f", device.read(at, 4))[0] + 1.0))


def deadly(device: PythonDevice, grid: Dim3, block: Dim3, packed: bytes) -> None:
    raise RunnerDied("crash", kernel="other", signal=11)


def told(result: ReplayResult) -> list[tuple[int, str, str]]:
    return [(one.call, one.verdict.value, one.reason) for one in result.results]


def verdicts(result: ReplayResult) -> list[Verdict]:
    return [one.verdict for one in result.results]


def test_what_comes_after_a_fault_is_judged_by_itself(case: Case) -> None:
    program = Program(case)
    program.launch()
    bad = program.launch("other")
    program.launch()
    also = program.launch("other")
    program.record.copy_out(program.x, SIZE)
    kernels = {"add": add, "other": wrong}
    result = case.replay(kernels, mode="isolated")
    same, differs = Verdict.IDENTICAL, Verdict.DIFFERS
    assert verdicts(result) == [same, differs, same, differs, same]
    assert result.at_fault == {"other": [bad, also]}
    assert [one.buffers[0].differing for one in result.results if one.verdict is differs] == [1, 1]
    assert verdicts(case.replay(kernels)) == [same, differs, *[Verdict.INHERITED] * 3]


def test_the_report_names_the_first_and_every_other(case: Case) -> None:
    program = Program(case)
    calls = [program.launch("other") for _ in range(8)]
    result = case.replay({"other": wrong}, mode="isolated")
    lines = list(plain_lines(result))
    assert f"the first is #{calls[0]} other" in lines[0]
    named = ", ".join(f"#{call}" for call in calls[:6])
    assert f"  at fault in its own right: other (8 times: {named}, …)" in lines
    page = render([result])
    assert "At fault in its own right" in page and f"other (8 times: {named}, …)" in page
    told = result.to_json()
    assert told["mode"] == "isolated"
    assert told["at_fault"] == [{"kernel": "other", "launches": 8, "calls": calls}]


@pytest.mark.parametrize("jobs", [2, 3, 7, 10**30])
def test_any_number_of_runners_gives_the_same(case: Case, jobs: int) -> None:
    program = Program(case)
    for kernel in ("add", "other", "add", "add", "other", "add"):
        program.launch(kernel)
    program.graph("add", "add")
    program.record.copy_out(program.x, SIZE)
    kernels = {"add": add, "other": wrong}
    alone = case.replay(kernels, mode="isolated")
    together = case.replay(kernels, mode="isolated", jobs=jobs)
    assert told(together) == told(alone)
    assert len(case.sessions) == min(jobs, 8)
    assert [one.buffers for one in together.results] == [one.buffers for one in alone.results]


def test_runners_share_what_the_record_does_not_know(case: Case) -> None:
    """What an unrecorded launch wrote is needed by one that another runner runs."""
    program = Program(case)
    record = program.record
    scratch = record.allocate(SIZE)
    record.capture = False  # or the recorder would have found what was written
    record.launch(program.functions["other"], parameters(scratch, program.y, COUNT))
    result = added(record.read(program.x, SIZE), record.read(program.y, SIZE))
    packed = parameters(program.x, scratch, COUNT)
    record.launch(program.functions["add"], packed, {program.x: result}, captured=True)
    kernels = {"add": add, "other": add}
    alone = case.replay(kernels, mode="isolated")
    together = case.replay(kernels, mode="isolated", jobs=2)
    assert verdicts(alone) == [Verdict.NOT_COMPARED, Verdict.IDENTICAL]
    assert told(together) == told(alone)


def test_a_kernel_that_kills_is_left_out_after_the_same_launches(case: Case) -> None:
    program = Program(case)
    for _ in range(2 * MAX_DEATHS):
        program.launch("other")
        program.launch("add")
    kernels = {"add": add, "other": deadly}
    alone = case.replay(kernels, mode="isolated")
    together = case.replay(kernels, mode="isolated", jobs=4)
    others = [one for one in together.results if one.kernel == "other"]
    assert [one.verdict for one in others] == (
        [Verdict.CRASH] * MAX_DEATHS + [Verdict.NOT_REPLAYED] * MAX_DEATHS
    )
    assert told(together) == told(alone)


def test_a_selection_holds_for_all_runners(case: Case) -> None:
    program = Program(case)
    calls = [program.launch(kernel) for kernel in ("add", "other", "add", "other")]
    result = case.replay(
        {"add": add, "other": wrong}, mode="isolated", jobs=2, select=f"{calls[1]},{calls[2]}"
    )
    left = Verdict.NOT_REPLAYED
    assert verdicts(result) == [left, Verdict.DIFFERS, Verdict.IDENTICAL, left]


@pytest.mark.parametrize("mode", ["stream", "isolated"])
def test_inside_a_graph_the_first_is_at_fault(case: Case, mode: str) -> None:
    """The record has no memory between its nodes, so those that read what differs inherit it."""
    program = Program(case)
    y, x = program.y, program.x
    record = program.record
    launch = record.call("cuGraphLaunch", hGraph=7, hStream=0)
    first = record.launch(program.functions["other"], parameters(y, y, COUNT), captured=False, parent=launch)
    record.launch(program.functions["add"], parameters(x, y, COUNT), captured=False, parent=launch)
    end = record.call("cuStreamQuery", hStream=0, parent=launch)
    doubled = added(record.read(y, SIZE), record.read(y, SIZE))
    record.put(end, x, added(record.read(x, SIZE), doubled), whole_pages=True)
    record.put(end, y, doubled, whole_pages=True)
    after = program.launch()
    result = case.replay({"add": add, "other": wrong}, mode=mode)
    expected = Verdict.IDENTICAL if mode == "isolated" else Verdict.INHERITED
    assert verdicts(result) == [Verdict.DIFFERS, Verdict.INHERITED, expected]
    assert result.results[1].reason == f"its inputs already differed after call {first}"
    assert result.results[2].call == after
    assert result.at_fault == {"other": [first]}


def test_what_fails_in_one_runner_ends_all(case: Case) -> None:
    program = Program(case)
    for kernel in ("add", "other") * 3:
        program.launch(kernel)

    def broken(device: PythonDevice, grid: Dim3, block: Dim3, packed: bytes) -> None:
        raise ZeroDivisionError("in a runner")

    with pytest.raises(ZeroDivisionError, match="in a runner"):
        case.replay({"add": add, "other": broken}, mode="isolated", jobs=2)


def test_progress_is_of_all_runners(case: Case) -> None:
    program = Program(case)
    for kernel in ("add", "other") * 3:
        program.launch(kernel)
    seen: list[tuple[int, int]] = []
    case.replay({"add": add, "other": add}, mode="isolated", jobs=2, progress=lambda *at: seen.append(at))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == seen[-1][1]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"mode": "other"}, "mode 'other'"),
        ({"mode": "isolated", "output": "out.bin"}, "output"),
        ({"mode": "isolated", "jobs": 0}, "jobs=0"),
        ({"jobs": 2}, "jobs=2"),
    ],
)
def test_what_a_mode_does_not_have_is_refused(case: Case, options: dict[str, object], text: str) -> None:
    Program(case).launch()
    with pytest.raises(UnsupportedError, match=text):
        case.replay({"add": add}, **options)


def test_contents_are_needed(case: Case, tmp_path: Path) -> None:
    Program(case).launch()
    case.record.__exit__()
    target = tmp_path / "stripped.bin"
    with open_trace(case.path) as trace:
        strip(trace, target, [Part.CONTENTS])
    with pytest.raises(TraceError, match="recorded inputs"):
        zluda.replay(target, device="cpu", mode="isolated")


def _some(case: Case, kernels: dict[str, PythonKernel], calls: range) -> ReplayResult:
    case.record.__exit__()
    case.sessions = case._use(kernels)
    with open_trace(case.path) as trace:
        return replay_trace(trace, "cpu", mode="isolated", calls=calls)


@pytest.mark.parametrize("known", [True, False])
def test_one_launch_is_replayed_without_those_before_it(case: Case, known: bool) -> None:
    """Those before it run only where what they wrote is not on record."""
    ran: list[int] = []

    def counted(device: PythonDevice, grid: Dim3, block: Dim3, packed: bytes) -> None:
        ran.append(struct.unpack("<QQI", packed)[0])
        add(device, grid, block, packed)

    program = Program(case)
    record = program.record
    scratch = record.allocate(SIZE)
    record.capture = False  # or the recorder would have found what was written
    packed = parameters(scratch, program.y, COUNT)
    left = {scratch: added(bytes(SIZE), record.read(program.y, SIZE))} if known else {}
    record.launch(program.functions["other"], packed, left, captured=known)
    result = added(record.read(program.x, SIZE), record.read(program.y, SIZE))
    packed = parameters(program.x, scratch, COUNT)
    last = record.launch(program.functions["add"], packed, {program.x: result}, captured=True)
    (one,) = _some(case, {"add": counted, "other": counted}, range(last, last + 1)).results
    assert (one.call, one.verdict) == (last, Verdict.IDENTICAL)
    assert ran == ([program.x] if known else [scratch, program.x])


def test_the_layer_of_kernels_in_a_graph(case: Case) -> None:
    """A graph is run as a whole: what fails in it has its layer, what reads that has another to blame."""
    program = Program(case)
    program.launch()
    first, second = program.graph("other", "add")
    program.launch()
    kernels = {"add": add, "other": wrong}
    result = case.replay(kernels)
    failing = [one for one in result.results if one.verdict.counts_as is CountsAs.FAILS]
    assert [one.call for one in failing[:2]] == [second, second + 2]  # the last that wrote x tells of it
    with open_trace(case.path) as trace:
        found = blame(trace, "cpu", failing, in_stream=True)
    assert {call: one.layer.value for call, one in found.items()} == {
        second: "record",  # the stand-ins for all devices, the interpreter among them, agree against it
        second + 2: "inputs",
    }
    assert first not in found


def test_what_copies_and_fills_leave_is_held_against_the_record(case: Case) -> None:
    """And the record's memory takes its place, so that launches have their recorded inputs."""
    program = Program(case)
    bad = program.record.copy_in(program.x, ramp(COUNT, 7.0))
    program.record.fill(program.y, 0, COUNT)
    program.launch()

    class Off(PythonDevice):
        def write(self, address: int, data: bytes | bytearray | memoryview) -> None:
            spoilt = bytes(data) == ramp(COUNT, 7.0) and not self.spoilt
            super().write(address, bytes([data[0] ^ 1]) + bytes(data[1:]) if spoilt else data)
            self.spoilt |= spoilt

        spoilt = False

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("python_device.PythonDevice", Off)
        result = case.replay({"add": add}, mode="isolated")
    assert verdicts(result) == [Verdict.IDENTICAL]
    assert result.meta["wrong_writes"] == {bad: "cuMemcpyHtoD_v2"}
