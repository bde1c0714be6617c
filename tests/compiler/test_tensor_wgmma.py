"""``wgmma`` gives what an H200 gave, from shared memory in every layout and from registers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from tensor_kernels import kernel, launch, transfer, vector
from tensor_vectors import Bits, Vector, vectors

import zluda
from zluda.errors import PtxError, UnsupportedError
from zluda.numerics.tensor_cores import operations, reference, warp
from zluda.numerics.tensor_cores.formats import FLOATS
from zluda.numerics.tensor_cores.fragments import mma_a
from zluda.ptx import parse_module

FORMS = [name for name, v in vectors().items() if v.opcode == "wgmma"]
QUICK = 4  # one form in so many is not slow
B_AT = 32768  # of A and B each in shared memory
RANDOM = np.random.default_rng(7)


@pytest.fixture(scope="module")
def cpu() -> Iterator[Any]:
    with zluda.open_device("cpu") as device:
        yield device


def wgmma_ptx(
    opcode: str,
    accumulators: int,
    constants: str,
    descriptors: tuple[int, int],
    *,
    registers_of_a: int = 0,
    scale_d: int = 1,
    repeated: int = 1,
    slices: int = 1,
    step: int = 0,
    selector: int | None = None,
) -> str:
    """``k(a, b, c, d)``: 32 KiB each of A and B to shared memory, C to the accumulators, ``wgmma``, D.

    ``descriptors`` lack the address, which moves on by ``step`` bytes for each of ``slices``. With a
    ``selector`` A is sparse, and its metadata a word a thread of ``m``.
    """
    body = []
    for letter, at in (("a", 0), ("b", B_AT)):
        if letter == "a" and registers_of_a:
            body += transfer("ld", "a", registers_of_a, 32)
            continue
        body += [f"ld.param.u64 %p, [p{letter}];", "mov.u32 %x, %tid.x;", "mov.u32 %y, tile;"]
        body += ["mad.lo.u32 %y, %x, 16, %y;", "mad.wide.u32 %p, %x, 16, %p;"]
        for chunk in range(0, B_AT, 128 * 16):
            body += [f"ld.global.v4.b32 {{%s0, %s1, %s2, %s3}}, [%p+{chunk}];"]
            body += [f"st.shared.v4.b32 [%y+{at + chunk}], {{%s0, %s1, %s2, %s3}};"]
    sparse = ""
    if selector is not None:
        body += transfer("ld", "m", 1, 32)
        sparse = f"%m0, {selector}, "
    body += transfer("ld", "c", accumulators, 32)
    body += [f"mov.b32 %d{i}, %c{i};" for i in range(accumulators)]
    body += ["fence.proxy.async.shared::cta;", "bar.sync 0;", "wgmma.fence.sync.aligned;"]
    body += [f"setp.ne.b32 %keep, {scale_d}, 0;", "mov.u32 %x, tile;"]
    for at in [slice_ * step for slice_ in range(slices)] * repeated:
        for name, base, bits in (("da", 0, descriptors[0]), ("db", B_AT, descriptors[1])):
            body += [f"add.u32 %y, %x, {base + at};", "shr.u32 %y, %y, 4;", "cvt.u64.u32 %q, %y;"]
            body += [f"or.b64 %{name}, %q, {bits:#x};"]
        a = vector("a", registers_of_a) if registers_of_a else "%da"
        body += [f"{opcode} {vector('d', accumulators)}, {a}, %db, {sparse}%keep{constants};"]
    body += ["wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"]
    body += transfer("st", "d", accumulators, 32)
    registers = [
        ("a", max(registers_of_a, 1), 32),
        ("c", accumulators, 32),
        ("d", accumulators, 32),
        ("s", 4, 32),
        ("m", 1, 32),
    ]
    return kernel(body, registers, shared=2 * B_AT)


def descriptor(leading: int, stride: int, mode: int) -> int:
    """A matrix descriptor without its address (PTX ISA 9.7.15.5.1)."""
    return leading // 16 << 16 | stride // 16 << 32 | mode << 62


def in_shared(matrix: Bits, place: Callable[[int, int], int]) -> Bits:
    """32 KiB of shared memory with element (line, k) at byte ``place(line, k)``."""
    memory = np.zeros((len(matrix), B_AT), np.uint8)
    size = matrix.dtype.itemsize
    data = np.ascontiguousarray(matrix).view(np.uint8).reshape(*matrix.shape, size)
    for line in range(matrix.shape[1]):
        for k in range(matrix.shape[2]):
            at = place(line, k)
            memory[:, at : at + size] = data[:, line, k]
    return memory


def cores(matrix: Bits) -> Bits:
    """Plain K-major: cores of 8 lines and 16 bytes, 128 bytes to the next along K, 256 along lines."""
    size = matrix.dtype.itemsize
    return in_shared(
        matrix, lambda line, k: line // 8 * 256 + k * size // 16 * 128 + line % 8 * 16 + k * size % 16
    )


def accumulators(matrix: Bits, type_name: str) -> Bits:
    """The registers of a warpgroup, (tile, thread, register), of 64 rows (PTX ISA 9.7.15.5.1.1)."""
    threads = []
    form = operations.wgmma("m64n8k16", "f16", "f16", type_name if type_name == "f16" else "f32")
    assert form is not None
    for w in range(4):
        blocks = [
            warp.pack(matrix[:, 16 * w : 16 * w + 16, n : n + 8], form.fragment_d, type_name)
            for n in range(0, matrix.shape[-1], 8)
        ]
        threads.append(np.concatenate(blocks, -1))
    return np.concatenate(threads, 1)


def constants_of(v: Vector, *, registers: bool = False) -> str:
    """Signs and major orders after scale-d."""
    if v.operation.a not in FLOATS:
        return ""
    signs = [-1 if letter in v.negated else 1 for letter in "ab"]
    orders = [] if FLOATS[v.operation.a].bits != 16 else [0] if registers else [0, 0]
    return "".join(f", {n}" for n in (*signs, *orders))


def differences(device: Any, v: Vector, *, registers: bool = False) -> int:
    op = v.operation
    c, d = accumulators(v.c, op.c), accumulators(v.d, op.d)
    plain = descriptor(128, 256, 0)
    packed = 32 // operations.packed_bits(op.a)
    a = cores(v.a)
    if registers:
        pieces = [warp.pack(v.a[:, 16 * w : 16 * w + 16], mma_a(16, op.k, packed), op.a) for w in range(4)]
        a = np.concatenate(pieces, 1)
    ptx = wgmma_ptx(
        v.ptx,
        c.shape[-1],
        constants_of(v, registers=registers),
        (plain, plain),
        registers_of_a=4 if registers else 0,
        scale_d=v.scale_d,
        repeated=v.repeated,
    )
    # One block a tile: shared memory is loaded from each block's own beginning.
    found = [
        launch(
            device,
            ptx,
            {"a": a[i], "b": cores(v.b)[i], "c": c[i : i + 1]},
            d[i : i + 1],
            block=128,
            shared=2 * B_AT,
        )
        for i in range(len(d))
    ]
    return int((np.concatenate(found) != d).sum())


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if i % QUICK == 0 else pytest.mark.slow) for i, n in enumerate(FORMS)]
)
def test_every_form_gives_the_bits_of_an_h200(cpu: Any, name: str) -> None:
    assert differences(cpu, vectors()[name]) == 0


@pytest.mark.parametrize("name", ["wgmma_n8_f16_f32", "wgmma_n8_tf32_f32", "wgmma_n8_e4m3_f32"])
def test_a_in_registers_gives_the_same(cpu: Any, name: str) -> None:
    assert differences(cpu, vectors()[name], registers=True) == 0


@pytest.mark.slow
@pytest.mark.parametrize("target", ["gfx1030", "gfx90a"])
def test_an_amd_device_gives_the_same(target: str) -> None:
    with zluda.open_device(target) as device:
        assert differences(device, vectors()["wgmma_n8_f16_f32"]) == 0


# --- layouts in shared memory ------------------------------------------------------------------------

WIDE = {0: 1, 1: 8, 2: 4, 3: 2}  # swizzle mode to the 16-byte pieces of a row
SLICE = 16  # elements of K of one instruction


class Layout:
    """16-bit elements (mn, k) in shared memory in a swizzle mode and major order, as measured on an H200."""

    def __init__(self, mode: int, *, mn_major: bool, lines: int, k: int) -> None:
        self.mode, self.mn_major, self.wide = mode, mn_major, WIDE[mode]
        if not mn_major:
            self.leading, self.stride = 128, 128 * (self.wide if mode else k // 8)
            self.step = 32 if mode else 2 * self.leading
        elif mode:
            self.stride = 128 * self.wide
            self.leading = self.stride * (k // 8)
            self.step = 2 * self.stride
        else:
            self.stride, self.leading = 128, 16 * lines
            self.step = 2 * self.leading

    def place(self, mn: int, k: int) -> int:
        """The byte of an element."""
        if not self.mn_major and self.mode:
            at = mn // 8 * self.stride + mn % 8 * self.wide * 16 + 2 * k
        elif not self.mn_major:
            at = mn // 8 * self.stride + k // 8 * self.leading + mn % 8 * 16 + 2 * (k % 8)
        elif self.mode:
            at = mn % 8 * 2 + mn // 8 % self.wide * 16 + mn // (8 * self.wide) * self.leading
            at += k % 8 * self.wide * 16 + k // 8 * self.stride
        else:
            at = mn % 8 * 2 + mn // 8 * self.stride + k % 8 * 16 + k // 8 * self.leading
        return at ^ (at >> 3 & 16 * (self.wide - 1))

    @property
    def descriptor(self) -> int:
        return descriptor(self.leading, self.stride, self.mode)


def in_layouts(device: Any, mode: int, majors: tuple[bool, bool], n: int) -> bool:
    """Whether a product of 64 rows and ``n`` columns is right with A and B in the given major orders."""
    k = 64 if mode < 2 else 16 * WIDE[mode] // 2
    a, b = (RANDOM.uniform(-2, 2, (1, lines, k)).astype(np.float16).view(np.uint16) for lines in (64, n))
    layouts = [Layout(mode, mn_major=m, lines=x.shape[1], k=k) for m, x in zip(majors, (a, b), strict=True)]
    assert layouts[0].step == layouts[1].step
    form = operations.wgmma(f"m64n{n}k16", "f16", "f16", "f32")
    assert form is not None
    d = np.zeros((1, 64, n), np.uint32)
    for at in range(0, k, SLICE):
        d = reference.dot(form.operation, a[..., at : at + SLICE], b[..., at : at + SLICE], d)
    expected = accumulators(d, "f32")
    ptx = wgmma_ptx(
        f"wgmma.mma_async.sync.aligned.m64n{n}k16.f32.f16.f16",
        n // 2,
        f", 1, 1, {int(majors[0])}, {int(majors[1])}",
        (layouts[0].descriptor, layouts[1].descriptor),
        slices=k // SLICE,
        step=layouts[0].step,
    )
    inputs = {"a": in_shared(a, layouts[0].place)[0], "b": in_shared(b, layouts[1].place)[0]}
    inputs["c"] = np.zeros_like(expected)
    return bool((launch(device, ptx, inputs, expected, block=128, shared=2 * B_AT) == expected).all())


@pytest.mark.parametrize("mode", WIDE)
def test_k_major_operands_in_every_swizzle(cpu: Any, mode: int) -> None:
    assert in_layouts(cpu, mode, (False, False), 32)


@pytest.mark.parametrize("mode", WIDE)
def test_mn_major_operands_in_every_swizzle(cpu: Any, mode: int) -> None:
    assert in_layouts(cpu, mode, (True, True), 64)


@pytest.mark.slow
def test_256_columns(cpu: Any) -> None:
    assert in_layouts(cpu, 1, (False, False), 256)


# --- sparse A ----------------------------------------------------------------------------------------

ROW_BYTES = 32  # of the stored elements of a row of A


def _random(type_name: str, shape: tuple[int, ...]) -> Bits:
    """Bits of every kind, but of floating types neither infinities nor NaN more often than they come."""
    width = operations.packed_bits(type_name)
    unsigned = {8: np.uint8, 16: np.uint16, 32: np.uint32}[width]
    return RANDOM.integers(0, 1 << width, shape, dtype=np.uint64).astype(unsigned)


def _metadata(type_name: str) -> Bits:
    """A word a thread, every chunk's two numbers ascending; of tf32 one of two elements."""
    nibbles = [0x4, 0xE] if type_name == "tf32" else [0x4, 0x8, 0xC, 0x9, 0xD, 0xE]
    chosen = RANDOM.choice(np.array(nibbles, np.uint32), (128, 8))
    return (chosen << (4 * np.arange(8, dtype=np.uint32))).sum(1, dtype=np.uint64).astype(np.uint32)


def _cores(matrix: Bits, row_bytes: int) -> Bits:
    """Plain K-major, as :func:`cores` but of rows of any length."""
    size = matrix.dtype.itemsize

    def place(line: int, k: int) -> int:
        at = k * size
        return line // 8 * 8 * row_bytes + at // 16 * 128 + line % 8 * 16 + at % 16

    return in_shared(matrix, place)


SPARSE_CASES = [
    (*form, selector)
    for form in operations.wgmma_sparse_forms()
    for selector in range(2 if operations.packed_bits(form[1]) > 8 else 1)
]


@pytest.mark.parametrize(
    ("shape", "a", "b", "d", "selector"),
    [pytest.param(*c, marks=() if i % QUICK == 0 else pytest.mark.slow) for i, c in enumerate(SPARSE_CASES)],
)
def test_a_sparse_a_meets_the_elements_that_its_metadata_names(
    cpu: Any, shape: str, a: str, b: str, d: str, selector: int
) -> None:
    width = operations.packed_bits(a)
    form = operations.wgmma(f"m64n16{shape}", a, b, d, sparse=True)
    assert form is not None
    op = form.operation
    stored, wide = _random(a, (1, 64, op.stored)), _random(b, (1, 16, op.k))
    c, metadata = _random(d, (1, 64, 16)), _metadata(a)
    rows = []
    for w in range(4):
        bits = warp.unpack_metadata(metadata[None, 32 * w : 32 * w + 32], form, selector)
        at = slice(16 * w, 16 * w + 16)
        rows.append(reference.sparse_dot(op, stored[:, at], wide, c[:, at], bits))
    expected = accumulators(np.concatenate(rows, 1), d)
    sides = [_cores(stored, ROW_BYTES), _cores(wide, 2 * ROW_BYTES)]
    signs = ", 1, 1" if a in FLOATS else ""
    ptx = wgmma_ptx(
        f"wgmma.mma_async.sp.sync.aligned.m64n16{shape}.{d}.{a}.{b}",
        expected.shape[-1],
        signs + (", 0, 0" if width == 16 else ""),
        (descriptor(128, 8 * ROW_BYTES, 0), descriptor(128, 16 * ROW_BYTES, 0)),
        selector=selector,
    )
    inputs = {"a": sides[0][0], "b": sides[1][0], "c": accumulators(c, d), "m": metadata}
    found = launch(cpu, ptx, inputs, expected, block=128, shared=2 * B_AT)
    assert (found == expected).all()


# --- what is not there -------------------------------------------------------------------------------

WHOLE = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
SPARSE = "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (
            f"{SPARSE} {{D}}, %da, %db, %s0, 2, %keep, 1, 1, 0, 0;",
            "selector 2",
        ),
        (f"{SPARSE.replace('k32', 'k16')} {{D}}, %da, %db, %s0, 0, %keep, 1, 1, 0, 0;", "mma_async.sp"),
        (f"{WHOLE} {{D}}, %da, %db, %keep, 1, 1, 0;", "3 constants after scale-d, for 4"),
        (f"{WHOLE} {{D}}, {{%s0, %s1, %s2}}, %db, %keep, 1, 1, 0;", "3 registers where the form has 4"),
        (f"{WHOLE} {{%d0, %d1}}, %da, %db, %keep, 1, 1, 0, 0;", "2 accumulators where the form has 4"),
    ],
)
def test_other_forms_are_refused_by_name(cpu: Any, text: str, what: str) -> None:
    body = [text.replace("{D}", "{%d0, %d1, %d2, %d3}")]
    module = cpu.load_module(kernel(body, [("d", 4, 32), ("s", 4, 32)]))
    with pytest.raises(UnsupportedError, match=what):
        module.kernel("k").launch(grid=1, block=128, args=[0, 0, 0, 0, 0])


def test_a_mix_of_types_does_not_parse() -> None:
    text = f"{WHOLE.replace('f16.f16', 'f16.bf16')} {{%d0, %d1, %d2, %d3}}, %da, %db, %keep, 1, 1, 0, 0;"
    errors = parse_module(kernel([text], [("d", 4, 32)])).errors()
    assert [type(error) for error in errors.values()] == [PtxError]
