"""GPU times of launches, and when they were on the host's clock."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

import zluda
from zluda.cli.dump import command as dump
from zluda.report.timeline import write_timeline
from zluda.tracefile import TraceWriter, open_trace
from zluda.tracefile.gpu_times import Moment, fits
from zluda.tracefile.overview import overview
from zluda.tracefile.subset import Cut, write_subset

STREAM = 0x77


def timed_trace(path: Path) -> Path:
    """Calls at 1000, 2000, …: two launches and the launch of a graph, on two GPU clocks."""
    with TraceWriter.create(path) as writer:
        launch, graph = writer.signature("cuLaunchKernel", []), writer.signature("cuGraphLaunch", [])
        names = (launch, launch, graph)
        writer.add_calls(
            (n, 1, None, key, 1000 * (n + 1), 1000 * (n + 1) + 10, 0, b"") for n, key in enumerate(names)
        )
        shape = writer.shape(writer.add_function(0, 1, "k", module=None), (1, 1, 1), (1, 1, 1))
        writer.add_launch(0, shape, b"", stream=STREAM)
        writer.add_launch(1, shape, b"", gpu_time_ns=77)
        for moment in ((0, 0, 10**15, 5), (0, 10**9, 10**15 + 10**9 + 1000, 5), (1, 50, 3000, 0)):
            writer.add_moment(Moment(*moment))
        writer.add_gpu_times([(0, 0, 2 * 10**9, 400), (2, 1, 70, 900)])
    return path


def test_times_of_launches_and_graphs_are_told_on_the_hosts_clock(tmp_path: Path) -> None:
    with open_trace(timed_trace(tmp_path / "t.bin")) as trace:
        assert [launch.gpu_time_ns for launch in trace.iter_launches()] == [400, 77]
        first, graph = trace.gpu_times()
        assert (first.call, first.clock, first.duration_ns) == (0, 0, 400)
        assert first.start_ns == 10**15 + 2 * 10**9 + 2000  # the GPU's clock loses 1 µs a second
        assert (graph.call, graph.duration_ns, graph.start_ns) == (2, 900, 3020)
        assert [row["gpu_time_ns"] for row in overview(trace)["kernels"]] == [477]
        assert overview(trace)["gpu_times"] == {"timed": 2, "gpu_time_ns": 1300, "clock_error_ns": 5}


def test_a_list_says_when_each_was_and_how_long(tmp_path: Path) -> None:
    result = CliRunner().invoke(dump, [str(timed_trace(tmp_path / "t.bin")), "--times"])
    first = 10**15 + 2 * 10**9 + 2000
    assert result.output.splitlines() == [
        "#0 0.000000 k <0.4 µs>",
        f"#2 {(3020 - first) / 1e9:.6f} cuGraphLaunch <0.9 µs>",
    ]
    result = CliRunner().invoke(dump, [str(tmp_path / "t.bin"), "--times", "--json", "--select", "2"])
    assert json.loads(result.output) == {
        "call": 2,
        "clock": 1,
        "gpu_start_ns": 70,
        "duration_ns": 900,
        "start_ns": 3020,
        "name": "cuGraphLaunch",
    }


def test_a_clock_is_fitted_to_the_moments_that_are_exact() -> None:
    drift = 40e-6
    exact = [Moment(0, n * 10**9, 7 + round(n * 10**9 * (1 + drift)), 500) for n in range(10)]
    disturbed = Moment(0, 5 * 10**9 + 1, exact[5].host_ns + 400_000, 400_000)
    fit = fits([*exact, disturbed])[0]
    assert fit.slope == pytest.approx(1 + drift, abs=1e-8)
    assert abs(fit.host(20 * 10**9) - (7 + 20 * 10**9 + 800_000)) < 200
    assert 400_000 <= fit.error_ns <= 900_000


@pytest.mark.parametrize("moments", [[(0, 100, 1000, 3)], [(0, 100, 1000, 3), (0, 100, 1004, 3)]])
def test_one_moment_gives_no_drift(moments: list[tuple[int, int, int, int]]) -> None:
    fit = fits(Moment(*one) for one in moments)[0]
    assert (fit.slope, fit.host(200) - fit.host(100)) == (1, 100)


def test_moments_too_near_for_a_slope_do_not_make_one() -> None:
    fit = fits([Moment(0, 0, 0, 9), Moment(0, 1000, 5000, 9)])[0]
    assert fit.slope == pytest.approx(1.001)


def test_a_trace_of_before_has_no_times(tmp_path: Path) -> None:
    path = timed_trace(tmp_path / "t.bin")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE gpu_time")
        connection.execute("DROP TABLE gpu_clock")
    with open_trace(path) as trace:
        assert [launch.gpu_time_ns for launch in trace.iter_launches()] == [None, 77]
        assert (list(trace.gpu_times()), trace.gpu_total()) == ([], (0, 0))
        assert trace.kernels()[0][3] == 77


def test_a_part_keeps_its_times_and_the_clock(tmp_path: Path) -> None:
    none: frozenset[int] = frozenset()
    with open_trace(timed_trace(tmp_path / "t.bin")) as trace:
        cut = Cut(first=1, last=2, calls=none, modules=none, allocations=none, state=False)
        write_subset(trace, tmp_path / "part.bin", cut, {})
    with open_trace(tmp_path / "part.bin") as part:
        assert [(time.call, time.start_ns) for time in part.gpu_times()] == [(2, 3020)]


def test_a_damaged_time_is_named(tmp_path: Path) -> None:
    path = timed_trace(tmp_path / "t.bin")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE gpu_time SET duration_ns = -1 WHERE call = 2")
    with open_trace(path) as trace, pytest.raises(zluda.TraceError, match="-1"):
        list(trace.gpu_times())


def test_the_timeline_shows_when_the_gpu_worked_by_stream(tmp_path: Path) -> None:
    with open_trace(timed_trace(tmp_path / "t.bin")) as trace, (tmp_path / "t.json").open("w") as stream:
        write_timeline(trace, stream)
    events = json.loads((tmp_path / "t.json").read_text())
    rows = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    gpu = [e for e in events if e["ph"] == "X" and e["cat"] in ("kernel", "graph")]
    assert [(e["name"], e["ts"], e["dur"]) for e in gpu] == [
        ("k", pytest.approx((10**15 + 2 * 10**9 + 1000) / 1000), 0.4),
        ("k", 1.0, 0.077),  # not timed by events: where its call was made
        ("cuGraphLaunch", 2.02, 0.9),
    ]
    assert (
        len({(e["pid"], e["tid"]) for e in gpu}) == 3
    )  # two streams of the first GPU clock, one of the other
    assert [rows[e["pid"], e["tid"]] for e in gpu] == [
        "stream 0x77",
        "default stream",
        "default stream, context 2",
    ]
