"""LDS: loads, stores, atomics and the lane exchanges that go through its crossbar (RDNA2 ISA 10, 12.13)."""

from __future__ import annotations

import re
from collections.abc import Callable

from zluda.compiler.ir import Value, constant
from zluda.device.amd.emulator import access, atomics, groups, lanes, memory
from zluda.device.amd.emulator.elements import ELEMENTS, LDS_ATOMICS, Atomic, Element
from zluda.device.amd.emulator.instruction import Instruction, Operand
from zluda.device.amd.emulator.memory import Offsets
from zluda.device.amd.emulator.wave import Wave

_ONE = re.compile(r"ds_(?P<action>read|load|write|store)_(?P<what>\w+)")
_TWO = re.compile(
    r"ds_(?:(?P<old>read2|write2)(?P<far>st64)?|(?P<new>load|store)_2addr(?P<stride>_stride64)?)_b(?P<bits>32|64)"
)


def lift(wave: Wave, instruction: Instruction) -> None:
    """Emit a DS instruction. Raises UnsupportedError naming an unknown one."""
    name = instruction.mnemonic
    if name == "ds_nop":
        return
    if "gds" in instruction.modifiers:
        raise wave.unsupported(f"instruction {name} gds")
    handler = _EXCHANGES.get(name)
    if handler is not None:
        handler(wave, instruction)
        return
    two = _TWO.fullmatch(name)
    if two is not None:
        _move_two(wave, instruction, two)
        return
    one = _ONE.fullmatch(name)
    if one is not None and one["what"] in ELEMENTS:
        _move(wave, instruction, one["action"] in ("read", "load"), ELEMENTS[one["what"]])
        return
    atomic = LDS_ATOMICS.get(name.removeprefix("ds_").replace("_rtn", ""))
    if atomic is None:
        raise wave.unsupported(f"instruction {name}")
    _atomic(wave, instruction, atomic)


def _place(wave: Wave, address: Operand, offset: int) -> Offsets:
    start = wave.b.add(wave.vgpr(address.index), offset)
    return Offsets(wave, access.lds_window(wave), start, wave.exec_mask())


def _move(wave: Wave, instruction: Instruction, loads: bool, element: Element) -> None:
    first, second = instruction.operands
    offset = instruction.number("offset")
    if loads:
        memory.load(wave, _place(wave, second, offset), first, element)
    else:
        memory.store(wave, _place(wave, first, offset), second, element)


def _move_two(wave: Wave, instruction: Instruction, match: re.Match[str]) -> None:
    """Two elements at two offsets, counted in elements or, ``st64``, in 64 of them."""
    element = Element(words=int(match["bits"]) // 32)
    step = 4 * element.words * (64 if match["far"] or match["stride"] else 1)
    offsets = [step * instruction.number(name) for name in ("offset0", "offset1")]
    if (match["old"] or match["new"]) in ("read2", "load"):
        destination, address = instruction.operands
        place = _place(wave, address, 0)
        results = []
        for i, offset in enumerate(offsets):
            register = Operand("v", "", destination.index + i * element.words)
            results += memory.read(wave, place, register, element, offset)
        for index, value in results:
            wave.set_vgpr(index, value)
    else:
        address, *data = instruction.operands
        place = _place(wave, address, 0)
        for source, offset in zip(data, offsets, strict=True):
            memory.store(wave, place, source, element, offset)


def _atomic(wave: Wave, instruction: Instruction, atomic: Atomic) -> None:
    operands = list(instruction.operands)
    destination = operands.pop(0) if "_rtn" in instruction.mnemonic else None
    address, *data = operands
    wide = atomics.storage(atomic.kind) == "i64"
    values = [wave.vgpr_pair(d.index) if wide else wave.vgpr(d.index) for d in data]
    compare = None
    if atomic.op == "cmpxchg":
        # ds_cmpst names the comparison first, ds_cmpstore (gfx11) the new value.
        value, compare = values if "cmpstore" in instruction.mnemonic else reversed(values)
    elif atomic.op == "mskor":
        value, compare = values
    else:
        [value] = values
    offsets = wave.b.add(wave.vgpr(address.index), instruction.number("offset"))
    window = access.lds_window(wave)
    storage = atomics.storage(atomic.kind)
    pointers, mask = access.window_pointers(wave, storage, window, offsets, wave.exec_mask())
    old = atomics.atomic(wave, atomic.op, atomic.kind, pointers, mask, value, compare, shared=False)
    if destination is not None:
        wave.set_vgpr(destination.index, old)


# --- exchanges between lanes ---------------------------------------------------------------------------


def _bpermute(wave: Wave, instruction: Instruction) -> None:
    """DS_BPERMUTE_B32: pull from lane address/4; inactive lanes give 0 (RDNA2 ISA 10.3.1)."""
    b = wave.b
    destination, address, data = instruction.operands
    start = b.add(wave.vgpr(address.index), instruction.number("offset"))
    lane = b.and_(b.lshr(start, 2), wave.lanes - 1)
    if "fi" in instruction.mnemonic:  # fetches inactive lanes too
        value = wave.whole_vgpr(data.index)
    else:
        value = b.select(wave.exec_lanes(), wave.vgpr(data.index), 0)
    wave.set_vgpr(destination.index, lanes.gather_lanes(wave, value, lane))


def _permute(wave: Wave, instruction: Instruction) -> None:
    """DS_PERMUTE_B32: push to lane address/4; lanes that nobody writes read 0, the highest writer wins."""
    b = wave.b
    destination, address, data = instruction.operands
    start = b.add(wave.vgpr(address.index), instruction.number("offset"))
    lane = b.and_(b.lshr(start, 2), wave.lanes - 1)
    buffer = b.alloca("i32", wave.lanes)
    b.store(b.splat(constant("i32", 0), wave.lanes), buffer, align=64)
    pointers = b.gep(buffer, b.zext(lane, "i64"), "i32")
    groups.scatter(b, wave.vgpr(data.index), pointers, wave.exec_lanes())
    wave.set_vgpr(destination.index, b.load("i32", buffer, wave.lanes, align=64))


_SWIZZLES: dict[str, Callable[[int, list[str]], int]] = {
    "SWAP": lambda lane, a: lane ^ int(a[0]),
    "REVERSE": lambda lane, a: lane ^ int(a[0]) - 1,
    "BROADCAST": lambda lane, a: lane & ~(int(a[0]) - 1) | int(a[1]),
    "QUAD_PERM": lambda lane, a: lane & ~3 | int(a[lane & 3]),
    "BITMASK_PERM": lambda lane, a: lane & ~31 | _bit_mask_lane(lane & 31, a[0].strip("\"'")),
}


def _bit_mask_lane(lane: int, text: str) -> int:
    """``"01pip"``: from the top, each bit of the lane cleared, set, passed on or inverted."""
    result = 0
    for position, letter in zip(range(4, -1, -1), text, strict=True):
        bit = lane >> position & 1
        result |= {"0": 0, "1": 1, "p": bit, "i": 1 - bit}[letter] << position
    return result


def swizzle_lanes(pattern: int | str, count: int) -> list[int]:
    """For each lane the lane that DS_SWIZZLE_B32 reads, from the offset or its symbolic form."""
    if isinstance(pattern, str):
        match = re.fullmatch(r"swizzle\((\w+) *,? *(.*)\)", pattern)
        if match is None or match[1] not in _SWIZZLES:
            raise ValueError(pattern)
        arguments = [a.strip() for a in match[2].split(",")]
        return [_SWIZZLES[match[1]](lane, arguments) for lane in range(count)]
    if pattern & 0x8000:
        return [lane & ~3 | pattern >> 2 * (lane & 3) & 3 for lane in range(count)]
    keep, set_, flip = pattern & 31, pattern >> 5 & 31, pattern >> 10 & 31
    return [lane & ~31 | (lane & 31 & keep | set_) ^ flip for lane in range(count)]


def _swizzle(wave: Wave, instruction: Instruction) -> None:
    b = wave.b
    destination, data = instruction.operands
    pattern = instruction.modifiers.get("offset", 0)
    try:
        indices = swizzle_lanes(pattern if isinstance(pattern, str | int) else 0, wave.lanes)
    except ValueError as error:
        raise wave.unsupported(f"ds_swizzle_b32 offset:{error}") from None
    active: Value = b.shuffle(wave.exec_lanes(), None, indices)
    shuffled = b.shuffle(wave.vgpr(data.index), None, indices)
    wave.set_vgpr(destination.index, b.select(active, shuffled, 0))


_EXCHANGES: dict[str, Callable[[Wave, Instruction], None]] = {
    "ds_bpermute_b32": _bpermute,
    "ds_bpermute_fi_b32": _bpermute,
    "ds_permute_b32": _permute,
    "ds_swizzle_b32": _swizzle,
}
