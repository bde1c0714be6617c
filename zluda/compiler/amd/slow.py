"""One warp a wave of 64 lanes: ``ZLUDA_WAVE64_SLOW_MODE``.

A block is dispatched as so many waves as it has warps, in one dimension. The upper half of each wave leaves
at once, and so do the last warp's missing threads; a thread's place in the block is computed from its wave
and lane. The block's own size follows the kernel's parameters as three 32-bit words, right in front of the
hidden arguments, where functions find it too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zluda.compiler.amd.machine import Machine, structure_field
from zluda.compiler.ir import Value
from zluda.compiler.layout import round_up
from zluda.compiler.target import WARP, Dim3

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen

WAVE = 64
_SIZES = 16
"""Bytes of the block's size, padded; the hidden arguments behind them are aligned to 8."""


def parameter_bytes(explicit: int) -> int:
    """Bytes of the parameters with the block's size, for a kernel with ``explicit`` bytes of its own."""
    return round_up(explicit, 8) + _SIZES


def dispatch(block: Dim3, parameters: bytes, explicit: int) -> tuple[Dim3, bytes]:
    """The block's shape in work items, and the parameters with its size behind them."""
    x, y, z = block
    warps = -(-x * y * z // WARP)
    start = round_up(explicit, 8)
    sizes = b"".join(n.to_bytes(4, "little") for n in (*block, 0))
    return (warps * WAVE, 1, 1), parameters[:explicit].ljust(start, b"\0") + sizes


def thread_of(work_item: int) -> int:
    """The number in its block of the thread that a work item is."""
    return work_item // WAVE * WARP + work_item % WAVE


def size(f: FunctionCodegen, axis: str) -> Value:
    """Threads of the block along an axis."""
    offset = 4 * "xyz".index(axis) - _SIZES
    return structure_field(f, "llvm.amdgcn.implicitarg.ptr", "block", f"size_{axis}", (offset, 32))


def _work_item(f: FunctionCodegen) -> Value:
    name = "llvm.amdgcn.workitem.id.x"
    f.b.module.declare(name, "i32 ()")
    return f.at_entry(name, "i32", lambda: [f"%{name} = call i32 @{name}()"])


def linear_thread(ops: Machine, f: FunctionCodegen) -> Value:
    """The thread's number in its block, x fastest."""
    b = f.b
    return b.or_(b.shl(b.lshr(_work_item(f), 6), 5), ops.lane(f))


def thread(ops: Machine, f: FunctionCodegen, axis: str) -> Value:
    """The thread's index along an axis."""
    b, number = f.b, linear_thread(ops, f)
    width, height = size(f, "x"), size(f, "y")
    return {
        "x": lambda: b.urem(number, width),
        "y": lambda: b.urem(b.udiv(number, width), height),
        "z": lambda: b.udiv(b.udiv(number, width), height),
    }[axis]()


def guard(ops: Machine, f: FunctionCodegen, leave: str) -> None:
    """At a kernel's start: lanes that are no thread of the block go to ``leave``."""
    b = f.b
    x, y, z = (size(f, axis) for axis in "xyz")
    threads = b.mul(b.mul(x, y), z)
    lower = b.icmp("ult", ops.hardware_lane(f), WARP)
    inside = b.icmp("ult", linear_thread(ops, f), threads)
    stay = b.fresh("thread")
    b.cond_branch(b.and_(lower, inside), stay, leave)
    b.label(stay)
