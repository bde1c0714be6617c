"""Matrix fragments to and from memory: ``wmma.load``, ``wmma.store`` (PTX ISA 9.7.14.4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from zluda.compiler.ir import Builder, Value
from zluda.compiler.lower.memory import address_of, space_of
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


class Access:
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
        self, f: FunctionCodegen, instruction: Instruction, access: Access, stride: Sequence[Operand]
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
    access = Access(f, instruction, source)
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
            registers[-1] = warp.each(placed(filled, wide), registers[-1], value)
            filled += bits
    write_registers(f, destination, registers)


def placed(at: int, wide: int) -> Callable[[Builder, Value, Value], Value]:
    """A function that puts a value ``at`` bits up in a register."""
    return lambda b, register, value: b.or_(b.shl(b.zext(value, f"i{wide}"), at), register)


def cut(at: int, bits: int) -> Callable[[Builder, Value], Value]:
    """A function that takes ``bits`` bits, ``at`` bits up, out of a register."""
    return lambda b, register: b.trunc(b.lshr(register, at), f"i{bits}")


def store_fragment(f: FunctionCodegen, instruction: Instruction) -> None:
    """``wmma.store``: each lane writes its own elements."""
    target, source, *stride = instruction.operands
    access = Access(f, instruction, target)
    layout = _Layout(f, instruction, access, stride)
    count = len(layout.fragment[0]) * layout.bits // layout.register_bits
    registers = read_registers(f, source, count, layout.register_bits)
    at = 0
    for piece in layout.pieces():
        bits = layout.bits * len(piece)
        register, within = divmod(at, layout.register_bits)
        value = access.warp.each(cut(within, bits), registers[register])
        access.store(layout.address(piece[0]), value)
        at += bits
