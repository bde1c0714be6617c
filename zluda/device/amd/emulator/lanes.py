"""Data across lanes: DPP controls, permutations, lane reads and writes, indexed registers.

RDNA2 ISA 6.2.3 (DPP) and 12.8, 12.9 (V_READLANE, V_PERMLANE16, V_MOVREL).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from zluda.compiler.ir import Value
from zluda.device.amd.emulator import state
from zluda.device.amd.emulator.instruction import M0, Instruction, Operand
from zluda.device.amd.emulator.sources import Lanewise, Source
from zluda.device.amd.emulator.wave import S, Wave

Write = Callable[[], None]

# control → (lane, lanes of the wave, argument) → source lane, None where there is none
_CONTROLS: dict[str, Callable[[int, int, int], int | None]] = {
    "row_shl": lambda lane, n, a: lane + a if lane % 16 + a < 16 else None,
    "row_shr": lambda lane, n, a: lane - a if lane % 16 >= a else None,
    "row_ror": lambda lane, n, a: lane & ~15 | (lane - a) % 16,
    "row_mirror": lambda lane, n, a: lane & ~15 | 15 - lane % 16,
    "row_half_mirror": lambda lane, n, a: lane & ~7 | 7 - lane % 8,
    "row_share": lambda lane, n, a: lane & ~15 | a,
    "row_newbcast": lambda lane, n, a: lane & ~15 | a,
    "row_xmask": lambda lane, n, a: lane & ~15 | lane % 16 ^ a,
    "row_bcast": lambda lane, n, a: _broadcast(lane, a),
    "wave_shl": lambda lane, n, a: lane + 1 if lane + 1 < n else None,
    "wave_shr": lambda lane, n, a: lane - 1 if lane else None,
    "wave_rol": lambda lane, n, a: (lane + 1) % n,
    "wave_ror": lambda lane, n, a: (lane - 1) % n,
}  # fmt: skip


def _broadcast(lane: int, last: int) -> int | None:
    """row_bcast:15 hands each row's last lane to the next row, row_bcast:31 the lower half's to the upper."""
    if last == 15:
        return (lane & ~15) - 1 if lane & 16 else None
    return 31 if lane >= 32 else None


def source_lanes(control: str, arguments: Sequence[int], count: int) -> list[int | None]:
    """For each lane the lane that a DPP control reads."""
    if control == "quad_perm":
        return [lane & ~3 | arguments[lane & 3] for lane in range(count)]
    if control == "dpp8":
        return [lane & ~7 | arguments[lane & 7] for lane in range(count)]
    argument = arguments[0] if arguments else 0
    return [_CONTROLS[control](lane, count, argument) for lane in range(count)]


def dpp(wave: Wave, instruction: Instruction) -> tuple[Lanewise | None, Value | None]:
    """How DPP permutes the first source, and which lanes the instruction writes; (None, None) without DPP.

    A lane whose source lane does not exist, or is inactive, reads 0 under bound_ctrl and else keeps its
    destination; lanes outside row_mask and bank_mask keep theirs too.
    """
    control = instruction.dpp
    if control is None:
        return None, None
    b, name = wave.b, control[0]
    found = source_lanes(name, control[1], wave.lanes)
    indices = [0 if lane is None else lane for lane in found]
    exists = wave.lane_flags([lane is not None for lane in found])
    active = wave.exec_lanes()
    fetch_inactive = bool(instruction.modifiers.get("fi"))
    valid = exists if fetch_inactive else b.and_(exists, b.shuffle(active, None, indices))
    rows, banks = instruction.number("row_mask", 15), instruction.number("bank_mask", 15)
    enabled = wave.lane_flags(
        [bool(rows >> n // 16 & 1 and banks >> n // 4 % 4 & 1) for n in range(wave.lanes)]
    )
    zero_fill = name == "dpp8" or bool(instruction.modifiers.get("bound_ctrl"))

    def permute(value: Value) -> Value:
        shuffled = b.shuffle(value, None, indices)
        return b.select(valid, shuffled, 0) if zero_fill else shuffled

    written = b.and_(active, enabled)
    return permute, written if zero_fill else b.and_(written, valid)


def gather_lanes(wave: Wave, value: Value, indices: Value) -> Value:
    """``value`` of lane ``indices`` (in range) in each lane."""
    b = wave.b
    memory = b.alloca("i32", wave.lanes)
    b.store(value, memory, align=64)
    return b.gather("i32", b.gep(memory, b.zext(indices, "i64"), "i32"), align=4)


def _vector(wave: Wave, instruction: Instruction, position: int) -> Value:
    """A source in all lanes."""
    operand = instruction.operands[position]
    return wave.b.splat(
        Source(wave, instruction, operand, position - 1, context=wave.vector, whole=True).u32.value,
        wave.lanes,
    )


def _scalar(wave: Wave, operand: Operand) -> Value:
    return wave.scalar_operand(operand)


def _first_active(wave: Wave) -> Value:
    """The lowest active lane; 0 where none is."""
    b, mask = wave.b, wave.exec_mask()
    lane = b.intrinsic("cttz", mask, False)
    return b.and_(b.resize(lane, "i32"), wave.lanes - 1)


def _readfirstlane(wave: Wave, instruction: Instruction) -> list[Write]:
    value = wave.b.extract(_vector(wave, instruction, 1), _first_active(wave))
    return [lambda: wave.set_sgpr(instruction.operands[0].index, value)]


def _readlane(wave: Wave, instruction: Instruction) -> list[Write]:
    lane = wave.b.and_(_scalar(wave, instruction.operands[2]), wave.lanes - 1)
    value = wave.b.extract(_vector(wave, instruction, 1), lane)
    return [lambda: wave.set_sgpr(instruction.operands[0].index, value)]


def _writelane(wave: Wave, instruction: Instruction) -> list[Write]:
    destination, value, lane = instruction.operands
    index = wave.b.and_(_scalar(wave, lane), wave.lanes - 1)
    result = wave.b.insert(wave.whole_vgpr(destination.index), _scalar(wave, value), index)
    return [lambda: wave.set_all_lanes(destination.index, result)]


def _permlane16(exchange: int) -> Callable[[Wave, Instruction], list[Write]]:
    """V_PERMLANE16 and V_PERMLANEX16: any lane of the row (of the other row of its pair), four bits each."""

    def emit(wave: Wave, instruction: Instruction) -> list[Write]:
        b = wave.b
        destination, _, low, high = instruction.operands
        numbers = wave.lane_numbers()
        shift = b.shl(b.and_(numbers, 7), 2)
        upper = b.icmp("ne", b.and_(numbers, 8), 0)
        chosen = b.select(upper, _scalar(wave, high), _scalar(wave, low))
        lane = b.or_(b.and_(b.lshr(chosen, shift), 15), b.xor(b.and_(numbers, ~15), exchange))
        return [_permuted(wave, instruction, destination, lane)]

    return emit


def _permlane16_var(exchange: int) -> Callable[[Wave, Instruction], list[Write]]:
    """gfx12: the source lane comes from a vector register."""

    def emit(wave: Wave, instruction: Instruction) -> list[Write]:
        b = wave.b
        row = b.xor(b.and_(wave.lane_numbers(), ~15), exchange)
        lane = b.or_(b.and_(_vector(wave, instruction, 2), 15), row)
        return [_permuted(wave, instruction, instruction.operands[0], lane)]

    return emit


def _permuted(wave: Wave, instruction: Instruction, destination: Operand, lane: Value) -> Write:
    """Write another lane's value, where that lane is active (or op_sel[0], fetch inactive) else the old one.

    op_sel[1], bound control, gives 0 for an inactive lane instead.
    """
    b = wave.b
    source = _vector(wave, instruction, 1)
    result = gather_lanes(wave, source, lane)
    fetch_inactive, bound_control, *_ = (*instruction.numbers("op_sel", ()), 0, 0)
    if not fetch_inactive:
        active = b.select(wave.exec_lanes(), b.const("i32", 1), 0)
        valid = b.icmp("ne", gather_lanes(wave, active, lane), 0)
        other = b.const("i32", 0) if bound_control else wave.vgpr(destination.index)
        result = b.select(valid, result, other)
    return lambda: wave.set_vgpr(destination.index, result)


def _permlane64(wave: Wave, instruction: Instruction) -> list[Write]:
    """V_PERMLANE64: the halves of a wave64 exchanged; nothing in wave32."""
    half = wave.lanes // 2
    source = _vector(wave, instruction, 1)
    if wave.lanes == 32:
        return []
    result = wave.b.shuffle(source, None, [lane ^ half for lane in range(wave.lanes)])
    return [lambda: wave.set_vgpr(instruction.operands[0].index, result)]


def indexed_vgpr(wave: Wave, index: int, offset: Value) -> Value:
    """The address of vector register ``index + offset``; all registers are in memory then."""
    b = wave.b
    wave.cut(indexed=True)
    registers = b.add(b.zext(offset, "i64"), index)
    return b.gep(S, b.add(b.mul(registers, 4 * wave.lanes), state.VGPRS))


def _movrels(wave: Wave, instruction: Instruction) -> list[Write]:
    """V_MOVRELS_B32: D = VGPR[S0 + M0]."""
    address = indexed_vgpr(wave, instruction.operands[1].index, wave.sgpr(M0))
    value = wave.b.load("i32", address, wave.lanes, align=64)
    return [lambda: wave.set_vgpr(instruction.operands[0].index, value)]


def _movreld(wave: Wave, instruction: Instruction) -> list[Write]:
    """V_MOVRELD_B32: VGPR[D + M0] = S0."""
    value, offset = _vector(wave, instruction, 1), wave.sgpr(M0)
    address = indexed_vgpr(wave, instruction.operands[0].index, offset)
    return [lambda: store_active(wave, address, value)]


def store_active(wave: Wave, address: Value, value: Value) -> None:
    """Write the active lanes of a register at an address."""
    b = wave.b
    old = b.load("i32", address, wave.lanes, align=64)
    b.store(b.select(wave.exec_lanes(), value, old), address, align=64)


def mov_indexed(wave: Wave, instruction: Instruction) -> list[Write]:
    """V_MOV_B32 while s_set_gpr_idx_on is in force (Vega ISA 3.10), the only use LLVM makes of it."""
    assert wave.vgpr_index is not None
    index, modes = wave.vgpr_index
    destination, source = instruction.operands
    if "SRC0" in modes and source.kind == "v":
        value = wave.b.load("i32", indexed_vgpr(wave, source.index, index), wave.lanes, align=64)
    else:
        value = _vector(wave, instruction, 1)
    if "DST" not in modes:
        return [lambda: wave.set_vgpr(destination.index, value)]
    address = indexed_vgpr(wave, destination.index, index)
    return [lambda: store_active(wave, address, value)]


HANDLERS: dict[str, Callable[[Wave, Instruction], list[Write]]] = {
    "v_readfirstlane_b32": _readfirstlane,
    "v_readlane_b32": _readlane,
    "v_writelane_b32": _writelane,
    "v_permlane16_b32": _permlane16(0),
    "v_permlanex16_b32": _permlane16(16),
    "v_permlane16_var_b32": _permlane16_var(0),
    "v_permlanex16_var_b32": _permlane16_var(16),
    "v_permlane64_b32": _permlane64,
    "v_movrels_b32": _movrels,
    "v_movreld_b32": _movreld,
}
