"""Code of one PTX function: operands in, results out, one instruction after another.

Who executes is ``mask``: None when all lanes of the warp do, else one ``i1`` vector a group.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from zluda.compiler.analysis.barriers import is_warp_barrier, possible_partings
from zluda.compiler.analysis.cfg import CONVERGENCE, Graph, build_graph
from zluda.compiler.analysis.liveness import Liveness, liveness
from zluda.compiler.analysis.operands import CARRY, split
from zluda.compiler.analysis.order import Order, weak_topological_order
from zluda.compiler.analysis.payload import reads_value_only
from zluda.compiler.analysis.shapes import combine, constant_shape
from zluda.compiler.analysis.uniformity import Uniformity
from zluda.compiler.ir import FLOAT_BITS, Builder, Value, constant
from zluda.compiler.lanes import base, convert, narrow, uniform
from zluda.compiler.lower.lanewise import (
    Lowering,
    reads_carry,
    unsupported,
    with_one_nan,
    writes_carry,
)
from zluda.compiler.lower.table import lower
from zluda.compiler.registers import Mask, RegisterFile
from zluda.compiler.target import VARYING, Lanes, Shape, TargetOps
from zluda.errors import UnsupportedError
from zluda.ptx.module import (
    Address,
    Element,
    Function,
    Immediate,
    Instruction,
    Negated,
    Operand,
    Pair,
    Register,
    Selected,
    Sink,
    Symbol,
    Vector,
)
from zluda.ptx.types import ScalarType

if TYPE_CHECKING:
    from zluda.compiler.unit import Unit


class FunctionCodegen(RegisterFile):
    """Generates one function's body into ``b``.

    ``partial`` says that lanes may be missing when it is entered. A control-flow strategy
    (``cpu/masked.py``) drives it block by block through :meth:`block`.
    """

    def __init__(self, unit: Unit, function: Function, ops: TargetOps, *, partial: bool) -> None:
        self.unit, self.function, self.ops = unit, function, ops
        self.geometry = ops.geometry
        self.b = Builder(unit.ir)
        self._analyse(partial, apart=False)
        waiting = possible_partings(self.graph, is_warp_barrier)
        if self.uniformity.polling_loops() or self.uniformity.part_at(waiting):
            self._analyse(True, apart=True)
        self.mask: Mask | None = None
        self.instruction: Instruction | None = None
        self.checked: set[tuple[object, ...]] = set()  # accesses of this block known to be aligned
        self.stack_variables: dict[str, Value] = {}
        self.lanes_elsewhere: Callable[[], Value] | None = None  # in a masked block: do lanes wait at others?
        self.warp_barrier: Callable[[Instruction], None] | None = (
            None  # writes a bar.warp.sync (None: nothing)
        )
        self.left: Value | None = None  # where lanes are noted that are done, if somebody asks (cpu/apart.py)
        self.after_label = ""  # where a masked block goes when none of its lanes is left
        self.exited: Value | None = None  # where a called function notes lanes that left the kernel
        self._entry_values: dict[str, Value] = {}
        self.alloca_tops: tuple[Value, ...] = ()  # where each lane's allocations end (lower/stack.py)
        self.guard: Lanes | None = None
        self.set_up_registers()

    def _analyse(self, partial: bool, *, apart: bool) -> None:
        """Graph, order, liveness, shapes; ``apart``: for lanes that may have to be executed one by one."""
        function, ops = self.function, self.ops
        self.graph: Graph = build_graph(function, self.unit.file, cut=CONVERGENCE if apart else frozenset())
        self.order: Order = weak_topological_order(self.graph)
        results = {v.name for v in function.returns if v.space == "reg"}
        self.live: Liveness = liveness(self.graph, results)
        uniformity = Uniformity(
            self.graph,
            self.order,
            self.live,
            self.geometry,
            lambda name: ops.special_shape(self, name),
            lambda name: ops.symbol_shape(self, name),
            function.is_entry,
            partial,
            apart,
        )
        # Of a thread by itself all registers vary, and it is never missing.
        alone = self.geometry.lanes == 1 or function.name in self.unit.solo
        self.uniformity = uniformity if alone else uniformity.run()

    # --- blocks and instructions -----------------------------------------------------------------------

    def block(self, index: int, mask: Mask | None) -> None:
        """Write a block's instructions (not its end) for the lanes of ``mask``."""
        self.mask = mask
        self.checked = set()
        self.enter_block(index)
        for instruction in self.graph.blocks[index].instructions:
            self.write_instruction(instruction)

    def write_instruction(self, instruction: Instruction) -> None:
        """One instruction; raises UnsupportedError with its place."""
        self.instruction = instruction
        self.guard = None
        if self.unit.ir.marks:
            own = self.function.name in self.unit.module.function_names  # else a service, of another text
            self.b.emit(f"; ptx {instruction.location.line if own else 0}")
        if instruction.guard is not None:
            self.guard = self.predicate(instruction.guard.register, instruction.guard.negated)
        try:
            lower(self, instruction)
        except UnsupportedError as error:
            raise UnsupportedError(error.what, self.place(instruction)) from error
        self.guard = None

    def place(self, instruction: Instruction) -> str:
        """Where an instruction stands, for messages."""
        return self.unit.place(self.function, instruction)

    def unsupported(self, instruction: Instruction, what: str = "") -> UnsupportedError:
        """The error for a form without a lowering."""
        return UnsupportedError(what, self.place(instruction)) if what else unsupported(instruction)

    @contextmanager
    def masked(self, mask: Mask | None) -> Iterator[None]:
        """Within: these lanes execute."""
        before, self.mask = self.mask, mask
        yield
        self.mask = before

    def at_entry(self, name: str, element: str, lines: Callable[[], list[str]]) -> Value:
        """A scalar computed once at the function's entry: ``lines`` define ``%name``."""
        if name not in self._entry_values:
            self.b.entry += lines()
            self._entry_values[name] = Value(element, 1, f"%{name}")
        return self._entry_values[name]

    # --- masks -----------------------------------------------------------------------------------------

    def mask_vectors(self) -> list[Value]:
        """The mask as vectors, all ones when everybody executes."""
        if self.mask is not None:
            return list(self.mask)
        full = self.b.splat(constant("i1", 1), self.geometry.width)
        return [full] * self.geometry.groups

    def mask_bits(self, mask: Mask | list[Value] | None = None) -> Value:
        """A mask (the current one by default) as an ``i32`` with a bit a lane."""
        chosen = self.mask if mask is None else mask
        if chosen is None:
            return constant("i32", -1)
        return self.pack_bits(list(chosen))

    def pack_bits(self, groups: list[Value]) -> Value:
        """``i1`` vectors, one a group, as an ``i32`` with a bit a lane."""
        b, width = self.b, self.geometry.width
        bits = constant("i32", 0)
        for g, group in enumerate(groups):
            flat = b.zext(b.reshape(b.splat(group, width), f"i{width}", 1), "i32")
            bits = b.or_(b.shl(flat, g * width), bits)
        return bits

    def unpack_bits(self, bits: Value) -> list[Value]:
        """An ``i32`` with a bit a lane as ``i1`` vectors, one a group."""
        b, width = self.b, self.geometry.width
        return [
            b.reshape(b.trunc(b.lshr(bits, g * width), f"i{width}"), "i1", width)
            for g in range(self.geometry.groups)
        ]

    def record_exit(self, mask: list[Value]) -> None:
        """Note lanes that executed ``exit``; a kernel's simply never come back."""
        if self.exited is not None:
            before = self.b.load("i32", self.exited, align=4)
            self.b.store(self.b.or_(self.pack_bits(mask), before), self.exited, align=4)

    def leave_for_good(self, lanes: Value) -> None:
        """Note lanes (``i32``) that no barrier waits for any more."""
        if self.left is not None:
            self.b.store(self.b.or_(lanes, self.b.load("i32", self.left, align=4)), self.left, align=4)

    def survive(self, alive: Value) -> None:
        """Go on with the lanes of ``alive`` (``i32``) only; leave the block when there are none."""
        b = self.b
        self.leave_for_good(b.and_(self.mask_bits(), b.not_(alive)))
        on = b.fresh("alive")
        b.cond_branch(b.icmp("ne", alive, 0), on, self.after_label)
        b.label(on)
        self.mask = tuple(self.unpack_bits(alive))

    # --- reading ---------------------------------------------------------------------------------------

    def read(self, operand: Operand, *, value_only: bool = False, bits: int = 64) -> Lanes:
        """A source operand; ``value_only`` leaves floats as they are. ``bits`` sizes symbols' addresses and
        literals (64: wide enough for all)."""
        if isinstance(operand, Register):  # most are
            if operand.special:
                return self.ops.special(self, operand.name)
            lanes = self.read_register(operand)
            return lanes if value_only else self.observe(lanes)
        match operand:
            case Negated(operand=register):
                lanes = self.read_register(register)
                return Lanes(lanes.shape.loose, tuple(self.b.not_(p) for p in lanes.parts))
            case Immediate(value=value, float_bits=None):
                return Lanes(constant_shape(value), (constant(f"i{bits}", value),))
            case Immediate(value=value, float_bits=width):
                return uniform(constant(f"i{width}", value))
            case Symbol(name=name, offset=offset):
                return self.resize(self.displaced(self.ops.symbol(self, name), offset), bits)
            case Element():
                return self.resize(self.element(operand), bits)
            case Selected(operand=inner):
                return self.read(inner, bits=bits)  # which part of it, the instruction's lowering looks up
            case Address(base=inner, offset=offset):
                return self.displaced(self.read(inner, bits=bits), offset)
        assert self.instruction is not None
        raise self.unsupported(self.instruction)

    def element(self, operand: Element) -> Lanes:
        """An element's address: its index is 32 bits, and so is the distance in bytes, as ptxas has it."""
        start = self.displaced(self.ops.symbol(self, operand.array.name), operand.array.offset)
        index = self.resize(self.read(operand.index), 32, signed=operand.index.type.kind == "s")
        index = self.displaced(index, operand.first)

        def place(at: Value, number: Value) -> Value:
            bytes = self.b.mul(number, operand.size)
            return self.b.add(at, self.b.resize(bytes, at.type))

        if start.shape.uniform and index.shape.uniform:
            return uniform(place(start.parts[0], index.parts[0]))
        groups = range(self.geometry.groups)
        pairs = [[narrow(lanes, g, self.b, self.geometry) for lanes in (start, index)] for g in groups]
        return Lanes(VARYING, tuple(self.b.splat(place(*p), self.geometry.width) for p in pairs))

    def read_bits(self, operand: Operand, bits: int) -> Lanes:
        """A source operand as integers of exactly ``bits`` bits."""
        return self.resize(self.read(operand, bits=bits), bits)

    def read_typed(self, operand: Operand, type: ScalarType) -> Lanes:
        """A source operand as the bits of ``type``: decimal literals are rounded to it."""
        if isinstance(operand, Immediate) and operand.float_bits is not None:
            return uniform(constant(f"i{type.bits}", literal_bits(operand, type)))
        return self.read_bits(operand, type.bits)

    def resize(self, lanes: Lanes, bits: int, *, signed: bool = False) -> Lanes:
        """Integers of another width. An affine value is extended only where its lanes are equal."""
        if lanes.type == f"i{bits}":
            return lanes
        if not lanes.shape.varying and any(lanes.shape.pattern or ()) and bits > lanes.parts[0].width:
            lanes = convert(lanes, VARYING, self.b, self.geometry)
        parts = tuple(self.b.resize(p, f"i{bits}", signed=signed) for p in lanes.parts)
        return Lanes(lanes.shape, parts)

    def displaced(self, lanes: Lanes, offset: int) -> Lanes:
        """Every lane plus a constant."""
        if not offset:
            return lanes
        return Lanes(lanes.shape.loose, tuple(self.b.add(p, offset) for p in lanes.parts))

    def predicate(self, register: Register, negated: bool = False) -> Lanes:
        """A predicate register, negated if so written."""
        return self.read(Negated(register) if negated else register)

    def lane_numbers(self, group: int) -> Value:
        """The lane index of each lane of a group (``i32``)."""
        width = self.geometry.width
        return self.b.vector("i32", range(group * width, (group + 1) * width))

    # --- writing ---------------------------------------------------------------------------------------

    def write(self, destination: Operand, lanes: Lanes, *, signed: bool = False) -> None:
        """Write a destination register for the active lanes; narrower integers are extended to it."""
        if isinstance(destination, Sink):
            return
        if not isinstance(destination, Register):
            assert self.instruction is not None
            raise self.unsupported(self.instruction)
        element = self.element_of(destination)
        if element in FLOAT_BITS:
            parts = tuple(self.b.bitcast(p, element) for p in lanes.parts)
            if self.b.arithmetic is not None:
                parts = tuple(with_one_nan(self.b, p) for p in parts)
            lanes = Lanes(lanes.shape, parts)
        else:
            lanes = self.resize(self.observe(lanes), destination.type.bits, signed=signed)
        self.write_register(destination, lanes)

    # --- lane-wise instructions ------------------------------------------------------------------------

    def apply_lanewise(self, lowering: Lowering, instruction: Instruction) -> None:
        """Compute a lane-wise instruction in the cheapest form its operands' shapes allow."""
        destinations, sources = split(instruction)
        value_only = reads_value_only(instruction)
        operands = [self._source(o, instruction, i, value_only) for i, o in enumerate(_opened(sources))]
        if reads_carry(instruction):
            operands.append(self.read_register(CARRY))
        mode, shape = self._mode(instruction, operands)
        results = [
            lowering(self.b, instruction, arguments) for arguments in self._arguments(mode, shape, operands)
        ]
        targets = _flatten(destinations)
        if writes_carry(instruction):
            targets.append(CARRY)
        signed = instruction.types[0].kind == "s"
        columns = [(r,) if isinstance(r, Value) else r for r in results]
        for i, target in enumerate(targets):
            parts = tuple(column[i] for column in columns)
            if mode == "vector":
                parts = tuple(self.b.splat(p, self.geometry.width) for p in parts)
            self.write(target, Lanes(shape, parts), signed=signed)

    def _mode(self, instruction: Instruction, operands: list[Lanes]) -> tuple[str, Shape]:
        if self.geometry.lanes == 1:
            return "scalar", VARYING
        return combine(instruction, [o.shape for o in operands], self.geometry)

    def _source(self, operand: Operand, instruction: Instruction, position: int, value_only: bool) -> Lanes:
        if isinstance(operand, Immediate) and operand.float_bits is not None:
            type = _literal_type(instruction, position)
            return uniform(constant(f"i{type.bits}", literal_bits(operand, type)))
        return self.read(operand, value_only=value_only)

    def _arguments(self, mode: str, shape: Shape, operands: list[Lanes]) -> Iterator[list[Value]]:
        """The operands' Values, once for each time the instruction is to be computed."""
        groups = range(self.geometry.groups)
        if mode == "scalar":
            yield [o.parts[0] for o in operands]
        elif mode == "affine":
            for i in range(shape.bases):
                yield [base(o, i) for o in operands]
        else:
            for g in groups:
                yield [narrow(o, g, self.b, self.geometry) for o in operands]


def _flatten(operands: tuple[Operand, ...]) -> list[Operand]:
    """Destinations in order, pairs and vectors opened."""
    found: list[Operand] = []
    for operand in operands:
        match operand:
            case Pair(first=first, second=second):
                found += [first, second]
            case Vector(elements=elements):
                found += elements
            case Selected(operand=register):
                found.append(register)
            case _:
                found.append(operand)
    return found


def _opened(sources: tuple[Operand, ...]) -> list[Operand]:
    """Sources in order, vectors opened (``cvt`` of four values)."""
    return [e for o in sources for e in (o.elements if isinstance(o, Vector) else (o,))]


def _literal_type(instruction: Instruction, position: int) -> ScalarType:
    """The type of a floating-point literal that is a source at ``position``."""
    types = instruction.types
    if instruction.opcode == "slct":
        return types[0 if position < 2 else -1]
    if len(types) == 2 and instruction.opcode in ("add", "sub", "fma"):
        return types[0]  # of mixed precision only the addend, which has the result's type, may be a literal
    floats = [t for t in types if t.kind == "f"]
    return floats[-1] if floats else types[0]


def literal_bits(literal: Immediate, type: ScalarType) -> int:
    """A floating-point literal's bits in ``type``; a literal of another width is rounded (PTX ISA 4.5.2)."""
    codes = {16: ("<e", "<H"), 32: ("<f", "<I"), 64: ("<d", "<Q")}
    width = literal.float_bits or 64
    if width == type.bits or type.bits not in codes:
        return literal.value
    value = struct.unpack(codes[width][0], struct.pack(codes[width][1], literal.value))[0]
    bits: int = struct.unpack(codes[type.bits][1], struct.pack(codes[type.bits][0], value))[0]
    return bits
