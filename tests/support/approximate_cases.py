"""Approximate instructions run as kernels over arrays, beside exact values and bounds by numpy alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zluda.device.api import Device
from zluda.numerics.bounds import BOUNDS, F64, F64_HIGH, Bound, Limit

Array = NDArray[Any]
COUNT = 4096


def kernel_text(name: str) -> str:
    """A kernel ``k(a, b, out)`` that applies the instruction to each element; ``b`` are divisors."""
    bits = element_bits(name)
    sources = "%a, %b" if name.startswith("div") else "%a"
    return f""".version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 pa, .param .u64 pb, .param .u64 po)
{{
    .reg .b64 %p, %q, %o, %s;
    .reg .b32 %i, %t;
    .reg .b{bits} %a, %b, %d;
    ld.param.u64 %p, [pa];
    ld.param.u64 %q, [pb];
    ld.param.u64 %o, [po];
    mov.u32 %i, %tid.x;
    mov.u32 %t, %ctaid.x;
    mad.lo.u32 %i, %t, 256, %i;
    mul.wide.u32 %s, %i, {bits // 8};
    add.s64 %p, %p, %s;
    add.s64 %q, %q, %s;
    add.s64 %o, %o, %s;
    ld.global.b{bits} %a, [%p];
    ld.global.b{bits} %b, [%q];
    {name} %d, {sources};
    st.global.b{bits} [%o], %d;
    ret;
}}
"""


def element_bits(name: str) -> int:
    return {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}[name.rsplit(".", 1)[1]]


def run(device: Device, name: str, a: Array, b: Array) -> Array:
    """The instruction's results as bits; ``a`` and ``b`` are bits of equally many elements, in 256s."""
    x, y = device.array(a), device.array(b)
    out = device.array(np.zeros_like(a))
    kernel = device.load_module(kernel_text(name)).kernel("k")
    kernel.launch(grid=len(a) // 256, block=256, args=[x, y, out])
    return out.numpy()


def arguments(name: str, seed: int) -> tuple[Array, Array]:
    """Bits of operands: special values, every magnitude, and where functions of this kind are interesting."""
    random = np.random.default_rng(seed)
    bits = element_bits(name)
    kind = np.dtype(f"<u{bits // 8}")
    everything = random.integers(0, 1 << bits, COUNT, dtype=kind, endpoint=False)
    other = random.integers(0, 1 << bits, COUNT, dtype=kind, endpoint=False)
    usual = np.concatenate(
        [
            *(random.uniform(-140, 140, 600), random.uniform(-7, 7, 600), random.uniform(0.4, 2.1, 600)),
            *(random.uniform(-330, 330, 200), random.uniform(-0.3, 0.3, 200)),
            2.0 ** random.uniform(-149, 128, 600),
        ]
    )
    everything[: len(usual)] = to_bits(name, usual)
    everything[-64:] = specials(name)[random.integers(0, len(specials(name)), 64)]
    everything[-len(specials(name)) :] = specials(name)
    other[: len(usual)] = to_bits(name, random.permutation(usual))
    other[-64:] = specials(name)[random.integers(0, len(specials(name)), 64)]
    return everything, other


def specials(name: str) -> Array:
    """Zeros, ones, the ends of subnormals and normals, infinities and NaN, of both signs."""
    bits = element_bits(name)
    mantissa = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}[name.rsplit(".", 1)[1]]
    infinity = ((1 << (bits - 1 - mantissa)) - 1) << mantissa
    one = ((1 << (bits - 2 - mantissa)) - 1) << mantissa
    values = [
        0,
        1,
        (1 << mantissa) - 1,
        1 << mantissa,
        one - 1,
        one,
        one + 1,
        infinity - 1,
        infinity,
        infinity + 1,
    ]
    values += [1 << (mantissa - 1), infinity - (1 << mantissa), infinity | (1 << (mantissa - 1))]
    signed = values + [v | 1 << (bits - 1) for v in values]
    return np.array(signed, dtype=f"<u{bits // 8}")


def to_bits(name: str, values: Array) -> Array:
    kind = name.rsplit(".", 1)[1]
    if kind == "bf16":
        return (values.astype("<f4").view("<u4") >> 16).astype("<u2")
    with np.errstate(over="ignore"):
        return values.astype({"f16": "<f2", "f32": "<f4", "f64": "<f8"}[kind]).view(
            f"<u{element_bits(name) // 8}"
        )


def to_numbers(name: str, bits: Array) -> Array:
    """Bits as float64."""
    kind = name.rsplit(".", 1)[1]
    with np.errstate(invalid="ignore"):
        if kind == "bf16":
            return (bits.astype("<u4") << 16).view("<f4").astype(np.float64)
        return bits.view({"f16": "<f2", "f32": "<f4", "f64": "<f8"}[kind]).astype(np.float64)


def _flushed(x: Array, smallest: float) -> Array:
    return np.where(np.abs(x) < smallest, np.copysign(0.0, x), x)


def _divide_approx(a: Array, b: Array) -> Array:
    return np.where(np.abs(b) > 2.0**126, a * np.copysign(0.0, b), a / b)


FUNCTIONS: dict[str, Callable[[Array, Array], Array]] = {
    "rcp": lambda a, b: 1 / a,
    "rsqrt": lambda a, b: 1 / np.sqrt(a),
    "sqrt": lambda a, b: np.sqrt(a),
    "ex2": lambda a, b: np.exp2(a),
    "lg2": lambda a, b: np.log2(a),
    "sin": lambda a, b: np.sin(a),
    "cos": lambda a, b: np.cos(a),
    "tanh": lambda a, b: np.tanh(a),
    "div": lambda a, b: a / b,
    "div_approx": _divide_approx,
}


@dataclass(frozen=True)
class Expected:
    """Exact values in float64, and how far a result may be from each."""

    exact: Array
    width: Array


def expected(name: str, a: Array, b: Array, *, documented: bool) -> Expected:
    """By numpy's float64 functions. ``documented``: PTX's bound where it has one, else what is allowed."""
    bound = BOUNDS[name]
    x, y = to_numbers(name, _read(name, a)), to_numbers(name, _read(name, b))
    if bound.ftz:
        smallest = 2.0 ** (-1022 if bound.format in (F64, F64_HIGH) else -126)
        x, y = _flushed(x, smallest), _flushed(y, smallest)
    with np.errstate(all="ignore"):
        exact = FUNCTIONS[bound.function](x, y)
        argument = np.abs(y if name.startswith("div") else x)
        width = np.zeros_like(exact)
        lower = -1.0
        for piece in bound.pieces:
            limit = piece.documented if documented and piece.documented != Limit() else piece.allowed
            here = (argument > lower) & ((argument <= piece.upto) | (piece is bound.pieces[-1]))
            width = np.where(here, _distance(bound, limit, exact), width)
            lower = piece.upto
        width = np.maximum(width, spacing(bound, exact) / 2)  # no result can be nearer than the grid lets it
    return Expected(exact, width)


def _read(name: str, bits: Array) -> Array:
    """f64 forms with ``.ftz`` do not read the low word."""
    if BOUNDS[name].format == F64_HIGH:
        return bits & np.uint64(0xFFFFFFFF00000000)
    return bits


def spacing(bound: Bound, exact: Array) -> Array:
    """One ULP in the result's type; just below a power of two the one above, since ``exact`` is rounded."""
    format = bound.format
    _, exponent = np.frexp(exact * (1 + 1e-12))
    exponent = np.maximum(exponent - 1, format.min_exponent)
    return np.where(np.isfinite(exact), np.ldexp(1.0, exponent - format.mantissa), 0)


def _distance(bound: Bound, limit: Limit, exact: Array) -> Array:
    size = np.where(np.isfinite(exact), np.abs(exact), 0)
    parts = [np.full_like(size, limit.absolute), limit.relative * size, limit.ulp * spacing(bound, exact)]
    return np.maximum.reduce(parts)


def largest(bound: Bound) -> float:
    """The largest finite number of the result's type."""
    format = bound.format
    return (2 - 2.0**-format.mantissa) * 2.0 ** (1 - format.min_exponent)


def outside(name: str, a: Array, b: Array, result: Array, *, documented: bool, slack: float = 0.0) -> Array:
    """Indices of the results that are further from the exact value than their bound.

    ``slack`` in ULP is for what the reference itself, in float64, cannot tell.
    """
    bound = BOUNDS[name]
    want = expected(name, a, b, documented=documented)
    got = to_numbers(name, result)
    with np.errstate(all="ignore"):
        allowed = want.width + slack * spacing(bound, want.exact)
        good = np.abs(got - want.exact) <= allowed
        overflow = np.abs(want.exact) + want.width > largest(bound)
        good |= overflow & (got == np.copysign(np.inf, want.exact))
        good |= overflow & (np.abs(got) == largest(bound))
        good |= (got == want.exact) | (np.isnan(got) & np.isnan(want.exact))
        if bound.ftz:
            smallest = 2.0**bound.format.min_exponent
            good |= (np.abs(want.exact) - want.width < smallest) & (got == 0)
            good &= ~((np.abs(got) < smallest) & (got != 0))
    found: Array = np.flatnonzero(~good)
    return found


def report(name: str, a: Array, b: Array, result: Array, where: Array, *, documented: bool) -> str:
    """What is wrong with the first of them."""
    if not len(where):
        return ""
    want = expected(name, a, b, documented=documented)
    i = where[0]
    return (
        f"{name}: {len(where)} of {len(a)} outside; at {to_numbers(name, a)[i]!r} ({int(a[i]):#x}),"
        f" {to_numbers(name, b)[i]!r}: {to_numbers(name, result)[i]!r} ({int(result[i]):#x}),"
        f" exact {want.exact[i]!r} ± {want.width[i]:.3g}"
    )
