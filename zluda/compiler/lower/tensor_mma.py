"""``mma``, ``mma.sp`` and ``wmma.mma``: a form's arithmetic over fragments (PTX ISA 9.7.14).

Each lane computes its own elements of D. What it needs of A and B it fetches from the lanes that hold it,
taken apart by them, so that no element is decoded twice in a lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from zluda.compiler.ir import Builder, Value, constant
from zluda.compiler.lower import tensor_fragments, tensor_step
from zluda.compiler.lower.table import lowers
from zluda.compiler.lower.tensor_loop import Job, each_element
from zluda.compiler.lower.tensor_rules import RULES, Setting
from zluda.compiler.lower.tensor_warp import (
    Matrix,
    Parts,
    Warp,
    call_helper,
    linear,
    read_registers,
    write_registers,
)
from zluda.compiler.target import WARP
from zluda.numerics.tensor_cores import operations
from zluda.numerics.tensor_cores.fragments import Fragment, Place, metadata_place
from zluda.numerics.tensor_cores.operations import Form, Operation, mma_fragments, packed_bits
from zluda.ptx.module import Immediate, Instruction, Operand

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen


# --- instructions ------------------------------------------------------------------------------------


def _popcount(instruction: Instruction) -> str:
    return instruction.slots.get("op", "") if instruction.has("popc") else ""


@lowers("mma")
def mma(f: FunctionCodegen, instruction: Instruction) -> None:
    """``mma`` and ``mma.sp`` of every shape and type that sm_90 has, and those with a kind."""
    d, a, b, c, *_ = (t.spelling for t in instruction.types)
    slots = instruction.slots
    layouts = slots["alayout"], slots["blayout"]
    if instruction.has("kind"):
        form = _form_of_kind(instruction) if c == d and layouts == ("row", "col") else None
    else:
        form = operations.mma(
            slots["shape"],
            a,
            b,
            c,
            d,
            layouts=layouts,
            saturate=instruction.has("satfinite"),
            popcount=_popcount(instruction),
            sparse=instruction.has("sp"),
        )
    if form is None:
        raise f.unsupported(instruction)
    apply_form(f, instruction, form)


def _form_of_kind(instruction: Instruction) -> Form | None:
    _, a, b, c, *scale = (t.spelling for t in instruction.types)
    slots = instruction.slots
    return operations.mma_of_kind(
        slots["kind"].removeprefix("kind::"),
        slots["shape"],
        a,
        b,
        c,
        scale=scale[0] if scale else "",
        chunks=int(slots.get("scale_vec", "scale_vec::0X")[len("scale_vec::") : -1]),
        sparse=instruction.has("sp"),
    )


@lowers("wmma")
def wmma(f: FunctionCodegen, instruction: Instruction) -> None:
    """``wmma.mma``, ``wmma.load`` and ``wmma.store``."""
    if instruction.has("load"):
        tensor_fragments.load_fragment(f, instruction)
    elif instruction.has("store"):
        tensor_fragments.store_fragment(f, instruction)
    else:
        _wmma_mma(f, instruction)


def _wmma_mma(f: FunctionCodegen, instruction: Instruction) -> None:
    types = [t.spelling for t in instruction.types]
    d, a, b, c = types if len(types) == 4 else (types[0], "f16", "f16", types[1])
    form = operations.wmma(
        instruction.slots["shape"],
        a,
        b,
        c,
        d,
        saturate=instruction.has("satfinite"),
        popcount=_popcount(instruction),
    )
    small = a in ("s4", "u4", "b1")  # whose A is by rows and B by columns
    turned = (instruction.slots["alayout"], instruction.slots["blayout"]) != ("row", "col")
    if form is None or (a == "f16" and instruction.has("satfinite")) or (small and turned):
        raise f.unsupported(instruction)
    apply_form(f, instruction, form)


def apply_form(f: FunctionCodegen, instruction: Instruction, form: Form) -> None:
    """D, A, B, C, of a sparse form metadata and selector, and scales with theirs are the operands."""
    d, a, b, c, *rest = instruction.operands
    registers = [
        read_registers(f, operand, form.registers(letter), form.wide(letter))
        for letter, operand in zip("abc", (a, b, c), strict=True)
    ]
    selector = 0
    if form.operation.sparse:
        registers.append(read_registers(f, rest[0], 1, 32))
        if not isinstance(rest[1], Immediate):
            raise f.unsupported(instruction, "mma.sp with a selector that is not a constant")
        selector = rest[1].value
        rest = rest[2:]
    if form.operation.scale:
        registers += _scales(f, rest)
    mode = instruction.slots.get("rnd", "rn")
    found: list[Parts] = []
    for piece, operands in _pieces(form, registers):
        found += multiply(f, piece, operands, mode, selector)
    write_registers(f, d, found)


def _scales(f: FunctionCodegen, operands: Sequence[Operand]) -> list[list[Parts]]:
    """Of A and of B: the register of scales, and the byte and the thread that they are to be found in."""
    found: list[list[Parts]] = []
    for data, chosen in zip(operands[::2], operands[1::2], strict=True):
        selectors = read_registers(f, chosen, 2, 16)
        wide = [tuple(f.b.zext(x, "i32") for x in parts) for parts in selectors]
        found.append([*read_registers(f, data, 1, 32), *wide])
    return found


def _pieces(form: Form, registers: list[list[Parts]]) -> list[tuple[Form, list[list[Parts]]]]:
    """A large ``wmma`` as two products of sixteen rows and eight columns, whose registers follow each other.

    Of 16 by 16 each has half of B, of 32 by 8 half of A. 8 by 32 is 32 by 8 with A and B, rows and columns
    exchanged, which no product minds.
    """
    op = form.operation
    if op.m * op.n != 256:
        return [(form, registers)]
    a, b, c = registers
    left, right = _distinct(a, op.m, op), _distinct(b, op.n, op)
    kinds = (op.a, op.b)
    if op.m == 8:
        left, right, kinds = right, left, (op.b, op.a)
    half = mma_fragments(replace(op, m=16, n=8, a=kinds[0], b=kinds[1]))
    lefts = _halves(left) if op.m != 16 else [left, left]
    rights = _halves(right) if op.m == 16 else [right, right]
    pieces = zip(lefts, rights, _halves(c), strict=True)
    return [(half, list(piece)) for piece in pieces]


def _distinct(registers: list[Parts], lines: int, op: Operation) -> list[Parts]:
    """The registers that do not repeat others (f16 fragments have eight whatever the shape)."""
    return registers[: lines * op.k * packed_bits(op.a) // (32 * WARP)]


def _halves(registers: list[Parts]) -> list[list[Parts]]:
    middle = len(registers) // 2
    return [registers[:middle], registers[middle:]]


def multiply(
    f: FunctionCodegen, form: Form, registers: Sequence[list[Parts]], mode: str = "rn", selector: int = 0
) -> list[Parts]:
    """D's registers from those of A, B, C, of a sparse form the metadata's, and those of scales."""
    op = form.operation
    counts = [len(r) for r in registers]
    extra = (f".sparse{selector}" if op.sparse else "") + (f".{mode}" if op.rule == "fma" else "")
    extra += f".{op.scale}x{op.chunks}" if op.scale else ""
    quads = f".{_layout(form)}" if op.rule == "quad_fma" else ""
    types = f"{op.d}.{op.a}.{op.b}.{op.c}.{op.fraction}{'.short' if op.short else ''}"
    name = f"tensor.m{op.m}n{op.n}k{op.k}.{op.rule}.{types}{extra}{quads}.{counts[0]}"

    def emit(warp: Warp, arguments: list[Parts]) -> list[Parts]:
        ends = [sum(counts[: i + 1]) for i in range(len(counts))]
        given = [arguments[end - n : end] for n, end in zip(counts, ends, strict=True)]
        return _Multiplier(warp, name, form, given, mode, selector).registers()

    results = [f"i{form.wide('d')}"] * form.registers("d")
    return call_helper(f, name, [r for group in registers for r in group], results, emit)


def _layout(form: Form) -> str:
    """Which way the fragments of m8n8k4 lie, for the name of the function."""
    return "".join("c" if x[0][1][0] != x[0][0][0] else "r" for x in (form.fragment_a, form.fragment_b))


# --- the arithmetic ----------------------------------------------------------------------------------


def _travelling(
    warp: Warp, form: Form, registers: Sequence[Parts], letter: str, scales: Sequence[Parts] | None
) -> list[Parts]:
    """The elements of A or B, each as the word it travels in; elements held twice are left out."""
    name: str = getattr(form.operation, letter)
    fragment: Fragment = getattr(form, f"fragment_{letter}")
    distinct = len(dict.fromkeys(fragment[0]))
    elements = split_registers(warp, registers, name)[:distinct]
    if scales is not None:
        return _scaled_elements(warp, form.operation, elements, letter, fragment, scales)
    travel = RULES[form.operation.rule].travel
    return [warp.each(lambda b, x: travel(b, name, x), element) for element in elements]


def _scaled_elements(
    warp: Warp,
    op: Operation,
    elements: Sequence[Parts],
    letter: str,
    fragment: Fragment,
    scales: Sequence[Parts],
) -> list[Parts]:
    """Elements of A or B times the scales of their chunks, which the same group of four lanes holds.

    Of A one pair of lanes, its first for the row ``g`` and its second for ``g + 8``; of B one lane
    (PTX ISA 9.7.14.3). Which is known only when the instruction runs.
    """
    data, byte, thread = scales
    name: str = getattr(op, letter)
    first = warp.each(lambda b, x, at: b.lshr(x, b.shl(b.and_(at, 3), 3)), data, byte)
    lanes = 2 if letter == "a" else 1
    words: list[Parts] = []  # of A's two rows
    for half in range(lanes):
        candidates = [
            warp.permuted(first, [(n & ~3) | (lanes * t + half) for n in range(WARP)])
            for t in range(4 // lanes)
        ]
        words.append(warp.each(_choose, thread, *candidates))
    chunk = op.chunk if letter == "a" else op.chunk_of_b
    found = []
    for i, element in enumerate(elements):
        shifts = [8 * chunk(places[i][1]) for places in fragment]

        def scaled(b: Builder, x: Value, word: Value, lane: Value, shifts: list[int] = shifts) -> Value:
            code = b.lshr(word, linear(b, lane, shifts))
            whole = tensor_step.scaled(b, tensor_step.decode(b, name, x), op.scale, code)
            return tensor_step.encode(b, whole)

        word = words[fragment[0][i][0] // 8]
        found.append(warp.each(scaled, element, word, warp.ops.lane_numbers(warp.b)))
    return found


def _choose(b: Builder, number: Value, *of: Value) -> Value:
    """One of two or four values, by the low bits of a number."""
    if len(of) == 1:
        return of[0]
    odd = b.trunc(number, "i1")
    pairs = [b.select(odd, y, x) for x, y in zip(of[::2], of[1::2], strict=True)]
    return _choose(b, b.lshr(number, 1), *pairs)


def split_registers(warp: Warp, registers: Sequence[Parts], name: str) -> list[Parts]:
    """The elements that registers hold, low bits first, each in the low bits of a register's width."""
    width = packed_bits(name)
    if width == 32:
        return list(registers)
    mask = (1 << width) - 1

    def element(b: Builder, word: Value, at: Value) -> Value:
        return b.and_(b.lshr(word, at), mask)

    places = [(constant("i32", at),) * len(registers[0]) for at in range(0, 32, width)]
    return [warp.each(element, word, at) for word in registers for at in places]


def join_registers(warp: Warp, elements: Sequence[Parts], name: str) -> list[Parts]:
    """The registers that hold elements, low bits first."""
    if packed_bits(name) == 32:
        return list(elements)
    assert packed_bits(name) == 16
    pairs = zip(elements[::2], elements[1::2], strict=True)
    return [warp.each(lambda b, low, high: b.or_(b.shl(high, 16), low), *pair) for pair in pairs]


class _Multiplier:
    """Writes a form's arithmetic; :meth:`registers` are D's."""

    def __init__(
        self, warp: Warp, name: str, form: Form, registers: Sequence[list[Parts]], mode: str, selector: int
    ) -> None:
        a, b, c, *rest = registers
        scales = rest[-2:] if form.operation.scale else (None, None)
        self.name = name
        self.warp, self.form, self.op, self.selector = warp, form, form.operation, selector
        self.setting = Setting(form.operation, mode, warp.ops.many_registers)
        self.rule = RULES[self.op.rule]
        self.metadata = rest[0][0] if self.op.sparse else None
        self.a = Matrix(warp, form.fragment_a, _travelling(warp, form, a, "a", scales[0]))
        self.b = Matrix(warp, form.fragment_b, _travelling(warp, form, b, "b", scales[1]))
        self.c = Matrix(warp, form.fragment_c, split_registers(warp, c, self.op.c))
        self._chunks: dict[tuple[int, int], Parts] = {}

    def registers(self) -> list[Parts]:
        """D's registers."""
        columns = zip(*self.form.fragment_d, strict=True)  # the places of each element, one a lane
        jobs = [self._job(places) for places in columns]
        return join_registers(self.warp, each_element(self.warp, self.name, jobs, self._combine), self.op.d)

    def _job(self, places: Sequence[Place]) -> Job:
        """One element of D in each lane."""
        stored = range(self.op.stored)
        a = tuple(self.a.fetch([(row, k) for row, _ in places]) for k in stored)
        if self.op.sparse:
            b = tuple(self._met(places, k) for k in stored)
        else:
            b = tuple(self.b.fetch([(column, k) for _, column in places]) for k in stored)
        return Job(self.c.fetch(places), a, b)

    def _combine(self, b: Builder, words: list[tuple[Value, Value]], c: Value) -> Value:
        return b.splat(self.rule.combine(b, self.setting, words, c), c.lanes)

    # --- sparse A ----------------------------------------------------------------------------------

    def _met(self, places: Sequence[Place], stored: int) -> Parts:
        """The element of B that a stored element of a sparse A meets (PTX ISA 9.7.14.6).

        Of four elements (of four bits: pairs) two are stored, each with its number in two bits; of tf32 one
        of two, the second where the bits are 1110.
        """
        alternate, unit = self.op.a == "tf32", self.op.together
        size = 2 if alternate else 4
        chunk = stored if alternate else stored // (2 * unit)
        first = chunk * size * unit + stored % unit
        candidates = [self.b.fetch([(n, first + i * unit) for _, n in places]) for i in range(size)]
        bits = self._chunk(places[0][0] // 8, chunk)
        if alternate:
            return self.warp.each(lambda b, m, x, y: b.select(b.icmp("eq", m, 0xE), y, x), bits, *candidates)
        shift = 2 * (stored // unit & 1)

        def choose(b: Builder, m: Value, *x: Value) -> Value:
            low, high = (b.trunc(b.lshr(m, shift + i), "i1") for i in (0, 1))
            return b.select(high, b.select(low, x[3], x[2]), b.select(low, x[1], x[0]))

        return self.warp.each(choose, bits, *candidates)

    def _chunk(self, half: int, chunk: int) -> Parts:
        """The four metadata bits of a chunk of each lane's row: ``g``, or ``g + 8``."""
        if (half, chunk) not in self._chunks:
            assert self.metadata is not None
            kind = str(packed_bits(self.op.a))
            lane, bit = metadata_place(kind, self.op.k, half, chunk, self.selector)
            word = self.warp.permuted(self.metadata, [(n & ~3) | lane for n in range(WARP)])
            self._chunks[half, chunk] = self.warp.each(lambda b, m: b.and_(b.lshr(m, bit), 15), word)
        return self._chunks[half, chunk]
