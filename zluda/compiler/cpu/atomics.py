"""Atomic operations on the CPU: one lane after the other, in lane order.

Shared memory, a whole cluster's too, belongs to one thread, so a plain read, operation and write will do;
elsewhere blocks on other threads take part, and each lane's operation is an atomic instruction, or a
compare-and-swap loop for floats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zluda.compiler.clusters import CLUSTER
from zluda.compiler.cpu.memory import MemoryOps
from zluda.compiler.ir import Builder, Value, constant
from zluda.compiler.lanes import vector
from zluda.compiler.lower.read_modify_write import instruction_name, is_computed, new_value, swap_loop
from zluda.compiler.target import VARYING, Geometry, Lanes
from zluda.ptx.types import ScalarType

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen

# Associative and commutative integer operations, with LLVM's vector reduction and the neutral element.
_REDUCTIONS = {"add": ("add", 0), "and": ("and", -1), "or": ("or", 0), "xor": ("xor", 0)}
_REDUCED_MIN_MAX = {"umin": -1, "umax": 0}


class AtomicOps(MemoryOps):
    """The atomic part of the CPU's TargetOps."""

    geometry: Geometry

    def atomic(
        self,
        f: FunctionCodegen,
        space: str,
        address: Lanes,
        offset: int,
        op: str,
        type: ScalarType,
        operands: list[Lanes],
        *,
        wanted: bool,
    ) -> Lanes | None:
        """See :class:`~zluda.compiler.target.TargetOps`. Raises UnsupportedError for an unknown operation."""
        self.check_access(f, space, address, offset, type.bits // 8)
        if not wanted and address.shape.uniform and _combines(op, type):
            self._combined(f, space, address, offset, op, type, operands[0])
            return None
        name = _define(f, op, type, private=space in ("shared", CLUSTER))
        results = []
        for g in range(self.geometry.groups):
            pointers = self.pointer(f, space, vector(address, g, f.b, self.geometry), offset)
            mask = f.mask[g] if f.mask is not None else f.b.splat(constant("i1", 1), self.geometry.width)
            bits = f.b.zext(f.b.reshape(mask, f"i{self.geometry.width}", 1), "i32")
            values = [vector(o, g, f.b, self.geometry) for o in operands]
            results.append(f.b.call(name, [pointers, bits, *values], f"i{type.bits}", self.geometry.width))
        return Lanes(VARYING, tuple(results)) if wanted else None

    def _combined(
        self,
        f: FunctionCodegen,
        space: str,
        address: Lanes,
        offset: int,
        op: str,
        type: ScalarType,
        operand: Lanes,
    ) -> None:
        """All lanes on one address, nobody asks for the old value: reduce, then one operation."""
        b = f.b
        kind = instruction_name(op, type)
        reduction, neutral = _REDUCTIONS.get(op, (kind, _REDUCED_MIN_MAX.get(kind, 0)))
        total: Value | None = None
        for g in range(self.geometry.groups):
            value = vector(operand, g, b, self.geometry)
            if f.mask is not None:
                value = b.select(f.mask[g], value, b.splat(constant(value.type, neutral), value.lanes))
            name = f"llvm.vector.reduce.{reduction}.v{value.lanes}{value.type}"
            part = b.call(name, [value], value.type)
            total = part if total is None else _combine(b, reduction, total, part)
        assert total is not None
        pointer = self.pointer(f, space, address.parts[0], offset)
        b.define(total.type, 1, f"atomicrmw {kind} {pointer.typed}, {total.typed} seq_cst")


def _combine(b: Builder, reduction: str, x: Value, y: Value) -> Value:
    return b.intrinsic(reduction, x, y) if reduction in _REDUCED_MIN_MAX else b.binary(reduction, x, y)


def _combines(op: str, type: ScalarType) -> bool:
    if type.kind == "f" or "x" in type.spelling:
        return False
    return op in _REDUCTIONS or (op in ("min", "max") and type.kind == "u")


def _define(f: FunctionCodegen, op: str, type: ScalarType, *, private: bool) -> str:
    """A function over (pointers, bits of active lanes, operands) that returns the old values."""
    width = f.geometry.width
    element = f"i{type.bits}"
    arity = 2 if op == "cas" else 1
    parameters = [("ptr", width), ("i32", 1), *[(element, width)] * arity]
    name = f"atomic.{op}.{type.spelling}.{'private' if private else 'shared'}"
    return f.unit.ir.function(name, parameters, lambda b, a: _each_lane(b, a, op, type, private))


def _each_lane(b: Builder, arguments: list[Value], op: str, type: ScalarType, private: bool) -> Value:
    pointers, bits, *operands = arguments
    width = pointers.lanes
    element = operands[0].type
    tables = []
    for vector_value in (pointers, *operands):
        table = b.alloca(vector_value.type, width)
        b.store(vector_value, table, align=64)
        tables.append((vector_value.type, table))
    old_values = b.alloca(element, width)
    b.store(b.splat(constant(element, 0), width), old_values, align=64)
    remaining = b.alloca("i32", align=4)
    b.store(bits, remaining, align=4)
    b.branch("next")
    b.label("next")
    left = b.load("i32", remaining, align=4)
    b.cond_branch(b.icmp("eq", left, 0), "out", "lane")
    b.label("lane")
    lane = b.zext(b.intrinsic("cttz", left, False), "i64")
    b.store(b.and_(left, b.sub(left, 1)), remaining, align=4)
    pointer, *values = [b.load(kind, b.gep(table, lane, kind), align=1) for kind, table in tables]
    old = _one_lane(b, pointer, values, op, type, private)
    b.store(old, b.gep(old_values, lane, element), align=type.bits // 8)
    b.branch("next")
    b.label("out")
    return b.load(element, old_values, width, align=64)


def one_lane(
    f: FunctionCodegen, pointer: Value, values: list[Value], space: str, op: str, type: ScalarType
) -> Value:
    """One thread's operation, by a function of its own; returns the old value."""
    private = space in ("shared", CLUSTER)
    parameters = [("ptr", 1), *[(v.type, 1) for v in values]]
    name = f.unit.ir.function(
        f"atomic.{op}.{type.spelling}.{'private' if private else 'shared'}.one",
        parameters,
        lambda b, a: _one_lane(b, a[0], a[1:], op, type, private),
    )
    return f.b.call(name, [pointer, *values], values[0].type)


def _one_lane(
    b: Builder, pointer: Value, values: list[Value], op: str, type: ScalarType, private: bool
) -> Value:
    """One lane's operation; returns the old value."""
    element, align = values[0].type, type.bits // 8
    if op == "cas":
        pair = b.define(
            "pair", 1, f"cmpxchg {pointer.typed}, {values[0].typed}, {values[1].typed} seq_cst seq_cst"
        )
        return b.define(element, 1, f"extractvalue {{ {element}, i1 }} {pair.ref}, 0")
    if not is_computed(op, type):
        if not private or op in ("inc", "dec"):
            return b.define(
                element,
                1,
                f"atomicrmw {instruction_name(op, type)} {pointer.typed}, {values[0].typed} seq_cst",
            )
        old = b.load(element, pointer, align=align)
        b.store(_plain(b, op, type, old, values[0]), pointer, align=align)
        return old
    if private:
        old = b.load(element, pointer, align=align)
        b.store(new_value(b, op, type, old, values[0], cached=False), pointer, align=align)
        return old
    return swap_loop(b, pointer, values[0], op, type, "seq_cst")


def _plain(b: Builder, op: str, type: ScalarType, old: Value, value: Value) -> Value:
    kind = instruction_name(op, type)
    if kind == "xchg":
        return value
    names = {"min": "smin", "max": "smax", "umin": "umin", "umax": "umax"}
    return b.intrinsic(names[kind], old, value) if kind in names else b.binary(kind, old, value)
