"""Tensor cores (PTX ISA 9.7.14) by their measured model, and loads and stores of matrices in shared
memory."""

from __future__ import annotations

import numpy as np

from zluda.device.interpreter.opcodes.memory import place
from zluda.device.interpreter.opcodes.warp import Table
from zluda.device.interpreter.registry import warp
from zluda.device.interpreter.step import Step
from zluda.device.interpreter.values import Bits
from zluda.numerics.tensor_cores import operations
from zluda.numerics.tensor_cores import warp as model
from zluda.ptx.module import Immediate, Operand
from zluda.ptx.types import ScalarType

T = ScalarType
WARP = 32


def _registers(s: Step, table: Table, operand: Operand, wide: bool) -> Bits:
    """A fragment: warps, lanes, registers."""
    type = T.B64 if wide else T.B32
    columns = [table.spread(s.value(one, type)) for one in s.elements(operand)]
    return np.stack(columns, axis=-1)


@warp("mma")
def mma(s: Step) -> None:
    """9.7.14.5: ``mma`` and ``mma.sp`` of the shapes and types that sm_90 has."""
    d, a, b, c, *_ = (type.spelling for type in s.inst.types)
    if s.has("kind"):
        raise s.unsupported()
    form = operations.mma(
        s.slot("shape"),
        a,
        b,
        c,
        d,
        layouts=(s.slot("alayout"), s.slot("blayout")),
        saturate=s.has("satfinite"),
        popcount=s.slot("op") if s.has("popc") else "",
        sparse=s.has("sp"),
    )
    if form is None:
        raise s.unsupported()
    _apply(s, form)


@warp("wmma")
def wmma(s: Step) -> None:
    """9.7.14.4: ``wmma.mma``; loads and stores of its fragments are refused."""
    if s.has("load") or s.has("store"):
        raise s.unsupported()
    types = [type.spelling for type in s.inst.types]
    d, a, b, c = types if len(types) == 4 else (types[0], "f16", "f16", types[1])
    popcount = s.slot("op") if s.has("popc") else ""
    form = operations.wmma(s.slot("shape"), a, b, c, d, saturate=s.has("satfinite"), popcount=popcount)
    turned = (s.slot("alayout"), s.slot("blayout")) != ("row", "col")
    if form is None or (a == "f16" and s.has("satfinite")) or (a in ("s4", "u4", "b1") and turned):
        raise s.unsupported()
    _apply(s, form)


def _apply(s: Step, form: operations.Form) -> None:
    table = Table(s)
    d, *sources = s.inst.operands
    given = [
        _registers(s, table, operand, form.wide(letter) == 64)
        for letter, operand in zip("abc", sources[:3], strict=True)
    ]
    op = form.operation
    given[:2] = [_once(given[0], op.m, op), _once(given[1], op.n, op)]
    metadata, selector = None, 0
    if form.operation.sparse:
        metadata = table.spread(s.value(sources[3], T.B32))
        if not isinstance(sources[4], Immediate):
            raise s.unsupported()
        selector = sources[4].value
    found = model.mma(form, *given, mode=s.slot("rnd", "rn"), metadata=metadata, selector=selector)
    for i, operand in enumerate(s.elements(d)):
        s.put(operand, np.ascontiguousarray(found[table.row, table.lane, i]))


def _once(registers: Bits, lines: int, op: operations.Operation) -> Bits:
    """Some f16 fragments of ``wmma`` have more registers than elements: those behind are not read."""
    distinct = lines * op.k * operations.packed_bits(op.a) // (32 * WARP)
    if op.rule == "quad_fma" or not 0 < distinct < registers.shape[-1] or op.sparse:
        return registers
    return np.tile(registers[..., :distinct], registers.shape[-1] // distinct)


@warp("ldmatrix")
def ldmatrix(s: Step) -> None:
    """9.7.14.5.15: matrices of 8 by 8 elements of 16 bits, whose rows' addresses lanes 0 to 7, 8 to 15 …
    have."""
    if s.slot("shape") != "m8n8":
        raise s.unsupported()
    table, rows = Table(s), _rows(s, 1)
    spaces = s.machine.spaces
    own = np.arange(s.count)
    for number, operand in enumerate(s.elements(s.inst.operands[0])):
        if s.has("trans"):  # two elements of a column
            halves = [
                spaces.load(
                    s,
                    "shared",
                    _row(rows, table, 8 * number + 2 * (table.lane % 4) + i, own)
                    + _offset(table.lane // 4, 2),
                    2,
                )
                for i in range(2)
            ]
            s.put(operand, halves[0].astype(np.uint32) | halves[1].astype(np.uint32) << np.uint32(16))
        else:
            address = _row(rows, table, 8 * number + table.lane // 4, own) + _offset(table.lane % 4, 4)
            s.put(operand, spaces.load(s, "shared", address, 4))


@warp("stmatrix")
def stmatrix(s: Step) -> None:
    """9.7.14.5.16: the other way."""
    if s.slot("shape") != "m8n8":
        raise s.unsupported()
    table, rows = Table(s), _rows(s, 0)
    spaces = s.machine.spaces
    own = np.arange(s.count)
    for number, operand in enumerate(s.elements(s.inst.operands[1])):
        value = s.value(operand, T.B32)
        if s.has("trans"):
            for i in range(2):
                half = (value >> np.uint32(16 * i)).astype(np.uint16)
                line = _row(rows, table, 8 * number + 2 * (table.lane % 4) + i, own)
                spaces.store(s, "shared", line + _offset(table.lane // 4, 2), half)
        else:
            line = _row(rows, table, 8 * number + table.lane // 4, own)
            spaces.store(s, "shared", line + _offset(table.lane % 4, 4), value)


def _rows(s: Step, index: int) -> Bits:
    """By warp and lane the addresses in shared memory."""
    space, addresses = place(s, s.inst.operands[index])
    if space == "":
        addresses = addresses & np.uint64((1 << 52) - 1)
    return Table(s).spread(addresses)


def _row(rows: Bits, table: Table, lanes: Bits, own: Bits) -> Bits:
    return rows[table.row[own], lanes]


def _offset(count: Bits, size: int) -> Bits:
    return count.astype(np.uint64) * np.uint64(size)
