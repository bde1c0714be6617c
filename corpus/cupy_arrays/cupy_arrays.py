"""CuPy: elementwise, reduction and raw kernels, beside NumPy."""

from __future__ import annotations

import sys
from pathlib import Path

import cupy
import numpy

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from numpy_support import finish, values

x, y = values(1001, seed=1), values(1001, seed=2)
gx, gy = cupy.asarray(x), cupy.asarray(y)
whole = numpy.arange(600, dtype=numpy.int64) * 7919 % 1009
gwhole = cupy.asarray(whole)

squared = cupy.ElementwiseKernel("float32 a, float32 b", "float32 c", "c = (a - b) * (a - b) + 1", "squared")
length = cupy.ReductionKernel("float32 a", "float32 root", "a * a", "a + b", "root = sqrt(a)", "0", "length")
collatz = cupy.RawKernel(
    r"""
extern "C" __global__ void collatz(const long long *start, int *steps, int count) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= count) return;
    long long value = start[at] + 1;
    int n = 0;
    while (value != 1) { value = value % 2 ? 3 * value + 1 : value / 2; n++; }
    steps[at] = n;
}""",
    "collatz",
)
steps = cupy.zeros(600, dtype=cupy.int32)
collatz((5,), (128,), (gwhole, steps, numpy.int32(600)))


def by_hand(value: int) -> int:
    count = 0
    while value != 1:
        value = 3 * value + 1 if value % 2 else value // 2
        count += 1
    return count


matrix = values(33, 47, seed=3)
wide = x.astype(numpy.float64)
finish(
    "cupy_arrays",
    [
        (cupy.asnumpy(squared(gx, gy)), (wide - y) ** 2 + 1, 1e-5),
        (cupy.asnumpy(length(gx)), numpy.sqrt((wide**2).sum()), 1e-4),
        (cupy.asnumpy(steps), numpy.array([by_hand(int(one) + 1) for one in whole]), 0.0),
        (
            cupy.asnumpy(cupy.sin(gx) * cupy.exp(-gy) + cupy.hypot(gx, gy)),
            numpy.sin(wide) * numpy.exp(-y) + numpy.hypot(wide, y),
            1e-4,
        ),
        (cupy.asnumpy(cupy.where(gx > gy, gx, -gy)[::3]), numpy.where(x > y, x, -y)[::3], 0.0),
        (cupy.asnumpy(cupy.asarray(matrix).T.sum(axis=1)), matrix.astype(numpy.float64).sum(0), 1e-4),
        (cupy.asnumpy(cupy.asarray(matrix).argmax(axis=1)), matrix.argmax(1), 0.0),
        (cupy.asnumpy(gwhole % 97 // 5 ^ 3), whole % 97 // 5 ^ 3, 0.0),
        (cupy.asnumpy(cupy.cumsum(gwhole)), whole.cumsum(), 0.0),
        (cupy.asnumpy(cupy.median(gx)), numpy.median(x), 1e-6),
        (
            cupy.asnumpy(cupy.clip(gx.astype(cupy.float16), -1, 1)),
            numpy.clip(x.astype(numpy.float16), -1, 1),
            0.0,
        ),
        (cupy.asnumpy(cupy.bincount(gwhole % 31)), numpy.bincount(whole % 31), 0.0),
        (cupy.asnumpy((gx + 1j * gy).conj().imag), -y, 0.0),
    ],
)
