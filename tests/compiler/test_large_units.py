"""Functions of large units are written for one thread: what they compute is the same."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from zluda.compiler import compile_kernel, large
from zluda.compiler.cpu.compile import kernel_ir
from zluda.compiler.unit import kernel_unit
from zluda.device import open_device
from zluda.device.cpu import CpuDevice
from zluda.errors import LaunchError, UnsupportedError
from zluda.ptx import Module, parse_module

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"

FUNCTIONS = """
.shared .align 4 .b32 tile[128];
.func (.param .align 4 .b8 r[8]) pair(.param .b32 n, .param .align 8 .b8 v[8]) {
 .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .pred %p<3>; .reg .b64 %d<4>; .local .align 4 .b8 room[16];
 ld.param.u32 %r1, [n]; ld.param.u32 %r2, [v]; ld.param.f32 %f1, [v+4];
 mov.u64 %d1, room; and.b32 %r3, %r1, 3; mul.wide.u32 %d2, %r3, 4; add.s64 %d1, %d1, %d2;
 st.local.u32 [room], 11; st.local.u32 [room+4], 22; st.local.u32 [room+8], 33; st.local.u32 [room+12], 44;
 mov.u32 %r4, 0; mov.f32 %f2, 0f00000000;
AGAIN: setp.ge.u32 %p1, %r4, %r3; @%p1 bra OVER;
 fma.rn.ftz.f32 %f2, %f2, 0f3F000000, %f1; mul.ftz.f32 %f2, %f2, 0f1F800000; rcp.approx.ftz.f32 %f3, %f1;
 add.f32 %f2, %f2, %f3; add.u32 %r4, %r4, 1; bra AGAIN;
OVER: ld.local.u32 %r5, [%d1]; add.u32 %r5, %r5, %r2; mov.u32 %r6, %lanemask_lt; add.u32 %r5, %r5, %r6;
 st.param.u32 [r], %r5; st.param.f32 [r+4], %f2; ret; }
.func (.reg .b32 %o) outer(.reg .b32 %i, .reg .b64 %sum) {
 .reg .b32 %r<9>; .reg .f32 %f<3>; .reg .pred %p<3>; .reg .b64 %d<3>;
 .param .align 4 .b8 back[8]; .param .b32 first; .param .align 8 .b8 second[8];
 mov.u32 %o, %tid.y; setp.lt.u32 %p1, %i, 5; @%p1 bra DONE;
 mov.u32 %r1, %tid.x; cvt.rn.f32.u32 %f1, %r1; st.param.b32 [first], %i; st.param.b32 [second], %r1;
 st.param.f32 [second+4], %f1; call (back), pair, (first, second);
 ld.param.b32 %r2, [back]; ld.param.b32 %r3, [back+4]; xor.b32 %o, %r2, %r3; mov.u32 %r4, %laneid;
 add.u32 %o, %o, %r4; red.global.add.u32 [%sum], %i; atom.global.max.s32 %r5, [%sum+4], %i;
 mul.lo.u32 %r6, %i, 4; mov.u32 %r7, tile; add.u32 %r7, %r7, %r6; st.shared.u32 [%r7], %o;
 ld.shared.u32 %o, [%r7];
DONE: ret; }
"""

KERNEL = """
.visible .entry k(.param .u64 out, .param .u64 sum) {
 .reg .b64 %d<9>; .reg .b32 %r<9>; .reg .pred %p<3>;
 ld.param.u64 %d1, [out]; ld.param.u64 %d2, [sum];
 mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %ntid.x;
 mad.lo.u32 %r1, %r2, %r3, %r1; mul.wide.u32 %d3, %r1, 4; add.s64 %d1, %d1, %d3;
 mov.u32 %r4, 7; and.b32 %r5, %r1, 1; setp.eq.u32 %p1, %r5, 1; @%p1 bra PAST;
 call (%r4), outer, (%r1, %d2);
PAST: st.global.u32 [%d1], %r4; ret; }
"""


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZLUDA_CACHE_POLICY", "off")


def all_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "LARGE", 1)


def launch(device: CpuDevice, module: Module, block: tuple[int, int, int]) -> bytes:
    size = 4 * block[0] * block[1]
    out, total = device.allocate(size), device.allocate(8)
    for place, bytes_ in ((out, size), (total, 8)):
        device.write(place, bytes(bytes_))
    code = device.load(module)
    device.launch(code.kernel("k"), (1, 1, 1), block, struct.pack("<QQ", out, total))
    return bytes(device.read(out, size) + device.read(total, 8))


def solo_names(text: str) -> frozenset[str]:
    unit = kernel_unit(parse_module(HEAD + text), "k", (32, 1, 1))
    kernel_ir(unit)
    return unit.solo


@pytest.mark.parametrize("block", [(33, 1, 1), (7, 9, 1)])
def test_one_thread_computes_what_a_warp_does(
    monkeypatch: pytest.MonkeyPatch, block: tuple[int, int, int]
) -> None:
    module = parse_module(HEAD + FUNCTIONS + KERNEL)
    device = CpuDevice(threads=1)
    wide = launch(device, module, block)
    all_large(monkeypatch)
    single = launch(device, parse_module(HEAD + FUNCTIONS + KERNEL), block)
    device.close()
    assert len(set(np.frombuffer(wide, np.uint32))) > 15
    assert single == wide


def test_a_large_unit_for_a_gpu_computes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    all_large(monkeypatch)
    results = []
    for name in ("cpu", "gfx1030"):
        with open_device(name) as device:
            out, total = device.array(np.zeros(33, np.uint32)), device.array(np.zeros(2, np.uint32))
            kernel = device.load_module(HEAD + FUNCTIONS + KERNEL).kernel("k")
            kernel.launch(grid=1, block=33, args=[out, total])
            results.append((out.numpy().tolist(), total.numpy().tolist()))
    assert results[0] == results[1]


def test_called_operations_flush_as_those_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    bits = [0, 1, 0x7FFFFF, 0x800000, 0x800001, 0xFFFFFF, 0x3F800000, 0x3F7FFFFF, 0x20000000, 0x1FFFFFFF]
    bits += [0x7F7FFFFF, 0x7F800000, 0x7FC00000, 0x3F000000, 0x33800000, 0x00C00000]
    values = np.array([b | sign << 31 for b in bits for sign in (0, 1)], np.uint32)
    operations = ("mul.ftz.f32", "add.ftz.f32", "sub.ftz.f32", "mul.ftz.sat.f32", "fma.rn.ftz.f32")
    body = "\n".join(
        f"{operation} %f9, %f1, %f2{', %f3' * operation.startswith('fma')};"
        " st.global.f32 [%d2], %f9; add.u64 %d2, %d2, 131072;"
        for operation in operations
    )
    text = f"""{HEAD}.visible .entry k(.param .u64 in, .param .u64 out) {{
    .reg .b64 %d<9>; .reg .b32 %r<9>; .reg .f32 %f<10>;
    ld.param.u64 %d1, [in]; ld.param.u64 %d2, [out]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ctaid.y; mad.wide.u32 %d3, %r1, 4, %d1; mad.wide.u32 %d4, %r2, 4, %d1;
    mad.wide.u32 %d5, %r3, 4, %d1; ld.global.f32 %f1, [%d3];
    ld.global.f32 %f2, [%d4]; ld.global.f32 %f3, [%d5];
    mad.lo.u32 %r4, %r3, 32, %r2; mad.lo.u32 %r4, %r4, 32, %r1; mad.wide.u32 %d2, %r4, 4, %d2; {body} ret; }}
    """
    results = []
    for setting in (large.LARGE, 1):
        monkeypatch.setattr(large, "LARGE", setting)
        with open_device("cpu") as device:
            given, out = device.array(values), device.array(np.zeros(5 * 32**3, np.uint32))
            kernel = device.load_module(text).kernel("k")
            kernel.launch(grid=(32, 32), block=32, args=[given, out])
            results.append(out.numpy())
    assert len(np.unique(results[0])) > 150
    assert np.array_equal(results[0], results[1])


def test_functions_of_lanes_together_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    all_large(monkeypatch)
    text = """
    .func alone(.reg .b32 %a) { .reg .b32 %r<2>; add.u32 %r1, %a, 1; ret; }
    .func votes(.reg .b32 %a) { .reg .b32 %r<2>; vote.sync.ballot.b32 %r1, 1, -1; ret; }
    .func calls_votes(.reg .b32 %a) { call votes, (%a); ret; }
    .func waits(.reg .b64 %a) { .reg .b32 %r<2>; .reg .pred %p;
    AGAIN: ld.volatile.u32 %r1, [%a]; setp.eq.u32 %p, %r1, 0; @%p bra AGAIN; ret; }
    .visible .entry k() { .reg .b32 %r; .reg .b64 %d; mov.u32 %r, 1; mov.u64 %d, 0;
    call alone, (%r); call calls_votes, (%r); call waits, (%d); ret; }
    """
    assert solo_names(text) == {"alone"}


def test_what_is_small_has_no_function_of_one_thread() -> None:
    assert solo_names(FUNCTIONS + KERNEL) == set()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("setp.ne.u32 %p, %r1, 35; @%p bra PAST; trap;\nPAST: ret;", "trap"),
        ("setp.ne.u32 %p, %r1, 35; @%p bra PAST; st.global.u32 [%d+2], 1;\nPAST: ret;", "misaligned"),
    ],
)
def test_a_fault_names_the_thread(monkeypatch: pytest.MonkeyPatch, body: str, said: str) -> None:
    all_large(monkeypatch)
    text = f"""
    .func bad(.reg .b64 %d) {{ .reg .b32 %r<2>; .reg .pred %p; mov.u32 %r1, %tid.x; {body} }}
    .visible .entry k(.param .u64 out, .param .u64 sum) {{
    .reg .b64 %d; ld.param.u64 %d, [out]; call bad, (%d); ret; }}
    """
    device = CpuDevice(threads=1)
    with pytest.raises(LaunchError, match=rf"thread \(35, 0, 0\).*{said}"):
        launch(device, parse_module(HEAD + text), (64, 1, 1))
    device.close()


def test_a_function_without_a_lowering_stops_who_calls_it(monkeypatch: pytest.MonkeyPatch) -> None:
    all_large(monkeypatch)
    text = """
    .extern .func missing(.param .b32 x);
    .func bad(.reg .b32 %a) { .param .b32 x; st.param.b32 [x], %a; call missing, (x); ret; }
    .visible .entry k(.param .u64 out, .param .u64 sum) { .reg .b32 %r; mov.u32 %r, 1; call bad, (%r); ret; }
    """
    device = CpuDevice(threads=1)
    with pytest.raises(UnsupportedError, match="missing"):
        launch(device, parse_module(HEAD + text), (32, 1, 1))
    device.close()


def test_a_gpu_gets_little_optimisation_of_what_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    module = parse_module(HEAD + FUNCTIONS + KERNEL)
    usual = compile_kernel(module, "k", "gfx1030")
    all_large(monkeypatch)
    quick = compile_kernel(module, "k", "gfx1030")
    assert len(quick.code) > len(usual.code)
