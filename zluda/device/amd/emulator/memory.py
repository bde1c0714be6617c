"""Vector memory: global, flat, scratch and buffer loads, stores and atomics (RDNA2 ISA 8 and 9)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Protocol

from zluda.compiler.ir import Value, constant
from zluda.device.amd.emulator import access, atomics, flat, scratch
from zluda.device.amd.emulator.access import Window
from zluda.device.amd.emulator.elements import ELEMENTS, VECTOR_ATOMICS, Atomic, Element
from zluda.device.amd.emulator.instruction import Instruction, Operand
from zluda.device.amd.emulator.wave import Wave

_WITHOUT_EFFECT = re.compile(r"(buffer|global|flat)_(gl[01]_inv|wbinvl1.*|wbl2|inv|invl2|wb|wbinv|gl2_inv)")
_NAME = re.compile(r"(?P<space>global|flat|scratch|buffer)_(?P<action>load|store|atomic)_(?P<what>\w+)")


_BITS = re.compile(r"b(32|64|96|128)")
_WORDS = re.compile(r"dwordx(\d)")
_SIZES = (("dword", 4), ("short", 2), ("d16", 2), ("16", 2), ("byte", 1), ("8", 1))


def accessed_bytes(mnemonic: str) -> int:
    """Bytes of a lane's access; 0 for what accesses nothing."""
    match = _NAME.fullmatch(mnemonic)
    if match is None:
        return 0
    what = match["what"]
    if match["action"] == "atomic":
        return 8 if what.endswith(("x2", "64")) else 4
    words, bits = _WORDS.search(what), _BITS.search(what)
    if words is not None:
        return 4 * int(words[1])
    if bits is not None:
        return int(bits[1]) // 8
    return next((size for word, size in _SIZES if word in what), 4)


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

    def hosts(self, element: str) -> tuple[Value, Value]:
        """Where an element is in host memory, for atomics: addresses, and the lanes that access it."""
        return self.addresses, self.mask


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
    if not isinstance(place, Pointers | flat.Flat):
        raise wave.unsupported(f"instruction {instruction.mnemonic}")
    registers = 2 if atomics.storage(atomic.kind) == "i64" else 1
    value = wave.vgpr(data.index) if registers == 1 else wave.vgpr_pair(data.index)
    compare = None
    if atomic.op == "cmpxchg":  # the new value, then what is expected
        second = data.index + registers
        compare = wave.vgpr(second) if registers == 1 else wave.vgpr_pair(second)
    addresses, mask = place.hosts(atomics.storage(atomic.kind))
    old = atomics.atomic(wave, atomic.op, atomic.kind, addresses, mask, value, compare)
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
    """A generic address: in LDS, in scratch, or a host address."""
    place = _global(wave, instruction, address)
    assert isinstance(place, Pointers)
    return flat.Flat(wave, place.addresses, place.mask)


def _scratch(wave: Wave, instruction: Instruction, address: Sequence[Operand]) -> Place:
    """A lane's scratch: vector offset, scalar offset and immediate add up (RDNA3 ISA 11.2)."""
    b = wave.b
    offset = constant("i32", instruction.number("offset"))
    for operand in address:
        if operand.kind == "v":
            offset = b.add(wave.vgpr(operand.index), offset)
        elif operand.kind == "s":
            offset = b.add(wave.sgpr(operand.index), offset)
    return scratch.Scratch(wave, offset, wave.exec_mask())


def _buffer(wave: Wave, instruction: Instruction, address: Sequence[Operand]) -> Place:
    """A buffer resource: base and stride, index and offset (RDNA2 ISA 8.1.5)."""
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
    words = [wave.sgpr(resource.index, "i64"), *(wave.sgpr(resource.index + i) for i in (2, 3))]
    return scratch.Buffer(wave, [*words, wave.scalar_operand(scalar)], index, offset, wave.exec_mask())


_PLACES: dict[str, Callable[[Wave, Instruction, Sequence[Operand]], Place]] = {
    "global": _global,
    "flat": _flat,
    "scratch": _scratch,
    "buffer": _buffer,
}
