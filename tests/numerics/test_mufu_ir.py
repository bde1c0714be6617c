"""The vector IR of the approximate units gives an H200's own bits."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import mufu_check
import numpy as np
import pytest
from mufu_check import FUNCTIONS, compile_hashes, wrong_blocks

from zluda.compiler.ir import Builder, Module, Value
from zluda.compiler.lower.mufu import square
from zluda.numerics import mufu

# What .ftz forms compute, too. All 2^32 inputs take a quarter of a minute each: of three units nightly.
BY_DAY = [f"{op}.approx.f32" for op in ("rcp", "ex2")]
BY_NIGHT = [f"{op}.approx.f32" for op in ("rsqrt", "sqrt", "lg2")]
REST = [name for name in FUNCTIONS if name not in BY_DAY]


@cache
def hashes() -> dict[str, Callable[[int, int], int]]:
    return compile_hashes(FUNCTIONS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_block_in_128(name: str) -> None:
    assert wrong_blocks(name, hashes()[name], step=128, first=77) == []


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) for name in BY_DAY]
    + [pytest.param(name, marks=pytest.mark.nightly) for name in BY_NIGHT],
)
def test_all_inputs(name: str) -> None:
    assert wrong_blocks(name, hashes()[name]) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", REST)
def test_one_block_in_eight(name: str) -> None:
    """``make check-mufu`` checks these whole."""
    assert wrong_blocks(name, hashes()[name], step=8) == []


def test_a_wrong_bit_is_noticed() -> None:
    name = "rcp.approx.ftz.f32"
    honest = hashes()[name]
    assert wrong_blocks(
        name, lambda first, count: honest(first, count) ^ (first == 5 << 20), step=1024, first=5
    ) == [5 << 20]


def test_square_is_the_reference_square() -> None:
    module = Module()
    b = Builder(module)
    b.label("entry")
    x = b.load("i32", Value("ptr", 1, "%x"), 16)
    b.store(square(b, x), Value("ptr", 1, "%out"))
    b.ret()
    module.define("square", "void @square(ptr %x, ptr %out)", b)
    (address,) = mufu_check.lane_harness.load(module, "square")
    function = mufu_check.ctypes.CFUNCTYPE(None, mufu_check.ctypes.c_void_p, mufu_check.ctypes.c_void_p)(
        address
    )
    inputs = np.arange(1 << 17, dtype=np.uint32)
    out = np.zeros_like(inputs)
    for start in range(0, len(inputs), 16):
        function(inputs[start:].ctypes.data, out[start:].ctypes.data)
    assert np.array_equal(out, mufu.square(inputs.astype(np.int64)))
