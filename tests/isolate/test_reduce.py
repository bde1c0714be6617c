"""Making a launch small: by a fault in one instruction, in two that are compiled to one, and by a refusal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
from faulty import Faulty
from one_launch import record

from zluda.errors import Error
from zluda.isolate.reduce.repro import TRACE, check_folder
from zluda.ptx import parse_module

SCRIPT = """
import dataclasses, json, sys
from zluda.isolate.reduce import reduce_launch
found = reduce_launch(sys.argv[1], int(sys.argv[2]), "cpu", "gfx1030", sys.argv[3], seconds=90)
print(json.dumps(dataclasses.asdict(found), default=str))
"""

COUNT = 256

WHOLE = "D.u32 = (S0.u32 << S1.u32) + S2.u32"

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


def run_repro(folder: Path, copy: Path | None) -> subprocess.CompletedProcess[str]:
    """The folder's own test, on the given copy of zluda or on this one."""
    environment = {**os.environ, "ZLUDA_CACHE_POLICY": "off", "PYTHONPATH": str(copy or "")}
    if copy is not None:
        environment.pop("PYTHONPYCACHEPREFIX", None)
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder)]
    return subprocess.run(
        [*command, "-c", os.devnull, str(folder / "test_repro.py")],
        capture_output=True,
        text=True,
        env=environment,
        cwd=folder,
        timeout=300,
    )


@pytest.mark.slow
def test_a_wrong_row_of_the_emulator_is_left_alone_with_its_inputs(tmp_path: Path) -> None:
    call = record_sums(tmp_path / "trace.bin")
    table = "device/amd/emulator/table/vector_integer.py"
    wrong = "D.u32 = reverse(S0.u32) ^ (S0.u32 >> 2 & 1)"
    copy = Faulty(tmp_path / "copy").patch(table, {"D.u32 = reverse(S0.u32)": wrong})
    folder = tmp_path / "repro"
    found: Any = copy.run(SCRIPT, str(tmp_path / "trace.bin"), str(call), str(folder))
    assert found["difference"]["text"] == "brev.b32 %r9, %r8;"
    assert found["instructions"][0] < 12 < found["instructions"][1]
    assert (found["threads"], found["kept_bytes"][0] <= 8) == ([1, COUNT], True)
    left = parse_module((folder / "repro.ptx").read_text()).function("sums").instructions
    assert len(left) == found["instructions"][0]
    assert run_repro(folder, copy.root).returncode == 1
    mended = run_repro(folder, None)
    assert mended.returncode == 0, mended.stdout
    assert "brev.b32" in json.dumps((folder / "README.md").read_text())


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
    table = "device/amd/emulator/table/vector_integer.py"
    copy = Faulty(tmp_path / "copy").patch(table, {WHOLE: WHOLE.replace("+", "-")})
    folder = tmp_path / "repro"
    found: Any = copy.run(SCRIPT, str(tmp_path / "trace.bin"), str(call), str(folder))
    assert found["instructions"][0] < 12 < found["instructions"][1]
    left = {i.opcode for i in parse_module((folder / "repro.ptx").read_text()).function("sums").instructions}
    assert {"shl", "add", "st"} <= left and not {"bra", "popc", "setp"} & left
    assert run_repro(folder, copy.root).returncode == 1
    assert run_repro(folder, None).returncode == 0


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
    right = "return one(self.from_lane(f, value.parts[0], chosen)), one(in_range)"
    wrong = right.replace("chosen)", "f.b.and_(chosen, 30))")
    copy = Faulty(tmp_path / "copy").patch("compiler/amd/warp.py", {right: wrong})
    folder = tmp_path / "repro"
    found: Any = copy.run(SCRIPT, str(tmp_path / "trace.bin"), str(call), str(folder))
    assert found["difference"]["text"] == "shfl.sync.bfly.b32 %r4, %r2, %r3, 31, -1;"
    assert found["instructions"][0] < 12 < found["instructions"][1]
    assert found["threads"] == [32, 64]  # whole warps
    assert run_repro(folder, copy.root).returncode == 1
    assert run_repro(folder, None).returncode == 0


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
