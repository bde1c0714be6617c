"""A kernel's code for the page: PTX beside AMD instructions and LLVM IR, and the line at fault."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from seeding import environment
from seeding.table import FAULTS

from zluda.compiler.amd.lines import amd_lines, translation
from zluda.diff.results import LaunchResult, ReplayResult, Verdict
from zluda.isolate import listing
from zluda.isolate.listing import listings
from zluda.ptx import parse_module
from zluda.tracefile import open_trace

CORPUS = Path(__file__).parents[2] / "corpus"
REDUCTION = CORPUS / "reduction" / "trace.bin"

PTX = """
.version 8.0
.target sm_80
.address_size 64
.func (.param .f32 r) twice(.param .f32 a) {
    .reg .f32 %f<3>;
    ld.param.f32 %f1, [a];
    add.rn.f32 %f2, %f1, %f1;
    st.param.f32 [r], %f2;
    ret;
}
.visible .entry k(.param .u64 p) {
    .reg .b64 %rd<2>;
    .reg .f32 %f<4>;
    ld.param.u64 %rd1, [p];
    ld.global.f32 %f1, [%rd1];
    { .param .f32 x; .param .f32 y; st.param.f32 [x], %f1; call (y), twice, (x); ld.param.f32 %f2, [y]; }
    sqrt.rn.f32 %f3, %f2;
    st.global.f32 [%rd1], %f3;
    ret;
}
"""


def result(verdict: Verdict, call: int = 468, kernel: str = "_Z6reduceI3SumfEvPKT0_PS1_iS1_") -> ReplayResult:
    launch = LaunchResult(call, "launch", kernel, verdict, "why")
    return ReplayResult(str(REDUCTION), "gfx1030", True, "native", [launch], 1.0)


def test_a_line_of_ptx_has_its_ir_and_its_instructions() -> None:
    found = translation(parse_module(PTX), "k", "gfx1030")
    lines = PTX.split("\n")
    add = lines.index("    add.rn.f32 %f2, %f1, %f1;") + 1
    load = lines.index("    ld.global.f32 %f1, [%rd1];") + 1
    assert any("fadd float" in line for line in found.ir[add])  # of the function that is called too
    assert any("load" in line and "addrspace(1)" in line for line in found.ir[load])
    assert any(line.startswith("s_load_dword ") for line in found.assembly[load])  # one for all lanes
    assert not any("; ptx" in line for one in found.ir.values() for line in one)
    assert found.assembly == amd_lines(parse_module(PTX), "k", "gfx1030")


def test_only_kernels_that_fail_in_their_own_right_are_listed() -> None:
    with open_trace(REDUCTION) as trace:
        assert listings(trace, result(Verdict.INHERITED)) == {}
        assert listings(trace, result(Verdict.IDENTICAL)) == {}
        (found,) = listings(trace, result(Verdict.DIFFERS)).values()
    assert (found.target, found.guilty, found.missing) == ("gfx1030", 0, "")
    add = next(line for line in found.lines if line.ptx.startswith("add.f32"))
    assert any("fadd" in line for line in add.ir) and any("v_add_f32" in line for line in add.amd)
    numbers = [line.number for line in found.lines]
    assert numbers == sorted(set(numbers))


def test_long_kernels_are_shown_around_the_line_and_fit_a_page() -> None:
    lines = [listing.Line(number, "x") for number in range(1, 5001)]
    shown = listing._fitting(lines, 3000)
    assert len(shown) == listing.MOST_LINES
    assert shown[0].number < 3000 < shown[-1].number
    assert listing._fitting(lines, 0)[0].number == 1
    assert listing._fitting(lines, 5000)[-1].number == 5000
    wide = [listing.Line(number, "x" * 100, ("y" * 200,) * 40) for number in range(1, 5001)]
    shown = listing._fitting(wide, 3000)
    assert 20 < len(shown) < 50 and 3000 in [line.number for line in shown]


def test_what_cannot_be_compiled_says_why() -> None:
    with open_trace(REDUCTION) as trace:
        (found,) = listings(trace, result(Verdict.DIFFERS, kernel="gone")).values()
    assert "gone" in found.missing and not found.lines


@pytest.mark.nightly
def test_the_page_marks_the_line_at_fault(tmp_path: Path) -> None:
    """As a user gets it, with the emulator's sum spoilt."""
    page = tmp_path / "page.html"
    seeded = environment(FAULTS["v_add_f32_subtracts"])
    command = [sys.executable, "-m", "zluda", "replay", str(REDUCTION), "--device", "gfx1030", "--blame"]
    done = subprocess.run(
        [*command, "--html", str(page)], capture_output=True, text=True, env=os.environ | seeded, timeout=300
    )
    assert done.returncode == 1, done.stderr
    text = page.read_text("utf-8")
    (row,) = (row for row in text.split("</tr>") if '<tr class="guilty">' in row)
    assert "add.f32" in row and "v_add_f32" in row and "fadd float" in row
    assert "zluda replay" in text and "--blame" in text.partition("This page")[2]
