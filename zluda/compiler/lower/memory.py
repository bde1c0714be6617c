"""Loads, stores and addresses (PTX ISA 9.7.9)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from zluda.compiler.ir import Value, constant
from zluda.compiler.lanes import narrow, uniform
from zluda.compiler.lower.table import base_space, lowers, named_space
from zluda.compiler.target import VARYING, Lanes
from zluda.ptx.instructions import spell
from zluda.ptx.module import Address, Element, Instruction, Negated, Operand, Pair, Register, Symbol, Vector
from zluda.ptx.types import ScalarType

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen

_ORDERED = {"volatile", "relaxed", "acquire", "release", "mmio"}


def address_of(f: FunctionCodegen, operand: Operand) -> tuple[Lanes, int]:
    """An address operand as (base, byte offset)."""
    if not isinstance(operand, Address):
        assert f.instruction is not None
        raise f.unsupported(f.instruction, f"address operand {operand!r}")
    if isinstance(operand.base, Symbol):
        return f.ops.symbol(f, operand.base.name), operand.base.offset + operand.offset
    if isinstance(operand.base, Element):
        return f.element(operand.base), operand.offset
    return f.read(operand.base), operand.offset


def space_of(f: FunctionCodegen, instruction: Instruction, operand: Operand) -> str:
    """The state space accessed: as written, else a named variable's own (PTX ISA 6.4.1).

    Parameters of functions, and of the calls in a kernel, are local memory (PTX ISA 5.1.6.2).
    """
    space = named_space(f, instruction.slots.get("space", ""))
    if space == "param" and not _of_kernel(f, operand):
        return "local"
    name = operand.variable if isinstance(operand, Address) else None
    if space or name is None:
        return space
    variable = f.function.variables.get(name) or f.unit.module.variables.get(name)
    return variable.space if variable is not None else space


def elements_of(operand: Operand) -> tuple[Operand, ...]:
    """A vector's elements, or the operand alone."""
    return operand.elements if isinstance(operand, Vector) else (operand,)


@lowers("ld", "ldu")
def load(f: FunctionCodegen, instruction: Instruction) -> None:
    """``ld``: cache operators and eviction hints do not change what is read."""
    destination, source = instruction.operands[0], instruction.operands[1]
    elements = elements_of(destination)
    space = space_of(f, instruction, source)
    address, offset = address_of(f, source)
    type = instruction.type
    values = f.ops.load(
        f,
        space,
        address,
        offset,
        _halves(type)[0],
        len(elements) * _halves(type)[1],
        volatile=instruction.slots.get("sem", "") in _ORDERED,
        invariant=space == "param",
    )
    if type.bits == 128:
        values = [_join(f, values[i : i + 2]) for i in range(0, len(values), 2)]
    for element, value in zip(elements, values, strict=True):
        f.write(element, value, signed=type.kind == "s")


def _halves(type: ScalarType) -> tuple[ScalarType, int]:
    """The element loaded, and how many make one value: 128 bits are two halves."""
    return (ScalarType.B64, 2) if type.bits == 128 else (type, 1)


def _join(f: FunctionCodegen, halves: list[Lanes]) -> Lanes:
    return map_lanes(
        f, halves, lambda v: f.b.or_(f.b.shl(f.b.zext(v[1], "i128"), 64), f.b.zext(v[0], "i128"))
    )


def map_lanes(f: FunctionCodegen, operands: list[Lanes], compute: Callable[[list[Value]], Value]) -> Lanes:
    """Apply ``compute`` (a list of Values to a Value) part by part."""
    if all(o.shape.uniform for o in operands):
        return Lanes(operands[0].shape, (compute([o.parts[0] for o in operands]),))
    groups = range(f.geometry.groups)
    parts = [compute([narrow(o, g, f.b, f.geometry) for o in operands]) for g in groups]
    return Lanes(VARYING, tuple(f.b.splat(p, f.geometry.width) for p in parts))


def _of_kernel(f: FunctionCodegen, operand: Operand) -> bool:
    """Whether a ``.param`` address is of the kernel's own parameters: named, or in a register."""
    name = operand.variable if isinstance(operand, Address) else None
    return f.function.is_entry and name not in f.function.variables


@lowers("st")
def lower_store(f: FunctionCodegen, instruction: Instruction) -> None:
    """``st`` in all its forms."""
    if instruction.has("bulk") or instruction.has("completion"):
        from zluda.compiler.lower import asynchronous  # few kernels have any

        asynchronous.store(f, instruction)
    else:
        store(f, instruction)


def store(f: FunctionCodegen, instruction: Instruction) -> None:
    """``st``, but for what its asynchronous forms do beside (``asynchronous.py``)."""
    target, source = instruction.operands[0], instruction.operands[1]
    space = space_of(f, instruction, target)
    address, offset = address_of(f, target)
    type, pieces = _halves(instruction.type)
    values = [f.read_typed(e, instruction.type) for e in elements_of(source)]
    if pieces == 2:
        values = [half for v in values for half in _split(f, v)]
    volatile = instruction.slots.get("sem", "") in _ORDERED
    f.ops.store(f, space, address, offset, type, values, volatile=volatile)


def _split(f: FunctionCodegen, value: Lanes) -> list[Lanes]:
    low = Lanes(value.shape, tuple(f.b.trunc(p, "i64") for p in value.parts))
    high = Lanes(value.shape, tuple(f.b.trunc(f.b.lshr(p, 64), "i64") for p in value.parts))
    return [low, high]


@lowers("cvta")
def convert_address(f: FunctionCodegen, instruction: Instruction) -> None:
    """``cvta`` and ``cvta.to``: add or subtract the window's base."""
    destination, source = instruction.operands
    bits = instruction.type.bits
    space = base_space(instruction)
    value = f.read(source)
    start = f.ops.window(f, space)
    if start.bits != 0:
        wide = f.resize(value, 64)
        move = f.b.sub if instruction.has("to") else f.b.add
        shape = wide.shape
        value = Lanes(shape, tuple(move(p, start) for p in wide.parts))
    f.write(destination, f.resize(value, bits) if value.parts[0].width > bits else value)


@lowers("isspacep")
def is_space(f: FunctionCodegen, instruction: Instruction) -> None:
    """``isspacep``: whether a generic address lies in a space's window."""
    destination, source = instruction.operands
    space = named_space(f, instruction.slots["space"])
    f.write(destination, f.ops.in_window(f, space, f.read_bits(source, 64)))


@lowers("mov")
def move(f: FunctionCodegen, instruction: Instruction) -> None:
    """``mov``: copies, takes addresses, packs and unpacks vectors (PTX ISA 9.7.9.3)."""
    destination, source = instruction.operands
    type = instruction.type
    if isinstance(source, Vector) and isinstance(destination, Vector):
        values = [f.read_bits(element, type.bits) for element in source.elements]  # before any is written
        for element, value in zip(destination.elements, values, strict=True):
            f.write(element, value)
    elif isinstance(source, Vector):
        f.write(destination, _pack(f, source, type.bits))
    elif isinstance(destination, Vector):
        _unpack(f, destination, f.read_bits(source, type.bits))
    elif isinstance(destination, Pair):
        raise f.unsupported(instruction)
    elif isinstance(source, Register | Negated):
        keeps = isinstance(destination, Register) and destination.name in f.computed
        f.write(destination, f.read(source, value_only=keeps))
    elif type is ScalarType.PRED:
        f.write(destination, f.read_bits(source, 1))
    else:
        f.write(destination, f.read_typed(source, type))


def _pack(f: FunctionCodegen, source: Vector, bits: int) -> Lanes:
    """Elements side by side, the first lowest."""
    step = bits // len(source.elements)
    values = [f.read_bits(e, step) for e in source.elements]

    def join(parts: list[Value]) -> Value:
        found = constant(f"i{bits}", 0)
        for i, part in enumerate(parts):
            found = f.b.or_(f.b.shl(f.b.zext(part, f"i{bits}"), i * step), found)
        return found

    return map_lanes(f, values, join)


def _unpack(f: FunctionCodegen, destination: Vector, value: Lanes) -> None:
    step = value.parts[0].width // len(destination.elements)
    for i, element in enumerate(destination.elements):
        f.write(element, map_lanes(f, [value], lambda v, at=i * step: _slice(f, v[0], at, step)))  # type: ignore[misc]


def _slice(f: FunctionCodegen, value: Value, at: int, bits: int) -> Value:
    return f.b.trunc(f.b.lshr(value, at), f"i{bits}")


@lowers("prefetch", "prefetchu", "discard", "applypriority")
def hint(f: FunctionCodegen, instruction: Instruction) -> None:
    """Cache hints: no effect on results."""


@lowers("createpolicy")
def policy(f: FunctionCodegen, instruction: Instruction) -> None:
    """``createpolicy``: an opaque word that only cache hints read, and those have no effect."""
    f.write(instruction.operands[0], uniform(f.b.const("i64", 0)))


def taken(f: FunctionCodegen, instruction: Instruction, rest: list[Operand]) -> Operand:
    """The next operand, which a modifier asks for. Raises UnsupportedError where there is none."""
    if not rest:
        raise f.unsupported(instruction, f"{spell(instruction)} with {len(instruction.operands)} operands")
    return rest.pop(0)
