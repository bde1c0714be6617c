"""Verdicts, exit status and the object that `zluda replay --json` prints."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import pytest

import zluda
from zluda.diff import (
    BufferComparison,
    CountsAs,
    Element,
    LaunchResult,
    ReplayResult,
    Verdict,
    exit_status,
    worst,
)
from zluda.diff.results import parse_allow

KEYS = [
    *("trace", "device", "emulated", "numerics", "mode", "verdict", "launches", "copies"),
    *("identical", "within", "noise", "differs", "inherited", "crash", "hang", "unsupported", "no_ptx"),
    *("not_compared", "gap", "not_replayed", "reasons", "first_divergence", "at_fault", "blame"),
    "seconds",
    *("product", "relocated", "fidelity", "printed"),
    "kernels",
    "differences",
    "differences_left_out",
]


def launch(call: int, verdict: Verdict, reason: str = "", **values: object) -> LaunchResult:
    return LaunchResult(call, "launch", f"k{call}", verdict, reason, **values)  # type: ignore[arg-type]


def replay(*results: LaunchResult) -> ReplayResult:
    return ReplayResult("t.bin", "cpu", False, "nvidia", list(results), 0.5)


def differing(recorded: float = 1.0, replayed: float = 2.0) -> BufferComparison:
    element = Element(17, 0x1044, recorded, replayed, 0x3F800000, 0x40000000, 8388608.0)
    return BufferComparison(3, "out", 0x1000, 0, 128, "f32", 128, 32, 1, (element,), 8388608.0, 1.0, 1.0)


def test_every_verdict_has_a_meaning_and_counts_as_something() -> None:
    assert [str(verdict.value) for verdict in Verdict] == [
        *("identical", "within", "noise", "differs", "inherited", "crash", "hang"),
        *("unsupported", "no-ptx", "not-compared", "gap", "not-replayed"),
    ]
    assert all(verdict.meaning for verdict in Verdict)
    assert Verdict("no-ptx") is Verdict.NO_PTX
    assert Verdict.NO_PTX.key == "no_ptx"


def test_the_worst_verdict_tells_the_same_story_as_the_exit_status() -> None:
    order = [CountsAs.NEUTRAL, CountsAs.HOLDS, CountsAs.CANNOT_TELL, CountsAs.FAILS]
    by_severity = sorted(Verdict, key=lambda verdict: verdict.severity)
    ranks = [order.index(verdict.counts_as) for verdict in by_severity]
    assert all(before <= after for before, after in pairwise(ranks))
    assert worst([Verdict.IDENTICAL, Verdict.INHERITED, Verdict.DIFFERS, Verdict.GAP]) is Verdict.DIFFERS
    assert worst([Verdict.IDENTICAL, Verdict.NOT_REPLAYED]) is Verdict.IDENTICAL
    assert worst([]) is Verdict.NOT_COMPARED


@pytest.mark.parametrize(
    ("verdicts", "allow", "status"),
    [
        ([], "", 2),
        (["identical"], "", 0),
        (["identical", "within", "noise", "not-compared", "not-replayed"], "", 0),
        (["not-compared"], "", 2),
        (["not-replayed"], "", 2),
        (["identical", "differs"], "", 1),
        (["identical", "inherited", "gap"], "", 1),
        (["crash"], "", 1),
        (["hang"], "", 1),
        (["identical", "unsupported"], "", 2),
        (["identical", "unsupported"], "unsupported", 0),
        (["identical", "unsupported", "gap"], "unsupported", 2),
        (["identical", "unsupported", "gap", "no-ptx"], "unsupported,gap, no-ptx", 0),
        (["unsupported"], "unsupported", 2),  # nothing was compared
    ],
)
def test_exit_status(verdicts: list[str], allow: str, status: int) -> None:
    counts = {verdict: verdicts.count(str(verdict.value)) for verdict in Verdict}
    assert exit_status(counts, parse_allow(allow)) == status


def test_what_fails_cannot_be_allowed() -> None:
    with pytest.raises(zluda.Error, match="--allow differs: expected some of unsupported, no-ptx, gap"):
        parse_allow("gap,differs")
    assert exit_status({Verdict.DIFFERS: 1}, [Verdict.DIFFERS]) == 1


def test_json_has_exactly_the_promised_keys() -> None:
    result = replay(
        launch(1, Verdict.IDENTICAL), LaunchResult(2, "copy", "cuMemcpyDtoH_v2", Verdict.GAP, "why")
    )
    found = json.loads(json.dumps(result.to_json()))
    assert list(found) == KEYS
    assert (found["launches"], found["copies"], found["identical"], found["gap"]) == (1, 1, 1, 1)
    assert sum(found[verdict.key] for verdict in Verdict) == found["launches"] + found["copies"]
    assert (found["verdict"], found["first_divergence"], found["reasons"]) == ("gap", None, {"why": 1})
    assert found["fidelity"] == {"unknown": 1}


def test_the_first_divergence_is_the_first_that_fails() -> None:
    result = replay(
        launch(1, Verdict.UNSUPPORTED, "tex.2d"),
        launch(2, Verdict.DIFFERS, buffers=(differing(),)),
        launch(3, Verdict.INHERITED, buffers=(differing(),)),
    )
    divergence = result.first_divergence
    assert divergence is not None
    assert divergence.result.call == 2
    assert str(divergence) == "#2 k2: differs, element 17 of out: recorded 1.0, replayed 2.0"
    assert str(result.verdict) == "differs"
    found = divergence.to_json()
    assert (found["kernel"], found["buffer"], found["index"], found["address"]) == ("k2", "out", 17, "0x1044")
    assert (found["recorded"], found["replayed"], found["ulp"]) == (1.0, 2.0, 8388608.0)


def test_json_never_holds_nan_or_infinity() -> None:
    result = replay(launch(1, Verdict.DIFFERS, buffers=(differing(math.nan, -math.inf),)))
    found = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert found["first_divergence"]["recorded"] == "nan"
    assert found["first_divergence"]["replayed"] == "-inf"


def test_a_crash_is_a_divergence_without_an_element() -> None:
    divergence = replay(launch(4, Verdict.CRASH, "signal 11")).first_divergence
    assert divergence is not None
    assert divergence.element is None
    assert divergence.to_json() == {
        "call": 4,
        "kind": "launch",
        "kernel": "k4",
        "verdict": "crash",
        "reason": "signal 11",
    }


def test_reasons_come_most_frequent_first() -> None:
    result = replay(
        launch(1, Verdict.GAP, "a"), launch(2, Verdict.GAP, "b"), launch(3, Verdict.UNSUPPORTED, "b")
    )
    assert list(result.reasons.items()) == [("b", 2), ("a", 1)]


def test_the_frame_of_launches() -> None:
    frame = replay(
        launch(1, Verdict.IDENTICAL, grid=(2, 1, 1), seconds=0.25),
        launch(5, Verdict.DIFFERS, buffers=(differing(),)),
    ).launches
    assert list(frame.index) == [1, 5]
    assert list(frame["verdict"]) == ["identical", "differs"]
    assert frame.loc[1, "grid"] == (2, 1, 1)
    assert (frame.loc[5, "differing"], frame.loc[5, "max_ulp"]) == (1, 8388608.0)
    assert len(replay().launches) == 0


def test_reasons_count_envelopes_by_their_instructions() -> None:
    """What is one launch's own stands after a colon; thousands of launches are one line."""
    told = [f"inside the envelope of ex2.approx.f32: {n} elements differ" for n in (3, 4)]
    results = [LaunchResult(i, "launch", "k", Verdict.WITHIN, reason) for i, reason in enumerate(told)]
    results.append(LaunchResult(2, "launch", "k", Verdict.GAP, "cuFoo: not on record"))
    found = ReplayResult("t", "gfx1030", True, "native", results, 1.0).reasons
    assert found == {"inside the envelope of ex2.approx.f32": 2, "cuFoo: not on record": 1}
