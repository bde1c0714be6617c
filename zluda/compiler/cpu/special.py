"""Special registers on the CPU (PTX ISA 10): thread indices from warp and lane, the rest from the context."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from zluda.compiler.analysis.shapes import constant_shape
from zluda.compiler.clusters import IS_EXPLICIT, alias, cluster_constants
from zluda.compiler.cpu.context import Context
from zluda.compiler.idle import IDLE
from zluda.compiler.ir import Value, constant
from zluda.compiler.lanes import uniform, varying
from zluda.compiler.target import UNIFORM, VARYING, WARP, Geometry, Lanes, Shape
from zluda.errors import UnsupportedError

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen

LANES = tuple(range(WARP))
_BIG = 1 << 40

_CONTEXT = {f"%ctaid.{d}": ("ctaid", i) for i, d in enumerate("xyz")}
_CONTEXT |= {f"%nctaid.{d}": ("nctaid", i) for i, d in enumerate("xyz")}
_CONTEXT |= {
    **{f"%clusterid.{d}": ("clusterid", i) for i, d in enumerate("xyz")},
    **{f"%nclusterid.{d}": ("nclusterid", i) for i, d in enumerate("xyz")},
    **{f"%cluster_ctaid.{d}": ("cluster_ctaid", i) for i, d in enumerate("xyz")},
    "%cluster_ctarank": ("cluster_rank", 0),
    "%envreg1": ("workspace", 1),
    "%envreg2": ("workspace", 0),
    "%gridid": ("grid_id", 0),
    "%dynamic_smem_size": ("dynamic_shared_bytes", 0),
    "%total_smem_size": ("shared_bytes", 0),
    "%aggr_smem_size": ("shared_bytes", 0),
}

# One multiprocessor: what a program may rely on holds.
_CONSTANT = {"%smid": 0, "%nsmid": 1, **dict.fromkeys(IDLE, 0)}
_CONSTANT |= {"%ntid.w": 1, "%nctaid.w": 1, "%tid.w": 0, "%ctaid.w": 0}

LANE_MASKS: dict[str, Callable[[int], int]] = {
    "%lanemask_eq": lambda lane: 1 << lane,
    "%lanemask_lt": lambda lane: (1 << lane) - 1,
    "%lanemask_le": lambda lane: (2 << lane) - 1,
    "%lanemask_gt": lambda lane: (0xFFFFFFFF << (lane + 1)) & 0xFFFFFFFF,
    "%lanemask_ge": lambda lane: (0xFFFFFFFF << lane) & 0xFFFFFFFF,
}

_CLOCKS = {
    "%clock": 32,
    "%clock_hi": 32,
    "%clock64": 64,
    "%globaltimer": 64,
    "%globaltimer_lo": 32,
    "%globaltimer_hi": 32,
}


class SpecialRegisters:
    """The special-register part of the CPU's TargetOps."""

    geometry: Geometry

    def special_shape(self, f: FunctionCodegen, name: str) -> Shape:
        """The shape of a special register; a register that is not known is refused when it is read."""
        name = alias(f.unit, name)
        if name in ("%tid.x", "%tid.y", "%tid.z"):
            return _thread_shape(f.unit.block, "xyz".index(name[-1]))
        if name in ("%ntid.x", "%ntid.y", "%ntid.z"):
            return constant_shape(f.unit.block["xyz".index(name[-1])])
        if name == "%laneid":
            return Shape(LANES, 1, _BIG)
        if name in LANE_MASKS:
            return VARYING
        if name == "%nwarpid":
            return constant_shape(f.unit.warps)
        known = {**_CONSTANT, **cluster_constants(f.unit)}
        return constant_shape(known[name]) if name in known else UNIFORM

    def special(self, f: FunctionCodegen, name: str) -> Lanes:
        """Raises UnsupportedError for a register that this device does not have."""
        plain = alias(f.unit, name)
        shape = self.special_shape(f, plain)
        if shape.constant is not None:
            bits = 1 if plain == IS_EXPLICIT else IDLE.get(plain, 32)
            return Lanes(shape, (constant(f"i{bits}", shape.constant),))
        if plain.startswith("%tid."):
            return _thread_index(f, "xyz".index(plain[-1]), shape)
        if plain == "%laneid":
            return Lanes(shape, (constant("i32", 0),))
        if plain in LANE_MASKS:
            return self._lane_mask(f, LANE_MASKS[plain])
        if plain == "%warpid":
            return uniform(warp_number())
        if plain in _CONTEXT:
            field, index = _CONTEXT[plain]
            return uniform(context_field(f, field, "i64" if field == "grid_id" else "i32", index))
        if plain in _CLOCKS:
            return uniform(_clock(f, plain))
        raise UnsupportedError(f"special register {name}")

    def _lane_mask(self, f: FunctionCodegen, mask: Callable[[int], int]) -> Lanes:
        width = self.geometry.width
        parts = [
            f.b.vector("i32", [mask(g * width + i) for i in range(width)])
            for g in range(self.geometry.groups)
        ]
        return varying(parts, self.geometry, f.b)


def warp_number() -> Value:
    """The warp's index in its block: an argument of every generated function."""
    return Value("i32", 1, "%warp")


def context_pointer() -> Value:
    """The block's context: an argument of every generated function."""
    return Value("ptr", 1, "%context")


def context_field(f: FunctionCodegen, field: str, element: str, index: int = 0) -> Value:
    """A field of the context, loaded once at the function's entry."""
    name = f"context.{field}.{index}"

    def lines() -> list[str]:
        offset = getattr(Context, field).offset + index * (int(element[1:]) // 8)
        return [
            f"%{name}.p = getelementptr i8, ptr %context, i64 {offset}",
            f"%{name} = load {element}, ptr %{name}.p, align 4",
        ]

    return f.at_entry(name, element, lines)


def _linear(block: tuple[int, int, int]) -> bool:
    """Whether each warp lies in one row: x alone changes from lane to lane."""
    x, y, z = block
    return x % WARP == 0 or y * z == 1


def _thread_shape(block: tuple[int, int, int], axis: int) -> Shape:
    x, y, z = block
    if block[axis] == 1:
        return constant_shape(0)
    if _linear(block):
        return Shape(LANES, 1, WARP) if axis == 0 else UNIFORM
    if WARP % x == 0:  # whole rows a warp
        rows = WARP // x
        if axis == 0:
            return Shape(tuple(lane % x for lane in LANES), 1, _BIG)
        if y % rows == 0:
            if axis == 2:
                return UNIFORM
            return Shape(tuple(lane // x for lane in LANES), 1, rows if rows & (rows - 1) == 0 else 1)
        if z == 1 and axis == 1:
            return Shape(tuple(lane // x for lane in LANES), 1, rows)
    return VARYING


def _thread_index(f: FunctionCodegen, axis: int, shape: Shape) -> Lanes:
    """``%tid``: the base of the warp's threads along an axis, or a division of the thread number by lane."""
    b = f.b
    warp = warp_number()
    if shape.varying:
        thread = [
            b.add(f.lane_numbers(g), b.splat(b.shl(warp, 5), f.geometry.width))
            for g in range(f.geometry.groups)
        ]
        return varying([along(f, t, axis) for t in thread], f.geometry, b)
    if axis == 0 and not _linear(f.unit.block):
        return Lanes(shape, (constant("i32", 0),))
    # The first thread's index; where a warp holds whole rows this is the first row.
    return Lanes(shape, (along(f, b.shl(warp, 5), axis),))


def along(f: FunctionCodegen, thread: Value, axis: int) -> Value:
    """A thread number's index along an axis (PTX ISA 2.1: x runs fastest)."""
    b, (x, y, z) = f.b, f.unit.block
    size, before = ((x, 1), (y, x), (z, x * y))[axis]
    along = b.udiv(thread, before) if before > 1 else thread
    whole = before * size >= f.unit.threads
    return along if whole else b.urem(along, size)


def _clock(f: FunctionCodegen, name: str) -> Value:
    """A counter that never runs backwards."""
    ticks = f.b.call("llvm.readcyclecounter", [], "i64")
    if name.endswith("_hi"):
        ticks = f.b.lshr(ticks, 32)
    return f.b.trunc(ticks, f"i{_CLOCKS[name]}")
