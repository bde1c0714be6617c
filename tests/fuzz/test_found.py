"""Faults that fuzzing found, each as small as it could be cut down."""

from __future__ import annotations

import ctypes
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
from launches import inputs_of, launch, open_device
from programs import If, Loop, Program
from statements import Statement
from trial import apart

import zluda
from zluda.compiler.amd.disassembler import Line
from zluda.compiler.amd.faults import fence_unions
from zluda.compiler.cpu.llvm import emit_object
from zluda.compiler.llvm import parse
from zluda.device.amd.emulator.compile import HostCode
from zluda.device.amd.emulator.decode import decode
from zluda.ptx import parse_module

DEVICES = ("cpu", "gfx1030", "gfx90a")
HEAD = ".version 9.0\n.target sm_100a\n.address_size 64\n"


def words(device: str, body: str, given: list[int], *, threads: int = 1) -> list[int]:
    """The 32-bit words that threads leave at ``[%p]``; each found its own of ``given`` there."""
    text = f"""{HEAD}.visible .entry k(.param .u64 p) {{
        .reg .b64 %p, %l<9>; .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b16 %h<9>; .reg .pred %q<9>;
        ld.param.u64 %p, [p]; mov.u32 %r0, %tid.x; mad.wide.u32 %p, %r0, 4, %p; ld.global.b32 %f0, [%p];
        {body}
        ret; }}"""
    with zluda.open_device(device, numerics="nvidia") as opened:
        values = opened.array(np.array(given, np.uint32))
        opened.load_module(text).kernel("k").launch(grid=1, block=threads, args=[values])
        return [int(x) for x in values.numpy()]


@pytest.mark.parametrize("device", DEVICES)
def test_a_vote_on_an_ordered_comparison_leaves_nans_out(device: str) -> None:
    """LLVM made ``v_cmp_neq`` of ``ballot(fcmp one)``, which holds for NaNs."""
    body = """setp.ne.f32 %q0, %f0, 0f3F800000;
        vote.sync.ballot.b32 %r1, %q0, 15; st.global.b32 [%p], %r1;"""
    one, two, nan = 0x3F800000, 0x40000000, 0x7FC00000
    assert words(device, body, [one, two, nan, two], threads=4) == [0b1010] * 4


_EXTENSIONS = (
    ("b32", "mov.b32 %r1, %f0; bfe.s32 %r1, %r1, 0, 8;"),
    ("b32", "mov.b32 %r1, %f0; bfe.s32 %r1, %r1, 8, 8;"),
    ("b32", "mov.b32 {%h1, %h2}, %f0; cvt.s32.s16 %r1, %h1;"),
    ("b32", "mov.b32 %r1, %f0; shr.s32 %r1, %r1, 16;"),
    ("b32", "mov.b32 {%h1, %h2}, %f0; shr.s16 %h1, %h1, 8; cvt.s32.s16 %r1, %h1;"),
    ("b16", "ld.s8 %h1, [%p]; cvt.s32.s16 %r1, %h1;"),
    ("b16", "mov.b32 {%h1, %h2}, %f0; cvt.s16.s8 %h1, %h1; cvt.s32.s16 %r1, %h1;"),
    ("b16", "mov.b32 {%h1, %h2}, %f0; shr.s16 %h1, %h1, 8; cvt.s32.s16 %r1, %h1;"),
)
_READS = {  # none of a constant: such operands are registers' parts only beside registers
    "b32": """mov.b32 %f1, %r1; add.f32 %f2, %f1, %f0; mov.b32 %r2, %f2; setp.lt.f32 %q1, %f1, %f4;
        mul.f32 %f3, %f4, %f1; mov.b32 %r3, %f3; cvt.rn.f16.f32 %h3, %f1; cvt.u32.u16 %r4, %h3;""",
    "b16": """add.f16 %h3, %h1, %h4; cvt.u32.u16 %r2, %h3; setp.lt.f16 %q1, %h1, %h4; cvt.f32.f16 %f1, %h1;
        mov.b32 %r3, %f1; fma.rn.f16 %h3, %h1, %h4, %h4; cvt.u32.u16 %r4, %h3;""",
}


@pytest.mark.parametrize("device", DEVICES)
def test_an_extended_sign_is_part_of_what_floats_are_computed_of(device: str) -> None:
    """AMD's operands that are a part of a register lost the extension where the instruction reads floats.

    Negative bytes and halves that are extended are NaNs as floats.
    """
    body = "cvt.rn.f32.u32 %f4, %r0; cvt.rn.f16.u32 %h4, %r0; mov.b32 %r6, 0;"
    for at, (kind, extension) in enumerate(_EXTENSIONS):
        nan = "0x7fff" if kind == "b16" else "0x7fffffff"
        body += f"""{extension} {_READS[kind]} selp.b32 %r5, 1, 0, %q1;
            setp.ne.or.u32 %q1, %r2, {nan}, %q1; setp.ne.or.u32 %q1, %r3, 0x7fffffff, %q1;
            setp.ne.or.u32 %q1, %r4, 0x7fff, %q1; selp.b32 %r5, {1 << at}, 0, %q1; or.b32 %r6, %r6, %r5;"""
    given = [0xFFF3F681, 0x8001C1A5, 0x9ABC8EDC, 0xCD12EFCD]
    assert words(device, body + "st.b32 [%p], %r6;", given, threads=4) == [0] * 4


@pytest.mark.parametrize("device", DEVICES)
def test_the_literal_addend_of_mixed_precision_is_an_f32(device: str) -> None:
    largest = struct.unpack("<f", struct.pack("<I", 0x7F7FFFFF))[0]
    body = "mov.b16 %h0, 0x3F80; fma.rn.f32.bf16 %f1, %h0, %h0, 0f7F7FFFFF; st.global.b32 [%p], %f1;"
    (found,) = words(device, body, [0])
    assert struct.unpack("<f", struct.pack("<I", found))[0] == largest


@pytest.mark.parametrize("device", DEVICES)
def test_the_literal_that_slct_chooses_has_the_results_type(device: str) -> None:
    body = """slct.f64.f32 %l1, 0d3FF0000000000001, 0d3FF0000000000001, %f0;
        cvt.u32.u64 %r1, %l1; st.global.b32 [%p], %r1;"""
    assert words(device, body, [0]) == [1]


def _sum32(x: int) -> tuple[int, int]:
    total = (x + (x ^ 5)) % 2**32 + ((x ^ 5) + (x ^ 9) >> 32)
    return total % 2**32 ^ ((x ^ 5) + (x ^ 9)) % 2**32, total >> 32


def _sum64(x: int) -> tuple[int, int]:
    left, right = x | (x ^ 5) << 32, (x ^ 9) | x << 32
    total = left * right % 2**64 + (left <= 1)
    return (total >> 32) % 2**32, total >> 64


_SUMS = (
    (
        "add.cc.u32 %r4, %r2, %r3; add.u32 %r5, %r1, %r2; addc.cc.u32 %r6, %r5, 0; xor.b32 %r6, %r6, %r4;",
        _sum32,
    ),
    ("sub.cc.u64 %l3, 1, %l1; madc.lo.cc.u64 %l4, %l1, %l2, 0; mov.b64 {%r5, %r6}, %l4;", _sum64),
)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("body", "expected"), _SUMS)
def test_a_carry_is_that_of_the_last_addition_alone(
    device: str, body: str, expected: Callable[[int], tuple[int, int]]
) -> None:
    """LLVM made one addition of a sum that wraps and a carry, and took that one's carry."""
    body = f"""mov.b32 %r1, %f0; xor.b32 %r2, %r1, 5; xor.b32 %r3, %r1, 9;
        mov.b64 %l1, {{%r1, %r2}}; mov.b64 %l2, {{%r3, %r1}};
        {body} addc.u32 %r7, 0, 0; shl.b32 %r7, %r7, 31; xor.b32 %r6, %r6, %r7; st.global.b32 [%p], %r6;"""
    given = [0x9E3779B1 * i % 2**32 for i in range(1, 9)]
    results = map(expected, given)
    assert words(device, body, given, threads=8) == [total ^ carry << 31 for total, carry in results]


@pytest.mark.parametrize("body", ["{" * 20_000 + "}" * 20_000, "".join(f"L{i}:" for i in range(20_000))])
def test_nested_blocks_and_many_labels_take_time_by_their_number(body: str) -> None:
    assert not parse_module(f"{HEAD}.visible .entry k() {{\n{body}\nret;\n}}\n").errors()


def test_the_fuzzer_gives_a_module_the_tables_that_it_asks_for() -> None:
    """Exchanges of 16 bytes take locks, whose table the fuzzer had left at address 0."""
    body = "ld.param.u64 %p, [p]; mov.b128 %w, {%p, %p}; atom.exch.b128 %w, [%p], %w; ret;"
    text = f"{HEAD}.visible .entry k(.param .u64 p) {{ .reg .b64 %p; .reg .b128 %w; {body} }}"
    program = Program((), (), 1, 1, 0)
    left = launch(open_device("cpu"), text, program, inputs_of(program))
    assert left["in"][:8] == left["in"][8:16] != inputs_of(program).registers[:8]


def test_steps_through_data_are_no_functions() -> None:
    """The emulator's decoder took for functions what was added to the address of a constant table."""
    texts = [
        "s_getpc_b64 s[4:5]",
        "s_add_u32 s4, s4, 0xf0",
        "s_addc_u32 s5, s5, 0",
        "s_swappc_b64 s[30:31], s[4:5]",
        "s_getpc_b64 s[4:5]",
        "s_add_u32 s4, s4, 0x1000",
        "s_addc_u32 s5, s5, 0",
        "s_add_u32 s4, s4, 4",
        "s_addc_u32 s5, s5, 0",
        "s_endpgm",
    ]
    lines = {4 * n: Line(4 * n, 4, text) for n, text in enumerate(texts)} | {0xF4: Line(0xF4, 4, "s_endpgm")}
    code = SimpleNamespace(image=b"", code_ranges=lambda: [(0, 0x100)], relocated_addresses=list)
    disassembler = SimpleNamespace(at=lambda image, offset: lines[offset])
    graph = decode(code, SimpleNamespace(address=0), disassembler)  # type: ignore[arg-type]
    assert graph.functions == {0xF4}


@pytest.mark.parametrize("lanes", [16, 32])
def test_a_choice_of_bits_stands_apart_from_a_choice_of_lanes(lanes: int) -> None:
    """``vpternlogd`` with a mask and an operand in memory; LLVM got the order of its operands wrong."""
    of = f"<{lanes} x i32>"
    code = HostCode(
        emit_object(
            f"""define void @f(ptr %to, ptr %sign, ptr %value, i{lanes} %lanes) {{
            %s = load {of}, ptr %sign, align 4
            %v = load {of}, ptr %value, align 4
            %low = and {of} %v, splat (i32 2147483647)
            %high = and {of} %s, splat (i32 -2147483648)
            %both = or {of} %low, %high
            %k = bitcast i{lanes} %lanes to <{lanes} x i1>
            %result = select <{lanes} x i1> %k, {of} %both, {of} %s
            store {of} %result, ptr %to, align 4
            ret void }}"""
        ),
        "f",
    )
    signs, values = np.full(lanes, 0x80000000, np.uint32), np.full(lanes, 0x3FF0568F, np.uint32)
    found = np.zeros(lanes, np.uint32)
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_uint32)(code.address)
    call(found.ctypes.data, signs.ctypes.data, values.ctypes.data, 0x55555555 & ((1 << lanes) - 1))
    assert found.tolist() == [0xBFF0568F, 0x80000000] * (lanes // 2)


_SUM = f"""define void @f(ptr %to, ptr %value, i64 %lanes) {{
    %x = load volatile <64 x i32>, ptr %value, align 4
    %m = bitcast i64 %lanes to <64 x i1>
    %s = add <64 x i32> %x, <{", ".join(f"i32 {lane // 16 * 4}" for lane in range(64))}>
    %c = icmp ult <64 x i32> %s, %x
    %a = BOTH
    %z = zext <64 x i1> %a to <64 x i32>
    %t = add <64 x i32> %s, %z
    store <64 x i32> %t, ptr %to, align 4
    ret void }}"""


@pytest.mark.parametrize(
    "both", ["and <64 x i1> %c, %m", "select <64 x i1> %m, <64 x i1> %c, <64 x i1> zeroinitializer"]
)
def test_code_of_a_carry_that_one_register_of_several_cannot_have_has_an_end(both: str) -> None:
    """``x + 0 < x`` in 16 lanes of 64: LLVM combined the sum with the carry for ever."""
    text = _SUM.replace("BOTH", both)
    alone = "import sys; from zluda.compiler.cpu.llvm import emit_object; emit_object(sys.stdin.read())"
    subprocess.run([sys.executable, "-c", alone], input=text, text=True, timeout=30, check=True)
    code = HostCode(emit_object(text), "f")
    values, found = np.full(64, 0xFFFFFFF8, np.uint32), np.zeros(64, np.uint32)
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, ctypes.c_uint64)(code.address)
    call(found.ctypes.data, values.ctypes.data, 0x5555555555555555)
    carries = [lane >= 32 and lane % 2 == 0 for lane in range(64)]
    assert found.tolist() == [(0xFFFFFFF8 + lane // 16 * 4 + carries[lane]) % 2**32 for lane in range(64)]


@pytest.mark.parametrize("device", DEVICES[:2])
def test_lanes_that_enter_a_loop_in_its_middle_meet_the_others_at_its_barrier(device: str) -> None:
    """On the CPU a part of a warp went to the barrier first, which took it for the warp."""
    body = """.shared .align 4 .b32 all[64];
        mov.u32 %r7, all; shl.b32 %r6, %r0, 2; xor.b32 %r8, %r6, 128; add.u32 %r6, %r6, %r7;
        add.u32 %r7, %r8, %r7; mov.u32 %r4, 0; mov.u32 %r5, 0; mov.u32 %r3, %r0;
        setp.lt.u32 %q0, %r0, 40; @%q0 bra head;
        setp.eq.u32 %q1, %r0, 41; @%q1 bra middle; add.u32 %r3, %r0, 100; bra middle;
        head: mad.lo.u32 %r3, %r4, 1000, %r0;
        middle: st.shared.b32 [%r6], %r3; bar.sync 0; ld.shared.b32 %r3, [%r7]; add.u32 %r5, %r5, %r3;
        bar.sync 0; add.u32 %r4, %r4, 1; setp.lt.u32 %q1, %r4, 2; @%q1 bra head;
        st.global.b32 [%p], %r5;"""
    first = [n if n < 40 or n == 41 else n + 100 for n in range(64)]
    expected = [first[n ^ 32] + 1000 + (n ^ 32) for n in range(64)]
    assert words(device, body, [0] * 64, threads=64) == expected


@pytest.mark.parametrize(
    ("statement", "right"),
    [
        ("st.global.v8.b32 [%p], {%r0, %r0, %r0, %r0, %r0, %r0, %r0, %r0};", True),
        ("st.v4.b64 [%p], {%p, %p, %p, %p};", True),
        ("st.shared.v2.b64 [%r0], {%p, %p};", True),
        ("st.shared.v4.b64 [%r0], {%p, %p, %p, %p};", False),
        ("st.v8.b64 [%p], {%p, %p, %p, %p, %p, %p, %p, %p};", False),
        ("st.global.v2.b128 [%p], {%w, %w};", False),
        ("ldu.global.v4.b32 {%r0, %r1, %r2, %r3}, [%p];", True),
        ("ldu.global.v4.b64 {%p, %l0, %l1, %l2}, [%p];", False),
        ("st.bulk.weak.shared::cta [%r0], %p, 0;", True),  # which has no type
    ],
)
def test_vectors_are_no_wider_than_an_access(statement: str, right: bool) -> None:
    """As ptxas judges each. Wider ones wrote past what the fuzzer gave a thread."""
    registers = ".reg .b64 %p, %l<3>; .reg .b32 %r<4>; .reg .b128 %w;"
    errors = parse_module(f"{HEAD}.visible .entry k() {{ {registers} {statement} ret; }}").errors()
    assert [error.message for error in errors.values()] == ([] if right else ["vector too large"])


@pytest.mark.parametrize(
    "statement",
    [
        "st.global.v8.b32 [%p], {%r0, %r0, %r0, %r0, %r0, %r0, %r0, %r0};",
        "ld.v4.b64 {%p, %l0, %l1, %l2}, [%p];",
        "ld.global.nc.v4.f64 {%l0, %l1, %l2, %p}, [%p];",
    ],
)
@pytest.mark.parametrize("target", ["sm_90", "sm_90a", "sm_100", "sm_120a"])
def test_accesses_of_256_bits_are_of_later_targets(statement: str, target: str) -> None:
    """As ptxas says: "Feature '256 bit wide load/store' requires .target sm_100 or higher"."""
    text = f".version 9.0\n.target {target}\n.address_size 64\n"
    registers = ".reg .b64 %p, %l<3>; .reg .b32 %r<4>;"
    errors = parse_module(f"{text}.visible .entry k() {{ {registers} {statement} ret; }}").errors()
    refused = [(error.message, error.expected) for error in errors.values()]
    early = target.startswith("sm_90")
    assert refused == ([("beyond the module's .target", "sm_100 or higher")] if early else [])


_EXCHANGE = Statement("atom.exch.b32 %r1, [%own], %r1;")
_VOTE = Statement("vote.sync.ballot.b32 %r2, %p0, %MASK;")
_LEFT = "setp.lt.u32 %c, %r0, 1000000000;"


@pytest.mark.parametrize(
    "body",
    [
        (Loop(3, (_EXCHANGE,), _LEFT), Loop(2, (Statement("bar.sync 0;"), _EXCHANGE))),
        (Loop(3, (_VOTE, _EXCHANGE), _LEFT), Loop(3, (_VOTE, _EXCHANGE), _LEFT)),
        (Loop(3, (_VOTE, _EXCHANGE, Loop(2, (_VOTE, _EXCHANGE), _LEFT)), _LEFT),),
    ],
)
def test_lanes_that_left_a_polling_loop_let_the_others_through(body: tuple[Loop, ...]) -> None:
    """On the CPU they spun at a loop's head, where a barrier or a vote waited for those that still polled."""
    fault = apart(Program(body, threads=32, seed=1), ("cpu", "gfx1030"), 60)
    assert fault is None, fault


_ONE_LEAVES = "setp.eq.u32 %c, %tid, 21;"
_MEET = Statement("bar.warp.sync %MASK;")
_SHUFFLE = Statement("shfl.sync.bfly.b32 %r3, %r4, 1, 31, %MASK; xor.b32 %r4, %r3, %r1;")


@pytest.mark.parametrize(
    "body",
    [
        (Loop(3, (Loop(2, (_EXCHANGE,), _ONE_LEAVES),)),),
        (Loop(2, (Loop(2, (_MEET, _EXCHANGE, _MEET), _ONE_LEAVES), _MEET)), _MEET),
        (Loop(2, (_EXCHANGE, Loop(2, (_VOTE, If(_LEFT, (_MEET,), (_MEET, _EXCHANGE))), _ONE_LEAVES))),),
    ],
)
def test_lanes_at_one_place_that_name_others_do_not_go_on_together(body: tuple[Loop, ...]) -> None:
    """A lane that a loop let go comes round to a vote in it, and names those that are still inside and name
    it no more. On the CPU the lane passed with them, and was missing where they named it again."""
    fault = apart(Program((*body, _SHUFFLE), threads=32, seed=1), ("cpu", "gfx1030"), 60)
    assert fault is None, fault


def test_lanes_that_wait_for_each_other_at_two_places_are_found_out() -> None:
    """In a kernel with a polling loop they were lost: the kernel ended without them."""
    body = """poll: ld.relaxed.gpu.global.b32 %r1, [%p]; setp.eq.u32 %q1, %r1, 99; @%q1 bra poll;
        setp.lt.u32 %q0, %r0, 16; @%q0 bra low;
        vote.sync.ballot.b32 %r2, %q0, -1; bra done;
        low: vote.sync.ballot.b32 %r2, %q0, -1; done: st.global.b32 [%p], %r2;"""
    with pytest.raises(zluda.LaunchError, match="can never complete"):
        words("cpu", body, [0] * 32, threads=32)


_NAN_PASSED_ON = (
    "brev.b64 %l8, 7; mov.b64 %d2, %l8; mul.f64 %d3, %d1, %d2;",  # -2^513
    "mul.f64 %d3, %d1, 0dBFF0000000000000;",
    "mov.f64 %d2, 0dC000000000000000; mul.f64 %d3, %d1, %d2;",
    "mul.rp.f64 %d3, %d1, 0dBFF0000000000000;",
    "fma.rn.f64 %d3, %d1, 0dBFF0000000000000, 0d8000000000000000;",
    "mul.f64 %d3, %d1, 0d3FF0000000000000;",
    "mov.f64 %d2, 0d3FF0000000000000; mul.f64 %d3, %d1, %d2;",
    "add.f64 %d3, %d1, 0d8000000000000000;",
    "sub.f64 %d3, %d1, 0d0000000000000000;",
    "neg.f64 %d2, %d1; mul.f64 %d3, %d2, 0dC000000000000000;",
    "selp.s32 %r1, -2, -4, %q1; cvt.rn.f64.s32 %d2, %r1; mul.f64 %d3, %d1, %d2;",
    "fma.rn.f64 %d3, %d0, 0dBFF0000000000000, %d1;",
)


@pytest.mark.parametrize("level", ["", "0"])
@pytest.mark.parametrize("device", DEVICES)
def test_a_constant_factor_or_term_leaves_a_double_nan_as_it_was(
    device: str, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LLVM made ``fneg`` of a product with -1, on AMD GPUs ``v_ldexp_f64 -x`` of one with another negative
    power of two, and left out products with 1 and sums with 0, which make a NaN quiet."""
    if level:
        monkeypatch.setenv("ZLUDA_OPTIMIZATION_LEVEL", level)
    nans = np.array([0x7FF8 << 48, 0xFFF8 << 48, 0x7FF0 << 48 | 5, 0xFFF0 << 48 | 5], np.uint64)
    found = doubles(device, _NAN_PASSED_ON, nans)
    quiet = nans | np.uint64(1 << 51)
    wrong = [text for text, bits in zip(_NAN_PASSED_ON, found, strict=True) if (bits != quiet).any()]
    assert wrong == []


def test_the_emulator_turns_the_sign_of_a_nan_before_an_addition() -> None:
    """``v_fma_f64 -x, y, -1.0`` computed ``-(x * y + 1)`` on the host, where a NaN kept its sign."""
    nans = np.array([0x7FF8 << 48, 0xFFF8 << 48, 0x7FF8 << 48 | 5], np.uint64)
    text = (
        "neg.f64 %d2, %d1; mul.f64 %d3, %d2, 0dBFF0000000000000;",
        "neg.f64 %d2, %d1; fma.rn.f64 %d3, %d2, %d0, 0dBFF0000000000000;",
    )
    assert [list(bits) for bits in doubles("gfx1030", text, nans)] == [list(nans)] * 2


def doubles(device: str, statements: tuple[str, ...], given: np.ndarray) -> np.ndarray:
    """What each statement leaves in ``%d3`` (its bits, a row for each) of each of ``given`` in ``%d1``;
    4.0 is in ``%d0``, and ``%q1`` true in every other thread."""
    stores = "".join(f"{text} st.global.b64 [%o+{8 * i}], %d3;\n" for i, text in enumerate(statements))
    text = f"""{HEAD}.visible .entry k(.param .u64 p, .param .u64 o, .param .f64 four) {{
        .reg .b64 %p, %o, %l<9>; .reg .b32 %r<9>; .reg .f64 %d<9>; .reg .pred %q<9>;
        ld.param.u64 %p, [p]; ld.param.u64 %o, [o]; ld.param.f64 %d0, [four]; mov.u32 %r0, %tid.x;
        and.b32 %r1, %r0, 1; setp.ne.u32 %q1, %r1, 0;
        mad.wide.u32 %p, %r0, 8, %p; mad.wide.u32 %o, %r0, {8 * len(statements)}, %o; ld.global.f64 %d1, [%p];
        {stores} ret; }}"""
    with zluda.open_device(device, numerics="nvidia") as opened:
        values = opened.array(given)
        results = opened.array(np.zeros((len(given), len(statements)), np.uint64))
        kernel = opened.load_module(text).kernel("k")
        kernel.launch(grid=1, block=len(given), args=[values, results, np.float64(4.0)])
        return results.numpy().reshape(len(given), len(statements)).T


@pytest.mark.parametrize("device", DEVICES)
def test_a_condition_that_is_found_to_hold_late_is_kept_by_or(device: str) -> None:
    """LLVM's code generator found that all match, in another block, and folded ``or x, -1`` to ``x``."""
    body = """mov.u32 %r3, %ntid.x; bmsk.clamp.b32 %r3, 0, %r3; match.all.sync.b32 %r1|%q0, 0, %r3;
        setp.ne.b32 %q1, %r0, 2; setp.eq.f32 %q2, %f0, %f0;
        @!%q1 bra E; setp.eq.or.f32 %q2, %f0, 0f3F800000, %q0; E: selp.b32 %r2, 1, 0, %q2;
        selp.b32 %r4, 2, 0, %q0; add.u32 %r2, %r2, %r4; st.global.b32 [%p], %r2;"""
    assert words(device, body, [5, 6, 7, 0x3F800000], threads=4) == [3] * 4


_LATE = """define amdgpu_kernel void @k(ptr addrspace(1) %p, i32 %n, i1 %c) {
entry:
  %v = call i32 @llvm.amdgcn.ballot.i32(i1 true)
  %w = call i32 @llvm.amdgcn.ballot.i32(i1 true)
  %e = icmp eq i32 %v, %w
  %s = select i1 %e, KIND -1, KIND 0
  br i1 %c, label %then, label %end
then:
  %x = load KIND, ptr addrspace(1) %p
  UNION
  store KIND %y, ptr addrspace(1) %p
  br label %end
end:
  store volatile KIND %s, ptr addrspace(1) %p
  ret void
}
declare i32 @llvm.amdgcn.ballot.i32(i1)
"""


@pytest.mark.parametrize("kind", ["i1", "i8", "i16", "i32", "i64"])
@pytest.mark.parametrize("union", ["or KIND %x, %s", "or KIND %s, %x", "select i1 %e, KIND -1, KIND %x"])
def test_what_is_found_late_is_hidden_from_or_of_every_width(kind: str, union: str) -> None:
    text = _LATE.replace("UNION", f"%y = {union}").replace("KIND", kind)
    fenced = fence_unions(text)
    assert fenced.count(" asm ") == 1
    parse(fenced)
    here = re.sub(r"  br .*\n\w+:\n", "", text)
    assert fence_unions(here) == here  # the code generator sees all of a block at once
