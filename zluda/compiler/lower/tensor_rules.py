"""How each rule of :mod:`zluda.numerics.tensor_cores.operations` computes an element of D, lane by lane.

A rule is two functions. ``travel`` makes of an element, as its own lane holds it, the word in which it goes
to other lanes; ``combine`` computes ``C`` plus the products of all pairs of such words.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

from zluda.compiler.ir import Builder, Value
from zluda.compiler.lower import floating, tensor_step
from zluda.compiler.lower.tensor_step import Rounding
from zluda.numerics.tensor_cores.formats import FLOATS, INTEGERS, SCALES
from zluda.numerics.tensor_cores.operations import Operation
from zluda.records import dataclass

Pairs = list[tuple[Value, Value]]


@dataclass(frozen=True, slots=True)
class Setting:
    """What a rule computes: an operation, of f64 in a rounding ``mode``; ``apart``: each step by a call."""

    op: Operation
    mode: str
    apart: bool


class Rule(NamedTuple):
    """``travel(b, type name, bits)`` and ``combine(b, setting, pairs, c)``."""

    travel: Callable[[Builder, str, Value], Value]
    combine: Callable[[Builder, Setting, Pairs, Value], Value]


# --- steps -------------------------------------------------------------------------------------------


def _travel_float(b: Builder, name: str, bits: Value) -> Value:
    return tensor_step.encode(b, tensor_step.decode(b, name, bits))


def _travel_widened(b: Builder, name: str, bits: Value) -> Value:
    """fp8 as the f16 it is widened to: e4m3's subnormals are normal there, e5m2's are not."""
    x = tensor_step.decode(b, name, bits)
    short = FLOATS[name].exponent < FLOATS["f16"].exponent
    return tensor_step.encode(b, tensor_step.normalised(b, x) if short else x)


def _steps(b: Builder, setting: Setting, pairs: Pairs, c: Value, accumulator: str) -> Value:
    """The steps in turn, each from the one before."""
    op = setting.op
    growth = 4 if op.scale and SCALES[op.scale].mantissa else 2
    how = Rounding(op.fraction, accumulator, accumulator, op.short, growth)
    for ks in op.steps:
        words = [word for k in ks for word in pairs[k]]
        if setting.apart:
            kind = f"{accumulator}.{op.fraction}.{growth}{'.short' if op.short else ''}"
            name = f"tensor.step{len(ks)}.{kind}"
            b.module.function(
                name,
                [("i32", 1)] * (len(words) + 1),
                lambda inner, values: _step(inner, values[1:], values[0], how),
                attributes=_APART,
            )
            c = b.call(name, [c, *words], "i32")
        else:
            c = _step(b, words, c, how)
    return c


_APART = "noinline nounwind"


def _step(b: Builder, words: list[Value], c: Value, how: Rounding) -> Value:
    """One step over pairs of words that follow each other."""
    elements = [tensor_step.unencode(b, word) for word in words]
    pairs = list(zip(elements[::2], elements[1::2], strict=True))
    return tensor_step.step(b, pairs, tensor_step.decode(b, how.c, c), how)


def _plain(b: Builder, setting: Setting, pairs: Pairs, c: Value) -> Value:
    return _steps(b, setting, pairs, c, setting.op.d)


def _split(b: Builder, setting: Setting, pairs: Pairs, c: Value) -> Value:
    d = setting.op.d
    return tensor_step.ADD[d](b, _steps(b, setting, pairs, b.const("i32", 0), d), c)


def _widened(b: Builder, setting: Setting, pairs: Pairs, c: Value) -> Value:
    return _steps(b, setting, pairs, tensor_step.widen(b, c), "f32")


def _narrowed(b: Builder, setting: Setting, pairs: Pairs, c: Value) -> Value:
    return tensor_step.narrow(b, _steps(b, setting, pairs, c, "f32"))


# --- IEEE arithmetic ---------------------------------------------------------------------------------


def _travel_as_is(b: Builder, name: str, bits: Value) -> Value:
    return bits


def _quad_fma(b: Builder, setting: Setting, pairs: Pairs, c: Value) -> Value:
    start = tensor_step.widen(b, c) if setting.op.c == "f16" else c
    wide = [[b.cast("fpext", tensor_step.as_half(b, word), "float") for word in pair] for pair in pairs]
    return tensor_step.quad_fma(b, [(x, y) for x, y in wide], start, setting.op.d)


def _fma(b: Builder, setting: Setting, pairs: Pairs, c: Value) -> Value:
    total = b.bitcast(c, "double")
    for x, y in pairs:
        total = floating.fma_double(b, setting.mode, b.bitcast(x, "double"), b.bitcast(y, "double"), total)
    return b.bitcast(total, "i64")


# --- integers ----------------------------------------------------------------------------------------


def _travel_integer(b: Builder, name: str, bits: Value) -> Value:
    width, signed = INTEGERS[name]
    return b.ashr(b.shl(bits, 32 - width), 32 - width) if signed else bits


def _products(b: Builder, pairs: Pairs) -> Value:
    """The sum of the products, which an i32 holds."""
    return functools.reduce(b.add, [b.mul(x, y) for x, y in pairs])


def _integer(b: Builder, setting: Setting, pairs: Pairs, c: Value) -> Value:
    return b.add(_products(b, pairs), c)


def _saturated(b: Builder, setting: Setting, pairs: Pairs, c: Value) -> Value:
    return b.intrinsic("sadd.sat", _products(b, pairs), c)


def _popcount(combine: Callable[[Builder, Value, Value], Value]) -> Rule:
    def count(b: Builder, setting: Setting, pairs: Pairs, c: Value) -> Value:
        for x, y in pairs:
            c = b.add(b.intrinsic("ctpop", combine(b, x, y)), c)
        return c

    return Rule(_travel_as_is, count)


RULES: dict[str, Rule] = {
    "step": Rule(_travel_float, _plain),
    "halves": Rule(_travel_float, _plain),
    "split": Rule(_travel_widened, _split),
    "widened": Rule(_travel_float, _widened),
    "narrowed": Rule(_travel_float, _narrowed),
    "quad_fma": Rule(_travel_as_is, _quad_fma),
    "fma": Rule(_travel_as_is, _fma),
    "integer": Rule(_travel_integer, _integer),
    "saturated": Rule(_travel_integer, _saturated),
    "and": _popcount(Builder.and_),
    "xor": _popcount(Builder.xor),
}
"""Rule to its arithmetic."""
