"""Loads and stores (PTX ISA 9.7.9.8 to 9.7.9.13), hints about caches, and the stack (9.7.17).

Caches, the order of memory, and fences are nothing here: all threads see one memory at once.
"""

from __future__ import annotations

import numpy as np

from zluda.device.interpreter.registry import lane
from zluda.device.interpreter.step import Step
from zluda.device.interpreter.values import UNSIGNED, Bits, resize
from zluda.ptx.module import Address, Operand
from zluda.ptx.types import ScalarType

T = ScalarType


def place(s: Step, operand: Operand) -> tuple[str, Bits]:
    """The state space and the addresses that ``[…]`` means."""
    if not isinstance(operand, Address):
        raise s.unsupported()
    space = s.slot("space").partition("::")[0]
    name = operand.variable
    addresses = s.address(operand)
    if name is not None:
        own = s.machine.spaces.space_of(s, name)
        if space in ("", own):
            return own, addresses
        # A function's parameters are kept where locals are.
        return ("" if space == "param" else space), addresses
    return space, addresses


def load(s: Step, space: str, addresses: Bits, type: ScalarType, count: int) -> list[Bits]:
    """``count`` elements, one behind the other; a vector is aligned as a whole (9.4)."""
    size = max(type.bits // 8, 1)
    _aligned(s, addresses, size * count)
    if type.bits == 128:
        words = [s.machine.spaces.load(s, space, addresses + np.uint64(8 * i), 8) for i in range(2 * count)]
        return [np.stack(words[2 * i : 2 * i + 2], axis=1) for i in range(count)]
    return [s.machine.spaces.load(s, space, addresses + np.uint64(size * i), size) for i in range(count)]


def store(s: Step, space: str, addresses: Bits, values: list[Bits]) -> None:
    """The other way."""
    if not values:
        return
    if values[0].ndim == 2:
        _aligned(s, addresses, 16 * len(values))
        for i, value in enumerate(values):
            for half in range(2):
                at = addresses + np.uint64(16 * i + 8 * half)
                s.machine.spaces.store(s, space, at, np.ascontiguousarray(value[:, half]))
        return
    size = values[0].dtype.itemsize
    _aligned(s, addresses, size * len(values))
    for i, value in enumerate(values):
        s.machine.spaces.store(s, space, addresses + np.uint64(size * i), value)


def _aligned(s: Step, addresses: Bits, size: int) -> None:
    wrong = addresses % np.uint64(size)
    if wrong.any():
        which = int(np.flatnonzero(wrong)[0])
        raise s.machine.fault(s, f"misaligned address: {size} bytes", which, int(addresses[which]))


@lane("ld", "ldu")
def ld(s: Step) -> None:
    """9.7.9.8 to 9.7.9.10."""
    space, addresses = place(s, s.inst.operands[1])
    type = s.inst.types[0]
    found = load(s, space, addresses, type, s.inst.vector)
    for operand, value in zip(s.elements(s.inst.operands[0]), found, strict=True):
        s.put(operand, value, sign=type.kind == "s")


@lane("st")
def st(s: Step) -> None:
    """9.7.9.11."""
    if s.has("bulk"):
        raise s.unsupported()
    space, addresses = place(s, s.inst.operands[0])
    type = s.inst.types[0]
    values = [s.value(one, type) for one in s.elements(s.inst.operands[1])]
    store(s, space, addresses, values)
    if s.slot("completion").startswith("mbarrier"):  # st.async (9.7.9.12)
        from zluda.device.interpreter.opcodes.asynchronous import complete  # which needs this module

        barrier = s.inst.operands[2]
        if not isinstance(barrier, Address):
            raise s.unsupported()
        size = len(values) * type.bits // 8
        complete(s, s.address(barrier), np.full(s.count, size, np.int64))


@lane("prefetch", "prefetchu", "applypriority", "discard", "membar", "fence", "nanosleep", "pmevent")
def nothing(s: Step) -> None:
    """9.7.9.14 to 9.7.9.17, 9.7.13.5, 9.7.19: nothing that a program can see."""


@lane("griddepcontrol", "setmaxnreg", "brkpt")
def nothing_either(s: Step) -> None:
    """9.7.12.6, 9.7.19: launches do not overlap here."""


@lane("createpolicy")
def createpolicy(s: Step) -> None:
    """9.7.9.18: a policy is opaque."""
    s.write(np.zeros(s.count, np.uint64))


# --- the stack (9.7.17) --------------------------------------------------------------------------------


@lane("alloca")
def alloca(s: Step) -> None:
    """9.7.17.3: local memory, whose address is in its own space."""
    operands = s.inst.operands
    align = 16
    if len(operands) > 2:
        align = max(16, int(s.value(operands[2], T.B32)[0]))
    top = s.machine.top
    start = -(-top[s.threads] // align) * align
    top[s.threads] = start + s.value(operands[1], s.type).astype(np.int64)
    s.machine.spaces.reserve(int(top.max()))
    s.write(start.astype(UNSIGNED[s.type.bits]))


@lane("stacksave")
def stacksave(s: Step) -> None:
    """9.7.17.1."""
    s.write(s.machine.top[s.threads].astype(UNSIGNED[s.type.bits]))


@lane("stackrestore")
def stackrestore(s: Step) -> None:
    """9.7.17.2."""
    s.machine.top[s.threads] = resize(s.read(0), 64).astype(np.int64)
