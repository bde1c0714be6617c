"""Clusters of several blocks: registers, shared memory of other blocks, and the cluster's barrier."""

from __future__ import annotations

import itertools

import numpy
import pytest

import zluda
from zluda.errors import LaunchError

HEAD = ".version 8.7\n.target sm_90\n.address_size 64\n"
_AXES = ("clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid")
_REGISTERS = [f"%{name}.{axis}" for name in _AXES for axis in "xyz"]
_REGISTERS += ["%cluster_ctarank", "%cluster_nctarank", "%ctaid.x", "%ctaid.y", "%ctaid.z"]


@pytest.fixture(params=["cpu", "gfx1030"], scope="module")
def device(request: pytest.FixtureRequest) -> zluda.device.api.Device:
    return zluda.open_device(request.param)


def kernel(
    device: zluda.device.api.Device, body: str, directive: str = "", more: str = ""
) -> zluda.device.api.Kernel:
    text = f"""{HEAD}{more}
.visible .entry k(.param .u64 out) {directive}
{{ .reg .pred %p<8>; .reg .b32 %r<40>; .reg .b64 %a<20>;
ld.param.u64 %a1, [out];
mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %cluster_ctarank; mov.u32 %r4, %cluster_nctarank;
{body}
ret; }}"""
    return device.load_module(text).kernel("k")


def registers(
    device: zluda.device.api.Device, grid: tuple[int, ...], cluster: tuple[int, ...] | None
) -> numpy.ndarray:
    lines = [
        "mov.u32 %r5, %nctaid.x; mov.u32 %r6, %nctaid.y; mov.u32 %r7, %ctaid.y; mov.u32 %r8, %ctaid.z;",
        "mad.lo.u32 %r8, %r8, %r6, %r7; mad.lo.u32 %r8, %r8, %r5, %r2; mul.wide.u32 %a2, %r8, 128;",
        "add.u64 %a2, %a1, %a2;",
    ]
    for i, name in enumerate(_REGISTERS):
        lines.append(f"mov.u32 %r9, {name}; st.global.u32 [%a2+{4 * i}], %r9;")
    lines.append(
        "mov.pred %p1, %is_explicit_cluster; selp.u32 %r9, 1, 0, %p1;"
        f"st.global.u32 [%a2+{4 * len(_REGISTERS)}], %r9;"
    )
    out = device.empty((int(numpy.prod(grid)), 32), numpy.uint32)
    kernel(device, "\n".join(lines)).launch(grid=grid, block=32, args=[out], cluster=cluster)
    return out.numpy()


@pytest.mark.parametrize(
    ("grid", "cluster"),
    [((4, 2, 2), (2, 1, 1)), ((6, 4, 2), (3, 2, 2)), ((4, 1, 1), (1, 1, 1)), ((4, 3, 1), None)],
)
def test_registers_of_a_cluster(
    device: zluda.device.api.Device, grid: tuple[int, ...], cluster: tuple[int, ...] | None
) -> None:
    shape = cluster or (1, 1, 1)
    counts = [g // c for g, c in zip(grid, shape, strict=True)]
    found = registers(device, grid, cluster)
    for n, (z, y, x) in enumerate(itertools.product(*map(range, reversed(grid)))):
        block = (x, y, z)
        place = [b % c for b, c in zip(block, shape, strict=True)]
        number = [b // c for b, c in zip(block, shape, strict=True)]
        rank = place[0] + shape[0] * (place[1] + shape[1] * place[2])
        expected = [
            *number,
            *counts,
            *place,
            *shape,
            rank,
            int(numpy.prod(shape)),
            *block,
            int(cluster is not None),
        ]
        assert found[n, : len(expected)].tolist() == expected


RING = """
.shared .align 8 .b32 mine[64];
shl.b32 %r10, %r1, 2; mov.u32 %r11, mine; add.u32 %r12, %r11, %r10;
mad.lo.u32 %r13, %r2, 1000, %r1; st.shared.u32 [%r12], %r13;
barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
add.u32 %r14, %r3, 1; rem.u32 %r14, %r14, %r4;
mapa.shared::cluster.u32 %r15, %r12, %r14;
ld.shared::cluster.u32 %r16, [%r15];
getctarank.shared::cluster.u32 %r17, %r15;
cvt.u64.u32 %a3, %r12; cvta.shared.u64 %a3, %a3; cvt.u64.u32 %a4, %r10;
mapa.u64 %a5, %a3, %r14; ld.u32 %r18, [%a5]; getctarank.u64 %r19, %a5;
isspacep.shared::cluster %p1, %a5; isspacep.shared::cta %p2, %a5;
isspacep.global %p3, %a5; isspacep.shared::cta %p4, %a3;
selp.u32 %r20, 1, 0, %p1; selp.u32 %r21, 2, 0, %p2; selp.u32 %r22, 4, 0, %p3; selp.u32 %r23, 8, 0, %p4;
or.b32 %r20, %r20, %r21; or.b32 %r22, %r22, %r23; or.b32 %r20, %r20, %r22;
cvta.to.shared.u64 %a6, %a5; cvt.u32.u64 %r24, %a6; sub.u32 %r24, %r24, %r15;
atom.shared::cluster.add.u32 %r25, [%r15], 5;
barrier.cluster.arrive; barrier.cluster.wait;
ld.shared.u32 %r26, [%r12];
mad.lo.u32 %r30, %r2, 64, %r1; mul.wide.u32 %a7, %r30, 32; add.u64 %a7, %a1, %a7;
st.global.v4.u32 [%a7], {%r16, %r17, %r18, %r19}; st.global.v4.u32 [%a7+16], {%r20, %r24, %r25, %r26};
"""


@pytest.mark.parametrize(("blocks", "size"), [(8, 4), (6, 2), (16, 16), (4, 1)])
def test_a_block_reads_and_changes_the_next_blocks_shared_memory(
    device: zluda.device.api.Device, blocks: int, size: int
) -> None:
    out = device.empty((blocks, 64, 8), numpy.uint32)
    kernel(device, RING).launch(grid=blocks, block=64, args=[out], cluster=size)
    found = out.numpy()
    block = numpy.arange(blocks)[:, None]
    rank = (block % size + 1) % size
    theirs = (block - block % size + rank) * 1000 + numpy.arange(64)
    mine = block * 1000 + numpy.arange(64)
    spaces = 1 + 8 + 2 * (size == 1)
    for column, expected in enumerate((theirs, rank, theirs, rank, spaces, 0, theirs, mine + 5)):
        assert (found[:, :, column] == expected).all(), column


def test_blocks_meet_at_the_clusters_barrier_again_and_again(device: zluda.device.api.Device) -> None:
    body = """
.shared .align 8 .b32 counter;
setp.eq.u32 %p1, %r1, 0; @%p1 st.shared.u32 [counter], 0;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
mov.u32 %r10, counter; mapa.shared::cluster.u32 %r11, %r10, 0; mov.u32 %r12, 0; mov.u32 %r20, 0;
LOOP:
red.shared::cluster.add.u32 [%r11], 1;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
ld.shared::cluster.u32 %r13, [%r11];
mov.u32 %r14, %ntid.x; mul.lo.u32 %r14, %r14, %r4; add.u32 %r15, %r12, 1; mul.lo.u32 %r14, %r14, %r15;
setp.ne.u32 %p2, %r13, %r14; selp.u32 %r16, 1, 0, %p2; add.u32 %r20, %r20, %r16;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
add.u32 %r12, %r12, 1; setp.lt.u32 %p3, %r12, 5; @%p3 bra LOOP;
mov.u32 %r17, %ntid.x; mad.lo.u32 %r18, %r2, %r17, %r1; mul.wide.u32 %a2, %r18, 4; add.u64 %a2, %a1, %a2;
st.global.u32 [%a2], %r20;
"""
    out = device.array(numpy.full(12 * 96, 77, numpy.uint32))
    kernel(device, body, ".reqnctapercluster 4, 1, 1").launch(grid=12, block=96, args=[out])
    assert not out.numpy().any()


REMOTE = """
.shared .align 128 .b32 mine[64]; .shared .align 128 .b32 sent[64]; .shared .align 8 .b64 bar;
.reg .b16 %h<2>;
shl.b32 %r10, %r1, 2; mov.u32 %r11, mine; add.u32 %r11, %r11, %r10;
mov.u32 %r12, sent; add.u32 %r12, %r12, %r10;
mov.u32 %r13, bar; mad.lo.u32 %r14, %r2, 1000, %r1; st.shared.u32 [%r11], %r14; st.shared.u32 [%r12], %r14;
setp.eq.u32 %p1, %r1, 0; @%p1 mbarrier.init.shared.b64 [bar], COUNT;
fence.mbarrier_init.release.cluster;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
add.u32 %r20, %r3, 1; rem.u32 %r20, %r20, %r4;
mapa.shared::cluster.u32 %r21, %r11, %r20; mapa.shared::cluster.u32 %r22, %r13, %r20;
BODY
WAIT: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [bar], 0; @!%p2 bra WAIT;
ld.shared.u32 %r30, [%r11]; mad.lo.u32 %r31, %r2, 64, %r1; mul.wide.u32 %a7, %r31, 4; add.u64 %a7, %a1, %a7;
st.global.u32 [%a7], %r30;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
"""
_EXPECT = "@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 256;"


@pytest.mark.parametrize(
    ("count", "body", "expected"),
    [
        (
            64,
            "st.shared::cluster.u32 [%r21], %r14;"
            "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r22];",
            1,
        ),
        (
            1,
            f"{_EXPECT} st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r21], %r14, [%r22];",
            1,
        ),
        (
            1,
            f"{_EXPECT} red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32"
            " [%r21], %r14, [%r22];",
            2,
        ),
        (
            1,
            f"{_EXPECT} mov.u32 %r23, mine; mapa.shared::cluster.u32 %r23, %r23, %r20; mov.u32 %r24, sent;"
            "@%p1 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"
            " [%r23], [%r24], 256, [%r22];",
            1,
        ),
    ],
)
def test_a_block_is_told_of_what_others_send(
    device: zluda.device.api.Device, count: int, body: str, expected: int
) -> None:
    blocks, size = 6, 3
    text = REMOTE.replace("COUNT", str(count)).replace("BODY", body)
    out = device.empty((blocks, 64), numpy.uint32)
    kernel(device, text).launch(grid=blocks, block=64, args=[out], cluster=size)
    block = numpy.arange(blocks)[:, None]
    sender = block - block % size + (block % size - 1) % size
    theirs, own = (b * 1000 + numpy.arange(64) for b in (sender, block))
    assert (out.numpy() == (theirs if expected == 1 else theirs + own)).all()


def test_one_copy_for_several_blocks(device: zluda.device.api.Device) -> None:
    """The mask leaves block 1 of four out."""
    body = """
.shared .align 128 .b32 mine[64]; .shared .align 8 .b64 bar; .reg .b16 %h<2>;
shl.b32 %r10, %r1, 2; mov.u32 %r11, mine; add.u32 %r12, %r11, %r10;
st.shared.u32 [%r12], 7; mov.u32 %r13, bar;
setp.eq.u32 %p1, %r1, 0; @%p1 mbarrier.init.shared.b64 [bar], 1; setp.ne.u32 %p3, %r3, 1;
@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 256;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
setp.eq.and.u32 %p2, %r3, 2, %p1; mov.u16 %h1, 0xD;
@%p2 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
  [%r11], [%a1], 256, [%r13], %h1;
@!%p3 bra PAST;
WAIT: mbarrier.try_wait.parity.shared.b64 %p4, [bar], 0; @!%p4 bra WAIT;
PAST: ld.shared.u32 %r30, [%r12]; mad.lo.u32 %r31, %r2, 64, %r1; add.u32 %r31, %r31, 64;
mul.wide.u32 %a7, %r31, 4; add.u64 %a7, %a1, %a7; st.global.u32 [%a7], %r30;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
"""
    values = numpy.arange(64, dtype=numpy.uint32) + 100
    out = device.array(numpy.concatenate([values, numpy.zeros(256, numpy.uint32)]))
    kernel(device, body).launch(grid=4, block=64, args=[out], cluster=4)
    found = out.numpy()[64:].reshape(4, 64)
    assert (found[[0, 2, 3]] == values).all()
    assert (found[1] == 7).all()


def test_bulk_copies_that_leave_bytes_out(device: zluda.device.api.Device) -> None:
    body = """
.shared .align 128 .b8 mine[64]; .shared .align 8 .b64 bar;
shl.b32 %r10, %r1, 2; mov.u32 %r11, mine; add.u32 %r12, %r11, %r10; mov.u32 %r13, 0x04030201;
setp.lt.u32 %p1, %r1, 16; @%p1 st.shared.u32 [%r12], %r13; bar.sync 0;
.reg .b16 %h<2>; mov.u16 %h1, 0x00F3; setp.eq.u32 %p2, %r1, 0; add.u64 %a2, %a1, 64;
@%p2 cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%a2], [%r11], 32, %h1;
@%p2 mbarrier.init.shared.b64 [bar], 1; mov.u32 %r14, 5; mov.u32 %r15, 3; mov.u32 %r16, bar;
@%p2 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 32;
@%p2 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.ignore_oob
  [%r11], [%a1], 32, [%r16], %r14, %r15;
bar.sync 0; add.u64 %a3, %a1, 128; cvt.u64.u32 %a4, %r10; add.u64 %a3, %a3, %a4;
@%p1 ld.shared.u32 %r20, [%r12]; @%p1 st.global.u32 [%a3], %r20;
"""
    given = numpy.zeros(192, numpy.uint8)
    given[:64] = numpy.arange(64) + 100
    out = device.array(given)
    kernel(device, body).launch(grid=1, block=32, args=[out])
    found, shared = out.numpy(), numpy.tile(numpy.array([1, 2, 3, 4], numpy.uint8), 16)
    kept = numpy.tile([1, 1, 0, 0, 1, 1, 1, 1] + 8 * [0], 2).astype(bool)
    assert (found[64:96] == numpy.where(kept, shared[:32], 0)).all()
    shared[5:29] = given[5:29]
    assert (found[128:192] == shared).all()


def test_no_cluster_is_taken_over(device: zluda.device.api.Device) -> None:
    """``clusterlaunchcontrol`` answers at once that nothing was cancelled, to both blocks of a cluster."""
    body = """
.shared .align 16 .b128 answer; .shared .align 8 .b64 bar; .reg .b128 %q; .reg .pred %c;
setp.eq.u32 %p1, %r1, 0; mov.u32 %r10, answer; mov.u32 %r11, bar;
@%p1 st.shared.u32 [answer], 77; @%p1 mbarrier.init.shared.b64 [bar], 1;
@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 16;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
setp.eq.and.u32 %p2, %r3, 0, %p1;
@%p2 clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes
  .multicast::cluster::all.b128 [%r10], [%r11];
WAIT: mbarrier.try_wait.parity.shared.b64 %p3, [bar], 0; @!%p3 bra WAIT;
ld.shared.b128 %q, [answer]; clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %c, %q;
selp.u32 %r12, 5, 6, %c; mul.wide.u32 %a2, %r2, 4; add.u64 %a2, %a1, %a2;
@%p1 st.global.u32 [%a2], %r12;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
"""
    out = device.array(numpy.zeros(4, numpy.uint32))
    kernel(device, body).launch(grid=4, block=32, args=[out], cluster=2)
    assert out.numpy().tolist() == [6] * 4


def test_arriving_does_not_wait(device: zluda.device.api.Device) -> None:
    """A warp that has arrived may wait for what another writes behind the barrier."""
    body = """
barrier.cluster.arrive.aligned;
setp.lt.u32 %p1, %r1, 32; @!%p1 bra SECOND;
WAIT: ld.volatile.global.u32 %r10, [%a1]; setp.eq.u32 %p2, %r10, 0; @%p2 bra WAIT;
barrier.cluster.wait.aligned; st.global.u32 [%a1+4], %r10; bra DONE;
SECOND: barrier.cluster.wait.aligned; st.volatile.global.u32 [%a1], 9;
DONE:
"""
    for cluster in (1, 2):
        out = device.array(numpy.zeros(2, numpy.uint32))
        kernel(device, body).launch(grid=cluster, block=64, args=[out], cluster=cluster)
        assert out.numpy().tolist() == [9, 9]


def test_threads_that_have_left_are_not_awaited(device: zluda.device.api.Device) -> None:
    body = """
setp.ge.u32 %p1, %r1, 32; @%p1 exit; setp.eq.u32 %p2, %r3, 1; @%p2 exit;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
st.global.u32 [%a1], 3;
"""
    out = device.array(numpy.zeros(1, numpy.uint32))
    kernel(device, body).launch(grid=2, block=128, args=[out], cluster=2)
    assert out.numpy().tolist() == [3]


@pytest.mark.parametrize(
    ("directive", "grid", "cluster", "what"),
    [
        ("", 5, 2, "not made of clusters"),
        ("", 34, 17, "16 allowed"),
        (".reqnctapercluster 2, 1, 1", 8, 4, "reqnctapercluster"),
        (".explicitcluster", 4, None, "explicitcluster"),
        (".maxclusterrank 4", 8, 8, "4 allowed"),
    ],
)
def test_clusters_that_cannot_be(
    device: zluda.device.api.Device, directive: str, grid: int, cluster: int | None, what: str
) -> None:
    out = device.empty(1, numpy.uint32)
    with pytest.raises(LaunchError, match=what):
        kernel(device, "", directive).launch(grid=grid, block=32, args=[out], cluster=cluster)
