"""Values of a whole warp inside a helper function: parts, permutations, fetching matrix elements.

Tensor instructions are long: each form becomes one LLVM function, called with the registers of the warp and
returning those of D. Inside it *parts* are a value of every lane, one Value a group, as in
:class:`~zluda.compiler.target.Lanes` but always one vector a group.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from zluda.compiler.ir import Builder, Module, Value
from zluda.compiler.target import VARYING, WARP, Lanes, TargetOps
from zluda.numerics.tensor_cores.fragments import Fragment, Place
from zluda.ptx.module import Operand, Vector

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen

Parts = tuple[Value, ...]
_ATTRIBUTES = "noinline #0"


class Warp:
    """Lane-wise and cross-lane operations on parts, written into ``b``."""

    def __init__(self, b: Builder, ops: TargetOps) -> None:
        self.b, self.ops = b, ops

    def each(self, compute: Callable[..., Value], *operands: Parts) -> Parts:
        """``compute(b, …)`` for each group; what it gives is one Value a group again."""
        width = self.ops.geometry.width
        return tuple(self.b.splat(compute(self.b, *values), width) for values in zip(*operands, strict=True))

    def permuted(self, parts: Parts, sources: Sequence[int]) -> Parts:
        """In each lane the value that lane ``sources[lane]`` holds."""
        if list(sources) == list(range(WARP)):
            return parts
        return self.ops.permute(self.b, parts, sources)

    def chosen(self, lanes: int, then: Parts, otherwise: Parts) -> Parts:
        """``then`` in the lanes of a bit mask, else ``otherwise``."""
        if then == otherwise or lanes == (1 << WARP) - 1:
            return then

        def choose(b: Builder, lane: Value, x: Value, y: Value) -> Value:
            return b.select(b.trunc(b.lshr(lanes, lane), "i1"), x, y)

        return self.each(choose, self.ops.lane_numbers(self.b), then, otherwise)


class Matrix:
    """The elements that a fragment's lanes hold; any lane may fetch any of them."""

    def __init__(self, warp: Warp, fragment: Fragment, elements: Sequence[Parts]) -> None:
        self.warp, self.elements = warp, elements
        self._holder: dict[Place, tuple[int, int]] = {}
        for lane, places in enumerate(fragment):
            for i, place in enumerate(places[: len(elements)]):
                self._holder.setdefault(place, (lane, i))
        self._fetched: dict[tuple[int, tuple[int, ...]], Parts] = {}

    def fetch(self, places: Sequence[Place]) -> Parts:
        """In each lane the element at ``places[lane]``."""
        holders = [self._holder[place] for place in places]
        sources = tuple(lane for lane, _ in holders)
        indices = sorted({i for _, i in holders})
        found = self._from(indices[0], sources)
        for index in indices[1:]:
            lanes = sum(1 << lane for lane, (_, i) in enumerate(holders) if i == index)
            found = self.warp.chosen(lanes, self._from(index, sources), found)
        return found

    def _from(self, index: int, sources: tuple[int, ...]) -> Parts:
        key = index, sources
        if key not in self._fetched:
            self._fetched[key] = self.warp.permuted(self.elements[index], sources)
        return self._fetched[key]


Emit = Callable[[Warp, list[Parts]], list[Parts]]


def call_helper(
    f: FunctionCodegen, name: str, arguments: Sequence[Parts], results: Sequence[str], emit: Emit
) -> list[Parts]:
    """Call a helper, defined by ``emit`` when first called. ``results`` are its results' element types."""
    geometry = f.ops.geometry
    _define(f.unit.ir, f.ops, name, arguments, emit)
    result = _struct([Value(t, geometry.width, "").ir_type for t in results for _ in range(geometry.groups)])
    passed = ", ".join(v.typed for parts in arguments for v in parts)
    b = f.b
    whole = f"%{b.fresh('tensor')}"
    b.emit(f"{whole} = call {result} @{name}({passed})")
    found = []
    for i, element in enumerate(results):
        at = range(i * geometry.groups, (i + 1) * geometry.groups)
        found.append(
            tuple(b.define(element, geometry.width, f"extractvalue {result} {whole}, {n}") for n in at)
        )
    return found


def _define(module: Module, ops: TargetOps, name: str, arguments: Sequence[Parts], emit: Emit) -> None:
    if name in module.functions:
        return
    b = Builder(module)
    count = iter(range(sum(map(len, arguments))))
    formal = [tuple(Value(v.type, v.lanes, f"%a{next(count)}") for v in parts) for parts in arguments]
    results = [v for parts in emit(Warp(b, ops), formal) for v in parts]
    result = _struct([v.ir_type for v in results])
    whole = "poison"
    for i, value in enumerate(results):
        text = f"%{b.fresh('result')}"
        b.emit(f"{text} = insertvalue {result} {whole}, {value.typed}, {i}")
        whole = text
    b.emit(f"ret {result} {whole}")
    listed = ", ".join(v.typed for parts in formal for v in parts)
    module.define(name, f"internal {result} @{name}({listed}) {_ATTRIBUTES}", b)


def _struct(types: Sequence[str]) -> str:
    return "{ " + ", ".join(types) + " }"


def linear(b: Builder, lane: Value, table: Sequence[int]) -> Value:
    """``table[lane]`` (``i32``) computed from ``lane``, for tables linear in the lane's bits.

    The places of every fragment, and the lanes that hold them, are. Raises ValueError for other tables.
    """
    images = [table[1 << bit] ^ table[0] for bit in range(5)]
    for number, value in enumerate(table):
        chosen = [image for bit, image in enumerate(images) if number >> bit & 1]
        if functools.reduce(operator.xor, chosen, table[0]) != value:
            raise ValueError(f"entry {number} of a table of lanes is not linear in the lane's bits")
    moves: dict[int, int] = {}  # shift → bits of the lane that it moves
    for bit, image in enumerate(images):
        for to in range(image.bit_length()):
            if image >> to & 1:
                moves[to - bit] = moves.get(to - bit, 0) | 1 << bit
    found = b.const("i32", table[0])
    for shift, bits in moves.items():
        part = b.and_(lane, bits)
        found = b.xor(b.shl(part, shift) if shift >= 0 else b.lshr(part, -shift), found)
    return found


def elements_of(operand: Operand) -> tuple[Operand, ...]:
    """The registers of ``{…}``, or the one there is."""
    return operand.elements if isinstance(operand, Vector) else (operand,)


def read_registers(f: FunctionCodegen, operand: Operand, count: int, bits: int) -> list[Parts]:
    """An operand's registers, all lanes of each. Raises UnsupportedError for another number of them."""
    found = elements_of(operand)
    _check_count(f, len(found), count)
    return [tuple(f.vectors(f.read_bits(e, bits))) for e in found]


def write_registers(f: FunctionCodegen, operand: Operand, values: Sequence[Parts]) -> None:
    """Give an operand's registers their values."""
    targets = elements_of(operand)
    _check_count(f, len(targets), len(values))
    for target, parts in zip(targets, values, strict=True):
        f.write(target, Lanes(VARYING, parts))


def _check_count(f: FunctionCodegen, found: int, expected: int) -> None:
    if found != expected:
        assert f.instruction is not None
        what = f"{f.instruction.opcode} with {found} registers where the form has {expected}"
        raise f.unsupported(f.instruction, what)
