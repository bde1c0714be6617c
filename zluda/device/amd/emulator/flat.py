"""Flat addresses: of LDS, of scratch, or of memory (RDNA2 ISA 9.2).

Most accesses by flat addresses meet neither aperture; which of them do is seen as the access is made.
"""

from __future__ import annotations

from zluda.compiler.ir import Builder, Value, constant, type_bits
from zluda.device.amd.emulator import access, groups, state
from zluda.device.amd.emulator.scratch import Inside, call_load, call_store, helper_name
from zluda.device.amd.emulator.wave import B, L, P, Wave
from zluda.records import dataclass


class Flat:
    """Generic addresses: LDS lies at its host address already, scratch is mapped from its aperture."""

    def __init__(self, wave: Wave, addresses: Value, mask: Value) -> None:
        self._wave, self._addresses, self._mask = wave, addresses, mask

    def read(self, element: str, offset: int) -> Value:
        def inside(i: Inside, a: list[Value]) -> Value:
            flat = _Generic(i, *a)
            value = groups.two_ways(
                i.b,
                flat.plain(),
                lambda: access.load_lanes(i.wave, i.b, element, flat.addresses, flat.mask, i.block, i.place),
                lambda: flat.load(element),
            )
            assert value is not None
            return value

        return call_load(self._wave, "flat", element, self._arguments(offset), inside)

    def write(self, value: Value, offset: int) -> None:
        def inside(i: Inside, data: Value, a: list[Value]) -> None:
            flat = _Generic(i, *a)
            groups.two_ways(
                i.b,
                flat.plain(),
                lambda: access.store_lanes(i.wave, i.b, data, flat.addresses, flat.mask, i.block, i.place),
                lambda: flat.store(data),
            )

        call_store(self._wave, "flat", value, self._arguments(offset), inside)

    def hosts(self, element: str) -> tuple[Value, Value]:
        """Where an element is in host memory, for atomics: addresses, and the lanes that access it."""
        arguments = self._arguments(0)
        b, wave = self._wave.b, self._wave
        passed = [*arguments, P, B, wave.place()]
        parameters = [(v.type, v.lanes) for v in passed]

        def emit_mask(inner: Builder, given: list[Value]) -> Value:
            flat = _Generic(Inside(wave, inner, *given[-3:]), *given[:-3])
            return flat.inside(element)

        def emit_mapped(inner: Builder, given: list[Value]) -> Value:
            return _Generic(Inside(wave, inner, *given[-3:]), *given[:-3]).mapped()

        names = helper_name("flat.inside", element, arguments), helper_name("flat.mapped", element, arguments)
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

    where: Inside
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
        value = groups.two_ways(b, crosses, in_bytes, whole)
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
            groups.two_ways(b, crosses, in_bytes, whole)
