"""Vector arithmetic: table rows over the lanes of a wave, with the encodings' modifiers.

VOP1, VOP2, VOP3, VOPC, VOP3P, VOPD (RDNA2 ISA 6; RDNA3 ISA 7), SDWA and DPP.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from zluda.compiler.ir import Value
from zluda.compiler.lower import rounding
from zluda.device.amd.emulator import division, functions, integers, lanes
from zluda.device.amd.emulator.instruction import EXEC, VCC, Instruction, Operand
from zluda.device.amd.emulator.outline import out_of_line
from zluda.device.amd.emulator.scope import SCOPE
from zluda.device.amd.emulator.sources import Source
from zluda.device.amd.emulator.table import Row, Statement, rows
from zluda.device.amd.emulator.values import Typed
from zluda.device.amd.emulator.wave import Wave

Write = Callable[[], None]
_VCC_OPERAND = Operand("s", "vcc", VCC, 2)
_NO_MODIFIERS_KEPT = ("v_nop", "v_pipeflush", "v_clrexcp")
# Vega ISA 6.2: these write only the half that op_sel names; other 16-bit results clear the register's top.
_GFX9_KEEPS_HALF = frozenset(
    f"v_{n}"
    for n in (
        "mad_f16",
        "mad_u16",
        "mad_i16",
        "fma_f16",
        "div_fixup_f16",
        "add_i16",
        "sub_i16",
        "mad_mixlo_f16",
        "mad_mixhi_f16",
        "fma_mixlo_f16",
        "fma_mixhi_f16",
    )
)


def lift(wave: Wave, instruction: Instruction) -> None:
    """Emit a vector instruction. Raises UnsupportedError naming one that is not in the table."""
    if instruction.pair is not None:  # both halves of VOPD read before either writes
        writes = [*evaluate(wave, instruction), *evaluate(wave, instruction.pair)]
    else:
        writes = evaluate(wave, instruction)
    for write in writes:
        write()


def evaluate(wave: Wave, instruction: Instruction) -> list[Write]:
    """Emit an instruction's reads and arithmetic; returns what writes its results."""
    name = instruction.mnemonic
    if name in _NO_MODIFIERS_KEPT:
        return []
    if wave.vgpr_index is not None:
        if name != "v_mov_b32":
            raise wave.unsupported(f"instruction {name} with an indexed register")
        return lanes.mov_indexed(wave, instruction)
    special = lanes.HANDLERS.get(name)
    if special is not None:
        return special(wave, instruction)
    if name.startswith("v_div_scale_"):
        return _div_scale(wave, instruction)
    if name == "v_mqsad_u32_u8":
        return _mqsad(wave, instruction)
    if name.startswith(("v_cmp_", "v_cmpx_")):
        return _compare(wave, instruction)
    row = rows().get(name)
    if row is None and name.startswith("v_pk_"):
        return _packed(wave, instruction)
    if row is None or not name.startswith("v_"):
        raise wave.unsupported(f"instruction {name}")
    return _Evaluation(wave, instruction, row).writes()


class _Evaluation:
    """One row over one instruction's operands."""

    def __init__(self, wave: Wave, instruction: Instruction, row: Row, *, half: int | None = None) -> None:
        self.wave, self.instruction, self.row, self.half = wave, instruction, row, half
        operands = list(instruction.operands)
        self.carry_in = _VCC_OPERAND
        names = row.names
        has_carry = row.writes("CARRY")
        sources = 1 + has_carry
        if "CIN" in names and len(operands) > sources + 2:
            self.carry_in = operands.pop()
        self.destination = operands[0]
        self.carry_out = operands[1] if has_carry else None
        self.sources = operands[sources:]
        self.permute, self.mask = lanes.dpp(wave, instruction)
        self.saturate = self._saturates()

    def _saturates(self) -> bool:
        """Whether this is an integer instruction under ``clamp``."""
        kind = self.row.statements[0].type[0]
        return bool(self.instruction.modifiers.get("clamp")) and kind in "ui"

    def scope(self) -> dict[str, object]:
        """The names that this row's expressions may use."""
        wave, names = self.wave, self.row.names
        scope: dict[str, object] = dict(SCOPE)
        for i, operand in enumerate(self.sources):
            scope[f"S{i}"] = self._source(operand, i)
        scope["D"] = self._source(self.destination, len(self.sources), old=True)
        if "CIN" in names:
            scope["CIN"] = self._condition(self.carry_in)
        if "VCC" in names:
            scope["VCC"] = Typed(wave.vector, wave.vcc_lanes(), "b")
        if "LANES_BELOW_LO" in names:
            scope["LANES_BELOW_LO"] = self._lanes_below(0)
        if "LANES_BELOW_HI" in names:
            scope["LANES_BELOW_HI"] = self._lanes_below(32)
        scope["BITOP3"] = self.instruction.number("bitop3")
        scope["NEG_LO"] = self.instruction.numbers("neg_lo", (0, 0, 0))
        scope["OP_SEL"] = self.instruction.numbers("op_sel", (0, 0, 0))
        return scope

    def _source(self, operand: Operand, position: int, *, old: bool = False) -> Source:
        return Source(
            self.wave,
            self.instruction,
            operand,
            position,
            context=self.wave.vector,
            permute=self.permute if position == 0 and not old else None,
            half=self.half,
            saturate=self.saturate,
        )

    def _condition(self, operand: Operand) -> Typed:
        mask = self.wave.scalar_operand(operand, self.wave.mask_type)
        return Typed(self.wave.vector, self.wave.to_lanes(mask), "b")

    def _lanes_below(self, first: int) -> Typed:
        """For each lane the lanes below it, as the 32-bit mask that begins at lane ``first``."""
        below = [((1 << lane) - 1) >> first & 0xFFFFFFFF for lane in range(self.wave.lanes)]
        return Typed(self.wave.vector, self.wave.b.vector("i32", below), "u")

    def evaluate(self) -> list[tuple[Statement, Typed]]:
        scope = self.scope()
        return [(s, eval(s.code, {"__builtins__": {}}, scope)) for s in self.row.statements]

    def writes(self) -> list[Write]:
        return [self._write(statement, value) for statement, value in self.evaluate()]

    def _write(self, statement: Statement, value: Typed) -> Write:
        if statement.place == "CARRY":
            assert self.carry_out is not None
            return _mask_write(self.wave, self.carry_out, value.value)
        operand = self.destination if statement.place == "D" else self.sources[0]
        result = self.finish(statement.type, value)
        return lambda: self._write_register(operand, result)

    def finish(self, type_name: str, value: Typed) -> Value:
        """Output modifiers: omod, clamp, denormal flushing (RDNA2 ISA 6.2.2). Returns the bits."""
        if self.saturate:
            value = functions.saturate_int(value, type_name)
        b, result = self.wave.b, value.value
        if value.kind == "f":
            result = _output_modifiers(self.wave, self.instruction, result)
        width = int(type_name[1:])
        return b.bitcast(result, f"i{width}")

    def _write_register(self, operand: Operand, bits: Value) -> None:
        wave, b = self.wave, self.wave.b
        if operand.kind == "s":  # v_s_rcp_f32 and its like
            wave.set_sgpr(operand.index, b.zext(b.extract(bits, 0), "i32"))
            return
        selection = self.instruction.modifiers.get("dst_sel", "DWORD")
        if isinstance(selection, str) and selection != "DWORD":
            bits = self._sdwa_result(operand, bits, selection)
        elif bits.width == 16:
            bits = self._merge_half(operand, bits)
        wave.set_vgpr(operand.index, bits, self.mask)

    def _merge_half(self, operand: Operand, bits: Value) -> Value:
        wave, b, name = self.wave, self.wave.b, self.instruction.mnemonic
        selection = self.instruction.numbers("op_sel", ())
        chosen = len(selection) > len(self.sources) and bool(selection[len(self.sources)])
        high = operand.half == "h" or chosen or name.endswith("mixhi_f16")
        wide = b.zext(b.splat(bits, wave.lanes), "i32")
        if high:
            return b.or_(b.shl(wide, 16), b.and_(wave.vgpr(operand.index), 0xFFFF))
        if wave.target.generation < 10 and name not in _GFX9_KEEPS_HALF:
            return wide
        return b.or_(wide, b.and_(wave.vgpr(operand.index), 0xFFFF0000))

    def _sdwa_result(self, operand: Operand, bits: Value, selection: str) -> Value:
        """SDWA's destination byte or word (Vega ISA 6.3.4)."""
        wave, b = self.wave, self.wave.b
        width = 8 if selection.startswith("BYTE") else 16
        shift = width * int(selection[-1])
        field = (1 << width) - 1
        value = b.and_(b.resize(b.splat(bits, wave.lanes), "i32"), field)
        unused = self.instruction.modifiers.get("dst_unused", "UNUSED_PAD")
        placed = b.shl(value, shift)
        if unused == "UNUSED_PRESERVE":
            return b.or_(placed, b.and_(wave.vgpr(operand.index), ~(field << shift)))
        if unused == "UNUSED_SEXT":
            return b.ashr(b.shl(value, 32 - width), 32 - width - shift)
        return placed


def _output_modifiers(wave: Wave, instruction: Instruction, value: Value) -> Value:
    b = wave.b
    factor = float(instruction.number("mul")) or (0.5 if instruction.modifiers.get("div") else 0.0)
    if factor:
        value = b.fmul(value, factor)
    if instruction.modifiers.get("clamp"):
        value = b.intrinsic("minimumnum", b.intrinsic("maximumnum", value, 0.0), 1.0)
    if wave.mode.flushes_results(value.width):
        value = rounding.flush(b, value)
    return value


def _mask_write(wave: Wave, operand: Operand, condition: Value) -> Write:
    """Write a condition a lane to a scalar mask; inactive lanes give 0."""
    active = wave.b.and_(wave.b.splat(condition, wave.lanes), wave.exec_lanes())
    mask = wave.to_mask(active)
    if operand.kind != "s":
        return lambda: None
    return lambda: wave.set_sgpr(operand.index, mask)


def _compare(wave: Wave, instruction: Instruction) -> list[Write]:
    """V_CMP writes a mask of active lanes, V_CMPX writes EXEC (before gfx10 both)."""
    writes_exec = instruction.mnemonic.startswith("v_cmpx_")
    row = rows().get(instruction.mnemonic.replace("v_cmpx_", "v_cmp_", 1))
    if row is None:
        raise wave.unsupported(f"instruction {instruction.mnemonic}")
    destination = instruction.operands[0] if len(instruction.operands) > 2 else _VCC_OPERAND
    padded = Instruction(
        instruction.offset,
        instruction.size,
        instruction.text,
        instruction.mnemonic,
        (destination, destination, *instruction.operands[-2:]),
        instruction.modifiers,
    )
    evaluation = _Evaluation(wave, padded, row)
    [(_, value)] = evaluation.evaluate()
    b = wave.b
    active = evaluation.mask if evaluation.mask is not None else wave.exec_lanes()
    mask = wave.to_mask(b.and_(b.splat(value.value, wave.lanes), active))
    targets = [destination.index] if not writes_exec or wave.target.generation < 10 else []
    targets += [EXEC] if writes_exec else []
    return [lambda index=index: wave.set_sgpr(index, mask) for index in targets]  # type: ignore[misc]


def _packed(wave: Wave, instruction: Instruction) -> list[Write]:
    """V_PK_*: an instruction of the table on both halves (16 bits, or 32 bits of a pair)."""
    row = rows().get(instruction.mnemonic.replace("v_pk_", "v_", 1))
    if row is None or len(row.statements) != 1:
        raise wave.unsupported(f"instruction {instruction.mnemonic}")
    statement = row.statements[0]
    results = []
    evaluation = None
    for half in (0, 1):
        evaluation = _Evaluation(wave, instruction, row, half=half)
        [(_, value)] = evaluation.evaluate()
        results.append(wave.b.splat(evaluation.finish(statement.type, value), wave.lanes))
    assert evaluation is not None
    return [_pair_write(wave, instruction.operands[0], results, evaluation.mask)]


def _pair_write(wave: Wave, operand: Operand, results: Sequence[Value], mask: Value | None) -> Write:
    b, (low, high) = wave.b, results
    if low.width == 32:
        wide = b.or_(b.zext(low, "i64"), b.shl(b.zext(high, "i64"), 32))
    else:
        wide = b.or_(b.zext(low, "i32"), b.shl(b.zext(high, "i32"), 16))
    return lambda: wave.set_vgpr(operand.index, wide, mask)


_div_scale_value = out_of_line(division.div_scale)
_div_scaled = out_of_line(division.div_scaled)


def _div_scale(wave: Wave, instruction: Instruction) -> list[Write]:
    """V_DIV_SCALE: D, mask, x, denominator, numerator; x is one of the other two."""
    operands = instruction.operands
    sources = [
        getattr(Source(wave, instruction, o, i, context=wave.vector), instruction.mnemonic[-3:])
        for i, o in enumerate(operands[2:5])
    ]
    is_denominator = operands[2] == operands[3]
    value = _div_scale_value(*sources, is_denominator=is_denominator)
    scaled = _div_scaled(*sources[1:])
    bits = wave.b.bitcast(value.value, f"i{value.width}")
    index = operands[0].index
    return [lambda: wave.set_vgpr(index, bits), _mask_write(wave, operands[1], scaled.value)]


def _mqsad(wave: Wave, instruction: Instruction) -> list[Write]:
    """V_MQSAD_U32_U8: four sums in four registers (RDNA2 ISA 12.9)."""
    destination, x, y, accumulator = instruction.operands
    wide = Source(wave, instruction, x, 0, context=wave.vector).u64
    reference = Source(wave, instruction, y, 1, context=wave.vector).u32
    sums = [Typed(wave.vector, wave.vgpr(accumulator.index + i), "u") for i in range(4)]
    results = integers.quad_sad(wide, reference, sums, masked=True)
    return [
        lambda i=i, r=r: wave.set_vgpr(destination.index + i, r.value)  # type: ignore[misc]
        for i, r in enumerate(results)
    ]
