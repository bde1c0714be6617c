"""``mov`` (PTX ISA 9.7.9.3, 9.7.9.4) and conversions of addresses (9.7.9.19, 9.7.9.20, 9.7.9.23)."""

from __future__ import annotations

import numpy as np

from zluda.device.interpreter import spaces
from zluda.device.interpreter.registry import lane
from zluda.device.interpreter.step import Step
from zluda.device.interpreter.values import UNSIGNED, Bits, resize
from zluda.ptx.module import Operand, Register, Symbol, Vector
from zluda.ptx.types import ScalarType

T = ScalarType
_BITS = {8: T.B8, 16: T.B16, 32: T.B32, 64: T.B64}


@lane("mov")
def mov(s: Step) -> None:
    """9.7.9.3, 9.7.9.4: a value, an address; or registers packed into a wider one, or unpacked."""
    into, of = s.inst.operands
    if s.inst.vector > 1:
        _each(s, into, of)
    elif isinstance(of, Vector):
        s.write(_packed(s, of, s.type.bits))
    elif isinstance(into, Vector):
        _unpack(s, into, of)
    elif isinstance(of, Symbol):
        s.write(resize(s.machine.address_of(s, of.name) + np.uint64(of.offset), s.type.bits))
    else:
        s.write(s.value(of, s.type).copy())


def _each(s: Step, into: Operand, of: Operand) -> None:
    values = [s.value(one, s.type).copy() for one in s.elements(of)]
    for one, value in zip(s.elements(into), values, strict=False):
        s.put(one, value)


def _packed(s: Step, of: Vector, bits: int) -> Bits:
    """The first element is in the lowest bits."""
    part = bits // len(of.elements)
    pieces = [s.value(one, _BITS[part]) for one in of.elements]
    if bits == 128:
        words = np.concatenate([piece[:, None] for piece in pieces], axis=1)
        return np.ascontiguousarray(words).view(np.uint64).reshape(s.count, 2)
    found = np.zeros(s.count, UNSIGNED[bits])
    for i, piece in enumerate(pieces):
        found |= piece.astype(found.dtype) << found.dtype.type(i * part)
    return found


def _unpack(s: Step, into: Vector, of: Operand) -> None:
    part = s.type.bits // len(into.elements)
    value = s.value(of, s.type).copy()
    if s.type.bits == 128:
        columns = value.view(UNSIGNED[part]).reshape(s.count, len(into.elements))
        pieces = [np.ascontiguousarray(columns[:, i]) for i in range(len(into.elements))]
    else:
        kind = value.dtype.type
        pieces = [(value >> kind(i * part)).astype(UNSIGNED[part]) for i in range(len(into.elements))]
    for one, piece in zip(into.elements, pieces, strict=True):
        s.put(one, piece)


def _space(s: Step) -> str:
    return s.slot("space").partition("::")[0]


@lane("cvta")
def cvta(s: Step) -> None:
    """9.7.9.19: an address of a space as a generic one; ``.to`` the other way."""
    window = spaces.window(_space(s))
    source = s.inst.operands[1]
    if isinstance(source, Symbol):
        address = s.machine.address_of(s, source.name) + np.uint64(source.offset)
    else:
        address = resize(s.value(source, s.type), 64)
    if s.has("to"):
        found = address - window
    else:  # what is generic already (a function's parameters) stays
        found = np.where(address >> np.uint64(spaces.WINDOW_SHIFT) == 0, address + window, address)
    s.write(resize(found, s.type.bits))


@lane("isspacep")
def isspacep(s: Step) -> None:
    """9.7.9.20."""
    source = s.inst.operands[1]
    type = _BITS[source.type.bits] if isinstance(source, Register) else T.B64
    address = resize(s.value(source, type), 64)
    window = (address >> np.uint64(spaces.WINDOW_SHIFT)).astype(np.int64)
    space = _space(s)
    if space == "const":
        s.write(s.machine.kernel.is_constant(address))
        return
    found = window == spaces.WINDOWS.get(space, 0)
    if space == "global":
        found &= ~s.machine.kernel.is_constant(address)
    if s.slot("space") in ("shared", "shared::cta"):
        found &= _is_own(s, address)
    s.write(found)


def _is_own(s: Step, address: Bits) -> Bits:
    """Whether an address of the shared window is in the thread's own block."""
    rank = (address & np.uint64((1 << spaces.WINDOW_SHIFT) - 1)) >> np.uint64(spaces.RANK_SHIFT)
    return np.asarray((rank == 0) | (rank == s.machine.special("%cluster_ctarank", s) + np.uint64(1)))


@lane("mapa")
def mapa(s: Step) -> None:
    """9.7.9.23: the same place in another block's shared memory."""
    rank = s.read(2, T.B32).astype(np.uint64) + np.uint64(1)
    source = s.inst.operands[1]
    address = resize(s.value(source, s.type), 64)
    place = address & ~np.uint64(((1 << spaces.WINDOW_SHIFT) - 1) ^ ((1 << spaces.RANK_SHIFT) - 1))
    s.write(resize(place | rank << np.uint64(spaces.RANK_SHIFT), s.type.bits))


@lane("getctarank")
def getctarank(s: Step) -> None:
    """9.7.9.24: the rank of the block whose shared memory an address is of."""
    address = resize(s.read(1, s.type), 64) & np.uint64((1 << spaces.WINDOW_SHIFT) - 1)
    rank = (address >> np.uint64(spaces.RANK_SHIFT)).astype(np.int64)
    own = s.machine.special("%cluster_ctarank", s).astype(np.int64)
    s.write(np.where(rank > 0, rank - 1, own).astype(np.uint32))
