"""Triton's matrix products: ``mma`` with ``ldmatrix`` for sm_80, ``wgmma`` from swizzled memory for sm_90a.

``data/triton_matmul.py`` made the PTX.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zluda
from zluda.numerics.tensor_cores import operations, reference

DATA = Path(__file__).parent / "data"
SIZE, DEPTH, SHARED = 128, 128, 49152  # 2 by 2 blocks, two rounds of 64
RANDOM = np.random.default_rng(17)


@pytest.fixture(scope="module", params=["cpu", pytest.param("gfx1100", marks=pytest.mark.nightly)])
def device(request: pytest.FixtureRequest) -> Iterator[Any]:
    with zluda.open_device(request.param) as device:
        yield device


def numbers(name: str) -> np.ndarray[Any, Any]:
    """A square matrix's bits."""
    values = RANDOM.uniform(-1, 1, (SIZE, DEPTH)).astype(np.float32)
    if name == "f16":
        return values.astype(np.float16).view(np.uint16)
    if name == "bf16":
        return (values.view(np.uint32) >> 16).astype(np.uint16)
    return RANDOM.integers(0, 256, (SIZE, DEPTH), np.uint8) & np.uint8(0xBF)  # e4m3 below 2


@pytest.mark.parametrize(
    ("file", "name", "shape"),
    [
        ("triton_matmul_sm80_bf16.ptx", "bf16", "m16n8k16"),
        ("triton_matmul_sm90a_f16.ptx", "f16", "m64n64k16"),
        ("triton_matmul_sm90a_e4m3.ptx", "e4m3", "m64n64k32"),
    ],
)
def test_a_product_by_triton_is_what_the_reference_gives(
    device: Any, file: str, name: str, shape: str
) -> None:
    form = (
        operations.mma(shape, name, name, "f32", "f32")
        if shape.startswith("m16")
        else operations.wgmma(shape, name, name, "f32")
    )
    assert form is not None
    a, b = numbers(name), numbers(name)  # A (M, K), B (K, N)
    expected = np.zeros((SIZE, SIZE), np.uint32)
    for k in range(0, DEPTH, form.operation.k):
        at = slice(k, k + form.operation.k)
        expected = reference.dot(form.operation, a[:, at], b.T[:, at], expected)
    c = device.array(np.full((SIZE, SIZE), 0xA5A5A5A5, np.uint32))
    sizes = [np.int32(n) for n in (SIZE, SIZE, DEPTH, DEPTH, SIZE, SIZE)]
    kernel = device.load_module((DATA / file).read_text(), file=file).kernel("matmul")
    kernel.launch(
        grid=(2, 2), block=128, args=[device.array(a), device.array(b), c, *sizes, 0, 0], shared_bytes=SHARED
    )
    assert (c.numpy() == expected).all()
