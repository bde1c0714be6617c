"""Clusters of several blocks on AMD GPUs, whose workgroups cannot reach each other's LDS.

A cluster is so many workgroups in a row, and the shared memory of its blocks is device memory: a power of two
of bytes for each block, by its number in the row. In front of all that, each cluster has a record for its
barrier. Where the memory is follows the kernel's parameters, as :func:`parameters` lays it out.

Blocks of a cluster wait for each other by polling. Workgroups begin in order, so a cluster that has begun
finds room for the rest of it when those before it have ended.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from zluda.compiler.amd.machine import Machine, structure_field
from zluda.compiler.amd.surroundings import grid_size, hardware
from zluda.compiler.ir import Value, constant
from zluda.compiler.layout import round_up
from zluda.compiler.target import Dim3

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen

RECORD_BYTES = 64
_BYTES = 16
_FIELDS = {"low": 0, "high": 4, "shift": 8, "dynamic": 12}


def parameter_bytes(explicit: int) -> int:
    """Bytes of the parameters and what follows, for a kernel with ``explicit`` bytes of its own."""
    return round_up(explicit, 8) + _BYTES


def parameters(explicit: bytes, start: int, shift: int, dynamic: int) -> bytes:
    """A kernel's own parameters, with where blocks' memory begins, a block's size (log 2), dynamic bytes."""
    padded = explicit.ljust(round_up(len(explicit), 8), b"\0")
    return padded + start.to_bytes(8, "little") + shift.to_bytes(4, "little") + dynamic.to_bytes(4, "little")


class ClusterOps(Machine):
    """The part of AMD's TargetOps about blocks of a cluster and their memory."""

    def _given(self, f: FunctionCodegen, name: str) -> Value:
        """A word behind the parameters; at one warp a wave the block's size stands between."""
        offset = _FIELDS[name] - _BYTES * (2 if self.one_warp else 1)
        return structure_field(f, "llvm.amdgcn.implicitarg.ptr", "cluster", name, (offset, 32))

    def _workgroup(self, f: FunctionCodegen) -> Value:
        """The workgroup's number in the grid, x fastest (``i32``)."""
        b = f.b
        x, y, z = (hardware(f"llvm.amdgcn.workgroup.id.{d}")(self, f) for d in "xyz")
        width, height = (grid_size(d)(self, f) for d in "xy")
        return b.add(b.mul(b.add(b.mul(z, height), y), width), x)

    def cluster_number(self, f: FunctionCodegen) -> Value:
        """Which cluster of the grid this is (``i32``)."""
        return f.b.udiv(self._workgroup(f), f.unit.together.blocks)

    def cluster_rank(self, f: FunctionCodegen) -> Value:
        """Which block of its cluster this is (``i32``)."""
        return f.b.urem(self._workgroup(f), f.unit.together.blocks)

    def block_shift(self, f: FunctionCodegen) -> Value:
        """See :class:`~zluda.compiler.target.TargetOps`."""
        return self._given(f, "shift")

    def dynamic_bytes(self, f: FunctionCodegen) -> Value:
        """Dynamic shared memory of a block of a cluster (``i32``)."""
        return self._given(f, "dynamic")

    def _start(self, f: FunctionCodegen) -> Value:
        b = f.b
        low, high = (b.zext(self._given(f, name), "i64") for name in ("low", "high"))
        return b.or_(b.shl(high, 32), low)

    def _block(self, f: FunctionCodegen, number: Value) -> Value:
        b = f.b
        shift = b.zext(self.block_shift(f), "i64")
        return b.add(self._start(f), b.shl(b.zext(number, "i64"), shift))

    def own_memory(self, f: FunctionCodegen) -> Value:
        """The address (``i64``) of the block's shared memory."""
        return self._block(f, self._workgroup(f))

    def cluster_memory(self, f: FunctionCodegen) -> Value:
        """The address (``i64``) of the shared memory of the cluster's first block."""
        return self._block(f, f.b.mul(self.cluster_number(f), f.unit.together.blocks))

    def cluster_bytes(self, f: FunctionCodegen) -> Value:
        """The size (``i64``) of all shared memory of a cluster."""
        count = constant("i64", f.unit.together.blocks)
        return f.b.shl(count, f.b.zext(self.block_shift(f), "i64"))

    def cluster_record(self, f: FunctionCodegen) -> Value:
        """The address (``i64``) of the cluster's record."""
        b = f.b
        before = b.mul(b.add(b.zext(self.cluster_number(f), "i64"), 1), RECORD_BYTES)
        return b.sub(self._start(f), before)


def _shape(f: FunctionCodegen) -> Dim3:
    return f.unit.together.cluster or (1, 1, 1)


def _along(f: FunctionCodegen, number: Value, sizes: list[Value | int], axis: int) -> Value:
    """A number's index along an axis, x fastest."""
    for size in sizes[:axis]:
        number = f.b.udiv(number, size)
    return number if axis == 2 else f.b.urem(number, sizes[axis])


def _clusters(axis: int) -> Callable[[ClusterOps, FunctionCodegen], Value]:
    return lambda ops, f: f.b.udiv(grid_size("xyz"[axis])(ops, f), _shape(f)[axis])


def _cluster(axis: int) -> Callable[[ClusterOps, FunctionCodegen], Value]:
    def read(ops: ClusterOps, f: FunctionCodegen) -> Value:
        sizes: list[Value | int] = [_clusters(a)(ops, f) for a in range(2)]
        return _along(f, ops.cluster_number(f), sizes, axis)

    return read


def _place(axis: int) -> Callable[[ClusterOps, FunctionCodegen], Value]:
    return lambda ops, f: _along(f, ops.cluster_rank(f), [*_shape(f)], axis)


def _block(axis: int) -> Callable[[ClusterOps, FunctionCodegen], Value]:
    def read(ops: ClusterOps, f: FunctionCodegen) -> Value:
        return f.b.add(f.b.mul(_cluster(axis)(ops, f), _shape(f)[axis]), _place(axis)(ops, f))

    return read


CLUSTER_REGISTERS: dict[str, Callable[[ClusterOps, FunctionCodegen], Value]] = {
    "%cluster_ctarank": lambda ops, f: ops.cluster_rank(f),
    **{f"%clusterid.{d}": _cluster(i) for i, d in enumerate("xyz")},
    **{f"%nclusterid.{d}": _clusters(i) for i, d in enumerate("xyz")},
    **{f"%cluster_ctaid.{d}": _place(i) for i, d in enumerate("xyz")},
    **{f"%ctaid.{d}": _block(i) for i, d in enumerate("xyz")},
}
"""What differs from a launch without clusters of several blocks."""
