"""``.approx`` and ``.full`` forms (PTX ISA 9.7.3): which unit, and the arithmetic ptxas puts around it.

What is computed is what the unit gives at run time. A constant argument, which ptxas folds to the correctly
rounded value instead, arrives as a :class:`~zluda.compiler.ir.Value` with ``bits``: folding belongs here.
"""

from __future__ import annotations

from collections.abc import Callable

from zluda.compiler.ir import Builder, Value
from zluda.compiler.lower import floating, rounding
from zluda.compiler.lower.formats import by_elements, load_float
from zluda.compiler.lower.lanewise import Result, as_bits, lanewise, unsupported
from zluda.compiler.lower.units import UNITS, UNITS_F64, call_unit, call_unit_f64
from zluda.ptx.module import Instruction
from zluda.ptx.types import ScalarType

T = ScalarType
_SIXTEEN_BITS = (T.F16, T.BF16, T.F16X2, T.BF16X2)


def _unit_name(inst: Instruction, type: ScalarType) -> str:
    ftz = ".ftz" if inst.has("ftz") else ""
    return f"{inst.opcode}.approx{ftz}.{type.spelling}"


def _approximate(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    name = _unit_name(inst, inst.type)
    if inst.type is T.F64 and name in UNITS_F64:
        return call_unit_f64(b, name, as_bits(b, operands[0], 64))
    if inst.type is not T.F32 or name not in UNITS:
        raise unsupported(inst)
    return call_unit(b, name, load_float(b, operands[0], T.F32))


def _approximate_half(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """``ex2`` and ``tanh`` of 16-bit types: the f32 unit, its result truncated toward zero."""
    name = "ex2.approx.ftz.f32" if inst.opcode == "ex2" else "tanh.approx.f32"

    def compute(type: ScalarType, values: list[Value]) -> Value:
        result = call_unit(b, name, load_float(b, values[0], type))
        return rounding.to_bfloat(b, result, "rz") if type is T.BF16 else rounding.truncate_to_half(b, result)

    return by_elements(b, inst.type, operands, compute)


@lanewise("ex2", "tanh")
def ex2_tanh(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """PTX ISA 9.7.3.21, 9.7.3.22, 9.7.4.9, 9.7.4.10."""
    return (_approximate_half if inst.type in _SIXTEEN_BITS else _approximate)(b, inst, operands)


@lanewise("rsqrt", "lg2", "sin", "cos")
def unit(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """Instructions that exist as approximations only."""
    return _approximate(b, inst, operands)


def _or_exact(
    exact: Callable[[Builder, Instruction, list[Value]], Result],
) -> Callable[[Builder, Instruction, list[Value]], Result]:
    def lower(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
        return (_approximate if inst.has("approx") else exact)(b, inst, operands)

    return lower


lanewise("rcp")(_or_exact(floating.reciprocal))
lanewise("sqrt")(_or_exact(floating.square_root))


# --- division ----------------------------------------------------------------------------------------


def _multiply(b: Builder, x: Value, y: Value, *, ftz: bool) -> Value:
    return floating.single(b, "mul", "rn", [x, y], ftz=ftz)


def _scale_both(b: Builder, condition: Value, xs: list[Value], factor: float, *, ftz: bool) -> list[Value]:
    scale = b.const("float", factor)
    return [b.select(condition, _multiply(b, x, scale, ftz=ftz), x) for x in xs]


def divide(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """``div``: by reciprocal for ``.approx`` and ``.full``, with operands scaled as ptxas does; else IEEE."""
    approx, ftz = inst.has("approx"), inst.has("ftz")
    if not approx and not inst.has("full"):
        return floating.divide(b, inst, operands)
    xs = [load_float(b, v, T.F32) for v in operands]
    size = rounding.magnitude(b, xs[1])
    large, small = b.fcmp("ogt", size, 2.0**126), b.fcmp("olt", size, 2.0**-126)
    if not approx:
        finite = b.and_(large, b.fcmp("ole", size, float("inf")))
        xs = _scale_both(b, finite, xs, 0.25, ftz=ftz)
    if not ftz:
        xs = _scale_both(b, small, xs, 2.0**24, ftz=False)
    return _multiply(b, call_unit(b, "rcp.approx.ftz.f32", xs[1]), xs[0], ftz=ftz)
