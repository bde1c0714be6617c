"""Floating-point arithmetic (PTX ISA 9.7.3 to 9.7.5), and the opcodes that integers share with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from zluda.device.interpreter import doubles, floats
from zluda.device.interpreter.floats import ELEMENTS, FORMATS, Format
from zluda.device.interpreter.opcodes import extended, integer
from zluda.device.interpreter.registry import lane
from zluda.device.interpreter.step import Step
from zluda.device.interpreter.values import UNSIGNED, Bits
from zluda.ptx.types import ScalarType

_MODES = ("rn", "rz", "rm", "rp")


def by_elements(
    s: Step, function: Callable[..., Bits], operands: Sequence[Bits], type: ScalarType | None = None
) -> Bits:
    """``function(format, *bits)`` on each element of a packed type, or on the whole."""
    name = (type or s.type).spelling
    if name not in ELEMENTS:
        return function(FORMATS[name], *operands)
    of = FORMATS[ELEMENTS[name]]
    kind, wide = UNSIGNED[of.bits], UNSIGNED[2 * of.bits]
    shift = wide(of.bits)
    low = function(of, *(x.astype(kind) for x in operands))
    high = function(of, *((x >> shift).astype(kind) for x in operands))
    return np.asarray(low.astype(wide) | high.astype(wide) << shift)


def _clamped(s: Step, x: Bits) -> Bits:
    if s.has("sat"):
        x = floats.saturate(x)
    return floats.rectify(x) if s.has("relu") else x


# --- add, sub, mul, fma (9.7.3.3 to 9.7.3.6, 9.7.4.1 to 9.7.4.4, 9.7.5) ----------------------------------

_NARROW: dict[str, Callable[..., Bits]] = {
    "add": floats.add,
    "mul": lambda x, y, mode: x * y,
    "fma": floats.fma,
}
_WIDE: dict[str, Callable[..., int]] = {"add": doubles.add, "mul": doubles.multiply, "fma": doubles.fma}
_NAN_ORDER = {"add": (1, 0), "mul": (1, 0), "fma": (1, 2, 0)}
"""Of several NaN operands of f64 the first of these is the result's, on an H200."""


def arithmetic(s: Step, op: str, *, turned: int | None = None) -> None:
    """``add``, ``mul`` or ``fma``; ``turned`` is the operand whose sign is turned first."""
    mode = s.slot("rnd", "rn")
    if mode not in _MODES:
        raise s.unsupported()
    count = 3 if op == "fma" else 2
    if s.type is ScalarType.F64:
        operands = s.reads(count)
        s.write(_double(op, mode, operands, turned))
        return
    if len(s.inst.types) > 1:  # mixed precision: all but the last operand are of the second type
        s.write(_mixed(s, op, mode, count, turned))
        return

    def element(of: Format, *operands: Bits) -> Bits:
        if s.has("ftz"):
            operands = tuple(floats.flush(x, of) for x in operands)
        xs = [floats.widen(x, of) for x in operands]
        if turned is not None:
            xs[turned] = -xs[turned]
        found = floats.narrow(_clamped(s, _NARROW[op](*xs, mode)), of, mode, ftz=s.has("ftz"))
        return _out_of_bounds(operands[:2], found) if s.has("oob") else found

    s.write(by_elements(s, element, s.reads(count)))


def _mixed(s: Step, op: str, mode: str, count: int, turned: int | None) -> Bits:
    result, source = s.inst.types
    kinds = [*[source] * (count - 1), result]
    operands = zip(s.inst.operands[1:], kinds, strict=True)
    xs = [floats.widen(s.value(operand, kind), FORMATS[kind.spelling]) for operand, kind in operands]
    if turned is not None:
        xs[turned] = -xs[turned]
    return floats.narrow(_clamped(s, _NARROW[op](*xs, mode)), FORMATS[result.spelling], mode)


def _double(op: str, mode: str, operands: list[Bits], turned: int | None) -> Bits:
    xs = list(operands)
    if turned is not None:
        xs[turned] = xs[turned] ^ np.uint64(1 << 63)
    if mode == "rn" and op != "fma":
        x, y = (v.view(np.float64) for v in map(np.ascontiguousarray, xs))
        found = x + y if op == "add" else x * y
        bits = np.where(np.isnan(found), np.uint64(doubles.INVALID), found.view(np.uint64))
    else:
        bits = doubles.each(_WIDE[op], mode, *xs)
    return doubles.with_nan(bits, *(operands[i] for i in _NAN_ORDER[op]))


def _out_of_bounds(factors: Sequence[Bits], found: Bits) -> Bits:
    """``.oob`` (9.7.4.4): +0 where a factor is the NaN that tensor copies fill with, 0xfff7 on an H200."""
    for factor in factors:
        found = np.where(factor == 0xFFF7, found.dtype.type(0), found)
    return found


@lane("fma")
def fma(s: Step) -> None:
    """9.7.3.6, 9.7.4.4, 9.7.5.3."""
    arithmetic(s, "fma")


@lane("add")
def add(s: Step) -> None:
    """9.7.1.1, 9.7.2.1, 9.7.3.3, 9.7.4.1, 9.7.5.1."""
    if s.type.kind == "f":
        arithmetic(s, "add")
    elif s.has("cc"):
        x, y = s.reads(2)
        extended.sum_with_carry(s, x, y, False)
    else:
        integer.integer_add(s)


@lane("sub")
def sub(s: Step) -> None:
    """9.7.1.2, 9.7.2.3, 9.7.3.4, 9.7.4.2, 9.7.5.2: of floats the sum with the second operand's sign
    turned."""
    if s.type.kind == "f":
        arithmetic(s, "add", turned=1)
    elif s.has("cc"):
        x, y = s.reads(2)
        extended.sum_with_carry(s, x, ~y, True)
    else:
        integer.integer_sub(s)


@lane("mul")
def mul(s: Step) -> None:
    """9.7.1.3, 9.7.3.5, 9.7.4.3."""
    if s.type.kind == "f":
        arithmetic(s, "mul")
    else:
        integer.integer_mul(s)


@lane("mad")
def mad(s: Step) -> None:
    """9.7.1.4, 9.7.2.5; of floats (9.7.3.7) the same as ``fma`` from sm_20 on."""
    if s.type.kind == "f":
        arithmetic(s, "fma")
    elif s.has("cc"):
        extended.multiply_add(s, False)
    else:
        integer.integer_mad(s)


# --- div, rcp, sqrt (9.7.3.8, 9.7.3.13, 9.7.3.15) --------------------------------------------------------


def quotient(s: Step, operands: list[Bits]) -> Bits:
    """IEEE quotients in any mode."""
    mode = s.slot("rnd", "rn")
    if s.type is ScalarType.F64:
        return doubles.with_nan(doubles.each(doubles.divide, mode, *operands), *operands)
    if s.has("ftz"):
        operands = [floats.flush(x, floats.F32) for x in operands]
    x, y = (floats.widen(v, floats.F32) for v in operands)
    return floats.narrow(floats.divide(x, y), floats.F32, mode, ftz=s.has("ftz"))


def reciprocal(s: Step) -> None:
    """``rcp.rnd`` (9.7.3.13)."""
    one = {32: np.uint32(0x3F800000), 64: np.uint64(0x3FF << 52)}[s.type.bits]
    (x,) = s.reads(1)
    s.write(quotient(s, [np.full_like(x, one), x]))


def square_root(s: Step) -> None:
    """``sqrt.rnd`` (9.7.3.15)."""
    (x,) = s.reads(1)
    mode = s.slot("rnd")
    if s.type is ScalarType.F64:
        s.write(doubles.with_nan(doubles.each(doubles.root, mode, x), x))
        return
    if s.has("ftz"):
        x = floats.flush(x, floats.F32)
    s.write(floats.narrow(floats.root(floats.widen(x, floats.F32)), floats.F32, mode, ftz=s.has("ftz")))


# --- signs (9.7.3.2, 9.7.3.9, 9.7.3.10, 9.7.4.6, 9.7.4.7) ------------------------------------------------


def _signs(s: Step, change: Callable[[Bits, int], Bits]) -> None:
    """With the sign bit changed; NaN is the format's one, of f64 as it was but quieted."""

    def element(of: Format, x: Bits) -> Bits:
        if s.has("ftz"):
            x = floats.flush(x, of)
        found = change(x, 1 << (of.bits - 1))
        if of is floats.F64:
            return np.where(floats.is_nan(x, of), x | np.uint64(1 << 51), found)
        return np.where(floats.is_nan(x, of), x.dtype.type(of.nan), found)

    s.write(by_elements(s, element, s.reads(1)))


@lane("neg")
def neg(s: Step) -> None:
    """9.7.1.11, 9.7.3.10, 9.7.4.6."""
    if s.type.kind == "f":
        _signs(s, lambda x, sign: x ^ x.dtype.type(sign))
    else:
        integer.integer_neg(s)


@lane("abs")
def abs_(s: Step) -> None:
    """9.7.1.10, 9.7.3.9, 9.7.4.7."""
    if s.type.kind == "f":
        _signs(s, lambda x, sign: x & x.dtype.type(sign - 1))
    else:
        integer.integer_abs(s)


@lane("copysign")
def copysign(s: Step) -> None:
    """9.7.3.2: the sign of ``a`` and the rest of ``b``."""
    x, y = s.reads(2)
    sign = x.dtype.type(1 << (s.type.bits - 1))
    s.write((x & sign) | (y & ~sign))


@lane("testp")
def testp(s: Step) -> None:
    """9.7.3.1; zero is a normal number to it."""
    (x,) = s.reads(1)
    of = FORMATS[s.type.spelling]
    size = x & x.dtype.type((1 << (of.bits - 1)) - 1)
    infinite, smallest = of.infinity, 1 << of.fraction
    subnormal = (size > 0) & (size < smallest)
    tests = {
        "finite": size < infinite,
        "infinite": size == infinite,
        "number": size <= infinite,
        "notanumber": size > infinite,
        "normal": (size < infinite) & ~subnormal,
        "subnormal": subnormal,
    }
    s.write(tests[s.slot("test")])


# --- min, max (9.7.3.11, 9.7.3.12, 9.7.4.8, 9.7.4.9) -----------------------------------------------------


def number_order(bits: Bits, of: Format) -> Bits:
    """Numbers as integers in their order, -0 below +0."""
    value = bits.astype(np.int64)
    if of.bits < 64:
        sign = 1 << (of.bits - 1)
        return np.where(value & sign, -(value & (sign - 1)) - 1, value)
    return np.where(value < 0, np.int64(-1) - (value & np.int64((1 << 63) - 1)), value)


def _extreme(s: Step, of: Format, xs: Sequence[Bits]) -> Bits:
    """Of two or three; NaN loses, or with ``.NaN`` wins. If all are NaN, so is the result."""
    nans = [floats.is_nan(x, of) for x in xs]
    best, none = xs[0], nans[0]
    for x, nan in zip(xs[1:], nans[1:], strict=True):
        order, other = number_order(best, of), number_order(x, of)
        better = other < order if s.inst.opcode == "min" else other > order
        best = np.where(none | (better & ~nan), x, best)
        none = none & nan
    lost = np.logical_or.reduce(nans) if s.has("NaN") else none
    if of is floats.F64:  # of two NaN the second, quieted
        return np.where(lost, xs[-1] | np.uint64(1 << 51), best)
    return np.where(lost, best.dtype.type(of.nan), best)


def extreme(s: Step) -> None:
    """``min`` and ``max`` of floats."""
    count = len(s.inst.operands) - 1

    def element(of: Format, *operands: Bits) -> Bits:
        sign = operands[0].dtype.type(1 << (of.bits - 1))
        xs = [floats.flush(x, of) for x in operands] if s.has("ftz") else list(operands)
        if not s.has("abs"):
            return _extreme(s, of, xs)
        best = _extreme(s, of, [x & ~sign for x in xs])
        if not s.has("xorsign"):
            return best
        sign = np.where(floats.is_nan(best, of), sign & ~sign, sign)
        return np.asarray(best | (np.bitwise_xor.reduce(operands) & sign))

    s.write(by_elements(s, element, s.reads(count)))


@lane("min", "max")
def min_max(s: Step) -> None:
    """9.7.1.12, 9.7.1.13 of integers."""
    if s.type.kind == "f":
        extreme(s)
    else:
        integer.integer_extreme(s)
