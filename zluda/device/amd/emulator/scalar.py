"""Scalar instructions: table rows on scalar registers, hardware registers, scalar loads.

RDNA2 ISA 5 (scalar ALU) and 7 (scalar memory). Control flow is in ``lift.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from zluda.compiler.ir import Value, constant
from zluda.device.amd.emulator import access, state
from zluda.device.amd.emulator.instruction import EXEC, M0, Instruction, Operand
from zluda.device.amd.emulator.scope import SCOPE
from zluda.device.amd.emulator.sources import Source
from zluda.device.amd.emulator.table import Row, rows
from zluda.device.amd.emulator.values import Typed
from zluda.device.amd.emulator.wave import S, Wave

# Hints, waits for what is done at once here, caches that do not exist here.
_WITHOUT_EFFECT = re.compile(
    r"s_(waitcnt.*|wait_.*|nop|clause|delay_alu|inst_prefetch|set_inst_prefetch_distance|setprio|setkill|"
    r"icache_inv|dcache_(inv|wb)(_vol)?|gl1_inv|incperflevel|decperflevel|ttracedata.*|version|sethalt|"
    r"sendmsg|code_end|prefetch_.*|setvskip|set_gpr_idx_mode)"
)
_EXEC_OPERAND = Operand("s", "exec", EXEC, 2)
_LOAD = re.compile(
    r"s_(buffer_)?load_(?:dword(?:x(?P<words>\d+))?|b(?P<bits>\d+)|(?P<sign>[iu])(?P<narrow>8|16))"
)


def lift(wave: Wave, instruction: Instruction) -> None:
    """Emit a scalar instruction that is not control flow. Raises UnsupportedError naming an unknown one."""
    name = instruction.mnemonic
    if _WITHOUT_EFFECT.fullmatch(name):
        return
    special = _SPECIAL.get(name)
    if special is not None:
        special(wave, instruction)
        return
    match = _LOAD.fullmatch(name)
    if match:
        _load(wave, instruction, match)
        return
    row = rows().get(name)
    if row is None or not name.startswith("s_"):
        raise wave.unsupported(f"instruction {name}")
    _evaluate(wave, instruction, row)


def _evaluate(wave: Wave, instruction: Instruction, row: Row) -> None:
    operands = instruction.operands
    sources = operands[1:] if row.writes("D") else operands

    def source(operand: Operand, position: int) -> Source:
        return Source(wave, instruction, operand, position, context=wave.scalar)

    scope: dict[str, object] = dict(SCOPE)
    scope |= {f"S{i}": source(operand, i) for i, operand in enumerate(sources)}
    if row.writes("D"):
        scope["D"] = source(operands[0], len(sources))
    names = row.names
    if "EXECUTE" in names:
        scope["EXECUTE"] = source(_EXEC_OPERAND, len(sources))
    if "SCC" in names:
        scope["SCC"] = Typed(wave.scalar, wave.scc(), "b")
    results = [(s, eval(s.code, {"__builtins__": {}}, scope)) for s in row.statements]
    known = _known_result(instruction)
    for statement, value in results:
        if statement.place == "SCC":
            wave.set_scc(value.value)
        else:
            bits = wave.b.bitcast(value.value, f"i{statement.type[1:]}")
            bits = wave.b.zext(bits, "i32") if bits.width < 32 else bits
            target = operands[0] if statement.place == "D" else _EXEC_OPERAND
            if target.kind == "s":
                wave.set_sgpr(target.index, bits)
    if known is not None:
        wave.known[operands[0].index] = known


def _known_result(instruction: Instruction) -> int | None:
    """The number that ``s_mov_b32`` of a literal leaves, for a later s_setreg."""
    if instruction.mnemonic == "s_mov_b32" and instruction.operands[1].kind == "literal":
        text = instruction.operands[1].text
        return int(text, 0) & 0xFFFFFFFF if "." not in text else None
    return None


# --- hardware registers (RDNA2 ISA 5.8) ----------------------------------------------------------------

_HWREG = re.compile(r"hwreg\((?P<name>\w+)(?:, *(?P<offset>\d+), *(?P<size>\d+))?\)")


def _hardware_register(wave: Wave, operand: Operand) -> tuple[str, int, int]:
    """(name, first bit, bits) of ``hwreg(NAME, offset, size)``."""
    match = _HWREG.fullmatch(operand.text)
    if match is None:
        raise wave.unsupported(f"operand {operand.text}")
    return match["name"], int(match["offset"] or 0), int(match["size"] or 32)


def _setreg(wave: Wave, instruction: Instruction) -> None:
    target, source = instruction.operands
    name, offset, size = _hardware_register(wave, target)
    if name == "HW_REG_MODE":
        known = int(source.text, 0) if source.kind == "literal" else wave.known.get(source.index)
        if known is None:
            raise wave.unsupported("s_setreg of MODE with a value that is not known before the launch")
        field = (1 << size) - 1 << offset
        wave.mode.bits = wave.mode.bits & ~field | known << offset & field
    elif not name.startswith("HW_REG_FLAT_SCR"):  # scratch is addressed by the wave's own base here
        raise wave.unsupported(f"s_setreg of {name}")


def _getreg(wave: Wave, instruction: Instruction) -> None:
    destination, source = instruction.operands
    name, offset, size = _hardware_register(wave, source)
    if name == "HW_REG_MODE":
        number = wave.mode.bits >> offset & (1 << size) - 1
        wave.set_sgpr(destination.index, constant("i32", number))
        wave.known[destination.index] = number
    elif name in ("HW_REG_SHADER_CYCLES", "HW_REG_SHADER_CYCLES_LO"):
        wave.set_sgpr(destination.index, wave.b.trunc(_clock(wave), "i32"))
    elif name in (
        "HW_REG_TRAPSTS",
        "HW_REG_SHADER_CYCLES_HI",
        "HW_REG_HW_ID",
        "HW_REG_HW_ID1",
        "HW_REG_XCC_ID",
    ):
        wave.set_sgpr(destination.index, constant("i32", 0))
    else:
        raise wave.unsupported(f"s_getreg of {name}")


def _mode_field(shift: int) -> Callable[[Wave, Instruction], None]:
    """s_round_mode and s_denorm_mode: four bits of MODE."""

    def emit(wave: Wave, instruction: Instruction) -> None:
        number = instruction.operands[0].number & 15
        wave.mode.bits = wave.mode.bits & ~(15 << shift) | number << shift

    return emit


def _clock(wave: Wave) -> Value:
    """A clock that moves on with every reading."""
    b = wave.b
    address = b.gep(S, state.ISSUED)
    now = b.add(b.load("i64", address, align=8), 64)
    b.store(now, address, align=8)
    return now


def _time(wave: Wave, instruction: Instruction) -> None:
    wave.set_sgpr(instruction.operands[0].index, _clock(wave))


def _message(wave: Wave, instruction: Instruction) -> None:
    """s_sendmsg_rtn: the real-time clock is the one message that returns something here."""
    destination, message = instruction.operands
    if "REALTIME" not in message.text:
        raise wave.unsupported(f"{instruction.mnemonic} {message.text}")
    wave.set_sgpr(destination.index, _clock(wave))


def _getpc(wave: Wave, instruction: Instruction) -> None:
    wave.set_sgpr(instruction.operands[0].index, wave.code_address(instruction.next))


# --- registers by index (RDNA2 ISA 5.9; Vega ISA 3.10) -------------------------------------------------


def _movrel(wave: Wave, instruction: Instruction) -> None:
    """s_movrels and s_movreld: a scalar register, M0 further on."""
    b = wave.b
    element = "i64" if instruction.mnemonic.endswith("64") else "i32"
    destination, source = instruction.operands
    relative = destination if "movreld" in instruction.mnemonic else source
    offset, value = wave.sgpr(M0), wave.scalar_operand(source, element)
    wave.cut(indexed=True)
    wave.known.clear()
    address = b.gep(S, b.zext(b.add(offset, relative.index), "i64"), "i32")
    if relative is destination:
        b.store(value, address, align=4)
    else:
        wave.set_sgpr(destination.index, b.load(element, address, align=4))


def _index_on(wave: Wave, instruction: Instruction) -> None:
    source, modes = instruction.operands
    index = wave.b.and_(wave.scalar_operand(source), 0xFF)
    wave.vgpr_index = (index, modes.text)


def _index_off(wave: Wave, instruction: Instruction) -> None:
    wave.vgpr_index = None


# --- scalar loads --------------------------------------------------------------------------------------


def _load(wave: Wave, instruction: Instruction, match: re.Match[str]) -> None:
    b = wave.b
    destination, base, *rest = instruction.operands
    offset = constant("i64", instruction.number("offset"))
    for operand in rest:
        value = wave.scalar_operand(operand)
        signed = operand.kind == "literal"
        offset = b.add(offset, b.resize(value, "i64", signed=signed))
    address = wave.sgpr(base.index, "i64")
    limit: Value | None = None
    if match[1]:  # s_buffer_load: a 48-bit base, bytes past num_records read as 0
        address = b.and_(address, (1 << 48) - 1)
        limit = b.zext(wave.sgpr(base.index + 2), "i64")
    if match["narrow"]:
        value = access.scalar_load(wave, f"i{match['narrow']}", b.add(address, offset))
        loaded = [b.resize(value, "i32", signed=match["sign"] == "i")]
    else:
        words = int(match["words"] or 1) if not match["bits"] else int(match["bits"]) // 32
        loaded = [_word(wave, address, b.add(offset, 4 * i), limit) for i in range(words)]
    if destination.kind == "s":
        for i, value in enumerate(loaded):
            wave.set_sgpr(destination.index + i, value)


def _word(wave: Wave, base: Value, offset: Value, limit: Value | None) -> Value:
    b = wave.b
    if limit is None:
        return access.scalar_load(wave, "i32", b.add(base, offset))
    inside = b.icmp("ule", b.add(offset, 4), limit)
    zero = b.alloca("i32", align=4)
    b.store(constant("i32", 0), zero, align=4)
    pointer = b.select(inside, b.cast("inttoptr", b.add(base, offset), "ptr"), zero)
    return b.load("i32", pointer, align=4)


_SPECIAL: dict[str, Callable[[Wave, Instruction], None]] = {
    "s_setreg_b32": _setreg,
    "s_setreg_imm32_b32": _setreg,
    "s_getreg_b32": _getreg,
    "s_round_mode": _mode_field(0),
    "s_denorm_mode": _mode_field(4),
    "s_memtime": _time,
    "s_memrealtime": _time,
    "s_sendmsg_rtn_b32": _message,
    "s_sendmsg_rtn_b64": _message,
    "s_getpc_b64": _getpc,
    "s_movrels_b32": _movrel,
    "s_movrels_b64": _movrel,
    "s_movreld_b32": _movrel,
    "s_movreld_b64": _movrel,
    "s_set_gpr_idx_on": _index_on,
    "s_set_gpr_idx_off": _index_off,
}
