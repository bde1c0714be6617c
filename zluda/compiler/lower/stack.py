"""``alloca``, ``stacksave`` and ``stackrestore`` (PTX ISA 9.7.17): a function's own piece of local memory.

Each lane takes its allocations off the top of a piece of fixed size that the function has, so lanes may take
different sizes and give them back on different paths. It goes with the function's frame.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zluda.compiler.ir import Value
from zluda.compiler.lanes import vectors
from zluda.compiler.layout import ALLOCA
from zluda.compiler.lower.lane_loops import if_lanes
from zluda.compiler.lower.table import lowers
from zluda.compiler.target import VARYING, Lanes
from zluda.ptx.module import Immediate, Instruction

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen

_DEFAULT_ALIGN = 8


class _Top:
    """Where each lane's allocations end: offsets in the piece, kept in the function's memory."""

    def __init__(self, f: FunctionCodegen) -> None:
        self.f = f
        if not f.alloca_tops:
            width = f.geometry.width
            f.alloca_tops = tuple(f.b.alloca("i32", width) for _ in range(f.geometry.groups))
            full = f.b.splat(f.b.const("i32", ALLOCA.size), width)
            for slot in f.alloca_tops:
                f.b.entry.append(f"store {full.typed}, {slot.typed}, align 64")

    def load(self) -> list[Value]:
        return [self.f.b.load("i32", slot, self.f.geometry.width, align=64) for slot in self.f.alloca_tops]

    def store(self, values: list[Value]) -> None:
        """For the lanes that execute."""
        b, masks = self.f.b, self._executing()
        for slot, value, old, mask in zip(self.f.alloca_tops, values, self.load(), masks, strict=True):
            b.store(b.select(mask, value, old), slot, align=64)

    def _executing(self) -> list[Value]:
        f, masks = self.f, self.f.mask_vectors()
        if f.guard is None:
            return masks
        return [f.b.and_(m, g) for m, g in zip(masks, f.vectors(f.guard), strict=True)]

    def write(self, instruction: Instruction, values: list[Value]) -> None:
        """Local addresses of offsets, to the instruction's destination."""
        f, bits = self.f, instruction.type.bits
        start = vectors(f.ops.symbol(f, ALLOCA.name), f.b, f.geometry)
        found = [f.b.add(s, f.b.resize(v, s.type)) for s, v in zip(start, values, strict=True)]
        f.write(instruction.operands[0], Lanes(VARYING, tuple(f.b.resize(v, f"i{bits}") for v in found)))

    def offsets(self, instruction: Instruction, address: Lanes) -> list[Value]:
        """What :meth:`write` made of them."""
        f = self.f
        start = vectors(f.ops.symbol(f, ALLOCA.name), f.b, f.geometry)
        given = vectors(address, f.b, f.geometry)
        return [
            f.b.sub(f.b.resize(g, "i32"), f.b.resize(s, "i32")) for s, g in zip(start, given, strict=True)
        ]


@lowers("alloca")
def alloca(f: FunctionCodegen, instruction: Instruction) -> None:
    """Room of ``size`` bytes; a launch ends where the function has no more."""
    b, top = f.b, _Top(f)
    size = vectors(f.resize(f.read_bits(instruction.operands[1], instruction.type.bits), 64), b, f.geometry)
    align = _DEFAULT_ALIGN
    if len(instruction.operands) > 2:
        given = instruction.operands[2]
        align = given.value if isinstance(given, Immediate) else 0
    if not 0 < align <= ALLOCA.align or align & (align - 1):
        raise f.unsupported(
            instruction, f"alloca aligned to {align} bytes; expected a power of two up to {ALLOCA.align}"
        )
    tops = top.load()
    too_large = [b.icmp("ugt", n, b.zext(t, "i64")) for n, t in zip(size, tops, strict=True)]
    if_lanes(f, too_large, lambda: f.ops.trap(f, "stack"))
    left = [b.and_(b.sub(t, b.trunc(n, "i32")), -align) for n, t in zip(size, tops, strict=True)]
    top.store(left)
    top.write(instruction, left)


@lowers("stacksave")
def stacksave(f: FunctionCodegen, instruction: Instruction) -> None:
    """Where allocations end now."""
    top = _Top(f)
    top.write(instruction, top.load())


@lowers("stackrestore")
def stackrestore(f: FunctionCodegen, instruction: Instruction) -> None:
    """Give back what was allocated since."""
    top = _Top(f)
    address = f.read_bits(instruction.operands[0], instruction.type.bits)
    top.store(top.offsets(instruction, address))
