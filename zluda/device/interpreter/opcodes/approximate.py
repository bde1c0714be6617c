"""Approximate instructions (PTX ISA 9.7.3, 9.7.4) by the measured models of NVIDIA's units, and the exact
forms of the opcodes that have both."""

from __future__ import annotations

import numpy as np

from zluda.device.interpreter import doubles, floats
from zluda.device.interpreter.floats import ELEMENTS, Format
from zluda.device.interpreter.opcodes import floating, integer
from zluda.device.interpreter.opcodes.floating import by_elements
from zluda.device.interpreter.registry import lane
from zluda.device.interpreter.step import Step
from zluda.device.interpreter.values import Bits
from zluda.numerics.mufu import FUNCTIONS
from zluda.ptx.types import ScalarType


def _unit(s: Step) -> None:
    """What a unit makes of each element."""
    ftz = ".ftz" if s.has("ftz") else ""
    opcode = s.inst.opcode
    if s.type is ScalarType.F64:
        s.write(_wide(s, f"{opcode}.approx{ftz}.f64", s.read(1)))
        return
    name = ELEMENTS.get(s.type.spelling, s.type.spelling)

    def element(of: Format, x: Bits) -> Bits:
        unit = FUNCTIONS.get(f"{opcode}.approx{ftz}.{name}")
        if unit is None:
            raise s.unsupported()
        return unit(x.astype(np.uint32)).astype(x.dtype)

    s.write(by_elements(s, element, s.reads(1)))


def _wide(s: Step, name: str, x: Bits) -> Bits:
    """Of f64: units that see the high word only; ``rsqrt.approx.f64`` is one of them and a step of
    Newton's."""
    if name == "rsqrt.approx.f64":
        return _refined(x)
    unit = FUNCTIONS.get(name)
    if unit is None:
        raise s.unsupported()
    return unit((x >> np.uint64(32)).astype(np.uint32)).astype(np.uint64) << np.uint64(32)


def _refined(x: Bits) -> Bits:
    """ptxas's sequence for ``rsqrt.approx.f64``: y + y e (1/2 + 3/8 e) with e = 1 - x y^2; subnormal x times
    2^54."""
    size = x & np.uint64((1 << 63) - 1)
    small = size < np.uint64(1 << 52)
    number = np.ascontiguousarray(x).view(np.float64)
    value = np.where(small, number * 2.0**54, number)
    high = (value.view(np.uint64) >> np.uint64(32)).astype(np.uint32)
    first = FUNCTIONS["rsqrt.approx.ftz.f64"](high).astype(np.uint64) << np.uint64(32)

    def fma(a: Bits, b: Bits, c: Bits) -> Bits:
        return doubles.each(
            doubles.fma, "rn", *(np.ascontiguousarray(v).view(np.uint64) for v in (a, b, c))
        ).view(np.float64)

    guess = first.view(np.float64)
    everywhere = np.ones_like(value)
    error = fma(value, -(guess * guess), everywhere)
    found = fma(fma(error, 0.375 * everywhere, 0.5 * everywhere), guess * error, guess)
    bits = np.where(small, found * 2.0**27, found).view(np.uint64)
    infinity = np.uint64(0x7FF << 52)
    bits = np.where(x == infinity, np.uint64(0), bits)
    bits = np.where(x >> np.uint64(63) != 0, np.uint64(doubles.INVALID), bits)
    bits = np.where(size == 0, (x & np.uint64(1 << 63)) | infinity, bits)
    return np.where(size > infinity, x | np.uint64(1 << 51), bits)


@lane("ex2", "tanh", "rsqrt", "lg2", "sin", "cos")
def approximate(s: Step) -> None:
    """9.7.3.16 to 9.7.3.21, 9.7.4.10, 9.7.4.11."""
    _unit(s)


@lane("rcp")
def rcp(s: Step) -> None:
    """9.7.3.13, 9.7.3.14."""
    if s.has("approx"):
        _unit(s)
    else:
        floating.reciprocal(s)


@lane("sqrt")
def sqrt(s: Step) -> None:
    """9.7.3.15."""
    if s.has("approx"):
        _unit(s)
    else:
        floating.square_root(s)


@lane("div")
def div(s: Step) -> None:
    """9.7.1.8, 9.7.3.8."""
    if s.type.kind != "f":
        integer.integer_div(s)
    elif s.has("approx") or s.has("full"):
        s.write(_by_reciprocal(s))
    else:
        s.write(floating.quotient(s, s.reads(2)))


def _multiply(x: Bits, y: Bits, *, ftz: bool) -> Bits:
    xs = [floats.widen(floats.flush(v, floats.F32) if ftz else v, floats.F32) for v in (x, y)]
    return floats.narrow(xs[0] * xs[1], floats.F32, ftz=ftz)


def _by_reciprocal(s: Step) -> Bits:
    """``a * rcp(b)``; ``.full`` takes both times 1/4 where ``b`` is above 2^126, forms without ``.ftz`` both
    times 2^24 where ``b`` is subnormal. So ptxas writes them, and PTX's bounds say."""
    x, y = s.reads(2)
    ftz = s.has("ftz")
    size = y & np.uint32(0x7FFFFFFF)
    large = (size > 0x7E800000) & (size <= 0x7F800000)
    small = size < 0x00800000

    def scaled(v: Bits, where: Bits, factor: int) -> Bits:
        return np.where(where, _multiply(v, np.full_like(v, factor), ftz=ftz), v)

    if s.has("full"):
        x, y = scaled(x, large, 0x3E800000), scaled(y, large, 0x3E800000)
    if not ftz:
        x, y = scaled(x, small, 0x4B800000), scaled(y, small, 0x4B800000)
    return _multiply(FUNCTIONS["rcp.approx.ftz.f32"](y), x, ftz=ftz)
