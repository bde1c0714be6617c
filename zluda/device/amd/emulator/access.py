"""Memory accesses of a wave: out-of-line functions over all lanes, one a type and kind of memory.

A *window* is LDS: lanes give 32-bit offsets from a base, tested against a size (below 2 GiB, so that hosts
may take them for signed). ``scratch.py`` has the accesses to a wave's scratch. Other memory is addressed by
host pointers, tested against the live allocations only where that is asked for.
Lanes that fall outside are recorded as a fault in the block and left out of the access; the scheduler
stops the launch when the wave next returns to it.
"""

from __future__ import annotations

from collections.abc import Callable

from zluda.compiler.ir import Builder, Value, constant, type_bits
from zluda.compiler.ranges import in_ranges
from zluda.device.amd.emulator import groups, state
from zluda.device.amd.emulator.wave import B, L, Wave
from zluda.records import dataclass

ATTRIBUTES = "noinline nounwind #0"


@dataclass(frozen=True, slots=True)
class Window:
    """LDS: base address, size in bytes (``i32``), and the fault of an access outside."""

    base: Value
    size: Value
    fault: int


def lds_window(wave: Wave) -> Window:
    b = wave.b
    return Window(L, b.load("i32", b.gep(B, state.block_field("lds_bytes")), align=4), state.LDS_RANGE)


# --- faults --------------------------------------------------------------------------------------------


def _emit_fault(b: Builder, arguments: list[Value]) -> Value:
    """Record the block's first fault: (block, code, lane mask, address, offset of the instruction)."""
    block, code, lane, address, offset = arguments
    place = b.gep(block, state.block_field("fault"))
    free = b.icmp("eq", b.load("i32", place, align=4), 0)
    b.cond_branch(free, "record", "out")
    b.label("record")
    b.store(code, place, align=4)
    wave = b.load("i32", b.gep(block, state.block_field("wave")), align=4)
    b.store(b.or_(b.shl(wave, 8), lane), b.gep(block, state.block_field("fault_lane")), align=4)
    b.store(address, b.gep(block, state.block_field("fault_address")), align=8)
    b.store(offset, b.gep(block, state.block_field("fault_offset")), align=8)
    b.branch("out")
    b.label("out")
    return constant("i32", 0)


def record_fault(b: Builder, code: int, lane: Value, address: Value, offset: Value, block: Value = B) -> None:
    """Record a fault of one lane."""
    parameters = [("ptr", 1), ("i32", 1), ("i32", 1), ("i64", 1), ("i64", 1)]
    name = b.module.function("amd.fault", parameters, _emit_fault, attributes="noinline cold nounwind")
    b.call(name, [block, constant("i32", code), lane, address, offset], "i32")


def exclude(
    b: Builder, block: Value, mask: Value, bad: Value, addresses: Value, code: int, offset: Value
) -> Value:
    """The mask without the lanes of ``bad``, the first of which is recorded."""
    outside = b.and_(mask, b.reshape(bad, mask.type, 1))
    fault, go = b.fresh("fault"), b.fresh("go")
    b.cond_branch(b.icmp("eq", outside, 0), go, fault)
    b.label(fault)
    lane = b.resize(b.intrinsic("cttz", outside, True), "i32")
    address = b.resize(b.extract(addresses, lane), "i64")
    record_fault(b, code, lane, address, offset, block)
    b.branch(go)
    b.label(go)
    return b.and_(mask, b.not_(outside))


# --- windows -------------------------------------------------------------------------------------------


def aligned(
    wave: Wave, b: Builder, element: str, positions: Value, mask: Value, block: Value, offset: Value
) -> Value:
    """The mask without the lanes whose position is no multiple of the element's size, if that is tested."""
    if not wave.check_alignment or element == "i8":
        return mask
    odd = b.icmp("ne", b.and_(positions, type_bits(element) // 8 - 1), 0)
    size = type_bits(element) // 8
    return exclude(b, block, mask, odd, positions, state.sized(state.MISALIGNED, size), offset)


def _inside(wave: Wave, b: Builder, arguments: list[Value], element: str, code: int) -> list[Value]:
    """[base, offsets, mask of the lanes that are right] of a window function's arguments."""
    base, size, offsets, mask, block, place = arguments[:6]
    mask = aligned(wave, b, element, offsets, mask, block, place)
    count = type_bits(element) // 8
    limit = b.sub(size, count)
    too_small = b.icmp("ult", size, count)
    bad = b.or_(b.icmp("ugt", offsets, limit), too_small)
    return [base, offsets, exclude(b, block, mask, bad, offsets, state.sized(code, count), place)]


def _window_parameters(wave: Wave) -> list[tuple[str, int]]:
    return [("ptr", 1), ("i32", 1), ("i32", wave.lanes), (wave.mask_type, 1), ("ptr", 1), ("i64", 1)]


def window_load(wave: Wave, element: str, window: Window, offsets: Value, mask: Value) -> Value:
    """Load one element a lane from LDS or scratch; 0 in lanes that are off or outside."""

    def emit(b: Builder, arguments: list[Value]) -> Value:
        base, positions, inside = _inside(wave, b, arguments, element, window.fault)
        return groups.load_by_shape(b, element, positions, inside, lambda offsets: b.gep(base, offsets))

    name = wave.b.module.function(
        f"amd.window.load.{element}.{window.fault}", _window_parameters(wave), emit, attributes=ATTRIBUTES
    )
    return wave.b.call(name, _window_arguments(wave, window, offsets, mask), element, wave.lanes)


def window_store(wave: Wave, value: Value, window: Window, offsets: Value, mask: Value) -> None:
    """Store one element a lane to LDS or scratch; of several lanes at one address the highest wins."""

    def emit(b: Builder, arguments: list[Value]) -> Value:
        base, positions, inside = _inside(wave, b, arguments, value.type, window.fault)
        groups.store_by_shape(b, arguments[6], positions, inside, lambda offsets: b.gep(base, offsets))
        return constant("i32", 0)

    parameters = [*_window_parameters(wave), (value.type, wave.lanes)]
    name = wave.b.module.function(
        f"amd.window.store.{value.type}.{window.fault}", parameters, emit, attributes=ATTRIBUTES
    )
    wave.b.call(name, [*_window_arguments(wave, window, offsets, mask), value], "i32")


def _window_arguments(wave: Wave, window: Window, offsets: Value, mask: Value) -> list[Value]:
    return [window.base, window.size, wave.b.splat(offsets, wave.lanes), mask, B, wave.place()]


def window_pointers(
    wave: Wave, element: str, window: Window, offsets: Value, mask: Value
) -> tuple[Value, Value]:
    """(host addresses as ``i64``, mask of the lanes inside), for atomics on LDS."""

    def emit(b: Builder, arguments: list[Value]) -> Value:
        return _inside(wave, b, arguments, element, window.fault)[2]

    b = wave.b
    name = b.module.function(
        f"amd.window.check.{element}.{window.fault}", _window_parameters(wave), emit, attributes=ATTRIBUTES
    )
    inside = b.call(name, _window_arguments(wave, window, offsets, mask), wave.mask_type)
    base = b.cast("ptrtoint", window.base, "i64")
    return b.add(b.zext(b.splat(offsets, wave.lanes), "i64"), base), inside


# --- memory by host address ----------------------------------------------------------------------------


def _emit_allocated(size: int) -> Callable[[Builder, list[Value]], Value]:
    """Whether ``size`` bytes at an address lie inside one live range: (block, address) → ``i1``.

    The block's ranges are sorted pairs (start, end); the LDS of the block is one more.
    """

    def emit(b: Builder, arguments: list[Value]) -> Value:
        block, address = arguments
        end = b.add(address, size)
        lds = b.load("i64", b.gep(block, state.block_field("lds")), align=8)
        lds_size = b.zext(b.load("i32", b.gep(block, state.block_field("lds_bytes")), align=4), "i64")
        shared = b.and_(b.icmp("uge", address, lds), b.icmp("ule", end, b.add(lds, lds_size)))
        own = b.load("i64", b.gep(block, state.block_field("private_memory")), align=8)
        own_size = b.zext(b.load("i32", b.gep(block, state.block_field("private_bytes")), align=4), "i64")
        # every wave's scratch lies in one piece of at most 32 waves of 64 lanes
        private = b.and_(
            b.icmp("uge", address, own), b.icmp("ule", end, b.add(own, b.mul(own_size, 64 * 32)))
        )
        ranges = b.load("ptr", b.gep(block, state.block_field("ranges")), align=8)
        count = b.zext(b.load("i32", b.gep(block, state.block_field("range_count")), align=4), "i64")
        inside = in_ranges(b, ranges, count, address, constant("i64", size))
        return b.or_(b.or_(shared, private), inside)

    return emit


def _allocated(b: Builder, block: Value, address: Value, size: int) -> Value:
    name = b.module.function(f"amd.allocated.{size}", [("ptr", 1), ("i64", 1)], _emit_allocated(size))
    return b.call(name, [block, address], "i1")


def checked(
    wave: Wave, b: Builder, element: str, addresses: Value, mask: Value, block: Value, place: Value
) -> Value:
    """The mask without the lanes whose address is not allocated, where that is asked for."""
    if not wave.check_memory:
        return mask
    size = type_bits(element) // 8
    parameters = [("ptr", 1), ("i64", wave.lanes), (wave.mask_type, 1), ("i64", 1)]
    name = b.module.function(
        f"amd.check.{size}", parameters, lambda inner, a: _emit_checked(inner, a, size), attributes=ATTRIBUTES
    )
    return b.call(name, [block, addresses, mask, place], wave.mask_type)


def _emit_checked(b: Builder, arguments: list[Value], size: int) -> Value:
    """Lane by lane: (block, addresses, mask, offset of the instruction) → mask of those allocated."""
    block, pointers, todo, place = arguments
    kind = todo.type
    b.emit("br label %each")
    b.label("each")
    rest, good = Value(kind, 1, "%rest"), Value(kind, 1, "%good")
    b.emit(f"%rest = phi {kind} [ {todo.ref}, %0 ], [ %rest2, %next ]")
    b.emit(f"%good = phi {kind} [ {todo.ref}, %0 ], [ %good2, %next ]")
    b.cond_branch(b.icmp("eq", rest, 0), "end", "one")
    b.label("one")
    lane = b.intrinsic("cttz", rest, True)
    address = b.extract(pointers, lane)
    fine = _allocated(b, block, address, size)
    bit = b.shl(constant(kind, 1), lane)
    b.emit(f"%rest2 = xor {kind} {rest.ref}, {bit.ref}")
    b.cond_branch(fine, "keep", "drop")
    b.label("drop")
    record_fault(b, state.sized(state.GLOBAL_RANGE, size), b.resize(lane, "i32"), address, place, block)
    without = b.xor(good, bit)
    b.branch("next")
    b.label("keep")
    b.branch("next")
    b.label("next")
    b.emit(f"%good2 = phi {kind} [ {good.ref}, %keep ], [ {without.ref}, %drop ]")
    b.branch("each")
    b.label("end")
    return good


def _host(b: Builder) -> Callable[[Value], Value]:
    return lambda positions: b.cast("inttoptr", positions, "ptr")


def load_lanes(
    wave: Wave, b: Builder, element: str, addresses: Value, mask: Value, block: Value, place: Value
) -> Value:
    """The inside of a function that loads one element a lane by host address; 0 in lanes that are off."""
    mask = checked(wave, b, element, addresses, mask, block, place)
    mask = aligned(wave, b, element, addresses, mask, block, place)
    return groups.load_by_shape(b, element, addresses, mask, _host(b))


def store_lanes(
    wave: Wave, b: Builder, value: Value, addresses: Value, mask: Value, block: Value, place: Value
) -> None:
    """The inside of a function that stores one element a lane by host address."""
    mask = checked(wave, b, value.type, addresses, mask, block, place)
    mask = aligned(wave, b, value.type, addresses, mask, block, place)
    groups.store_by_shape(b, value, addresses, mask, _host(b))


def load(wave: Wave, element: str, addresses: Value, mask: Value) -> Value:
    """Load one element a lane; 0 in lanes that are off."""
    parameters = [("i64", wave.lanes), (wave.mask_type, 1), ("ptr", 1), ("i64", 1)]
    name = wave.b.module.function(
        f"amd.load.{element}",
        parameters,
        lambda b, a: load_lanes(wave, b, element, *a),
        attributes=ATTRIBUTES,
    )
    return wave.b.call(name, [addresses, mask, B, wave.place()], element, wave.lanes)


def store(wave: Wave, value: Value, addresses: Value, mask: Value) -> None:
    """Store one element a lane."""

    def emit(b: Builder, arguments: list[Value]) -> Value:
        data, *where = arguments
        store_lanes(wave, b, data, *where)
        return constant("i32", 0)

    parameters = [(value.type, wave.lanes), ("i64", wave.lanes), (wave.mask_type, 1), ("ptr", 1), ("i64", 1)]
    name = wave.b.module.function(f"amd.store.{value.type}", parameters, emit, attributes=ATTRIBUTES)
    wave.b.call(name, [value, addresses, mask, B, wave.place()], "i32")


def scalar_load(wave: Wave, element: str, address: Value) -> Value:
    """Load one element for the whole wave."""
    b = wave.b
    pointer = b.cast("inttoptr", address, "ptr")
    if wave.check_memory:
        safe = b.alloca(element, align=8)
        b.store(constant(element, 0), safe, align=8)
        fine = _allocated(b, B, address, type_bits(element) // 8)
        bad = b.zext(b.not_(fine), wave.mask_type)
        lanes = b.splat(address, wave.lanes)
        checked(wave, b, element, lanes, bad, B, wave.place())
        pointer = b.select(fine, pointer, safe)
    return b.load(element, pointer, align=1)
