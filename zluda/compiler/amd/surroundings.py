"""What a wave finds around it: the hardware's ids, the dispatch packet, hidden arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from zluda.compiler.amd.machine import Machine, structure_field
from zluda.compiler.gpu.thread import GLOBAL
from zluda.compiler.ir import Value

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen

# hsa_kernel_dispatch_packet_t: byte offset and width of a field (HSA Runtime Specification 2.8.5).
_PACKET = {f"workgroup_size_{d}": (4 + 2 * i, 16) for i, d in enumerate("xyz")}
_PACKET |= {f"grid_size_{d}": (12 + 4 * i, 32) for i, d in enumerate("xyz")}
_PACKET |= {"private_segment_size": (24, 32), "group_segment_size": (28, 32)}
# Hidden kernel arguments, from code object version 5 on (LLVM "User Guide for AMDGPU Backend", Code Object V5
# Metadata): the grid counted in blocks, where the packet has it in threads.
_HIDDEN = {f"block_count_{d}": (4 * i, 32) for i, d in enumerate("xyz")}
_HIDDEN |= {f"workgroup_size_{d}": (12 + 2 * i, 16) for i, d in enumerate("xyz")}


def hardware(intrinsic: str) -> Callable[[Machine, FunctionCodegen], Value]:
    def read(ops: Machine, f: FunctionCodegen) -> Value:
        f.b.module.declare(intrinsic, "i32 ()")
        return f.at_entry(intrinsic, "i32", lambda: [f"%{intrinsic} = call i32 @{intrinsic}()"])

    return read


def packet(f: FunctionCodegen, name: str) -> Value:
    """A field of the dispatch packet."""
    return structure_field(f, "llvm.amdgcn.dispatch.ptr", "packet", name, _PACKET[name])


def hidden(f: FunctionCodegen, name: str) -> Value:
    """A hidden argument."""
    return structure_field(f, "llvm.amdgcn.implicitarg.ptr", "hidden", name, _HIDDEN[name])


def grid_size(axis: str) -> Callable[[Machine, FunctionCodegen], Value]:
    """A packet counts the grid in threads, of which every block has as many."""

    def read(ops: Machine, f: FunctionCodegen) -> Value:
        if ops.hidden_arguments:
            return hidden(f, f"block_count_{axis}")
        size = packet(f, f"workgroup_size_{axis}")
        return f.b.binary("udiv exact", packet(f, f"grid_size_{axis}"), size)

    return read


def external(f: FunctionCodegen, name: str, align: int) -> Value:
    """The address (``i64``) of a symbol that the linker is given."""
    f.unit.symbol_index(name)
    f.unit.ir.globals[name] = f'@"{name}" = external addrspace(1) global [0 x i8], align {align}'
    return f.b.cast("ptrtoint", Value(GLOBAL, 1, f'@"{name}"'), "i64")
