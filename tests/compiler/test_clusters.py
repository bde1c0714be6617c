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
