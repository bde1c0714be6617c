"""``wgmma`` (PTX ISA 9.7.15): each warp of four multiplies its sixteen rows when it comes to the instruction.

That order is one the asynchronous instruction allows: operands may not be written before it is waited for,
nor accumulators read. So ``fence``, ``commit_group`` and ``wait_group`` have nothing to do.

A matrix descriptor says where an operand lies in shared memory. Its cores are 8 rows (of A; columns of B) of
16 bytes; *leading* and *stride* byte offsets lead from one to the next, and a swizzle exchanges 16-byte
pieces by address bits 7 to 9. Which offset does what depends on the swizzle and the major order, see
:class:`_Operand`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from zluda.compiler.ir import Builder, Value, constant
from zluda.compiler.lower.table import lowers
from zluda.compiler.lower.tensor_loop import Registers, repeated
from zluda.compiler.lower.tensor_mma import multiply
from zluda.compiler.lower.tensor_warp import (
    Parts,
    Warp,
    elements_of,
    linear,
    read_registers,
    write_registers,
)
from zluda.compiler.target import VARYING, WARP, Lanes
from zluda.numerics.tensor_cores import operations
from zluda.numerics.tensor_cores.formats import FLOATS
from zluda.numerics.tensor_cores.operations import Form, packed_bits
from zluda.ptx.module import Immediate, Instruction, Operand, Vector
from zluda.ptx.types import ScalarType

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen

_GROUPS = tuple(lane // 4 for lane in range(WARP))
_PLACES = tuple(lane % 4 for lane in range(WARP))


@lowers("wgmma")
def wgmma(f: FunctionCodegen, instruction: Instruction) -> None:
    """``wgmma.mma_async``; the other forms order what is in order here."""
    if not instruction.has("mma_async"):
        return
    d, a, b = (t.spelling for t in instruction.types)
    form = operations.wgmma(
        instruction.slots["shape"],
        a,
        b,
        d,
        saturate=instruction.has("satfinite"),
        popcount=instruction.slots.get("op", "") if instruction.has("popc") else "",
        sparse=instruction.has("sp"),
    )
    if form is None:
        raise f.unsupported(instruction)
    _Multiplication(f, instruction, form).write()


class _Multiplication:
    """One ``wgmma.mma_async`` of one warp."""

    def __init__(self, f: FunctionCodegen, instruction: Instruction, form: Form) -> None:
        self.f, self.form, self.warp = f, form, Warp(f.b, f.ops)
        self.d, self.a, self.b, *rest = instruction.operands
        self.metadata: list[list[Parts]] = []
        self.selector = 0
        if form.operation.sparse:
            self._read_metadata(instruction, *rest[:2])
            rest = rest[2:]
        self.scale_d, *rest = rest
        self.columns = int(instruction.slots["shape"].partition("n")[2].partition("k")[0])
        self._read_immediates(instruction, rest)

    def _read_metadata(self, instruction: Instruction, metadata: Operand, selector: Operand) -> None:
        """Those of ``mma.sp`` of the same K, in each of the four warps (PTX ISA 9.7.15.6.1)."""
        if not isinstance(selector, Immediate):
            raise self.f.unsupported(instruction, "wgmma.sp with a selector that is not a constant")
        pairs = 2 if packed_bits(self.form.operation.a) > 8 else 1  # of lanes that could hold metadata
        if selector.value not in range(pairs):
            raise self.f.unsupported(instruction, f"wgmma.sp with selector {selector.value}")
        self.metadata, self.selector = [read_registers(self.f, metadata, 1, 32)], selector.value

    def _read_immediates(self, instruction: Instruction, rest: Sequence[Operand]) -> None:
        """Signs of A and B, then, of 16-bit types, whether each in shared memory is transposed."""
        name = self.form.operation.a
        in_registers = isinstance(self.a, Vector)
        signs = 2 if name in FLOATS else 0
        transposes = (1 if in_registers else 2) if name in ("f16", "bf16") else 0
        if len(rest) != signs + transposes or not all(isinstance(r, Immediate) for r in rest):
            what = f"wgmma of {name} with {len(rest)} constants after scale-d, for {signs + transposes}"
            raise self.f.unsupported(instruction, what)
        values = [_signed(r) for r in rest if isinstance(r, Immediate)]
        negative = [v == -1 for v in values[:signs]] or [False, False]
        transposed = [v == 1 for v in values[signs:]]
        self.negative_a, self.negative_b = negative
        self.transposed_b = transposed[-1] if transposed else False
        self.transposed_a = transposed[0] if len(transposed) == 2 else False

    def write(self) -> None:
        """D, eight columns after eight columns."""
        a = self._signed(self._rows_of_a(), negative=self.negative_a)
        view = _Operand(self.f, self.b, transposed=self.transposed_b)
        count, each = self.columns // 8, self.form.registers("d")
        d = self._accumulators(each * count)
        if self.f.ops.many_registers:
            for block in range(count):
                at = slice(block * each, (block + 1) * each)
                d[at] = self._multiplied(a, view, constant("i32", block), d[at])
        else:
            d = self._looped(a, view, d, each)
        write_registers(self.f, self.d, d)

    def _looped(self, a: list[Parts], view: _Operand, d: list[Parts], each: int) -> list[Parts]:
        """As many as 32 times the same: by a loop, which takes less long to compile."""
        b = self.f.b
        stored = Registers(self.warp, d)
        with repeated(b, len(d) // each) as i:
            numbers = [b.add(b.mul(i, each), n) for n in range(each)]
            c = [stored.load(n) for n in numbers]
            for n, parts in zip(numbers, self._multiplied(a, view, b.trunc(i, "i32"), c), strict=True):
                stored.store(n, parts)
        return [stored.load(constant("i64", n)) for n in range(len(d))]

    def _multiplied(self, a: list[Parts], view: _Operand, block: Value, c: list[Parts]) -> list[Parts]:
        """Eight columns of D."""
        start = view.block(block)
        columns = [view.register(start, r) for r in range(self.form.registers("b"))]
        b = self._signed(columns, negative=self.negative_b)
        return multiply(self.f, self.form, [a, b, c, *self.metadata], selector=self.selector)

    def _rows_of_a(self) -> list[Parts]:
        """The warp's sixteen rows of A, in registers or in shared memory."""
        f, count = self.f, self.form.registers("a")
        if isinstance(self.a, Vector):
            return read_registers(f, self.a, count, 32)
        view = _Operand(f, self.a, transposed=self.transposed_a)
        warp = f.vectors(f.ops.special(f, "%warpid"))[0]
        first = f.b.shl(f.b.and_(f.b.extract(warp, 0), 3), 1)
        halves = [view.block(f.b.add(first, half)) for half in (0, 1)]
        return [view.register(halves[r % 2], r // 2) for r in range(count)]

    def _accumulators(self, count: int) -> list[Parts]:
        """D as it was, or zeros where ``scale-d`` is false."""
        f = self.f
        if len(elements_of(self.d)) != count:
            assert f.instruction is not None
            what = f"wgmma with {len(elements_of(self.d))} accumulators where the form has {count}"
            raise f.unsupported(f.instruction, what)
        keep = tuple(f.vectors(f.read_bits(self.scale_d, 1)))

        def scaled(b: Builder, kept: Value, x: Value) -> Value:
            return b.select(kept, x, 0)

        return [self.warp.each(scaled, keep, x) for x in read_registers(f, self.d, count, 32)]

    def _signed(self, registers: list[Parts], *, negative: bool) -> list[Parts]:
        """The registers with every element's sign turned."""
        if not negative:
            return registers
        bits = packed_bits(self.form.operation.a)
        signs = sum(1 << at for at in range(bits - 1, 32, bits))
        return [self.warp.each(lambda b, x: b.xor(x, signs), r) for r in registers]


def _signed(operand: Immediate) -> int:
    """A constant as a 32-bit number."""
    value = operand.value & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


class _Operand:
    """A matrix in shared memory, by its descriptor; g and t are the lane's group and place in it.

    ====================  ==============================================================================
    K major               8 rows: stride; within them ``16 * g`` (swizzled: the swizzle's bytes times g);
                          16 bytes of K: leading (swizzled: 16)
    MN major, plain       8 rows: stride; 8 of K: leading; 16 bytes each
    MN major, swizzled    8 rows: 16 bytes, and leading after as many as the swizzle is wide; 8 of K: stride
    ====================  ==============================================================================
    """

    def __init__(self, f: FunctionCodegen, descriptor: Operand, *, transposed: bool) -> None:
        self.f, self.warp, self.transposed = f, Warp(f.b, f.ops), transposed
        bits = tuple(f.vectors(f.read_bits(descriptor, 64)))
        field = self.warp.each
        self.start = field(_field(0, 14, 4), bits)
        leading, stride = field(_field(16, 14, 4), bits), field(_field(32, 14, 4), bits)
        mode = field(_field(62, 2, 0), bits)
        self.plain = field(lambda b, m: b.icmp("eq", m, 0), mode)
        # Bytes of a row: 16 plain, 128, 64, 32 in modes 1, 2, 3.
        self.pitch = field(
            lambda b, m, plain: b.select(plain, b.const("i32", 16), b.lshr(256, m)), mode, self.plain
        )
        self.swizzle = field(lambda b, p: b.sub(p, 16), self.pitch)
        self.leading, self.stride = leading, stride
        step = stride if transposed else (constant("i32", 16),) * len(leading)
        self.k_step = field(lambda b, plain, x, y: b.select(plain, x, y), self.plain, leading, step)
        lane = f.ops.lane_numbers(f.b)
        self.group = field(lambda b, n: linear(b, n, _GROUPS), lane)
        self.place = field(lambda b, n: linear(b, n, _PLACES), lane)

    def block(self, number: Value) -> Parts:
        """Where, for each lane, the eight rows (or columns) of this number begin."""
        parts = (number,) * len(self.start)
        if not self.transposed:
            return self.warp.each(
                lambda b, start, n, stride: b.add(b.mul(stride, n), start), self.start, parts, self.stride
            )

        def place(b: Builder, start: Value, n: Value, *sizes: Value) -> Value:
            plain, stride, leading, pitch = sizes
            wide = b.lshr(pitch, 4)  # a power of two
            within = b.shl(b.and_(n, b.sub(wide, 1)), 4)
            shift = b.intrinsic("cttz", wide, False)
            swizzled = b.add(within, b.mul(b.lshr(n, shift), leading))
            return b.add(b.select(plain, b.mul(stride, n), swizzled), start)

        sizes = (self.plain, self.stride, self.leading, self.pitch)
        return self.warp.each(place, self.start, parts, *sizes)

    def register(self, block: Parts, number: int) -> Parts:
        """A register of the fragment of eight rows: 16 bytes of K, or 8 of K, further each."""
        if not self.transposed:

            def along(b: Builder, start: Value, g: Value, t: Value, pitch: Value, step: Value) -> Value:
                return b.add(b.add(start, b.mul(g, pitch)), b.add(b.mul(step, number), b.shl(t, 2)))

            address = self.warp.each(along, block, self.group, self.place, self.pitch, self.k_step)
            return self._load(address, 32)

        def across(b: Builder, start: Value, g: Value, t: Value, pitch: Value, step: Value) -> Value:
            return b.add(b.add(start, b.shl(g, 1)), b.add(b.mul(step, number), b.mul(b.shl(t, 1), pitch)))

        first = self.warp.each(across, block, self.group, self.place, self.pitch, self.k_step)
        second = self.warp.each(Builder.add, first, self.pitch)
        low, high = (self._load(address, 16) for address in (first, second))
        return self.warp.each(lambda b, x, y: b.or_(b.shl(b.zext(y, "i32"), 16), b.zext(x, "i32")), low, high)

    def _load(self, address: Parts, bits: int) -> Parts:
        swizzled = self.warp.each(
            lambda b, a, mask: b.xor(b.and_(b.lshr(a, 3), mask), a), address, self.swizzle
        )
        kind = ScalarType.B32 if bits == 32 else ScalarType.B16
        f = self.f
        loaded = f.ops.load(f, "shared", Lanes(VARYING, swizzled), 0, kind, 1, volatile=False)
        return tuple(f.vectors(loaded[0]))


def _field(low: int, bits: int, scale: int) -> Callable[[Builder, Value], Value]:
    """A function that takes a field out of a descriptor, shifted left by ``scale``."""

    def take(b: Builder, descriptor: Value) -> Value:
        return b.shl(b.trunc(b.and_(b.lshr(descriptor, low), (1 << bits) - 1), "i32"), scale)

    return take
