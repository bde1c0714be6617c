"""Matrix fragments to and from memory: ``wmma.load``, ``wmma.store``, ``ldmatrix``, ``stmatrix``,
``movmatrix`` (PTX ISA 9.7.14.4, 9.7.14.5.15 to .17)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from zluda.compiler.ir import Builder, Value
from zluda.compiler.lower.memory import address_of, space_of
from zluda.compiler.lower.table import lowers
from zluda.compiler.lower.tensor_warp import Parts, Warp, linear, read_registers, write_registers
from zluda.compiler.target import VARYING, WARP, Lanes
from zluda.numerics.tensor_cores import fragments
from zluda.numerics.tensor_cores.formats import element_bits
from zluda.numerics.tensor_cores.fragments import Fragment
from zluda.numerics.tensor_cores.operations import packed_bits, sizes, wmma_forms
from zluda.ptx.module import Instruction, Operand
from zluda.ptx.types import ScalarType

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen

_BITS = {8: ScalarType.B8, 16: ScalarType.B16, 32: ScalarType.B32, 64: ScalarType.B64}


class _Access:
    """Memory at a lane's own distance from an address operand."""

    def __init__(self, f: FunctionCodegen, instruction: Instruction, operand: Operand) -> None:
        self.f, self.warp = f, Warp(f.b, f.ops)
        self.space = space_of(f, instruction, operand)
        base, self.offset = address_of(f, operand)
        self.base: Parts = tuple(f.vectors(base))

    def at(self, distance: Parts) -> Lanes:
        """The address ``distance`` bytes (of the address's width) further."""
        return Lanes(VARYING, self.warp.each(Builder.add, self.base, distance))

    def load(self, address: Lanes, bits: int, further: int = 0) -> Parts:
        """``bits`` a lane."""
        loaded = self.f.ops.load(
            self.f, self.space, address, self.offset + further, _BITS[bits], 1, volatile=False
        )
        return tuple(self.f.vectors(loaded[0]))

    def store(self, address: Lanes, values: Parts, further: int = 0) -> None:
        """A value a lane, of its own width."""
        kind = _BITS[values[0].width]
        lanes = Lanes(VARYING, values)
        self.f.ops.store(self.f, self.space, address, self.offset + further, kind, [lanes], volatile=False)

    def table(self, values: Sequence[int]) -> Parts:
        """``values[lane]`` in the address's width."""
        width = self.base[0].type

        def compute(b: Builder, lane: Value) -> Value:
            return b.resize(linear(b, lane, values), width)

        return self.warp.each(compute, self.f.ops.lane_numbers(self.f.b))


# --- wmma --------------------------------------------------------------------------------------------


def _fragment_of(f: FunctionCodegen, instruction: Instruction) -> tuple[Fragment, tuple[int, int]]:
    """The fragment of a ``wmma.load`` or ``wmma.store``, and its matrix's rows and columns (b1: in words)."""
    shape, letter = instruction.slots["shape"], instruction.slots["fragment"]
    name = instruction.type.spelling
    m, n, k = sizes(shape)
    k = k // 32 if name == "b1" else k
    if letter in "cd" and any((s, c) == (shape, name) for s, _, _, c in wmma_forms()):
        return fragments.wmma_result(m, n), (m, n)
    if letter in "ab" and any((s, a) == (shape, name) for s, a, _, _ in wmma_forms()):
        lines = m if letter == "a" else n
        return fragments.wmma_operand(letter, lines, k, name), (m, k) if letter == "a" else (k, n)
    raise f.unsupported(instruction)


class _Layout:
    """Where a fragment's elements lie in memory: in rows or columns (*lines*), ``pitch`` bytes apart."""

    def __init__(
        self, f: FunctionCodegen, instruction: Instruction, access: _Access, stride: Sequence[Operand]
    ) -> None:
        name, by_rows = instruction.type.spelling, instruction.slots["layout"] == "row"
        self.access = access
        self.fragment, (rows, columns) = _fragment_of(f, instruction)
        # A place is (row, k) of A, (column, k) of B, (row, column) of C and D.
        self.line = 0 if by_rows == (instruction.slots["fragment"] != "b") else 1
        self.bits = 64 if name == "f64" else packed_bits(name)
        b, width = f.b, access.base[0].type
        if stride:
            given = tuple(f.vectors(f.read_bits(stride[0], 32)))
            bits = element_bits(name)
            self.pitch = access.warp.each(lambda b, x: b.resize(b.lshr(b.mul(x, bits), 3), width), given)
        else:
            natural = b.const(width, (columns if by_rows else rows) * self.bits // 8)
            self.pitch = (natural,) * f.geometry.groups

    @property
    def register_bits(self) -> int:
        """Bits of a register of the fragment."""
        return max(self.bits, 32)

    def pieces(self) -> list[list[int]]:
        """The elements that are accessed together: a register's, where they are side by side in memory."""
        many = max(self.register_bits // self.bits, 1)
        count = len(self.fragment[0])
        found = []
        for first in range(0, count, many):
            register = list(range(first, first + many))
            together = all(self._adjacent(lane, register) for lane in range(WARP))
            found += [register] if together else [[i] for i in register]
        return found

    def _adjacent(self, lane: int, elements: Sequence[int]) -> bool:
        places = [self.fragment[lane][i] for i in elements]
        lines, along = {p[self.line] for p in places}, [p[1 - self.line] for p in places]
        return len(lines) == 1 and along == list(range(along[0], along[0] + len(along)))

    def address(self, element: int) -> Lanes:
        """Where each lane's element is."""
        places = [lane[element] for lane in self.fragment]
        line = self.access.table([p[self.line] for p in places])
        along = self.access.table([p[1 - self.line] * self.bits // 8 for p in places])
        return self.access.at(
            self.access.warp.each(lambda b, at, x, pitch: b.add(b.mul(at, pitch), x), line, along, self.pitch)
        )


def load_fragment(f: FunctionCodegen, instruction: Instruction) -> None:
    """``wmma.load``: each lane reads its own elements."""
    destination, source, *stride = instruction.operands
    access = _Access(f, instruction, source)
    layout = _Layout(f, instruction, access, stride)
    wide, warp = layout.register_bits, access.warp
    registers: list[Parts] = []
    filled = wide
    for piece in layout.pieces():
        bits = layout.bits * len(piece)
        value = access.load(layout.address(piece[0]), bits)
        if filled == wide:
            registers.append(warp.each(lambda b, x: b.zext(x, f"i{wide}"), value))
            filled = bits
        else:
            registers[-1] = warp.each(_placed(filled, wide), registers[-1], value)
            filled += bits
    write_registers(f, destination, registers)


def _placed(at: int, wide: int) -> Callable[[Builder, Value, Value], Value]:
    """A function that puts a value ``at`` bits up in a register."""
    return lambda b, register, value: b.or_(b.shl(b.zext(value, f"i{wide}"), at), register)


def _cut(at: int, bits: int) -> Callable[[Builder, Value], Value]:
    """A function that takes ``bits`` bits, ``at`` bits up, out of a register."""
    return lambda b, register: b.trunc(b.lshr(register, at), f"i{bits}")


def store_fragment(f: FunctionCodegen, instruction: Instruction) -> None:
    """``wmma.store``: each lane writes its own elements."""
    target, source, *stride = instruction.operands
    access = _Access(f, instruction, target)
    layout = _Layout(f, instruction, access, stride)
    count = len(layout.fragment[0]) * layout.bits // layout.register_bits
    registers = read_registers(f, source, count, layout.register_bits)
    at = 0
    for piece in layout.pieces():
        bits = layout.bits * len(piece)
        register, within = divmod(at, layout.register_bits)
        value = access.warp.each(_cut(within, bits), registers[register])
        access.store(layout.address(piece[0]), value)
        at += bits


# --- ldmatrix, stmatrix, movmatrix -------------------------------------------------------------------


def _matrices(f: FunctionCodegen, instruction: Instruction) -> int:
    """How many 8x8 matrices of 16-bit elements; other shapes need sm_100."""
    if instruction.slots["shape"] != "m8n8" or instruction.type is not ScalarType.B16:
        raise f.unsupported(instruction)
    return int(instruction.slots["num"][1:])


class _Rows:
    """The rows of matrices, whose addresses lanes hold: lane ``8 * matrix + row``."""

    def __init__(self, f: FunctionCodegen, instruction: Instruction, operand: Operand) -> None:
        self.access = access = _Access(f, instruction, operand)
        # Of each piece a lane accesses: the row, and the bytes from its beginning.
        if instruction.has("trans"):  # rows 2t and 2t + 1 of column g
            pieces = [[(2 * (n % 4) + i, 2 * (n // 4)) for n in range(WARP)] for i in (0, 1)]
        else:  # columns 2t and 2t + 1 of row g
            pieces = [[(n // 4, 4 * (n % 4)) for n in range(WARP)]]
        self.rows = [[row for row, _ in piece] for piece in pieces]
        self.bits = 32 // len(pieces)
        self._columns = [access.table([byte for _, byte in piece]) for piece in pieces]

    def addresses(self, matrix: int) -> list[Lanes]:
        """Where each lane's one or two pieces of a matrix are."""
        warp, base = self.access.warp, self.access.base
        found = []
        for rows, column in zip(self.rows, self._columns, strict=True):
            row = warp.permuted(base, [8 * matrix + r for r in rows])
            found.append(Lanes(VARYING, warp.each(Builder.add, row, column)))
        return found


@lowers("ldmatrix")
def load_matrix(f: FunctionCodegen, instruction: Instruction) -> None:
    """``ldmatrix``: register *i* of a lane holds two elements of matrix *i*."""
    destination, source = instruction.operands
    count = _matrices(f, instruction)
    rows = _Rows(f, instruction, source)
    registers = []
    for matrix in range(count):
        pieces = [rows.access.load(address, rows.bits) for address in rows.addresses(matrix)]
        registers.append(pieces[0] if len(pieces) == 1 else rows.access.warp.each(_side_by_side, *pieces))
    write_registers(f, destination, registers)


def _side_by_side(b: Builder, low: Value, high: Value) -> Value:
    return b.or_(b.shl(b.zext(high, "i32"), 16), b.zext(low, "i32"))


@lowers("stmatrix")
def store_matrix(f: FunctionCodegen, instruction: Instruction) -> None:
    """``stmatrix``: the reverse of ``ldmatrix``."""
    target, source = instruction.operands
    registers = read_registers(f, source, _matrices(f, instruction), 32)
    rows = _Rows(f, instruction, target)
    for matrix, register in enumerate(registers):
        for i, address in enumerate(rows.addresses(matrix)):
            rows.access.store(address, rows.access.warp.each(_cut(16 * i, rows.bits), register))


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
        low, high = warp.each(_cut(0, 16), word), warp.each(_cut(16, 16), word)
        halves.append(warp.chosen(upper, high, low))
    write_registers(f, destination, [warp.each(_side_by_side, *halves)])
