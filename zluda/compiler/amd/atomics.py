"""Atomic operations on AMD GPUs: instructions for integers, compare-and-swap loops for floats.

A float's new value is computed as NVIDIA's units do, which AMD's floating-point atomics do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zluda.compiler.amd.memory import MemoryOps, sync_scope
from zluda.compiler.gpu.thread import one
from zluda.compiler.ir import Value, constant
from zluda.compiler.lower.read_modify_write import failure, instruction_name, is_computed, swap_loop
from zluda.compiler.services import EXCHANGE_128
from zluda.compiler.target import Lanes
from zluda.ptx.types import ScalarType

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen

_ORDERS = {"": "monotonic", "relaxed": "monotonic", "acquire": "acquire", "release": "release"}
_ORDERS |= {"acq_rel": "acq_rel"}
# Device memory: never a host's fine-grained allocation, where the bus would have to know the operation.
_DEVICE_MEMORY = ", !amdgpu.no.fine.grained.memory !0, !amdgpu.no.remote.memory !0"


class AtomicOps(MemoryOps):
    """The atomic part of AMD's TargetOps."""

    def atomic(
        self,
        f: FunctionCodegen,
        space: str,
        address: Lanes,
        offset: int,
        op: str,
        type: ScalarType,
        operands: list[Lanes],
        *,
        wanted: bool,
    ) -> Lanes | None:
        """See :class:`~zluda.compiler.target.TargetOps`. Raises UnsupportedError for an unknown operation."""
        b = f.b
        assert f.instruction is not None
        slots = f.instruction.slots
        order = f"{sync_scope(slots.get('scope', ''))} {_ORDERS[slots.get('sem', '')]}".strip()
        if type.bits > 64:
            return self._exchange128(f, space, address, offset, [o.parts[0] for o in operands])
        pointer = self.pointer(f, space, address.parts[0], offset)
        values = [o.parts[0] for o in operands]
        element = values[0].type
        if op == "cas":
            text = f"cmpxchg {pointer.typed}, {values[0].typed}, {values[1].typed} {order} {failure(order)}"
            pair = b.define("pair", 1, text)
            old = b.define(element, 1, f"extractvalue {{ {element}, i1 }} {pair.ref}, 0")
        elif is_computed(op, type):
            old = swap_loop(b, pointer, values[0], op, type, order, cached=space != "shared")
        else:
            name = instruction_name(op, type)
            text = f"atomicrmw {name} {pointer.typed}, {values[0].typed} {order}{_DEVICE_MEMORY}"
            old = b.define(element, 1, text)
        return one(old) if wanted else None

    def _exchange128(
        self, f: FunctionCodegen, space: str, address: Lanes, offset: int, operands: list[Value]
    ) -> Lanes:
        """``cas`` (what is expected, what is put there) or ``exch``: under a lock (``services/wide.cu``)."""
        b = f.b
        assert f.instruction is not None
        desired = operands[-1]
        place = b.add(b.resize(address.parts[0], "i64"), offset)
        if space == "shared":
            place = b.add(place, self.window(f, "shared"))
        halves = [half for value in (operands[0], desired) for half in (value, b.lshr(value, 64))]
        always = constant("i32", int(len(operands) == 1))
        arguments = [place, *(b.trunc(half, "i64") for half in halves), always]
        pointers = [b.alloca("i8", count=16, align=16)]
        for argument in arguments:
            pointers.append(b.alloca("i8", count=8, align=8))
            b.store(argument, pointers[-1], align=4)
        b.call(f.unit.ir_name(EXCHANGE_128), pointers, "i1" if f.unit.may_exit else "void")
        return one(b.load("i128", pointers[0], align=4))
