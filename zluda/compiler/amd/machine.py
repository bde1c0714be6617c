"""What every part of AMD's TargetOps knows: the target, the wave size, and which lane this is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zluda.compiler.amd.targets import Target
from zluda.compiler.gpu.thread import CONSTANT, Thread
from zluda.compiler.ir import Builder, Value, constant
from zluda.ptx.module import Instruction

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen


def structure_field(
    f: FunctionCodegen, intrinsic: str, structure: str, name: str, place: tuple[int, int]
) -> Value:
    """A field of a structure, by its byte offset and width, loaded once at the function's entry (``i32``)."""
    offset, bits = place
    pointer, field = CONSTANT, f"%{structure}.{name}"
    f.b.module.declare(intrinsic, f"{pointer} ()")

    def lines() -> list[str]:
        load = f"load i{bits}, {pointer} {field}.p, align {bits // 8}, !invariant.load !0"
        widened = [f"{field}.n = {load}", f"{field} = zext i16 {field}.n to i32"]
        return [
            f"{field}.b = call {pointer} @{intrinsic}()",
            f"{field}.p = getelementptr i8, {pointer} {field}.b, i64 {offset}",
            *(widened if bits == 16 else [f"{field} = {load}"]),
        ]

    return f.at_entry(field.removeprefix("%"), "i32", lines)


class Machine(Thread):
    """A thread is a lane of the machine, so a register is one scalar of LLVM's, and who executes is EXEC.

    ``hidden_arguments``: the loader passes those of code objects of version 5. ``end_refused``: a wave that
    comes to what cannot be done ends instead of trapping. ``one_warp``: a wave of 64 lanes holds one warp, in
    its lower half.
    """

    hidden_arguments = True
    end_refused = False
    one_warp = False

    def __init__(self, target: Target, wave_size: int) -> None:
        self.target, self.wave_size = target, wave_size

    def own(self, instruction: Instruction) -> None:
        """Every instruction is as its lowering has it."""

    @property
    def two_warps(self) -> bool:
        """Whether two warps share a wave."""
        return self.wave_size == 64 and not self.one_warp

    def hardware_lane(self, f: FunctionCodegen) -> Value:
        """The lane of the wave, from 0 (``i32``)."""
        f.b.module.declare("llvm.amdgcn.mbcnt.lo", "i32 (i32, i32)")
        f.b.module.declare("llvm.amdgcn.mbcnt.hi", "i32 (i32, i32)")
        lines = ["%lane.low = call i32 @llvm.amdgcn.mbcnt.lo(i32 -1, i32 0)"]
        if self.wave_size == 64:
            lines.append("%lane.wave = call i32 @llvm.amdgcn.mbcnt.hi(i32 -1, i32 %lane.low)")
        return f.at_entry("lane.wave" if self.wave_size == 64 else "lane.low", "i32", lambda: lines)

    def lane(self, f: FunctionCodegen) -> Value:
        """The lane of the warp, 0 to 31 (``i32``)."""
        lane = self.hardware_lane(f)
        return f.b.and_(lane, 31) if self.two_warps else lane

    def own_warp(self, f: FunctionCodegen, bits: Value) -> Value:
        """Of a bit a lane of the wave, those of this thread's warp (``i32``)."""
        if not self.two_warps:
            return f.b.trunc(bits, "i32")
        upper = f.b.zext(f.b.and_(self.hardware_lane(f), 32), "i64")
        return f.b.trunc(f.b.lshr(bits, upper), "i32")

    def vote(self, f: FunctionCodegen, predicate: Value) -> Value:
        """The executing lanes of the warp whose ``i1`` is set (``i32``)."""
        bits = f"i{self.wave_size}"
        return self.own_warp(f, f.b.call(f"llvm.amdgcn.ballot.{bits}", [predicate], bits))

    def executing(self, f: FunctionCodegen) -> Value:
        """The lanes of the warp that execute this together (``i32``)."""
        return self.vote(f, constant("i1", 1))

    def from_lane(self, f: FunctionCodegen, value: Value, lane: Value) -> Value:
        """``value`` (up to 64 bits) as an executing lane of the warp, 0 to 31, holds it."""
        if self.two_warps:
            lane = f.b.or_(lane, f.b.and_(self.hardware_lane(f), 32))
        return self.from_hardware_lane(f.b, value, lane)

    def from_hardware_lane(self, b: Builder, value: Value, lane: Value) -> Value:
        """``value`` (up to 64 bits) as an executing lane of the wave holds it."""
        if value.width == 64:
            halves = [b.trunc(b.lshr(value, shift), "i32") for shift in (0, 32)]
            low, high = (b.zext(self.from_hardware_lane(b, half, lane), "i64") for half in halves)
            return b.or_(low, b.shl(high, 32))
        found = b.call("llvm.amdgcn.ds.bpermute", [b.shl(lane, 2), b.zext(value, "i32")], "i32")
        return b.trunc(found, value.type)

    def counted_lane(self, b: Builder) -> Value:
        """The lane of the wave, in a function that has not computed it at its entry."""
        every = constant("i32", -1)
        low = b.call("llvm.amdgcn.mbcnt.lo", [every, constant("i32", 0)], "i32")
        return b.call("llvm.amdgcn.mbcnt.hi", [every, low], "i32") if self.wave_size == 64 else low
