"""CuPy: random numbers from its own kernels, permutations, polynomials, interpolation."""

from __future__ import annotations

import sys
from pathlib import Path

import cupy
import numpy

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from numpy_support import finish, values

drawn = []
for bits in (cupy.random.XORWOW, cupy.random.MRG32k3a, cupy.random.Philox4x3210):
    generator = cupy.random.Generator(bits(seed=7, size=256))
    drawn += [
        cupy.asnumpy(generator.random(512, dtype=numpy.float32)),
        cupy.asnumpy(generator.standard_normal(512, dtype=numpy.float32)),
        cupy.asnumpy(generator.integers(0, 1000, 512)),
        cupy.asnumpy(generator.exponential(2.0, 256)),
    ]
middles = [(0.5, 0.5), (0.0, 6.0), (500.0, 500.0), (2.0, 40.0)] * 3
x = values(200, seed=1)
coefficients = numpy.array([0.5, -1.0, 2.0, 0.25], dtype=numpy.float32)
grid = numpy.linspace(-3, 3, 50, dtype=numpy.float64)
polynomial = cupy.polyval(cupy.asarray(coefficients), cupy.asarray(x))
between = cupy.interp(cupy.asarray(x.astype(numpy.float64)), cupy.asarray(grid), cupy.asarray(grid**2))
finish(
    "cupy_random",
    [
        *(
            (one, numpy.full(one.shape, middle), reach)
            for one, (middle, reach) in zip(drawn, middles, strict=True)
        ),
        (cupy.asnumpy(polynomial), numpy.polyval(coefficients.astype(numpy.float64), x), 1e-3),
        (cupy.asnumpy(between), numpy.interp(x.astype(numpy.float64), grid, grid**2), 1e-9),
    ],
)
