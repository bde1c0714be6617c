"""Scratch, and two ways to it: by a lane's offset, and through a buffer resource. ``flat.py`` has the third.

Interleaved as the hardware does: dword d of lane l lies at (d * lanes + l) * 4 of the wave's scratch, so that
accesses at one offset are consecutive. What is not aligned, as the unaligned mode of amdhsa allows, may lie
in two dwords: it is moved byte by byte. An access calls a function of the module, whose inside is here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from zluda.compiler.ir import Builder, Value, constant, type_bits
from zluda.device.amd.emulator import access, groups, state
from zluda.device.amd.emulator.wave import B, P, Wave
from zluda.records import dataclass

_SWIZZLED = 1 << 23  # ADD_TID_ENABLE in word 3 of the resource that the emulator makes for scratch


@dataclass(frozen=True, slots=True)
class Inside:
    """The inside of a function: builder, the wave's scratch (``ptr``), its block, the place of faults."""

    wave: Wave
    b: Builder
    base: Value
    block: Value
    place: Value

    def load(self, element: str, offsets: Value, mask: Value) -> Value:
        """Load one element a lane at its offset (one for all, where ``offsets`` is a scalar)."""
        mask = self.inside(element, offsets, mask)
        value = self._whole_or_bytes(
            element,
            offsets,
            mask,
            lambda: self._load(element, offsets, mask),
            lambda: self._load_bytes(element, offsets, mask),
        )
        assert value is not None
        return value

    def store(self, value: Value, offsets: Value, mask: Value) -> None:
        """Store one element a lane."""
        mask = self.inside(value.type, offsets, mask)
        self._whole_or_bytes(
            value.type,
            offsets,
            mask,
            lambda: self._store(value, offsets, mask),
            lambda: self._store_bytes(value, offsets, mask),
        )

    def inside(self, element: str, offsets: Value, mask: Value) -> Value:
        """The mask without lanes outside their scratch, or misaligned ones; the first is recorded."""
        b, size = self.b, type_bits(element) // 8
        spread = b.splat(offsets, self.wave.lanes)
        mask = access.aligned(self.wave, b, element, spread, mask, self.block, self.place)
        own = b.load("i32", b.gep(self.block, state.block_field("private_bytes")), align=4)
        bad = b.or_(b.icmp("ugt", spread, b.sub(own, size)), b.icmp("ult", own, size))
        code = state.sized(state.SCRATCH_RANGE, size)
        return access.exclude(b, self.block, mask, bad, spread, code, self.place)

    def positions(self, offsets: Value) -> Value:
        """Offsets of lanes as offsets in their wave's scratch."""
        b, lanes = self.b, self.wave.lanes
        rows = b.mul(b.splat(b.and_(offsets, ~3), lanes), lanes)
        return b.add(b.or_(rows, b.shl(self.wave.lane_numbers(), 2)), b.and_(offsets, 3))

    def _whole_or_bytes(
        self,
        element: str,
        offsets: Value,
        mask: Value,
        whole: Callable[[], Value | None],
        in_bytes: Callable[[], Value | None],
    ) -> Value | None:
        size = type_bits(element) // 8
        if size == 1 or self.wave.check_alignment:  # nothing that is aligned lies in two dwords
            return whole()
        return groups.two_ways(self.b, self.crosses(size, offsets, mask), in_bytes, whole)

    def crosses(self, size: int, offsets: Value, mask: Value) -> Value:
        """Whether an executing lane's element of so many bytes lies in two dwords (a scalar ``i1``)."""
        b = self.b
        beyond = b.icmp("ugt", b.add(b.and_(offsets, 3), size), 4)
        if offsets.lanes == 1:
            return b.and_(beyond, b.icmp("ne", mask, 0))
        return b.icmp("ne", b.and_(b.reshape(beyond, mask.type, 1), mask), 0)

    def _row(self, offset: Value) -> Value:
        """Where the dwords at an offset that all lanes share begin."""
        b = self.b
        return b.gep(self.base, b.zext(b.mul(b.and_(offset, ~3), self.wave.lanes), "i64"))

    def _load(self, element: str, offsets: Value, mask: Value) -> Value:
        b, lanes = self.b, self.wave.lanes
        if offsets.lanes > 1:
            return groups.load_by_shape(
                b, element, self.positions(offsets), mask, lambda p: b.gep(self.base, p)
            )
        words = groups.masked_load(b, "i32", self._row(offsets), b.reshape(mask, "i1", lanes))
        if element == "i32":
            return words
        return b.trunc(b.lshr(words, b.shl(b.and_(offsets, 3), 3)), element)

    def _store(self, value: Value, offsets: Value, mask: Value) -> None:
        b, lanes = self.b, self.wave.lanes
        if offsets.lanes > 1 or value.type != "i32":
            groups.store_by_shape(b, value, self.positions(offsets), mask, lambda p: b.gep(self.base, p))
        else:
            groups.masked_store(b, value, self._row(offsets), b.reshape(mask, "i1", lanes))

    def _load_bytes(self, element: str, offsets: Value, mask: Value) -> Value:
        b = self.b
        value = b.splat(constant(element, 0), self.wave.lanes)
        for i in range(type_bits(element) // 8):
            byte = b.zext(self._load("i8", b.add(offsets, i), mask), element)
            value = b.or_(b.shl(byte, 8 * i), value)
        return value

    def _store_bytes(self, value: Value, offsets: Value, mask: Value) -> None:
        b = self.b
        for i in range(value.width // 8):
            self._store(b.trunc(b.lshr(value, 8 * i), "i8"), b.add(offsets, i), mask)


# An access inside a function: (what it is inside, its own arguments) → what is loaded.
_Load = Callable[[Inside, list[Value]], Value]
_Store = Callable[[Inside, Value, list[Value]], None]


def call_load(wave: Wave, name: str, element: str, arguments: Sequence[Value], inside: _Load) -> Value:
    """Call the function that loads so: given its arguments, the wave's scratch, its block and the place."""

    def emit(b: Builder, given: list[Value]) -> Value:
        *own, base, block, place = given
        return inside(Inside(wave, b, base, block, place), own)

    passed = [*arguments, P, B, wave.place()]
    full = helper_name(f"load.{name}", element, arguments)
    wave.b.module.function(full, [(v.type, v.lanes) for v in passed], emit, attributes=access.ATTRIBUTES)
    return wave.b.call(full, passed, element, wave.lanes)


def call_store(wave: Wave, name: str, value: Value, arguments: Sequence[Value], inside: _Store) -> None:
    def emit(b: Builder, given: list[Value]) -> Value:
        data, *own, base, block, place = given
        inside(Inside(wave, b, base, block, place), data, own)
        return constant("i32", 0)

    value = wave.b.splat(value, wave.lanes)
    passed = [value, *arguments, P, B, wave.place()]
    full = helper_name(f"store.{name}", value.type, arguments)
    wave.b.module.function(full, [(v.type, v.lanes) for v in passed], emit, attributes=access.ATTRIBUTES)
    wave.b.call(full, passed, "i32")


def helper_name(what: str, element: str, arguments: Sequence[Value]) -> str:
    """A function's name: what it does, and which of its arguments all lanes share."""
    shapes = "".join("s" if v.lanes == 1 else "v" for v in arguments)
    return f"amd.{what}.{element}.{shapes}"


class Scratch:
    """A lane's scratch, by offset."""

    def __init__(self, wave: Wave, offset: Value, mask: Value) -> None:
        self._wave, self._offset, self._mask = wave, offset, mask

    def read(self, element: str, offset: int) -> Value:
        return call_load(
            self._wave, "scratch", element, self._arguments(offset), lambda i, a: i.load(element, a[0], a[1])
        )

    def write(self, value: Value, offset: int) -> None:
        call_store(
            self._wave, "scratch", value, self._arguments(offset), lambda i, v, a: i.store(v, a[0], a[1])
        )

    def _arguments(self, offset: int) -> list[Value]:
        return [self._wave.b.add(self._offset, offset), self._mask]


# --- buffer resources ----------------------------------------------------------------------------------


class Buffer:
    """What a buffer resource describes: scratch, where it is the emulator's own, or plain memory.

    ``resource`` is its base and stride (``i64``), its number of records, its control word, and the scalar
    offset, which in scratch is a wave's, not a lane's (RDNA2 ISA 8.1.5).
    """

    def __init__(
        self, wave: Wave, resource: Sequence[Value], index: Value, offset: Value, mask: Value
    ) -> None:
        self._wave, self._resource, self._index, self._offset = wave, resource, index, offset
        self._mask = mask

    def read(self, element: str, offset: int) -> Value:
        def inside(i: Inside, a: list[Value]) -> Value:
            buffer = _Resource(i, *a)
            value = groups.two_ways(
                i.b,
                buffer.swizzled(),
                lambda: i.load(element, buffer.scratch_offsets(), buffer.mask),
                lambda: access.load_lanes(i.wave, i.b, element, *buffer.hosts(element), i.block, i.place),
            )
            assert value is not None
            return value

        return call_load(self._wave, "buffer", element, self._arguments(offset), inside)

    def write(self, value: Value, offset: int) -> None:
        def inside(i: Inside, data: Value, a: list[Value]) -> None:
            buffer = _Resource(i, *a)
            groups.two_ways(
                i.b,
                buffer.swizzled(),
                lambda: i.store(data, buffer.scratch_offsets(), buffer.mask),
                lambda: access.store_lanes(i.wave, i.b, data, *buffer.hosts(data.type), i.block, i.place),
            )

        call_store(self._wave, "buffer", value, self._arguments(offset), inside)

    def _arguments(self, offset: int) -> list[Value]:
        return [*self._resource, self._index, self._wave.b.add(self._offset, offset), self._mask]


@dataclass(frozen=True, slots=True)
class _Resource:
    """A buffer resource and an access to it, inside a function."""

    inside: Inside
    base: Value
    records: Value
    control: Value
    whole: Value
    index: Value
    offset: Value
    mask: Value

    def swizzled(self) -> Value:
        """Whether it is the wave's scratch."""
        b = self.inside.b
        return b.icmp("ne", b.and_(self.control, _SWIZZLED), 0)

    def _start(self) -> Value:
        b = self.inside.b
        return b.add(b.and_(self.base, (1 << 48) - 1), b.zext(self.whole, "i64"))

    def scratch_offsets(self) -> Value:
        """Lanes' offsets; none is inside where the wave's own does not begin a row of dwords."""
        b, lanes = self.inside.b, self.inside.wave.lanes
        wave_offset = b.trunc(b.sub(self._start(), b.cast("ptrtoint", self.inside.base, "i64")), "i32")
        offsets = b.add(self.offset, b.lshr(wave_offset, lanes.bit_length() - 1))
        odd = b.icmp("ne", b.and_(wave_offset, 4 * lanes - 1), 0)
        return b.select(odd, b.splat(constant("i32", -4), offsets.lanes), offsets)

    def hosts(self, element: str) -> tuple[Value, Value]:
        """Host addresses and the lanes inside: by offset of a raw buffer, by index of a structured one."""
        b, wave, size = self.inside.b, self.inside.wave, type_bits(element) // 8
        stride = b.trunc(b.and_(b.lshr(self.base, 48), 0x3FFF), "i32")
        linear = b.splat(b.add(b.mul(self.index, stride), self.offset), wave.lanes)
        start = b.add(linear, self.whole)
        raw = b.and_(b.icmp("ule", start, b.sub(self.records, size)), b.icmp("uge", self.records, size))
        structured = b.splat(b.icmp("ult", self.index, self.records), wave.lanes)
        fine = b.select(b.icmp("eq", stride, 0), raw, structured)
        addresses = b.add(b.zext(linear, "i64"), self._start())
        return addresses, b.and_(b.reshape(fine, wave.mask_type, 1), self.mask)
