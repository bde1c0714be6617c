"""What an instrumented launch logs, on the CPU: against numbers worked out by hand, and over long loops."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy
import pytest
from kernels import HEADER
from one_launch import record

from zluda.isolate.alone import Stage, part_of
from zluda.isolate.values import Kind, first_difference
from zluda.isolate.values.instrument import WINDOW
from zluda.isolate.values.log import Probe
from zluda.ptx import parse_module
from zluda.tracefile import open_trace

SHAPES = (
    HEADER
    + """
.func (.param .b32 twice_result) twice(.param .b32 twice_x)
{
    .reg .b32 %r<3>;
    ld.param.u32 %r1, [twice_x];
    add.u32 %r2, %r1, %r1;
    st.param.b32 [twice_result], %r2;
    ret;
}
.visible .entry shapes(.param .u64 shapes_param_0, .param .u64 shapes_param_1)
{
    .reg .pred %p<4>;
    .reg .b16 %h<4>;
    .reg .b32 %r<12>;
    .reg .f32 %f<3>;
    .reg .b64 %rd<6>;
    .param .b32 argument;
    .param .b32 answer;
    ld.param.u64 %rd1, [shapes_param_0];
    ld.param.u64 %rd2, [shapes_param_1];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 16;
    add.s64 %rd4, %rd2, %rd3;
    ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd4];
    cvt.u16.u32 %h1, %r3;
    not.b16 %h2, %h1;
    setp.gt.u32 %p1, %r1, 39;
    setp.gt.u32 %p2|%p3, %r1, 40;
    @%p1 add.u32 %r6, %r2, %r5;
    @!%p1 sub.u32 %r6, %r2, %r5;
    cvt.rn.f32.u32 %f1, %r1;
    mul.rn.f32 %f2, %f1, 0f3FC00000;
    st.param.b32 [argument], %r6;
    call (answer), twice, (argument);
    ld.param.b32 %r7, [answer];
    add.s64 %rd5, %rd1, %rd3;
    st.global.v2.u32 [%rd5+8], {%r7, %r4};
    ret;
}
"""
)

LONG = """
.visible .entry long(.param .u64 long_param_0)
{
    .reg .pred %p<2>;
    .reg .b32 %r<5>;
    .reg .f32 %f<4>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [long_param_0];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    mov.u32 %r2, 0;
    cvt.rn.f32.u32 %f1, %r1;
    mul.rn.f32 %f1, %f1, 0f3E99999A;
AGAIN:
    add.u32 %r2, %r2, 1;
    and.b32 %r3, %r2, 2047;
    setp.lt.u32 %p1, %r2, 5000;
    @%p1 bra AGAIN;
    ex2.approx.f32 %f2, %f1;
    add.rn.f32 %f3, %f2, %f2;
    st.global.f32 [%rd3], %f3;
    ret;
}
"""
"""20,000 events of a thread, and then something approximate."""


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Probe]:
    path = tmp_path_factory.mktemp("shapes") / "trace.bin"
    data = numpy.arange(4 * 64, dtype="<u4") * 65537
    call = record(path, SHAPES, "shapes", [bytes(16 * 64), data.tobytes()], block=(64, 1, 1))
    with open_trace(path) as trace, Stage(trace, call, "cpu") as stage:
        yield Probe(stage, part_of(parse_module(stage.text), "shapes"))


def test_a_thread_s_values_are_logged_in_its_order(shapes: Probe) -> None:
    lanes, _ = shapes.values(0, 32)
    for lane, thread in ((5, 37), (8, 40)):
        words = [(4 * thread + i) * 65537 for i in range(4)]
        sum_or_difference = (words[0] + words[3] if thread > 39 else words[0] - words[3]) % 2**32
        real = struct.unpack("<I", struct.pack("<f", thread * 1.5))[0]
        events = [(shapes.sites[number], bits) for number, bits in lanes[lane].events]
        got = [
            (site.instruction.opcode, site.name, None if site.instruction.opcode == "st" else bits)
            for site, bits in events
            if "rd" not in site.name
        ]
        half = words[1] & 0xFFFF
        assert got == [
            ("mov", "%r1", thread),
            *(("ld", f"%r{2 + i}", word) for i, word in enumerate(words)),
            ("cvt", "%h1", half),
            ("not", "%h2", half ^ 0xFFFF),
            ("setp", "%p1", thread > 39),
            ("setp", "%p2", thread > 40),
            ("setp", "%p3", thread <= 40),
            ("add" if thread > 39 else "sub", "%r6", sum_or_difference),
            ("cvt", "%f1", struct.unpack("<I", struct.pack("<f", thread))[0]),
            ("mul", "%f2", real),
            ("st", "argument", None),  # its address is the device's own affair
            ("ld", "%r1", sum_or_difference),
            ("add", "%r2", 2 * sum_or_difference % 2**32),
            ("st", "twice_result", None),
            ("ld", "%r7", 2 * sum_or_difference % 2**32),
        ]
        assert lanes[lane].total == len(lanes[lane].events)


def test_other_warps_log_nothing_and_memory_is_as_without_a_log(shapes: Probe) -> None:
    lanes, outcome = shapes.values(1, 0)
    assert [lane.total for lane in lanes] == [0] * 32
    assert outcome.memory == shapes.plain().memory


def test_who_wrote_a_byte_is_told_with_what(shapes: Probe) -> None:
    base = shapes.stage.address(shapes.stage.reached[0].id)
    (write,) = shapes.writes(base + 16 * 40 + 13, base + 16 * 40 + 14)
    store = shapes.stores[write.store]
    assert (store.instruction.opcode, store.offset, store.size) == ("st", 12, 4)
    assert (write.block, write.thread, write.bits) == (0, 40, (4 * 40 + 2) * 65537)
    assert shapes.writes(base + 16 * 40, base + 16 * 40 + 8) == []


def test_what_comes_late_is_found_in_its_window(tmp_path: Path) -> None:
    """Both run on the CPU: one computes NVIDIA's bits, the other the host's."""
    call = record(tmp_path / "trace.bin", LONG, "long", [bytes(4 * 32)])
    found = first_difference(
        tmp_path / "trace.bin", call, "cpu", "cpu", numerics_a="nvidia", numerics_b="native"
    )
    assert found is not None and 4 * WINDOW < 4 * 5000
    assert (found.kind, found.text) == (Kind.APPROXIMATE, "ex2.approx.f32 %f2, %f1;")
    assert (found.occurrence, found.within) == (0, "within twice 2.39 ULP")
    assert abs(found.bits_a - found.bits_b) in (1, 2, 3, 4)
