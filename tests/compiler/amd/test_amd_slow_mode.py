"""One warp a wave of 64 lanes: which kernels ask for it, and what they compute."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import zluda
from zluda.compiler import compile_kernel
from zluda.compiler.amd.code_object import CodeObject
from zluda.compiler.amd.halves import may_disturb
from zluda.compiler.amd.linker import link
from zluda.compiler.amd.unit import build_unit
from zluda.errors import UnsupportedError
from zluda.ptx import parse_module

ROOT = Path(__file__).resolve().parents[3]
FEATURES = (ROOT / "tests/compiler/data/features.ptx").read_text()
REASONS = {
    "paths": "warps that may meet different barriers",
    "pipeline": "a barrier for some of a block's threads",
    "spin": "warps that may wait for each other",
    "locks": "warps that may wait for each other",
    "token": "warps that may wait for each other",
    "contention": "warps that may wait for each other",
    "stops": "warps that may meet different barriers",
}
HEADER = ".version 8.0\n.target sm_90\n.address_size 64\n"
REGISTERS = ".reg .b32 %r<12>; .reg .b64 %rd<8>; .reg .pred %p<8>;"
START = "ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mad.wide.u32 %rd2, %r1, 4, %rd1;"


def _kernel(body: str, before: str = "") -> str:
    return f"{HEADER}{before}.visible .entry k(.param .u64 out) {{ {REGISTERS} {START}\n{body}\nret; }}"


@pytest.mark.parametrize("name", parse_module(FEATURES).kernel_names)
def test_kernels_that_ask_for_one_warp_a_wave(name: str) -> None:
    reason = may_disturb(build_unit(parse_module(FEATURES), name))
    expected = REASONS.get(name, "")
    assert reason.startswith(expected) and bool(reason) == bool(expected)


def test_ordinary_kernels_do_not_ask() -> None:
    module = parse_module((ROOT / "bench/kernels/twelve.ptx").read_text())
    assert not any(may_disturb(build_unit(module, name)) for name in module.kernel_names)


# body → whether its warps may disturb each other
_ASKS = {
    "a barrier behind a test of the block's number": (
        "mov.u32 %r2, %ctaid.x; setp.eq.u32 %p1, %r2, 0;\n@%p1 bra over;\nbar.sync 0;\nover:\nbar.sync 0;",
        False,
    ),
    "a barrier after threads have left": ("setp.gt.u32 %p1, %r1, 40;\n@%p1 ret;\nbar.sync 0;", False),
    "threads that skip all barriers there are": (
        "setp.gt.u32 %p1, %r1, 40;\n@%p1 bra over;\nbar.sync 0;\nover:\nst.global.u32 [%rd2], %r1;",
        False,
    ),
    "a barrier that some threads skip": (
        "setp.gt.u32 %p1, %r1, 40;\n@%p1 bra over;\nbar.sync 0;\nover:\nbar.sync 0;",
        True,
    ),
    "a barrier as often as a thread says": (
        "again:\nbar.sync 0;\nsub.u32 %r1, %r1, 32;\nsetp.gt.s32 %p1, %r1, 0;\n@%p1 bra again;\nbar.sync 0;",
        True,
    ),
    "a barrier in a loop over what memory says of all": (
        "again:\nbar.sync 0;\nld.global.u32 %r2, [%rd1];\nsetp.gt.s32 %p1, %r2, 0;\n@%p1 bra again;\n"
        "bar.sync 0;",
        False,
    ),
    "one thread waits for other blocks, between barriers": (
        "bar.sync 0;\nsetp.ne.u32 %p1, %r1, 0;\n@%p1 bra over;\natom.global.add.u32 %r2, [%rd1], 1;\n"
        "again:\nld.volatile.global.u32 %r3, [%rd1];\nsetp.lt.u32 %p2, %r3, 4;\n@%p2 bra again;\n"
        "over:\nbar.sync 0;\nst.global.u32 [%rd2], %r1;",
        False,
    ),
    "a flag that is set after others are awaited": (
        "again:\nld.acquire.gpu.global.u32 %r3, [%rd2];\nsetp.eq.u32 %p2, %r3, 0;\n@%p2 bra again;\n"
        "st.release.gpu.global.u32 [%rd2+4], %r1;",
        True,
    ),
    "compare-and-swap of what was read": (
        "ld.global.u32 %r2, [%rd1];\nagain:\nadd.u32 %r3, %r2, %r1;\n"
        "atom.global.cas.b32 %r4, [%rd1], %r2, %r3;\n"
        "setp.ne.u32 %p1, %r4, %r2;\nmov.u32 %r2, %r4;\n@%p1 bra again;",
        False,
    ),
    "a lock": (
        "again:\natom.global.cas.b32 %r4, [%rd1], 0, 1;\nsetp.ne.u32 %p1, %r4, 0;\n@%p1 bra again;",
        True,
    ),
    "a queue of work": (
        "again:\natom.global.add.u32 %r4, [%rd1], 1;\nsetp.lt.u32 %p1, %r4, 99;\n@%p1 bra again;",
        False,
    ),
}


@pytest.mark.parametrize("case", _ASKS)
def test_what_asks(case: str) -> None:
    body, asks = _ASKS[case]
    assert bool(may_disturb(build_unit(parse_module(_kernel(body)), "k"))) == asks


@pytest.mark.parametrize(("mode", "asked"), [("", True), ("0", False), ("1", True)])
def test_the_variable_decides(mode: str, asked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if mode:
        monkeypatch.setenv("ZLUDA_WAVE64_SLOW_MODE", mode)
    module = parse_module(FEATURES)
    assert bool(compile_kernel(module, "paths", "gfx90a").one_warp) == asked
    assert bool(compile_kernel(module, "prefix", "gfx90a").one_warp) == (mode == "1")
    assert not compile_kernel(module, "paths", "gfx1030").one_warp
    assert bool(compile_kernel(module, "paths", "gfx1030", wave_size=64).one_warp) == asked


@pytest.mark.parametrize("version", [4, 5])
def test_a_workgroup_has_room_for_512_threads(version: int) -> None:
    compiled = compile_kernel(parse_module(FEATURES), "paths", "gfx90a", code_object_version=version)
    kernel = CodeObject(link(compiled.code)).kernel("paths")
    assert kernel.max_flat_workgroup_size == 1024


INDICES = _kernel(
    """mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z;
    mov.u32 %r4, %ntid.x; mov.u32 %r5, %ntid.y; mov.u32 %r6, %ntid.z;
    mad.lo.u32 %r7, %r3, %r5, %r2; mad.lo.u32 %r7, %r7, %r4, %r1; mad.wide.u32 %rd3, %r7, 32, %rd1;
    mov.u32 %r8, %laneid; mov.u32 %r9, %warpid; mov.u32 %r10, %nwarpid; mad.lo.u32 %r9, %r9, 100, %r10;
    st.global.v4.u32 [%rd3], {%r1, %r2, %r3, %r8}; st.global.v4.u32 [%rd3+16], {%r4, %r5, %r6, %r9};"""
)


@pytest.mark.parametrize("block", [(1, 1, 1), (7, 5, 3), (33, 2, 1), (4, 2, 8), (512, 1, 1)])
@pytest.mark.parametrize(("name", "wave64"), [("gfx90a", "0"), ("gfx1030", "1"), ("gfx1100", "1")])
def test_threads_know_their_place(
    name: str, wave64: str, block: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZLUDA_WAVE64_MODE", wave64)
    monkeypatch.setenv("ZLUDA_WAVE64_SLOW_MODE", "1")
    x, y, z = block
    threads = x * y * z
    with zluda.open_device(name) as device:
        out = device.array(np.zeros((threads + 1, 8), np.uint32))
        device.load_module(INDICES).kernel("k").launch(grid=2, block=block, args=[out])
        t = np.arange(threads)
        place = [t % x, t // x % y, t // (x * y), t % 32]
        rest = [np.full(threads, n) for n in block] + [t // 32 * 100 + (threads + 31) // 32]
        assert np.array_equal(out.numpy()[:-1], np.stack([*place, *rest], axis=1))
        assert not out.numpy()[-1].any()


def test_more_threads_than_a_workgroup_has_room_for_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZLUDA_WAVE64_SLOW_MODE", "1")
    with zluda.open_device("gfx90a") as device:
        out = device.array(np.zeros((1024, 8), np.uint32))
        kernel = device.load_module(INDICES).kernel("k")
        with pytest.raises(UnsupportedError, match=r"a block of 513 threads .* at most 512.*kernel k"):
            kernel.launch(grid=1, block=513, args=[out])


# Warp 1 waits for warp 0, which comes later in the program; then both for the block, at barriers apart.
HANDSHAKE = _kernel(
    """setp.lt.u32 %p1, %r1, 32;
    @%p1 bra first;
    again:
    ld.volatile.shared.u32 %r2, [flag];
    setp.eq.u32 %p2, %r2, 0;
    @%p2 bra again;
    st.global.u32 [%rd2], %r2;
    bar.sync 0;
    bra done;
    first:
    st.global.u32 [%rd2], %r1;
    st.volatile.shared.u32 [flag], 77;
    bar.sync 0;
    done:""",
    before=".shared .align 4 .u32 flag;\n",
)


@pytest.mark.parametrize(("name", "wave64"), [("gfx90a", "0"), ("gfx1030", "1"), ("gfx1030", "0")])
def test_warps_wait_for_each_other(name: str, wave64: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZLUDA_WAVE64_MODE", wave64)
    with zluda.open_device(name) as device:
        out = device.array(np.zeros(64, np.uint32))
        device.load_module(HANDSHAKE).kernel("k").launch(grid=1, block=64, args=[out])
        assert out.numpy().tolist() == [*range(32), *[77] * 32]


@pytest.mark.parametrize("threads", [32, 96, 100])
def test_functions_know_the_block_too(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that is not inlined finds the block's size in front of the hidden arguments."""
    monkeypatch.setenv("ZLUDA_WAVE64_SLOW_MODE", "1")
    text = """
    .func (.param .b32 r) f(.param .b32 n) { .reg .b32 %r<6>; .reg .pred %p; .reg .b64 %rd;
      ld.param.u32 %r1, [n]; setp.eq.u32 %p, %r1, 0; mov.u32 %r2, %tid.x; mov.u32 %r3, %ntid.x;
      mad.lo.u32 %r2, %r3, 1000, %r2;
      @%p bra done;
      sub.u32 %r4, %r1, 1;
      { .param .b32 a; .param .b32 b; st.param.b32 [a], %r4; call (b), f, (a); ld.param.b32 %r2, [b]; }
      add.u32 %r2, %r2, 1000000;
    done:
      st.param.b32 [r], %r2; ret; }
    """
    body = "{ .param .b32 a; .param .b32 b; and.b32 %r2, %r1, 3; st.param.b32 [a], %r2; call (b), f, (a);"
    body += "ld.param.b32 %r3, [b]; } st.global.u32 [%rd2], %r3;"
    with zluda.open_device("gfx90a") as device:
        out = device.array(np.zeros(threads, np.uint32))
        device.load_module(_kernel(body, before=text)).kernel("k").launch(grid=1, block=threads, args=[out])
        assert out.numpy().tolist() == [t % 4 * 1000000 + threads * 1000 + t for t in range(threads)]
