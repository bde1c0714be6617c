"""``atom`` and ``red`` (PTX ISA 9.7.13.5, 9.7.13.7): threads come one after the other, in their numbers'
order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from zluda.device.interpreter import doubles, floats
from zluda.device.interpreter.floats import ELEMENTS, FORMATS, Format
from zluda.device.interpreter.opcodes.integer import typed
from zluda.device.interpreter.opcodes.memory import place
from zluda.device.interpreter.registry import lane
from zluda.device.interpreter.step import Step
from zluda.device.interpreter.values import UNSIGNED, Bits, unsigned
from zluda.ptx.module import Address
from zluda.ptx.types import ScalarType

T = ScalarType
Change = Callable[[Bits, Bits], Bits]
"""What stands in memory afterwards, of what stood there and the operand."""


@lane("atom")
def atom(s: Step) -> None:
    """9.7.13.5: what stood there before is the result."""
    _read_modify_write(s, 1)


@lane("red")
def red(s: Step) -> None:
    """9.7.13.7."""
    _read_modify_write(s, 0)
    if s.slot("completion").startswith("mbarrier"):
        from zluda.device.interpreter.opcodes.asynchronous import complete  # which needs this module

        barrier = s.inst.operands[2]
        if not isinstance(barrier, Address):
            raise s.unsupported()
        complete(s, s.address(barrier), np.full(s.count, s.inst.types[0].bits // 8, np.int64))


def reduce(s: Step, type: ScalarType, space: str, addresses: Bits, values: Bits) -> None:
    """As ``red`` of values, whatever instruction asks for it."""
    _one_by_one(s, space, addresses, values, _change(s, type, space, addresses))


def _read_modify_write(s: Step, at: int) -> None:
    space, addresses = place(s, s.inst.operands[at])
    operands = s.inst.operands[at + 1 :]
    type = s.inst.types[0]
    if type.bits == 128:
        _wide(s, space, addresses)
        return
    elements = s.elements(operands[0])
    size = type.bits // 8
    results = []
    for i, element in enumerate(elements):
        value = s.value(element, type)
        where = addresses + np.uint64(i * size)
        change = _change(s, type, space, where)
        if s.slot("op") == "cas":
            results.append(_swap(s, space, where, value, s.value(operands[1], type)))
        else:
            results.append(_one_by_one(s, space, where, value, change))
    if at:
        for operand, found in zip(s.elements(s.inst.operands[0]), results, strict=True):
            s.put(operand, found)


def _rounds(addresses: Bits) -> list[Bits]:
    """Threads in an order in which no two of a round have the same address."""
    order = np.argsort(addresses, kind="stable")
    ordered = addresses[order]
    first = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    if first.all():
        return [np.arange(len(addresses))]
    starts = np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
    turn = np.arange(len(order)) - starts
    return [order[turn == n] for n in range(int(turn.max()) + 1)]


def _in_turn(s: Step, space: str, addresses: Bits, size: int, new: Callable[[Bits, Bits], Bits]) -> Bits:
    """What each thread finds; it leaves ``new(found, which threads)``."""
    before = np.zeros(s.count, UNSIGNED[8 * size])
    for view, index, mine in s.machine.spaces.places(s, space, addresses, size):
        threads = np.arange(s.count) if mine is None else mine
        for turn in _rounds(index):
            here = index[turn]
            found = view[here]
            before[threads[turn]] = found
            view[here] = new(found, threads[turn])
    return before


def _one_by_one(s: Step, space: str, addresses: Bits, value: Bits, change: Change) -> Bits:
    return _in_turn(s, space, addresses, value.dtype.itemsize, lambda old, who: change(old, value[who]))


def _swap(s: Step, space: str, addresses: Bits, expected: Bits, value: Bits) -> Bits:
    def new(old: Bits, who: Bits) -> Bits:
        return np.where(old == expected[who], value[who], old)

    return _in_turn(s, space, addresses, value.dtype.itemsize, new)


def _change(s: Step, type: ScalarType, space: str, addresses: Bits) -> Change:
    op = s.slot("op")
    if type.kind == "f" and op != "exch":
        return _float_change(s, op, type, space, addresses)
    simple: dict[str, Change] = {
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
        "add": np.add,
        "exch": lambda old, value: value,
        "cas": lambda old, value: old,
        "inc": lambda old, value: np.where(old >= value, old.dtype.type(0), old + old.dtype.type(1)),
        "dec": lambda old, value: np.where((old == 0) | (old > value), value, old - old.dtype.type(1)),
        "min": lambda old, value: unsigned(np.minimum(typed(old, type), typed(value, type))),
        "max": lambda old, value: unsigned(np.maximum(typed(old, type), typed(value, type))),
    }
    return simple[op]


def _float_change(s: Step, op: str, type: ScalarType, space: str, addresses: Bits) -> Change:
    """As an H200 has it: global memory's cache flushes subnormals of f32 (not in bulk), and passes an f64
    NaN on as it is, the operand's before memory's."""
    windows = np.unique(addresses >> np.uint64(52)) if space == "" else np.zeros(1)
    cached = space == "global" or (space == "" and not windows.any())
    name = ELEMENTS.get(type.spelling, type.spelling)
    of = FORMATS[name]

    def element(old: Bits, value: Bits) -> Bits:
        if op == "add" and of is floats.F64:
            return _double_sum(old, value, cached=cached)
        if op == "add":
            return _sum(of, old, value, ftz=cached and of is floats.F32 and not s.has("bulk"))
        if op in ("min", "max") and of.bits == 16:
            return _extreme(of, op, old, value)
        raise s.unsupported()

    if type.spelling not in ELEMENTS:
        return element
    kind, wide = UNSIGNED[of.bits], UNSIGNED[2 * of.bits]
    shift = wide(of.bits)

    def both(old: Bits, value: Bits) -> Bits:
        low = element(old.astype(kind), value.astype(kind))
        high = element((old >> shift).astype(kind), (value >> shift).astype(kind))
        return np.asarray(low.astype(wide) | high.astype(wide) << shift)

    return both


def _sum(of: Format, old: Bits, value: Bits, *, ftz: bool) -> Bits:
    if ftz:
        old, value = floats.flush(old, of), floats.flush(value, of)
    return floats.narrow(floats.add(floats.widen(value, of), floats.widen(old, of)), of, ftz=ftz)


def _double_sum(old: Bits, value: Bits, *, cached: bool) -> Bits:
    found = doubles.each(doubles.add, "rn", value, old)
    if not cached:
        return doubles.with_nan(found, old, value)
    for operand in (old, value):
        found = np.where(floats.is_nan(operand, floats.F64), operand, found)
    return found


def _extreme(of: Format, op: str, old: Bits, value: Bits) -> Bits:
    from zluda.device.interpreter.opcodes.floating import number_order

    first, second = floats.is_nan(value, of), floats.is_nan(old, of)
    order, other = number_order(value, of), number_order(old, of)
    better = other < order if op == "min" else other > order
    found = np.where(first | (better & ~second), old, value)
    return np.where(first & second, found.dtype.type(of.nan), found)


def _wide(s: Step, space: str, addresses: Bits) -> None:
    """``exch`` and ``cas`` of 128 bits, thread after thread."""
    spaces = s.machine.spaces
    operands = [s.value(operand, T.B128) for operand in s.inst.operands[2:]]
    if (addresses % np.uint64(16)).any():
        which = int(np.flatnonzero(addresses % np.uint64(16))[0])
        raise s.machine.fault(s, "misaligned address: 16 bytes", which, int(addresses[which]))
    before = np.zeros((s.count, 2), np.uint64)
    for thread in range(s.count):
        one = Step(s.machine, s.frame, s.inst, s.pc, s.threads[thread : thread + 1])
        halves = [addresses[thread : thread + 1] + np.uint64(8 * i) for i in range(2)]
        old = np.array([spaces.load(one, space, half, 8)[0] for half in halves], np.uint64)
        before[thread] = old
        new = operands[-1][thread]
        if s.slot("op") == "cas" and (operands[0][thread] != old).any():
            continue
        for i, half in enumerate(halves):
            spaces.store(one, space, half, new[i : i + 1])
    s.put(s.inst.operands[0], before)
