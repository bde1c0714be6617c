"""How each rule of :mod:`zluda.numerics.tensor_cores.operations` computes an element of D, lane by lane.

A rule is three functions. ``travel`` makes of an element, as its own lane holds it, the word in which it goes
to other lanes; ``arrive`` makes of that word what ``combine`` takes; ``combine`` computes ``C`` plus the
products of all pairs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

from zluda.compiler.ir import Builder, Value
from zluda.compiler.lower import floating, tensor_step
from zluda.compiler.lower.tensor_step import Element, Rounding
from zluda.numerics.tensor_cores.formats import INTEGERS
from zluda.numerics.tensor_cores.operations import Operation

Arrived = tuple[Value, ...]
Pairs = list[tuple[Arrived, Arrived]]


class Rule(NamedTuple):
    """``travel(b, type name, bits)``, ``arrive(b, word)``, ``combine(b, operation, pairs, c, mode)``."""

    travel: Callable[[Builder, str, Value], Value]
    arrive: Callable[[Builder, Value], Arrived]
    combine: Callable[[Builder, Operation, Pairs, Value, str], Value]


# --- steps -------------------------------------------------------------------------------------------


def _travel_float(b: Builder, name: str, bits: Value) -> Value:
    return tensor_step.encode(b, tensor_step.decode(b, name, bits))


def _travel_widened(b: Builder, name: str, bits: Value) -> Value:
    """fp8 as the f16 it is widened to, where its subnormals are normal."""
    return tensor_step.encode(b, tensor_step.normalised(b, tensor_step.decode(b, name, bits)))


def _arrive_float(b: Builder, word: Value) -> Arrived:
    element = tensor_step.unencode(b, word)
    return element.significand, element.code


def _steps(b: Builder, op: Operation, pairs: Pairs, c: Value, accumulator: str) -> Value:
    """The steps in turn, each from the one before."""
    how = Rounding(op.fraction, accumulator, accumulator, op.short)
    for ks in op.steps:
        chosen = [(Element(*pairs[k][0]), Element(*pairs[k][1])) for k in ks]
        c = tensor_step.step(b, chosen, tensor_step.decode(b, accumulator, c), how)
    return c


def _plain(b: Builder, op: Operation, pairs: Pairs, c: Value, mode: str) -> Value:
    return _steps(b, op, pairs, c, op.d)


def _split(b: Builder, op: Operation, pairs: Pairs, c: Value, mode: str) -> Value:
    return tensor_step.ADD[op.d](b, _steps(b, op, pairs, b.const("i32", 0), op.d), c)


def _widened(b: Builder, op: Operation, pairs: Pairs, c: Value, mode: str) -> Value:
    return _steps(b, op, pairs, tensor_step.widen(b, c), "f32")


def _narrowed(b: Builder, op: Operation, pairs: Pairs, c: Value, mode: str) -> Value:
    return tensor_step.narrow(b, _steps(b, op, pairs, c, "f32"))


# --- IEEE arithmetic ---------------------------------------------------------------------------------


def _travel_as_is(b: Builder, name: str, bits: Value) -> Value:
    return bits


def _arrive_half(b: Builder, word: Value) -> Arrived:
    return (b.cast("fpext", tensor_step.as_half(b, word), "float"),)


def _quad_fma(b: Builder, op: Operation, pairs: Pairs, c: Value, mode: str) -> Value:
    start = tensor_step.widen(b, c) if op.c == "f16" else c
    return tensor_step.quad_fma(b, [(x[0], y[0]) for x, y in pairs], start, op.d)


def _arrive_double(b: Builder, word: Value) -> Arrived:
    return (b.bitcast(word, "double"),)


def _fma(b: Builder, op: Operation, pairs: Pairs, c: Value, mode: str) -> Value:
    total = b.bitcast(c, "double")
    for (x,), (y,) in pairs:
        total = floating.fma_double(b, mode, x, y, total)
    return b.bitcast(total, "i64")


# --- integers ----------------------------------------------------------------------------------------


def _travel_integer(b: Builder, name: str, bits: Value) -> Value:
    width, signed = INTEGERS[name]
    return b.ashr(b.shl(bits, 32 - width), 32 - width) if signed else bits


def _arrive_as_is(b: Builder, word: Value) -> Arrived:
    return (word,)


def _products(b: Builder, op: Operation, pairs: Pairs) -> Value:
    """The sum of the products, which an i32 holds."""
    return functools.reduce(b.add, [b.mul(x, y) for (x,), (y,) in pairs])


def _integer(b: Builder, op: Operation, pairs: Pairs, c: Value, mode: str) -> Value:
    return b.add(_products(b, op, pairs), c)


def _saturated(b: Builder, op: Operation, pairs: Pairs, c: Value, mode: str) -> Value:
    return b.intrinsic("sadd.sat", _products(b, op, pairs), c)


def _popcount(combine: Callable[[Builder, Value, Value], Value]) -> Rule:
    def count(b: Builder, op: Operation, pairs: Pairs, c: Value, mode: str) -> Value:
        for (x,), (y,) in pairs:
            c = b.add(b.intrinsic("ctpop", combine(b, x, y)), c)
        return c

    return Rule(_travel_as_is, _arrive_as_is, count)


RULES: dict[str, Rule] = {
    "step": Rule(_travel_float, _arrive_float, _plain),
    "halves": Rule(_travel_float, _arrive_float, _plain),
    "split": Rule(_travel_widened, _arrive_float, _split),
    "widened": Rule(_travel_float, _arrive_float, _widened),
    "narrowed": Rule(_travel_float, _arrive_float, _narrowed),
    "quad_fma": Rule(_travel_as_is, _arrive_half, _quad_fma),
    "fma": Rule(_travel_as_is, _arrive_double, _fma),
    "integer": Rule(_travel_integer, _arrive_as_is, _integer),
    "saturated": Rule(_travel_integer, _arrive_as_is, _saturated),
    "and": _popcount(Builder.and_),
    "xor": _popcount(Builder.xor),
}
"""Rule to its arithmetic."""
