"""As what type each byte of a program's values is used, by one flow-insensitive analysis.

Bytes of registers that are only carried about are one class: by moves, selections and shuffles, by packing
and unpacking (``mov.b64 {a, b}``, ``prmt``, shifts and masks by whole bytes), by widening and narrowing, by
calls.
Each instruction that looks at a value gives its bytes *tags*: (element type, which byte of the element). So
``ld.b32`` into a register whose halves end in ``fma.rn.bf16x2`` loads two bf16; and a half that becomes the
upper half of an f32, as compilers widen a bf16, has the tags of that half.

A register that holds a constant is not joined with what it is copied to: one zero serves floats and integers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from zluda.diff.types.program import LOADS, Program, handed, leaves, registers
from zluda.diff.types.tags import tags_of
from zluda.ptx.module import Address, Immediate, Instruction, Operand, Register, Vector

_MOVES = frozenset(("mov", "selp", "shfl", "slct", "mapa", "cvta"))


class Tag(NamedTuple):
    """Byte ``byte`` of an element."""

    element: str
    byte: int


class Flow:
    """The classes of a program's bytes, and their tags."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._parent: dict[tuple[str, int], tuple[str, int]] = {}
        self._tags: dict[tuple[str, int], set[Tag]] = defaultdict(set)
        self._constants = _constants(program)
        for where, instruction in program.instructions():
            self._take(where, instruction)
        for where, function in program.functions.items():
            for name, declared in function.registers.items():
                if declared.kind == "f":  # %f1 of older compilers
                    for start, element, size in tags_of(declared, declared.bits):
                        self.tag(where + name, start, element, size)
        for node in [node for node in self._tags if self._root(node) != node]:
            self._tags[self._root(node)] |= self._tags.pop(node)

    def tags(self, name: str, byte: int) -> frozenset[Tag]:
        """What byte ``byte`` of a register is used as."""
        return frozenset(self._tags.get(self._root((name, byte)), ()))

    def group(self, name: str) -> tuple[str, int]:
        """The same for registers that share their first byte."""
        return self._root((name, 0))

    def tag(self, name: str, start: int, element: str, size: int) -> None:
        """The bytes of a register from ``start`` on are an element of ``size`` bytes."""
        if name not in self._constants:
            for index in range(size):
                self._tags[self._root((name, start + index))].add(Tag(element, index))

    # --- joining ------------------------------------------------------------------------------------------

    def _root(self, node: tuple[str, int]) -> tuple[str, int]:
        parent = self._parent
        while (above := parent.get(node, node)) != node:
            parent[node] = parent.get(above, above)
            node = above
        return node

    def _join(self, one: str, start: int, other: str, from_byte: int, size: int) -> None:
        """``size`` bytes of one name from ``start`` on are those of another."""
        if one in self._constants or other in self._constants:
            return
        for i in range(size):
            a, b = self._root((one, start + i)), self._root((other, from_byte + i))
            if a != b:
                self._parent[b] = a
                if b in self._tags:
                    self._tags[a] |= self._tags.pop(b)

    def _take(self, where: str, inst: Instruction) -> None:
        for piece in _carried(where, inst):
            self._join(*piece)
        if inst.opcode == "call":
            for actual, formal in handed(self._program, where, inst):
                self._join(actual, 0, formal, 0, 16)
        for register, start, element, size in uses(inst):
            self.tag(where + register.name, start, element, size)


def _constants(program: Program) -> frozenset[str]:
    """Registers that only constants are written to."""
    written: dict[str, bool] = {}
    for where, inst in program.instructions():
        for target in registers(inst.operands[: inst.destinations]):
            plain = inst.opcode == "mov" and isinstance(inst.operands[1], Immediate)
            written[where + target.name] = written.get(where + target.name, True) and plain
    return frozenset(name for name, constant in written.items() if constant)


# --- what carries bytes ------------------------------------------------------------------------------------

Piece = tuple[str, int, str, int, int]
"""(a name, its byte, another, its byte, how many)"""


def _carried(where: str, inst: Instruction) -> Iterator[Piece]:
    operands = inst.operands
    if inst.opcode in _MOVES:
        yield from _moved(where, operands)
    elif inst.opcode in LOADS or inst.opcode == "st":
        yield from _through_parameter(where, inst)
    elif inst.opcode in _PARTS:
        target, sources = operands[0], operands[1:]
        if isinstance(target, Register):
            for at, source, byte in _PARTS[inst.opcode](inst, sources):
                yield where + target.name, at, where + source.name, byte, 1


def _moved(where: str, operands: tuple[Operand, ...]) -> Iterator[Piece]:
    """All operands of one width have the same bytes; vectors are packed, low elements first."""
    spans = [list(_span(one)) for one in operands]
    target = spans[0]
    width = sum(size for _, size in target)
    for span in spans[1:]:
        if sum(size for _, size in span) != width:
            continue  # a predicate, a lane number
        at = from_byte = 0
        a, b = list(target), list(span)
        while a and b:
            (one, left), (other, right) = a[0], b[0]
            size = min(left, right)
            if one is not None and other is not None:
                yield where + one, at, where + other, from_byte, size
            at, from_byte = at + size, from_byte + size
            a[0], b[0] = (one, left - size), (other, right - size)
            if not a[0][1]:
                a.pop(0)
                at = 0
            if not b[0][1]:
                b.pop(0)
                from_byte = 0


def _span(operand: Operand) -> Iterator[tuple[str | None, int]]:
    """(register, its bytes) of an operand; None where it is a constant or ``_``."""
    parts = operand.elements if isinstance(operand, Vector) else (operand,)
    known = [one.type.bits // 8 for one in parts if isinstance(one, Register)]
    for one in leaves(parts):
        if isinstance(one, Register):
            yield (None if one.special or one.type.kind == "pred" else one.name), one.type.bits // 8
        else:
            yield None, known[0] if known else 0


def _through_parameter(where: str, inst: Instruction) -> Iterator[Piece]:
    """Values that pass through parameters of calls."""
    address = next((o for o in inst.operands if isinstance(o, Address)), None)
    if address is None or not inst.slots.get("space", "").startswith("param") or address.variable is None:
        return
    size, at = inst.type.bits // 8, address.offset + getattr(address.base, "offset", 0)
    for operand in inst.operands:
        if isinstance(operand, Address):
            continue
        for index, one in enumerate(leaves((operand,))):
            if isinstance(one, Register):
                yield where + one.name, 0, where + address.variable, at + index * size, size


Part = tuple[int, Register, int]
"""(byte of the result, a source, its byte)"""


def _constant(operand: Operand) -> int | None:
    return operand.value if isinstance(operand, Immediate) and operand.float_bits is None else None


def _shifted_left(inst: Instruction, sources: tuple[Operand, ...]) -> Iterator[Part]:
    by, width = _constant(sources[1]), inst.type.bits // 8
    if by is not None and by % 8 == 0 and isinstance(sources[0], Register):
        yield from ((at, sources[0], at - by // 8) for at in range(by // 8, width))


def _shifted_right(inst: Instruction, sources: tuple[Operand, ...]) -> Iterator[Part]:
    by, width = _constant(sources[1]), inst.type.bits // 8
    if by is not None and by % 8 == 0 and isinstance(sources[0], Register):
        yield from ((at - by // 8, sources[0], at) for at in range(by // 8, width))


def _with_mask(inst: Instruction, sources: tuple[Operand, ...]) -> Iterator[Part]:
    """Bytes that a mask leaves whole."""
    for value, mask in (sources, sources[::-1]):
        bits = _constant(mask)
        if bits is not None and isinstance(value, Register):
            for at in range(inst.type.bits // 8):
                if bits >> 8 * at & 0xFF == 0xFF:
                    yield at, value, at


def _put_together(inst: Instruction, sources: tuple[Operand, ...]) -> Iterator[Part]:
    """``or`` of parts that do not overlap, as compilers pack with; of two registers only."""
    if all(isinstance(one, Register) for one in sources):
        for one in registers(sources):
            yield from ((at, one, at) for at in range(inst.type.bits // 8))


def _permuted(inst: Instruction, sources: tuple[Operand, ...]) -> Iterator[Part]:
    selector = _constant(sources[2])
    if selector is None or "mode" in inst.slots:
        return
    for at in range(4):
        chosen = selector >> 4 * at & 0xF
        source = sources[0 if chosen < 4 else 1]
        if chosen < 8 and isinstance(source, Register):
            yield at, source, chosen % 4


def _field(inst: Instruction, sources: tuple[Operand, ...]) -> Iterator[Part]:
    start, size = _constant(sources[1]), _constant(sources[2])
    if start is None or size is None or start % 8 or size % 8 or not isinstance(sources[0], Register):
        return
    yield from ((at, sources[0], at + start // 8) for at in range(size // 8))


def _converted(inst: Instruction, sources: tuple[Operand, ...]) -> Iterator[Part]:
    """Between integers, low bytes stay."""
    if len(sources) != 1 or not isinstance(sources[0], Register) or "sat" in inst.slots:
        return
    if len(inst.types) == 2 and all(one.kind in "us" and one.bits >= 8 for one in inst.types):
        yield from ((at, sources[0], at) for at in range(min(one.bits for one in inst.types) // 8))


_PARTS = {
    "shl": _shifted_left,
    "shr": _shifted_right,
    "and": _with_mask,
    "or": _put_together,
    "prmt": _permuted,
    "bfe": _field,
    "cvt": _converted,
}


# --- what looks at values ----------------------------------------------------------------------------------


def uses(inst: Instruction) -> Iterator[tuple[Register, int, str, int]]:
    """(register, byte, element, its bytes) of each operand that an instruction takes for a type."""
    from zluda.diff.types.tags import typed_operands

    for operand, type, packed in typed_operands(inst):
        for register in _values((operand,)):
            width = register.type.bits if packed else min(type.bits, register.type.bits)
            for start, element, size in tags_of(type, width):
                yield register, start, element, size


def _values(operands: Iterable[Operand]) -> Iterator[Register]:
    return (one for one in registers(operands) if not one.special and one.type.kind != "pred")
