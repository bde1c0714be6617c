"""Atomic operations of a wave: one lane after the other, in an out-of-line function an operation and type."""

from __future__ import annotations

from collections.abc import Callable

from zluda.compiler.ir import Builder, Value, constant, vector_type
from zluda.device.amd.emulator.access import ATTRIBUTES, aligned, checked
from zluda.device.amd.emulator.wave import B, Wave

_FLOATS = {
    "f16x2": ("<2 x half>", "i32"),
    "bf16x2": ("<2 x bfloat>", "i32"),
    "f32": ("float", "i32"),
    "f64": ("double", "i64"),
}


def storage(kind: str) -> str:
    """The integer type that holds an atomic's operand: kinds are u32, i64, f32, f16x2 …"""
    return _FLOATS[kind][1] if kind in _FLOATS else f"i{kind[1:]}"


def atomic(
    wave: Wave,
    op: str,
    kind: str,
    addresses: Value,
    mask: Value,
    data: Value,
    compare: Value | None = None,
    *,
    shared: bool = True,
) -> Value:
    """One atomic a lane, in lane order; returns the old values.

    ``op`` is LLVM's ``atomicrmw`` operation, or ``cmpxchg``, ``mskor``, ``rsub``, ``csub``. Memory that is
    not ``shared`` with other threads (LDS: a block's waves take turns on one) needs no host atomics.
    """
    element = storage(kind)
    lanes, whole = wave.lanes, vector_type(element, wave.lanes)

    def emit(b: Builder, arguments: list[Value]) -> Value:
        pointers, values, expected, todo, block, place = arguments
        if shared:
            todo = checked(wave, b, element, pointers, todo, block, place)
            todo = aligned(wave, b, element, pointers, todo, block, place)
        # Lanes are taken from memory: an element of a vector at an index would cost a copy of it each time.
        rooms = [_spilled(b, vector) for vector in (pointers, values, expected)]
        results = b.alloca(element, lanes)
        b.emit(f"store {whole} zeroinitializer, {results.typed}, align 64")
        b.branch("start")
        b.label("start")
        b.emit("br label %each")
        b.label("each")
        rest = Value(wave.mask_type, 1, "%rest")
        b.emit(f"%rest = phi {rest.type} [ {todo.ref}, %start ], [ %rest2, %done ]")
        b.cond_branch(b.icmp("eq", rest, 0), "end", "one")
        b.label("one")
        lane = b.intrinsic("cttz", rest, True)
        pointer, value, wanted = (
            b.load(room_type, b.gep(room, lane, room_type), align=4)
            for room, room_type in zip(rooms, ("i64", element, element), strict=True)
        )
        pointer = b.cast("inttoptr", pointer, "ptr")
        if shared or kind not in ("u32", "u64"):
            previous = _one_atomic(b, op, kind, pointer, value, wanted)
        else:
            previous = b.load(element, pointer, align=1)
            b.store(_PLAIN[op](b, previous, value, wanted), pointer, align=1)
        b.store(previous, b.gep(results, lane, element), align=4)
        b.branch("done")
        b.label("done")
        b.emit(f"%rest2 = and {rest.typed}, {b.sub(rest, 1).ref}")
        b.branch("each")
        b.label("end")
        return b.load(element, results, lanes, align=64)

    parameters = [
        ("i64", lanes),
        (element, lanes),
        (element, lanes),
        (wave.mask_type, 1),
        ("ptr", 1),
        ("i64", 1),
    ]
    name = wave.b.module.function(
        f"amd.atomic.{op}.{kind}.{int(shared)}", parameters, emit, attributes=ATTRIBUTES
    )
    arguments = [addresses, data, compare or data, mask, B, wave.place()]
    return wave.b.call(name, arguments, element, lanes)


def _spilled(b: Builder, vector: Value) -> Value:
    room = b.alloca(vector.type, vector.lanes)
    b.store(vector, room, align=64)
    return room


def _one_atomic(b: Builder, op: str, kind: str, pointer: Value, value: Value, expected: Value) -> Value:
    if op == "cmpxchg":
        return _exchange_if_equal(b, pointer, expected, value)
    if op in _BY_LOOP:
        return _retry(b, pointer, lambda old: _BY_LOOP[op](b, old, value, expected))
    if kind in _FLOATS:
        element = _FLOATS[kind][0]
        number = b.define(element, 1, f"bitcast {value.typed} to {element}")
        old = b.define(element, 1, f"atomicrmw {op} {pointer.typed}, {element} {number.ref} monotonic")
        return b.define(value.type, 1, f"bitcast {element} {old.ref} to {value.type}")
    return b.define(value.type, 1, f"atomicrmw {op} {pointer.typed}, {value.typed} monotonic")


def _exchange_if_equal(b: Builder, pointer: Value, expected: Value, value: Value) -> Value:
    """One that fails is a load, which costs much less. Of lanes that contend in a loop all but one fail."""
    attempt, swapped, start = b.fresh("attempt"), b.fresh("swapped"), b.fresh("look")
    b.branch(start)
    b.label(start)
    seen = b.define(
        value.type, 1, f"load atomic {value.type}, {pointer.typed} monotonic, align {value.width // 8}"
    )
    b.cond_branch(b.icmp("eq", seen, expected), attempt, swapped)
    b.label(attempt)
    old = _compare_exchange(b, pointer, expected, value)
    b.branch(swapped)
    b.label(swapped)
    return b.define(value.type, 1, f"phi {value.type} [ {seen.ref}, %{start} ], [ {old.ref}, %{attempt} ]")


def _compare_exchange(b: Builder, pointer: Value, expected: Value, value: Value) -> Value:
    pair = b.define(
        "pair", 1, f"cmpxchg {pointer.typed}, {expected.typed}, {value.typed} monotonic monotonic"
    )
    return b.define(value.type, 1, f"extractvalue {{ {value.type}, i1 }} {pair.ref}, 0")


_BY_LOOP: dict[str, Callable[[Builder, Value, Value, Value], Value]] = {
    "rsub": lambda b, old, value, _: b.sub(value, old),
    "csub": lambda b, old, value, _: b.select(b.icmp("uge", old, value), b.sub(old, value), 0),
    "cond_sub": lambda b, old, value, _: b.select(b.icmp("uge", old, value), b.sub(old, value), old),
    "mskor": lambda b, old, mask, value: b.or_(b.and_(old, b.not_(mask)), value),
}


_PLAIN: dict[str, Callable[[Builder, Value, Value, Value], Value]] = _BY_LOOP | {
    "add": lambda b, old, value, _: b.add(old, value),
    "sub": lambda b, old, value, _: b.sub(old, value),
    "and": lambda b, old, value, _: b.and_(old, value),
    "or": lambda b, old, value, _: b.or_(old, value),
    "xor": lambda b, old, value, _: b.xor(old, value),
    "xchg": lambda b, old, value, _: value,
    "cmpxchg": lambda b, old, value, expected: b.select(b.icmp("eq", old, expected), value, old),
    "min": lambda b, old, value, _: b.intrinsic("smin", old, value),
    "max": lambda b, old, value, _: b.intrinsic("smax", old, value),
    "umin": lambda b, old, value, _: b.intrinsic("umin", old, value),
    "umax": lambda b, old, value, _: b.intrinsic("umax", old, value),
    "uinc_wrap": lambda b, old, value, _: b.select(
        b.icmp("uge", old, value), constant(old.type, 0), b.add(old, 1)
    ),
    "udec_wrap": lambda b, old, value, _: b.select(
        b.or_(b.icmp("eq", old, 0), b.icmp("ugt", old, value)), value, b.sub(old, 1)
    ),
}


def _retry(b: Builder, pointer: Value, change: Callable[[Value], Value]) -> Value:
    """A compare-and-swap loop."""
    start, loop, out = b.fresh("start"), b.fresh("loop"), b.fresh("swapped")
    b.branch(start)
    b.label(start)
    element = "i32"
    first = b.load(element, pointer, align=4)
    b.branch(loop)
    b.label(loop)
    old = Value(element, 1, "%" + b.fresh("old"))
    again = "%" + b.fresh("seen")
    b.emit(f"{old.ref} = phi {element} [ {first.ref}, %{start} ], [ {again}, %{loop} ]")
    seen = _compare_exchange(b, pointer, old, change(old))
    b.emit(f"{again} = or {seen.typed}, 0")
    b.cond_branch(b.icmp("eq", seen, old), out, loop)
    b.label(out)
    return old
