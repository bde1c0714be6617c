"""What was chosen is recorded with its memory, replays alike, and the rest is there as calls."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from recorded_scenes import SOURCES, Recorded, StandIn

import zluda
from zluda.diff.results import Verdict
from zluda.errors import TraceError
from zluda.replay.cutting import extract
from zluda.tracefile import Call, Launch, LeftOut, Trace, TraceWriter, open_trace
from zluda.tracefile.overview import overview

STEPS = "6"
PRINTED = "226536\n"
# saxpy x→y, triple, on even steps triple in another shape, saxpy y→z
KERNELS = ["saxpy", "triple", "triple", "saxpy", "saxpy", "triple", "saxpy"] * 3

Record = Callable[..., Recorded]


@pytest.fixture(scope="module")
def record(standin: StandIn, tmp_path_factory: pytest.TempPathFactory) -> Record:
    """Record the program of steps with some options; once with the same."""
    for source in ("choosing", "graphs", "ranges"):
        flags = [
            f"-L{standin.directory}",
            "-l:libcuda.so.1",
            f"-Wl,-rpath,{standin.directory}",
            "-ldl",
            "-lpthread",
        ]
        app = str(standin.directory / source)
        subprocess.run(["cc", "-O1", "-w", str(SOURCES / f"{source}.c"), "-o", app, *flags], check=True)
    made: dict[tuple[str, ...], Recorded] = {}

    def run(*options: str, program: tuple[str, ...] = ("choosing", STEPS)) -> Recorded:
        key = (*program, *options)
        if key not in made:
            trace = tmp_path_factory.mktemp("choice") / "trace.bin"
            line = [sys.executable, "-m", "zluda", "trace", "--no-verify", "-o", str(trace), *options, "--"]
            line += [str(standin.directory / program[0]), *program[1:]]
            done = subprocess.run(line, capture_output=True, text=True, timeout=300)
            assert done.returncode == 0, done.stderr
            made[key] = Recorded(trace, done.returncode, done.stdout, done.stderr)
        return made[key]

    return run


def chosen(recorded: Recorded) -> list[int]:
    """The numbers, among the launches, of those that have their memory on record."""
    with open_trace(recorded.trace) as trace:
        launches = list(trace.iter_launches())
    assert [launch.kernel for launch in launches] == KERNELS
    assert all(launch.captured != (launch.left_out is LeftOut.UNSELECTED) for launch in launches)
    return [number for number, launch in enumerate(launches) if launch.captured]


def verdicts(recorded: Recorded, *, copies: int = 0) -> None:
    """All that was chosen is identical; of the copies to the host ``copies`` could be compared."""
    result = zluda.replay(recorded.trace, device="cpu")
    with open_trace(recorded.trace) as trace:
        captured = {launch.call: launch.captured for launch in trace.iter_launches()}
    assert not result.meta["not_replayed"]
    for one in result.results:
        if one.kind == "launch":
            assert one.verdict is (Verdict.IDENTICAL if captured[one.call] else Verdict.NOT_REPLAYED), one
            assert captured[one.call] or one.reason == "not selected when it was recorded"
    compared = [one.verdict for one in result.results if one.kind == "copy"]
    assert compared.count(Verdict.IDENTICAL) == copies
    assert compared.count(Verdict.NOT_COMPARED) == len(compared) - copies


def test_a_sample_is_the_first_launches_of_each_kernel_and_shape(record: Record) -> None:
    recorded = record("--sample", "2", "--kernel", "(?i)^TRIPLE$")
    assert recorded.output == PRINTED and chosen(recorded) == [1, 2, 5, 9]
    verdicts(recorded)
    with open_trace(recorded.trace) as trace:
        found = overview(trace)
        assert found["left_out"] == {"unselected": 17}
        assert found["meta"]["selection"] == {"kernel": "(?i)^TRIPLE$", "sample": 2}
        calls = [call.function for call in trace.iter_calls()]
        assert calls.count("cuLaunchKernel") == 21 and calls.count("cuMemcpyDtoH_v2") == 7


def test_what_was_not_chosen_is_found_before_what_was(record: Record) -> None:
    """The state before a chosen launch is NVIDIA's: a launch reads what others, not on record, wrote."""
    recorded = record("--launches", "5-8,14-")
    assert chosen(recorded) == [5, 6, 7, 8, *range(14, 21)]
    verdicts(recorded, copies=3)
    full = record("--capture", "full")
    assert chosen(full) == list(range(21))
    with open_trace(recorded.trace) as some, open_trace(full.trace) as whole:
        for ours, theirs in zip(some.iter_launches(), whole.iter_launches(), strict=True):
            if ours.captured:
                for after in (-1, 0):
                    expected = state(whole, theirs, theirs.call + after)
                    assert state(some, ours, ours.call + after) == expected


def state(trace: Trace, launch: Launch, call: int) -> list[bytes]:
    """What the memory that ``launch`` reaches holds after ``call``."""
    words = [
        launch.parameters[at : at + 8] for offset, size in launch.layout or () if size == 8 for at in [offset]
    ]
    held = []
    for word in words:
        one = next(a for a in trace.live_allocations(call) if a.base == int.from_bytes(word, "little"))
        data, mask = trace.read_allocation(one.id, call, 0, one.size)
        assert mask is None
        held.append(data)
    return held


def test_a_chosen_launch_stands_alone_and_others_cannot(record: Record, tmp_path: Path) -> None:
    recorded = record("--launches", "5-8,14-")
    with open_trace(recorded.trace) as trace:
        first, *_, last = trace.iter_launches()
        extract(trace, tmp_path / "one.bin", last.call)
        with pytest.raises(TraceError, match="not selected when it was recorded"):
            extract(trace, tmp_path / "none.bin", first.call)
    (result,) = zluda.replay(tmp_path / "one.bin", device="cpu").results
    assert (result.call, result.verdict) == (last.call, Verdict.IDENTICAL)


def test_the_profiler_opens_and_closes_what_is_recorded(record: Record) -> None:
    recorded = record("--start-on", "cuProfilerStart")
    assert recorded.output == PRINTED and chosen(recorded) == list(range(7, 14))
    verdicts(recorded, copies=2)


def test_ranges_are_on_record_and_open_what_is_recorded(record: Record, tmp_path: Path) -> None:
    recorded = record("--start-on", "nvtx:step#2", "--stop-on", "nvtx:step#3", "--launches", "1-")
    assert recorded.output == PRINTED and chosen(recorded) == [5, 6, 7, 8, 9, 10]
    with open_trace(recorded.trace) as trace:
        pushed = [call for call in trace.iter_calls() if call.function == "nvtxRangePush"]
        assert [trace.payload(call.sequence, "message") for call in pushed] == [b"step"] * int(STEPS)
    timeline = tmp_path / "timeline.json"
    subprocess.run([sys.executable, "-m", "zluda", "convert", recorded.trace, timeline], check=True)
    events = [event for event in json.loads(timeline.read_text()) if event.get("cat") == "nvtx"]
    assert [event["ph"] for event in events] == ["B", "E"] * int(STEPS)
    assert events[0]["name"] == "step"
    verdicts(recorded, copies=2)


def test_every_form_of_a_range_or_mark_is_on_record(record: Record, standin: StandIn) -> None:
    recorded = record(program=("ranges",))
    assert recorded.output == "-2\n"  # NVTX_NO_PUSH_POP_TRACKING
    alone = subprocess.run([standin.directory / "ranges"], capture_output=True, text=True, check=True)
    assert alone.stdout == "0\n"
    with open_trace(recorded.trace) as trace:
        told = [call for call in trace.iter_calls() if call.function.startswith("nvtx")]
        assert [
            (
                call.function.removeprefix("nvtx"),
                *(text_of(trace, call, name) for name in ("message", "domain")),
            )
            for call in told
        ] == [
            ("RangePush", "outer", None),
            ("RangePush", "gone", None),
            ("RangePush", "größe € 𝄞", None),
            ("Mark", "mark", None),
            ("Mark", "wide", None),
            ("Mark", "", None),
            ("Mark", "", None),
            *[("RangePop", None, None)] * 3,
            ("RangeStart", "first", None),
            ("RangeStart", "second", None),
            ("RangeStart", "third", None),
            *[("RangeEnd", None, None)] * 3,
            ("RangePush", "registered", "library"),
            ("Mark", "regis—tered", "bibliotekå"),
            ("RangeStart", "fourth", "bibliotekå"),
            ("RangePop", None, None),
            ("RangeEnd", None, None),
        ]
        first, second, third, fourth = (c.arguments["id"] for c in told if c.function == "nvtxRangeStart")
        ended = [call.arguments["id"] for call in told if call.function == "nvtxRangeEnd"]
        assert ended == [second, first, third, fourth] and len(set(ended)) == 4
        driver = [call.sequence for call in trace.iter_calls() if call.function == "cuInit"]
        assert driver == [0, len(told) + 1]


def text_of(trace: Trace, call: Call, parameter: str) -> str | None:
    """What a parameter of a call points to, a string."""
    data = trace.payload(call.sequence, parameter) if parameter in call.arguments else None
    return None if data is None else data.split(b"\0")[0].decode()


def test_a_graph_is_chosen_by_any_of_its_kernels(record: Record) -> None:
    recorded = record("--sample", "1", program=("graphs", "built"))
    result = zluda.replay(recorded.trace, device="cpu")
    found = [one.verdict for one in result.results if one.kind == "launch"]
    assert found[:3].count(Verdict.IDENTICAL) == 2 and found[3:] == [Verdict.NOT_REPLAYED] * 3
    assert all(one.verdict.counts_as.value in ("holds", "neutral") for one in result.results)


def test_past_its_budget_calls_go_on_without_memory(record: Record) -> None:
    recorded = record("--budget", "1kB")
    assert recorded.output == PRINTED
    assert "reached its budget" in recorded.errors
    with open_trace(recorded.trace) as trace:
        assert [launch.left_out for launch in trace.iter_launches()] == [LeftOut.OVER_BUDGET] * 21
        assert [gap.kind for gap in trace.gaps] == ["budget"]
        assert not any(
            payload.data for call in trace.iter_copies() for payload in trace.payloads(call.sequence)
        )
    result = zluda.replay(recorded.trace, device="cpu")
    assert {one.verdict for one in result.results} == {Verdict.NOT_COMPARED}
    assert any(one.reason.startswith("budget") for one in result.results)


def test_a_redacted_trace_has_no_contents_and_replays_what_it_can(record: Record) -> None:
    secret = record("--redact")
    with open_trace(secret.trace) as trace:
        assert trace.meta["stripped"] == ["contents"] and trace.meta["redacted"]
        assert trace.module_list[0].ptx_image is not None and trace.ptx(trace.module_list[0])
    held = secret.trace.read_bytes()
    assert bytes(range(64)) not in held and b"\1\0\0\0\2\0\0\0\3\0\0\0" not in held
    hidden = zluda.replay(secret.trace, device="cpu")
    assert {one.verdict for one in hidden.results} == {Verdict.GAP}
    assert all("redacted" in one.reason for one in hidden.results)
    filled = record("--redact", program=("choosing", "4", "fills"))
    result = zluda.replay(filled.trace, device="cpu")
    assert {one.verdict for one in result.results} == {Verdict.IDENTICAL}


def test_a_redacted_launch_that_differs_differs_by_digest(record: Record, tmp_path: Path) -> None:
    filled = record("--redact", program=("choosing", "4", "fills"))
    other = tmp_path / "other.bin"
    other.write_bytes(filled.trace.read_bytes())
    with open_trace(other) as trace:
        launch = next(trace.iter_launches())
        (page,) = trace.pages(launch.call)
    with TraceWriter.reopen(other) as writer:
        writer.redacts = True
        writer.add_page(launch.call, page.allocation, page.offset, b"\7" * page.length)
    first = zluda.replay(other, device="cpu").results[0]
    assert (first.call, first.verdict) == (launch.call, Verdict.DIFFERS) and "redacted" in first.reason
