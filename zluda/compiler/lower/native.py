"""Approximate instructions by a machine's own arithmetic: what the targets' tables share.

A table (``compiler/amd/approximate.py``, ``compiler/cpu/approximate.py``) has a :class:`Row` for each
instruction of :data:`zluda.numerics.bounds.BOUNDS`. A row stays inside PTX's documented bound (the measured
one where there is none) for all arguments, given the bounds that the machine's manual states.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

from zluda.compiler.ir import Approximate, Builder, Value
from zluda.compiler.lower import rounding
from zluda.compiler.lower.elementary import polynomial
from zluda.compiler.lower.units import rsqrt_double_by
from zluda.records import dataclass

Unit = Callable[[Builder, Value], Value]
Emit = Callable[[Builder, list[Value]], Value]


@dataclass(frozen=True, slots=True)
class Row:
    """How a machine computes one approximate instruction.

    ``machine`` names the machine's instructions, ``around`` says what is done about arguments and results
    that they do not handle, ``accuracy`` what bound that gives and why.
    """

    machine: str
    around: str
    accuracy: str
    emit: Emit


def computed_by(table: dict[str, Row]) -> Approximate:
    """The table as :data:`zluda.compiler.ir.Approximate`."""
    return lambda b, name, xs: table[name].emit(b, xs)


def unary(unit: Unit) -> Emit:
    """A unit as what a row emits."""
    return lambda b, xs: unit(b, xs[0])


def split_turn() -> tuple[float, float]:
    """1/(2 pi) as the sum of two f32."""
    high = struct.unpack("<f", struct.pack("<f", 1 / (2 * math.pi)))[0]
    return high, 1 / (2 * math.pi) - high


def is_subnormal(b: Builder, x: Value) -> Value:
    """Below the smallest normal f32; zero counts."""
    return b.fcmp("olt", rounding.magnitude(b, x), 2.0**-126)


def flushed(unit: Unit) -> Unit:
    """``unit`` with subnormal arguments and results as zeros: an ``.ftz`` form."""
    return lambda b, x: rounding.flush(b, unit(b, rounding.flush(b, x)))


def scaled(unit: Unit, before: float, after: Unit) -> Unit:
    """``unit`` with subnormal arguments multiplied by ``before``, and ``after`` to undo that."""

    def emit(b: Builder, x: Value) -> Value:
        small = is_subnormal(b, x)
        result = unit(b, b.select(small, b.fmul(x, before), x))
        return b.select(small, after(b, result), result)

    return emit


_TANH_TERMS = (1.0, -1 / 3, 2 / 15)
_TANH_SERIES_END = 0.25


def tanh_by(exp2: Unit, rcp: Unit) -> Unit:
    """tanh from an ``exp2`` and a ``rcp`` that need not handle subnormals.

    ``1 - 2/(e^2x + 1)`` cancels near zero; below 1/4 three terms of the series are within 2^-16.
    """

    def emit(b: Builder, x: Value) -> Value:
        size = rounding.magnitude(b, x)
        power = exp2(b, b.fmul(size, 2 / math.log(2)))
        large = b.intrinsic("fma", rcp(b, b.fadd(power, 1.0)), -2.0, 1.0)
        series = b.fmul(x, polynomial(b, b.fmul(x, x), _TANH_TERMS))
        return b.select(b.fcmp("olt", size, _TANH_SERIES_END), series, b.intrinsic("copysign", large, x))

    return emit


def as_half(unit: Unit) -> Emit:
    """An f32 unit's result rounded to f16."""
    return lambda b, xs: b.cast("fptrunc", unit(b, xs[0]), "half")


def as_bfloat(unit: Unit) -> Emit:
    """An f32 unit's result rounded to bf16."""
    return lambda b, xs: rounding.to_bfloat(b, unit(b, xs[0]), "rn")


_SIGN, _INFINITY, _HIGH_WORD = 1 << 63, 0x7FF << 52, 0xFFFFFFFF << 32


def only_high_word(b: Builder, bits: Value) -> Value:
    """f64 bits with a low word of zero."""
    return b.and_(bits, _HIGH_WORD)


def flush_high_word(b: Builder, bits: Value) -> Value:
    """f64 bits, subnormals as zeros."""
    return b.select(b.icmp("eq", b.and_(bits, _INFINITY), 0), b.and_(bits, _SIGN), bits)


def rounded_high_word(b: Builder, bits: Value) -> Value:
    """f64 bits rounded to the high word, half away from zero; subnormals as zeros, NaN as NVIDIA has it."""
    rounded = flush_high_word(b, only_high_word(b, b.add(bits, 1 << 31)))
    is_nan = b.icmp("ugt", b.and_(bits, _SIGN - 1), _INFINITY)
    return b.select(is_nan, 0x7FFFFFFF << 32, rounded)


def high_word(unit: Unit) -> Emit:
    """``unit`` on the high word of an f64, rounded to the high word (PTX ISA 9.7.3, ``rcp.approx.ftz.f64``):
    the low word is neither read nor written, subnormals are zeros.
    """

    def emit(b: Builder, xs: list[Value]) -> Value:
        x = flush_high_word(b, only_high_word(b, xs[0]))
        return rounded_high_word(b, b.bitcast(unit(b, b.bitcast(x, "double")), "i64"))

    return emit


def refined_rsqrt(guess: Unit) -> Emit:
    """``rsqrt.approx.f64`` from a guess good to 2^-20, by the one step that NVIDIA takes."""
    return lambda b, xs: rsqrt_double_by(guess, b, xs[0])
