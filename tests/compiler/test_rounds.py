"""Lanes that go round by different ways and meet at a barrier or a vote inside (compilers' rotated loops)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import zluda
from zluda.compiler.analysis.cfg import build_graph
from zluda.compiler.analysis.order import weak_topological_order
from zluda.compiler.analysis.rounds import in_turn, several_entries, waited_for
from zluda.ptx import parse_module

# Each round adds 1 to %r7, and 100 in some lanes; all then exchange it, and in some lanes the round ends
# at another place. %p1: odd lanes, %p2: every other pair of lanes.
HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{ .reg .pred %p<9>; .reg .b32 %r<13>; .reg .b64 %rd<4>; .shared .b32 s[256];
ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mad.wide.u32 %rd2, %r1, 4, %rd1; mov.u32 %r2, s;
mad.lo.u32 %r3, %r1, 4, %r2; and.b32 %r4, %r1, 1; setp.ne.u32 %p1, %r4, 0; and.b32 %r5, %r1, 2;
setp.ne.u32 %p2, %r5, 0; mov.u32 %r6, 0; mov.u32 %r7, 0; mov.u32 %r9, 0; mov.u32 %r10, %ntid.x;
add.u32 %r10, %r10, -1; xor.b32 %r11, %r1, 33; min.u32 %r10, %r10, %r11; mad.lo.u32 %r10, %r10, 4, %r2;
"""
BARRIER = """st.shared.u32 [%r3], %r7; bar.sync 0; ld.shared.u32 %r8, [%r10]; bar.sync 0;
add.u32 %r9, %r9, %r8; add.u32 %r6, %r6, 1; setp.lt.u32 %p3, %r6, 4; @!%p3 bra end;"""
VOTE = """vote.sync.ballot.b32 %r8, %p1, -1; add.u32 %r9, %r9, %r8;
add.u32 %r6, %r6, 1; setp.lt.u32 %p3, %r6, 4; @!%p3 bra end;"""
END = "end: st.global.u32 [%rd2], %r9; ret; }"

LOOPS = {
    "two heads": "outer: add.u32 %r7, %r7, 1; @%p2 bra inner; add.u32 %r7, %r7, 100; inner: MEET"
    " @%p1 bra outer; add.u32 %r7, %r7, 1; @%p2 bra inner; add.u32 %r7, %r7, 100; bra inner;",
    "three heads": "outer: add.u32 %r7, %r7, 1; @!%p2 bra middle; bra inner; middle: add.u32 %r7, %r7, 100;"
    " inner: MEET @%p1 bra outer; add.u32 %r7, %r7, 1; @!%p2 bra middle; bra inner;",
    "a step behind the inner loop": "outer: add.u32 %r7, %r7, 1; @%p2 bra inner; add.u32 %r7, %r7, 100;"
    " inner: MEET @%p1 bra outer; @%p2 bra step; add.u32 %r7, %r7, 101; bra inner; step: bra outer;",
}


@pytest.fixture(scope="module", params=["cpu", "gfx1030"])
def device(request: pytest.FixtureRequest) -> Iterator[Any]:
    with zluda.open_device(request.param) as opened:
        yield opened


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("block", [64, 60])
def test_all_meet_at_the_barrier(device: Any, loop: str, block: int) -> None:
    out = device.array(np.zeros(block, np.uint32))
    text = HEAD + LOOPS[loop].replace("MEET", BARRIER) + END
    device.load_module(text).kernel("k").launch(grid=1, block=block, args=[out])
    threads = np.arange(block)
    step = 1 + np.where(threads & 2, 0, 100)
    partner = np.minimum(threads ^ 33, block - 1)
    assert np.array_equal(out.numpy(), sum(round * step[partner] for round in range(1, 5)))


@pytest.mark.parametrize("loop", LOOPS)
def test_all_vote_together(device: Any, loop: str) -> None:
    out = device.array(np.zeros(32, np.uint32))
    text = HEAD + LOOPS[loop].replace("MEET", VOTE) + END
    device.load_module(text).kernel("k").launch(grid=1, block=32, args=[out])
    assert set(out.numpy()) == {4 * 0xAAAAAAAA % (1 << 32)}


@pytest.mark.parametrize(("loop", "heads"), [("two heads", 2), ("three heads", 3)])
def test_what_goes_round_together_has_one_entry_on_amd(loop: str, heads: int) -> None:
    graph = build_graph(parse_module(HEAD + LOOPS[loop].replace("MEET", BARRIER) + END).function("k"))
    (entries,) = several_entries(graph)
    assert len(entries) == heads
    order = weak_topological_order(graph)
    waited = waited_for(graph, order)
    assert [c.head for c in in_turn(order.components, waited)] == [c.head for c in order.components]


def test_a_loop_in_a_loop_is_finished_first() -> None:
    """Its lanes meet behind it, not at its head."""
    body = """outer: inner: add.u32 %r6, %r6, 1; setp.lt.u32 %p3, %r6, %r1; @%p3 bra inner;
    bar.sync 0; @%p1 bra outer;"""
    graph = build_graph(parse_module(HEAD + body + END).function("k"))
    order = weak_topological_order(graph)
    waited = waited_for(graph, order)
    assert all(waited[c.head] is c for c in order.components)
    assert several_entries(graph) == []
