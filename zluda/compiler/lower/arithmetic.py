"""Opcodes that exist for integers and floating point alike: one entry each, chosen by the type's kind."""

from __future__ import annotations

from zluda.compiler.ir import Builder, Value
from zluda.compiler.lower import floating, integer
from zluda.compiler.lower.lanewise import Lowering, Result, lanewise
from zluda.ptx.module import Instruction


def _divide(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    from zluda.compiler.lower import approximate

    return approximate.divide(b, inst, operands)


# opcode → (integers, floating point)
_BY_KIND: dict[str, tuple[Lowering, Lowering]] = {
    "add": (integer.add_integer, floating.arithmetic("add")),
    "sub": (integer.sub_integer, floating.arithmetic("add", negate=1)),
    "mul": (integer.mul_integer, floating.arithmetic("mul")),
    "mad": (integer.mad_integer, floating.arithmetic("fma")),
    "abs": (integer.abs_integer, floating.absolute),
    "neg": (integer.neg_integer, floating.negate),
    "min": (integer.minmax_integer("min"), floating.minmax_float("min")),
    "max": (integer.minmax_integer("max"), floating.minmax_float("max")),
    "div": (integer.div_integer, _divide),
}


def _register(opcode: str) -> None:
    integers, floats = _BY_KIND[opcode]

    @lanewise(opcode)
    def lower(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
        return (floats if inst.type.kind == "f" else integers)(b, inst, operands)


for _opcode in _BY_KIND:
    _register(_opcode)
