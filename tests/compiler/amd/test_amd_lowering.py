"""PTX on AMD targets: what the code object asks for, and what is named where it cannot be done."""

from __future__ import annotations

import numpy as np
import pytest

import zluda
from zluda.compiler import compile_kernel
from zluda.compiler.amd.code_object import CodeObject
from zluda.compiler.amd.faults import fence_products
from zluda.compiler.amd.linker import link
from zluda.compiler.amd.report import report, unit_of
from zluda.errors import DeviceError, UnsupportedError
from zluda.ptx import parse_module

TARGETS = ("gfx1030", "gfx1100", "gfx90a")
HEADER = ".version 8.0\n.target sm_90\n.address_size 64\n"


def _kernel(body: str, parameters: str = ".param .u64 p", before: str = "") -> str:
    registers = (
        "".join(f".reg .b{n} %{name}<9>;" for name, n in (("h", 16), ("r", 32), ("rd", 64)))
        + ".reg .pred %p<9>; .reg .f32 %f<9>;"
    )
    return f"{HEADER}{before}\n.visible .entry k({parameters})\n{{ {registers}\n{body}\nret; }}\n"


def _code(text: str, name: str, wave_size: int = 0) -> CodeObject:
    compiled = compile_kernel(parse_module(text), "k", name, wave_size=wave_size)
    return CodeObject(link(compiled.code, dict.fromkeys(compiled.symbols, 4096)))


@pytest.mark.parametrize("name", TARGETS)
def test_the_kernarg_segment_is_the_packed_parameter_buffer(name: str) -> None:
    text = _kernel("ld.param.f64 %rd1, [d];", ".param .u8 a, .param .f64 d, .param .align 4 .b8 s[12]")
    entry = _code(text, name).kernel("k")
    assert [(a.offset, a.size, a.kind) for a in entry.arguments] == [(0, 28, "by_value")]


@pytest.mark.parametrize("name", TARGETS)
def test_shared_memory_is_laid_out_by_this_compiler(name: str) -> None:
    shared = ".shared .align 8 .b8 a[24]; .extern .shared .align 16 .b8 dynamic[];"
    text = _kernel("st.shared.u32 [a+20], 1; st.shared.u32 [dynamic], 2;", before=shared)
    compiled = compile_kernel(parse_module(text), "k", name)
    assert (compiled.shared_bytes, compiled.dynamic_shared_offset) == (24, 32)
    assert _code(text, name).kernel("k").descriptor.lds_bytes == 24


@pytest.mark.parametrize(("name", "wave"), [("gfx1030", 32), ("gfx1030", 64), ("gfx90a", 64)])
def test_the_wave_size_is_as_asked(name: str, wave: int) -> None:
    code = _code(_kernel("mov.u32 %r1, %laneid;"), name, wave)
    assert code.kernel("k").metadata[".wavefront_size"] == wave


@pytest.mark.parametrize(("mode", "lanes"), [("0", 32), ("1", 64)])
def test_wave64_mode_puts_two_warps_into_a_wave(
    mode: str, lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZLUDA_WAVE64_MODE", mode)
    body = """ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; mad.wide.u32 %rd2, %r1, 4, %rd1;
        mov.u32 %r2, %laneid; shfl.sync.idx.b32 %r3, %r1, 5, 31, -1;
        mad.lo.u32 %r4, %r3, 32, %r2; st.global.u32 [%rd2], %r4;"""
    with zluda.open_device("gfx1030") as device:
        out = device.array(np.zeros(96, np.uint32))
        kernel = device.load_module(_kernel(body)).kernel("k")
        kernel.launch(grid=1, block=96, args=[out])
        assert out.numpy().tolist() == [(32 * (t // 32) + 5) * 32 + t % 32 for t in range(96)]
        assert device._device.wave_size == lanes


@pytest.mark.parametrize("name", [*TARGETS, "cpu"])
def test_products_that_are_minus_zero_stay_so_in_halves(name: str) -> None:
    """LLVM fuses a product with its rounding to half, adding +0."""
    body = """ld.param.u64 %rd1, [p]; ld.global.b16 %h1, [%rd1]; ld.global.b16 %h2, [%rd1+2];
        cvt.f32.f16 %f1, %h1; cvt.f32.f16 %f2, %h2; mul.f32 %f3, %f1, %f2; cvt.rn.f16.f32 %h3, %f3;
        st.global.b16 [%rd1], %h3; st.global.f32 [%rd1+4], %f3;"""
    with zluda.open_device(name) as device:
        values = device.array(np.array([0x8000, 0x0001, 0, 0], np.uint16))
        device.load_module(_kernel(body)).kernel("k").launch(grid=1, block=1, args=[values])
        assert values.numpy().tolist() == [0x8000, 0x0001, 0, 0x8000]


_QUOTIENTS = {
    "f32": [
        (0xA2000080, 0x61121080, 0x80702BDF),  # subnormal, one bit cut off and more
        (0x58FFDA97, 0x00000002, 0x7F800000),  # overflow from a subnormal
        (0x0617E907, 0x6549E8E3, 0x00000000),  # underflow to nothing
        (0x3F800000, 0x40400000, 0x3EAAAAAB),
        (0x00000000, 0x80000000, 0x7FFFFFFF),
        (0x7F800000, 0xC0000000, 0xFF800000),
    ],
    "f64": [
        (0x1C6873D75A17AC32, 0xDC58000000000000, 0x8008269D1E07E411),
        (0x800FFFFFFFFFFFFF, 0xBFEFFFFFFFFFFFFF, 0x000FFFFFFFFFFFFF),  # just below the least normal
        (0xF21821DC1E83D53C, 0x80085ADDC287978E, 0x7FF0000000000000),
        (0x3FF0000000000000, 0x4008000000000000, 0x3FD5555555555555),
    ],
}


@pytest.mark.parametrize("kind", _QUOTIENTS)
@pytest.mark.parametrize("name", TARGETS)
def test_quotients_are_an_h200s_at_the_ends_of_the_range(name: str, kind: str) -> None:
    size = int(kind[1:]) // 8
    register = "%f" if kind == "f32" else "%rd"
    body = f"""ld.param.u64 %rd7, [p]; mov.u32 %r1, %tid.x; mad.wide.u32 %rd8, %r1, {3 * size}, %rd7;
        ld.global.{kind} {register}1, [%rd8]; ld.global.{kind} {register}2, [%rd8+{size}];
        div.rn.{kind} {register}3, {register}1, {register}2;
        st.global.{kind} [%rd8+{2 * size}], {register}3;"""
    rows = np.array(_QUOTIENTS[kind], np.uint32 if size == 4 else np.uint64)
    with zluda.open_device(name, numerics="nvidia") as device:
        values = device.array(np.concatenate([rows[:, :2], np.zeros_like(rows[:, :1])], axis=1))
        device.load_module(_kernel(body)).kernel("k").launch(grid=1, block=len(rows), args=[values])
        assert values.numpy().tolist() == rows.tolist()


def test_only_products_are_fenced() -> None:
    text = "  %a = fmul float %x, %y\n  %b = fptrunc float %a to half\n  %c = fptrunc float %z to half\n"
    fenced = fence_products(text)
    assert fenced.count('call float asm "", "=v,0"(float %a)') == 1
    assert "%c = fptrunc float %z to half" in fenced


@pytest.mark.parametrize("name", TARGETS)
def test_a_variable_is_where_the_device_put_it(name: str) -> None:
    text = _kernel(
        "ld.param.u64 %rd1, [p]; mov.u64 %rd2, v; st.global.u64 [%rd1], %rd2; st.global.u32 [v+4], 7;",
        before=".visible .global .align 8 .u32 v[2] = {5, 6};",
    )
    with zluda.open_device(name) as device:
        found = device.array(np.zeros(1, np.uint64))
        module = device.load_module(text)
        module.kernel("k").launch(grid=1, block=1, args=[found])
        address, size = module._code.global_variable("v")
        assert (int(found.numpy()[0]), size) == (address, 8)
        assert np.frombuffer(device._device.read(address, 8), np.uint32).tolist() == [5, 7]


@pytest.mark.parametrize("name", TARGETS)
def test_a_call_of_an_unknown_function_is_named_when_it_is_met(name: str) -> None:
    text = _kernel(
        "ld.param.u64 %rd1, [p]; setp.eq.s64 %p1, %rd1, 0;\n@%p1 bra done;\ncall missing, ();\ndone:",
        before=".extern .func missing;",
    )
    with zluda.open_device(name) as device:
        kernel = device.load_module(text, file="m.ptx").kernel("k")
        kernel.launch(grid=1, block=1, args=[0])
        for _ in range(2):
            with pytest.raises(UnsupportedError, match=r"call of missing.*kernel k, m\.ptx:\d+"):
                kernel.launch(grid=1, block=1, args=[1])
        kernel.launch(grid=1, block=1, args=[0])


@pytest.mark.parametrize("name", TARGETS)
def test_an_instruction_without_a_lowering_is_named(name: str) -> None:
    text = _kernel("multimem.st.relaxed.sys.global.u32 [%rd1], 3;")
    with pytest.raises(UnsupportedError, match=r"multimem\.st\S* \(kernel k, <ptx>:\d+\)"):
        compile_kernel(parse_module(text), "k", name)


def test_an_unknown_target_is_named() -> None:
    with pytest.raises(DeviceError, match="gfx1: no such AMD target"):
        compile_kernel(parse_module(_kernel("")), "k", "gfx1")


@pytest.mark.parametrize("name", TARGETS)
def test_the_report_counts(name: str) -> None:
    text = _kernel("st.shared.u32 [a], 1; bar.sync 0;", before=".shared .align 4 .b8 a[2048];")
    compiled = compile_kernel(parse_module(text), "k", name)
    found = report(link(compiled.code), "k")
    assert (found.target, found.lds_bytes, found.blocks_by_lds) == (name, 2048, 32)
    assert found.vgprs >= 1 and found.waves_per_simd == found.max_waves_per_simd
    assert found.instructions["LDS"] == 1 and found.instructions["branch"] == 1
    assert any("2048 bytes of LDS" in line for line in found.lines())


def test_every_unit_is_known() -> None:
    mnemonics = {"s_load_dwordx2": "scalar memory", "s_waitcnt": "wait", "v_add_f32_e32": "vector"}
    assert {m: unit_of(m) for m in mnemonics} == mnemonics
