"""Clusters and cooperative grids through the driver, on the CPU: what runs, and what CUDA refuses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from zluda import runner
from zluda.compiler import tensor_map
from zluda.compiler.tensor_map import Tensor
from zluda.device.cpu import CpuDevice
from zluda.driver import CudaError, LaunchAttribute
from zluda.driver.base import Dim3
from zluda.driver.translated import TranslatedDriver

# The grid's barrier as cooperative_groups has it, on the workspace that %envreg1 and %envreg2 name (1 for
# every block that sees what the next one wrote before); the same by hand; a kernel for any block; clusters.
TEXT = """.version 8.6
.target sm_90
.address_size 64
.visible .entry grid_sync(.param .u64 p)
{ .reg .pred q, r; .reg .b32 v<12>; .reg .b64 a, w, b;
ld.param.u64 a, [p]; mov.u32 v1, %ctaid.x; mov.u32 v2, %nctaid.x; mov.u32 v3, %tid.x;
mul.wide.u32 b, v1, 4; add.u64 b, a, b; setp.ne.u32 q, v3, 0;
@!q st.global.u32 [b], v2; bar.sync 0; @q bra MEET;
mov.b32 v4, %envreg1; mov.b32 v5, %envreg2; mov.b64 w, {v5, v4}; add.u64 w, w, 4;
setp.eq.u32 r, v1, 0; sub.u32 v6, v2, 1; sub.u32 v6, 0x80000000, v6; selp.u32 v6, v6, 1, r;
atom.add.release.gpu.u32 v7, [w], v6;
WAIT: ld.acquire.gpu.u32 v8, [w]; xor.b32 v8, v8, v7; setp.ge.s32 r, v8, 0; @r bra WAIT;
MEET: bar.sync 0; @q bra DONE;
add.u32 v9, v1, 1; rem.u32 v9, v9, v2; mul.wide.u32 w, v9, 4; add.u64 w, a, w;
ld.volatile.global.u32 v10, [w];
setp.ge.u32 r, v10, 2; selp.u32 v11, 1, 0, r; mul.wide.u32 w, v2, 4; add.u64 w, w, b; st.global.u32 [w], v11;
DONE: ret; }
.visible .entry by_hand(.param .u64 p)
{ .reg .pred q, r; .reg .b32 v<12>; .reg .b64 a;
ld.param.u64 a, [p]; mov.u32 v2, %nctaid.x; mov.u32 v3, %tid.x; setp.ne.u32 q, v3, 0; @q bra DONE;
red.global.add.u32 [a], 1;
WAIT: atom.global.add.u32 v4, [a], 0; setp.lt.u32 r, v4, v2; @r bra WAIT;
red.global.add.u32 [a+4], 1;
DONE: bar.sync 0; ret; }
.visible .entry wide(.param .u64 p) .maxntid 1024, 1, 1 { ret; }
.visible .entry clustered(.param .u64 p) .reqnctapercluster 2, 1, 1
{ .reg .b64 a; .reg .b32 v; ld.param.u64 a, [p]; mov.u32 v, %cluster_nctarank;
red.global.add.u32 [a], v; ret; }
"""
COOPERATIVE = LaunchAttribute(2, (1).to_bytes(64, "little"))


def cluster(*shape: int) -> LaunchAttribute:
    return LaunchAttribute(4, b"".join(n.to_bytes(4, "little") for n in shape).ljust(64, b"\0"))


class Session:
    def __init__(self, threads: int) -> None:
        self.driver = TranslatedDriver(CpuDevice(threads=threads))
        self.driver.cuInit()
        self.driver.cuCtxCreate(0, 0)
        self.module = self.driver.cuModuleLoadData(TEXT.encode())
        self.memory = self.driver.cuMemAlloc(1 << 16)

    def launch(
        self, name: str, grid: int, block: int, attributes: Sequence[LaunchAttribute] = ()
    ) -> list[int]:
        self.driver.cuMemsetD32(self.memory, 0, 1 << 14)
        shapes: tuple[Dim3, Dim3] = ((grid, 1, 1), (block, 1, 1))
        parameters = self.memory.to_bytes(8, "little")
        self.driver.cuLaunchKernel(self.function(name), *shapes, 0, 0, parameters, attributes=attributes)
        data = self.driver.cuMemcpyDtoH(self.memory, 1 << 13)
        return [int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), 4)]

    def function(self, name: str) -> int:
        return self.driver.cuModuleGetFunction(self.module, name)


@pytest.fixture(params=[1, 2])
def session(request: pytest.FixtureRequest) -> Iterator[Session]:
    session = Session(request.param)
    yield session
    session.driver.close()


@pytest.mark.parametrize(("grid", "block"), [(2, 64), (37, 64), (300, 32)])
def test_a_cooperative_grid_meets(session: Session, grid: int, block: int) -> None:
    for _ in range(2):  # the workspace serves again
        found = session.launch("grid_sync", grid, block, [COOPERATIVE])
        assert found[grid : 2 * grid] == [1] * grid


@pytest.mark.parametrize(("grid", "block"), [(3, 32), (264, 32), (132, 256)])
def test_blocks_that_all_fit_may_wait_for_each_other(session: Session, grid: int, block: int) -> None:
    """Without being launched as a cooperative grid."""
    assert session.launch("by_hand", grid, block)[:2] == [grid, grid]


def refused(name: str, session: Session, *arguments: object) -> None:
    with pytest.raises(CudaError) as caught:
        session.launch(*arguments)  # type: ignore[arg-type]
    assert caught.value.name == f"CUDA_ERROR_{name}"
    session.driver.cuCtxSynchronize()  # it does not stick


def test_what_an_h200_refuses() -> None:
    session = Session(1)
    refused("COOPERATIVE_LAUNCH_TOO_LARGE", session, "wide", 132 * 32 + 1, 32, [COOPERATIVE])
    refused("COOPERATIVE_LAUNCH_TOO_LARGE", session, "wide", 265, 1024, [COOPERATIVE])
    refused("INVALID_CLUSTER_SIZE", session, "wide", 5, 32, [cluster(2, 1, 1)])
    refused("INVALID_CLUSTER_SIZE", session, "wide", 16, 32, [cluster(16, 1, 1)])
    refused("INVALID_CLUSTER_SIZE", session, "clustered", 4, 32, [cluster(4, 1, 1)])
    refused("INVALID_CLUSTER_SIZE", session, "clustered", 3, 32)
    session.driver.cuFuncSetAttribute(session.function("wide"), 14, 1)  # NON_PORTABLE_CLUSTER_SIZE_ALLOWED
    session.launch("wide", 16, 32, [cluster(16, 1, 1)])
    assert session.launch("clustered", 4, 32)[0] == 2 * 32 * 4
    session.driver.close()


# Clusters of so many blocks, of so many threads → how many an H200 says it has room for.
H200 = {
    (1, 32): 1056,
    (1, 1024): 264,
    (2, 256): 528,
    (4, 32): 248,
    (4, 1024): 62,
    (8, 256): 124,
    (16, 32): 58,
}
H200 |= {(8, 1024): 30, (16, 1024): 14}


def test_how_many_clusters_there_is_room_for() -> None:
    session = Session(1)
    wide = session.function("wide")
    assert session.driver.cuOccupancyMaxPotentialClusterSize(wide, (32, 1, 1), 0) == 8
    session.driver.cuFuncSetAttribute(wide, 14, 1)
    assert session.driver.cuOccupancyMaxPotentialClusterSize(wide, (32, 1, 1), 0) == 16
    for (blocks, threads), room in H200.items():
        found = session.driver.cuOccupancyMaxActiveClusters(wide, (threads, 1, 1), 0, (blocks, 1, 1))
        assert abs(found - room) <= (1 if threads == 1024 else 0), (blocks, threads)
    session.driver.close()


def test_tensor_maps_are_made_and_refused() -> None:
    session = Session(1)
    made = session.driver.cuTensorMapEncodeTiled(Tensor(7, 1 << 30, [64, 32], [256], [1, 1]), [16, 8])
    moved = session.driver.cuTensorMapReplaceAddress(made, 1 << 31)
    assert (len(made), moved[:8], moved[8:]) == (128, (1 << 31).to_bytes(8, "little"), made[8:])
    with pytest.raises(CudaError, match="boxDim") as caught:
        session.driver.cuTensorMapEncodeTiled(Tensor(7, 1 << 30, [64, 32], [256], [1, 1]), [3, 8])
    assert caught.value.name == "CUDA_ERROR_INVALID_VALUE"
    session.driver.close()


def test_a_multiprocessor_has_room_for_so_many_blocks() -> None:
    session = Session(1)
    driver = session.driver
    function = driver.cuModuleGetFunction(session.module, "wide")
    room = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor
    assert [room(function, threads, 0) for threads in (1, 33, 256, 1024)] == [32, 32, 8, 2]
    assert [room(function, 32, shared) for shared in (0, 8 << 10, 100 << 10, 227 << 10)] == [32, 25, 2, 1]
    assert driver.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(function, 256, 0, 1) == 8
    available = driver.cuOccupancyAvailableDynamicSMemPerBlock
    assert [available(function, n, 256) for n in (1, 2, 8, 9)] == [227 << 10, 113 << 10, 28160, 0]
    for threads in (0, 1025):
        with pytest.raises(CudaError, match="threads a block"):
            room(function, threads, 0)
    driver.close()


def test_a_runner_answers_too() -> None:
    """Maps and clusters cross the channel as anything else does."""
    with runner.start("cpu") as started:
        driver = started.driver
        driver.cuInit()
        driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0))
        tensor = Tensor(7, 1 << 30, [64, 32], [256], [1, 1])
        made = driver.cuTensorMapEncodeTiled(tensor, [16, 8])
        assert made == tensor_map.encode_tiled(tensor, [16, 8])
        assert driver.cuTensorMapReplaceAddress(made, 1 << 31)[8:] == made[8:]
        function = driver.cuModuleGetFunction(driver.cuModuleLoadData(TEXT.encode()), "wide")
        assert driver.cuOccupancyMaxActiveClusters(function, (32, 1, 1), 0, (4, 1, 1)) == H200[4, 32]
