"""Vector memory: global, flat, scratch and buffer loads, stores and atomics.

RDNA2 ISA 8 (vector memory) and 9 (flat). Scratch is interleaved as the hardware does: dword d of lane l lies
at (d * lanes + l) * 4 of the wave's scratch, so that accesses at one offset are consecutive. What is not
aligned, as the unaligned mode of amdhsa allows, may lie in two dwords: it is moved byte by byte.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol

from zluda.compiler.ir import Value, constant
from zluda.device.amd.emulator import access, atomics, state
from zluda.device.amd.emulator.access import Window
from zluda.device.amd.emulator.elements import ELEMENTS, VECTOR_ATOMICS, Atomic, Element
from zluda.device.amd.emulator.instruction import Instruction, Operand
from zluda.device.amd.emulator.wave import P, Wave

_WITHOUT_EFFECT = re.compile(r"(buffer|global|flat)_(gl[01]_inv|wbinvl1.*|wbl2|inv|invl2|wb|wbinv|gl2_inv)")
_NAME = re.compile(r"(?P<space>global|flat|scratch|buffer)_(?P<action>load|store|atomic)_(?P<what>\w+)")


class Place(Protocol):
    """Where a lane's bytes are."""

    def read(self, element: str, offset: int) -> Value:
        """Load an element a lane, ``offset`` bytes on."""
        ...

    def write(self, value: Value, offset: int) -> None:
        """Store an element a lane, ``offset`` bytes on."""
        ...


class Pointers:
    """Host addresses, one a lane."""

    def __init__(self, wave: Wave, addresses: Value, mask: Value) -> None:
        self.wave, self.addresses, self.mask = wave, wave.b.splat(addresses, wave.lanes), mask

    def read(self, element: str, offset: int) -> Value:
        return access.load(self.wave, element, self.wave.b.add(self.addresses, offset), self.mask)

    def write(self, value: Value, offset: int) -> None:
        access.store(self.wave, value, self.wave.b.add(self.addresses, offset), self.mask)

    def inside(self, element: str, offset: int) -> Value:
        """The lanes that access an element; those outside their scratch are left out and recorded."""
        return self.mask


class _Split(ABC):
    """A place in scratch, where an element may lie in two dwords that are not neighbours."""

    wave: Wave

    @abstractmethod
    def _read(self, element: str, offset: int) -> Value:
        """Load what lies in one dword."""

    @abstractmethod
    def _write(self, value: Value, offset: int) -> None:
        """Store what lies in one dword."""

    @abstractmethod
    def _crosses(self, size: int, offset: int) -> Value:
        """Whether an executing lane's element of so many bytes lies in two dwords (a scalar ``i1``)."""

    def read(self, element: str, offset: int) -> Value:
        size = _bytes(element)
        crosses = self._crosses(size, offset) if size > 1 else constant("i1", 0)
        if crosses.bits is not None:
            return self._read_bytes(element, offset) if crosses.bits else self._read(element, offset)
        value = access.two_ways(
            self.wave.b,
            crosses,
            lambda: self._read_bytes(element, offset),
            lambda: self._read(element, offset),
        )
        assert value is not None
        return value

    def _read_bytes(self, element: str, offset: int) -> Value:
        b = self.wave.b
        value = constant(element, 0)
        for i in range(_bytes(element)):
            value = b.or_(b.shl(b.zext(self._read("i8", offset + i), element), 8 * i), value)
        return value

    def write(self, value: Value, offset: int) -> None:
        size = value.width // 8
        crosses = self._crosses(size, offset) if size > 1 else constant("i1", 0)
        if crosses.bits is not None:
            (self._write_bytes if crosses.bits else self._write)(value, offset)
            return
        access.two_ways(
            self.wave.b,
            crosses,
            lambda: self._write_bytes(value, offset),
            lambda: self._write(value, offset),
        )

    def _write_bytes(self, value: Value, offset: int) -> None:
        for i in range(value.width // 8):
            self._write(self.wave.b.trunc(self.wave.b.lshr(value, 8 * i), "i8"), offset + i)

    def _any_crosses(self, offsets: Value, size: int, mask: Value) -> Value:
        """Whether a masked lane's offset in scratch leaves less than ``size`` bytes of its dword."""
        b, wave = self.wave.b, self.wave
        beyond = b.icmp("ugt", b.add(b.and_(offsets, 3), size), 4)
        if beyond.bits is not None:
            return beyond
        return b.icmp("ne", b.and_(wave.to_mask(beyond), mask), 0)


class Offsets:
    """Offsets into a window, one a lane."""

    def __init__(self, wave: Wave, window: Window, offsets: Value, mask: Value) -> None:
        self.wave, self.window, self.mask = wave, window, mask
        self.offsets = wave.b.splat(offsets, wave.lanes)

    def read(self, element: str, offset: int) -> Value:
        at = self.wave.b.add(self.offsets, offset)
        return access.window_load(self.wave, element, self.window, at, self.mask)

    def write(self, value: Value, offset: int) -> None:
        at = self.wave.b.add(self.offsets, offset)
        access.window_store(self.wave, value, self.window, at, self.mask)


class _ScratchOffsets(_Split):
    """Offsets into a lane's scratch."""

    def __init__(self, wave: Wave, offsets: Value, mask: Value) -> None:
        self.wave, self.window, self.mask = wave, access.scratch_window(wave), mask
        self._offsets = offsets

    def _at(self, offset: int) -> Value:
        b, wave = self.wave.b, self.wave
        offsets = b.add(self._offsets, offset)
        fits = b.icmp("ult", offsets, (1 << 32) // wave.lanes)  # larger ones would wrap into the window
        return b.select(fits, _interleaved(wave, offsets), b.or_(offsets, constant("i32", 0xFFFFFFFC)))

    def _read(self, element: str, offset: int) -> Value:
        return access.window_load(self.wave, element, self.window, self._at(offset), self.mask)

    def _write(self, value: Value, offset: int) -> None:
        access.window_store(self.wave, value, self.window, self._at(offset), self.mask)

    def _crosses(self, size: int, offset: int) -> Value:
        return self._any_crosses(self.wave.b.add(self._offsets, offset), size, self.mask)


def lift(wave: Wave, instruction: Instruction) -> None:
    """Emit a vector memory instruction. Raises UnsupportedError naming an unknown one."""
    name = instruction.mnemonic
    if _WITHOUT_EFFECT.fullmatch(name):
        return
    match = _NAME.fullmatch(name)
    if match is None:
        raise wave.unsupported(f"instruction {name}")
    table: dict[str, Element] | dict[str, Atomic]
    table = VECTOR_ATOMICS if match["action"] == "atomic" else ELEMENTS
    found = table.get(match["what"])
    if found is None or "lds" in instruction.modifiers:
        raise wave.unsupported(f"instruction {name}")
    if isinstance(found, Atomic):
        _atomic(wave, instruction, match["space"], found)
    else:
        _move(wave, instruction, match["space"], match["action"], found)


def _move(wave: Wave, instruction: Instruction, space: str, action: str, element: Element) -> None:
    operands = list(instruction.operands)
    if action == "load" or space == "buffer":
        data, address = operands[0], operands[1:]
    else:
        address = [operands[0], *operands[2:]]
        data = operands[1]
    place = _PLACES[space](wave, instruction, address)
    if action == "load":
        load(wave, place, data, element)
    else:
        store(wave, place, data, element)


def load(wave: Wave, place: Place, destination: Operand, element: Element, offset: int = 0) -> None:
    """Load an element a lane into the destination's registers."""
    for index, value in read(wave, place, destination, element, offset):
        wave.set_vgpr(index, value)


def read(
    wave: Wave, place: Place, destination: Operand, element: Element, offset: int = 0
) -> list[tuple[int, Value]]:
    """An element's registers and their new values, not yet written."""
    b, first = wave.b, destination.index
    if element.bits == 32:
        return [(first + i, place.read("i32", offset + 4 * i)) for i in range(element.words)]
    short = place.read(f"i{element.bits}", offset)
    if not element.d16:
        return [(first, b.resize(short, "i32", signed=element.signed))]
    half = b.zext(b.resize(short, "i16", signed=element.signed), "i32")
    old = wave.vgpr(first)
    if element.high or destination.half == "h":
        return [(first, b.or_(b.shl(half, 16), b.and_(old, 0xFFFF)))]
    return [(first, b.or_(half, b.and_(old, 0xFFFF0000)))]


def store(wave: Wave, place: Place, source: Operand, element: Element, offset: int = 0) -> None:
    """Store an element a lane from the source's registers."""
    b = wave.b
    if element.bits == 32:
        for i in range(element.words):
            place.write(wave.vgpr(source.index + i), offset + 4 * i)
        return
    value = wave.vgpr(source.index)
    if element.high or source.half == "h":
        value = b.lshr(value, 16)
    place.write(b.trunc(value, f"i{element.bits}"), offset)


def _atomic(wave: Wave, instruction: Instruction, space: str, atomic: Atomic) -> None:
    """Atomics return the old value where ``glc`` (``sc0``, ``th:TH_ATOMIC_RETURN``) asks for it."""
    operands = list(instruction.operands)
    temporal = str(instruction.modifiers.get("th", ""))
    returns = any(m in instruction.modifiers for m in ("glc", "sc0")) or "RETURN" in temporal
    if space == "buffer":
        data = operands.pop(0)
        destination = data
        address = operands
    else:
        destination = operands.pop(0) if returns else operands[0]
        data = operands.pop(1)
        address = operands
    place = _PLACES[space](wave, instruction, address)
    if not isinstance(place, Pointers):
        raise wave.unsupported(f"instruction {instruction.mnemonic}")
    registers = 2 if atomics.storage(atomic.kind) == "i64" else 1
    value = wave.vgpr(data.index) if registers == 1 else wave.vgpr_pair(data.index)
    compare = None
    if atomic.op == "cmpxchg":  # the new value, then what is expected
        second = data.index + registers
        compare = wave.vgpr(second) if registers == 1 else wave.vgpr_pair(second)
    mask = place.inside(atomics.storage(atomic.kind), 0)
    old = atomics.atomic(wave, atomic.op, atomic.kind, place.addresses, mask, value, compare)
    if returns:
        wave.set_vgpr(destination.index, old)


# --- addresses -----------------------------------------------------------------------------------------


def _signed_offset(instruction: Instruction) -> Value:
    return constant("i64", instruction.number("offset"))


def _global(wave: Wave, instruction: Instruction, address: Sequence[Operand]) -> Place:
    """A 64-bit address in two registers, or a scalar base and a 32-bit offset."""
    b = wave.b
    vector, *rest = address
    base = rest[0] if rest else Operand("null", "off")
    if base.kind == "s":
        start = wave.sgpr(base.index, "i64")
        if vector.kind == "v":
            start = b.add(b.zext(wave.vgpr(vector.index), "i64"), start)
    else:
        start = wave.vgpr_pair(vector.index)
    return Pointers(wave, b.add(start, _signed_offset(instruction)), wave.exec_mask())


def _flat(wave: Wave, instruction: Instruction, address: Sequence[Operand]) -> Place:
    """A generic address: LDS lies at its host address already, scratch is mapped from its aperture."""
    b = wave.b
    place = _global(wave, instruction, address)
    assert isinstance(place, Pointers)
    pointers = place.addresses
    high = b.lshr(pointers, state.APERTURE_BITS)
    private = b.icmp("eq", high, state.PRIVATE_APERTURE_HIGH)
    inside = b.zext(_interleaved(wave, b.trunc(pointers, "i32")), "i64")
    scratch = b.add(inside, b.cast("ptrtoint", P, "i64"))
    return _FlatPointers(wave, pointers, b.select(private, scratch, pointers), private, place.mask)


class _FlatPointers(_Split, Pointers):
    """Generic addresses; those in scratch are mapped dword by dword."""

    def __init__(self, wave: Wave, generic: Value, mapped: Value, private: Value, mask: Value) -> None:
        super().__init__(wave, mapped, mask)
        self._generic, self._private = generic, private

    def _at(self, offset: int) -> Value:
        wave, b = self.wave, self.wave.b
        pointers = b.add(self._generic, offset)
        inside = b.zext(_interleaved(wave, b.trunc(pointers, "i32")), "i64")
        scratch = b.add(inside, b.cast("ptrtoint", P, "i64"))
        return b.select(self._private, scratch, pointers)

    def _read(self, element: str, offset: int) -> Value:
        return access.load(self.wave, element, self._at(offset), self.inside(element, offset))

    def _write(self, value: Value, offset: int) -> None:
        access.store(self.wave, value, self._at(offset), self.inside(value.type, offset))

    def inside(self, element: str, offset: int) -> Value:
        b, wave = self.wave.b, self.wave
        offsets = b.trunc(b.add(self._generic, offset), "i32")
        return _in_scratch(wave, element, offsets, wave.to_mask(self._private), self.mask)

    def _crosses(self, size: int, offset: int) -> Value:
        b, wave = self.wave.b, self.wave
        private = b.and_(wave.to_mask(self._private), self.mask)
        return self._any_crosses(b.trunc(b.add(self._generic, offset), "i32"), size, private)


def _in_scratch(wave: Wave, element: str, offsets: Value, private: Value, mask: Value) -> Value:
    """The mask without the ``private`` lanes whose offset lies outside their scratch, which are recorded."""
    b = wave.b
    window = access.lane_window(wave)
    _, inside = access.window_pointers(wave, element, window, offsets, b.and_(mask, private))
    return b.or_(inside, b.and_(mask, b.not_(private)))


def _interleaved(wave: Wave, offset: Value) -> Value:
    """A lane's scratch offset as an offset in its wave's scratch."""
    b = wave.b
    word = b.mul(b.and_(offset, ~3), wave.lanes)
    lane = b.shl(wave.lane_numbers(), 2)
    return b.add(b.or_(b.splat(word, wave.lanes), lane), b.and_(offset, 3))


def _scratch(wave: Wave, instruction: Instruction, address: Sequence[Operand]) -> Place:
    """A lane's scratch: vector offset, scalar offset and immediate add up (RDNA3 ISA 11.2)."""
    b = wave.b
    offset = constant("i32", instruction.number("offset"))
    for operand in address:
        if operand.kind == "v":
            offset = b.add(wave.vgpr(operand.index), offset)
        elif operand.kind == "s":
            offset = b.add(wave.sgpr(operand.index), offset)
    return _ScratchOffsets(wave, offset, wave.exec_mask())


def _buffer(wave: Wave, instruction: Instruction, address: Sequence[Operand]) -> Place:
    """A buffer resource: base and stride, index and offset, bytes past num_records left out.

    The resource that the emulator makes for scratch has ADD_TID_ENABLE (bit 23 of word 3) and is interleaved;
    its scalar offset is a wave's, not a lane's (RDNA2 ISA 8.1.5).
    """
    b = wave.b
    vector, resource, scalar = (*address, Operand("null", "0"))[:3]
    offset = constant("i32", instruction.number("offset"))
    index: Value = constant("i32", 0)
    register = vector.index
    if "idxen" in instruction.modifiers:
        index = wave.vgpr(register)
        register += 1
    if "offen" in instruction.modifiers:
        offset = b.add(wave.vgpr(register), offset)
    base = wave.sgpr(resource.index, "i64")
    start = b.and_(base, (1 << 48) - 1)
    whole = wave.scalar_operand(scalar)
    records, control = wave.sgpr(resource.index + 2), wave.sgpr(resource.index + 3)
    interleaved = b.icmp("ne", b.and_(control, 1 << 23), 0)
    stride = b.trunc(b.and_(b.lshr(base, 48), 0x3FFF), "i32")
    return _BufferPlace(wave, start, whole, offset, index, stride, records, interleaved)


class _BufferPlace(_Split, Pointers):
    def __init__(
        self,
        wave: Wave,
        start: Value,
        whole: Value,
        offset: Value,
        index: Value,
        stride: Value,
        records: Value,
        interleaved: Value,
    ) -> None:
        self.wave = wave
        self._start, self._whole, self._index = start, whole, wave.b.splat(index, wave.lanes)
        self._offset, self._stride = offset, stride
        self._records, self._interleaved = records, interleaved
        super().__init__(wave, self._at(0), self._inside(0, 4))

    def _linear(self, offset: int) -> Value:
        b = self.wave.b
        return b.add(b.mul(self._index, self._stride), b.add(self._offset, offset))

    def _at(self, offset: int) -> Value:
        wave, b = self.wave, self.wave.b
        linear = self._linear(offset)
        chosen = b.select(self._interleaved, _interleaved(wave, b.add(self._offset, offset)), linear)
        start = b.add(self._start, b.zext(self._whole, "i64"))
        return b.add(b.zext(chosen, "i64"), start)

    def _inside(self, offset: int, size: int) -> Value:
        """Lanes whose bytes lie in the buffer: by offset of a raw buffer, by index of a structured one."""
        wave, b = self.wave, self.wave.b
        start = b.add(self._linear(offset), b.splat(self._whole, wave.lanes))
        fits = b.icmp("uge", self._records, size)
        raw = b.and_(b.icmp("ule", start, b.sub(self._records, size)), b.splat(fits, wave.lanes))
        structured = b.icmp("ult", self._index, self._records)
        fine = b.select(b.icmp("eq", self._stride, 0), raw, structured)
        fine = b.or_(fine, self._interleaved)
        return b.and_(wave.to_mask(fine), wave.exec_mask())

    def _read(self, element: str, offset: int) -> Value:
        return access.load(self.wave, element, self._at(offset), self.inside(element, offset))

    def _write(self, value: Value, offset: int) -> None:
        access.store(self.wave, value, self._at(offset), self.inside(value.type, offset))

    def inside(self, element: str, offset: int) -> Value:
        b, wave = self.wave.b, self.wave
        mask = self._inside(offset, _bytes(element))
        start = b.add(self._start, b.zext(self._whole, "i64"))
        wave_offset = b.trunc(b.sub(start, b.cast("ptrtoint", P, "i64")), "i32")
        shift = wave.lanes.bit_length() - 1
        offsets = b.add(b.add(self._offset, offset), b.lshr(wave_offset, shift))
        private = b.select(self._interleaved, constant(wave.mask_type, -1), constant(wave.mask_type, 0))
        return _in_scratch(wave, element, offsets, private, mask)

    def _crosses(self, size: int, offset: int) -> Value:
        b = self.wave.b
        crosses = self._any_crosses(b.add(self._offset, offset), size, self.wave.exec_mask())
        return crosses if crosses.bits == 0 else b.and_(self._interleaved, crosses)


def _bytes(element: str) -> int:
    return int(element[1:]) // 8


_PLACES: dict[str, Callable[[Wave, Instruction, Sequence[Operand]], Place]] = {
    "global": _global,
    "flat": _flat,
    "scratch": _scratch,
    "buffer": _buffer,
}
