"""What a thread finds around it: special registers (PTX ISA 10), and addresses that its device fills in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zluda.compiler.gpu.thread import CONSTANT, one
from zluda.compiler.ir import Value
from zluda.compiler.target import UNIFORM, Lanes, Shape
from zluda.ptx.module import Register
from zluda.ptx.special import SPECIAL_REGISTERS
from zluda.ptx.types import ScalarType

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen

SYMBOLS = "__zluda_symbols"
"""A module's table in constant memory: addresses of ``CompiledKernel.symbols``, for its device to write."""

_CHANGING = ("%clock", "%globaltimer", "%pm", "%smid", "%warpid")
"""Beginnings of the names of registers that may read otherwise the next time."""


def symbol_address(f: FunctionCodegen, name: str) -> Value:
    """The address (``i64``) of what the device places: out of the table."""
    index = f.unit.symbol_index(name)
    f.unit.ir.globals[SYMBOLS] = (
        f"@{SYMBOLS} = addrspace(4) externally_initialized global "
        f"[{len(f.unit.symbols)} x i64] zeroinitializer, align 8"
    )
    place = f"%symbol.{index}"

    def lines() -> list[str]:
        return [
            f"{place}.p = getelementptr i8, {CONSTANT} @{SYMBOLS}, i32 {8 * index}",
            f"{place} = load i64, {CONSTANT} {place}.p, align 8, !invariant.load !0",
        ]

    return f.at_entry(place.removeprefix("%"), "i64", lines)


class SpecialRegisters:
    """The special-register part of NVPTX's TargetOps."""

    def special_shape(self, f: FunctionCodegen, name: str) -> Shape:
        """One thread's: uniform."""
        return UNIFORM

    def special(self, f: FunctionCodegen, name: str) -> Lanes:
        """The register itself, read by ``mov``."""
        register = SPECIAL_REGISTERS[name]
        assert isinstance(register, Register)
        if register.type is ScalarType.PRED:
            text = f"{{ .reg .pred %zp; mov.pred %zp, {name}; selp.u32 $0, 1, 0, %zp; }}"
            return one(f.b.icmp("ne", f.b.define("i32", 1, f'call i32 asm "{text}", "=r"()'), 0))
        bits, kind = register.type.bits, register.type.spelling
        effect = "sideeffect " if name.startswith(_CHANGING) else ""
        text = f'call i{bits} asm {effect}"mov.{kind} $0, {name};", "={"r" if bits == 32 else "l"}"()'
        if effect:
            return one(f.b.define(f"i{bits}", 1, text))
        label = "register." + name.removeprefix("%")
        return one(f.at_entry(label, f"i{bits}", lambda: [f"%{label} = {text}"]))
