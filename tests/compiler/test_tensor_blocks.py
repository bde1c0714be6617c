"""``mma`` with a ``.kind``: small formats and scales of blocks, dense and sparse (PTX ISA 9.7.14.3).

No GPU that runs them was at hand. So they are held to products and sums in f64, written from the manual
alone, over numbers whose sums no order rounds; and, bit for bit over any registers, to the model's own step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tensor_kernels import HEADER, kernel, launch, transfer, vector

import zluda
from zluda.numerics.tensor_cores import operations, reference, warp
from zluda.numerics.tensor_cores.operations import Form

Bits = Any
SMALL = {"e4m3": (4, 3), "e5m2": (5, 2), "e3m2": (3, 2), "e2m3": (2, 3), "e2m1": (2, 1)}
ORDERED = [0x4, 0x8, 0xC, 0x9, 0xD, 0xE]


@pytest.fixture(scope="module")
def cpu() -> Iterator[Any]:
    with zluda.open_device("cpu") as device:
        yield device


def value(name: str, code: Bits) -> Bits:
    """Numbers of a format without its specials, from their codes."""
    exponent, mantissa = SMALL[name]
    bias = (1 << (exponent - 1)) - 1
    field, fraction = code >> mantissa & ((1 << exponent) - 1), code & ((1 << mantissa) - 1)
    size = np.where(
        field > 0,
        np.ldexp(1 + fraction / 2.0**mantissa, field - bias),
        np.ldexp(fraction / 2.0**mantissa, 1 - bias),
    )
    return np.where(code >> (exponent + mantissa) & 1, -size, size)


def some(random: np.random.Generator, name: str, shape: tuple[int, ...]) -> Bits:
    """Codes of numbers that every format has, about one in size so that sums are exact in f32."""
    wanted = random.choice([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, -0.5, -1.0, -1.5, -2.0, -3.0], shape)
    exponent, mantissa = SMALL[name]
    codes = np.arange(1 << (1 + exponent + mantissa), dtype=np.int64)
    numbers = {float(v): int(c) for c, v in zip(codes[::-1], value(name, codes)[::-1], strict=True)}
    return np.vectorize(numbers.__getitem__)(wanted)


def ptx_of(opcode: str, form: Form, selectors: str, *, sparse: bool) -> str:
    """One ``mma`` over registers of ``a``, ``b``, ``c``; ``m`` holds metadata and both words of scales."""
    counts = {letter: form.registers(letter) for letter in "abcd"}
    body = [line for letter in "abc" for line in transfer("ld", letter, counts[letter], 32)]
    body += transfer("ld", "m", 3, 32)
    operands = ", ".join(vector(letter, counts[letter]) for letter in "dabc")
    operands += ", %m0, 0" if sparse else ""
    if selectors:
        given = [int(x) for x in selectors.split()]
        body += [f"mov.b16 %h{i}, {x};" for i, x in enumerate(given)]
        a, b = ("{%h0, %h1}", "{%h2, %h3}") if sum(given) % 2 else (str(given[:2]), str(given[2:]))
        operands += f", %m1, {a}, %m2, {b}".replace("[", "{").replace("]", "}")
    body += [f"{opcode} {operands};", *transfer("st", "d", counts["d"], 32)]
    registers = [(x, counts[x], 32) for x in "abcd"] + [("m", 3, 32), ("h", 4, 16)]
    return kernel(body, registers).replace(HEADER, HEADER.replace("sm_90a", "sm_120a"))


def run(device: Any, ptx: str, form: Form, matrices: dict[str, Bits], m: Bits) -> Bits:
    """D, (tile, row, column), as f32 bits or f16 bits."""
    op = form.operation
    inputs = {
        letter: warp.pack(matrices[letter], getattr(form, f"fragment_{letter}"), getattr(op, letter))
        for letter in "abc"
    }
    result = np.zeros((len(m), 32, form.registers("d")), np.uint32)
    found = launch(device, ptx, inputs | {"m": m}, result)
    return warp.unpack(found, form.fragment_d, op.d, (16, 8))


def scale_words(random: np.random.Generator, codes: Bits, threads: int, thread: int, byte: int) -> Bits:
    """A register a lane that holds codes (tile, line, chunk) where the manual looks for them; else noise."""
    tiles, lines, chunks = codes.shape
    found = random.integers(0, 1 << 32, (tiles, 32), np.uint32)
    for line in range(lines):
        lane = 4 * (line % 8) + threads * thread + line // 8
        for chunk in range(chunks):
            shift = np.uint32(8 * (byte + chunk))
            found[:, lane] &= ~(np.uint32(0xFF) << shift)
            found[:, lane] |= codes[:, line, chunk].astype(np.uint32) << shift
    return found


def metadata_words(random: np.random.Generator, chunks: Bits) -> Bits:
    """The register of each lane that tells where stored elements belong; (tile, row, chunk) of four bits.

    All lanes of a group hold some: the upper half of a row's chunks those two lanes further.
    """
    tiles, _, count = chunks.shape
    found = np.zeros((tiles, 32), np.uint32)
    for row in range(16):
        for chunk in range(count):
            lane = 4 * (row % 8) + row // 8 + 2 * (chunk // 8)
            found[:, lane] |= chunks[:, row, chunk].astype(np.uint32) << np.uint32(4 * (chunk % 8))
    return found


F8F6F4 = [(a, b, c, "", 0) for a in SMALL for b, c in (("e4m3", "f32"), ("e2m1", "f16"), ("e3m2", "f32"))]
CASES = [("f8f6f4", "m16n8k32", "m16n8k64", *case) for case in F8F6F4]
CASES += [
    ("mxf8f6f4", "m16n8k32", "m16n8k64", a, b, "f32", "ue8m0", 1)
    for a, b in zip(SMALL, reversed(SMALL), strict=True)
]
CASES += [
    ("mxf4", "m16n8k64", "m16n8k128", "e2m1", "e2m1", "f32", "ue8m0", 2),
    ("mxf4nvf4", "m16n8k64", "m16n8k128", "e2m1", "e2m1", "f32", "ue8m0", 4),
    ("mxf4nvf4", "m16n8k64", "m16n8k128", "e2m1", "e2m1", "f32", "ue4m3", 4),
]
SELECTORS = {0: [""], 1: ["0 0 0 0", "3 1 2 3"], 2: ["0 0 2 1", "2 1 0 3"], 4: ["0 0 0 2", "0 1 0 1"]}
QUICK = {  # of products, and of any registers
    "manual": {("mxf8f6f4", "e3m2", "e2m3", False), ("mxf4nvf4", "e2m1", "ue4m3", False)},
    "step": {("f8f6f4", "e2m1", "", True)},
}


def opcode_of(case: tuple[Any, ...], *, sparse: bool) -> str:
    kind, dense_shape, sparse_shape, a, b, c, scale, chunks = case
    tail = f".{c}.{a}.{b}.{c}"
    if scale:
        tail = f".block_scale.scale_vec::{chunks}X{tail}.{scale}"
    name = "mma.sp::ordered_metadata" if sparse else "mma"
    shape = sparse_shape if sparse else dense_shape
    return f"{name}.sync.aligned.{shape}.row.col.kind::{kind}{tail}"


def form_of_case(case: tuple[Any, ...], *, sparse: bool) -> Form:
    kind, dense_shape, sparse_shape, a, b, c, scale, chunks = case
    shape = sparse_shape if sparse else dense_shape
    form = operations.mma_of_kind(kind, shape, a, b, c, scale=scale, chunks=chunks, sparse=sparse)
    assert form is not None
    return form


def cases(test: str) -> list[Any]:
    """Every case, dense and sparse; those that are not quick by night."""
    found = []
    for case in CASES:
        for sparse in (False, True):
            quick = {(case[0], case[3], x, sparse) for x in case[4:7:2]} & QUICK[test]
            name = f"{'-'.join(map(str, case))}-{'sparse' if sparse else 'dense'}"
            found.append(pytest.param(case, sparse, marks=() if quick else pytest.mark.nightly, id=name))
    return found


@pytest.mark.parametrize(("case", "sparse"), cases("manual"))
def test_products_of_blocks_are_what_the_manual_says(cpu: Any, case: tuple[Any, ...], sparse: bool) -> None:
    _, _, _, a_name, b_name, c_name, scale, chunks = case
    form = form_of_case(case, sparse=sparse)
    k, stored = form.operation.k, form.operation.stored
    for selectors in SELECTORS[chunks]:
        random, tiles = np.random.default_rng(k + chunks), 6
        a, b = some(random, a_name, (tiles, 16, stored)), some(random, b_name, (tiles, 8, k))
        values_a, values_b = value(a_name, a), value(b_name, b)
        m = random.integers(0, 1 << 32, (tiles, 32, 3), np.uint32)
        if sparse:
            pair = 2 if a_name == "e2m1" and k == 128 else 1  # elements that are stored or left out together
            chosen = random.choice(ORDERED, (tiles, 16, k // (4 * pair)))
            m[..., 0] = metadata_words(random, chosen)
            dense = np.zeros((tiles, 16, k))
            for place in range(stored):
                chunk, within = divmod(place, 2 * pair)
                number = chosen[..., chunk] >> (2 * (within // pair)) & 3
                at = 4 * pair * chunk + number * pair + within % pair
                np.put_along_axis(dense, at[..., None], values_a[..., place, None], -1)
            values_a = dense
        if scale:
            byte_a, thread_a, byte_b, thread_b = map(int, selectors.split())
            few = [0x38, 0x34, 0x40, 0x3C] if scale == "ue4m3" else [126, 127, 128]
            codes = [random.choice(few, (tiles, lines, chunks)) for lines in (16, 8)]
            m[..., 1] = scale_words(random, codes[0], 2, thread_a, byte_a)
            m[..., 2] = scale_words(random, codes[1], 1, thread_b, byte_b)
            a_scale, b_scale = (
                value("e4m3", c) if scale == "ue4m3" else np.ldexp(1.0, c - 127) for c in codes
            )
            values_a = values_a * np.repeat(a_scale, k // chunks, -1)
            values_b = values_b * np.repeat(b_scale, k // chunks, -1)
        # Of f16 few products, so that their sum needs no more than eleven bits.
        if c_name == "f16":
            values_a[..., 4:], a[..., 2 if sparse else 4 :] = 0, 0
        addend = random.integers(-8, 8, (tiles, 16, 8)).astype(np.float16 if c_name == "f16" else np.float32)
        expected = values_a @ values_b.swapaxes(-1, -2) + addend
        matrices = {
            "a": a << (2 if form.operation.a.endswith("_b8") else 0),
            "b": b << (2 if form.operation.b.endswith("_b8") else 0),
            "c": addend.view(np.uint16 if c_name == "f16" else np.uint32),
        }
        ptx = ptx_of(opcode_of(case, sparse=sparse), form, selectors, sparse=sparse)
        found = run(cpu, ptx, form, matrices, m)
        found = found.view(np.float16 if c_name == "f16" else np.float32)
        assert (found == expected).all()


@pytest.mark.parametrize(("case", "sparse"), cases("step"))
def test_any_registers_give_what_the_step_gives(cpu: Any, case: tuple[Any, ...], sparse: bool) -> None:
    form = form_of_case(case, sparse=sparse)
    chunks, tiles, random = case[7], 48, np.random.default_rng(7)
    inputs = {x: random.integers(0, 1 << 32, (tiles, 32, form.registers(x)), np.uint32) for x in "abc"}
    inputs["c"] &= random.choice(np.array([0xFFFFFFFF, 0xBFFFBFFF, 0], np.uint32), (tiles, 1, 1))
    m = random.integers(0, 1 << 32, (tiles, 32, 3), np.uint32)
    pairs = random.choice(ORDERED, (tiles, 32, 8)).astype(np.uint32)
    m[..., 0] = (pairs << (4 * np.arange(8, dtype=np.uint32))).sum(-1, dtype=np.uint32)
    m[tiles // 2 :, :, 1:] &= np.uint32(0xBFBFBFBF)  # fewer that are not finite
    selectors, scales = SELECTORS[chunks][-1], None
    if chunks:
        byte_a, thread_a, byte_b, thread_b = map(int, selectors.split())
        scales = reference.Scales(
            warp.unpack_scales(m[..., 1], 16, chunks, byte=byte_a, thread=thread_a),
            warp.unpack_scales(m[..., 2], 8, chunks, byte=byte_b, thread=thread_b),
        )
    metadata = m[..., 0] if sparse else None
    expected = warp.mma(form, *(inputs[x] for x in "abc"), metadata=metadata, scales=scales)
    ptx = ptx_of(opcode_of(case, sparse=sparse), form, selectors, sparse=sparse)
    found = launch(cpu, ptx, inputs | {"m": m}, expected)
    assert (found == expected).all()


@pytest.mark.nightly
@pytest.mark.parametrize("target", ["gfx1030", "gfx90a"])
def test_amd_devices_give_the_same(target: str) -> None:
    with zluda.open_device(target) as device:
        for case in CASES[:1] + CASES[-2:]:
            test_any_registers_give_what_the_step_gives(device, case, sparse=case[0] != "f8f6f4")
