"""What the analyses promise to the code that relies on them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_kernels import random_kernel

from zluda.compiler.analysis.cfg import EXIT, Block, Graph, Jump, Leave, Switch, build_graph
from zluda.compiler.analysis.dominators import post_dominators
from zluda.compiler.analysis.liveness import liveness
from zluda.compiler.analysis.order import weak_topological_order
from zluda.compiler.analysis.shapes import UNIFORM, constant_shape
from zluda.compiler.analysis.uniformity import Uniformity
from zluda.compiler.cpu.warp import shuffle_source
from zluda.compiler.layout import SharedLayout, parameter_layout
from zluda.compiler.lower import families  # noqa: F401  (the shapes of what each instruction gives)
from zluda.compiler.target import Geometry, Shape
from zluda.errors import PtxError
from zluda.ptx import parse_module
from zluda.ptx.module import Immediate, Variable
from zluda.ptx.types import ScalarType

GEOMETRY = Geometry(2, 16)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Any graph of up to a dozen blocks, unreachable ones and several exits included."""
    count = draw(st.integers(1, 12))
    blocks = []
    for i in range(count):
        targets = draw(st.lists(st.integers(0, count - 1), max_size=3))
        ends = [Leave(), *(Jump(t) for t in targets[:1]), Switch(Immediate(0), tuple(targets))]
        blocks.append(Block(i, [], ends[min(len(targets), 2)] if targets else ends[0]))
    return Graph(blocks)


@given(graphs())
@settings(max_examples=300, deadline=None)
def test_edges_go_forward_or_to_the_head_of_a_loop_around_their_source(graph: Graph) -> None:
    order = weak_topological_order(graph)
    assert sorted(order.sequence) == graph.reachable()
    position = {n: i for i, n in enumerate(order.sequence)}
    for component in order.components:
        at = [position[n] for n in component.blocks]
        assert at == list(range(at[0], at[0] + len(at)))
        assert component.blocks[0] == component.head
    for n in order.sequence:
        for s in graph.blocks[n].successors:
            if s != EXIT and position[s] <= position[n]:
                assert any(c.head == s for c in order.around(n))


@given(graphs())
@settings(max_examples=300, deadline=None)
def test_every_path_to_the_end_passes_the_immediate_post_dominator(graph: Graph) -> None:
    meets = post_dominators(graph)
    for n in graph.reachable():
        meeting = meets[n]
        if meeting == EXIT:
            continue
        seen, stack = {n}, [n]
        while stack:
            for s in graph.blocks[stack.pop()].successors:
                assert s != EXIT
                if s != meeting and s not in seen:
                    seen.add(s)
                    stack.append(s)


def analyse(text: str) -> Uniformity:
    function = parse_module(text).function("k")
    graph = build_graph(function)
    order = weak_topological_order(graph)

    def special(name: str) -> Shape:
        return {"%tid.x": Shape(tuple(range(32)), 1, 32), "%ntid.x": constant_shape(256)}.get(name, UNIFORM)

    return Uniformity(
        graph, order, liveness(graph), GEOMETRY, special, lambda name: UNIFORM, is_entry=True, partial=False
    ).run()


@given(st.integers(0, 1 << 30))
@settings(max_examples=60, deadline=None)
def test_zones_have_one_exit_and_keep_their_order(seed: int) -> None:
    found = analyse(random_kernel(seed))
    position = {n: i for i, n in enumerate(found.order.sequence)}
    assert sorted(n for z in found.zones for n in z.blocks) == sorted(found.masked)
    for zone in found.zones:
        assert [position[n] for n in zone.blocks] == sorted(position[n] for n in zone.blocks)
        left = {s for n in zone.blocks for s in found.graph.blocks[n].successors if s not in zone.blocks}
        assert left <= {zone.exit, EXIT} and zone.exit not in found.masked


PRELUDE = """.version 8.0\n.target sm_90\n.address_size 64
.visible .entry k(.param .u64 p, .param .u32 n) { .reg .b32 %r<20>; .reg .b64 %rd<20>; .reg .pred %p<5>;
ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [n]; mov.u32 %r2, %tid.x; mov.u32 %r3, %ctaid.x;
mov.u32 %r4, %ntid.x;
"""


def shapes(body: str) -> dict[str, Shape]:
    return analyse(PRELUDE + body + "\nret; }").shapes


def test_a_global_index_stays_one_scalar_and_a_pattern() -> None:
    found = shapes(
        "mad.lo.s32 %r5, %r3, %r4, %r2; mul.wide.s32 %rd2, %r5, 4; add.s64 %rd3, %rd1, %rd2;"
        "and.b32 %r6, %r2, 31; shr.u32 %r7, %r2, 5; shl.b32 %r8, %r2, 3;"
    )
    assert found["%rd3"].pattern == tuple(range(0, 128, 4)) and found["%rd3"].bases == 1
    assert found["%r6"].pattern == tuple(range(32))
    assert found["%r7"].uniform
    assert found["%r8"].pattern == tuple(range(0, 256, 8))


def test_extending_is_refused_where_a_lane_might_wrap() -> None:
    assert shapes("add.u32 %r5, %r2, %r1; cvt.u64.u32 %rd2, %r5;")["%rd2"].varying
    assert not shapes("add.u32 %r5, %r2, %r1;")["%r5"].varying


def test_a_uniform_loop_under_a_divergent_guard_keeps_its_counter_scalar() -> None:
    found = analyse(
        PRELUDE
        + """setp.ge.u32 %p1, %r2, %r1; @%p1 bra END; mov.u32 %r5, 0; mov.u32 %r6, %r2;
    LOOP: add.u32 %r6, %r6, %r5; add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, %r1; @%p2 bra LOOP;
    st.global.u32 [%rd1], %r6; END: ret; }"""
    )
    assert found.shapes["%r5"].uniform
    assert found.shapes["%p2"].uniform
    assert found.masked


def test_values_that_lanes_leave_a_loop_with_are_theirs_alone() -> None:
    found = analyse(
        PRELUDE
        + """mov.u32 %r5, 0; LOOP: add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, %r2; @%p2 bra LOOP;
    st.global.u32 [%rd1], %r5; ret; }"""
    )
    assert found.shapes["%r5"].varying


def test_a_branch_to_nowhere_is_an_error_with_its_place() -> None:
    with pytest.raises(PtxError, match=r"<ptx>:\d+:\d+: .*label"):
        analyse(PRELUDE + "bra NOWHERE; ret; }")


@pytest.mark.parametrize(
    ("mode", "lane", "by", "clamp", "source", "in_range"),
    [
        ("up", 3, 5, 0, 3, False),
        ("up", 9, 5, 0, 4, True),
        ("down", 30, 2, 31, 30, False),
        ("down", 5, 4, 0x1807, 5, False),  # segments of eight
        ("bfly", 31, 16, 31, 15, True),
        ("idx", 17, 3, 0x100F, 19, True),  # segments of sixteen
        ("idx", 0, 40, 31, 8, True),
    ],
)
def test_shuffle_sources(mode: str, lane: int, by: int, clamp: int, source: int, in_range: bool) -> None:
    assert shuffle_source(mode, lane, by, clamp) == (source, in_range)


def test_layouts() -> None:
    variables = [
        Variable("a", "param", ScalarType.U8, 1),
        Variable("b", "param", ScalarType.F64, 8),
        Variable("c", "param", ScalarType.B8, 16, (20,)),
    ]
    slots, size = parameter_layout(variables)
    assert [(s.offset, s.size) for s in slots] == [(0, 1), (8, 8), (16, 20)] and size == 36
    shared = SharedLayout([*variables, Variable("rest", "shared", ScalarType.F32, 4, (0,))])
    assert shared.offsets == {"a": 0, "b": 8, "c": 16, "rest": 48}
    assert shared.static_bytes == 36
