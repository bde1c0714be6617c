"""Waves that wait for each other, the order of waves, faults and their places."""

from __future__ import annotations

import struct
import threading

import numpy as np
import pytest

import zluda
from zluda.device.amd.emulator.device import EmulatedDevice
from zluda.errors import DeviceError, Error, LaunchError, UnsupportedError
from zluda.isolate.opinion.assembly import Kernel, code_object

TARGETS = ("gfx1030", "gfx1100", "gfx90a")


def launch(
    target: str,
    text: str,
    buffers: list[np.ndarray],
    *,
    grid: int = 1,
    block: int = 64,
    kernel: Kernel | None = None,
    **options: object,
) -> EmulatedDevice:
    """Run the kernel ``k`` of assembly text; its arguments are the buffers' addresses."""
    device = EmulatedDevice(target, **options)  # type: ignore[arg-type]
    kernel = kernel or Kernel("k", wave32=target != "gfx90a")
    code = device.load_code_object(code_object(target, text, [kernel]))
    addresses = [b.ctypes.data for b in buffers]
    device.launch(
        code.kernel("k"), (grid, 1, 1), (block, 1, 1), struct.pack(f"<{len(addresses)}Q", *addresses)
    )
    return device


# Lane 0 of wave 0 waits until the last wave of the block has written LDS; no barrier in sight.
SPIN_IN_BLOCK = """k:
 s_load_dwordx2 s[4:5], s[0:1], 0x0
 v_and_b32 v0, 0x3ff, v0
 v_mov_b32 v1, 0
 s_waitcnt lgkmcnt(0)
 v_readfirstlane_b32 s6, v0
 s_cmp_eq_u32 s6, 0
 s_cbranch_scc1 wait
 v_mov_b32 v2, 42
 ds_write_b32 v1, v2
 s_endpgm
wait:
 ds_read_b32 v3, v1
 s_waitcnt lgkmcnt(0)
 v_readfirstlane_b32 s7, v3
 s_cmp_lg_u32 s7, 42
 s_cbranch_scc1 wait
 global_store_dword v1, v3, s[4:5]
 s_endpgm
"""


@pytest.mark.parametrize("target", TARGETS)
def test_a_wave_that_waits_for_a_later_one_of_its_block_sees_it(target: str) -> None:
    out = np.zeros(1, np.uint32)
    kernel = Kernel("k", lds_bytes=64, wave32=target != "gfx90a")
    launch(target, SPIN_IN_BLOCK, [out], block=256, kernel=kernel)
    assert out[0] == 42


def test_large_kernels_run_on_threads_with_large_stacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their frames take tens of megabytes; the size of other threads' stacks stays what it was."""
    from zluda.device.amd.emulator import schedule

    sizes: list[int] = []
    start = threading.Thread.start

    def noted(thread: threading.Thread) -> None:
        if thread.name == "zluda-amd-deep":
            sizes.append(threading.stack_size())
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", noted)
    monkeypatch.setattr(schedule, "_DEEP_HOST_BYTES", 0)
    usual = threading.stack_size()
    out = np.zeros(1, np.uint32)
    kernel = Kernel("k", lds_bytes=64)
    launch("gfx1030", SPIN_IN_BLOCK, [out], block=256, kernel=kernel)
    assert out[0] == 42
    assert sizes == [schedule._DEEP_STACK_BYTES]
    assert threading.stack_size() == usual


# Every block counts itself, then waits until all have.
GRID_BARRIER = """k:
 s_load_dwordx4 s[4:7], s[0:1], 0x0
 v_mov_b32 v1, 0
 v_mov_b32 v2, 1
 s_mov_b64 exec, 1
 s_waitcnt lgkmcnt(0)
 s_load_dword s8, s[6:7], 0x0
 global_atomic_add v1, v2, s[4:5]
 s_waitcnt lgkmcnt(0)
wait:
 global_load_dword v3, v1, s[4:5]
 s_waitcnt vmcnt(0)
 v_readfirstlane_b32 s9, v3
 s_cmp_lt_u32 s9, s8
 s_cbranch_scc1 wait
 global_atomic_add v1, v2, s[4:5] offset:4
 s_endpgm
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_blocks_that_wait_for_all_others_finish(threads: int) -> None:
    counters, blocks = np.zeros(2, np.uint32), np.array([40], np.uint32)
    launch("gfx1030", GRID_BARRIER, [counters, blocks], grid=40, block=32, threads=threads)
    assert counters.tolist() == [40, 40]


# Each wave takes a ticket: the order in which they ran.
TICKETS = """k:
 s_load_dwordx4 s[4:7], s[0:1], 0x0
 s_lshl_b32 s3, s2, 3
 v_readfirstlane_b32 s8, v0
 s_lshr_b32 s8, s8, 5
 s_add_u32 s3, s3, s8
 s_lshl_b32 s3, s3, 2
 v_mov_b32 v1, 0
 v_mov_b32 v2, 1
 v_mov_b32 v4, s3
 s_mov_b64 exec, 1
 s_mov_b32 s9, 9
again:
 s_sub_u32 s9, s9, 1
 s_cmp_lg_u32 s9, 0
 s_cbranch_scc1 again
 s_waitcnt lgkmcnt(0)
 global_atomic_add v3, v1, v2, s[4:5] glc
 s_waitcnt vmcnt(0)
 global_store_dword v4, v3, s[6:7]
 s_endpgm
"""


def _order(seed: int) -> list[int]:
    tickets, order = np.zeros(1, np.uint32), np.zeros(64, np.uint32)
    launch("gfx1030", TICKETS, [tickets, order], grid=8, block=256, seed=seed, threads=1)
    assert sorted(order.tolist()) == list(range(64))
    return order.tolist()


def test_a_seed_varies_the_order_of_waves_reproducibly() -> None:
    assert _order(0) == list(range(64))
    assert _order(1) == _order(1)
    assert len({tuple(_order(seed)) for seed in range(4)}) == 4


def _memory_kernel(instruction: str) -> str:
    return f"""k:
 s_load_dwordx2 s[4:5], s[0:1], 0x0
 v_and_b32 v0, 0x3ff, v0
 v_lshlrev_b32 v1, 2, v0
 s_waitcnt lgkmcnt(0)
 {instruction}
 s_endpgm
"""


@pytest.mark.parametrize("target", TARGETS)
def test_lds_out_of_range_names_kernel_block_and_lane(target: str) -> None:
    kernel = Kernel("k", lds_bytes=128, wave32=target != "gfx90a")
    text = _memory_kernel("ds_write_b32 v1, v0")
    with pytest.raises(LaunchError, match="LDS access out of range") as caught:
        launch(target, text, [np.zeros(1)], kernel=kernel, grid=3, threads=1)
    assert caught.value.kernel == "k"
    assert caught.value.block == (0, 0, 0)
    assert caught.value.address == 128


def test_global_accesses_are_checked_where_that_is_asked_for() -> None:
    device = EmulatedDevice("gfx1030", check="memory")
    text = _memory_kernel("global_store_dword v1, v0, s[4:5]")
    kernel = device.load_code_object(code_object("gfx1030", text, [Kernel("k")])).kernel("k")
    buffer = device.allocate(512)
    device.launch(kernel, (1, 1, 1), (64, 1, 1), struct.pack("<Q", buffer))
    assert device.read(buffer + 4 * 63, 4) == struct.pack("<I", 63)
    with pytest.raises(LaunchError, match="not allocated") as caught:
        device.launch(kernel, (1, 1, 1), (64, 1, 1), struct.pack("<Q", buffer + (1 << 20)))
    assert caught.value.address == buffer + (1 << 20)
    device.close()


def test_s_trap_ends_the_launch() -> None:
    for lanes, thread in ((0x30, 4), (0x80000000, 31), (0, 0)):
        with pytest.raises(LaunchError, match="s_trap") as failed:
            launch("gfx1030", f"k:\n s_mov_b32 exec_lo, {lanes}\n s_trap 2\n s_endpgm\n", [np.zeros(1)])
        # No address: CUDA calls such a failure another name than that of an access.
        assert failed.value.thread == (thread, 0, 0) and failed.value.address is None


def test_an_endless_loop_ends_when_its_time_is_over() -> None:
    with pytest.raises(LaunchError, match="no end within the time"):
        launch("gfx1030", "k:\n s_branch k\n", [np.zeros(1)], timeout_s=0.2)


def test_an_unknown_instruction_is_named_with_target_and_offset() -> None:
    text = "k:\n s_nop 0\n v_cubeid_f32 v0, v1, v2, v3\n s_endpgm\n"
    with pytest.raises(UnsupportedError, match=r"v_cubeid_f32 \(kernel k, offset 0x4, target gfx1030\)"):
        launch("gfx1030", text, [np.zeros(1)])


def test_a_jump_into_nothing_is_a_fault() -> None:
    text = "k:\n s_mov_b64 s[4:5], 0x1234\n s_setpc_b64 s[4:5]\n"
    with pytest.raises(LaunchError, match="no instruction of the kernel"):
        launch("gfx1030", text, [np.zeros(1)])


def test_launches_that_are_not_possible_say_why() -> None:
    device = EmulatedDevice("gfx1030")
    kernel = device.load_code_object(code_object("gfx1030", "k:\n s_endpgm\n", [Kernel("k")])).kernel("k")
    with pytest.raises(LaunchError, match="bytes of LDS, 65536 available"):
        device.launch(kernel, (1, 1, 1), (64, 1, 1), b"", shared_bytes=70000)
    with pytest.raises(LaunchError, match="2048 threads a block, 1024 allowed"):
        device.launch(kernel, (1, 1, 1), (2048, 1, 1), b"")
    with pytest.raises(Error, match="has no kernel nothing; it has k"):
        device.load_code_object(code_object("gfx1030", "k:\n s_endpgm\n", [Kernel("k")])).kernel("nothing")
    device.close()


def test_a_code_object_of_another_target_is_refused() -> None:
    device = EmulatedDevice("gfx1100")
    with pytest.raises(DeviceError, match="built for gfx1030"):
        device.load_code_object(code_object("gfx1030", "k:\n s_endpgm\n", [Kernel("k")]))
    device.close()


# --- MODE ---------------------------------------------------------------------------------------------

ROUNDING = """k:
 s_load_dwordx4 s[4:7], s[0:1], 0x0
 v_and_b32 v0, 0x3ff, v0
 v_lshlrev_b32 v1, 3, v0
 s_waitcnt lgkmcnt(0)
 global_load_dwordx2 v[2:3], v1, s[4:5]
 s_waitcnt vmcnt(0)
 s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 8), {mode}
 {instruction}
 s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 8), 0xf0
 v_lshlrev_b32 v1, 2, v0
 global_store_dword v1, v4, s[6:7]
 s_endpgm
"""


@pytest.mark.parametrize(("mode", "direction"), [(0xF0, 0), (0xF1, 1), (0xF2, -1)])
@pytest.mark.parametrize(
    ("instruction", "op"), [("v_add_f32 v4, v2, v3", "add"), ("v_mul_f32 v4, v2, v3", "mul")]
)
@pytest.mark.parametrize("target", TARGETS)
def test_rounding_follows_mode(target: str, mode: int, direction: int, instruction: str, op: str) -> None:
    pairs = np.random.default_rng(3).standard_normal((64, 2)).astype("f4")
    out = np.zeros(64, "f4")
    launch(target, ROUNDING.format(mode=hex(mode), instruction=instruction), [pairs, out])
    x, y = pairs.astype("f8").T
    exact = x + y if op == "add" else x * y
    nearest = exact.astype("f4")
    expected = nearest
    if direction:
        inside = nearest >= exact if direction > 0 else nearest <= exact
        expected = np.where(inside, nearest, np.nextafter(nearest, np.float32(direction * np.inf)))
    np.testing.assert_array_equal(out, expected)


def test_denormals_are_flushed_where_mode_says_so() -> None:
    pairs = np.array([[2.0**-126, 0.5], [2.0**-130, 2.0**10], [1.0, 2.0]], "f4")
    padded = np.zeros((64, 2), "f4")
    padded[:3] = pairs
    for mode, expected in ((0xF0, [2.0**-127, 2.0**-120, 2.0]), (0xC0, [0.0, 0.0, 2.0])):
        out = np.zeros(64, "f4")
        launch("gfx1030", ROUNDING.format(mode=hex(mode), instruction="v_mul_f32 v4, v2, v3"), [padded, out])
        assert out[:3].tolist() == expected


# --- apertures ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
def test_flat_addresses_reach_lds_through_its_aperture(target: str) -> None:
    text = """k:
 s_load_dwordx2 s[4:5], s[0:1], 0x0
 v_and_b32 v0, 0x3ff, v0
 v_lshlrev_b32 v1, 2, v0
 s_mov_b64 s[8:9], src_shared_base
 v_mov_b32 v2, v1
 v_mov_b32 v3, s9
 v_add_nc_u32 v4, 7, v0
 s_waitcnt lgkmcnt(0)
 flat_store_dword v[2:3], v4
 s_waitcnt vmcnt(0) lgkmcnt(0)
 ds_read_b32 v5, v1
 s_waitcnt lgkmcnt(0)
 global_store_dword v1, v5, s[4:5]
 s_endpgm
"""
    out = np.zeros(64, np.uint32)
    kernel = Kernel("k", lds_bytes=256, wave32=target != "gfx90a")
    launch(target, text.replace("_nc_u32", "_u32") if target == "gfx90a" else text, [out], kernel=kernel)
    assert out.tolist() == list(range(7, 71))


# --- alignment ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("instruction", "off"),
    [
        ("global_store_dword v1, v0, s[4:5]", 2),
        ("global_store_short v1, v0, s[4:5]", 1),
        ("global_load_dword v2, v1, s[4:5]", 1),
        ("global_atomic_add v1, v0, s[4:5]", 2),
    ],
)
def test_misaligned_accesses_are_faults_where_that_is_asked_for(
    target: str, instruction: str, off: int
) -> None:
    memory = np.zeros(128, np.uint32)
    text = _memory_kernel(instruction)
    launch(target, text, [memory.view(np.uint8)], check_alignment=True)
    odd = memory.view(np.uint8)[off:]
    launch(target, text, [odd])
    name = instruction.partition(" ")[0]
    name = {
        "global_load_dword": "global_load_(dword|b32)",
        "global_atomic_add": "global_atomic_add(_u32)?",
    }.get(name, name.replace("dword", "(dword|b32)").replace("short", "(short|b16)"))
    with pytest.raises(LaunchError, match=f"misaligned address .{name} v") as caught:
        launch(target, text, [odd], check_alignment=True)
    assert caught.value.address == odd.ctypes.data
    assert (caught.value.kernel, caught.value.block) == ("k", (0, 0, 0))


@pytest.mark.parametrize("target", TARGETS)
def test_misaligned_lds_is_a_fault(target: str) -> None:
    kernel = Kernel("k", lds_bytes=1024, wave32=target != "gfx90a")
    with pytest.raises(LaunchError, match=r"misaligned address .ds_"):
        text = _memory_kernel("ds_write_b32 v1, v0 offset:2")
        launch(target, text, [np.zeros(1)], kernel=kernel, check_alignment=True)


MISALIGNED = """.version 8.0
.target sm_70
.address_size 64
.visible .entry halves(.param .u64 p, .param .u64 q)
{
    .reg .b64 %rd<3>;
    .reg .b16 %h<3>;
    ld.param.u64 %rd1, [p];
    ld.param.u64 %rd2, [q];
    ld.global.u16 %h1, [%rd1];
    ld.global.u16 %h2, [%rd1+2];
    st.global.u16 [%rd2], %h2;
    st.global.u16 [%rd2+2], %h1;
    ret;
}
"""


def test_neighbouring_halves_stay_right_and_a_misaligned_half_is_cudas_error() -> None:
    """LLVM must not merge two aligned accesses into one that is not."""
    with zluda.open_device("gfx1030") as device:
        x = device.array(np.arange(8, dtype=np.uint16))
        kernel = device.load_module(MISALIGNED).kernel("halves")
        kernel.launch(grid=1, block=1, args=[np.uint64(x.address + 2), np.uint64(x.address + 10)])
        assert x.numpy().tolist() == [0, 1, 2, 3, 4, 2, 1, 7]
        with pytest.raises(LaunchError, match=r"kernel halves, block .*misaligned address"):
            kernel.launch(grid=1, block=1, args=[np.uint64(x.address + 1), np.uint64(x.address + 8)])
