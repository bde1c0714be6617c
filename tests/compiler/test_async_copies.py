"""Asynchronous copies, mbarriers and what else clusters of one block have, on every kind of device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy
import pytest

import zluda

DEVICES = ("cpu", "gfx1030", "gfx1100", "gfx90a")
HEAD = """.version 8.7
.target sm_100
.address_size 64
.visible .entry k(.param .u64 p_in, .param .u64 p_out){directives}
{{
.reg .b32 %r<40>; .reg .b64 %l<40>; .reg .pred %p<9>; .reg .b16 %h<9>; .reg .f32 %f<9>; .reg .b128 %q<9>;
.shared .align 128 .b8 tile[4096];
.shared .align 8 .b64 bar;
ld.param.u64 %l1, [p_in];
ld.param.u64 %l2, [p_out];
mov.u32 %r1, %tid.x;
mov.u32 %r2, tile;
mov.u32 %r3, bar;
{body}
ret;
}}
"""


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Iterator[Any]:
    with zluda.open_device(request.param) as opened:
        yield opened


def _launch(
    device: Any, body: str, data: Any, out: Any, *, threads: int = 64, directives: str = ""
) -> numpy.ndarray:
    module = device.load_module(HEAD.format(body=body, directives=directives))
    source, target = device.array(data), device.array(out)
    module.kernel("k").launch(grid=1, block=threads, args=[source, target])
    result: numpy.ndarray = target.numpy()
    return result


BYTES = numpy.random.default_rng(5).integers(0, 256, 4096, dtype=numpy.uint8)
STORE = """
bar.sync 0;
mad.lo.u32 %r20, %r1, {step}, %r2;
mul.wide.u32 %l20, %r1, {step};
add.u64 %l20, %l20, %l2;
"""


def _out_of_tile(step: int) -> str:
    """Each thread writes ``step`` bytes of the tile out."""
    lines = [STORE.format(step=step)]
    for at in range(0, step, 4):
        lines.append(f"ld.shared.u32 %r21, [%r20+{at}]; st.global.u32 [%l20+{at}], %r21;")
    return "\n".join(lines)


# --- cp.async -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [4, 8, 16])
def test_a_thread_copies_its_bytes(device: Any, size: int) -> None:
    body = f"""
mad.lo.u32 %r4, %r1, {size}, %r2;
mul.wide.u32 %l4, %r1, {size};
add.u64 %l4, %l4, %l1;
cp.async.ca.shared.global.L2::128B [%r4], [%l4], {size};
cp.async.commit_group;
cp.async.wait_group 0;
cp.async.wait_all;
"""
    got = _launch(device, body + _out_of_tile(size), BYTES, numpy.zeros(64 * size, numpy.uint8))
    assert (got == BYTES[: 64 * size]).all()


@pytest.mark.parametrize("operand", ["size", "predicate", "literal"])
def test_bytes_beyond_the_source_size_are_zero_and_not_read(device: Any, operand: str) -> None:
    """Thread t reads t % 19 bytes (at most 16); those with none have an address where there is no memory."""
    source = {"size": "%r5", "predicate": "%p1", "literal": "5"}[operand]
    body = f"""
rem.u32 %r5, %r1, 19;
min.u32 %r5, %r5, 16;
setp.eq.u32 %p1, %r5, 0;
mad.lo.u32 %r4, %r1, 16, %r2;
mov.u32 %r6, -1;
st.shared.v4.u32 [%r4], {{%r6, %r6, %r6, %r6}};
mul.wide.u32 %l4, %r1, 16;
add.u64 %l4, %l4, %l1;
{"" if operand == "literal" else "selp.b64 %l4, 16, %l4, %p1;"}
cp.async.cg.shared.global [%r4], [%l4], 16, {source};
cp.async.wait_all;
"""
    got = _launch(device, body + _out_of_tile(16), BYTES, numpy.zeros(1024, numpy.uint8)).reshape(64, 16)
    for thread in range(64):
        read = min(thread % 19, 16)
        read = {"size": read, "predicate": 16 if read else 0, "literal": 5}[operand]
        expected = BYTES[thread * 16 : thread * 16 + 16].copy()
        expected[read:] = 0
        assert (got[thread] == expected).all(), thread


def test_a_copy_by_some_lanes_only_leaves_the_others_bytes(device: Any) -> None:
    body = """
mad.lo.u32 %r4, %r1, 16, %r2;
mov.u32 %r6, -1;
st.shared.v4.u32 [%r4], {%r6, %r6, %r6, %r6};
mul.wide.u32 %l4, %r1, 16;
add.u64 %l4, %l4, %l1;
and.b32 %r5, %r1, 3;
setp.eq.u32 %p1, %r5, 2;
@%p1 cp.async.cg.shared.global [%r4], [%l4], 16;
cp.async.wait_all;
"""
    got = _launch(device, body + _out_of_tile(16), BYTES, numpy.zeros(1024, numpy.uint8)).reshape(64, 16)
    expected = numpy.full((64, 16), 255, numpy.uint8)
    expected[2::4] = BYTES[:1024].reshape(64, 16)[2::4]
    assert (got == expected).all()


# --- mbarrier -----------------------------------------------------------------------------------------

INITIALIZE = """
setp.eq.u32 %p1, %r1, 0;
@%p1 mbarrier.init.shared.b64 [%r3], {count};
bar.sync 0;
"""


def test_threads_wait_for_each_other_by_token(device: Any) -> None:
    """Each thread's word is read by the thread half a block away, behind the barrier."""
    body = (
        INITIALIZE.format(count=64)
        + """
mad.lo.u32 %r4, %r1, 4, %r2;
st.shared.u32 [%r4], %r1;
mbarrier.arrive.shared.b64 %l5, [%r3];
WAIT:
mbarrier.try_wait.shared.b64 %p2, [%r3], %l5;
@!%p2 bra WAIT;
xor.b32 %r5, %r1, 32;
mad.lo.u32 %r5, %r5, 4, %r2;
ld.shared.u32 %r6, [%r5];
mul.wide.u32 %l6, %r1, 4;
add.u64 %l6, %l6, %l2;
st.global.u32 [%l6], %r6;
"""
    )
    got = _launch(device, body, BYTES, numpy.zeros(64, numpy.uint32))
    assert got.tolist() == [t ^ 32 for t in range(64)]


def test_phases_alternate_their_parity(device: Any) -> None:
    """One warp makes, the other takes, four times over one barrier each way."""
    body = """
.shared .align 8 .b64 full; .shared .align 8 .b64 empty;
setp.eq.u32 %p1, %r1, 0;
@%p1 mbarrier.init.shared::cta.b64 [full], 32;
@%p1 mbarrier.init.shared::cta.b64 [empty], 32;
bar.sync 0;
mov.u32 %r10, 0;
mov.u32 %r11, 0;
setp.ge.u32 %p3, %r1, 32;
and.b32 %r4, %r1, 31;
mad.lo.u32 %r5, %r4, 4, %r2;
@%p3 bra TAKE;
MAKE:
and.b32 %r12, %r10, 1;
xor.b32 %r12, %r12, 1;
W1: mbarrier.try_wait.parity.shared::cta.b64 %p2, [empty], %r12;
@!%p2 bra W1;
mad.lo.u32 %r6, %r10, 100, %r4;
st.shared.u32 [%r5], %r6;
mbarrier.arrive.shared::cta.b64 _, [full];
add.u32 %r10, %r10, 1;
setp.lt.u32 %p4, %r10, 4;
@%p4 bra MAKE;
bra DONE;
TAKE:
and.b32 %r12, %r10, 1;
W2: mbarrier.test_wait.parity.shared::cta.b64 %p2, [full], %r12;
@!%p2 bra W2;
ld.shared.u32 %r6, [%r5];
add.u32 %r11, %r11, %r6;
mbarrier.arrive.shared::cta.b64 _, [empty];
add.u32 %r10, %r10, 1;
setp.lt.u32 %p4, %r10, 4;
@%p4 bra TAKE;
mul.wide.u32 %l6, %r4, 4;
add.u64 %l6, %l6, %l2;
st.global.u32 [%l6], %r11;
DONE:
"""
    got = _launch(device, body, BYTES, numpy.zeros(32, numpy.uint32))
    assert got.tolist() == [600 + 4 * t for t in range(32)]


def _one_thread(lines: Sequence[str]) -> str:
    return "\n".join(["setp.ne.u32 %p1, %r1, 0;", "@%p1 ret;", *lines])


def test_counts_drops_and_transactions(device: Any) -> None:
    def done(number: int, parity: int) -> list[str]:
        return [
            f"mbarrier.test_wait.parity.shared.b64 %p2, [%r3], {parity};",
            "selp.u32 %r9, 1, 0, %p2;",
            f"st.global.u32 [%l2+{4 * number}], %r9;",
        ]

    body = _one_thread(
        [
            "mov.u32 %r4, 5;",
            "mbarrier.init.shared.b64 [%r3], %r4;",
            "mbarrier.arrive.shared.b64 %l5, [%r3], 3;",
            "mbarrier.pending_count.b64 %r5, %l5;",
            "st.global.u32 [%l2], %r5;",  # five were awaited before
            *done(1, 0),  # 0: two are missing
            "mbarrier.arrive_drop.shared.b64 %l5, [%r3];",
            "mbarrier.arrive.expect_tx.shared.b64 %l5, [%r3], 48;",
            *done(2, 0),  # 0: 48 bytes are missing
            "mbarrier.complete_tx.shared.b64 [%r3], 16;",
            *done(3, 0),  # 0
            "mbarrier.complete_tx.shared.b64 [%r3], 32;",
            *done(4, 0),  # 1
            *done(5, 1),  # 0: that is the phase under way
            "mbarrier.arrive.noComplete.shared.b64 %l5, [%r3], 3;",  # of the four awaited now
            "mbarrier.expect_tx.relaxed.cta.shared.b64 [%r3], 8;",
            "mbarrier.arrive.shared.b64 %l6, [%r3];",
            "mbarrier.pending_count.b64 %r5, %l6;",
            "st.global.u32 [%l2+24], %r5;",  # 1
            *done(7, 1),  # 0: bytes are missing
            "mbarrier.complete_tx.shared.b64 [%r3], 8;",
            *done(8, 1),  # 1
            "mbarrier.inval.shared.b64 [%r3];",
        ]
    )
    got = _launch(device, body, BYTES, numpy.full(9, 7, numpy.uint32))
    assert got.tolist() == [5, 0, 0, 0, 1, 0, 1, 0, 1]


def test_a_thread_arrives_when_its_copies_are_done(device: Any) -> None:
    body = (
        INITIALIZE.format(count=64)
        + """
mad.lo.u32 %r4, %r1, 16, %r2;
mul.wide.u32 %l4, %r1, 16;
add.u64 %l4, %l4, %l1;
cp.async.cg.shared.global [%r4], [%l4], 16;
cp.async.mbarrier.arrive.noinc.shared.b64 [%r3];
cp.async.mbarrier.arrive.shared.b64 [%r3];
W: mbarrier.try_wait.parity.shared.b64 %p2, [%r3], 0;
@!%p2 bra W;
xor.b32 %r5, %r1, 63;
mad.lo.u32 %r5, %r5, 16, %r2;
ld.shared.u32 %r6, [%r5];
mul.wide.u32 %l6, %r1, 4;
add.u64 %l6, %l6, %l2;
st.global.u32 [%l6], %r6;
"""
    )
    got = _launch(device, body, BYTES, numpy.zeros(64, numpy.uint32))
    assert (got == BYTES[:1024].view(numpy.uint32)[::4][::-1]).all()


# --- in bulk ------------------------------------------------------------------------------------------


def test_a_bulk_copy_completes_a_barrier_and_goes_back(device: Any) -> None:
    body = (
        INITIALIZE.format(count=1)
        + """
@!%p1 bra W;
mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 1040;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%l1], 1040, [%r3];
cp.async.bulk.prefetch.L2.global [%l1], 1024;
W: mbarrier.try_wait.parity.shared.b64 %p2, [%r3], 0;
@!%p2 bra W;
fence.proxy.async;
@!%p1 bra OVER;
cp.async.bulk.global.shared::cta.bulk_group [%l2], [%r2], 1040;
cp.async.bulk.commit_group;
cp.async.bulk.wait_group.read 0;
OVER:
"""
    )
    got = _launch(device, body, BYTES, numpy.zeros(2048, numpy.uint8))
    assert (got[:1040] == BYTES[:1040]).all()
    assert not got[1040:].any()


@pytest.mark.parametrize(("op", "kind"), [("add", "u32"), ("max", "s32"), ("xor", "b32"), ("add", "f32")])
def test_a_bulk_reduction_combines_elements(device: Any, op: str, kind: str) -> None:
    body = _one_thread(
        [
            "mbarrier.init.shared.b64 [%r3], 1;",
            "mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 256;",
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%l1], 256, [%r3];",
            f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{op}.{kind} [%l2], [%r2], 256;",
            "cp.async.bulk.commit_group;",
            "cp.async.bulk.wait_group 0;",
        ]
    )
    dtype = {"u": numpy.uint32, "b": numpy.uint32, "s": numpy.int32, "f": numpy.float32}[kind[0]]
    x = numpy.arange(64).astype(dtype)
    y = numpy.arange(64)[::-1].astype(dtype)
    combine = {"add": numpy.add, "max": numpy.maximum, "xor": numpy.bitwise_xor}[op]
    assert (_launch(device, body, x, y) == combine(x, y)).all()


def test_asynchronous_stores_and_reductions_complete_a_barrier(device: Any) -> None:
    body = _one_thread(
        [
            "mbarrier.init.shared.b64 [%r3], 1;",
            "mov.u32 %r4, 7; mov.u32 %r5, 8;",
            "mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 12;",
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%r2], {%r4, %r5}, [%r3];",
            "mbarrier.test_wait.parity.shared.b64 %p2, [%r3], 0;",
            "selp.u32 %r9, 1, 0, %p2; st.global.u32 [%l2], %r9;",
            "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes"
            ".add.u32 [%r2], %r5, [%r3];",
            "mbarrier.test_wait.parity.shared.b64 %p2, [%r3], 0;",
            "selp.u32 %r9, 1, 0, %p2; st.global.u32 [%l2+4], %r9;",
            "ld.shared.v2.u32 {%r6, %r7}, [%r2];",
            "st.global.v2.u32 [%l2+8], {%r6, %r7};",
            "mov.u64 %l7, 16; st.bulk.weak.shared::cta [%r2], %l7, 0;",
            "ld.shared.u32 %r6, [%r2]; st.global.u32 [%l2+16], %r6;",
        ]
    )
    got = _launch(device, body, BYTES, numpy.full(5, 9, numpy.uint32))
    assert got.tolist() == [0, 1, 15, 8, 0]


def test_what_needs_more_than_one_gpu_is_refused_by_name(device: Any) -> None:
    with pytest.raises(zluda.UnsupportedError, match=r"multimem\.red"):
        _launch(device, "multimem.red.relaxed.gpu.global.add.u32 [%l1], %r4;", BYTES, BYTES)


# --- clusters of one block ----------------------------------------------------------------------------


def test_a_block_is_its_own_cluster(device: Any) -> None:
    body = """
mad.lo.u32 %r4, %r1, 4, %r2;
mapa.shared::cluster.u32 %r5, %r4, 0;
st.shared::cluster.u32 [%r5], %r1;
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
xor.b32 %r6, %r1, 63;
mad.lo.u32 %r6, %r6, 4, %r2;
ld.shared.u32 %r7, [%r6];
mul.wide.u32 %l6, %r1, 4;
add.u64 %l6, %l6, %l2;
st.global.u32 [%l6], %r7;
mapa.u64 %l7, tile, 0;
getctarank.u64 %r8, %l7;
getctarank.shared::cluster.u32 %r9, %r5;
ld.u32 %r10, [%l7+4];
add.u32 %r8, %r8, %r9;
add.u32 %r8, %r8, %r10;
st.global.u32 [%l2+256], %r8;
"""
    got = _launch(device, body, BYTES, numpy.zeros(65, numpy.uint32))
    assert got[:64].tolist() == list(range(63, -1, -1))
    assert got[64] == 1


# --- atomics ------------------------------------------------------------------------------------------


def test_vectors_are_added_by_element(device: Any) -> None:
    body = """
mov.f32 %f1, 0f3F800000; mov.f32 %f2, 0f40000000;
atom.global.v2.f32.add {%f3, %f4}, [%l2], {%f1, %f2};
red.global.add.v4.f32 [%l2+16], {%f1, %f2, %f2, %f1};
"""
    got = _launch(device, body, BYTES, numpy.zeros(8, numpy.float32))
    assert got.tolist() == [64, 128, 0, 0, 64, 128, 128, 64]


@pytest.mark.parametrize("space", ["global", "shared"])
def test_sixteen_bytes_are_exchanged_and_compared(device: Any, space: str) -> None:
    place = "%l2" if space == "global" else "%r5"
    body = _one_thread(
        [
            "ld.global.v2.u64 {%l5, %l6}, [%l1]; mov.b128 %q1, {%l5, %l6};",
            "ld.global.v2.u64 {%l5, %l6}, [%l2]; mov.u32 %r5, tile; st.shared.v2.u64 [%r5], {%l5, %l6};",
            f"atom.{space}.exch.b128 %q2, [{place}], %q1;",
            f"atom.{space}.cas.b128 %q3, [{place}], %q1, %q2;",
            f"atom.{space}.cas.b128 %q4, [{place}], %q1, %q1;",
            "mov.b128 {%l7, %l8}, %q3; st.global.v2.u64 [%l2+16], {%l7, %l8};",
            "mov.b128 {%l7, %l8}, %q4; st.global.v2.u64 [%l2+32], {%l7, %l8};",
        ]
    )
    before = numpy.arange(6, dtype=numpy.uint64)
    got = _launch(device, body, BYTES, before)
    given = BYTES[:16].view(numpy.uint64).tolist()
    assert got.tolist() == [0, 1, *given, 0, 1]
