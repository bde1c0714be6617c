"""``mma``, ``mma.sp`` and ``wmma.mma``: a form's arithmetic over fragments (PTX ISA 9.7.14).

Each lane computes its own elements of D. What it needs of A and B it fetches from the lanes that hold it,
taken apart by them, so that no element is decoded twice in a lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from zluda.compiler.ir import Builder, Value, constant
from zluda.compiler.lower import tensor_memory
from zluda.compiler.lower.table import lowers
from zluda.compiler.lower.tensor_rules import RULES, Arrived
from zluda.compiler.lower.tensor_warp import (
    Matrix,
    Parts,
    Warp,
    call_helper,
    read_registers,
    write_registers,
)
from zluda.compiler.target import WARP
from zluda.numerics.tensor_cores import operations
from zluda.numerics.tensor_cores.fragments import Fragment, Place, metadata_place
from zluda.numerics.tensor_cores.operations import Form, packed_bits
from zluda.ptx.module import Immediate, Instruction

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen


# --- instructions ------------------------------------------------------------------------------------


def _popcount(instruction: Instruction) -> str:
    return instruction.slots.get("op", "") if instruction.has("popc") else ""


@lowers("mma")
def mma(f: FunctionCodegen, instruction: Instruction) -> None:
    """``mma`` and ``mma.sp`` of every shape and type that sm_90 has."""
    if any(instruction.has(word) for word in ("kind", "block_scale")):
        raise f.unsupported(instruction)
    d, a, b, c = (t.spelling for t in instruction.types)
    slots = instruction.slots
    form = operations.mma(
        slots["shape"],
        a,
        b,
        c,
        d,
        layouts=(slots["alayout"], slots["blayout"]),
        saturate=instruction.has("satfinite"),
        popcount=_popcount(instruction),
        sparse=instruction.has("sp"),
    )
    if form is None:
        raise f.unsupported(instruction)
    apply_form(f, instruction, form)


@lowers("wmma")
def wmma(f: FunctionCodegen, instruction: Instruction) -> None:
    """``wmma.mma``, ``wmma.load`` and ``wmma.store``."""
    if instruction.has("load"):
        tensor_memory.load_fragment(f, instruction)
    elif instruction.has("store"):
        tensor_memory.store_fragment(f, instruction)
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
    if form is None or (a == "f16" and instruction.has("satfinite")):
        raise f.unsupported(instruction)
    apply_form(f, instruction, form)


def apply_form(f: FunctionCodegen, instruction: Instruction, form: Form) -> None:
    """D, A, B, C, and of a sparse form metadata and selector, are the instruction's operands."""
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
    write_registers(f, d, multiply(f, form, registers, instruction.slots.get("rnd", "rn"), selector))


def multiply(
    f: FunctionCodegen, form: Form, registers: Sequence[list[Parts]], mode: str = "rn", selector: int = 0
) -> list[Parts]:
    """D's registers from those of A, B, C and, of a sparse form, the metadata's."""
    op = form.operation
    counts = [len(r) for r in registers]
    extra = (f".sparse{selector}" if op.sparse else "") + (f".{mode}" if op.rule == "fma" else "")
    quads = f".{_layout(form)}" if op.rule == "quad_fma" else ""
    types = f"{op.d}.{op.a}.{op.b}.{op.c}.{op.fraction}{'.short' if op.short else ''}"
    name = f"tensor.m{op.m}n{op.n}k{op.k}.{op.rule}.{types}{extra}{quads}.{counts[0]}"

    def emit(warp: Warp, arguments: list[Parts]) -> list[Parts]:
        ends = [sum(counts[: i + 1]) for i in range(len(counts))]
        given = [arguments[end - n : end] for n, end in zip(counts, ends, strict=True)]
        return _Multiplier(warp, form, given, mode, selector).registers()

    results = [f"i{form.wide('d')}"] * form.registers("d")
    return call_helper(f, name, [r for group in registers for r in group], results, emit)


def _layout(form: Form) -> str:
    """Which way the fragments of m8n8k4 lie, for the name of the function."""
    return "".join("c" if x[0][1][0] != x[0][0][0] else "r" for x in (form.fragment_a, form.fragment_b))


# --- the arithmetic ----------------------------------------------------------------------------------


def _travelling(
    warp: Warp, form: Form, registers: Sequence[Parts], letter: str, fragment: Fragment
) -> list[Parts]:
    """The elements of A or B, each as the word it travels in; elements held twice are left out."""
    name: str = getattr(form.operation, letter)
    distinct = len(dict.fromkeys(fragment[0]))
    travel = RULES[form.operation.rule].travel
    return [
        warp.each(lambda b, x: travel(b, name, x), element)
        for element in split_registers(warp, registers, name)[:distinct]
    ]


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

    def __init__(self, warp: Warp, form: Form, registers: Sequence[list[Parts]], mode: str, selector: int):
        a, b, c, *metadata = registers
        self.warp, self.form, self.op, self.mode, self.selector = warp, form, form.operation, mode, selector
        self.rule = RULES[self.op.rule]
        self.metadata = metadata[0][0] if metadata else None
        self.a = Matrix(warp, form.fragment_a, _travelling(warp, form, a, "a", form.fragment_a))
        self.b = Matrix(warp, form.fragment_b, _travelling(warp, form, b, "b", form.fragment_b))
        self.c = Matrix(warp, form.fragment_c, split_registers(warp, c, self.op.c))
        self._arrived: dict[Parts, list[Arrived]] = {}
        self._chunks: dict[tuple[int, int], Parts] = {}

    def registers(self) -> list[Parts]:
        """D's registers."""
        columns = zip(*self.form.fragment_d, strict=True)  # the places of each element, one a lane
        return join_registers(self.warp, [self._element(places) for places in columns], self.op.d)

    def _element(self, places: Sequence[Place]) -> Parts:
        """One element of D in each lane."""
        starts = self.c.fetch(places)
        pairs = [self._pair(places, k) for k in range(self.op.stored)]
        return tuple(
            self.rule.combine(self.warp.b, self.op, [(x[g], y[g]) for x, y in pairs], c, self.mode)
            for g, c in enumerate(starts)
        )

    def _pair(self, places: Sequence[Place], k: int) -> tuple[list[Arrived], list[Arrived]]:
        """The k-th stored element of each lane's row of A, and what it meets of the column of B."""
        x = self.a.fetch([(row, k) for row, _ in places])
        met = self._met(places, k) if self.op.sparse else self.b.fetch([(column, k) for _, column in places])
        return self._arrive(x), self._arrive(met)

    def _arrive(self, words: Parts) -> list[Arrived]:
        """What the rule makes of words that have been fetched, one a group."""
        if words not in self._arrived:
            self._arrived[words] = [self.rule.arrive(self.warp.b, word) for word in words]
        return self._arrived[words]

    # --- sparse A ----------------------------------------------------------------------------------

    def _met(self, places: Sequence[Place], stored: int) -> Parts:
        """The element of B that a stored element of a sparse A meets (PTX ISA 9.7.14.6).

        Of four elements two are stored, each with its number in two bits; of tf32 one of two, the second
        where the bits are 1110.
        """
        alternate = self.op.a == "tf32"
        size = 2 if alternate else 4
        chunk = stored if alternate else stored // 2
        candidates = [self.b.fetch([(n, chunk * size + i) for _, n in places]) for i in range(size)]
        bits = self._chunk(places[0][0] // 8, chunk)
        if alternate:
            return self.warp.each(lambda b, m, x, y: b.select(b.icmp("eq", m, 0xE), y, x), bits, *candidates)
        shift = 2 * (stored & 1)

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
