"""Single facts of PTX on the CPU device, each a few lines of PTX."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
import pytest

from zluda.device.cpu import CpuDevice
from zluda.errors import Error, LaunchError, PtxError, UnsupportedError
from zluda.ptx import parse_module

HEADER = ".version 8.7\n.target sm_90\n.address_size 64\n"


@pytest.fixture(scope="module")
def device() -> Iterator[CpuDevice]:
    device = CpuDevice(threads=2)
    yield device
    device.close()


def run(
    device: CpuDevice,
    body: str,
    *,
    threads: int = 32,
    module: str = "",
    words: int = 0,
    data: np.ndarray | None = None,
    shared: int = 0,
    header: str = HEADER,
) -> np.ndarray:
    """Run a kernel; ``%r31`` is the thread's index, ``%rd31`` its element of ``out`` (``%rd30``)."""
    text = (
        f"{header}{module}\n.visible .entry k(.param .u64 out) {{\n"
        ".reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<32>; .reg .f32 %f<8>; .reg .b64 %rd<32>;"
        " .reg .f64 %d<8>; .reg .b128 %q<4>;\n"
        "ld.param.u64 %rd30, [out]; mov.u32 %r31, %tid.x; mul.wide.u32 %rd31, %r31, 4;"
        f" add.s64 %rd31, %rd30, %rd31;\n{body}\n}}"
    )
    initial = data if data is not None else np.zeros(words or threads, np.uint32)
    out = device.allocate(initial.nbytes)
    device.write(out, initial.tobytes())
    code = device.load(parse_module(text, file="test.ptx"))
    device.launch(code.kernel("k"), (1, 1, 1), (threads, 1, 1), struct.pack("<Q", out), shared_bytes=shared)
    result = np.frombuffer(device.read(out, initial.nbytes), initial.dtype)
    device.free(out)
    return result


def test_functions_with_register_parameters(device: CpuDevice) -> None:
    module = """.func (.reg .b32 %result) scaled (.reg .b32 %a, .reg .b32 %b)
    { .reg .pred %p; setp.lt.u32 %p, %a, 10; mul.lo.u32 %result, %a, %b; @%p ret;
    add.u32 %result, %result, 1000; ret; }"""
    out = run(device, "call (%r1), scaled, (%r31, 3); st.global.u32 [%rd31], %r1; ret;", module=module)
    assert out.tolist() == [3 * t if t < 10 else 3 * t + 1000 for t in range(32)]


def test_divergent_calls_in_a_loop(device: CpuDevice) -> None:
    module = """.visible .func (.param .b32 r) step (.param .b32 x)
    { .reg .b32 %a; ld.param.u32 %a, [x]; mad.lo.u32 %a, %a, 3, 1; st.param.b32 [r], %a; ret; }"""
    body = """.reg .b32 %n; and.b32 %n, %r31, 7; mov.u32 %r1, %r31;
    LOOP: setp.eq.u32 %p1, %n, 0; @%p1 bra DONE;
    { .param .b32 x; .param .b32 r; st.param.b32 [x], %r1; call.uni (r), step, (x); ld.param.b32 %r1, [r]; }
    sub.u32 %n, %n, 1; bra LOOP;
    DONE: st.global.u32 [%rd31], %r1; ret;"""

    def expected(t: int) -> int:
        value = t
        for _ in range(t % 8):
            value = 3 * value + 1
        return value

    assert run(device, body, module=module).tolist() == [expected(t) for t in range(32)]


def test_guarded_call_ret_and_store(device: CpuDevice) -> None:
    module = """.visible .func bump (.param .b64 p) { .reg .b64 %a; .reg .b32 %v; ld.param.u64 %a, [p];
    ld.u32 %v, [%a]; add.u32 %v, %v, 5; st.u32 [%a], %v; ret; }"""
    body = """setp.lt.u32 %p1, %r31, 20; setp.eq.u32 %p2, %r31, 3; .param .b64 p; st.param.b64 [p], %rd31;
    @%p1 call bump, (p); @%p2 ret; @!%p1 st.global.u32 [%rd31], 9; atom.global.add.u32 _, [%rd31], 100;
    ret;"""
    assert run(device, body, module=module).tolist() == [
        5 if t == 3 else 105 if t < 20 else 109 for t in range(32)
    ]


def test_calls_of_functions_the_module_lacks_are_named(device: CpuDevice) -> None:
    module = ".extern .func (.param .b32 r) elsewhere (.param .b64 a, .param .b64 b);"
    body = "{ .param .b64 a; .param .b64 b; .param .b32 r; call.uni (r), elsewhere, (a, b); } ret;"
    with pytest.raises(UnsupportedError, match=r"elsewhere.*kernel k, test.ptx:\d+"):
        run(device, body, module=module)


def test_calls_of_functions_the_module_lacks_do_no_harm_where_no_thread_comes(device: CpuDevice) -> None:
    module = ".extern .func (.param .b32 r) elsewhere (.param .b64 a, .param .b64 b);"
    body = """setp.gt.u32 %p1, %r31, 99; @!%p1 bra past; { .param .b64 a; .param .b64 b; .param .b32 r;
    call.uni (r), elsewhere, (a, b); } past: st.global.u32 [%rd31], 7; ret;"""
    assert run(device, body, module=module).tolist() == [7] * 32


def test_a_function_that_cannot_be_lowered_spoils_only_who_calls_it(device: CpuDevice) -> None:
    module = """.visible .func bad (.param .b64 p) { .reg .b64 %a; multimem.st.global.u32 [%a], 3; ret; }
    .visible .func good (.param .b64 p) { .reg .b64 %a; ld.param.u64 %a, [p]; st.u32 [%a], 3; ret; }
    .global .u64 table[2] = {bad, good};"""
    body = """P: .callprototype _ (.param .b64 p); .param .b64 p; st.param.b64 [p], %rd31;
    setp.eq.u32 %p1, %r31, 9; selp.u64 %rd1, BAD, 8, %p1; mov.u64 %rd2, table; add.u64 %rd2, %rd2, %rd1;
    ld.global.u64 %rd3, [%rd2]; call %rd3, (p), P; ret;"""
    assert run(device, body.replace("BAD", "8"), module=module).tolist() == [3] * 32
    with pytest.raises(UnsupportedError, match=r"multimem\.st.*function bad") as caught:
        run(device, body.replace("BAD", "0"), module=module)
    assert caught.value.began


def test_an_invalid_function_pointer_is_a_fault(device: CpuDevice) -> None:
    body = "P: .callprototype () _ (); mov.u64 %rd1, 12345; call %rd1, (), P; ret;"
    with pytest.raises(LaunchError, match="invalid function pointer"):
        run(device, body)


def test_lanes_of_a_warp_at_different_barriers_are_refused_not_miscounted(device: CpuDevice) -> None:
    body = """setp.lt.u32 %p1, %r31, 5; @%p1 bra A; barrier.sync 0; bra E; A: barrier.sync 0; E: ret;"""
    with pytest.raises(
        UnsupportedError, match=r"barrier\.sync reached by a part of a warp \(kernel k, test"
    ) as e:
        run(device, body, threads=64)
    assert e.value.began


def test_an_early_return_does_not_stop_a_barrier(device: CpuDevice) -> None:
    body = "setp.ge.u32 %p1, %r31, 40; @%p1 ret; barrier.sync 0; st.global.u32 [%rd31], 1; ret;"
    assert run(device, body, threads=96).tolist() == [1] * 40 + [0] * 56


def test_brkpt_ends_the_launch(device: CpuDevice) -> None:
    with pytest.raises(LaunchError, match=r"kernel k, block \(0, 0, 0\), thread \(6, 0, 0\): breakpoint"):
        run(device, "setp.gt.u32 %p1, %r31, 5; @%p1 brkpt; ret;")


def test_unsupported_instructions_are_named_with_their_place(device: CpuDevice) -> None:
    body = "mov.u64 %rd1, 0;\nmultimem.st.relaxed.sys.global.u32 [%rd1], 1; ret;"
    with pytest.raises(UnsupportedError, match=r"multimem.*kernel k, test.ptx:9"):
        run(device, body)


def test_unsupported_forms_are_named_as_ptx_spells_them(device: CpuDevice) -> None:
    body = "tcgen05.fence::before_thread_sync; ret;"
    with pytest.raises(UnsupportedError, match=r"tcgen05\.fence::before_thread_sync \("):
        run(device, body)


def test_one_bad_kernel_does_not_lose_the_others(device: CpuDevice) -> None:
    text = HEADER + ".visible .entry good() { ret; }\n.visible .entry bad() { nonsense.u32 %r1; ret; }"
    code = device.load(parse_module(text))
    device.launch(code.kernel("good"), (1, 1, 1), (32, 1, 1), b"")
    with pytest.raises(PtxError):
        code.kernel("bad")
    with pytest.raises(Error, match="no kernel ugly; it has good, bad"):
        code.kernel("ugly")


def test_values_of_128_bits(device: CpuDevice) -> None:
    data = np.arange(64, dtype=np.uint32)
    body = """mul.wide.u32 %rd1, %r31, 16; add.s64 %rd1, %rd30, %rd1; setp.lt.u32 %p1, %r31, 16;
    @!%p1 bra DONE;
    ld.global.b128 %q1, [%rd1]; mov.b128 {%rd2, %rd3}, %q1; mov.b128 %q2, {%rd3, %rd2};
    st.global.b128 [%rd1], %q2;
    DONE: ret;"""
    swapped = data.reshape(16, 2, 2)[:, ::-1].reshape(-1)
    assert np.array_equal(run(device, body, data=data), swapped)


@pytest.mark.parametrize("vector", [2, 4, 8])
def test_vectors_by_rows_and_gathered(device: CpuDevice, vector: int) -> None:
    """Stores in another order than they were loaded: neither side is consecutive on both ends."""
    registers = ", ".join(f"%r{i}" for i in range(vector))
    bits = "b32" if vector < 8 else "f32"
    registers = registers if vector < 8 else ", ".join(f"%f{i}" for i in range(8))
    data = np.arange(32 * vector, dtype=np.uint32)
    body = f"""mul.wide.u32 %rd1, %r31, {4 * vector}; add.s64 %rd1, %rd30, %rd1;
    xor.b32 %r20, %r31, 13; mul.wide.u32 %rd2, %r20, {4 * vector}; add.s64 %rd2, %rd30, %rd2;
    ld.global.v{vector}.{bits} {{{registers}}}, [%rd1]; st.global.v{vector}.{bits} [%rd2], {{{registers}}};
    ret;"""
    rows = data.reshape(32, vector)[np.arange(32) ^ 13]
    if vector == 8:
        body = body.replace("{%f", "{ %f")
    header = HEADER.replace("sm_90", "sm_100") if vector == 8 else HEADER
    assert np.array_equal(run(device, body, data=data, header=header), rows.reshape(-1))


def test_narrow_loads_extend_by_type(device: CpuDevice) -> None:
    data = np.full(32, 0xFFFFFF80, np.uint32)
    body = """setp.lt.u32 %p1, %r31, 8; ld.global.s8 %r1, [%rd31]; ld.global.u8 %r2, [%rd31];
    ld.global.s16 %r3, [%rd31];
    ld.global.u16 %r4, [%rd31]; and.b32 %r5, %r31, 3; setp.eq.u32 %p1, %r5, 1; setp.eq.u32 %p2, %r5, 2;
    setp.eq.u32 %p3, %r5, 3;
    selp.b32 %r1, %r2, %r1, %p1; selp.b32 %r1, %r3, %r1, %p2; selp.b32 %r1, %r4, %r1, %p3;
    st.global.u32 [%rd31], %r1; ret;"""
    expected = [0xFFFFFF80, 0x80, 0xFFFFFF80, 0xFF80] * 8
    assert run(device, body, data=data).tolist() == expected


def test_loaded_nans_keep_their_payload_and_computed_ones_are_canonical(device: CpuDevice) -> None:
    data = np.full(32, 0x7F812345, np.uint32)
    body = """ld.global.f32 %f1, [%rd31]; add.f32 %f2, %f1, %f1; setp.lt.u32 %p1, %r31, 16;
    selp.f32 %f3, %f1, %f2, %p1; st.global.f32 [%rd31], %f3; ret;"""
    assert run(device, body, data=data).tolist() == [0x7F812345] * 16 + [0x7FFFFFFF] * 16


def test_a_register_that_holds_both_kinds_of_nan(device: CpuDevice) -> None:
    data = np.full(32, 0xFFC00001, np.uint32)
    body = """ld.global.f32 %f1, [%rd31]; setp.lt.u32 %p1, %r31, 10; @%p1 mul.f32 %f1, %f1, %f1;
    mov.b32 %r1, %f1; st.global.u32 [%rd31], %r1; ret;"""
    assert run(device, body, data=data).tolist() == [0x7FFFFFFF] * 10 + [0xFFC00001] * 22


def test_initial_values_and_addresses_in_data(device: CpuDevice) -> None:
    module = """.global .align 4 .u32 numbers[4] = {1, 2, 3};
    .const .align 8 .u64 where[2] = {generic(numbers)+8, numbers};
    .global .align 8 .u64 chain = where;"""
    body = """mov.u64 %rd1, where; cvta.const.u64 %rd1, %rd1; ld.u64 %rd2, [%rd1]; ld.u32 %r1, [%rd2];
    ld.const.u64 %rd3, [where+8]; ld.global.u32 %r2, [%rd3+4]; ld.global.u64 %rd4, [chain];
    sub.s64 %rd5, %rd4, %rd1;
    cvt.u32.u64 %r3, %rd5; mad.lo.u32 %r1, %r1, 10, %r2; add.u32 %r1, %r1, %r3; st.global.u32 [%rd31], %r1;
    ret;"""
    assert run(device, body, module=module).tolist() == [32] * 32


def test_shared_addresses_of_32_and_64_bits(device: CpuDevice) -> None:
    module = ".shared .align 16 .b8 first[48];\n.extern .shared .align 16 .b32 rest[];"
    body = """mov.u32 %r1, rest; shl.b32 %r2, %r31, 2; add.u32 %r1, %r1, %r2; st.shared.u32 [%r1], %r31;
    mov.u64 %rd1, rest; cvta.shared.u64 %rd2, %rd1; sub.u32 %r3, 31, %r31; mul.wide.u32 %rd3, %r3, 4;
    add.s64 %rd2, %rd2, %rd3;
    bar.warp.sync -1; ld.u32 %r4, [%rd2]; cvta.to.shared.u64 %rd4, %rd2; ld.shared.u32 %r5, [%rd4];
    isspacep.shared %p1, %rd2; selp.u32 %r6, 1, 0, %p1; mov.u32 %r7, first; mad.lo.u32 %r4, %r4, 100, %r5;
    mad.lo.u32 %r4, %r4, 2, %r6;
    add.u32 %r4, %r4, %r7; st.global.u32 [%rd31], %r4; ret;"""
    expected = [((31 - t) * 101) * 2 + 1 for t in range(32)]
    assert run(device, body, module=module, shared=128).tolist() == expected


def test_parameters_have_addresses(device: CpuDevice) -> None:
    body = """mov.b64 %rd1, out; cvta.param.u64 %rd2, %rd1; ld.u64 %rd3, [%rd2]; setp.eq.u64 %p1, %rd3, %rd30;
    isspacep.global %p2, %rd2; and.pred %p1, %p1, %p2; selp.u32 %r1, 7, 0, %p1; st.global.u32 [%rd31], %r1;
    ret;"""
    assert run(device, body).tolist() == [7] * 32


def test_lanes_store_to_one_address_in_order(device: CpuDevice) -> None:
    assert run(device, "st.global.u32 [%rd30], %r31; ret;", threads=32)[0] == 31


def test_uniform_branch_table(device: CpuDevice) -> None:
    body = """ld.global.u32 %r1, [%rd30]; T: .branchtargets A, B, C; brx.idx.uni %r1, T;
    A: mov.u32 %r2, 10; bra E; B: mov.u32 %r2, 20; bra E; C: mov.u32 %r2, 30;
    E: st.global.u32 [%rd31], %r2; ret;"""
    assert run(device, body, data=np.full(32, 1, np.uint32)).tolist() == [20] * 32


def test_wrapping_indices_are_not_taken_for_consecutive(device: CpuDevice) -> None:
    """An index that wraps inside a warp: 2³² - 16 + lane, extended to 64 bits."""
    body = """ld.global.u32 %r1, [%rd30]; add.u32 %r1, %r1, %r31; cvt.u64.u32 %rd1, %r1;
    shr.u64 %rd1, %rd1, 28;
    cvt.u32.u64 %r2, %rd1; st.global.u32 [%rd31], %r2; ret;"""
    assert run(device, body, data=np.full(32, 0xFFFFFFF0, np.uint32)).tolist() == [15] * 16 + [0] * 16


@pytest.mark.parametrize(
    ("grid", "block", "reason"),
    [
        ((0, 1, 1), (32, 1, 1), "grid"),
        ((1, 1, 1), (1025, 1, 1), "block"),
        ((1, 1, 1), (32, 33, 1), "1056 threads a block, 1024 allowed"),
        ((1, 70000, 1), (1, 1, 1), "grid"),
    ],
)
def test_launches_cuda_refuses(
    device: CpuDevice, grid: tuple[int, int, int], block: tuple[int, int, int], reason: str
) -> None:
    kernel = device.load(parse_module(HEADER + ".visible .entry k() { ret; }")).kernel("k")
    with pytest.raises(LaunchError, match=f"invalid configuration: {reason}"):
        device.launch(kernel, grid, block, b"")


def test_limits_a_kernel_declares(device: CpuDevice) -> None:
    text = HEADER + ".visible .entry k(.param .u64 p) .reqntid 64, 1, 1 { ret; }"
    kernel = device.load(parse_module(text)).kernel("k")
    with pytest.raises(LaunchError, match=r"\.reqntid is \(64, 1, 1\)"):
        device.launch(kernel, (1, 1, 1), (32, 1, 1), bytes(8))
    with pytest.raises(LaunchError, match="4 bytes of parameters, 8 needed"):
        device.launch(kernel, (1, 1, 1), (64, 1, 1), bytes(4))
    with pytest.raises(LaunchError, match="shared memory"):
        device.launch(kernel, (1, 1, 1), (64, 1, 1), bytes(8), shared_bytes=1 << 20)


def test_variables_where_the_record_had_them(device: CpuDevice) -> None:
    address = device.allocate(512)
    device.free(address)
    module = parse_module(HEADER + ".global .u32 x = 5; .visible .entry k() { ret; }")
    code = device.load(module, globals_at={"x": address})
    assert code.global_variable("x") == (address, 4)
    assert device.read(address, 4) == struct.pack("<I", 5)
    code.unload()
    assert device.allocate(512, address=address) == address
    device.free(address)


TILES = "shr.u32 %r1, %r31, 3; and.b32 %r1, %r1, 3; shl.b32 %r1, %r1, 3; shl.b32 %r2, 255, %r1;"
"""``%r2``: the members of the thread's tile of eight lanes."""


@pytest.mark.parametrize("op", ["add.s32", "min.s32", "max.u32", "and.b32", "or.b32", "xor.b32"])
def test_tiles_of_a_warp_reduce_each_by_itself(device: CpuDevice, op: str) -> None:
    body = f"""{TILES} mul.lo.u32 %r3, %r31, 2654435761; redux.sync.{op} %r4, %r3, %r2;
    st.global.u32 [%rd31], %r4; ret;"""
    values = (np.arange(32, dtype=np.uint64) * 2654435761).astype(np.uint32).reshape(4, 8)
    name, kind = op.split(".")
    signed = values.view(np.int32) if kind == "s32" else values
    function = {"add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and,
                "or": np.bitwise_or, "xor": np.bitwise_xor}[name]  # fmt: skip
    expected = np.repeat(function.reduce(signed, axis=1, dtype=signed.dtype).view(np.uint32), 8)
    assert run(device, body).tolist() == expected.tolist()


def test_tiles_of_a_warp_match_each_by_itself(device: CpuDevice) -> None:
    body = f"""{TILES} and.b32 %r3, %r31, 1; setp.lt.u32 %p1, %r31, 16; selp.b32 %r3, %r3, 5, %p1;
    match.any.sync.b32 %r4, %r3, %r2; match.all.sync.b32 %r5|%p2, %r3, %r2;
    selp.b32 %r6, 1, 0, %p2; xor.b32 %r5, %r5, %r6; shl.b32 %r5, %r5, 1; xor.b32 %r4, %r4, %r5;
    st.global.u32 [%rd31], %r4; ret;"""
    expected = []
    for lane in range(32):
        tile = 255 << lane // 8 * 8
        same = tile & (0xAAAAAAAA if lane & 1 else 0x55555555) if lane < 16 else tile
        whole = (tile ^ 1 if lane >= 16 else 0) << 1
        expected.append((same ^ whole) & 0xFFFFFFFF)
    assert run(device, body).tolist() == expected
