"""The registers of a function being generated: how each is held, read, written and kept.

Registers live in stack slots that LLVM turns into SSA values; inside a block a register's last value is kept
at hand, and only what is live out of the block is stored. A write under a mask leaves other lanes' values
alone where somebody may still read them.
"""

from __future__ import annotations

from zluda.compiler.analysis.cfg import Graph
from zluda.compiler.analysis.flushed import flushed_registers
from zluda.compiler.analysis.liveness import Liveness
from zluda.compiler.analysis.operands import definitions
from zluda.compiler.analysis.order import Component, Order
from zluda.compiler.analysis.payload import computed_registers
from zluda.compiler.analysis.uniformity import Uniformity
from zluda.compiler.ir import FLOAT_BITS, Builder, Value, constant
from zluda.compiler.lanes import convert, vectors
from zluda.compiler.lower.lanewise import canonical_nan
from zluda.compiler.target import VARYING, Geometry, Lanes, Shape
from zluda.ptx.module import Register

Mask = tuple[Value, ...]


class RegisterFile:
    """Registers over the analyses of one function.

    :class:`~zluda.compiler.codegen.FunctionCodegen` sets them up and moves from block to block.
    """

    b: Builder
    geometry: Geometry
    graph: Graph
    order: Order
    live: Liveness
    uniformity: Uniformity
    mask: Mask | None
    guard: Lanes | None

    def set_up_registers(self) -> None:
        """Once the analyses are there."""
        self.computed = computed_registers(self.graph)
        self._flushed = flushed_registers(self.graph, self.live.live_in[0])
        self._slots: dict[str, tuple[Value, ...]] = {}
        self._cache: dict[str, Lanes] = {}
        self._live_out: set[str] = set()
        self._outlive: dict[tuple[int, int], set[str]] = {}  # by a loop's head and size
        self._blended = self._find_blended()

    def enter_block(self, index: int) -> None:
        """Nothing is at hand at a block's start."""
        self._cache = {}
        self._live_out = self.live.live_out[index]

    # --- how a register is held ------------------------------------------------------------------------

    def shape_of(self, name: str) -> Shape:
        """The shape a register is held in."""
        return self.uniformity.shapes.get(name, VARYING)

    def element_of(self, register: Register) -> str:
        """The LLVM type a register is held in."""
        return self.computed.get(register.name) or f"i{register.type.bits}"

    def _slot(self, register: Register) -> tuple[Value, ...]:
        """The register's stack memory, one piece a part, zero until written."""
        found = self._slots.get(register.name)
        if found is None:
            shape = self.shape_of(register.name)
            lanes = self.geometry.width if shape.varying else 1
            count = self.geometry.groups if shape.varying else shape.bases
            element = self.element_of(register)
            found = tuple(self.b.alloca(element, lanes) for _ in range(count))
            zero = self.b.splat(constant(element, 0), lanes)
            for slot in found:
                self.b.entry.append(f"store {zero.typed}, {slot.typed}, align 64")
            self._slots[register.name] = found
        return found

    # --- reading and writing ---------------------------------------------------------------------------

    def read_register(self, register: Register) -> Lanes:
        """A register as it is held."""
        found = self._cache.get(register.name)
        if found is None:
            shape = self.shape_of(register.name)
            if shape.constant is not None and shape.uniform:
                return Lanes(shape, (constant(f"i{register.type.bits}", shape.constant),) * shape.bases)
            lanes = self.geometry.width if shape.varying else 1
            element = self.element_of(register)
            parts = tuple(self.b.load(element, p, lanes, align=64) for p in self._slot(register))
            if self.b.arithmetic is not None and element in FLOAT_BITS:
                self.b.arithmetic.update(p.ref for p in parts)  # as it was written
            if register.name in self._flushed:
                self.b.normal.update(p.ref for p in parts)
            found = self._cache[register.name] = Lanes(shape, parts)
        return found

    def observe(self, lanes: Lanes) -> Lanes:
        """The bits of a value: floats with NVIDIA's NaN."""
        if lanes.type not in FLOAT_BITS:
            return lanes
        return Lanes(lanes.shape, tuple(canonical_nan(self.b, p) for p in lanes.parts))

    def vectors(self, lanes: Lanes) -> list[Value]:
        """One vector a group."""
        return vectors(lanes, self.b, self.geometry)

    def write_register(self, register: Register, lanes: Lanes) -> None:
        """Give a register a value of its own type, for the lanes that execute."""
        shape = self.shape_of(register.name)
        lanes = self._merge(register, convert(lanes, shape, self.b, self.geometry))
        self._cache[register.name] = lanes
        if register.name in self._live_out:
            for slot, part in zip(self._slot(register), lanes.parts, strict=True):
                self.b.store(part, slot, align=64)

    def initialize(self, register: Register, lanes: Lanes) -> None:
        """Give a register its value before the first block."""
        converted = convert(lanes, self.shape_of(register.name), self.b, self.geometry)
        for slot, part in zip(self._slot(register), converted.parts, strict=True):
            self.b.store(self.b.bitcast(part, self.element_of(register)), slot, align=64)

    def final(self, register: Register) -> Lanes:
        """A register's bits after the last block."""
        self._cache = {}
        return self.observe(self.read_register(register))

    def _merge(self, register: Register, new: Lanes) -> Lanes:
        """Keep the old value in lanes that do not execute, where somebody may still read it."""
        conditions: list[Value] = []
        guard = self.guard
        if guard is not None:
            conditions = list(guard.parts) if guard.shape.uniform else self.vectors(guard)
        if new.shape.varying and self.mask is not None and register.name in self._blended:
            masks = list(self.mask)
            spread = conditions * len(masks) if len(conditions) == 1 else conditions
            conditions = [self.b.and_(m, c) for m, c in zip(masks, spread, strict=True)] if spread else masks
        if not conditions:
            return new
        old = self.read_register(register)
        if len(conditions) == 1:
            conditions *= len(new.parts)
        triples = zip(conditions, new.parts, old.parts, strict=True)
        return Lanes(new.shape, tuple(self.b.select(c, n, o) for c, n, o in triples))

    def _find_blended(self) -> set[str]:
        """Varying registers whose masked definitions must leave other lanes' values alone.

        A register with one definition may be overwritten in lanes that never executed it. Lanes that did, in
        an earlier round of a loop, may wait outside the loop, or at its head, with the register live.
        """
        if not self.uniformity.masked:
            return set()
        places: dict[str, list[int]] = {}
        for index in self.order.sequence:
            for instruction in self.graph.blocks[index].instructions:
                for register in definitions(instruction):
                    places.setdefault(register.name, []).append(index)
        return {name for name, blocks in places.items() if self._needs_blend(name, blocks)}

    def _needs_blend(self, name: str, blocks: list[int]) -> bool:
        if not any(n in self.uniformity.masked for n in blocks):
            return False
        return (
            len(blocks) > 1
            or self.uniformity.apart
            or any(name in self._outliving(loop) for loop in self._loops_around(blocks[0]))
        )

    def _loops_around(self, block: int) -> list[Component]:
        parts = [part for part in self.uniformity.first_parts if block in part.blocks]
        return [*self.order.around(block), *parts]

    def _outliving(self, loop: Component) -> set[str]:
        """Registers live at a loop's head, or where it is left."""
        key = (loop.head, len(loop.blocks))
        found = self._outlive.get(key)
        if found is None:
            inside = set(loop.blocks)
            after = {s for n in inside for s in self.graph.blocks[n].successors if s >= 0} - inside
            found = set().union(*(self.live.live_in[n] for n in (loop.head, *after)))
            self._outlive[key] = found
        return found
