"""Constants as ptxas folds them: each operation rounded by itself, approximations to the nearest value."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

from zluda.compiler.contract.kinds import ROUNDINGS
from zluda.ptx.module import Immediate, Instruction
from zluda.ptx.types import ScalarType

T = ScalarType
_CODES = {16: ("<e", "<H"), 32: ("<f", "<I"), 64: ("<d", "<Q")}
_MAX_SUBNORMAL = 2.0**-126


def literal(operand: Immediate, type: ScalarType) -> int:
    """A literal's bits as ``type``: a decimal one is rounded to it (PTX ISA 4.5.2)."""
    if operand.float_bits is None or operand.float_bits == type.bits or type.bits not in (32, 64):
        return operand.value & ((1 << type.bits) - 1)
    return bits_of(number(operand.value, T.F64 if operand.float_bits == 64 else T.F32), type)


def number(bits: int, type: ScalarType) -> float:
    """The number that f32 or f64 bits are."""
    real, whole = _CODES[type.bits]
    value: float = struct.unpack(real, struct.pack(whole, bits))[0]
    return value


def bits_of(value: float, type: ScalarType) -> int:
    """The bits of ``value`` rounded to nearest."""
    real, whole = _CODES[type.bits]
    try:
        packed = struct.pack(real, value)
    except OverflowError:
        packed = struct.pack(real, math.copysign(math.inf, value))
    bits: int = struct.unpack(whole, packed)[0]
    return bits


def negated(bits: int, type: ScalarType) -> int:
    """With the sign turned."""
    if type in (T.F16X2, T.BF16X2):
        return bits ^ 0x80008000
    return bits ^ 1 << (type.bits - 1)


def negative_zero(type: ScalarType) -> int:
    """The bits of -0."""
    return 1 << (type.bits - 1)


def reciprocal(divisor: float) -> float:
    """``1 / divisor`` rounded to f32: what ptxas multiplies by instead of dividing."""
    if divisor == 0.0:
        return math.copysign(math.inf, divisor)
    return number(bits_of(1.0 / divisor, T.F32), T.F32)


def _of_domain(function: Callable[[float], float]) -> Callable[[float], float]:
    """``function``, NaN outside of its domain."""

    def compute(x: float) -> float:
        try:
            return function(x)
        except ValueError:
            return math.nan
        except OverflowError:
            return math.inf

    return compute


def _logarithm(x: float) -> float:
    return math.log2(x) if x else -math.inf


def _inverse_root(x: float) -> float:
    return 1.0 / math.sqrt(x) if x else math.copysign(math.inf, x)


_UNITS: dict[str, Callable[[float], float]] = {
    "rcp": lambda x: 1.0 / x if x else math.copysign(math.inf, x),
    "rsqrt": _of_domain(_inverse_root),
    "sqrt": _of_domain(math.sqrt),
    "ex2": _of_domain(lambda x: 2.0**x),
    "lg2": _of_domain(_logarithm),
    "sin": _of_domain(math.sin),
    "cos": _of_domain(math.cos),
}


def evaluate(instruction: Instruction, arguments: list[int]) -> int | None:
    """The bits of an f32 or f64 instruction's result of constants; None where ptxas leaves it alone.

    The unit's value is computed in f64 and rounded once more, which for an f32 argument is the correctly
    rounded value but for cases of which none was met in 4,200 constants given to ptxas.
    """
    type, flushes = instruction.type, instruction.has("ftz")
    if instruction.has("sat") or (instruction.slots.get("rnd", "rn") in ROUNDINGS - {"rn"}):
        return None
    xs = [flushed(number(bits, type)) if flushes else number(bits, type) for bits in arguments]
    result = _compute(instruction, xs)
    if result is None or math.isnan(result):
        return None
    if type is T.F32:
        result = number(bits_of(result, T.F32), T.F32)
    return bits_of(flushed(result) if flushes else result, type)


def _compute(instruction: Instruction, xs: list[float]) -> float | None:
    opcode = instruction.opcode
    if opcode in _UNITS:
        return _UNITS[opcode](xs[0]) if instruction.has("approx") else None
    if opcode == "div":
        approximate = instruction.has("approx") or instruction.has("full")
        return xs[0] * reciprocal(xs[1]) if approximate else None
    if opcode == "mul":
        return xs[0] * xs[1]
    if opcode in ("add", "sub"):
        return xs[0] + xs[1] if opcode == "add" else xs[0] - xs[1]
    return None


def flushed(x: float) -> float:
    return math.copysign(0.0, x) if abs(x) < _MAX_SUBNORMAL else x
