"""Graphs that cannot be replayed: their launch has a verdict, and the replay does not hold."""

from __future__ import annotations

import pytest
from replay_case import Case

from zluda.diff.results import LaunchResult, Verdict

SIZE = 256


def graph(case: Case, *, known: bool) -> int:
    """A graph without kernels on record that wrote memory, and a copy of it to the host."""
    record = case.record
    record.start()
    x = record.allocate(SIZE)
    record.copy_in(x, bytes(SIZE))
    launch = end = record.call("cuGraphLaunch", hGraph=record.handle(), hStream=0)
    if known:
        end = record.call("cuStreamQuery", hStream=0, parent=launch)
        record.gap(launch, "graph", "it has a conditional node, whose condition is not known")
    record.put(end, x, b"\x07" * SIZE)
    record.copy_out(x, SIZE)
    return launch


@pytest.mark.parametrize(
    ("known", "reason"),
    [(True, "it has a conditional node"), (False, "the nodes of its graph are not on record")],
)
def test_a_graph_of_which_no_kernel_is_known_is_a_gap(case: Case, known: bool, reason: str) -> None:
    launch = graph(case, known=known)
    result = case.replay({})
    first: LaunchResult = result.results[0]
    assert (first.call, first.kind, first.kernel) == (launch, "launch", "cuGraphLaunch")
    assert first.verdict is Verdict.GAP and reason in first.reason
    assert result.exit_status() == 2


def test_one_that_is_left_out_is_not_replayed(case: Case) -> None:
    launch = graph(case, known=True)
    result = case.replay({}, select=str(launch + 100))
    assert result.results[0].verdict is Verdict.NOT_REPLAYED
