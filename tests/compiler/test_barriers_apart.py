"""Lanes of a warp that come to different barriers: stopped by name, never counted twice (PTX ISA 9.7.13)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import zluda
from zluda.compiler.analysis.barriers import certain_partings, is_barrier, returning, synchronising
from zluda.compiler.analysis.cfg import build_graph
from zluda.errors import UnsupportedError
from zluda.ptx import parse_module

# Threads exchange %r7 through shared memory with the thread whose number has some bits flipped. %p1: odd
# threads, %p2: threads below 40.
HEAD = """.version 8.0
.target sm_80
.address_size 64
FUNCTIONS
.visible .entry k(.param .u64 out)
{ .reg .pred %p<4>; .reg .b32 %r<10>; .reg .b64 %rd<4>; .shared .b32 s[256];
ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mad.wide.u32 %rd2, %r1, 4, %rd1;
mov.u32 %r2, s; mad.lo.u32 %r3, %r1, 4, %r2; and.b32 %r4, %r1, 1; setp.ne.u32 %p1, %r4, 0;
setp.lt.u32 %p2, %r1, 40; xor.b32 %r5, %r1, 33; mad.lo.u32 %r6, %r5, 4, %r2; add.u32 %r7, %r1, 100;
st.shared.u32 [%r3], 0;
"""
READ = "ld.shared.u32 %r8, [%r6]; st.global.u32 [%rd2], %r8; ret; }"
WRITE = "st.shared.u32 [%r3], %r7;"
MEET = ".func meet() { bar.sync 0; ret; }"
MAYBE = """.func meet(.reg .b32 a) { .reg .pred %p; and.b32 a, a, 1; setp.eq.u32 %p, a, 0; @%p bra out;
bar.sync 0; out: ret; }"""
PROTOTYPE = "P: .callprototype _ ();"
TWO = """.func meet() { bar.sync 0; ret; } .func other() { bar.sync 0; ret; }
.global .u64 table[2] = {meet, other};"""
THROUGH = f"""{PROTOTYPE} mov.u64 %rd3, table; mad.wide.u32 %rd3, %r4, 8, %rd3; ld.global.u64 %rd3, [%rd3];
call %rd3, (), P;"""

APART = {
    "a guarded barrier": f"@%p1 bar.sync 0; {WRITE} bar.sync 0; {READ}",
    "a guarded arrival": f"@%p1 bar.arrive 1, 64; {WRITE} bar.sync 0; {READ}",
    "both sides": f"@%p1 bra A; {WRITE} bar.sync 0; bra B; A: {WRITE} bar.sync 0; B: {READ}",
    "not aligned": f"@%p1 bra A; {WRITE} barrier.sync 0; bra B; A: {WRITE} barrier.sync 0; B: {READ}",
    "a vote": f"@%p1 bra A; bar.red.popc.u32 %r9, 0, %p1; A: {WRITE} bar.sync 0; {READ}",
    "a call": f"@%p1 call meet, (); {WRITE} bar.sync 0; {READ}",
    "a loop": f"mov.u32 %r9, 0; L: bar.sync 0; add.u32 %r9, %r9, 1; setp.le.u32 %p3, %r9, %r4; @%p3 bra L;"
    f"{WRITE} bar.sync 0; {READ}",
    "two sides of three": f"@!%p2 bra C; @%p1 bra A; {WRITE} bar.sync 0; bra B;"
    f"A: {WRITE} bar.sync 0; B: {READ[:-1]} C: ret; }}",
}
TOGETHER = {
    "the others leave": f"@!%p2 ret; {WRITE} bar.sync 0; {READ}",
    "the others go to the end": f"@!%p2 bra E; {WRITE} bar.sync 0; ld.shared.u32 %r8, [%r6];"
    " st.global.u32 [%rd2], %r8; E: ret; }",
    "either of two ways": f"@%p2 bra X; @!%p2 bra E; X: {WRITE} bar.sync 0; {READ[:-1]} E: ret; }}",
    "a call": f"@!%p2 exit; {WRITE} call meet, (); {READ}",
}


@pytest.fixture(scope="module", params=["cpu", "gfx1030"])
def device(request: pytest.FixtureRequest) -> Iterator[Any]:
    with zluda.open_device(request.param) as opened:
        yield opened


def run(device: Any, body: str, functions: str = MEET, block: int = 64) -> list[int]:
    out = device.array(np.zeros(block, np.uint32))
    text = HEAD.replace("FUNCTIONS", functions) + body
    device.load_module(text).kernel("k").launch(grid=1, block=block, args=[out])
    return list(out.numpy())


@pytest.mark.parametrize("case", APART)
def test_lanes_at_different_barriers_are_refused(device: Any, case: str) -> None:
    with pytest.raises(UnsupportedError, match=r"reached by a part of a warp \(kernel k, "):
        run(device, APART[case])


@pytest.mark.parametrize("block", [40, 64])
@pytest.mark.parametrize("case", APART)
def test_the_cpu_finds_them_wherever_the_others_are(case: str, block: int) -> None:
    with (
        zluda.open_device("cpu") as device,
        pytest.raises(UnsupportedError, match="reached by a part of a w"),
    ):
        run(device, APART[case], block=block)


def test_functions_called_through_pointers_are_different_barriers() -> None:
    with zluda.open_device("cpu") as device, pytest.raises(UnsupportedError, match="call reached by a part"):
        run(device, f"{THROUGH} {WRITE} bar.sync 0; {READ}", TWO)


@pytest.mark.parametrize("behind", ["bar.sync 0;", ""])
def test_who_returned_from_a_function_counts_where_a_barrier_is_behind_it(behind: str) -> None:
    body = f"call meet, (%r1); {behind} {WRITE} {READ}"
    with zluda.open_device("cpu") as device:
        if behind:
            with pytest.raises(
                UnsupportedError, match=r"bar\.sync reached by a part of a warp \(function meet"
            ):
                run(device, body, MAYBE)
        else:
            run(device, body, MAYBE)


@pytest.mark.parametrize("case", TOGETHER)
def test_lanes_that_only_leave_are_waited_for_by_nobody(device: Any, case: str) -> None:
    expected = [t ^ 33 if t ^ 33 < 40 else -100 for t in range(40)]
    assert run(device, TOGETHER[case])[:40] == [100 + e for e in expected]


def test_warps_may_go_different_ways(device: Any) -> None:
    body = f"setp.lt.u32 %p1, %r1, 32; {WRITE} @%p1 bra A; bar.sync 0; bra B; A: bar.sync 0; B: {READ}"
    assert run(device, body) == [100 + (t ^ 33) for t in range(64)]


def test_a_warp_that_was_counted_twice() -> None:
    """One warp parts and the other does not: both halves would have counted, and the other run ahead."""
    body = f"""setp.lt.u32 %p3, %r1, 32; and.pred %p1, %p1, %p3; @%p1 bra A; {WRITE} bar.sync 0; bra B;
    A: {WRITE} bar.sync 0; B: {READ}"""
    with (
        zluda.open_device("cpu") as device,
        pytest.raises(UnsupportedError, match="reached by a part of a w"),
    ):
        run(device, body)


# --- bar.warp.sync: lanes wait for each other wherever they are ------------------------------------------

SIDES = "@%p1 bra A; FIRST bra B; A: SECOND B: st.global.u32 [%rd2], %r8; ret; }"
LATE = "xor.b32 %r5, %r1, 1; mad.lo.u32 %r6, %r5, 4, %r2; mov.u32 %r8, 0; mov.u32 %r9, 0;"
GIVE, TAKE = f"{WRITE} bar.warp.sync MASK;", "bar.warp.sync MASK; ld.shared.u32 %r8, [%r6];"


@pytest.mark.parametrize("first", ["even lanes take", "odd lanes take"])
@pytest.mark.parametrize("mask", ["-1", "%r4"])
def test_lanes_on_both_sides_wait_for_each_other(first: str, mask: str) -> None:
    sides = (TAKE, GIVE) if first == "even lanes take" else (GIVE, TAKE)
    body = LATE + "not.b32 %r4, 0;" + SIDES.replace("FIRST", sides[0]).replace("SECOND", sides[1])
    with zluda.open_device("cpu") as device:
        found = run(device, body.replace("MASK", mask))
    takes = 0 if first == "even lanes take" else 1
    assert found == [100 + (t ^ 1) if t % 2 == takes else 0 for t in range(64)]


def test_rounds_of_waiting_on_both_sides() -> None:
    """Each side meets the other three times; the last lanes have left."""
    three = "L: {0} add.u32 %r7, %r7, 1; add.u32 %r9, %r9, 1; setp.lt.u32 %p3, %r9, 3; @%p3 bra L;"
    take = three.replace("L", "T").format(TAKE + " bar.warp.sync MASK;")
    give = three.replace("L", "G").format(GIVE + " bar.warp.sync MASK;")
    body = f"setp.ge.u32 %p2, %r1, 60; @%p2 exit; {LATE}" + SIDES.replace("FIRST", take).replace(
        "SECOND", give
    )
    with zluda.open_device("cpu") as device:
        found = run(device, body.replace("MASK", "0xffffffff"))
    assert found[:60] == [102 + (t ^ 1) if t % 2 == 0 else 0 for t in range(60)]


OWN_SIDES = "shl.b32 %r4, 0x55555555, %r4;"
"""%r4: the lanes that go the thread's own way."""
PARTED = {  # ALL: what names lanes of both sides, OWN: what names those of the thread's own
    "both sides": f"{OWN_SIDES} @%p1 bra A; bar.warp.sync ALL; bra B; A: bar.warp.sync ALL; B:",
    "later on one": f"""{OWN_SIDES} @%p1 bra A; bar.warp.sync OWN; bar.warp.sync ALL; bra B;
        A: bar.warp.sync ALL; B:""",
    "perhaps on one": f"""{OWN_SIDES} @%p1 bra B; @%p2 bra A; bra B;
        A: bar.warp.sync ALL; B: bar.warp.sync -1;""",
    "a loop": f"""mov.b32 %r9, 0; and.b32 %r5, %r1, 1; mov.b32 %r4, -1;
        L: bar.warp.sync ALL; add.u32 %r9, %r9, 1; setp.le.u32 %p3, %r9, %r5; shl.b32 %r4, 0x55555555, %r5;
        @%p3 bra L; bar.warp.sync OWN; mov.b32 %r4, %r5; {OWN_SIDES}""",
    "a table": f"""{OWN_SIDES} T: .branchtargets X, Y; and.b32 %r5, %r1, 1; brx.idx %r5, T;
        X: bar.warp.sync ALL; bra B; Y: bar.warp.sync ALL; B:""",
}


@pytest.mark.parametrize("case", PARTED)
def test_amd_gpus_cannot_have_lanes_wait_on_both_sides(case: str) -> None:
    """Not even where a register says whom they wait for. Who names those alone that went the same way waits
    for nobody, and where all have met again everybody may be named."""
    body = f"mov.b32 %r8, -1; {PARTED[case]} bar.warp.sync %r8; st.global.u32 [%rd2], %r8; ret; }}"
    with zluda.open_device("gfx1030") as device:
        for everybody in ("-1", "%r8"):
            with pytest.raises(UnsupportedError, match=r"bar\.warp\.sync reached by a part of a warp"):
                run(device, body.replace("ALL", everybody).replace("OWN", "%r4"), block=32)
        assert run(device, body.replace("ALL", "%r4").replace("OWN", "%r4"), block=32) == [0xFFFFFFFF] * 32


# --- the analysis ---------------------------------------------------------------------------------------


def partings(body: str, functions: str = MEET) -> int:
    module = parse_module(HEAD.replace("FUNCTIONS", functions) + body)
    graph = build_graph(module.function("k"))
    return len(certain_partings(graph, is_barrier))


@pytest.mark.parametrize("case", TOGETHER)
def test_nothing_is_certain_where_lanes_may_leave(case: str) -> None:
    assert partings(TOGETHER[case]) == 0


def test_a_barrier_behind_the_meeting_of_both_sides_parts_nobody() -> None:
    assert partings(f"@%p1 bra A; {WRITE} A: bar.sync 0; {READ}") == 0
    assert partings(f"@%p1 bra A; bar.sync 1; A: bar.sync 0; {READ}") == 1
    assert partings(f"L: @%p1 bra L; bar.sync 0; {READ}") == 0


def test_who_synchronises_and_what_is_behind() -> None:
    module = parse_module(
        HEAD.replace("FUNCTIONS", MEET + ".func through() { call meet, (); ret; } .func plain() { ret; }")
        + "call through, (); call plain, (); bar.sync 0; call plain, (); ret; }"
    )
    functions = [module.function(n) for n in ("k", "meet", "through", "plain")]
    found = synchronising(functions, [])
    assert found == {"k", "meet", "through"}
    assert returning(functions, found, [], "") == {"through", "meet", "plain"}
    last = parse_module(HEAD.replace("FUNCTIONS", MEET) + "bar.sync 0; call meet, (); ret; }")
    both = [last.function("k"), last.function("meet")]
    assert returning(both, synchronising(both, []), [], "") == set()
