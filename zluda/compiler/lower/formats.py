"""How PTX's floating types are held: f32 and f64 as LLVM's own, 16-bit types widened to f32."""

from __future__ import annotations

from collections.abc import Callable

from zluda.compiler.ir import Builder, Value
from zluda.compiler.lower.lanewise import as_bits, as_float, canonical_nan
from zluda.compiler.lower.packed import join_halves, split_halves
from zluda.compiler.lower.rounding import narrow, to_bfloat
from zluda.ptx.types import ScalarType

ELEMENT_OF_PACKED = {
    ScalarType.F16X2: ScalarType.F16,
    ScalarType.BF16X2: ScalarType.BF16,
    ScalarType.F32X2: ScalarType.F32,
}


def load_float(b: Builder, value: Value, type: ScalarType) -> Value:
    """An operand of a floating type as ``float`` (f16 and bf16 widened exactly) or ``double``."""
    if type is ScalarType.BF16:
        return b.bitcast(b.shl(b.zext(as_bits(b, value, 16), "i32"), 16), "float")
    x = as_float(b, value, type)
    return b.cast("fpext", x, "float") if type is ScalarType.F16 else x


def store_float(b: Builder, value: Value, type: ScalarType, mode: str = "rn") -> Value:
    """A ``float`` or ``double`` as a result of the type: rounded to 16 bits where the type has them."""
    if type is ScalarType.BF16:
        return to_bfloat(b, value, mode)
    return narrow(b, value, "half", mode) if type is ScalarType.F16 else value


def by_elements(
    b: Builder, type: ScalarType, operands: list[Value], operation: Callable[[ScalarType, list[Value]], Value]
) -> Value:
    """``operation(type, operands)``, for a packed type on each half of the operands."""
    element = ELEMENT_OF_PACKED.get(type)
    if element is None:
        return operation(type, operands)
    halves = _split_float_pair if element is ScalarType.F32 else split_halves
    lows, highs = zip(*(halves(b, v) for v in operands), strict=True)
    low, high = (canonical_nan(b, operation(element, list(v))) for v in (lows, highs))
    if element is ScalarType.F32:
        return b.or_(b.zext(low, "i64"), b.shl(b.zext(high, "i64"), 32))
    return join_halves(b, low, high)


def _split_float_pair(b: Builder, value: Value) -> tuple[Value, Value]:
    bits = as_bits(b, value, 64)
    return b.trunc(bits, "i32"), b.trunc(b.lshr(bits, 32), "i32")
