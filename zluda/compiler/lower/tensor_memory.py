"""Matrices to and from shared memory row by row: ``ldmatrix``, ``stmatrix``, ``movmatrix``
(PTX ISA 9.7.14.5.15 to .17).

``g`` is a lane's group of four, ``t`` its place in the group. Elements of 8, 6 and 4 bits need sm_100a or
sm_120a; none of them was compared with a GPU.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from zluda.compiler.ir import Builder, Value
from zluda.compiler.lower.table import lowers
from zluda.compiler.lower.tensor_fragments import Access, cut, placed
from zluda.compiler.lower.tensor_warp import Parts, Warp, read_registers, write_registers
from zluda.compiler.target import VARYING, WARP, Lanes
from zluda.numerics.tensor_cores.fragments import Place
from zluda.ptx.module import Instruction

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen


class _Rows:
    """Pieces of the rows of matrices, whose addresses lanes hold: lane ``height * matrix + row``.

    ``pieces`` are what a lane accesses of a matrix: of each the row, and how many times ``unit`` bytes from
    its beginning.
    """

    def __init__(self, access: Access, height: int, pieces: Sequence[Sequence[Place]], unit: int = 1) -> None:
        self.access, self.height = access, height
        self.rows = [[row for row, _ in piece] for piece in pieces]
        places = [access.table([at for _, at in piece]) for piece in pieces]
        self._columns = [access.warp.each(lambda b, at: b.mul(at, unit), place) for place in places]

    def addresses(self, matrix: int) -> list[Lanes]:
        """Where each lane's pieces of a matrix are."""
        warp, base = self.access.warp, self.access.base
        found = []
        for rows, column in zip(self.rows, self._columns, strict=True):
            row = warp.permuted(base, [self.height * matrix + r for r in rows])
            found.append(Lanes(VARYING, warp.each(Builder.add, row, column)))
        return found


def _rows_of_halves(access: Access, instruction: Instruction) -> _Rows:
    """8x8 matrices of 16-bit elements, in one piece or two."""
    if instruction.has("trans"):  # rows 2t and 2t + 1 of column g
        return _Rows(access, 8, [[(2 * (n % 4) + i, 2 * (n // 4)) for n in range(WARP)] for i in (0, 1)])
    return _Rows(access, 8, [[(n // 4, 4 * (n % 4)) for n in range(WARP)]])  # columns 2t, 2t + 1 of row g


@lowers("ldmatrix")
def load_matrix(f: FunctionCodegen, instruction: Instruction) -> None:
    """``ldmatrix``: register *i* of a lane holds two elements of matrix *i*."""
    destination, source = instruction.operands
    access = Access(f, instruction, source)
    count = int(instruction.slots["num"][1:])
    if instruction.slots["shape"] != "m8n8":
        load = _load_transposed_bytes if instruction.slots["shape"] == "m16n16" else _load_bytes
        write_registers(f, destination, load(access, _memory_bits(instruction), count))
        return
    rows = _rows_of_halves(access, instruction)
    registers = []
    for matrix in range(count):
        addresses = rows.addresses(matrix)
        pieces = [access.load(address, 32 // len(addresses)) for address in addresses]
        registers.append(_joined(access.warp, pieces))
    write_registers(f, destination, registers)


def _joined(warp: Warp, pieces: Sequence[Parts]) -> Parts:
    """A register of equal parts, the low ones first."""
    wide = 32 // len(pieces)
    found = warp.each(lambda b, x: b.zext(x, "i32"), pieces[0])
    for i, piece in enumerate(pieces[1:], 1):
        found = warp.each(placed(wide * i, 32), found, piece)
    return found


def _memory_bits(instruction: Instruction) -> int:
    """Bits of an element in memory of a matrix whose elements are bytes in registers."""
    name = instruction.types[-1].spelling
    return int(name[1]) if name != "b8" else 8


def _load_bytes(access: Access, bits: int, count: int) -> list[Parts]:
    """8x16 matrices: columns 4t to 4t + 3 of row g, each in the low bits of a byte (9.7.16.9.1)."""
    rows = _Rows(access, 8, [[(n // 4, n % 4) for n in range(WARP)]], bits // 2)
    loaded = [_load_four(access, rows.addresses(matrix)[0], bits) for matrix in range(count)]

    def spread(b: Builder, four: Value) -> Value:
        apart = [b.shl(b.and_(b.lshr(four, bits * i), (1 << bits) - 1), 8 * i) for i in range(4)]
        return functools.reduce(b.or_, apart)

    return [access.warp.each(spread, four) for four in loaded]


def _load_transposed_bytes(access: Access, bits: int, count: int) -> list[Parts]:
    """16x16 matrices, transposed: of rows 4t to 4t + 3 column g, then column g + 8."""
    registers = []

    def element(b: Builder, four: Value, lane: Value) -> Value:
        within = b.and_(b.lshr(lane, 2), 3)
        return b.trunc(b.and_(b.lshr(four, b.mul(within, bits)), (1 << bits) - 1), "i8")

    lanes = access.f.ops.lane_numbers(access.f.b)
    for matrix in range(count):
        for half in (0, 1):
            pieces = [[(4 * (n % 4) + i, n // 16 + 2 * half) for n in range(WARP)] for i in range(4)]
            fours = [
                _load_four(access, at, bits) for at in _Rows(access, 16, pieces, bits // 2).addresses(matrix)
            ]
            registers.append(_joined(access.warp, [access.warp.each(element, four, lanes) for four in fours]))
    return registers


def _load_four(access: Access, address: Lanes, bits: int) -> Parts:
    """Four elements side by side, in the low bits."""
    if bits != 6:
        return access.warp.each(lambda b, x: b.zext(x, "i32"), access.load(address, 4 * bits))
    low, middle, high = (access.load(address, 8, further) for further in range(3))
    found = access.warp.each(lambda b, x: b.zext(x, "i32"), low)
    return access.warp.each(placed(16, 32), access.warp.each(placed(8, 32), found, middle), high)


@lowers("stmatrix")
def store_matrix(f: FunctionCodegen, instruction: Instruction) -> None:
    """``stmatrix``: the reverse of ``ldmatrix``."""
    target, source = instruction.operands
    access = Access(f, instruction, target)
    registers = read_registers(f, source, int(instruction.slots["num"][1:]), 32)
    if instruction.slots["shape"] == "m8n8":
        rows = _rows_of_halves(access, instruction)
    else:  # 16x8 bytes, transposed: columns 2t and 2t + 1 of row g, then of row g + 8
        places = [(i % 2, i // 2) for i in range(4)]
        rows = _Rows(access, 8, [[(2 * (n % 4) + i, n // 4 + 8 * j) for n in range(WARP)] for i, j in places])
    for matrix, register in enumerate(registers):
        addresses = rows.addresses(matrix)
        bits = 32 // len(addresses)
        for i, address in enumerate(addresses):
            access.store(address, access.warp.each(cut(bits * i, bits), register))


@lowers("movmatrix")
def transpose_matrix(f: FunctionCodegen, instruction: Instruction) -> None:
    """``movmatrix.trans``: row g, columns 2t and 2t + 1 from those rows' column g."""
    destination, source = instruction.operands
    warp = Warp(f.b, f.ops)
    register = read_registers(f, source, 1, 32)[0]
    upper = sum(1 << lane for lane in range(WARP) if lane // 4 % 2)
    halves = []
    for i in (0, 1):
        word = warp.permuted(register, [4 * (2 * (n % 4) + i) + n // 8 for n in range(WARP)])
        low, high = warp.each(cut(0, 16), word), warp.each(cut(16, 16), word)
        halves.append(warp.chosen(upper, high, low))
    write_registers(f, destination, [_joined(warp, halves)])
