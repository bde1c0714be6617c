"""Pallas kernels compiled through Triton, beside NumPy."""

from __future__ import annotations

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from numpy_support import finish, values


def product(a, b, c, out):
    total = jnp.dot(a[...], b[...], preferred_element_type=jnp.float32)
    out[...] = jnp.maximum(total + c[...], 0).astype(out.dtype)


def softmax(x, out):
    row = x[...]
    power = jnp.exp(row - jnp.max(row, axis=1, keepdims=True))
    out[...] = power / jnp.sum(power, axis=1, keepdims=True)


def running_sum(x, out):
    out[...] = jnp.cumsum(x[...], axis=1)


def call(kernel, grid, specs, out_spec, shape, dtype, warps=2):
    parameters = plt.CompilerParams(num_warps=warps, num_stages=1)
    return jax.jit(
        pl.pallas_call(
            kernel,
            grid=grid,
            in_specs=specs,
            out_specs=out_spec,
            out_shape=jax.ShapeDtypeStruct(shape, dtype),
            compiler_params=parameters,
        )
    )


a, b = values(64, 64, seed=1, dtype=numpy.float16), values(64, 96, seed=2, dtype=numpy.float16)
c = values(1, 96, seed=3)
products = call(
    product,
    (2, 3),
    [
        pl.BlockSpec((32, 64), lambda i, j: (i, 0)),
        pl.BlockSpec((64, 32), lambda i, j: (0, j)),
        pl.BlockSpec((1, 32), lambda i, j: (0, j)),
    ],
    pl.BlockSpec((32, 32), lambda i, j: (i, j)),
    (64, 96),
    jnp.float32,
)(a, b, c)
x = values(16, 256, seed=4)
rows = pl.BlockSpec((4, 256), lambda i: (i, 0))
softmaxes = call(softmax, (4,), [rows], rows, x.shape, jnp.float32)(x)
sums = call(running_sum, (4,), [rows], rows, x.shape, jnp.float32)(x)
wide = x.astype(numpy.float64)
power = numpy.exp(wide - wide.max(1, keepdims=True))
exact = numpy.maximum(a.astype(numpy.float64) @ b.astype(numpy.float64) + c, 0)
finish(
    "jax_pallas",
    [
        (products, exact, 1e-3),
        (softmaxes, power / power.sum(1, keepdims=True), 1e-6),
        (sums, wide.cumsum(1), 1e-4),
    ],
)
