"""GPU times of recorded launches, on a stand-in driver whose GPU clock gains 100 µs a second."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from recorded_scenes import SOURCES, Recorded, StandIn, run_trace

from zluda.tracefile import Trace, open_trace

SLOW_NS = 2_000_000
Record = Callable[..., Recorded]


@pytest.fixture(scope="module")
def record(standin: StandIn, tmp_path_factory: pytest.TempPathFactory) -> Record:
    app = standin.directory / "timed"
    flags = [f"-L{standin.directory}", "-l:libcuda.so.1", f"-Wl,-rpath,{standin.directory}", "-lpthread"]
    subprocess.run(["cc", "-O1", "-w", str(SOURCES / "timed.c"), "-o", str(app), *flags], check=True)
    made: dict[tuple[str, ...], Recorded] = {}

    def run(
        *scene: str, lag: int = 0, capture: str = "calls", timing: str = "events", queries: bool = False
    ) -> Recorded:
        key = (*scene, str(lag), capture, timing, str(queries))
        if key not in made:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("STANDIN_LAG", str(lag))
                trace = tmp_path_factory.mktemp("timed") / "trace.bin"
                command = (str(app), *scene)
                made[key] = run_trace(trace, *command, capture=capture, timing=timing, queries=queries)
            assert made[key].status == 0, made[key].errors
        return made[key]

    return run


def graph_launches(trace: Trace) -> list[int]:
    return [call.sequence for call in trace.iter_calls() if call.function == "cuGraphLaunch"]


@pytest.mark.parametrize("capture", ["calls", "outputs"])
def test_each_launch_has_its_time_and_a_graph_its_own(record: Record, capture: str) -> None:
    with open_trace(record("streams", capture=capture).trace) as trace:
        times = {time.call: time for time in trace.gpu_times()}
        direct = [one for one in trace.iter_launches() if trace.call(one.call).parent is None]
        succeeded = [one for one in direct if trace.call(one.call).result == 0]
        assert set(times) == {one.call for one in succeeded} | set(graph_launches(trace))
        assert [one.gpu_time_ns > SLOW_NS for one in succeeded] == [True, False, True]
        assert all(times[call].duration_ns > 2 * SLOW_NS for call in graph_launches(trace))
        assert not [gap for gap in trace.gaps if gap.kind == "graph"]
        assert "launches_not_timed" not in trace.meta


def test_times_lie_where_their_calls_were_on_the_hosts_clock(record: Record) -> None:
    with open_trace(record("streams").trace) as trace:
        (clock,) = trace.gpu_clocks.values()
        slack = clock.error_ns + 3000
        outer = [call for call in trace.iter_calls() if call.parent is None]
        after = {call.sequence: later.start_ns for call, later in pairwise(outer)}
        for time in trace.gpu_times():
            # The stand-in works while the call lasts, and the second event comes before the next call.
            assert time.start_ns is not None
            assert trace.call(time.call).start_ns - slack <= time.start_ns
            assert time.start_ns + time.duration_ns <= after[time.call] + slack


def test_times_that_come_late_are_all_told(record: Record) -> None:
    with open_trace(record("many", "1500", lag=3000).trace) as trace:
        times = list(trace.gpu_times())
        assert [time.call for time in times] == [launch.call for launch in trace.iter_launches()]
        starts = [time.gpu_start_ns for time in times]
        assert len(times) == 1500 and starts == sorted(starts)
        ends = [time.gpu_start_ns + time.duration_ns for time in times]
        following = sum(end == start for end, start in zip(ends, starts[1:], strict=False))
        assert following > 1000  # the stream was busy: one event for a launch
        assert all(end <= start + 2000 for end, start in zip(ends, starts[1:], strict=False))


def test_more_launches_than_there_are_events_go_untimed_and_are_counted(record: Record) -> None:
    with open_trace(record("many", "5000", lag=10_000_000).trace) as trace:
        # None of them came, not even the clock's anchor.
        assert trace.gpu_total() == (0, 0)
        assert trace.meta["launches_not_timed"] == 5000
        assert trace.counts().launches == 5000


def test_what_ended_threads_launched_is_told_and_a_contexts_clock_ends_with_it(record: Record) -> None:
    with open_trace(record("threads", "40", lag=2000).trace) as trace:
        times = list(trace.gpu_times())
        launches = [launch.call for launch in trace.iter_launches()]
        assert [time.call for time in times] == launches and len(times) == 161
        assert [time.clock for time in times] == [0] * 160 + [1]
        assert times[-1].duration_ns > SLOW_NS
        assert sorted(trace.gpu_clocks) == [0, 1]


def test_timing_can_be_left_out(record: Record) -> None:
    with open_trace(record("streams", timing="off").trace) as trace:
        assert trace.gpu_total() == (0, 0)
        assert (trace.meta["timing"], trace.gpu_clocks) == ("off", {})
        assert all(launch.gpu_time_ns is None for launch in trace.iter_launches())


def test_a_timing_that_there_is_not(tmp_path: Path) -> None:
    from zluda.trace.session import record as start

    with pytest.raises(ValueError, match="timing is 'cupti', expected one of events, off"):
        start(["true"], tmp_path / "t.bin", timing="cupti")


ASKED = ["cuCtxGetCurrent", "cuStreamQuery", "cuPointerGetAttribute"]


@pytest.mark.parametrize("queries", [False, True])
def test_calls_that_only_ask_are_on_record_where_they_are_asked_for(record: Record, queries: bool) -> None:
    with open_trace(record("asks", "3", queries=queries).trace) as trace:
        functions = [call.function for call in trace.iter_calls()]
        assert functions[-1] == "cuLaunchKernel"
        assert [functions.count(name) for name in ASKED] == [3 * queries] * 3
        left_out = trace.meta["left_out"]
        assert set(ASKED) <= set(left_out) if not queries else left_out == []
        assert "cuDeviceGet" not in left_out
        assert not [gap for gap in trace.gaps if "no export" in gap.text]
