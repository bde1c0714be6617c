"""Control flow of every shape: random graphs, and loops that share a head, on each device."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy
import pytest
import random_graphs

import zluda

LANES, ROUNDS = (64, 40, 33), 60
FOUND = (142, 156, 157, 225, 301, 456, 534, 574, 605, 641)
"""Some of those in which registers of lanes that had gone back to a head were wrong on the CPU."""

REJECTING = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 states, .param .u64 out, .param .u32 count, .param .u32 most)
{
.reg .pred %p<3>;
.reg .b32 %i, %x, %count, %most, %value, %threads;
.reg .b64 %states, %out, %at;
ld.param.b64 %states, [states];
ld.param.b64 %out, [out];
ld.param.b32 %count, [count];
ld.param.b32 %most, [most];
mov.u32 %i, %tid.x;
mov.u32 %threads, %ntid.x;
mul.wide.u32 %at, %i, 4;
add.s64 %states, %states, %at;
ld.global.b32 %x, [%states];
setp.ge.u32 %p0, %i, %count;
@%p0 bra END;
AGAIN:
mad.lo.u32 %x, %x, 1664525, 1013904223;
shr.u32 %value, %x, 22;
setp.gt.u32 %p1, %value, %most;
@%p1 bra AGAIN;
mul.wide.u32 %at, %i, 4;
add.s64 %at, %out, %at;
st.global.b32 [%at], %value;
add.u32 %i, %i, %threads;
setp.lt.u32 %p2, %i, %count;
@%p2 bra AGAIN;
END:
st.global.b32 [%states], %x;
ret;
}
"""
"""Random numbers until one is small enough, for each element that is a thread's: two loops, one head."""


def wrong_of(seed: int, device: zluda.Device) -> int:
    """How many words of a random graph's results are wrong."""
    blocks, lanes = random_graphs.program(seed), LANES[seed % 3]
    chosen = random.Random(seed)
    numbers = [chosen.randrange(1 << 32) for _ in range(lanes)]
    right = [random_graphs.expected(blocks, n, i, lanes, ROUNDS) for i, n in enumerate(numbers)]
    out = device.array(numpy.zeros((lanes, 2), numpy.uint32))
    kernel = device.load_module(random_graphs.text(blocks)).kernel("k")
    given = device.array(numpy.array(numbers, numpy.uint32))
    kernel.launch(grid=(1, 1, 1), block=(lanes, 1, 1), args=[given, out, numpy.uint32(ROUNDS)])
    return int((out.numpy() != numpy.array(right, numpy.uint32)).sum())


@pytest.mark.parametrize(
    ("name", "seeds"),
    [
        ("cpu", (*range(60), *FOUND)),
        ("interpreter", FOUND),
        pytest.param("gfx1030", FOUND, marks=pytest.mark.slow),
        pytest.param("cpu", range(60, 3000), marks=pytest.mark.nightly),
        pytest.param("gfx90a", range(100), marks=pytest.mark.nightly),
    ],
)
def test_random_graphs(name: str, seeds: Sequence[int]) -> None:
    device = zluda.open_device(name)
    assert [seed for seed in seeds if wrong_of(seed, device)] == []


@pytest.mark.parametrize(("count", "most"), [(64, 600), (200, 600), (320, 999), (300, 300)])
@pytest.mark.parametrize("name", ["cpu", "interpreter", pytest.param("gfx1030", marks=pytest.mark.slow)])
def test_loops_that_share_a_head(name: str, count: int, most: int) -> None:
    """cuRAND's integers below a limit, as CuPy draws them."""
    device = zluda.open_device(name)
    states = numpy.arange(64, dtype=numpy.uint32) * numpy.uint32(2654435761)
    values, left = numpy.zeros(count, numpy.uint32), states.copy()
    for thread in range(min(64, count)):
        for i in range(thread, count, 64):
            while True:
                left[thread] = int(left[thread]) * 1664525 + 1013904223 & 0xFFFFFFFF
                if left[thread] >> 22 <= most:
                    break
            values[i] = left[thread] >> 22
    given, out = device.array(states), device.array(numpy.zeros(count, numpy.uint32))
    arguments = [given, out, numpy.uint32(count), numpy.uint32(most)]
    device.load_module(REJECTING).kernel("k").launch(grid=(1, 1, 1), block=(64, 1, 1), args=arguments)
    numpy.testing.assert_array_equal(out.numpy(), values)
    numpy.testing.assert_array_equal(given.numpy(), left)
