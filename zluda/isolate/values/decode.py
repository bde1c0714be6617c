"""Bits of registers as numbers, and how far apart two of them may be."""

from __future__ import annotations

import math
import struct

from zluda.isolate.values.sites import Site
from zluda.numerics.bounds import BOUNDS, Limit
from zluda.ptx.instructions import spell
from zluda.ptx.module import Instruction, Register
from zluda.ptx.types import ScalarType

_FLOATS = {"f16": "<e", "f32": "<f", "f64": "<d"}
_MANTISSAS = {"f16": 10, "bf16": 7, "tf32": 23, "f32": 23, "f64": 52}
_TENSOR = frozenset(("mma", "wmma", "wgmma"))
_TENSOR_LIMIT = Limit(relative=2**-9)
"""How far apart sums of tensor cores in another order may be here; ``numerics/tensor_cores`` has the orders.
"""


def type_of(site: Site) -> ScalarType:
    """What a site's value is best shown as: the instruction's type where it is the register's width."""
    register, instruction = site.operand, site.instruction
    if not isinstance(register, Register):
        return ScalarType.B64
    if register.type is ScalarType.PRED or register.type.kind == "f":
        return register.type
    return shown_type(register.type, instruction)


def shown_type(register: ScalarType, instruction: Instruction) -> ScalarType:
    """A register's type as an instruction that uses it understands it."""
    fitting = [t for t in instruction.types if t.bits == register.bits and t.kind != "b"]
    return fitting[0] if fitting and register.kind == "b" else register


def number(bits: int, kind: ScalarType) -> float | int:
    """The number that bits of a type are; of packed types their bits."""
    bits &= (1 << kind.bits) - 1
    if kind.spelling in _FLOATS:
        return float(struct.unpack(_FLOATS[kind.spelling], bits.to_bytes(kind.bits // 8, "little"))[0])
    if kind is ScalarType.BF16:
        return float(struct.unpack("<f", (bits << 16).to_bytes(4, "little"))[0])
    if kind.kind == "s" and "x" not in kind.spelling:
        return bits - (1 << kind.bits) if bits >> (kind.bits - 1) else bits
    return bits


def shown(bits: int, kind: ScalarType) -> str:
    """For a person: the number, and its pattern where that says more."""
    if kind is ScalarType.PRED:
        return "true" if bits & 1 else "false"
    pattern = f"0x{bits & (1 << kind.bits) - 1:0{-(-kind.bits // 4)}X}"
    if kind.kind == "b" or "x" in kind.spelling:
        return pattern
    value = number(bits, kind)
    return f"{value!r} ({pattern})" if isinstance(value, float) else str(value)


def both_nan(a: int, b: int, kind: ScalarType) -> bool:
    """Whether both are NaN, whose payload differs from device to device."""
    if kind.spelling not in _MANTISSAS:
        return False
    x, y = number(a, kind), number(b, kind)
    return math.isnan(x) and math.isnan(y)


def excused(site: Site, a: int, b: int) -> str:
    """The bound of an approximate instruction that both values are within; empty where there is none."""
    kind = type_of(site)
    limit = _limit(site.instruction, kind)
    if limit is None or kind.spelling not in _MANTISSAS:
        return ""
    x, y = float(number(a, kind)), float(number(b, kind))
    if not (math.isfinite(x) and math.isfinite(y)):
        return ""
    largest = max(abs(x), abs(y))
    exponent = math.frexp(largest)[1] - 1 if largest else -1074
    step = math.ldexp(1.0, exponent - _MANTISSAS[kind.spelling])
    # Each may be as far as the bound from the exact value.
    allowed = 2 * max(limit.ulp * step, limit.relative * largest, limit.absolute) + step
    return f"within twice {limit}" if abs(x - y) <= allowed else ""


def _limit(instruction: Instruction, kind: ScalarType) -> Limit | None:
    if instruction.opcode in _TENSOR and kind.kind == "f":
        return _TENSOR_LIMIT
    bound = BOUNDS.get(spell(instruction))
    if bound is None:
        return None
    pieces = [piece.allowed for piece in bound.pieces]
    return Limit(*(max(getattr(one, part) for one in pieces) for part in ("ulp", "relative", "absolute")))
