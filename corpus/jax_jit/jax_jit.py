"""jax.jit of a network with its gradients, a scan and a sort, beside NumPy."""

from __future__ import annotations

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from numpy_support import finish, values

jax.config.update("jax_default_matmul_precision", "highest")


def loss(weights: tuple[jax.Array, jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
    hidden = jnp.tanh((x[:, :, None] * weights[0][None]).sum(1))
    return jnp.mean(((hidden * weights[1]).sum(1) - y) ** 2)


def by_numpy(w0: numpy.ndarray, w1: numpy.ndarray, x: numpy.ndarray, y: numpy.ndarray) -> list[numpy.ndarray]:
    hidden = numpy.tanh(x @ w0)
    error = hidden @ w1 - y
    scale = 2 * error / len(y)
    back = (scale[:, None] * w1) * (1 - hidden**2)
    return [numpy.mean(error**2), x.T @ back, hidden.T @ scale]


w0, w1 = values(20, 32, seed=1), values(32, seed=2)
x, y = values(24, 20, seed=3), values(24, seed=4)
value, gradients = jax.jit(jax.value_and_grad(loss))((jnp.asarray(w0), jnp.asarray(w1)), x, y)
right = by_numpy(*(one.astype(numpy.float64) for one in (w0, w1, x, y)))

numbers = values(500, seed=5)
summed = jax.jit(lambda v: jax.lax.scan(lambda carry, one: (carry * 0.5 + one, carry), 0.0, v)[1])(
    numbers[:16]
)
carry, expected = 0.0, []
for one in numbers[:16]:
    expected.append(carry)
    carry = carry * 0.5 + one
sorted_numbers = jax.jit(lambda v: jnp.sort(v) + 0.0)(numbers)
cumulative = jax.jit(jnp.cumsum)(numbers)
half = jax.jit(lambda v: jax.nn.gelu(v.astype(jnp.bfloat16)).astype(jnp.float32))(numbers)
finish(
    "jax_jit",
    [
        (value, right[0], 1e-5),
        (gradients[0], right[1], 1e-4),
        (gradients[1], right[2], 1e-4),
        (summed, numpy.array(expected), 1e-5),
        (sorted_numbers, numpy.sort(numbers), 0.0),
        (cumulative, numpy.cumsum(numbers.astype(numpy.float64)), 1e-3),
        (half, numpy.where(numbers > 0, numbers, 0), 0.25),
    ],
)
