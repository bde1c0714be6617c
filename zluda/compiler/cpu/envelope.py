"""Approximate instructions moved inside their bounds: what the CPU runs to see how far results may stray.

Each is computed in f64 and moved from there to an end of its bound (:mod:`zluda.numerics.bounds`). Which end
is decided by where the instruction stands, by its arguments, or both, never by time: so a run is one
imaginary implementation of the units, the same whatever the order of warps, and again in every repetition.
Rounding to the result's type comes after, so the bound is first narrowed by half of that.

How to move is the device's to say (:class:`~zluda.compiler.cpu.context.Perturbation`); generated code finds
that as it finds a module variable.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from zluda.compiler.cpu.context import PERTURBATION, Context, Perturbation
from zluda.compiler.cpu.special import context_pointer
from zluda.compiler.ir import Approximate, Builder, Value
from zluda.compiler.lower import elementary, rounding
from zluda.compiler.lower.native import flush_high_word, only_high_word, rounded_high_word
from zluda.numerics.bounds import BF16, BOUNDS, F16, F32, F64, F64_HIGH, Bound, Format, Limit

if TYPE_CHECKING:
    from zluda.compiler.unit import Unit


# --- exact values ------------------------------------------------------------------------------------


def _rcp(b: Builder, xs: list[Value]) -> Value:
    return b.fdiv(1.0, xs[0])


def _rsqrt(b: Builder, xs: list[Value]) -> Value:
    return b.fdiv(1.0, b.intrinsic("sqrt", xs[0]))


def _divide(b: Builder, xs: list[Value]) -> Value:
    return b.fdiv(xs[0], xs[1])


def _divide_approx(b: Builder, xs: list[Value]) -> Value:
    """By zero for divisors above 2^126: the quotient is 0, or NaN of an infinity (PTX ISA 9.7.3, ``div``)."""
    large = b.fcmp("ogt", rounding.magnitude(b, xs[1]), 2.0**126)
    return b.select(large, b.fmul(xs[0], rounding.signed_zero(b, xs[1])), _divide(b, xs))


def _of_one(function: Callable[[Builder, Value], Value]) -> Callable[[Builder, list[Value]], Value]:
    return lambda b, xs: function(b, xs[0])


_EXACT: dict[str, Callable[[Builder, list[Value]], Value]] = {
    "rcp": _rcp,
    "rsqrt": _rsqrt,
    "sqrt": lambda b, xs: b.intrinsic("sqrt", xs[0]),
    "ex2": _of_one(elementary.exp2),
    "lg2": _of_one(elementary.log2_of_any),
    "sin": _of_one(elementary.sin),
    "cos": _of_one(elementary.cos),
    "tanh": _of_one(elementary.tanh),
    "div": _divide,
    "div_approx": _divide_approx,
}
"""What :attr:`Bound.function` names, in f64."""


# --- the bound ---------------------------------------------------------------------------------------


def _spacing(b: Builder, y: Value, format: Format) -> Value:
    """One ULP of ``y`` in the format; 0 of 0."""
    exponent = b.and_(b.lshr(b.bitcast(y, "i64"), 52), 0x7FF)
    exponent = b.intrinsic("smax", exponent, format.min_exponent + 1023)
    spacing = b.bitcast(b.shl(b.sub(exponent, format.mantissa), 52), "double")
    return b.select(b.fcmp("oeq", y, 0.0), 0.0, spacing)


def _distance(b: Builder, limit: Limit, size: Value, spacing: Value | None) -> Value:
    """The largest of a limit's parts; ``size`` is ``|y|``."""
    result = b.splat(b.const("double", limit.absolute), size.lanes)
    parts = [b.fmul(size, limit.relative)] if limit.relative else []
    parts += [b.fmul(spacing, float(limit.ulp))] if limit.ulp and spacing is not None else []
    for part in parts:
        result = b.intrinsic("maximumnum", result, part)
    return result


def _width(b: Builder, bound: Bound, argument: Value, y: Value) -> Value:
    """How far ``y`` may move, so that rounding it to the result's type stays inside the bound."""
    size = rounding.magnitude(b, y)
    relative_only = bound.format in (F64, F64_HIGH)
    spacing = None if relative_only else _spacing(b, y, bound.format)
    magnitude = rounding.magnitude(b, argument)
    result = _distance(b, bound.pieces[-1].allowed, size, spacing)
    for piece in reversed(bound.pieces[:-1]):
        here = _distance(b, piece.allowed, size, spacing)
        result = b.select(b.fcmp("ole", magnitude, piece.upto), here, result)
    farthest = b.fadd(size, result)
    if bound.range is not None:  # beyond it nothing is, nor are there wider spaces
        farthest = b.intrinsic("minimumnum", farthest, bound.range * (1 - 2.0**-40))
    if relative_only:
        half = b.fmul(farthest, 2.0 ** -(bound.format.mantissa + 1))
    else:
        half = b.fmul(_spacing(b, farthest, bound.format), 0.5)
    return b.intrinsic("maximumnum", b.fsub(result, half), 0.0)


def _hash(b: Builder, name: str, xs: list[Value], seed: Value) -> Value:
    """Of instruction, arguments and seed (``i32``): MurmurHash3's finaliser over each word."""
    h = b.splat(b.xor(seed, zlib.crc32(name.encode()) & 0xFFFFFFFF), xs[0].lanes)
    for x in xs:
        bits = rounding.bits_of(b, x) if x.type == "float" else x
        words = [bits] if bits.width == 32 else [b.trunc(bits, "i32"), b.trunc(b.lshr(bits, 32), "i32")]
        for word in words:
            h = b.xor(h, word)
            h = b.mul(b.xor(h, b.lshr(h, 16)), 0x85EBCA6B)
            h = b.mul(b.xor(h, b.lshr(h, 13)), 0xC2B2AE35)
            h = b.xor(h, b.lshr(h, 16))
    return h


def _share(b: Builder, name: str, xs: list[Value], turned: Value, share: Value, seed: Value) -> Value:
    """The share of its bound by which a result is moved; ``turned`` (``i1``) says that it is turned here."""
    by_arguments = b.and_(b.icmp("ne", seed, 0), b.icmp("slt", _hash(b, name, xs, seed), 0))
    return b.select(b.xor(by_arguments, turned), b.fneg(share), share)


def _moved(b: Builder, bound: Bound, argument: Value, y: Value, share: Value) -> Value:
    """``y`` moved by a share of its bound. Infinities, NaN, and a sign that the bound cannot change stay."""
    moved = b.intrinsic("fma", share, _width(b, bound, argument, y), y)
    if not any(piece.allowed.absolute for piece in bound.pieces):
        crossed = b.fcmp("olt", b.intrinsic("copysign", 1.0, moved), 0.0)
        negative = b.fcmp("olt", b.intrinsic("copysign", 1.0, y), 0.0)
        moved = b.select(b.xor(crossed, negative), rounding.signed_zero(b, y), moved)
    if bound.range is not None:
        moved = b.select(b.fcmp("ogt", moved, bound.range), bound.range, moved)
        moved = b.select(b.fcmp("olt", moved, -bound.range), -bound.range, moved)
    return b.select(rounding.is_finite(b, y), moved, y)


# --- arguments and results ---------------------------------------------------------------------------


def _widened(b: Builder, bound: Bound, x: Value) -> Value:
    if bound.format == F64_HIGH:
        x = flush_high_word(b, only_high_word(b, x))
    if x.type != "float":
        return b.bitcast(x, "double")
    return b.cast("fpext", rounding.flush(b, x) if bound.ftz else x, "double")


def _narrowed(b: Builder, bound: Bound, y: Value) -> Value:
    if bound.format == F64_HIGH:
        return rounded_high_word(b, b.bitcast(y, "i64"))
    if bound.format == F64:
        return b.bitcast(y, "i64")
    if bound.format == F16:
        return b.cast("fptrunc", rounding.narrow_odd(b, y), "half")
    single = b.cast("fptrunc", y, "float") if bound.format == F32 else rounding.narrow_odd(b, y)
    single = rounding.flush(b, single) if bound.ftz else single
    return single if bound.format == F32 else rounding.to_bfloat(b, single, "rn")


_RESULTS = {F16: "half", BF16: "i16", F32: "float", F64: "i64", F64_HIGH: "i64"}


def _emit(b: Builder, name: str, xs: list[Value], turned: Value, share: Value, seed: Value) -> Value:
    bound = BOUNDS[name]
    wide = [_widened(b, bound, x) for x in xs]
    y = _EXACT[bound.function](b, wide)
    moved = _moved(b, bound, wide[-1], y, _share(b, name, xs, turned, share, seed))
    return _narrowed(b, bound, moved)


_PLACES = 7  # numbered from 1: as many as there are patterns of three bits that are not 0


def envelope(unit: Unit) -> Approximate:
    """See :data:`zluda.compiler.ir.Approximate`."""
    index = unit.symbol_index(PERTURBATION)
    places = itertools.count()

    def field(b: Builder, cell: Value, name: str, element: str) -> Value:
        return b.load(element, b.gep(cell, getattr(Perturbation, name).offset), align=4)

    def compute(b: Builder, name: str, xs: list[Value]) -> Value:
        table = b.load("ptr", b.gep(context_pointer(), Context.symbols.offset), align=8)
        cell = b.load("ptr", b.gep(table, 8 * index), align=8)
        common = b.and_(field(b, cell, "pattern", "i32"), next(places) % _PLACES + 1)
        turned = b.trunc(b.intrinsic("ctpop", common), "i1")
        told = [turned, field(b, cell, "share", "double"), field(b, cell, "seed", "i32")]
        lanes = max(x.lanes for x in xs)
        xs = [b.splat(x, lanes) for x in xs]
        function = f"zluda.envelope.{name}.v{lanes}"
        parameters = [(x.type, lanes) for x in xs] + [(one.type, 1) for one in told]

        def body(inner: Builder, arguments: list[Value]) -> Value:
            return _emit(inner, name, arguments[: len(xs)], *arguments[len(xs) :])

        b.module.function(function, parameters, body)
        return b.call(function, [*xs, *told], _RESULTS[BOUNDS[name].format], lanes)

    return compute
