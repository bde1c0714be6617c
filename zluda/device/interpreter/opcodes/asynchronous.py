"""Asynchronous copies (PTX ISA 9.7.9.25) and ``mbarrier`` (9.7.13.15).

A copy is made when it is issued, which is one of the orders that PTX allows; so its group is complete at
once. A barrier's 64 bits are opaque; here they are, from the lowest: 20 bits of arrivals that the phase
waits for, 20 of those that a phase begins with, 22 of bytes that are to come, and in bit 63 the phase's
parity.
"""

from __future__ import annotations

import numpy as np

from zluda.device.interpreter.opcodes import atomics
from zluda.device.interpreter.opcodes.memory import place
from zluda.device.interpreter.registry import lane
from zluda.device.interpreter.step import Step
from zluda.device.interpreter.values import Bits
from zluda.ptx.module import Address, Immediate, Operand, Register, Sink
from zluda.ptx.types import ScalarType

T = ScalarType
_COUNT, _BYTES, _PARITY = (1 << 20) - 1, (1 << 22) - 1, 1 << 63


@lane("cp")
def cp(s: Step) -> None:
    """9.7.9.25.3: ``cp.async``; what waits for copies has nothing to wait for."""
    if any(s.has(word) for word in ("commit_group", "wait_group", "wait_all", "action")):
        return
    if s.has("tensor"):
        raise s.unsupported()
    if s.has("mbarrier"):
        _arrive_when_copied(s)
    elif s.has("bulk"):
        _bulk(s)
    else:
        _some(s)


def _some(s: Step) -> None:
    """9.7.9.25.3.1: 4, 8 or 16 bytes, of which some may be zeros."""
    into, out_of, size, *rest = s.inst.operands
    if not isinstance(size, Immediate):
        raise s.unsupported()
    if s.has("cache_hint"):
        rest = rest[:-1]
    given = np.full(s.count, size.value, np.int64)
    if rest:
        ignored = isinstance(rest[0], Register) and rest[0].type is T.PRED
        given = (
            np.where(s.value(rest[0], T.PRED), 0, given)
            if ignored
            else s.value(rest[0], T.B32).astype(np.int64)
        )
    start, end = s.address(_address(s, out_of)), s.address(_address(s, into))
    for at in range(size.value):
        wanted = given > at
        part = Step(s.machine, s.frame, s.inst, s.pc, s.threads[wanted], s.depth)
        value = np.zeros(s.count, np.uint8)
        if part.count:
            value[wanted] = s.machine.spaces.load(part, "global", start[wanted] + np.uint64(at), 1)
        s.machine.spaces.store(s, "shared", end + np.uint64(at), value)


def _address(s: Step, operand: Operand) -> Address:
    if not isinstance(operand, Address):
        raise s.unsupported()
    return operand


def _arrive_when_copied(s: Step) -> None:
    """9.7.13.15.15: an arrival when the thread's copies are made, which they are; it is counted on top of
    those that the phase waits for, but for ``.noinc``, so that it changes nothing then."""
    space, addresses = place(s, s.inst.operands[0])
    one = np.ones(s.count, np.int64)
    if s.has("noinc"):
        change(s, space, addresses, one, one * 0, one * 0)


def _bulk(s: Step) -> None:
    """9.7.9.25.4: ``cp.async.bulk`` and ``cp.reduce.async.bulk``, thread after thread, byte after byte."""
    into, out_of, size, *rest = s.inst.operands
    if any(s.has(word) for word in ("multicast", "ignore_oob", "cp_mask", "cta_group")):
        raise s.unsupported()
    sizes = s.value(size, T.B32).astype(np.int64)
    start, end = s.address(_address(s, out_of)), s.address(_address(s, into))
    source, target = s.slot("src").partition("::")[0], s.slot("dst").partition("::")[0]
    if s.has("reduce"):
        _reduce(s, (source, start), (target, end), sizes)
    else:
        for at in range(0, int(sizes.max()), 16):
            mine = sizes > at
            part = Step(s.machine, s.frame, s.inst, s.pc, s.threads[mine], s.depth)
            for half in (at, at + 8):
                words = s.machine.spaces.load(part, source, start[mine] + np.uint64(half), 8)
                s.machine.spaces.store(part, target, end[mine] + np.uint64(half), words)
    if s.slot("completion").startswith("mbarrier"):
        complete(s, s.address(_address(s, rest[0])), sizes)


def _reduce(s: Step, source: tuple[str, Bits], target: tuple[str, Bits], sizes: Bits) -> None:
    """Element after element by the operation of ``red``."""
    type = s.inst.types[0]
    size = type.bits // 8
    for at in range(0, int(sizes.max()), size):
        mine = sizes > at
        part = Step(s.machine, s.frame, s.inst, s.pc, s.threads[mine], s.depth)
        values = s.machine.spaces.load(part, source[0], source[1][mine] + np.uint64(at), size)
        atomics.reduce(part, type, target[0], target[1][mine] + np.uint64(at), values)


def complete(s: Step, addresses: Bits, sizes: Bits) -> None:
    """Tell barriers in shared memory that so many bytes have come."""
    change(s, "shared", addresses, sizes * 0, sizes * 0, -sizes)


# --- mbarrier ------------------------------------------------------------------------------------------


@lane("mbarrier")
def mbarrier(s: Step) -> None:
    """9.7.13.15."""
    for word, execute in _FORMS.items():
        if s.has(word):
            execute(s)
            return
    raise s.unsupported()


def _where(s: Step, index: int) -> tuple[str, Bits]:
    return place(s, s.inst.operands[index])


def _init(s: Step) -> None:
    """9.7.13.15.9."""
    count = s.read(1, T.B32).astype(np.uint64) & np.uint64(_COUNT)
    space, addresses = _where(s, 0)
    s.machine.spaces.store(s, space, addresses, count | count << np.uint64(20))


def _inval(s: Step) -> None:
    """9.7.13.15.10."""
    space, addresses = _where(s, 0)
    s.machine.spaces.store(s, space, addresses, np.zeros(s.count, np.uint64))


def _changed(state: int, arrivals: int, dropped: int, more: int) -> int:
    """After arrivals and bytes: where neither is left to come, the next phase (9.7.13.15.5)."""
    pending, expected, coming = state & _COUNT, state >> 20 & _COUNT, state >> 40 & _BYTES
    pending, expected = (pending - arrivals) & _COUNT, (expected - dropped) & _COUNT
    coming = (coming + more) & _BYTES
    parity = state & _PARITY
    if not pending and not coming:
        return (parity ^ _PARITY) | expected << 20 | expected
    return parity | coming << 40 | expected << 20 | pending


def change(s: Step, space: str, addresses: Bits, arrivals: Bits, dropped: Bits, more: Bits) -> Bits:
    """Thread after thread; the objects as they were."""
    before = np.zeros(s.count, np.uint64)
    for i in range(s.count):
        one = Step(s.machine, s.frame, s.inst, s.pc, s.threads[i : i + 1], s.depth)
        state = int(s.machine.spaces.load(one, space, addresses[i : i + 1], 8)[0])
        before[i] = state
        new = _changed(state, int(arrivals[i]), int(dropped[i]), int(more[i]))
        s.machine.spaces.store(one, space, addresses[i : i + 1], np.array([new], np.uint64))
    return before


def _arrive(s: Step) -> None:
    """9.7.13.15.13, 9.7.13.15.14: the state before is the token; ``.expect_tx`` raises the bytes first."""
    space, addresses = _where(s, 1)
    one = np.ones(s.count, np.int64)
    amount = s.read(2, T.B32).astype(np.int64) if len(s.inst.operands) > 2 else one
    expects = s.has("expect_tx")
    arrivals = one if expects else amount
    dropped = arrivals if s.has("arrive_drop") else one * 0
    before = change(s, space, addresses, arrivals, dropped, amount if expects else one * 0)
    if not isinstance(s.inst.operands[0], Sink):
        s.write(before)


def _transaction(s: Step) -> None:
    """9.7.13.15.11, 9.7.13.15.12: ``expect_tx``, ``complete_tx``."""
    space, addresses = _where(s, 0)
    amount = s.read(1, T.B32).astype(np.int64)
    none = amount * 0
    change(s, space, addresses, none, none, -amount if s.has("complete_tx") else amount)


def _wait(s: Step) -> None:
    """9.7.13.15.16: whether the phase of a token, or of a parity, is over."""
    space, addresses = _where(s, 1)
    state = s.machine.spaces.load(s, space, addresses, 8) >> np.uint64(63)
    if s.has("parity"):
        s.write(state != s.read(2, T.B32).astype(np.uint64) & np.uint64(1))
    else:
        s.write(state != s.read(2, T.B64) >> np.uint64(63))


def _pending(s: Step) -> None:
    """9.7.13.15.17."""
    s.write((s.read(1, T.B64) & np.uint64(_COUNT)).astype(np.uint32))


_FORMS = {
    "init": _init,
    "inval": _inval,
    "arrive": _arrive,
    "arrive_drop": _arrive,
    "expect_tx": _transaction,
    "complete_tx": _transaction,
    "test_wait": _wait,
    "try_wait": _wait,
    "pending_count": _pending,
}
