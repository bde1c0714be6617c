"""``mma``, ``mma.sp`` and ``wmma.mma`` give what an H200 gave, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tensor_kernels import form_of, launch, mma_ptx
from tensor_vectors import Bits, Vector, vectors

import zluda
from zluda.numerics.tensor_cores import warp
from zluda.numerics.tensor_cores.fragments import metadata_place
from zluda.numerics.tensor_cores.operations import Form, packed_bits

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


@pytest.mark.slow
@pytest.mark.parametrize("target", ["gfx1030", "gfx1100", "gfx90a"])
def test_amd_devices_give_the_same_bits(target: str) -> None:
    with zluda.open_device(target) as device:
        assert {name: differences(device, vectors()[name]) for name in ON_AMD} == dict.fromkeys(ON_AMD, 0)
