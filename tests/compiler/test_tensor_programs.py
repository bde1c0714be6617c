"""Kernels of ``corpus/tensor_cores`` against the reference.

``data/tensor_cores.ptx`` is what nvcc 13.0 makes of it with ``-arch=sm_90a -ptx``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import zluda
from zluda.numerics.tensor_cores import operations, reference, warp
from zluda.numerics.tensor_cores.operations import Operation

PTX = Path(__file__).parent / "data" / "tensor_cores.ptx"
LINE = 128  # bytes of a row of A, or of a column of B
RANDOM = np.random.default_rng(3)
Bits = NDArray[Any]


class Bench:
    """A device with the kernels loaded, by the beginning of their names."""

    def __init__(self, name: str) -> None:
        self.device = zluda.open_device(name)
        self.module = self.device.load_module(PTX.read_text(), file=PTX.name)

    def run(
        self, name: str, grid: Any, block: int, result: Bits, *inputs: Any, after: tuple[Any, ...] = ()
    ) -> Bits:
        """What ``kernel(inputs…, result, after…)`` leaves in ``result``."""
        d = self.device.array(np.full_like(result, 0xA5))
        arguments = [self.device.array(x) for x in inputs]
        self.module.kernel(name).launch(grid=grid, block=block, args=[*arguments, d, *after])
        found: Bits = d.numpy()
        return found


@pytest.fixture(scope="module", params=["cpu", pytest.param("gfx1030", marks=pytest.mark.nightly)])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    bench = Bench(request.param)
    yield bench
    bench.device.close()


def product(op: Operation, a: Bits, b: Bits) -> Bits:
    """Lines of A times lines of B in chunks of the operation's K, each from the one before."""
    d: Bits = np.zeros((len(a), len(b)), np.uint32)
    for k in range(0, a.shape[-1], op.k):
        d = reference.dot(op, a[:, k : k + op.k], b[:, k : k + op.k], d)
    return d


def numbers(lines: int, dtype: str) -> Bits:
    """Bits of numbers around 1."""
    count = LINE // np.dtype(dtype).itemsize
    values = RANDOM.uniform(-2, 2, (lines, count)).astype(np.float32)
    if dtype == "u2":
        return values.astype(np.float16).view(np.uint16)
    return values.view(np.uint32) if dtype == "u4" else RANDOM.integers(0, 256, (lines, count), np.uint8)


def test_a_product_by_the_wmma_interface(bench: Bench) -> None:
    a, b = numbers(32, "u2"), numbers(32, "u2")
    form = operations.wmma("m16n16k16", "f16", "f16", "f32", "f32")
    assert form is not None
    found = bench.run(
        "_Z8wmma_f16PK6__halfS1_Pfi",
        (2, 2),
        32,
        np.zeros((32, 32), np.uint32),
        a,
        b,
        after=(np.int32(LINE // 2),),
    )
    assert (found == product(form.operation, a, b)).all()


@pytest.mark.parametrize(
    ("kind", "types", "dtype"),
    [
        ("4Bf16", ("m16n8k16", "bf16", "bf16", "f32"), "u2"),
        ("4Tf32", ("m16n8k8", "tf32", "tf32", "f32"), "u4"),
        ("3Fp8", ("m16n8k32", "e4m3", "e5m2", "f32"), "u1"),
        ("2S8", ("m16n8k32", "s8", "u8", "s32"), "u1"),
    ],
)
def test_a_product_by_mma_and_ldmatrix(
    bench: Bench, kind: str, types: tuple[str, str, str, str], dtype: str
) -> None:
    form = operations.mma(*types, types[3])
    assert form is not None
    a, b = numbers(32, dtype), numbers(32, dtype)
    name = f"_Z8mma_syncI{kind}EvPKhS2_PNT_6ResultE"
    found = bench.run(name, (4, 2), 32, np.zeros((32, 32), np.uint32), a, b)
    assert (found == product(form.operation, a, b)).all()


def test_a_sparse_product(bench: Bench) -> None:
    form = operations.mma("m16n8k32", "f16", "f16", "f32", "f32", sparse=True)
    assert form is not None
    a, b = (numbers(4, "u2").view(np.uint32).reshape(1, 32, 4) for _ in "ab")
    chunks = RANDOM.choice([0x4, 0x8, 0xC, 0x9, 0xD, 0xE], (1, 32, 8)).astype(np.uint32)
    metadata = (chunks << (4 * np.arange(8, dtype=np.uint32))).sum(-1, dtype=np.uint32)
    zeros = np.zeros((1, 32, 4), np.uint32)
    expected = warp.mma(form, a, b, zeros, metadata=metadata)
    matrix = warp.unpack(expected, form.fragment_d, "f32", (16, 8))[0]
    found = bench.run("_Z10mma_sparsePKjS0_S0_Pf", 1, 32, matrix, a, b, metadata)
    assert (found == matrix).all()


def test_a_product_by_a_warpgroup(bench: Bench) -> None:
    form = operations.wgmma("m64n16k16", "f16", "f16", "f32")
    assert form is not None
    a, b = numbers(64, "u2"), numbers(16, "u2")
    found = bench.run("_Z9wgmma_f16PKhS0_Pf", 1, 128, np.zeros((64, 16), np.uint32), a, b)
    assert (found == product(form.operation, a, b)).all()


def test_matrices_turned_three_times(bench: Bench) -> None:
    source = RANDOM.integers(0, 1 << 16, (4, 8, 8), np.uint16)
    found = bench.run("_Z4turnPKtPt", 1, 32, np.zeros_like(source), source)
    assert (found == source.swapaxes(1, 2)).all()
