"""The numpy models give an H200's own bits, and NVIDIA's documented special values."""

from __future__ import annotations

import mufu_check
import numpy as np
import pytest

from zluda.numerics import mufu, tables

SPECIAL = {  # input → results in the order of COLUMNS
    0x00000000: "7f800000 7f800000 7f800000 7f800000 0 0 3f800000 3f800000 ff800000 ff800000 0 3f800000 0",
    0x80000000: "ff800000 ff800000 ff800000 ff800000 80000000 80000000 3f800000 3f800000 ff800000 ff800000"
    " 80000000 3f800000 80000000",
    0x00400000: "7f800000 7f000000 7f800000 5f3504f2 0 1fb504f3 3f800000 3f800000 ff800000 c2fdffff"
    " 0 3f800000 400000",
    0x3F800000: "3f800000 3f800000 3f800000 3f800000 3f800000 3f800000 40000000 40000000 0 0"
    " 3f576aa3 3f0a5141 3f42f848",
    0x7F7FFFFF: "0 200000 1f800000 1f800000 5f7fffff 5f7fffff 7f800000 7f800000 42ffffff 42ffffff"
    " 0 3f800000 3f800000",
    0xFF800000: "80000000 80000000 7fffffff 7fffffff 7fffffff 7fffffff 0 0 7fffffff 7fffffff"
    " 7fffffff 7fffffff bf800000",
    0xFFC12345: " ".join(["7fffffff"] * 13),
}
COLUMNS = [f"{op}.approx{ftz}.f32" for op in ("rcp", "rsqrt", "sqrt", "ex2", "lg2") for ftz in (".ftz", "")]
COLUMNS += [f"{op}.approx.f32" for op in ("sin", "cos", "tanh")]


def block_hash(name: str, first: int, count: int) -> int:
    """As ``mufu_check`` computes it, of the numpy model."""
    x = np.arange(first, first + count, dtype=np.uint64).astype(np.uint32)
    h = mufu.FUNCTIONS[name](x) + x * np.uint32(mufu_check.GOLDEN_RATIO)
    h = (h ^ (h >> 16)) * np.uint32(0x85EBCA6B)
    h = (h ^ (h >> 13)) * np.uint32(0xC2B2AE35)
    return int((h ^ (h >> 16)).sum(dtype=np.uint64)) & 0xFFFFFFFF


@pytest.mark.parametrize("name", mufu.FUNCTIONS)
def test_model_gives_the_gpus_bits_on_a_block(name: str) -> None:
    golden = np.load(mufu_check.HASHES)[name]
    size = mufu_check.block_size(name, len(golden))
    block = 0 if len(golden) == 1 else 0x3F7  # arguments just below 1
    assert block_hash(name, block * size, size) == int(golden[block])


def test_special_values() -> None:
    x = np.array(list(SPECIAL), dtype=np.uint32)
    expected = np.array([[int(v, 16) for v in row.split()] for row in SPECIAL.values()])
    for column, name in enumerate(COLUMNS):
        assert mufu.FUNCTIONS[name](x).tolist() == expected[:, column].tolist(), name


def test_square_is_the_sum_of_the_partial_products_above_2_to_18() -> None:
    x = np.arange(1 << 17, dtype=np.int64)
    bits = [(x >> i) & 1 for i in range(17)]
    plain = sum(bits[i] * bits[j] << (i + j) for i in range(17) for j in range(17) if i + j >= 18)
    assert np.array_equal(mufu.square(x), plain >> 19)


def test_tables_have_the_sizes_and_ranges_of_the_hardware() -> None:
    sizes = {"RCP": 128, "RSQRT": 128, "SQRT": 128, "EX2": 64, "LG2": 64, "SIN": 64, "TANH": 51}
    for name, rows in sizes.items():
        table = getattr(tables, name)
        assert len(table) == rows
        assert all(0 <= c0 < 1 << 26 for c0, _, _ in table)
    assert [first for first, _ in tables.TANH_SEGMENTS][-1] + 8 == 51
