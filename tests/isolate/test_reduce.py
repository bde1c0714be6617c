"""Making a launch small: by a fault in one instruction, in two that are compiled to one, and by a refusal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
from one_launch import record
from seeding import environment, run
from seeding.table import FAULTS

from zluda.errors import Error
from zluda.isolate.reduce.repro import TRACE, check_folder
from zluda.ptx import Instruction, parse_module

SCRIPT = """
import dataclasses, json, sys
from zluda.isolate.reduce import reduce_launch
found = reduce_launch(sys.argv[1], int(sys.argv[2]), "cpu", "gfx1030", sys.argv[3], seconds=90)
print(json.dumps(dataclasses.asdict(found), default=str))
"""

COUNT = 256

SUMS = """
.visible .entry sums(.param .u64 sums_param_0, .param .u64 sums_param_1)
{
    .reg .pred %p<3>;
    .reg .b32 %r<16>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [sums_param_0];
    ld.param.u64 %rd2, [sums_param_1];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mad.lo.s32 %r4, %r2, %r3, %r1;
    mul.wide.u32 %rd3, %r4, 4;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
    ld.global.u32 %r5, [%rd5];
    mov.u32 %r6, 0;
    mov.u32 %r7, 1;
AGAIN:
    xor.b32 %r8, %r5, %r7;
    brev.b32 %r9, %r8;
    popc.b32 %r10, %r9;
    add.u32 %r6, %r6, %r10;
    xor.b32 %r6, %r6, %r9;
    add.u32 %r7, %r7, 1;
    setp.lt.u32 %p1, %r7, 6;
    @%p1 bra AGAIN;
    st.global.u32 [%rd4], %r6;
    ret;
}
"""


def record_sums(path: Path) -> int:
    data = (numpy.arange(COUNT, dtype="<u4") * 977).tobytes()
    return record(path, SUMS, "sums", [bytes(4 * COUNT), data], grid=(2, 1, 1), block=(128, 1, 1))


def run_repro(folder: Path, fault: str = "nothing") -> subprocess.CompletedProcess[str]:
    """The folder's own test, with a fault in zluda or without."""
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder)]
    return subprocess.run(
        [*command, "-c", os.devnull, str(folder / "test_repro.py")],
        capture_output=True,
        text=True,
        env=environment(FAULTS[fault]),
        cwd=folder,
        timeout=300,
    )


def reduced(folder: Path, fault: str, call: int) -> Any:
    """The reduction of a launch of ``trace.bin`` with a fault seeded, with which its repro fails alone."""
    found = run(FAULTS[fault], SCRIPT, str(folder / "trace.bin"), str(call), str(folder / "repro"))
    assert run_repro(folder / "repro", fault).returncode == 1
    mended = run_repro(folder / "repro")
    assert mended.returncode == 0, mended.stdout
    return found


def kept(folder: Path) -> tuple[Instruction, ...]:
    """The instructions of the repro's kernel."""
    return tuple(parse_module((folder / "repro" / "repro.ptx").read_text()).function("sums").instructions)


@pytest.mark.slow
def test_a_wrong_row_of_the_emulator_is_left_alone_with_its_inputs(tmp_path: Path) -> None:
    call = record_sums(tmp_path / "trace.bin")
    found = reduced(tmp_path, "v_bfrev_b32_is_wrong_for_some", call)
    assert found["difference"]["text"] == "brev.b32 %r9, %r8;"
    assert found["instructions"][0] < 12 < found["instructions"][1]
    assert (found["threads"], found["kept_bytes"][0] <= 8) == ([1, COUNT], True)
    assert len(kept(tmp_path)) == found["instructions"][0]
    assert "brev.b32" in (tmp_path / "repro" / "README.md").read_text()


FUSED = """
.visible .entry sums(.param .u64 sums_param_0, .param .u64 sums_param_1)
{
    .reg .pred %p<2>;
    .reg .b32 %r<16>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [sums_param_0];
    ld.param.u64 %rd2, [sums_param_1];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
    ld.global.u32 %r5, [%rd5];
    popc.b32 %r6, %r5;
    xor.b32 %r7, %r6, %r5;
    setp.gt.u32 %p1, %r7, 100;
    @%p1 bra LARGE;
    xor.b32 %r7, %r7, 21845;
LARGE:
    shl.b32 %r8, %r5, 5;
    add.u32 %r9, %r8, %r6;
    xor.b32 %r10, %r9, %r7;
    st.global.u32 [%rd4], %r10;
    ret;
}
"""


@pytest.mark.nightly
def test_a_fault_of_two_instructions_made_one_is_cut_down_step_by_step(tmp_path: Path) -> None:
    """AMD has one instruction for the shift and the sum; what a log reads in between keeps them apart."""
    data = (numpy.arange(32, dtype="<u4") * 977 + 1).tobytes()
    call = record(tmp_path / "trace.bin", FUSED, "sums", [bytes(4 * 32), data])
    found = reduced(tmp_path, "v_lshl_add_u32_subtracts", call)
    assert found["instructions"][0] < 12 < found["instructions"][1]
    left = {instruction.opcode for instruction in kept(tmp_path)}
    assert {"shl", "add", "st"} <= left and not {"bra", "popc", "setp"} & left


WARP_SUM = """
.visible .entry warp_sum(.param .u64 warp_sum_param_0, .param .u64 warp_sum_param_1)
{
    .reg .pred %p<2>;
    .reg .b32 %r<8>;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [warp_sum_param_0];
    ld.param.u64 %rd2, [warp_sum_param_1];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
    ld.global.u32 %r2, [%rd5];
    mov.u32 %r3, 16;
AGAIN:
    shfl.sync.bfly.b32 %r4, %r2, %r3, 31, -1;
    add.u32 %r2, %r2, %r4;
    shr.u32 %r3, %r3, 1;
    setp.ne.u32 %p1, %r3, 0;
    @%p1 bra AGAIN;
    xor.b32 %r5, %r2, %r1;
    st.global.u32 [%rd4], %r5;
    ret;
}
"""


@pytest.mark.nightly
def test_a_shuffle_lowered_wrong_is_left_alone_with_its_warp(tmp_path: Path) -> None:
    data = (numpy.arange(64, dtype="<u4") ** 2 + 1).tobytes()
    buffers = [bytes(4 * 1024), data]
    call = record(tmp_path / "trace.bin", WARP_SUM, "warp_sum", buffers, block=(64, 1, 1))
    found = reduced(tmp_path, "amd_shuffle_takes_even_lanes", call)
    assert found["difference"]["text"] == "shfl.sync.bfly.b32 %r4, %r2, %r3, 31, -1;"
    assert found["instructions"][0] < 12 < found["instructions"][1]
    assert found["threads"] == [32, 64]  # whole warps


def test_a_repro_takes_no_place_of_other_files(tmp_path: Path) -> None:
    check_folder(tmp_path)
    check_folder(tmp_path / "deep" / "repro")
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(Error, match="holds other files; name a new folder"):
        check_folder(tmp_path)
    with pytest.raises(Error, match=r"README\.md is no directory"):
        check_folder(tmp_path / "README.md" / "repro")
    (tmp_path / TRACE).write_bytes(b"")
    check_folder(tmp_path)
    assert not (tmp_path / "deep").exists()
