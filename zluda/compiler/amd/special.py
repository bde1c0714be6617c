"""Special registers on AMD GPUs (PTX ISA 10): from the hardware's ids, hidden arguments, the dispatch packet.

Threads fill a wave in CUDA's order (x fastest), so a warp is a wave of 32 lanes, or half a wave of 64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from zluda.compiler.amd import slow
from zluda.compiler.amd.clusters import CLUSTER_REGISTERS, ClusterOps
from zluda.compiler.amd.machine import Machine
from zluda.compiler.amd.surroundings import external, grid_size, hardware, hidden, packet
from zluda.compiler.analysis.shapes import constant_shape
from zluda.compiler.clusters import IS_EXPLICIT, alias, cluster_constants
from zluda.compiler.gpu.thread import one
from zluda.compiler.idle import IDLE
from zluda.compiler.ir import Value, constant
from zluda.compiler.target import UNIFORM, WARP, Lanes, Shape
from zluda.errors import UnsupportedError

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen

# One multiprocessor: what a program may rely on holds.
_CONSTANT = {"%smid": 0, "%nsmid": 1, **dict.fromkeys(IDLE, 0)}
_CONSTANT |= {"%ntid.w": 1, "%nctaid.w": 1, "%tid.w": 0, "%ctaid.w": 0, "%gridid": 0}
_WIDTHS = {"%gridid": "i64", IS_EXPLICIT: "i1", **{name: f"i{bits}" for name, bits in IDLE.items()}}


class SpecialRegisters(ClusterOps):
    """The special-register part of AMD's TargetOps."""

    def special_shape(self, f: FunctionCodegen, name: str) -> Shape:
        """One lane's: uniform."""
        known = {**_CONSTANT, **cluster_constants(f.unit)}
        return constant_shape(known[name]) if name in known else UNIFORM

    def special(self, f: FunctionCodegen, name: str) -> Lanes:
        """Raises UnsupportedError for a register that these targets do not have."""
        plain = alias(f.unit, name)
        shape = self.special_shape(f, plain)
        if shape.constant is not None:
            return Lanes(shape, (constant(_WIDTHS.get(plain, "i32"), shape.constant),))
        if f.unit.clustered and plain in CLUSTER_REGISTERS:
            return one(CLUSTER_REGISTERS[plain](self, f))
        if plain not in _REGISTERS:
            raise UnsupportedError(f"special register {name}")
        return one(_REGISTERS[plain](self, f))

    def group_bytes(self, f: FunctionCodegen) -> Value:
        """Shared memory of a block, static and dynamic, in bytes (``i32``)."""
        if f.unit.clustered:
            return f.b.add(_dynamic_shared(self, f), f.unit.shared.dynamic_offset)
        return packet(f, "group_segment_size")


def _thread(axis: str) -> Callable[[Machine, FunctionCodegen], Value]:
    read = hardware(f"llvm.amdgcn.workitem.id.{axis}")
    return lambda ops, f: slow.thread(ops, f, axis) if ops.one_warp else read(ops, f)


def _block_size(axis: str) -> Callable[[Machine, FunctionCodegen], Value]:
    return lambda ops, f: _size(ops, f, axis)


def _size(ops: Machine, f: FunctionCodegen, axis: str) -> Value:
    """Threads of a block along an axis: known where the kernel says so (``.reqntid``)."""
    required = f.unit.kernel.directives.get("reqntid", ())
    if required:
        return constant("i32", (*required, 1, 1)["xyz".index(axis)])
    if ops.one_warp:
        return slow.size(f, axis)
    read = hidden if ops.hidden_arguments else packet
    return read(f, f"workgroup_size_{axis}")


def block_threads(ops: Machine, f: FunctionCodegen) -> Value:
    x, y, z = (_size(ops, f, d) for d in "xyz")
    return f.b.mul(f.b.mul(x, y), z)


def _warp_number(ops: Machine, f: FunctionCodegen) -> Value:
    b = f.b
    x, y, z = (_thread(d)(ops, f) for d in "xyz")
    size_x, size_y = (_size(ops, f, d) for d in "xy")
    return b.lshr(b.add(b.mul(b.add(b.mul(z, size_y), y), size_x), x), 5)


def _warps(ops: Machine, f: FunctionCodegen) -> Value:
    return f.b.lshr(f.b.add(block_threads(ops, f), WARP - 1), 5)


def _lane_mask(ones: int, moved: int, *, above: bool) -> Callable[[Machine, FunctionCodegen], Value]:
    """``ones`` shifted left by the lane (and ``moved`` more), less one where it is of the lanes below."""

    def compute(ops: Machine, f: FunctionCodegen) -> Value:
        b = f.b
        lane = b.zext(ops.lane(f), "i64")
        mask = b.trunc(b.shl(b.shl(constant("i64", ones), lane), moved), "i32")
        return mask if above else b.sub(mask, 1)

    return compute


def _dynamic_shared(ops: SpecialRegisters, f: FunctionCodegen) -> Value:
    """What the packet asks for beyond the kernel's own."""
    if f.unit.clustered:
        return ops.dynamic_bytes(f)
    return f.b.intrinsic("usub.sat", packet(f, "group_segment_size"), f.unit.shared.dynamic_offset)


WORKSPACE = "zluda.workspace"
"""A symbol of this compiler's own: where the blocks of a cooperative grid synchronise."""


def _workspace(shift: int) -> Callable[[Machine, FunctionCodegen], Value]:
    """Half of its address, as ``cooperative_groups`` finds it; nothing where the grid is not cooperative."""

    def read(ops: Machine, f: FunctionCodegen) -> Value:
        if not f.unit.together.cooperative:
            return constant("i32", 0)
        return f.b.trunc(f.b.lshr(external(f, WORKSPACE, 64), shift), "i32")

    return read


def _clock(bits: int, shift: int, *, steady: bool) -> Callable[[Machine, FunctionCodegen], Value]:
    """A counter that never runs backwards: shader cycles, or the constant-speed clock.

    From generation 11 on the cycle counter has 20 bits, so there it is always the other.
    """

    def read(ops: Machine, f: FunctionCodegen) -> Value:
        realtime = steady or ops.target.generation >= 11
        name = "llvm.readsteadycounter" if realtime else "llvm.readcyclecounter"
        ticks = f.b.call(name, [], "i64")
        return f.b.trunc(f.b.lshr(ticks, shift), f"i{bits}")

    return read


_REGISTERS: dict[str, Callable[[SpecialRegisters, FunctionCodegen], Value]] = {
    **{f"%tid.{d}": _thread(d) for d in "xyz"},
    **{f"%ntid.{d}": _block_size(d) for d in "xyz"},
    **{f"%ctaid.{d}": hardware(f"llvm.amdgcn.workgroup.id.{d}") for d in "xyz"},
    **{f"%nctaid.{d}": grid_size(d) for d in "xyz"},
    "%laneid": lambda ops, f: ops.lane(f),
    "%warpid": _warp_number,
    "%nwarpid": _warps,
    "%lanemask_eq": _lane_mask(1, 0, above=True),
    "%lanemask_lt": _lane_mask(1, 0, above=False),
    "%lanemask_le": _lane_mask(1, 1, above=False),
    "%lanemask_gt": _lane_mask(-1, 1, above=True),
    "%lanemask_ge": _lane_mask(-1, 0, above=True),
    "%dynamic_smem_size": _dynamic_shared,
    "%total_smem_size": lambda ops, f: ops.group_bytes(f),
    "%aggr_smem_size": lambda ops, f: ops.group_bytes(f),
    "%envreg1": _workspace(32),
    "%envreg2": _workspace(0),
    "%clock": _clock(32, 0, steady=False),
    "%clock_hi": _clock(32, 32, steady=False),
    "%clock64": _clock(64, 0, steady=False),
    "%globaltimer": _clock(64, 0, steady=True),
    "%globaltimer_lo": _clock(32, 0, steady=True),
    "%globaltimer_hi": _clock(32, 32, steady=True),
}
