"""Addresses on AMD GPUs, what order loads and stores ask for, and fences.

Global, const and kernel parameter addresses are the machine's (64 bits); shared addresses are offsets in the
block's LDS, local ones and those of parameters of calls are offsets in the thread's scratch (32 bits). A
generic address is the machine's flat one: LDS and scratch stand in apertures.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from zluda.compiler.amd.special import SpecialRegisters
from zluda.compiler.amd.surroundings import external
from zluda.compiler.analysis.shapes import constant_shape
from zluda.compiler.clusters import CLUSTER
from zluda.compiler.gpu.calls import stack_variable
from zluda.compiler.gpu.memory import GpuMemory, is_parameter
from zluda.compiler.gpu.thread import CONSTANT, FLAT, GLOBAL, LOCAL, SHARED, one
from zluda.compiler.ir import Value, constant
from zluda.compiler.layout import parameter_layout
from zluda.compiler.target import UNIFORM, Lanes, Shape

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen

_SURVIVED = frozenset({"assert", "free", "recursion"})
"""Kinds of fault after which HIP's process goes on: the device can tell them afterwards."""

_NARROW = (SHARED, LOCAL)


class MemoryOps(GpuMemory, SpecialRegisters):
    """The memory part of AMD's TargetOps; parameters are the explicit part of the kernarg segment."""

    parameters = Value(CONSTANT, 1, "%parameters")
    spaces = MappingProxyType(
        {"": FLAT, "global": GLOBAL, "const": CONSTANT, "param": CONSTANT, "shared": SHARED, "local": LOCAL}
    )

    # --- windows and symbols ---------------------------------------------------------------------------

    def window(self, f: FunctionCodegen, space: str) -> Value:
        """Where an aperture begins; 0 for spaces whose addresses are the machine's."""
        if f.unit.clustered and space in ("shared", CLUSTER):
            return self.cluster_memory(f)
        pointer = {"shared": SHARED, "local": LOCAL}.get(space)
        if pointer is None:
            return constant("i64", 0)
        flat = f.b.define(FLAT, 1, f"addrspacecast {pointer} null to ptr")
        return f.b.cast("ptrtoint", flat, "i64")

    def in_window(self, f: FunctionCodegen, space: str, address: Lanes) -> Lanes:
        """``isspacep`` (PTX ISA 9.7.9.17); kernel parameters are part of the global window."""
        b, at = f.b, address.parts[0]
        inside = {
            **self._in_shared(f, at),
            "local": self._in_aperture(f, at, "local"),
            "const": self.in_const(f, at),
            "param": self._in_parameters(f, at),
        }
        inside["global"] = b.not_(b.or_(b.or_(inside[CLUSTER], inside["local"]), inside["const"]))
        return one(inside[space])

    def _in_aperture(self, f: FunctionCodegen, address: Value, space: str) -> Value:
        """By the upper halves: LLVM 22 folds ``is.shared`` or ``is.private`` of one pointer wrongly."""
        b = f.b
        return b.icmp("eq", b.lshr(address, 32), b.lshr(self.window(f, space), 32))

    def _in_shared(self, f: FunctionCodegen, address: Value) -> dict[str, Value]:
        """Whether it is in the block's shared memory, and whether in its cluster's."""
        b = f.b
        if not f.unit.clustered:
            inside = self._in_aperture(f, address, "shared")
            return {"shared": inside, CLUSTER: inside}
        size = b.zext(self.group_bytes(f), "i64")
        return {
            "shared": b.icmp("ult", b.sub(address, self.own_memory(f)), size),
            CLUSTER: b.icmp("ult", b.sub(address, self.cluster_memory(f)), self.cluster_bytes(f)),
        }

    def _in_parameters(self, f: FunctionCodegen, address: Value) -> Value:
        if not f.function.is_entry:
            return constant("i1", 0)  # the parameters of a call are in scratch
        size = parameter_layout(f.function.parameters)[1]
        start = f.b.cast("ptrtoint", self.parameters, "i64")
        return f.b.icmp("ult", f.b.sub(address, start), size)

    def symbol_shape(self, f: FunctionCodegen, name: str) -> Shape:
        """A shared variable's offset is known; addresses in memory are the same in all lanes."""
        if stack_variable(f, name) is None and name in f.unit.shared.offsets and not f.unit.clustered:
            return constant_shape(f.unit.shared.offsets[name])
        return UNIFORM

    def placed(self, f: FunctionCodegen, name: str, align: int) -> Value:
        """A symbol that the linker is given when the code is loaded."""
        return external(f, name, align)

    def shared_symbol(self, f: FunctionCodegen, name: str) -> Lanes:
        """See :class:`~zluda.compiler.gpu.memory.GpuMemory`; in a cluster, with the block's rank above it."""
        offset = constant("i32", f.unit.shared.offsets[name])
        if f.unit.clustered:
            return one(f.b.add(f.b.shl(self.cluster_rank(f), self.block_shift(f)), offset))
        return Lanes(self.symbol_shape(f, name), (offset,))

    def stack_address(self, f: FunctionCodegen, pointer: Value) -> Value:
        """See :class:`~zluda.compiler.gpu.memory.GpuMemory`."""
        return f.b.cast("ptrtoint", pointer, "i32")

    def pointer_to(self, f: FunctionCodegen, space: str, address: Value, offset: int) -> Value:
        """See :class:`~zluda.compiler.gpu.memory.GpuMemory`."""
        b = f.b
        if f.unit.clustered and space in ("shared", CLUSTER):
            pointer = self._shared_pointer(f, b.resize(address, "i32"), own=space == "shared")
        else:
            kind = self.spaces[space]
            pointer = b.cast("inttoptr", b.resize(address, "i32" if kind in _NARROW else "i64"), kind)
        return b.gep(pointer, offset) if offset else pointer

    def _shared_pointer(self, f: FunctionCodegen, address: Value, *, own: bool) -> Value:
        """Into the shared memory of a cluster of several blocks, or by the bits below the rank its own."""
        b = f.b
        if own:
            address = b.and_(address, b.sub(b.shl(constant("i32", 1), self.block_shift(f)), 1))
        start = self.own_memory(f) if own else self.cluster_memory(f)
        return b.cast("inttoptr", b.add(start, b.zext(address, "i64")), GLOBAL)

    # --- stops -------------------------------------------------------------------------------------------

    def ends_plainly(self, kind: str) -> bool:
        """The wave stops, and with it the launch; on a GPU whose runtime would end the process, what the
        device can tell afterwards only ends the wave."""
        return kind not in _SURVIVED if self.end_refused else kind == "trap"

    def trap_plainly(self, f: FunctionCodegen, kind: str) -> None:
        """See :class:`~zluda.compiler.gpu.memory.GpuMemory`."""
        f.b.call("llvm.trap", [])

    def end(self, f: FunctionCodegen) -> None:
        """The wave ends, or traps."""
        f.b.call("llvm.amdgcn.endpgm" if self.end_refused else "llvm.trap", [])

    # --- loads and stores ------------------------------------------------------------------------------

    def before_access(self, f: FunctionCodegen, address: Value, offset: int, size: int) -> None:
        """Stop at an access that is not at a multiple of its size, where ``Unit.check`` asks for it.

        The machine itself minds words only, and LLVM joins accesses of words to longer ones.
        """
        b = f.b
        if f.unit.check != "memory" or size <= 4 or is_parameter(address):
            return
        odd = b.icmp("ne", b.and_(b.add(address, offset), size - 1), 0)
        stop, fine = b.fresh("misaligned"), b.fresh("aligned")
        b.cond_branch(odd, stop, fine)
        b.label(stop)
        self.trap(f, "misaligned")
        b.unreachable()
        b.label(fine)

    def unchanging(self, f: FunctionCodegen, space: str, pointer: Value, *, invariant: bool) -> bool:
        """See :class:`~zluda.compiler.gpu.memory.GpuMemory`."""
        return invariant and pointer.type == CONSTANT

    def acquire(self, f: FunctionCodegen) -> None:
        """See :class:`~zluda.compiler.gpu.memory.GpuMemory`."""
        if _semantics(f) == "acquire":
            self.fence_of(f, "acquire")

    def release(self, f: FunctionCodegen) -> None:
        """See :class:`~zluda.compiler.gpu.memory.GpuMemory`."""
        if _semantics(f) == "release":
            self.fence_of(f, "release")

    def fence(self, f: FunctionCodegen, scope: str) -> None:
        """``membar`` and ``fence``; a fence without a weaker order named is sequentially consistent."""
        self.fence_of(f, {"acq_rel": "acq_rel"}.get(_semantics(f), "seq_cst"), scope)

    def fence_of(self, f: FunctionCodegen, order: str, scope: str = "") -> None:
        """LLVM's fence of an order at the instruction's scope."""
        f.b.emit(f"fence{sync_scope(scope or _scope(f))} {order}")


_SCOPES = {"cta": "workgroup", "cluster": "agent", "gpu": "agent", "gl": "agent", "": "agent", "sys": ""}


def sync_scope(scope: str) -> str:
    """A PTX scope (PTX ISA 8.5) as LLVM spells it, with a leading space; nothing for the system's."""
    name = _SCOPES[scope]
    return f' syncscope("{name}")' if name else ""


def _scope(f: FunctionCodegen) -> str:
    return f.instruction.slots.get("scope", "") if f.instruction is not None else ""


def _semantics(f: FunctionCodegen) -> str:
    return f.instruction.slots.get("sem", "") if f.instruction is not None else ""
