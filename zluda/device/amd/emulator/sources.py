"""Sources and destinations of a table row: operands read and written as types, modifiers applied.

Order of the input modifiers (RDNA2 ISA 6.2.1): DPP or SDWA selection, then abs, then neg; denormals are
flushed as MODE says when an operand is read as floating point.
"""

from __future__ import annotations

from collections.abc import Callable

from zluda.compiler.ir import Value, constant
from zluda.compiler.lower import rounding
from zluda.device.amd.emulator.instruction import Instruction, Operand
from zluda.device.amd.emulator.values import Context, Typed, element_of
from zluda.device.amd.emulator.wave import Wave, literal_bits

Lanewise = Callable[[Value], Value]


class Source:
    """One source operand. Attributes are its readings: ``S0.f32``; see ``table/__init__.py``."""

    def __init__(
        self,
        wave: Wave,
        instruction: Instruction,
        operand: Operand,
        position: int,
        *,
        context: Context,
        permute: Lanewise | None = None,
        half: int | None = None,
        saturate: bool = False,
        whole: bool = False,
    ) -> None:
        self._wave, self._instruction, self._operand, self._position = wave, instruction, operand, position
        self._context, self._permute, self._half, self._saturate = context, permute, half, saturate
        self._whole = whole or permute is not None  # inactive lanes are read too

    # --- raw bits --------------------------------------------------------------------------------------

    def _registers(self, width: int) -> Value:
        """32 or 64 bits as an integer, from registers or a literal."""
        wave, operand = self._wave, self._operand
        if operand.kind != "v":
            return wave.scalar_operand(operand, f"i{width}")
        if width == 64:
            if self._permute is None:
                return wave.vgpr_pair(operand.index)
            b = wave.b
            low, high = (self._permute(wave.whole_vgpr(operand.index + i)) for i in (0, 1))
            return b.or_(b.zext(low, "i64"), b.shl(b.zext(high, "i64"), 32))
        value = wave.whole_vgpr(operand.index) if self._whole else wave.vgpr(operand.index)
        return self._permute(value) if self._permute is not None else value

    def _selected(self) -> Value | None:
        """SDWA's byte or word of the register, extended to 32 bits (Vega ISA 6.3.4)."""
        selection = self._instruction.modifiers.get(f"src{self._position}_sel", "DWORD")
        if not isinstance(selection, str) or selection == "DWORD":
            return None
        b, value = self._wave.b, self._registers(32)
        bits = 8 if selection.startswith("BYTE") else 16
        field = b.trunc(b.lshr(value, bits * int(selection[-1])), f"i{bits}")
        return b.resize(field, "i32", signed=self._operand.sign_extend)

    def _low_or_high(self, width: int) -> Value:
        """16 bits: the half that the name, op_sel or packing chooses."""
        b, operand = self._wave.b, self._operand
        selected = self._selected()
        if selected is not None:
            return b.trunc(selected, "i16")
        if operand.kind == "literal" and self._half is None:
            return constant("i16", literal_bits(operand.text, "i16"))
        if operand.kind == "literal" and "x" not in operand.text and not operand.text.lstrip("-").isdigit():
            # A packed operand's inline constant has its value in the low half only.
            bits = 0 if self._half_index() else literal_bits(operand.text, "i16")
            return constant("i16", bits)
        value = self._registers(32)
        return b.trunc(b.lshr(value, 16) if self._half_index() else value, f"i{width}")

    def _half_index(self) -> int:
        """1 where the high half is read."""
        if self._operand.half:
            return int(self._operand.half == "h")
        if self._half is not None:
            return self._packed("op_sel_hi" if self._half else "op_sel", self._half)
        return self._packed("op_sel", 0)

    def _packed(self, modifier: str, default: int) -> int:
        flags = self._instruction.numbers(modifier, ())
        return flags[self._position] if self._position < len(flags) else default

    def _is_short_literal(self) -> bool:
        """A 32-bit literal of a 64-bit floating operand is its high half (RDNA2 ISA 3.4.2)."""
        text = self._operand.text
        return self._operand.kind == "literal" and "x" in text and 0 <= int(text, 0) < 1 << 32

    # --- typed readings --------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Typed:
        kind, element = element_of(name)
        width = int(name[1:])
        if width == 16:
            bits = self._low_or_high(16)
        elif width == 32 and self._half is not None:
            bits = self.word(self._half_index()).value
        else:
            selected = self._selected() if width == 32 else None
            bits = selected if selected is not None else self._registers(width)
            if name == "f64" and self._is_short_literal():
                bits = self._wave.b.shl(bits, 32)
        if name[0] == "b":
            return self._typed(self._signed_bits(bits), "u")
        if kind == "f":
            return self._typed(self._floating(bits, element), "f")
        return self._integer(bits, kind)

    def _typed(self, value: Value, kind: str) -> Typed:
        return Typed(self._context, self._wave.b.splat(value, self._context.lanes), kind)

    def _integer(self, bits: Value, kind: str) -> Typed:
        """Under ``clamp`` an integer is read twice as wide and signed, and the result clamped at the end."""
        typed = self._typed(bits, kind)
        return typed.convert(f"i{2 * typed.width}") if self._saturate else typed

    def _signs(self) -> tuple[bool, bool]:
        """(abs, neg), for the half that is read."""
        operand = self._operand
        negate, absolute = operand.negate, operand.absolute
        if self._half is not None:
            negate ^= bool(self._packed("neg_hi" if self._half else "neg_lo", 0))
        return absolute, negate

    def _signed_bits(self, bits: Value) -> Value:
        """abs and neg on a bit pattern that no arithmetic follows (V_CNDMASK)."""
        b, sign = self._wave.b, 1 << bits.width - 1
        absolute, negate = self._signs()
        bits = b.and_(bits, sign - 1) if absolute else bits
        return b.xor(bits, sign) if negate else bits

    def _floating(self, bits: Value, element: str) -> Value:
        """abs and neg change a NaN's sign too, and f64 arithmetic passes it on (RDNA2 ISA 6.2.1). LLVM makes
        them part of the arithmetic, which turns another operand's NaN or none: f64 is kept apart from it.
        """
        b = self._wave.b
        value = b.bitcast(bits, element)
        absolute, negate = self._signs()
        if absolute:
            value = b.intrinsic("fabs", value)
        if negate:
            value = b.fneg(value)
        if element == "double" and (absolute or negate):
            value = b.intrinsic("arithmetic.fence", value)
        if self._context.mode.flushes_inputs(value.width):
            value = rounding.flush(b, value)
        return value

    @property
    def u24(self) -> Typed:
        return self._integer(self._wave.b.and_(self._word_or_part(), 0xFFFFFF), "u")

    @property
    def i24(self) -> Typed:
        b = self._wave.b
        return self._integer(b.ashr(b.shl(self._word_or_part(), 8), 8), "i")

    def _word_or_part(self) -> Value:
        """32 bits, or what SDWA selects of them."""
        selected = self._selected()
        return selected if selected is not None else self._registers(32)

    @property
    def i16x(self) -> Typed:
        """SOPK's immediate, sign-extended to 32 bits."""
        number = self._operand.number & 0xFFFF
        return self._typed(constant("i32", number - (number >> 15 << 16)), "i")

    # --- parts -----------------------------------------------------------------------------------------

    def _part(self, half: int) -> Source:
        return Source(
            self._wave,
            self._instruction,
            self._operand,
            self._position,
            context=self._context,
            permute=self._permute,
            half=half,
            saturate=self._saturate,
        )

    @property
    def lo(self) -> Source:
        return self._part(0)

    @property
    def hi(self) -> Source:
        return self._part(1)

    def word(self, index: int) -> Typed:
        """One 32-bit word of a pair of registers; a literal is the same in both."""
        wave, operand = self._wave, self._operand
        if operand.kind == "v":
            return self._typed(wave.vgpr(operand.index + index), "u")
        if operand.kind == "s" and operand.count > 1:
            return self._typed(wave.sgpr(operand.index + index), "u")
        return self._typed(wave.scalar_operand(operand), "u")

    @property
    def mix(self) -> Typed:
        """fma_mix: f32, or the half that op_sel names where op_sel_hi says it is f16 (RDNA2 ISA 12.6)."""
        if not self._packed("op_sel_hi", 0):
            return self.f32
        bits = self._registers(32)
        b = self._wave.b
        half = b.trunc(b.lshr(bits, 16) if self._packed("op_sel", 0) else bits, "i16")
        return self._typed(b.cast("fpext", self._floating(half, "half"), "float"), "f")

    def dot(self, other: Source, bits: int, signed: int, other_signed: int, kind: str = "i32") -> Typed:
        """The sum of the products of 8- or 4-bit fields, each operand signed or not."""
        b, total = self._wave.b, None
        x, y = self._registers(32), other._registers(32)
        for i in range(32 // bits):
            fields = []
            for value, extend in ((x, signed), (y, other_signed)):
                raised = b.shl(value, 32 - bits * (i + 1))
                fields.append(b.binary("ashr" if extend else "lshr", raised, 32 - bits))
            product = b.mul(*fields)
            total = product if total is None else b.add(total, product)
        assert total is not None
        result = self._typed(total, "i")
        return result.convert("i64") if self._saturate else result.bits(kind)
