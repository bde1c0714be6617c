"""``wmma.load``, ``wmma.store``, ``ldmatrix``, ``stmatrix``, ``movmatrix``: elements go where they belong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tensor_kernels import form_of, kernel, launch, transfer, vector
from tensor_vectors import Bits, vectors

import zluda
from zluda.errors import UnsupportedError
from zluda.numerics.tensor_cores.formats import element_bits
from zluda.numerics.tensor_cores.operations import Form, sizes

RANDOM = np.random.default_rng(11)
WMMA = [name for name, v in vectors().items() if v.opcode == "wmma"]
QUICK = 4  # one form in so many is not slow
PADDING = 16  # bytes between the lines of a matrix in memory


@pytest.fixture(scope="module", params=["cpu", pytest.param("gfx90a", marks=pytest.mark.slow)])
def device(request: pytest.FixtureRequest) -> Iterator[Any]:
    with zluda.open_device(request.param) as device:
        yield device


@pytest.fixture(scope="module")
def cpu() -> Iterator[Any]:
    with zluda.open_device("cpu") as device:
        yield device


# --- wmma --------------------------------------------------------------------------------------------


def in_memory(matrix: Bits, layout: str, *, padded: bool = True) -> tuple[Bits, int]:
    """A matrix (rows, columns) as bytes, line after line with a gap, and the stride in elements."""
    lines = matrix if layout == "row" else matrix.T
    stride = lines.shape[1] * lines.itemsize + PADDING * padded
    memory = np.full((lines.shape[0], stride), 0xEE, np.uint8)
    memory[:, : lines.shape[1] * lines.itemsize] = np.ascontiguousarray(lines).view(np.uint8)
    return memory, stride // lines.itemsize


def from_memory(memory: Bits, shape: tuple[int, int], dtype: Any, layout: str) -> Bits:
    """The matrix that :func:`in_memory` would have written so."""
    rows, columns = shape if layout == "row" else shape[::-1]
    lines = memory[:, : columns * np.dtype(dtype).itemsize].copy().view(dtype)
    assert lines.shape == (rows, columns)
    return lines if layout == "row" else lines.T


def wmma_program(
    opcode: str,
    form: Form,
    layouts: tuple[str, str, str, str],
    strides: tuple[int, int, int, int],
    space: str,
) -> str:
    """Load A, B and C, multiply, store D; layouts and strides of A, B, C and D."""
    op = form.operation
    shape = next(w for w in opcode.split(".") if w[0] == "m" and w[1:2].isdigit())
    counts = {x: form.registers(x) for x in "abcd"}
    body = []
    for x, layout, stride in zip("abc", layouts, strides, strict=False):
        body += [f"ld.param.u64 %p, [p{x}];"]
        step = f", {stride}" if stride else ""
        load = f"wmma.load.{x}.sync.aligned.{layout}.{shape}{space}.{getattr(op, x)}"
        body += [f"{load} {vector(x, counts[x])}, [%p]{step};"]
    body += [f"{opcode} {', '.join(vector(x, counts[x]) for x in 'dabc')};", "ld.param.u64 %p, [pd];"]
    store = f"wmma.store.d.sync.aligned.{layouts[3]}.{shape}{space}.{op.d}"
    body += [f"{store} [%p], {vector('d', counts['d'])}, {strides[3]};"]
    return kernel(body, [(x, counts[x], form.wide(x)) for x in "abcd"])


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if i % QUICK == 0 else pytest.mark.slow) for i, n in enumerate(WMMA)]
)
def test_a_product_from_memory_to_memory_is_an_h200s(cpu: Any, name: str) -> None:
    v = vectors()[name]
    form = form_of(v.ptx)
    words = v.ptx.split(".")
    alayout, blayout = (w for w in words if w in ("row", "col"))
    for tile in (0, 3):
        c_layout, d_layout = ("row", "col") if tile % 2 else ("col", "row")
        a, a_stride = in_memory(v.a[tile], alayout)
        b, b_stride = in_memory(v.b[tile].T, blayout)
        c, c_stride = in_memory(v.c[tile], c_layout)
        d, d_stride = in_memory(v.d[tile], d_layout)
        ptx = wmma_program(
            v.ptx,
            form,
            (alayout, blayout, c_layout, d_layout),
            (a_stride, b_stride, c_stride, d_stride),
            "" if tile % 2 else ".global",
        )
        found = launch(cpu, ptx, {"a": a, "b": b, "c": c}, d[None])[0]
        assert (from_memory(found, v.d[tile].shape, v.d.dtype, d_layout) == v.d[tile]).all()


@pytest.mark.parametrize(("shape", "name"), [("m16n16k16", "f32"), ("m8n32k16", "f16"), ("m32n8k16", "s32")])
@pytest.mark.parametrize("layouts", [("row", "col"), ("col", "row"), ("row", "row")])
def test_an_accumulator_moves_as_it_is(device: Any, shape: str, name: str, layouts: tuple[str, str]) -> None:
    m, n, _ = sizes(shape)
    dtype = np.uint16 if name == "f16" else np.uint32
    matrix = RANDOM.integers(0, 1 << 16, (m, n), dtype)
    source, stride = in_memory(matrix, layouts[0])
    target, back = in_memory(matrix, layouts[1])
    count = m * n * element_bits(name) // 1024
    registers = vector("c", count)
    ptx = kernel(
        [
            f"ld.param.u64 %p, [pc];mov.u32 %x, {stride};",
            f"wmma.load.c.sync.aligned.{layouts[0]}.{shape}.global.{name} {registers}, [%p], %x;",
            "ld.param.u64 %p, [pd];",
            f"wmma.store.d.sync.aligned.{layouts[1]}.{shape}.global.{name} [%p], {registers}, {back};",
        ],
        [("c", count, 32)],
    )
    found = launch(device, ptx, {"c": source}, target[None])[0]
    assert (from_memory(found, matrix.shape, dtype, layouts[1]) == matrix).all()


@pytest.mark.parametrize("name", ["s4", "u4", "b1", "f64"])
def test_small_elements_are_packed_and_a_stride_may_be_left_out(cpu: Any, name: str) -> None:
    shape = {"b1": "m8n8k128", "f64": "m8n8k4"}.get(name, "m8n8k32")
    size = 64 if name == "f64" else 32
    words = RANDOM.integers(0, 1 << 32, (8, 4), np.uint32).astype(f"u{size // 8}")  # 8 lines, a word a lane
    body = ["ld.param.u64 %p, [pa];"]
    body += [f"wmma.load.a.sync.aligned.row.{shape}.{name} {{%a0}}, [%p];"]
    body += [
        "ld.param.u64 %p, [pd];",
        f"mad.wide.u32 %p, %t, {size // 8}, %p;",
        f"st.global.b{size} [%p], %a0;",
    ]
    found = launch(cpu, kernel(body, [("a", 1, size)]), {"a": words}, np.zeros((1, 32), words.dtype))
    assert (found.reshape(8, 4) == words).all()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("wmma.load.a.sync.aligned.row.m16n16k8.f16 {%a0, %a1, %a2, %a3}, [%p];", "wmma.load.a"),
        ("wmma.store.d.sync.aligned.row.m8n8k4.f16 [%p], {%a0, %a1};", "wmma.store.d"),
    ],
)
def test_other_forms_are_refused_by_name(cpu: Any, text: str, what: str) -> None:
    module = cpu.load_module(kernel([text], [("a", 4, 32)]))
    with pytest.raises(UnsupportedError, match=what):
        module.kernel("k").launch(grid=1, block=32, args=[0, 0, 0, 0, 0])


# --- ldmatrix, stmatrix, movmatrix -------------------------------------------------------------------


def shared_rows(count: int, order: list[int]) -> list[str]:
    """A (count matrices of 8 rows of 16 bytes) to shared memory, row ``i`` to place ``order[i]``; %y: where
    this lane's row is."""
    body = ["mov.u32 %x, %tid.x;", "mov.u32 %y, tile;", "ld.param.u64 %p, [pa];"]
    for row in range(8 * count):
        body += [f"ld.global.v4.b32 {{%s0, %s1, %s2, %s3}}, [%p+{16 * row}];"]
        body += [f"st.shared.v4.b32 [%y+{16 * order[row]}], {{%s0, %s1, %s2, %s3}};"]
    # The lane's row is at the place that its number says, by a table in the parameter m.
    body += ["ld.param.u64 %p, [pm];", "mad.wide.u32 %p, %x, 4, %p;", "ld.global.b32 %x, [%p];"]
    return [*body, "mad.lo.u32 %y, %x, 16, %y;", "bar.warp.sync 0xffffffff;"]


def stored(count: int) -> list[str]:
    """Each lane's registers to D."""
    body = ["ld.param.u64 %p, [pd];", f"mad.wide.u32 %p, %t, {4 * count}, %p;"]
    return body + [f"st.global.b32 [%p+{4 * i}], %a{i};" for i in range(count)]


@pytest.mark.parametrize("turned", ["", ".trans"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_gathers_rows_by_the_lanes_addresses(device: Any, count: int, turned: str) -> None:
    matrices = RANDOM.integers(0, 1 << 16, (count, 8, 8), np.uint16)
    order = RANDOM.permutation(8 * count).tolist()
    table = np.zeros(32, np.uint32)
    table[: 8 * count] = order
    opcode = f"ldmatrix.sync.aligned.m8n8.x{count}{turned}.shared.b16"
    body = [*shared_rows(count, order), f"{opcode} {vector('a', count)}, [%y];", *stored(count)]
    ptx = kernel(body, [("a", count, 32), ("s", 4, 32)], shared=512)
    inputs = {"a": matrices, "m": table}
    found = launch(device, ptx, inputs, np.zeros((1, 32, count), np.uint32), shared=512)[0]
    source = matrices.swapaxes(1, 2) if turned else matrices
    # Register i of lane (g, t) holds columns 2t and 2t + 1 of row g of matrix i.
    expected = np.ascontiguousarray(source).view(np.uint32).reshape(count, 32).T
    assert (found == expected).all()


@pytest.mark.parametrize("turned", ["", ".trans"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_stmatrix_scatters_what_ldmatrix_gathers(device: Any, count: int, turned: str) -> None:
    matrices = RANDOM.integers(0, 1 << 16, (count, 8, 8), np.uint16)
    order = list(range(8 * count))
    table = np.arange(32, dtype=np.uint32) % (8 * count)
    body = [*shared_rows(count, order)]
    body += [f"ldmatrix.sync.aligned.m8n8.x{count}.shared.b16 {vector('a', count)}, [%y];"]
    body += ["bar.warp.sync 0xffffffff;"]
    body += [f"stmatrix.sync.aligned.m8n8.x{count}{turned}.shared.b16 [%y], {vector('a', count)};"]
    body += ["bar.warp.sync 0xffffffff;", "mov.u32 %y, tile;", "mad.lo.u32 %y, %t, 4, %y;"]
    body += [f"ld.shared.b32 %a{i}, [%y+{128 * i}];" for i in range(count)] + stored(count)
    ptx = kernel(body, [("a", count, 32), ("s", 4, 32)], shared=512)
    inputs = {"a": matrices, "m": table}
    found = launch(device, ptx, inputs, np.zeros((1, 32, count), np.uint32), shared=512)[0]
    target = matrices.swapaxes(1, 2) if turned else matrices
    assert (found == np.ascontiguousarray(target).view(np.uint32).reshape(count, 32).T).all()


def test_movmatrix_transposes(device: Any) -> None:
    matrix = RANDOM.integers(0, 1 << 16, (1, 8, 8), np.uint16)
    body = ["ld.param.u64 %p, [pa];", "mad.wide.u32 %p, %t, 4, %p;", "ld.global.b32 %a0, [%p];"]
    body += ["movmatrix.sync.aligned.m8n8.trans.b16 %a0, %a0;", *stored(1)]
    found = launch(device, kernel(body, [("a", 1, 32)]), {"a": matrix}, np.zeros((1, 32), np.uint32))[0]
    assert (found == np.ascontiguousarray(matrix.swapaxes(1, 2)).view(np.uint32).ravel()).all()


# --- elements of eight bits and fewer ----------------------------------------------------------------


def packed_rows(elements: Bits, bits: int) -> Bits:
    """Rows of 16 elements as the 16 bytes that memory has: packed from the low bits on, then padding."""
    rows = np.full((len(elements), 16), 0xEE, np.uint8)
    for row, values in enumerate(elements):
        number = sum(int(v) << (bits * i) for i, v in enumerate(values))
        rows[row, : 2 * bits] = np.frombuffer(number.to_bytes(2 * bits, "little"), np.uint8)
    return rows


def ldmatrix_ptx(modifiers: str, registers: int, *, stride: int) -> str:
    """``ldmatrix`` of rows in shared memory, lane *i* giving the address of row *i* of them."""
    body = ["mov.b64 %q, tile; cvta.shared.u64 %q, %q; ld.param.u64 %p, [pa];"]
    body += [f"mad.wide.u32 %p, %t, 16, %p; mad.wide.u32 %da, %t, 0, %q; mul.wide.u32 %db, %t, {stride};"]
    body += ["add.u64 %da, %da, %db; ld.global.v4.b32 {%a0, %a1, %a2, %a3}, [%p];"]
    body += ["st.v4.b32 [%da], {%a0, %a1, %a2, %a3}; bar.warp.sync -1;"]
    body += [f"ldmatrix.sync.aligned.{modifiers} {vector('d', registers)}, [%da];"]
    body += transfer("st", "d", registers, 32)
    return kernel(body, [("a", 4, 32), ("d", registers, 32)], shared=1).replace("sm_90a", "sm_100a")


def loaded(cpu: Any, modifiers: str, memory: Bits, *, stride: int) -> Bits:
    """The bytes of four registers that ``ldmatrix`` gives: (group of lanes, lane in it, register, byte)."""
    ptx = ldmatrix_ptx(modifiers, 4, stride=stride)
    found = launch(cpu, ptx, {"a": memory}, np.zeros((1, 32, 4), np.uint32), shared=32 * stride)
    return found[0].view(np.uint8).reshape(8, 4, 4, 4)


@pytest.mark.parametrize(("bits", "name"), [(4, "b8x16.b4x16_p64"), (6, "b8x16.b6x16_p32"), (8, "b8")])
def test_ldmatrix_of_small_elements_puts_each_in_a_byte(cpu: Any, bits: int, name: str) -> None:
    """Shapes 8x16 (as it is) and 16x16 (transposed) of PTX ISA 9.7.14.5.15, Figures 105 and 106."""
    elements = RANDOM.integers(0, 1 << bits, (32, 16), np.uint8)
    memory = packed_rows(elements, bits)
    g, t, i = np.ogrid[:8, :4, :4]
    places = loaded(cpu, f"m16n16.x2.trans.{name}", memory, stride=48)
    for register in range(4):
        matrix = elements[16 * (register // 2) :][:16]
        assert (places[:, :, register] == matrix[4 * t + i, g + 8 * (register % 2)]).all()
    if bits == 8:
        return
    places = loaded(cpu, f"m8n16.x4.{name}", memory, stride=16)
    for register in range(4):
        assert (places[:, :, register] == elements[8 * register :][:8][g, 4 * t + i]).all()


def test_stmatrix_of_bytes_stores_columns(cpu: Any) -> None:
    """16x8 bytes, transposed (PTX ISA 9.7.14.5.16, Figure 108): row g and g + 8, columns 2t and 2t + 1."""
    registers = RANDOM.integers(0, 1 << 32, (32, 4), np.uint32)
    body = ["mov.b64 %q, tile; cvta.shared.u64 %q, %q; mad.wide.u32 %da, %t, 32, %q;"]
    body += transfer("ld", "a", 4, 32)
    body += ["stmatrix.sync.aligned.m16n8.x4.trans.b8 [%da], {%a0, %a1, %a2, %a3};"]
    body += ["bar.warp.sync -1; ld.v4.b32 {%d0, %d1, %d2, %d3}, [%da];", *transfer("st", "d", 4, 32)]
    ptx = kernel(body, [("a", 4, 32), ("d", 4, 32)], shared=1).replace("sm_90a", "sm_100a")
    found = launch(cpu, ptx, {"a": registers}, np.zeros((1, 32, 4), np.uint32), shared=32 * 32)
    rows = found[0].view(np.uint8).reshape(32, 16)  # the row at each lane's address
    given = registers.view(np.uint8).reshape(8, 4, 4, 4)  # group, place in it, matrix, byte
    for matrix in range(4):
        for lane in range(32):
            g, t = divmod(lane, 4)
            for i in range(4):
                assert rows[8 * matrix + 2 * t + i % 2, g + 8 * (i // 2)] == given[g, t, matrix, i]
