"""Local memory, structures by value and functions that change them, against plain Python: random kernels."""

from __future__ import annotations

import numpy as np
import pytest
from random_structures import OUTPUT, STRUCTURE, random_program

import zluda

DEVICES = ("cpu", "gfx1030", "gfx1100", "gfx90a")
THREADS = 64
BYTES = bytes(np.random.default_rng(5).integers(0, 256, STRUCTURE, dtype=np.uint8))


def check(name: str, seeds: range) -> None:
    with zluda.open_device(name) as device:
        for seed in seeds:
            program = random_program(seed)
            text = program.ptx()
            out = device.array(np.zeros((THREADS, OUTPUT), np.uint8))
            kernel = device.load_module(text, file=f"seed {seed}").kernel("k")
            kernel.launch(grid=1, block=THREADS, args=[BYTES, out])
            expected = [list(program.expected(t, BYTES)) for t in range(THREADS)]
            np.testing.assert_array_equal(out.numpy(), np.array(expected, np.uint8), f"seed {seed}\n{text}")


@pytest.mark.parametrize("name", DEVICES)
def test_random_structures(name: str) -> None:
    check(name, range(4))


@pytest.mark.nightly
@pytest.mark.parametrize("name", DEVICES)
def test_many_random_structures(name: str) -> None:
    check(name, range(100, 130))
