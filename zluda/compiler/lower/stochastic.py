"""``cvt.rs``: rounding up with the probability of what is cut off (PTX ISA 9.7.9.22, "rbits").

A random number below one quantum of the result is added to the magnitude, and what then lies below the
quantum is dropped. Two results of 16 bits take their random bits from the halves of ``rbits``, 13 of them for
f16 and 16 for bf16, since those are what f32 has below; four small results take a byte each, the first result
the highest. That a random number is so long, and which bits it is, is not documented and was not measured (it
takes compute capability 10.0).
"""

from __future__ import annotations

from zluda.compiler.ir import Builder, Value
from zluda.compiler.lower import rounding
from zluda.compiler.lower.floating import rectify
from zluda.compiler.lower.formats import load_float
from zluda.compiler.lower.lanewise import as_bits, canonical_nan
from zluda.compiler.lower.packed import join_halves
from zluda.compiler.lower.small_floats import SMALL, Small, code_of
from zluda.ptx.module import Instruction
from zluda.ptx.types import ScalarType

T = ScalarType

# Element, its largest number, random bits, bits of mantissa and exponent of the smallest normal number.
_PAIRS = {
    T.F16X2: (T.F16, 65504.0, 13, 10, -14),
    T.BF16X2: (T.BF16, float.fromhex("0x1.fep127"), 16, 7, -126),
}
_FOURS = {
    T.E4M3X4: SMALL[T.E4M3X2],
    T.E5M2X4: SMALL[T.E5M2X2],
    T.E2M3X4: SMALL[T.E2M3X2],
    T.E3M2X4: SMALL[T.E3M2X2],
    T.E2M1X4: SMALL[T.E2M1X2],
}
_BYTE = 8


def convert(b: Builder, inst: Instruction, operands: list[Value]) -> Value | None:
    """The results side by side, the first highest; None for a type that is not known here."""
    *sources, random = operands
    random = as_bits(b, random, 32)
    values = [load_float(b, x, T.F32) for x in sources]
    if inst.has("relu"):
        values = [rectify(b, x) for x in values]
    destination = inst.types[0]
    if destination in _PAIRS:
        return _pair(b, inst, values, random)
    return _four(b, _FOURS[destination], values, random) if destination in _FOURS else None


def _pair(b: Builder, inst: Instruction, values: list[Value], random: Value) -> Value:
    element, largest, bits, mantissa, lowest = _PAIRS[inst.types[0]]
    halves = []
    for x, shift in zip(values, (16, 0), strict=True):
        field = b.and_(b.lshr(random, shift), (1 << bits) - 1)
        moved = _moved(b, x, field, bits, mantissa, lowest)
        short = rounding.narrow(b, moved, "float", "rz")
        if inst.has("satfinite"):
            short = b.select(b.fcmp("ogt", short, largest), largest, short)
            short = b.select(b.fcmp("olt", short, -largest), -largest, short)
        elif element is T.BF16:
            over = b.fcmp("oge", rounding.magnitude(b, moved), 2.0**128)
            short = b.select(over, b.intrinsic("copysign", b.const("float", float("inf")), short), short)
        result = (
            rounding.truncate_to_half(b, short) if element is T.F16 else rounding.to_bfloat(b, short, "rz")
        )
        halves.append(canonical_nan(b, result))
    return join_halves(b, halves[1], halves[0])


def _four(b: Builder, kind: Small, values: list[Value], random: Value) -> Value:
    """Small results, which always saturate."""
    joined = b.const("i32", 0)
    for i, x in enumerate(values):
        field = b.and_(b.lshr(random, 24 - _BYTE * i), 0xFF)
        moved = _moved(b, x, field, _BYTE, kind.mantissa, 1 - kind.bias)
        code = code_of(b, kind, rounding.narrow(b, moved, "float", "rz"))
        joined = b.or_(b.shl(joined, kind.bits), code)
    return b.trunc(joined, f"i{4 * kind.bits}")


def _moved(b: Builder, x: Value, random: Value, bits: int, mantissa: int, lowest: int) -> Value:
    """An f32 as ``double``, its magnitude larger by ``random`` 2^-``bits`` parts of the result's quantum."""
    exponent = b.sub(b.and_(b.lshr(b.bitcast(x, "i32"), 23), 0xFF), 127)
    exponent = b.intrinsic("smax", exponent, lowest)
    field = b.zext(b.add(exponent, 1023 - mantissa - bits), "i64")
    part = b.bitcast(b.shl(field, 52), "double")
    wide = b.cast("fpext", x, "double")
    more = b.fmul(b.cast("uitofp", random, "double"), part)
    return b.fadd(wide, b.intrinsic("copysign", more, wide))
