"""Small programs that exercise what the bugs touch, and their traces.

A kernel is its body: each of 64 threads has 8 words of input at ``[%in]`` and 16 of output at ``[%out]``. What
it is to leave is what the exact CPU device leaves, which stands for an NVIDIA GPU here.
"""

# ruff: noqa: E501 (a row is a line)
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from bench.detect.support import ROOT, FatbinEntry, TraceBuilder, fatbin
from zluda.records import dataclass
from zluda.tracefile import ModuleKind

THREADS, WORDS_IN, WORDS_OUT = 64, 8, 16
_UNTOUCHED = 0x5A5A5A5A  # what the output holds before

_KERNEL = """\
.version 8.3
.target sm_90
.address_size 64
{variables}
.visible .entry k(.param .u64 k_param_0, .param .u64 k_param_1{parameters})
{{
    .reg .pred %p<9>;
    .reg .b16 %h<40>;
    .reg .b32 %r<40>;
    .reg .f32 %f<40>;
    .reg .b64 %d<40>;
    .reg .f64 %g<40>;
    .reg .b64 %in, %out, %at;
    .reg .b32 %tid;
    .shared .align 8 .b8 tile[1024];
    ld.param.u64 %out, [k_param_0];
    ld.param.u64 %in, [k_param_1];
    mov.u32 %tid, %tid.x;
    mul.wide.u32 %at, %tid, 32;
    add.s64 %in, %in, %at;
    mul.wide.u32 %at, %tid, 64;
    add.s64 %out, %out, %at;
{body}
    ret;
}}
"""


def _loads(kind: str, *registers: str) -> str:
    size = int(kind[1:]) // 8
    return "\n".join(f"    ld.global.{kind} {r}, [%in+{size * i}];" for i, r in enumerate(registers))


def _each(kind: str, *operations: str) -> str:
    """Operations whose results are registers from number 20 on, each stored to a place of its own."""
    size = max(int(kind[1:]) // 8, 4)
    letter = {"f32": "%f", "f64": "%g", "u64": "%d", "u16": "%h"}.get(kind, "%r")
    lines = [
        f"    {op.replace('$', f'{letter}{20 + i}')};\n    st.global.{kind} [%out+{size * i}], {letter}{20 + i};"
        for i, op in enumerate(operations)
    ]
    return "\n".join(lines)


def _words(rng: np.random.Generator) -> bytes:
    """Random bits, and edges."""
    words = rng.integers(0, 1 << 32, THREADS * WORDS_IN, np.uint32)
    edges = np.array([0, 1, 5, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFF9, 200, 33], np.uint32)
    some = rng.random(len(words)) < 0.3
    return np.where(some, edges[rng.integers(0, len(edges), len(words))], words).astype("<u4").tobytes()


def _singles(rng: np.random.Generator) -> bytes:
    """Numbers about 1, of either sign."""
    return rng.normal(0, 3, THREADS * WORDS_IN).astype("<f4").tobytes()


def _positive(rng: np.random.Generator) -> bytes:
    return rng.uniform(0.1, 50, THREADS * WORDS_IN).astype("<f4").tobytes()


def _tiny(rng: np.random.Generator) -> bytes:
    """Numbers about the smallest normal one."""
    return (rng.normal(0, 1, THREADS * WORDS_IN) * 2.0**-126).astype("<f4").tobytes()


def _wide(rng: np.random.Generator) -> bytes:
    """Numbers of all sizes, and NaN."""
    found = rng.normal(0, 1, THREADS * WORDS_IN) * 10.0 ** rng.uniform(-3, 12, THREADS * WORDS_IN)
    found[rng.random(len(found)) < 0.05] = np.nan
    return found.astype("<f4").tobytes()


def _halves(rng: np.random.Generator) -> bytes:
    """Of f16: numbers, infinities, NaN."""
    found = rng.normal(0, 5, 2 * THREADS * WORDS_IN).astype("<f2")
    found[rng.random(len(found)) < 0.15] = np.nan
    found[rng.random(len(found)) < 0.05] = np.inf
    return found.tobytes()


def _doubles(rng: np.random.Generator) -> bytes:
    return rng.normal(0, 3, THREADS * WORDS_IN // 2).astype("<f8").tobytes()


@dataclass(frozen=True, slots=True)
class Program:
    """``extra``: a parameter by value behind the two buffers, and its bytes. ``older``: the body in an image
    for an older architecture that a fatbin has beside this one.
    """

    body: str
    inputs: Callable[[np.random.Generator], bytes] = _words
    variables: str = ""
    extra: tuple[tuple[str, int, bytes], ...] = ()  # declaration, offset, bytes
    older: str = ""

    @property
    def ptx(self) -> str:
        parameters = "".join(f", {declaration}" for declaration, _, _ in self.extra)
        return _KERNEL.format(variables=self.variables, parameters=parameters, body=self.body)

    @property
    def image(self) -> str | bytes:
        """What is loaded: the text, or a fatbin of two."""
        if not self.older:
            return self.ptx
        older = replace(self, body=self.older).ptx.replace("sm_90", "sm_70")
        return fatbin(FatbinEntry(older.encode(), 70), FatbinEntry(self.ptx.encode(), 90))


_R = ("%r1", "%r2", "%r3", "%r4", "%r5", "%r6", "%r7", "%r8")
_F = ("%f1", "%f2", "%f3", "%f4")
_EXCHANGE = """\
    mov.u32 %r10, tile;
    shl.b32 %r11, %tid, 2;
    add.u32 %r12, %r10, %r11;
    st.shared.u32 [%r12], %r1;
    barrier.sync 1;
    xor.b32 %r13, %r11, 128;
    add.u32 %r13, %r10, %r13;
    ld.shared.u32 %r14, [%r13];
    st.global.u32 [%out], %r14;
    setp.lt.s32 %p1, %r1, 0;
    bar.red.popc.u32 %r15, 0, %p1;
    st.global.u32 [%out+4], %r15;"""

PROGRAMS: dict[str, Program] = {
    "bits": Program(
        _loads("u32", *_R)
        + "\n    mov.b64 %d1, {%r1, %r2};\n    mov.b64 %d2, {%r1, 0};\n    and.b32 %r9, %r3, 63;\n"
        + _each(
            "u32", "clz.b64 $, %d1", "clz.b64 $, %d2", "popc.b64 $, %d1", "clz.b32 $, %r3", "popc.b32 $, %r4",
            "bfind.s32 $, %r5", "bfind.shiftamt.u32 $, %r6", "brev.b32 $, %r7", "shf.l.wrap.b32 $, %r1, %r2, %r9",
            "shr.s32 $, %r5, %r9", "shl.b32 $, %r5, %r9", "bfe.s32 $, %r6, 5, 9", "bfi.b32 $, %r1, %r2, 7, 11",
            "prmt.b32 $, %r3, %r4, 0x1f60", "lop3.b32 $, %r5, %r6, %r7, 0xD8",
        )
    ),
    "integers": Program(
        _loads("u32", *_R)
        + "\n    or.b32 %r9, %r2, 1;\n"
        + _each(
            "u32", "div.s32 $, %r1, 7", "div.u32 $, %r1, 7", "div.s32 $, %r3, %r9", "rem.s32 $, %r4, %r9",
            "mul.hi.s32 $, %r5, %r6", "mul.hi.u32 $, %r5, %r6", "mad.lo.s32 $, %r5, %r6, %r7", "sad.u32 $, %r5, %r6, %r7",
            "min.s32 $, %r5, %r6", "max.u32 $, %r5, %r6", "mul24.lo.s32 $, %r5, %r6", "dp4a.s32.u32 $, %r5, %r6, %r7",
            "add.cc.u32 $, %r1, %r2", "addc.u32 $, %r3, %r4", "add.sat.s32 $, %r5, %r6",
        )
    ),
    "rounding": Program(
        _loads("f32", *_F)
        + "\n"
        + _each(
            "f32", "fma.rn.f32 $, %f1, %f2, %f3", "fma.rz.f32 $, %f1, %f2, %f3", "fma.rm.f32 $, %f1, %f2, %f3",
            "add.rn.f32 $, %f1, %f2", "add.rp.f32 $, %f1, %f2", "mul.rn.f32 $, %f1, %f4", "mul.rz.f32 $, %f1, %f4",
            "sub.rn.f32 $, %f3, %f4", "min.f32 $, %f1, %f2", "max.f32 $, %f3, %f4", "copysign.f32 $, %f1, %f2",
        ),
        _singles,
    ),
    "roots": Program(
        _loads("f32", *_F)
        + "\n"
        + _each("f32", "sqrt.rn.f32 $, %f1", "div.rn.f32 $, %f1, %f2", "rcp.rn.f32 $, %f3", "sqrt.rz.f32 $, %f4"),
        _positive,
    ),
    "doubles": Program(
        _loads("f64", "%g1", "%g2", "%g3")
        + "\n"
        + _each(
            "f64", "div.rn.f64 $, %g1, %g2", "fma.rn.f64 $, %g1, %g2, %g3", "add.rz.f64 $, %g1, %g2",
            "mul.rn.f64 $, %g1, %g3", "max.f64 $, %g1, %g2", "cvt.rpi.f64.f64 $, %g3",
        ),
        _doubles,
    ),
    "subnormals": Program(
        _loads("f32", *_F)
        + "\n"
        + _each(
            "f32", "add.rn.f32 $, %f1, %f2", "add.rn.ftz.f32 $, %f1, %f2", "mul.rn.f32 $, %f1, 0f3F000000",
            "mul.rn.ftz.f32 $, %f1, 0f3F000000", "fma.rn.f32 $, %f1, 0f3E800000, %f3",
        ),
        _tiny,
    ),
    "conversions": Program(
        _loads("f32", *_F)
        + "\n    mov.b32 %r1, %f1;\n    mov.b32 %r2, %f2;\n    mov.b64 %d1, {%r1, %r2};\n"
        + _each(
            "u32", "cvt.rni.s32.f32 $, %f1", "cvt.rzi.u32.f32 $, %f2", "cvt.rmi.s32.f32 $, %f3", "cvt.sat.u8.s32 $, %r1",
            "cvt.sat.s8.s32 $, %r2", "cvt.sat.u16.s32 $, %r2", "cvt.rn.f16x2.f32 $, %f3, %f4",
            "cvt.rn.bf16x2.f32 $, %f3, %f4", "cvt.rna.tf32.f32 $, %f1",
        )
        + "\n    cvt.rn.f32.s32 %f20, %r1;\n    st.global.f32 [%out+40], %f20;"
        "\n    cvt.rz.f32.u64 %f21, %d1;\n    st.global.f32 [%out+44], %f21;",
        _wide,
    ),
    "halves": Program(
        _loads("u16", "%h1", "%h2", "%h3")
        + "\n    ld.global.u32 %r1, [%in+8];\n    ld.global.u32 %r2, [%in+12];\n"
        + _each("u16", "min.f16 $, %h1, %h2", "max.NaN.f16 $, %h1, %h2", "fma.rn.f16 $, %h1, %h2, %h3")
        + "\n    add.f16x2 %r3, %r1, %r2;\n    st.global.u32 [%out+16], %r3;"
        "\n    setp.ltu.f16 %p1, %h1, %h2;\n    selp.u32 %r4, 3, 8, %p1;\n    st.global.u32 [%out+20], %r4;"
        "\n    setp.gt.f16 %p2, %h1, %h3;\n    selp.u32 %r5, 3, 8, %p2;\n    st.global.u32 [%out+24], %r5;",
        _halves,
    ),
    "shuffles": Program(
        _loads("u32", "%r1", "%r2")
        + "\n"
        + _each(
            "u32", "shfl.sync.idx.b32 $, %r1, %r2, 31, -1", "shfl.sync.down.b32 $, %r1, 3, 0x181f, -1",
            "shfl.sync.up.b32 $, %r1, 5, 0, -1", "shfl.sync.bfly.b32 $, %r1, 9, 31, -1",
        )
    ),
    "votes": Program(
        _loads("u32", "%r1", "%r2")
        + "\n    setp.lt.s32 %p1, %r1, 0;\n    and.b32 %r3, %r1, 3;\n    and.b32 %r4, %tid, 1;"
        "\n    setp.eq.u32 %p2, %r4, 0;\n    @%p2 bra EVEN;\n    bra DONE;\nEVEN:\n"
        + _each(
            "u32", "vote.sync.ballot.b32 $, %p1, 0x05555555", "match.any.sync.b32 $, %r3, 0x55555555",
            "redux.sync.max.s32 $, %r1, 0x55555555",
        )
        + "\nDONE:"
    ),
    "barriers": Program(_loads("u32", "%r1") + "\n" + _EXCHANGE),
    "partners": Program(
        _loads("u32", "%r1")
        + """
    mov.u32 %r10, tile;
    and.b32 %r11, %tid, 31;
    shl.b32 %r11, %r11, 2;
    add.u32 %r12, %r10, %r11;
    setp.ge.u32 %p1, %tid, 32;
    @%p1 bra SECOND;
    st.shared.u32 [%r12], %r1;
    st.shared.u32 [%r12+128], 0;
    barrier.arrive 1, 64;
    barrier.sync 2, 64;
    ld.shared.u32 %r13, [%r12+128];
    st.global.u32 [%out], %r13;
    barrier.arrive 3, 64;
    bra DONE;
SECOND:
    barrier.sync 1, 64;
    ld.shared.u32 %r14, [%r12];
    add.u32 %r15, %r14, 77;
    st.shared.u32 [%r12+128], %r15;
    barrier.arrive 2, 64;
    barrier.sync 3, 64;
    st.global.u32 [%out], %r14;
DONE:"""
    ),
    "images": Program(
        _loads("u32", "%r1", "%r2") + "\n" + _each("u32", "add.u32 $, %r1, %r2", "mov.u32 $, 90"),
        older=_loads("u32", "%r1", "%r2") + "\n" + _each("u32", "sub.u32 $, %r1, %r2", "mov.u32 $, 70"),
    ),
    "atomics": Program(
        _loads("u32", *_R[:4])
        + "\n    mov.u32 %r10, tile;\n    shl.b32 %r11, %tid, 2;\n    add.u32 %r12, %r10, %r11;\n"
        + "    st.shared.u32 [%r12], %r1;\n    st.global.u32 [%out+32], %r2;\n    st.global.u32 [%out+36], %r2;\n"
        + _each(
            "u32", "atom.shared.max.s32 $, [%r12], %r2", "atom.shared.inc.u32 $, [%r12], %r3",
            "atom.global.add.u32 $, [%out+32], %r3", "atom.global.min.u32 $, [%out+36], %r3",
        )
        + "\n    ld.shared.u32 %r13, [%r12];\n    st.global.u32 [%out+16], %r13;"
    ),
    "structures": Program(
        "    ld.param.u8 %r1, [k_param_2];\n    ld.param.f64 %g1, [k_param_3];\n    ld.param.u32 %r2, [k_param_3+8];\n"
        "    st.global.u32 [%out], %r1;\n    st.global.f64 [%out+8], %g1;\n    st.global.u32 [%out+16], %r2;",
        extra=(
            (".param .u8 k_param_2", 16, b"\x2a"),
            (".param .align 8 .b8 k_param_3[16]", 24, np.float64(2.5).tobytes() + bytes(range(8))),
        ),
    ),
    "globals": Program(
        "    mul.wide.u32 %d1, %tid, 4;\n    mov.u64 %d2, zeros;\n    add.s64 %d2, %d2, %d1;\n    ld.global.u32 %r1, [%d2];\n"
        "    add.u32 %r2, %r1, %tid;\n    st.global.u32 [%out], %r2;\n    and.b32 %r3, %tid, 3;\n"
        "    mul.wide.u32 %d3, %r3, 4;\n    mov.u64 %d4, table;\n    add.s64 %d4, %d4, %d3;\n"
        "    ld.const.u32 %r4, [%d4];\n    st.global.u32 [%out+4], %r4;",
        variables=".visible .global .align 4 .b8 zeros[256];\n.visible .const .align 4 .u32 table[4] = {7, 11, 13, 17};",
    ),
    "approximations": Program(
        _loads("f32", *_F)
        + "\n"
        + _each("f32", "ex2.approx.ftz.f32 $, %f1", "rsqrt.approx.f32 $, %f2", "lg2.approx.f32 $, %f3", "rcp.approx.ftz.f32 $, %f4"),
        lambda rng: rng.uniform(0.5, 4, THREADS * WORDS_IN).astype("<f4").tobytes(),
    ),
}  # fmt: skip
"""Each is a trace of one launch of ``k``."""


def inputs_of(name: str, seed: int = 1) -> bytes:
    """A program's input buffer; the same for the same seed, whatever programs there are beside it."""
    return PROGRAMS[name].inputs(np.random.default_rng([seed, *name.encode()]))


def _packed(program: Program, *addresses: int) -> bytes:
    packed = b"".join(one.to_bytes(8, "little") for one in addresses)
    for _, offset, data in program.extra:
        packed = packed.ljust(offset, b"\0") + data
    return packed


def computed(program: Program, data: bytes, target: str = "cpu") -> bytes:
    """What a device leaves in the output buffer: the exact CPU, or an emulated AMD GPU with native numerics."""
    from zluda.device.amd import AmdDevice
    from zluda.device.cpu import CpuDevice
    from zluda.ptx import parse_module

    device = CpuDevice(threads=1) if target == "cpu" else AmdDevice(target, threads=1, numerics="native")
    kernel = device.load(parse_module(program.ptx)).kernel("k")
    size = 4 * THREADS * WORDS_OUT
    out, at = device.allocate(size), device.allocate(len(data))
    device.write(out, _UNTOUCHED.to_bytes(4, "little") * (size // 4))
    device.write(at, data)
    device.launch(kernel, (1, 1, 1), (THREADS, 1, 1), _packed(program, out, at))
    device.synchronize()
    return bytes(device.read(out, size))


def record(name: str, path: Path, *, damage: bool = False) -> Path:
    """Write a program's trace. ``damage``: with a byte of what the launch left that is not as it was."""
    program, data = PROGRAMS[name], inputs_of(name)
    right = result = computed(program, data)
    if damage:
        result = bytes([right[0] ^ 0x10]) + right[1:]
    with TraceBuilder(path) as trace:
        trace.start()
        slots = [(0, 8), (8, 8), *((offset, len(bytes_)) for _, offset, bytes_ in program.extra)]
        kind = ModuleKind.FATBIN if program.older else ModuleKind.PTX
        function = trace.function(trace.module(program.image, kind=kind), "k", slots)
        out, at, staging = trace.allocate(len(result)), trace.allocate(len(data)), trace.allocate(len(data))
        trace.fill(out, _UNTOUCHED, len(result) // 4)
        trace.copy_in(staging, data)
        trace.copy_within(at, staging, len(data))
        trace.launch(function, _packed(program, out, at), {out: result}, block=(THREADS, 1, 1))
        trace.copy_out(out, len(right), data=right)
    return path


def trace_of(name: str, folder: Path) -> Path:
    """A program's trace, recorded into ``folder`` when first asked for.

    ``corpus/NAME`` is the corpus's own, ``damaged/NAME`` a program's with a fault in the record.
    """
    if name.startswith("corpus/"):
        return ROOT / name / "trace.bin"
    path = folder / f"{name.replace('/', '-')}.bin"
    if not path.exists():
        record(name.removeprefix("damaged/"), path, damage=name.startswith("damaged/"))
    return path
