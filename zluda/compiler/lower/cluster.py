"""Addresses in the shared memory of a cluster (PTX ISA 9.7.9.23, .24).

In clusters of several blocks a shared address holds the block's rank above ``TargetOps.block_shift`` bits, as
on NVIDIA GPUs; where every block is its cluster's only one it is the block's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from zluda.compiler.ir import Value, constant
from zluda.compiler.lanes import uniform
from zluda.compiler.lower.memory import map_lanes
from zluda.compiler.lower.table import lowers
from zluda.ptx.module import Element, Instruction, Operand, Symbol

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen
    from zluda.compiler.target import Lanes


def _address(f: FunctionCodegen, instruction: Instruction, operand: Operand) -> Lanes:
    """The address operand: of a shared variable, generic where no space is written."""
    bits = instruction.type.bits
    if not isinstance(operand, Symbol | Element) or "space" in instruction.slots:
        return f.read_bits(operand, bits)
    base = f.resize(f.read(operand), 64)
    start = f.ops.window(f, "shared")
    return map_lanes(f, [base], lambda v: f.b.resize(f.b.add(v[0], start), f"i{bits}"))


def in_window(
    f: FunctionCodegen, address: Lanes, others: list[Lanes], *, generic: bool, change: Callable[..., Value]
) -> Lanes:
    """``change(place in the window, others…)`` of an address that is generic or in the window already."""
    b, bits = f.b, address.type
    start = b.resize(f.ops.window(f, "shared"), bits)

    def apply(values: list[Value]) -> Value:
        return change(b.sub(values[0], start) if generic else values[0], *values[1:])

    return map_lanes(f, [address, *others], apply)


def of_block(f: FunctionCodegen, place: Value, rank: Value) -> Value:
    """The place in the block of a rank (``i32``) at which ``place`` is in its own."""
    b = f.b
    shift = b.resize(f.ops.block_shift(f), place.type)
    inside = b.sub(b.shl(b.const(place.type, 1), shift), 1)
    return b.or_(b.and_(place, b.splat(inside, place.lanes)), b.shl(b.resize(rank, place.type), shift))


@lowers("mapa")
def map_address(f: FunctionCodegen, instruction: Instruction) -> None:
    """``mapa``: the same place in the memory of the cluster's block of a rank."""
    destination, source, rank = instruction.operands
    address = _address(f, instruction, source)
    if not f.unit.clustered:
        f.write(destination, address)
        return
    generic = "space" not in instruction.slots
    start = f.b.resize(f.ops.window(f, "shared"), address.type)

    def mapped(place: Value, rank: Value) -> Value:
        found = of_block(f, place, rank)
        return f.b.add(found, start) if generic else found

    f.write(destination, in_window(f, address, [f.read_bits(rank, 32)], generic=generic, change=mapped))


@lowers("getctarank")
def block_rank(f: FunctionCodegen, instruction: Instruction) -> None:
    """``getctarank``: the rank of the block in whose memory an address is."""
    destination, source = instruction.operands
    if not f.unit.clustered:
        f.write(destination, uniform(f.b.const("i32", 0)))
        return

    def rank(place: Value) -> Value:
        shift = f.b.resize(f.ops.block_shift(f), place.type)
        return f.b.resize(f.b.lshr(place, shift), "i32")

    address = _address(f, instruction, source)
    f.write(destination, in_window(f, address, [], generic="space" not in instruction.slots, change=rank))


def blocks_of(f: FunctionCodegen, mask: Lanes | None) -> list[tuple[Value | None, list[Value] | None]]:
    """(rank, lanes that deliver to it) of the cluster's blocks; without a multicast, one that is not named.

    In a cluster of one block that is all there is of a multicast, too, for lanes whose mask has bit 0.
    """
    if mask is None:
        return [(None, None)]
    masks = f.vectors(mask)
    found: list[tuple[Value | None, list[Value] | None]] = []
    for rank in range(f.unit.together.blocks):
        lanes = [f.b.icmp("ne", f.b.and_(m, 1 << rank), 0) for m in masks]
        found.append((constant("i32", rank) if f.unit.clustered else None, lanes))
    return found
