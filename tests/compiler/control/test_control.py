"""Calls as nvcc writes them (``control.cu``), against what C++ means by them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zluda

PTX = (Path(__file__).parent / "control.ptx").read_text()
LANES = np.arange(40)


@pytest.fixture(scope="module", params=["cpu", "gfx1030", pytest.param("gfx90a", marks=pytest.mark.nightly)])
def device(request: pytest.FixtureRequest) -> Iterator[Any]:
    with zluda.open_device(request.param) as opened:
        yield opened, opened.load_module(PTX, file="control.ptx")


def run(device: Any, name: str, out: np.ndarray, *arguments: Any) -> np.ndarray:
    opened, module = device
    array = opened.array(out)
    given = [opened.array(a) if isinstance(a, np.ndarray) and a.ndim else a for a in arguments]
    module.kernel(name).launch(grid=1, block=len(LANES), args=[array, *given])
    return np.asarray(array.numpy())


def zeros() -> np.ndarray:
    return np.zeros(len(LANES), np.int32)


def test_virtual_functions(device: Any) -> None:
    i = LANES
    area = np.choose(i % 3, [i * i, (i + 1) ** 2 // 2, i * i * 3])
    edges = np.choose(i % 3, [4, 3, 4])
    assert run(device, "virtual_calls", zeros()).tolist() == (area * 10 + edges).tolist()


def test_tables_of_functions(device: Any) -> None:
    which = (LANES * 7 % 4).astype(np.int32)

    def operation(n: int, a: int, b: int) -> int:
        return (a + b, a - b, a * b, max(a, b))[n]

    expected = [operation(w, i, 7) + operation((w + 1) % 4, i, 3) for i, w in zip(LANES, which, strict=True)]
    assert run(device, "table_calls", zeros(), which).tolist() == expected


def _depth(n: int) -> int:
    value = 1
    for level in range(1, n + 1):
        value = (value * 3 + level) % 10007
    return value


def test_recursion_a_hundred_deep(device: Any) -> None:
    visited = device[0].array(zeros())
    out = device[0].array(zeros())
    device[1].kernel("recursion").launch(grid=1, block=len(LANES), args=[out, visited])
    odd = [0, 1, 1, 0, 1, 1, 0, 1, 1, 0]  # of the Fibonacci numbers
    expected = [_depth(100 - i) * 4 + (i % 2 == 0) * 2 + odd[i % 10] for i in LANES]
    assert out.numpy().tolist() == expected
    assert visited.numpy().tolist() == (101 - LANES).tolist()


def test_structures_by_value(device: Any) -> None:
    i = LANES.astype(np.float32)
    place = [k * i + 0.75 * k for k in (1, 2, 3)]
    expected = i * 6 + place[0] + place[1] * 10 + place[2] * 100 + (i - 2) * 1000 + (ord("A") + i)
    found = run(device, "structures", np.zeros(len(LANES), np.float32))
    assert np.allclose(found, expected, rtol=1e-6)


def test_lambdas(device: Any) -> None:
    def expected(i: int, scale: int = 3) -> int:
        def weigh(k: int) -> int:
            return k * scale + i

        seen = counted = 0
        for k in range(i, i + 4):
            seen += k & 1
            counted += seen
        return sum(map(weigh, range(i % 5))) + counted + weigh(i) + weigh(i + 1) - 3 + seen

    assert run(device, "lambdas", zeros(), np.int32(3)).tolist() == [expected(int(i)) for i in LANES]


def test_a_dense_switch(device: Any) -> None:
    which = (LANES * 5 % 9).astype(np.int32)

    def expected(i: int, w: int) -> int:
        cases = (i + 11, i * 3 - 5, i - 5, i ^ 0x55, -i << 2, i << 2, i % 7, -1, 1000)
        return cases[w]

    found = run(device, "switches", np.full(len(LANES), -1, np.int32), which)
    assert found.tolist() == [expected(int(i), int(w)) for i, w in zip(LANES, which, strict=True)]
