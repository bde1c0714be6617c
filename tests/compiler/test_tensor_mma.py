"""``mma``, ``mma.sp`` and ``wmma.mma`` give what an H200 gave, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tensor_kernels import form_of, kernel, launch, mma_ptx, vector
from tensor_vectors import Bits, Vector, vectors

import zluda
from zluda.errors import PtxError, UnsupportedError
from zluda.numerics.tensor_cores import fragments, operations, warp
from zluda.numerics.tensor_cores.fragments import metadata_place
from zluda.numerics.tensor_cores.operations import Form, packed_bits
from zluda.ptx import parse_module

WARP_FORMS = [name for name, v in vectors().items() if v.opcode != "wgmma"]
QUICK = 5  # one form in so many is not slow
ON_AMD = [
    "mma_f16_k16_f32",
    "mma_f16_k8_f16",
    "mma_tf32_k8_f32",
    "mma_e4m3_k16_f32",
    "mma_s8_k16_sat",
    "mma_b1x_k128",
    "mma_f64_m8n8k4",
    "mma_m8n8k4_f32_rowcol",
    "mma_sp_f16_k16_f32_s2",
    "wmma_bf16_161616_f32",
]


@pytest.fixture(scope="module")
def cpu() -> Iterator[Any]:
    with zluda.open_device("cpu") as device:
        yield device


def placed(matrices: Bits, form: Form, letter: str) -> Bits:
    """Registers of tiles, (tile, lane, register); of m8n8k4 four tiles are one warp's."""
    fragment = getattr(form, f"fragment_{letter}")
    if form.operation.rule == "quad_fma":
        lines, ks = warp.extent(fragment)
        whole = np.zeros((len(matrices) // 4, lines, ks), matrices.dtype)
        for i, tile in enumerate(matrices):
            q = i % 4
            across = slice(8 * q, 8 * q + 8) if letter in "cd" else slice(None)
            whole[i // 4, 8 * q : 8 * q + 8, across] = tile
        matrices = whole
    return warp.pack(matrices, fragment, getattr(form.operation, letter))


def metadata_registers(v: Vector, form: Form) -> Bits:
    """The metadata register of each lane."""
    assert v.metadata is not None
    kind = str(packed_bits(form.operation.a))
    found = np.zeros((len(v.a), 32, 1), np.uint32)
    for row in range(16):
        for chunk in range(v.metadata.shape[-1]):
            lane, bit = metadata_place(kind, form.operation.k, row // 8, chunk, v.selector)
            found[:, 4 * (row % 8) + lane, 0] |= v.metadata[:, row, chunk].astype(np.uint32) << np.uint32(bit)
    return found


def differences(device: Any, v: Vector) -> int:
    """How many elements differ from the H200's."""
    form = form_of(v.ptx)
    inputs = {letter: placed(getattr(v, letter), form, letter) for letter in "abc"}
    expected = placed(v.d, form, "d")
    if v.metadata is not None:
        inputs["m"] = metadata_registers(v, form)
    found = launch(device, mma_ptx(v.ptx, form, selector=v.selector), inputs, expected)
    return int((found != expected).sum())


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if i % QUICK == 0 else pytest.mark.slow) for i, n in enumerate(WARP_FORMS)],
)
def test_every_form_gives_the_bits_of_an_h200(cpu: Any, name: str) -> None:
    assert differences(cpu, vectors()[name]) == 0


def any_registers(random: np.random.Generator, count: int, tiles: int) -> Bits:
    """Registers of tiles, each of one kind: any bits, mostly zeros, mostly ones, small, half zeros."""
    words = random.integers(0, 1 << 32, (5, tiles, 32, count), np.uint32)
    other = random.integers(0, 1 << 32, words.shape[1:], np.uint32)
    words[1] &= other
    words[2] |= other
    words[3] &= 0x83FF83FF
    words[4] = np.where(random.random(other.shape) < 0.5, 0, words[4] & 0xBFFFBFFF)
    kinds = random.integers(0, 5, tiles)
    return words[kinds, np.arange(tiles)]


DENSE = [
    (f"mma.sync.aligned.{shape}.row.col.{c}.{a}.{b}.{c}", a) for shape, a, b, c in operations.mma_forms()
]
DENSE += [
    (f"mma.sp.sync.aligned.{shape}.row.col.{c}.{a}.{b}.{c}", a)
    for shape, a, b, c in operations.mma_sparse_forms()
]
RANDOM_QUICK = (
    "m16n8k16.row.col.f32.e5m2.e5m2",
    "m16n8k16.row.col.f32.e4m3.e5m2",
    "sp.sync.aligned.m16n8k32.row.col.f32.f16",
)


@pytest.mark.parametrize(
    "opcode",
    [
        pytest.param(opcode, marks=() if any(q in opcode for q in RANDOM_QUICK) else pytest.mark.slow)
        for opcode, a in DENSE
        if a != "f64"  # of which the reference is slow, and few tiles tell all
    ],
)
def test_any_registers_give_what_the_reference_gives(cpu: Any, opcode: str) -> None:
    popcount = ".xor.popc" if ".b1." in opcode else ""
    form = form_of(opcode + popcount)
    random, tiles = np.random.default_rng(sum(opcode.encode())), 128
    inputs = {x: any_registers(random, form.registers(x), tiles) for x in "abc"}
    metadata = None
    if form.operation.sparse:
        pairs = [0x4, 0xE] if form.operation.a == "tf32" else [0x4, 0x8, 0xC, 0x9, 0xD, 0xE]
        chunks = random.choice(pairs, (tiles, 32, 8)).astype(np.uint32)
        metadata = (chunks << (4 * np.arange(8, dtype=np.uint32))).sum(-1, dtype=np.uint32)
        inputs["m"] = metadata[..., None]
    expected = warp.mma(form, inputs["a"], inputs["b"], inputs["c"], metadata=metadata)
    found = launch(cpu, mma_ptx(opcode + popcount, form), inputs, expected)
    assert (found == expected).all()


@pytest.mark.parametrize(("shape", "selector"), [("m16n8k64", 0), ("m16n8k64", 1), ("m16n8k128", 0)])
def test_pairs_of_four_bits_are_chosen_as_the_manual_says(cpu: Any, shape: str, selector: int) -> None:
    """Of eight elements two pairs (PTX ISA 9.7.14.6.1): B's column n is 1 at k = n (and n + 8 …), else 0."""
    opcode = f"mma.sp::ordered_metadata.sync.aligned.{shape}.row.col.s32.s4.u4.s32"
    form = form_of(opcode)
    k = form.operation.k
    random = np.random.default_rng(2)
    a = random.integers(0, 16, (1, 16, k // 2), np.uint8)
    b = np.tile(np.eye(8, dtype=np.uint8), (1, 1, k // 8))
    chunks = random.choice([0x4, 0x8, 0xC, 0x9, 0xD, 0xE], (1, 16, k // 8)).astype(np.uint8)
    expected = np.zeros((1, 16, 8), np.int32)
    for row in range(16):
        for chunk, bits in enumerate(chunks[0, row]):
            for pair in (0, 1):
                for i in (0, 1):
                    value = (int(a[0, row, 4 * chunk + 2 * pair + i]) ^ 8) - 8
                    expected[0, row, 2 * (int(bits) >> 2 * pair & 3) + i] += value
    zeros = np.zeros((1, 16, 8), np.uint32)
    v = Vector(
        opcode,
        opcode,
        form.operation,
        "rn",
        selector,
        "",
        1,
        1,
        a,
        b,
        zeros,
        expected.view(np.uint32),
        chunks,
    )
    assert differences(cpu, v) == 0


@pytest.mark.nightly
@pytest.mark.parametrize("target", ["gfx1030", "gfx1100", "gfx90a"])
def test_amd_devices_give_the_same_bits(target: str) -> None:
    with zluda.open_device(target) as device:
        assert {name: differences(device, vectors()[name]) for name in ON_AMD} == dict.fromkeys(ON_AMD, 0)


@pytest.mark.parametrize(
    ("opcode", "operands"),
    [
        ("mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32", (4, 4, 2, 4)),
        ("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32.satfinite", (8, 8, 8, 8)),
        ("wmma.mma.sync.aligned.row.row.m8n8k32.s32.s4.s4.s32", (2, 1, 1, 2)),
    ],
)
def test_other_forms_are_refused_by_name(cpu: Any, opcode: str, operands: tuple[int, ...]) -> None:
    sparse = ", %m0, 0" if ".sp." in opcode else ""
    text = ", ".join(vector(letter, n) for letter, n in zip("dabc", operands, strict=True))
    ptx = kernel([f"{opcode} {text}{sparse};"], [(x, 8, 32) for x in "dabc"] + [("m", 1, 32)])
    module = cpu.load_module(ptx)
    with pytest.raises(UnsupportedError, match=opcode.partition(".")[0]) as error:
        module.kernel("k").launch(grid=1, block=32, args=[0, 0, 0, 0, 0])
    assert opcode in str(error.value) or "registers" in str(error.value)
    assert "kernel k" in str(error.value)


@pytest.mark.parametrize(
    "opcode",
    [
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32",
        "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f32",
        "mma.sync.aligned.m16n8k32.row.col.f32.e2m1.e4m3.f32",
        "mma.sync.aligned.m16n8k8.row.col.s32.s8.s8.s32",
        "mma.sp.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32",
        "wmma.mma.sync.aligned.row.col.m16n16k16.s32.s8.u8.s32",
    ],
)
def test_what_ptxas_knows_for_no_target_does_not_parse(opcode: str) -> None:
    sparse = ", %m0, 0" if ".sp." in opcode else ""
    text = f"{opcode} {vector('d', 4)}, {vector('a', 4)}, {vector('b', 2)}, {vector('c', 4)}{sparse};"
    ptx = kernel([text], [(x, 8, 32) for x in "dabc"] + [("m", 1, 32)])
    assert [type(error) for error in parse_module(ptx).errors().values()] == [PtxError]


def test_a_wrong_place_in_a_fragment_is_noticed(cpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    right = fragments.mma_b(16, 2)
    turned = tuple((*lane[1::-1], *lane[2:]) for lane in right)
    operations.mma.cache_clear()
    monkeypatch.setattr(fragments, "mma_b", lambda k, packed: turned)
    try:
        v = vectors()["mma_f16_k16_f32"]
        inputs = {x: placed(getattr(v, x), form_of(v.ptx), x) for x in "abc"}
        expected = placed(v.d, form_of(v.ptx), "d")
        inputs["b"] = warp.pack(v.b, right, "f16")
        found = launch(cpu, mma_ptx(v.ptx, form_of(v.ptx)), inputs, expected)
    finally:
        operations.mma.cache_clear()
    assert (found != expected).mean() > 0.3


CALLED = """
.func (.reg .b32 %r0) product(.reg .b32 %x0, .reg .b32 %x1)
{
    .reg .b32 %z;
    mov.b32 %z, 0;
    mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%r0, %z}, {%x0}, {%x1}, {%z, %z};
    ret;
}
"""


@pytest.mark.parametrize("threads", [32, 64])
def test_a_function_and_a_branch_of_whole_warps(cpu: Any, threads: int) -> None:
    """The instruction in a called function, and under a predicate that each warp decides as one."""
    body = [
        "ld.param.u64 %p, [pa]; mad.wide.u32 %p, %t, 4, %p; ld.global.b32 %a0, [%p];",
        "shr.u32 %x, %t, 5; setp.eq.u32 %keep, %x, 0; mov.b32 %d0, 0;",
        "@%keep call (%d0), product, (%a0, %a0);",
        "ld.param.u64 %p, [pd]; mad.wide.u32 %p, %t, 4, %p; st.global.b32 [%p], %d0;",
    ]
    ptx = kernel(body, [("a", 1, 32), ("d", 1, 32)]).replace(".visible", CALLED + ".visible", 1)
    a = np.random.default_rng(5).integers(0, 1 << 32, (threads, 1), np.uint32)
    found = launch(cpu, ptx, {"a": a}, np.zeros((1, threads), np.uint32), block=threads)[0]
    form = form_of("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32")
    product = warp.mma(form, a[None, :32], a[None, :32], np.zeros((1, 32, 2), np.uint32))[0, :, 0]
    assert (found[:32] == product).all() and not found[32:].any()
