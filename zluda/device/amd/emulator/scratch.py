"""Scratch, and the ways to it: by a lane's offset, through a buffer resource, by a flat address.

Interleaved as the hardware does: dword d of lane l lies at (d * lanes + l) * 4 of the wave's scratch, so that
accesses at one offset are consecutive. What is not aligned, as the unaligned mode of amdhsa allows, may lie
in two dwords: it is moved byte by byte. An access calls a function of the module, whose inside is here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from zluda.compiler.ir import Builder, Value, constant, type_bits
from zluda.device.amd.emulator import access, state
from zluda.device.amd.emulator.wave import B, L, P, Wave

_SWIZZLED = 1 << 23  # ADD_TID_ENABLE in word 3 of the resource that the emulator makes for scratch


@dataclass(frozen=True, slots=True)
class _Inside:
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
        return access.two_ways(self.b, self.crosses(size, offsets, mask), in_bytes, whole)

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
            return access.load_by_shape(
                b, element, self.positions(offsets), mask, lambda p: b.gep(self.base, p)
            )
        words = access.masked_load(b, "i32", self._row(offsets), b.reshape(mask, "i1", lanes))
        if element == "i32":
            return words
        return b.trunc(b.lshr(words, b.shl(b.and_(offsets, 3), 3)), element)

    def _store(self, value: Value, offsets: Value, mask: Value) -> None:
        b, lanes = self.b, self.wave.lanes
        if offsets.lanes > 1 or value.type != "i32":
            access.store_by_shape(b, value, self.positions(offsets), mask, lambda p: b.gep(self.base, p))
        else:
            access.masked_store(b, value, self._row(offsets), b.reshape(mask, "i1", lanes))

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
_Load = Callable[[_Inside, list[Value]], Value]
_Store = Callable[[_Inside, Value, list[Value]], None]


def _load(wave: Wave, name: str, element: str, arguments: Sequence[Value], inside: _Load) -> Value:
    """Call the function that loads so: given its arguments, the wave's scratch, its block and the place."""

    def emit(b: Builder, given: list[Value]) -> Value:
        *own, base, block, place = given
        return inside(_Inside(wave, b, base, block, place), own)

    passed = [*arguments, P, B, wave.place()]
    full = _name(f"load.{name}", element, arguments)
    wave.b.module.function(full, [(v.type, v.lanes) for v in passed], emit, attributes=access.ATTRIBUTES)
    return wave.b.call(full, passed, element, wave.lanes)


def _store(wave: Wave, name: str, value: Value, arguments: Sequence[Value], inside: _Store) -> None:
    def emit(b: Builder, given: list[Value]) -> Value:
        data, *own, base, block, place = given
        inside(_Inside(wave, b, base, block, place), data, own)
        return constant("i32", 0)

    value = wave.b.splat(value, wave.lanes)
    passed = [value, *arguments, P, B, wave.place()]
    full = _name(f"store.{name}", value.type, arguments)
    wave.b.module.function(full, [(v.type, v.lanes) for v in passed], emit, attributes=access.ATTRIBUTES)
    wave.b.call(full, passed, "i32")


def _name(what: str, element: str, arguments: Sequence[Value]) -> str:
    """A function's name: what it does, and which of its arguments all lanes share."""
    shapes = "".join("s" if v.lanes == 1 else "v" for v in arguments)
    return f"amd.{what}.{element}.{shapes}"


class Scratch:
    """A lane's scratch, by offset."""

    def __init__(self, wave: Wave, offset: Value, mask: Value) -> None:
        self._wave, self._offset, self._mask = wave, offset, mask

    def read(self, element: str, offset: int) -> Value:
        return _load(
            self._wave, "scratch", element, self._arguments(offset), lambda i, a: i.load(element, a[0], a[1])
        )

    def write(self, value: Value, offset: int) -> None:
        _store(self._wave, "scratch", value, self._arguments(offset), lambda i, v, a: i.store(v, a[0], a[1]))

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
        def inside(i: _Inside, a: list[Value]) -> Value:
            buffer = _Resource(i, *a)
            value = access.two_ways(
                i.b,
                buffer.swizzled(),
                lambda: i.load(element, buffer.scratch_offsets(), buffer.mask),
                lambda: access.load_lanes(i.wave, i.b, element, *buffer.hosts(element), i.block, i.place),
            )
            assert value is not None
            return value

        return _load(self._wave, "buffer", element, self._arguments(offset), inside)

    def write(self, value: Value, offset: int) -> None:
        def inside(i: _Inside, data: Value, a: list[Value]) -> None:
            buffer = _Resource(i, *a)
            access.two_ways(
                i.b,
                buffer.swizzled(),
                lambda: i.store(data, buffer.scratch_offsets(), buffer.mask),
                lambda: access.store_lanes(i.wave, i.b, data, *buffer.hosts(data.type), i.block, i.place),
            )

        _store(self._wave, "buffer", value, self._arguments(offset), inside)

    def _arguments(self, offset: int) -> list[Value]:
        return [*self._resource, self._index, self._wave.b.add(self._offset, offset), self._mask]


@dataclass(frozen=True, slots=True)
class _Resource:
    """A buffer resource and an access to it, inside a function."""

    inside: _Inside
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


# --- flat addresses ------------------------------------------------------------------------------------


class Flat:
    """Generic addresses: LDS lies at its host address already, scratch is mapped from its aperture."""

    def __init__(self, wave: Wave, addresses: Value, mask: Value) -> None:
        self._wave, self._addresses, self._mask = wave, addresses, mask

    def read(self, element: str, offset: int) -> Value:
        def inside(i: _Inside, a: list[Value]) -> Value:
            flat = _Generic(i, *a)
            value = access.two_ways(
                i.b,
                flat.plain(),
                lambda: access.load_lanes(i.wave, i.b, element, flat.addresses, flat.mask, i.block, i.place),
                lambda: flat.load(element),
            )
            assert value is not None
            return value

        return _load(self._wave, "flat", element, self._arguments(offset), inside)

    def write(self, value: Value, offset: int) -> None:
        def inside(i: _Inside, data: Value, a: list[Value]) -> None:
            flat = _Generic(i, *a)
            access.two_ways(
                i.b,
                flat.plain(),
                lambda: access.store_lanes(i.wave, i.b, data, flat.addresses, flat.mask, i.block, i.place),
                lambda: flat.store(data),
            )

        _store(self._wave, "flat", value, self._arguments(offset), inside)

    def hosts(self, element: str) -> tuple[Value, Value]:
        """Where an element is in host memory, for atomics: addresses, and the lanes that access it."""
        arguments = self._arguments(0)
        b, wave = self._wave.b, self._wave
        passed = [*arguments, P, B, wave.place()]
        parameters = [(v.type, v.lanes) for v in passed]

        def emit_mask(inner: Builder, given: list[Value]) -> Value:
            flat = _Generic(_Inside(wave, inner, *given[-3:]), *given[:-3])
            return flat.inside(element)

        def emit_mapped(inner: Builder, given: list[Value]) -> Value:
            return _Generic(_Inside(wave, inner, *given[-3:]), *given[:-3]).mapped()

        names = _name("flat.inside", element, arguments), _name("flat.mapped", element, arguments)
        for name, emit in zip(names, (emit_mask, emit_mapped), strict=True):
            b.module.function(name, parameters, emit, attributes=access.ATTRIBUTES)
        mapped = b.call(names[1], passed, "i64", wave.lanes)
        return mapped, b.call(names[0], passed, wave.mask_type)

    def _arguments(self, offset: int) -> list[Value]:
        b = self._wave.b
        addresses = b.splat(b.add(self._addresses, offset), self._wave.lanes)
        return [addresses, self._mask, L]


@dataclass(frozen=True, slots=True)
class _Generic:
    """Generic addresses inside a function."""

    where: _Inside
    addresses: Value
    mask: Value
    lds: Value

    def _in_aperture(self, high: Value) -> Value:
        """Lanes whose address has these upper 32 bits, as a mask."""
        b = self.where.b
        same = b.icmp("eq", b.lshr(self.addresses, state.APERTURE_BITS), high)
        return b.and_(b.reshape(same, self.mask.type, 1), self.mask)

    def _private(self) -> Value:
        return self._in_aperture(constant("i64", state.PRIVATE_APERTURE_HIGH))

    def _shared(self) -> Value:
        b = self.where.b
        return self._in_aperture(b.lshr(b.cast("ptrtoint", self.lds, "i64"), state.APERTURE_BITS))

    def plain(self) -> Value:
        """Whether no lane's address is in scratch or LDS."""
        b = self.where.b
        return b.icmp("eq", b.or_(self._private(), self._shared()), 0)

    def _offsets(self) -> Value:
        """Offsets in either aperture."""
        return self.where.b.trunc(self.addresses, "i32")

    def mapped(self) -> Value:
        """Host addresses."""
        i, b = self.where, self.where.b
        scratch = b.add(b.zext(i.positions(self._offsets()), "i64"), b.cast("ptrtoint", i.base, "i64"))
        private = b.reshape(self._private(), "i1", i.wave.lanes)
        return b.select(private, scratch, self.addresses)

    def inside(self, element: str) -> Value:
        """The mask without lanes beyond their scratch or their block's LDS; the first is recorded."""
        i, b, size = self.where, self.where.b, type_bits(element) // 8
        private, shared = self._private(), self._shared()
        others = b.and_(self.mask, b.not_(b.or_(private, shared)))
        offsets = self._offsets()
        lds_bytes = b.load("i32", b.gep(i.block, state.block_field("lds_bytes")), align=4)
        bad = b.or_(b.icmp("ugt", offsets, b.sub(lds_bytes, size)), b.icmp("ult", lds_bytes, size))
        code = state.sized(state.LDS_RANGE, size)
        in_lds = access.exclude(b, i.block, shared, bad, offsets, code, i.place)
        return b.or_(b.or_(i.inside(element, offsets, private), in_lds), others)

    def _crosses(self, element: str) -> Value:
        if self.where.wave.check_alignment:
            return constant("i1", 0)
        return self.where.crosses(type_bits(element) // 8, self._offsets(), self._private())

    def _at(self, offset: int, mask: Value) -> tuple[Value, Value, Value, Value]:
        """Host addresses a few bytes on, and what else an access takes."""
        moved = _Generic(self.where, self.where.b.add(self.addresses, offset), self.mask, self.lds)
        return moved.mapped(), mask, self.where.block, self.where.place

    def load(self, element: str) -> Value:
        """Load one element a lane, some of them in scratch or LDS."""
        i, b = self.where, self.where.b
        mask = self.inside(element)

        def in_bytes() -> Value:
            value = b.splat(constant(element, 0), i.wave.lanes)
            for n in range(type_bits(element) // 8):
                byte = access.load_lanes(i.wave, b, "i8", *self._at(n, mask))
                value = b.or_(b.shl(b.zext(byte, element), 8 * n), value)
            return value

        def whole() -> Value:
            return access.load_lanes(i.wave, b, element, *self._at(0, mask))

        crosses = self._crosses(element)
        if crosses.bits is not None:
            return whole()
        value = access.two_ways(b, crosses, in_bytes, whole)
        assert value is not None
        return value

    def store(self, value: Value) -> None:
        """Store one element a lane."""
        i, b = self.where, self.where.b
        mask = self.inside(value.type)

        def in_bytes() -> None:
            for n in range(value.width // 8):
                byte = b.trunc(b.lshr(value, 8 * n), "i8")
                access.store_lanes(i.wave, b, byte, *self._at(n, mask))

        def whole() -> None:
            access.store_lanes(i.wave, b, value, *self._at(0, mask))

        crosses = self._crosses(value.type)
        if crosses.bits is not None:
            whole()
        else:
            access.two_ways(b, crosses, in_bytes, whole)
