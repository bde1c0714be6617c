"""Whole replays: a confined runner process, the compiler and the CPU device, no stand-ins."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest
from bad_kernels import BAD, STRAY, Program
from kernels import HEADER, LAYOUT, added, parameters, ramp
from trace_builder import TraceBuilder

import zluda
from zluda.diff.results import Verdict
from zluda.report import terminal

COUNT = 1000  # no multiple of a block


@pytest.mark.parametrize("kind", BAD)
def test_one_bad_kernel_costs_one_verdict(tmp_path: Path, kind: str) -> None:
    text, verdict, word = BAD[kind]
    path = tmp_path / "trace.bin"
    Program(path, text, COUNT).run_among_others()
    result = zluda.replay(path, device="cpu", time_limit=3.0)
    expected = [Verdict.IDENTICAL, verdict, Verdict.IDENTICAL, Verdict.IDENTICAL]
    assert [one.verdict for one in result.results] == expected
    assert word in result.results[1].reason


def test_a_wrong_record_shows_the_element(tmp_path: Path) -> None:
    path = tmp_path / "trace.bin"
    program = Program(path, STRAY, COUNT)
    wrong = bytearray(program.sum())
    wrong[4 * 999 :] = struct.pack("<f", 0.5)
    program.run(bytes(wrong))
    program.record.__exit__()
    result = zluda.replay(path, device="cpu")
    first = result.first_divergence
    assert result.verdict is Verdict.DIFFERS and first is not None
    assert first.element is not None and first.buffer is not None
    assert (first.buffer.element_type, first.element.index, first.element.recorded) == ("f32", 999, 0.5)
    assert first.element.replayed == 999 + 999.25


def test_a_replay_that_agrees_starts_quickly(tmp_path: Path) -> None:
    """What takes long to import stays out of the way: a small replay is to take little over a second."""
    program = Program(tmp_path / "trace.bin", STRAY, COUNT)
    program.run()
    program.close()
    script = (
        "import sys, zluda\n"
        f"result = zluda.replay({str(tmp_path / 'trace.bin')!r}, device='cpu')\n"
        "assert result.exit_status() == 0, result.reasons\n"
        "slow = set('numpy pandas rich llvmlite jinja2 zluda.ptx.parse'.split())\n"
        "print(*sorted(slow & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


FUNCTION_TABLE = """
.visible .func (.param .b32 result) twice(.param .b32 x)
{
    .reg .b32 %r<3>;
    ld.param.u32 %r1, [x];
    add.u32 %r2, %r1, %r1;
    st.param.b32 [result], %r2;
    ret;
}
.visible .func (.param .b32 result) thrice(.param .b32 x)
{
    .reg .b32 %r<4>;
    ld.param.u32 %r1, [x];
    add.u32 %r2, %r1, %r1;
    add.u32 %r3, %r2, %r1;
    st.param.b32 [result], %r3;
    ret;
}
.visible .global .align 8 .u64 table[3] = {0, twice, thrice};
.visible .entry choose(.param .u64 choose_param_0, .param .u64 choose_param_1, .param .u32 choose_param_2)
{
    .reg .b64 %rd<4>;
    .reg .b32 %r<3>;
    ld.param.u64 %rd1, [choose_param_0];
    ld.param.u64 %rd2, [choose_param_1];
    ld.param.u32 %r1, [choose_param_2];
    {
        .param .b32 argument;
        .param .b32 answer;
        st.param.b32 [argument], %r1;
        prototype: .callprototype (.param .b32 _) _ (.param .b32 _);
        call (answer), %rd2, (argument), prototype;
        ld.param.b32 %r2, [answer];
    }
    st.global.u32 [%rd1], %r2;
    ld.global.u64 %rd3, [table+8];
    st.global.u64 [%rd1+8], %rd3;
    ret;
}
"""


def test_addresses_of_functions_are_the_replays_own(tmp_path: Path) -> None:
    """In a table, in a parameter and in results: the record's mean nothing here."""
    twice, thrice = 0x7F70_1234_0100, 0x7F70_1234_0700  # where NVIDIA's driver had put the code
    path = tmp_path / "trace.bin"
    with TraceBuilder(path) as record:
        record.start()
        module = record.module(HEADER + FUNCTION_TABLE)
        table = record.variable(module, "table", 0x7F60_0000_0000, struct.pack("<QQQ", 0, twice, thrice))
        kernel = record.function(module, "choose", LAYOUT)
        x = record.allocate(16)
        record.copy_in(x, bytes(16))
        writes = {x: struct.pack("<QQ", 21, twice)}
        record.launch(kernel, parameters(x, thrice, 7), writes, reaches=[table])
        record.copy_out(x, 16)
    result = zluda.replay(path, device="cpu")
    assert [(one.verdict, one.reason) for one in result.results] == [(Verdict.IDENTICAL, "")] * 2


PRINTING = """
.extern .func (.param .b32 result) vprintf (.param .b64 format, .param .b64 arguments);
.global .align 1 .b8 text[14] = {120, 91, 37, 100, 93, 32, 61, 32, 37, 46, 50, 102, 10, 0};
.visible .entry other(
    .param .u64 printing_param_0, .param .u64 printing_param_1, .param .u32 printing_param_2)
{
    .local .align 8 .b8 arguments[16];
    .reg .b64 %rd<4>;
    .reg .b32 %r<3>;
    .reg .f32 %f<2>;
    .reg .f64 %fd<2>;
    .reg .pred %p<2>;
    mov.u32 %r1, %tid.x;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 ret;
    ld.param.u64 %rd1, [printing_param_0];
    ld.global.f32 %f1, [%rd1+8];
    cvt.f64.f32 %fd1, %f1;
    mov.u32 %r2, 2;
    st.local.u32 [arguments], %r2;
    st.local.f64 [arguments+8], %fd1;
    mov.u64 %rd2, arguments;
    cvta.local.u64 %rd2, %rd2;
    mov.u64 %rd3, text;
    cvta.global.u64 %rd3, %rd3;
    {
        .param .b64 format;
        .param .b64 values;
        .param .b32 count;
        st.param.b64 [format], %rd3;
        st.param.b64 [values], %rd2;
        call.uni (count), vprintf, (format, values);
    }
    ret;
}
"""


@pytest.mark.parametrize("device", ["cpu", "gfx1030"])
def test_what_a_kernel_prints_is_told_with_its_launch(tmp_path: Path, device: str) -> None:
    path = tmp_path / "prints.trace"
    program = Program(path, PRINTING, COUNT)
    program.run()
    call = program.record.launch(program.other, program.parameters, {})
    program.run()
    program.close()
    result = zluda.replay(path, device=device)
    printed = {one.call: one.printed for one in result.results if one.printed}
    value = added(ramp(COUNT), ramp(COUNT, 0.25))[8:12]
    assert printed == {call: f"x[2] = {struct.unpack('<f', value)[0]:.2f}\n"}
    assert result.to_json()["printed"] == {str(call): printed[call]}
    lines = [line for line in terminal.plain_lines(result) if "printed" in line]
    assert lines == [f"  #{call} other printed: {printed[call].rstrip()}"]
