"""Instructions across the lanes of a warp (PTX ISA 9.7.9.6, 9.7.13.8 to 9.7.13.14)."""

from __future__ import annotations

import numpy as np

from zluda.device.interpreter import floats
from zluda.device.interpreter.opcodes.floating import number_order
from zluda.device.interpreter.registry import warp
from zluda.device.interpreter.step import Step
from zluda.device.interpreter.values import Bits, signed
from zluda.ptx.types import ScalarType

T = ScalarType
WARP = 32


class Table:
    """What the lanes of each warp that has a thread here brought: rows of 32."""

    def __init__(self, s: Step) -> None:
        self.warps, self.row = np.unique(s.threads // WARP, return_inverse=True)
        self.lane = s.threads % WARP
        self.here = np.zeros((len(self.warps), WARP), np.bool_)
        self.here[self.row, self.lane] = True

    def spread(self, values: Bits) -> Bits:
        """By warp and lane; 0 of lanes that are not here."""
        found = np.zeros((len(self.warps), WARP), values.dtype)
        found[self.row, self.lane] = values
        return found

    def mask(self, holds: Bits) -> Bits:
        """For each thread the lanes of its warp of which something holds."""
        rows = self.spread(holds) & self.here
        bits = np.uint64(1) << np.arange(WARP, dtype=np.uint64)
        return np.asarray((rows * bits).sum(axis=1).astype(np.uint32)[self.row])


@warp("shfl")
def shfl(s: Step) -> None:
    """9.7.9.6: ``a`` of another lane of the segment; where there is none, the own, and ``p`` is false."""
    table = Table(s)
    by, control = s.read(2, T.B32), s.read(3, T.B32)
    a = s.read(1, T.B32)
    lane = table.lane.astype(np.int64)
    by, clamp, segment = (
        x.astype(np.int64)
        for x in (by & np.uint32(31), control & np.uint32(31), control >> np.uint32(8) & np.uint32(31))
    )
    most = (lane & segment) | (clamp & ~segment)
    least = lane & segment
    mode = s.slot("mode")
    if mode == "up":
        source, inside = lane - by, lane - by >= most
    elif mode == "down":
        source, inside = lane + by, lane + by <= most
    elif mode == "bfly":
        source, inside = lane ^ by, (lane ^ by) <= most
    else:
        source = least | (by & ~segment)
        inside = source <= most
    source = np.where(inside, source, lane)
    s.write_both(table.spread(a)[table.row, source], inside)


@warp("vote")
def vote(s: Step) -> None:
    """9.7.13.9, 9.7.13.10: of the lanes named that are here."""
    p = s.read(1, T.PRED)
    table = Table(s)
    named = s.read(2, T.B32) if s.has("sync") else np.full(s.count, 0xFFFFFFFF, np.uint32)
    true, here = table.mask(p) & named, table.mask(np.ones_like(p)) & named
    results = {"ballot": true, "all": true == here, "any": true != 0, "uni": (true == here) | (true == 0)}
    s.write(results[s.slot("op")])


@warp("match")
def match(s: Step) -> None:
    """9.7.13.11: which lanes have the same value; ``.all``: whether all have."""
    value, named = s.read(1), s.read(2, T.B32)
    table = Table(s)
    rows = table.spread(value)[table.row]
    here = table.here[table.row] & (named[:, None] >> np.arange(WARP, dtype=np.uint32) & np.uint32(1) == 1)
    same = here & (rows == value[:, None])
    bits = np.uint64(1) << np.arange(WARP, dtype=np.uint64)
    mask = (same * bits).sum(axis=1).astype(np.uint32)
    if s.slot("op") == "any":
        s.write(mask)
        return
    alike = (same == here).all(axis=1)
    s.write_both(np.where(alike, mask, np.uint32(0)), alike)


@warp("redux")
def redux(s: Step) -> None:
    """9.7.13.13: a sum, an extreme or a logical operation over the lanes named."""
    value, named = s.read(1, s.type), s.read(2, T.B32)
    table = Table(s)
    op = s.slot("op")
    found = np.zeros(s.count, value.dtype)
    rows = table.spread(value)
    for i in range(s.count):
        chosen = table.here[table.row[i]] & (named[i] >> np.arange(WARP, dtype=np.uint32) & np.uint32(1) == 1)
        found[i] = _reduced(s, op, rows[table.row[i]][chosen])
    s.write(found)


def _reduced(s: Step, op: str, values: Bits) -> int:
    if s.type is T.F32:
        return _extreme_float(s, op, values)
    numbers = signed(values) if s.type.kind == "s" else values
    reductions = {
        "add": lambda: int(values.sum(dtype=np.uint64) & np.uint64(0xFFFFFFFF)),
        "and": lambda: int(np.bitwise_and.reduce(values)),
        "or": lambda: int(np.bitwise_or.reduce(values)),
        "xor": lambda: int(np.bitwise_xor.reduce(values)),
        "min": lambda: int(numbers.min()) & 0xFFFFFFFF,
        "max": lambda: int(numbers.max()) & 0xFFFFFFFF,
    }
    return reductions[op]()


def _extreme_float(s: Step, op: str, values: Bits) -> int:
    """``.abs`` without signs; NaN loses, with ``.NaN`` it wins."""
    if s.has("abs"):
        values = values & np.uint32(0x7FFFFFFF)
    nan = floats.is_nan(values, floats.F32)
    if nan.all() or (s.has("NaN") and nan.any()):
        return floats.F32.nan
    numbers = values[~nan]
    order = number_order(numbers, floats.F32)
    return int(numbers[int(order.argmin() if op == "min" else order.argmax())])


@warp("elect")
def elect(s: Step) -> None:
    """9.7.13.14: one lane of those named, here the lowest."""
    named = s.read(1, T.B32)
    table = Table(s)
    here = table.mask(np.ones(s.count, np.bool_)) & named
    lowest = np.array([(mask & -mask).bit_length() - 1 for mask in here.tolist()], np.int64)
    s.write_both((lowest & 0xFFFFFFFF).astype(np.uint32), table.lane == lowest)


@warp("movmatrix")
def movmatrix(s: Step) -> None:
    """9.7.14.5.17: an 8 by 8 matrix of 16 bits, of which a lane has two of a row, transposed."""
    table = Table(s)
    rows = table.spread(s.read(1, T.B32))
    matrix = np.ascontiguousarray(rows).view(np.uint16).reshape(-1, 8, 8)
    turned = np.ascontiguousarray(matrix.transpose(0, 2, 1)).view(np.uint32).reshape(-1, WARP)
    s.write(turned[table.row, table.lane])
