"""Special registers on AMD GPUs (PTX ISA 10): from the hardware's ids, hidden arguments, the dispatch packet.

Threads fill a wave in CUDA's order (x fastest), so a warp is a wave of 32 lanes, or half a wave of 64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from zluda.compiler.amd import slow
from zluda.compiler.amd.machine import Machine, one, structure_field
from zluda.compiler.analysis.shapes import UNIFORM, constant_shape
from zluda.compiler.ir import Value, constant
from zluda.compiler.target import WARP, Lanes, Shape
from zluda.errors import UnsupportedError

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen

# hsa_kernel_dispatch_packet_t: byte offset and width of a field (HSA Runtime Specification 2.8.5).
_PACKET = {f"workgroup_size_{d}": (4 + 2 * i, 16) for i, d in enumerate("xyz")}
_PACKET |= {f"grid_size_{d}": (12 + 4 * i, 32) for i, d in enumerate("xyz")}
_PACKET |= {"group_segment_size": (28, 32)}
# Hidden kernel arguments, from code object version 5 on (LLVM "User Guide for AMDGPU Backend", Code Object V5
# Metadata): the grid counted in blocks, where the packet has it in threads.
_HIDDEN = {f"block_count_{d}": (4 * i, 32) for i, d in enumerate("xyz")}
_HIDDEN |= {f"workgroup_size_{d}": (12 + 2 * i, 16) for i, d in enumerate("xyz")}

# One multiprocessor, one cluster of one block: what a program may rely on holds.
_CONSTANT = {"%smid": 0, "%nsmid": 1, "%reserved_smem_offset_begin": 0, "%reserved_smem_offset_end": 0}
_CONSTANT |= {"%is_explicit_cluster": 0, "%cluster_ctarank": 0, "%cluster_nctarank": 1, "%gridid": 0}
_CONSTANT |= {f"%cluster_ctaid.{d}": 0 for d in "xyz"} | {f"%cluster_nctaid.{d}": 1 for d in "xyz"}
_CONSTANT |= {"%ntid.w": 1, "%nctaid.w": 1, "%tid.w": 0, "%ctaid.w": 0}
_ALIASES = {f"%clusterid.{d}": f"%ctaid.{d}" for d in "xyz"}
_ALIASES |= {f"%nclusterid.{d}": f"%nctaid.{d}" for d in "xyz"}


class SpecialRegisters(Machine):
    """The special-register part of AMD's TargetOps."""

    def special_shape(self, f: FunctionCodegen, name: str) -> Shape:
        """One lane's: uniform."""
        return constant_shape(_CONSTANT[name]) if name in _CONSTANT else UNIFORM

    def special(self, f: FunctionCodegen, name: str) -> Lanes:
        """Raises UnsupportedError for a register that these targets do not have."""
        plain = _ALIASES.get(name, name)
        if plain in _CONSTANT:
            bits = "i64" if plain == "%gridid" else "i32"
            return Lanes(self.special_shape(f, plain), (constant(bits, _CONSTANT[plain]),))
        if plain not in _REGISTERS:
            raise UnsupportedError(f"special register {name}")
        return one(_REGISTERS[plain](self, f))

    def group_bytes(self, f: FunctionCodegen) -> Value:
        """Shared memory of a block, static and dynamic, in bytes (``i32``)."""
        return _packet(f, "group_segment_size")


def _hardware(intrinsic: str) -> Callable[[Machine, FunctionCodegen], Value]:
    def read(ops: Machine, f: FunctionCodegen) -> Value:
        f.b.module.declare(intrinsic, "i32 ()")
        return f.at_entry(intrinsic, "i32", lambda: [f"%{intrinsic} = call i32 @{intrinsic}()"])

    return read


def _packet(f: FunctionCodegen, name: str) -> Value:
    """A field of the dispatch packet."""
    return structure_field(f, "llvm.amdgcn.dispatch.ptr", "packet", name, _PACKET[name])


def _hidden(f: FunctionCodegen, name: str) -> Value:
    """A hidden argument."""
    return structure_field(f, "llvm.amdgcn.implicitarg.ptr", "hidden", name, _HIDDEN[name])


def _thread(axis: str) -> Callable[[Machine, FunctionCodegen], Value]:
    read = _hardware(f"llvm.amdgcn.workitem.id.{axis}")
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
    read = _hidden if ops.hidden_arguments else _packet
    return read(f, f"workgroup_size_{axis}")


def _grid_size(axis: str) -> Callable[[Machine, FunctionCodegen], Value]:
    """A packet counts the grid in threads, of which every block has as many."""

    def read(ops: Machine, f: FunctionCodegen) -> Value:
        if ops.hidden_arguments:
            return _hidden(f, f"block_count_{axis}")
        size = _packet(f, f"workgroup_size_{axis}")
        return f.b.binary("udiv exact", _packet(f, f"grid_size_{axis}"), size)

    return read


def _block_threads(ops: Machine, f: FunctionCodegen) -> Value:
    x, y, z = (_size(ops, f, d) for d in "xyz")
    return f.b.mul(f.b.mul(x, y), z)


def _warp_number(ops: Machine, f: FunctionCodegen) -> Value:
    b = f.b
    x, y, z = (_thread(d)(ops, f) for d in "xyz")
    size_x, size_y = (_size(ops, f, d) for d in "xy")
    return b.lshr(b.add(b.mul(b.add(b.mul(z, size_y), y), size_x), x), 5)


def _warps(ops: Machine, f: FunctionCodegen) -> Value:
    return f.b.lshr(f.b.add(_block_threads(ops, f), WARP - 1), 5)


def _lane_mask(ones: int, moved: int, *, above: bool) -> Callable[[Machine, FunctionCodegen], Value]:
    """``ones`` shifted left by the lane (and ``moved`` more), less one where it is of the lanes below."""

    def compute(ops: Machine, f: FunctionCodegen) -> Value:
        b = f.b
        lane = b.zext(ops.lane(f), "i64")
        mask = b.trunc(b.shl(b.shl(constant("i64", ones), lane), moved), "i32")
        return mask if above else b.sub(mask, 1)

    return compute


def _dynamic_shared(ops: Machine, f: FunctionCodegen) -> Value:
    """What the packet asks for beyond the kernel's own."""
    return f.b.intrinsic("usub.sat", _packet(f, "group_segment_size"), f.unit.shared.dynamic_offset)


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


_REGISTERS: dict[str, Callable[[Machine, FunctionCodegen], Value]] = {
    **{f"%tid.{d}": _thread(d) for d in "xyz"},
    **{f"%ntid.{d}": _block_size(d) for d in "xyz"},
    **{f"%ctaid.{d}": _hardware(f"llvm.amdgcn.workgroup.id.{d}") for d in "xyz"},
    **{f"%nctaid.{d}": _grid_size(d) for d in "xyz"},
    "%laneid": lambda ops, f: ops.lane(f),
    "%warpid": _warp_number,
    "%nwarpid": _warps,
    "%lanemask_eq": _lane_mask(1, 0, above=True),
    "%lanemask_lt": _lane_mask(1, 0, above=False),
    "%lanemask_le": _lane_mask(1, 1, above=False),
    "%lanemask_gt": _lane_mask(-1, 1, above=True),
    "%lanemask_ge": _lane_mask(-1, 0, above=True),
    "%dynamic_smem_size": _dynamic_shared,
    "%total_smem_size": lambda ops, f: _packet(f, "group_segment_size"),
    "%aggr_smem_size": lambda ops, f: _packet(f, "group_segment_size"),
    "%clock": _clock(32, 0, steady=False),
    "%clock_hi": _clock(32, 32, steady=False),
    "%clock64": _clock(64, 0, steady=False),
    "%globaltimer": _clock(64, 0, steady=True),
    "%globaltimer_lo": _clock(32, 0, steady=True),
    "%globaltimer_hi": _clock(32, 32, steady=True),
}
